//! A load balancer node: a machine of its own with `ballast` and `ballast-controller`, and the Node object for it.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::api::Place;
use crate::corner::{Corner, NODES, SOCKET, TABLE_FOLDER};
use crate::plane::Host;
use crate::process::{Process, until};
use support::program::program;

pub(crate) struct LbNode<'a> {
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) dataplane: Option<Process>,
    pub(crate) controller: Option<Process>,
    pub(crate) flags: Vec<String>,
    folder: PathBuf,
    corner: &'a Corner<'a>,
}

impl<'a> LbNode<'a> {
    /// A node with both programs running.
    pub(crate) fn start(corner: &'a Corner<'_>, name: &str, flags: &[&str]) -> Self {
        let mut node = Self::prepare(corner, name, flags);
        node.start_dataplane();
        node.start_controller();
        node
    }

    /// A node on which nothing runs yet.
    pub(crate) fn prepare(corner: &'a Corner<'_>, name: &str, flags: &[&str]) -> Self {
        let host = corner.yard.host();
        let name = format!("{}-{name}", corner.name);
        // There are sockets in it, whose paths may not be long.
        let folder = corner.folder.path().join(host.address.to_string());
        fs::create_dir_all(folder.join("table")).expect("a folder");
        // As the kubelet of that node has it for the pod.
        let token = corner.token_on(NODES, &name, &format!("ballast-{}", host.address));
        let config = corner.kubeconfig(&token);
        fs::write(folder.join("kubeconfig"), config).expect("a file");
        let node = Self {
            name,
            host,
            dataplane: None,
            controller: None,
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            folder,
            corner,
        };
        node.register();
        node
    }

    /// Makes its Node object.
    pub(crate) fn register(&self) {
        self.corner.apply(&format!(
            "apiVersion: v1
kind: Node
metadata: {{name: {}, labels: {{role: loadbalancer, corner: {}}}}}
status: {{addresses: [{{type: InternalIP, address: {}}}]}}
",
            self.name, self.corner.name, self.host.address
        ));
    }

    pub(crate) fn start_dataplane(&mut self) {
        self.start_dataplane_with(&[]);
    }

    pub(crate) fn start_dataplane_with(&mut self, flags: &[&str]) {
        let mut command = program("ballast");
        command
            .args(self.placed(&self.corner.arguments.dataplane))
            .args(flags);
        let log = self.folder.join("ballast.log");
        let start = || Process::start(&mut command, &log);
        self.dataplane = Some(self.host.network.within(start));
    }

    /// And the publisher, if there is none yet: with the same arguments.
    pub(crate) fn start_controller(&mut self) {
        self.corner.be_published(&self.flags);
        self.start_controller_alone();
    }

    pub(crate) fn start_controller_alone(&mut self) {
        let mut command = program("ballast-controller");
        command
            .args(self.placed(&self.corner.arguments.controller))
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(&self.flags)
            .envs(self.corner.arguments.environment.clone())
            .env("NODE_NAME", &self.name)
            .env("POD_NAMESPACE", &self.corner.home);
        let log = self.folder.join("controller.log");
        let start = || Process::start(&mut command, &log);
        self.controller = Some(self.host.network.within(start));
    }

    /// What the controller counts.
    pub(crate) fn metrics(&self) -> String {
        metrics(&self.host)
    }

    /// Who has this token is the controller of this node, from its next start on.
    pub(crate) fn take_token(&self, token: &str) {
        let config = self.corner.kubeconfig(token);
        fs::write(self.kubeconfig(), config).expect("a file");
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// These arguments, with this node's places for the table and the runtime socket.
    fn placed(&self, arguments: &[String]) -> Vec<String> {
        let folder = self.table_folder().display().to_string();
        let socket = self.folder.join("haproxy").display().to_string();
        let placed = arguments
            .iter()
            .map(|word| word.replace(TABLE_FOLDER, &folder).replace(SOCKET, &socket));
        placed.collect()
    }

    pub(crate) fn table_folder(&self) -> PathBuf {
        self.folder.join("table")
    }

    pub(crate) fn address(&self) -> String {
        self.host.address.to_string()
    }

    /// The table's text, if there is one.
    pub(crate) fn table(&self) -> Option<String> {
        fs::read_to_string(self.table_folder().join("table.json")).ok()
    }

    /// What the table says, but for its number.
    pub(crate) fn content(&self) -> Value {
        let text = self.table();
        let table = text.and_then(|text| serde_json::from_str(&text).ok());
        let mut table: Value = table.unwrap_or_default();
        table["generation"].take();
        table
    }

    /// The names of the table's frontends.
    pub(crate) fn frontends(&self) -> Vec<String> {
        let table = self.content();
        let frontends = table["frontends"].as_array().into_iter().flatten();
        let names = frontends.filter_map(|frontend| frontend["name"].as_str());
        names.map(str::to_owned).collect()
    }

    /// Waits until its data plane has a frontend of this name, and says that it serves its newest table.
    pub(crate) fn until_serves(&self, frontend: &str) {
        until(&format!("{} serves {frontend}", self.name), || {
            self.frontends().iter().any(|name| name == frontend)
        });
        self.until_in_force();
    }

    /// Waits until its data plane has answered the newest table.
    pub(crate) fn until_in_force(&self) {
        until(&format!("{} has its table in force", self.name), || {
            let number = |file: &str, path: &[&str]| -> Option<Value> {
                let text = fs::read(self.table_folder().join(file)).ok()?;
                let mut value: Value = serde_json::from_slice(&text).ok()?;
                for key in path {
                    value = value[*key].take();
                }
                Some(value)
            };
            let wanted = number("table.json", &["generation"]);
            wanted.is_some() && wanted == number("ack.json", &["served", "generation"])
        });
    }

    /// The Lease that says that it lives.
    pub(crate) fn lease(&self) -> Option<Value> {
        let name = format!("ballast-{}", self.name);
        self.corner.plane.admin.read(Place {
            kind: "Lease",
            namespace: &self.corner.home,
            name: &name,
        })
    }

    /// A whole conversation with a port of this node: what is heard after something was said.
    pub(crate) fn ask(&self, port: u16) -> std::io::Result<String> {
        ask((self.host.address, port).into())
    }
}

/// What a controller on this machine counts.
pub(crate) fn metrics(host: &Host) -> String {
    host.network.within(|| {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", 1937)) else {
            return String::new();
        };
        let asked = b"GET /metrics HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        let heard = stream.write_all(asked);
        heard.and_then(|()| stream.read_to_string(&mut answer)).ok();
        answer
    })
}

/// Says something from here, and hears the whole answer.
pub(crate) fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"?\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.is_empty() {
        Err(std::io::ErrorKind::UnexpectedEof.into())
    } else {
        Ok(answer)
    }
}

/// The holder of the leader's Lease in a corner.
pub(crate) fn leader(corner: &Corner<'_>) -> Option<String> {
    let lease = corner.plane.admin.read(Place {
        kind: "Lease",
        namespace: &corner.home,
        name: "ballast-leader",
    })?;
    let holder = lease["spec"]["holderIdentity"].as_str()?;
    (!holder.is_empty()).then(|| holder.to_owned())
}
