//! `ballast-controller publish` on a machine of its own.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

use crate::corner::{Corner, PUBLISHERS};
use crate::node::metrics;
use crate::plane::Host;
use crate::process::Process;
use support::program::program;

/// The machine, and what runs there.
pub(crate) struct Publisher {
    pub(crate) process: Process,
    host: Host,
    kubeconfig: PathBuf,
    home: String,
    name: &'static str,
}

impl Publisher {
    /// With these arguments beside the corner's own.
    pub(crate) fn start(corner: &Corner<'_>, flags: &[&str]) -> Self {
        let host = corner.yard.host();
        let folder = corner
            .folder
            .path()
            .join(format!("publisher-{}", host.address));
        fs::create_dir_all(&folder).expect("a folder");
        let kubeconfig = folder.join("kubeconfig");
        let config = corner.kubeconfig(&corner.token(PUBLISHERS));
        fs::write(&kubeconfig, config).expect("a file");
        let address = host.address.to_string();
        let own = corner.arguments.publisher.iter();
        let own = own.map(|word| word.replace("$(POD_IP)", &address));
        let flags = flags.iter().map(|&flag| flag.to_owned());
        let mut command = program("ballast-controller");
        command
            .args(own.chain(flags))
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .envs(corner.arguments.environment.clone())
            .env("POD_NAMESPACE", &corner.home);
        let start = || Process::start(&mut command, &folder.join("log"));
        Self {
            process: host.network.within(start),
            host,
            kubeconfig,
            home: corner.home.clone(),
            name: corner.name,
        }
    }

    /// `ballast-controller release`, as the account of publishers: its exit code, and what it said.
    pub(crate) fn release(&self, flags: &[&str]) -> (Option<i32>, String) {
        let mut command = program("ballast-controller");
        command
            .args(["release", "--namespace", self.name, "--kubeconfig"])
            .arg(&self.kubeconfig)
            .args(flags)
            .env("POD_NAMESPACE", &self.home);
        self.output(&mut command)
    }

    fn output(&self, command: &mut Command) -> (Option<i32>, String) {
        let network = &self.host.network;
        let output = network.within(|| command.output().expect("a program"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout) + &text(&output.stderr),
        )
    }

    /// Of its machine.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.host.address
    }

    /// What it counts.
    pub(crate) fn metrics(&self) -> String {
        metrics(&self.host)
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.kubeconfig.with_file_name("log")).unwrap_or_default()
    }

    /// Whether it is the one that this holder of the leader's Lease names.
    pub(crate) fn is_named(&self, holder: &str) -> bool {
        holder.contains(&format!("_{}_", self.process.id()))
    }
}
