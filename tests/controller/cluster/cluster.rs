//! The cluster: its control plane, its nodes, what is installed there, and how it is asked.

use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Unable;
use crate::api::Place;
use crate::archive::{self, Buildah};
use crate::plane::{Host, Plane, Yard};
use crate::process::{Companion, comes_within};

pub(crate) struct Cluster {
    pub(crate) yard: &'static Yard,
    pub(crate) nodes: [Node; 2],
    pub(crate) plane: Plane,
    /// A machine outside of it.
    pub(crate) client: Host,
    form: Option<Form>,
    _control: [Companion; 3],
}

pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) host: Host,
    folder: PathBuf,
    _script: Companion,
}

/// How Ballast is installed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    /// By rc.yaml, with a pod for each node.
    ReplicationController,
    DaemonSet,
    /// With a data plane of its own, whose next pod takes over from the one that runs.
    Surge,
    /// A DaemonSet with the announcer.
    Announce,
}

impl Form {
    /// The files, as arguments of kubectl.
    fn files(self) -> [&'static str; 2] {
        match self {
            Self::ReplicationController => ["-f", RC_YAML],
            Self::DaemonSet => ["-k", DAEMONSET],
            Self::Surge => ["-k", SURGE],
            Self::Announce => ["-k", ANNOUNCE],
        }
    }

    /// What makes the pods of load balancer nodes.
    fn makers(self) -> &'static [&'static str] {
        match self {
            Self::ReplicationController => &["rc/ballast"],
            Self::DaemonSet | Self::Announce => &["daemonset/ballast"],
            Self::Surge => &["daemonset/ballast", "daemonset/ballast-dataplane"],
        }
    }
}

impl Cluster {
    pub(crate) fn start() -> Result<Self, Unable> {
        let yard = Yard::made().map_err(|why| Unable::Missing(why.to_owned()))?;
        for program in ["kubelet", "containerd", "dns"] {
            if !yard.assets.join(program).exists() {
                return Err(Unable::Missing(format!(
                    "there is no {program}; export KUBEBUILDER_ASSETS=$(tests/controller/cluster/make)"
                )));
            }
        }
        installed("runc", "runc")?;
        installed("iptables", "iptables")?;
        if !Path::new("/usr/lib/cni/ptp").exists() {
            let why =
                "there are no CNI plugins; on Debian: apt-get install containernetworking-plugins";
            return Err(Unable::Missing(why.into()));
        }
        let ballast = archive::of_ballast()?;
        let buildah = Buildah::here()?;
        permitted(yard)?;

        let plane = Plane::start(yard);
        let tools = plane.folder.join("tools.tar");
        buildah.tools(&tools)?;
        let corefile = plane.folder.join("Corefile");
        fs::write(&corefile, names(&plane.admin_config)).expect("a file");
        let scheduler = [
            format!("--kubeconfig={}", plane.admin_config.display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let control = [
            plane.controllers(),
            plane.companion("kube-scheduler", &scheduler),
            plane.companion("dns", &[format!("-conf={}", corefile.display())]),
        ];
        let hosts = [yard.host(), yard.host()];
        connect(yard, &hosts);
        let mut number = 0;
        let nodes = hosts.map(|host| {
            number += 1;
            Node::start(yard, &plane, host, number, &[&tools, &ballast])
        });
        let cluster = Self {
            yard,
            plane,
            nodes,
            client: yard.host(),
            form: None,
            _control: control,
        };
        cluster.publish_dns();
        cluster.until("two nodes that are ready", || {
            cluster.nodes.iter().all(Node::is_ready(&cluster))
        });
        Ok(cluster)
    }

    /// Installs Ballast in this form, unless it is, and pods behind a Service; both are ready then.
    pub(crate) fn install(&mut self, form: Form) {
        if self.form != Some(form) {
            self.uninstall();
            self.form = Some(form);
            let [flag, path] = form.files();
            if form == Form::Announce {
                // The members' key is there before their pods.
                let whole = self.kubectl(&["kustomize", path]);
                let (namespace, rest) = whole.split_once("\n---\n").expect("several objects");
                self.apply(&format!("{namespace}\n---\n{MEMBERS}\n---\n{rest}"));
            } else {
                self.kubectl(&["create", flag, path]);
            }
            for node in &self.nodes {
                self.kubectl(&[
                    "label",
                    "node",
                    node.name,
                    "role=loadbalancer",
                    "--overwrite",
                ]);
            }
            if form == Form::ReplicationController {
                self.kubectl(&["-n", "ballast", "scale", "rc", "ballast", "--replicas=2"]);
            }
        }
        self.kubectl(&["apply", "-f", WEB]);
        self.rolled_out("default", "deployment/web");
        self.rolled_out("ballast", "deployment/ballast-publish");
        self.until("pods of Ballast that are ready", || {
            self.ready_pods().len() == 2
        });
        // Pods that are not available yet, for minReadySeconds, an update replaces all at once.
        let makers = form.makers().iter();
        for daemonset in makers.filter(|maker| maker.starts_with("daemonset/")) {
            self.rolled_out("ballast", daemonset);
        }
        self.until_published(&self.addresses());
    }

    /// Takes Ballast away as docs/controller.md says.
    pub(crate) fn uninstall(&mut self) {
        let Some(form) = self.form.take() else {
            return;
        };
        self.kubectl(&["delete", "service", "announced", "--ignore-not-found"]);
        let delete = ["-n", "ballast", "delete", "deployment/ballast-publish"];
        self.kubectl(&[&delete, form.makers()].concat());
        let page = fs::read_to_string(MANUAL).expect("a page");
        let (_, task) = page.split_once("\n## Taking it away\n").expect("a task");
        let (_, job) = task.split_once("```yaml\n").expect("a Job");
        let (job, _) = job.split_once("```").expect("its end");
        let file = self.plane.folder.join("release.yaml");
        fs::write(&file, job).expect("a file");
        self.kubectl(&["create", "-f", &file.display().to_string()]);
        self.kubectl(&[
            "-n",
            "ballast",
            "wait",
            "--for=condition=Complete",
            "job/ballast-release",
            "--timeout=60s",
        ]);
        println!(
            "{}",
            self.kubectl(&["-n", "ballast", "logs", "job/ballast-release"])
                .trim()
        );
        let [flag, path] = form.files();
        self.kubectl(&["delete", flag, path, "--ignore-not-found"]);
    }

    /// What kubectl prints, as a person who may do everything.
    pub(crate) fn kubectl(&self, words: &[&str]) -> String {
        self.yard
            .kubectl(&self.plane, words)
            .unwrap_or_else(|error| panic!("kubectl {words:?}: {error}"))
    }

    /// Applies this YAML.
    pub(crate) fn apply(&self, yaml: &str) {
        let file = self.plane.folder.join("applied.yaml");
        fs::write(&file, yaml).expect("a file");
        self.kubectl(&["apply", "-f", &file.display().to_string()]);
    }

    pub(crate) fn rolled_out(&self, namespace: &str, what: &str) {
        self.kubectl(&["-n", namespace, "rollout", "status", what, "--timeout=150s"]);
    }

    pub(crate) fn addresses(&self) -> [Ipv4Addr; 2] {
        self.nodes.each_ref().map(|node| node.host.address)
    }

    pub(crate) fn node_object(&self, node: &Node) -> Value {
        let place = Place {
            kind: "Node",
            namespace: "",
            name: node.name,
        };
        self.plane.admin.read(place).unwrap_or_default()
    }

    pub(crate) fn service(&self) -> Option<Value> {
        self.plane.admin.read(Place {
            kind: "Service",
            namespace: "default",
            name: "web",
        })
    }

    /// Where the Service is, by its status.
    pub(crate) fn published(&self) -> Vec<Ipv4Addr> {
        let service = self.service().unwrap_or_default();
        let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
        let addresses = ingress.into_iter().flatten();
        addresses
            .filter_map(|one| one["ip"].as_str()?.parse().ok())
            .collect()
    }

    pub(crate) fn until_published(&self, wanted: &[Ipv4Addr]) {
        self.until(&format!("the Service is published at {wanted:?}"), || {
            let mut published = self.published();
            published.sort_unstable();
            published == wanted
        });
    }

    /// The pods with this label app, but for those that are ending.
    pub(crate) fn pods(&self, namespace: &str, app: &str) -> Vec<Value> {
        let mut pods = self.plane.admin.list("Pod", namespace);
        pods.retain(|pod| {
            let metadata = &pod["metadata"];
            metadata["labels"]["app"] == app && metadata["deletionTimestamp"].is_null()
        });
        pods
    }

    /// The pods of load balancer nodes that are ready.
    pub(crate) fn ready_pods(&self) -> Vec<Value> {
        let mut pods = self.pods("ballast", "ballast");
        pods.retain(is_ready);
        pods
    }

    /// The pod on that node.
    pub(crate) fn pod_on(&self, pods: &[Value], node: usize) -> Value {
        let name = self.nodes[node].name;
        let on_it = pods.iter().find(|pod| pod["spec"]["nodeName"] == name);
        on_it.unwrap_or_else(|| panic!("no pod on {name}")).clone()
    }

    /// Ends a program of a pod as a crash would: at once.
    pub(crate) fn kill(&self, pod: &Value, program: &str) {
        let uid = pod["metadata"]["uid"].as_str().expect("a uid");
        let node = self
            .nodes
            .iter()
            .find(|node| pod["spec"]["nodeName"] == node.name);
        let cgroup = node
            .and_then(|node| node.folder.file_name())
            .expect("a node's pod");
        let mut killed = 0;
        // Cgroups of both versions have the pod's processes below a folder with its uid.
        for hierarchy in ["/sys/fs/cgroup", "/sys/fs/cgroup/pids"] {
            let root = Path::new(hierarchy).join(cgroup);
            for process in processes_below(&root, &format!("pod{uid}"), false) {
                let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
                if name.trim() == program {
                    let process = Pid::from_raw(process).expect("a process");
                    kill_process(process, Signal::KILL).expect("it runs");
                    killed += 1;
                }
            }
        }
        assert!(
            killed > 0,
            "no {program} runs in {}",
            pod["metadata"]["name"]
        );
    }

    /// Waits until a container of this pod, as the pod was, is another one, and ready.
    pub(crate) fn until_restarted(&self, pod: &Value, container: &str) {
        let place = Place {
            kind: "Pod",
            namespace: pod["metadata"]["namespace"].as_str().unwrap_or_default(),
            name: pod["metadata"]["name"].as_str().unwrap_or_default(),
        };
        let id_in = |pod: &Value| {
            let statuses = pod["status"]["containerStatuses"].as_array();
            let mut statuses = statuses.into_iter().flatten();
            let status = statuses.find(|status| status["name"] == container);
            status.map(|status| status["containerID"].clone())
        };
        let before = id_in(pod);
        self.until(&format!("the kubelet starts {container} again"), || {
            let now = self.plane.admin.read(place).expect("the pod");
            is_ready(&now) && id_in(&now) != before
        });
    }

    /// Waits for something that must come: one that takes a kubelet longer than this is a fault.
    pub(crate) fn until(&self, what: &str, come: impl FnMut() -> bool) {
        assert!(comes_within(PATIENCE, come), "it never came: {what}");
    }

    /// Cluster DNS is beside the control plane, on a port that no Service takes; kube-proxy leads there.
    fn publish_dns(&self) {
        let place = crate::plane::PLACE;
        let text = format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: kube-dns, namespace: kube-system}}, spec: {{clusterIP: {DNS},
  ports: [{{name: dns, port: 53, protocol: UDP}}, {{name: dns-tcp, port: 53, protocol: TCP}}]}}}}
---
{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
  metadata: {{name: kube-dns, namespace: kube-system, labels: {{kubernetes.io/service-name: kube-dns}}}},
  ports: [{{name: dns, port: 5353, protocol: UDP}}, {{name: dns-tcp, port: 5353, protocol: TCP}}],
  endpoints: [{{addresses: [{place}]}}]}}
"
        );
        self.apply(&text);
    }

    /// What can be seen of a cluster in which a test failed.
    fn show(&self) {
        let ask = |words: &[&str]| {
            let said = self.yard.kubectl(&self.plane, words);
            eprintln!(
                "--- kubectl {}:\n{}",
                words.join(" "),
                said.unwrap_or_else(|error| error)
            );
        };
        ask(&["get", "node,pod,service", "-A", "-o", "wide"]);
        ask(&["get", "events", "-A", "--sort-by=.lastTimestamp"]);
        for pod in self.plane.admin.list("Pod", "ballast") {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            ask(&[
                "-n",
                "ballast",
                "logs",
                name,
                "--all-containers",
                "--tail=40",
            ]);
        }
        for node in &self.nodes {
            for log in ["kubelet", "containerd"] {
                let text = fs::read_to_string(node.folder.join(log).with_extension("log"));
                let text = text.unwrap_or_default();
                let last: Vec<_> = text.lines().rev().take(20).collect();
                eprintln!(
                    "--- the end of {log}'s log on {}, backwards:\n{}",
                    node.name,
                    last.join("\n")
                );
            }
        }
    }
}

/// Shows the cluster if the test that holds this fails.
pub(crate) struct Shown<'a>(pub(crate) &'a Cluster);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.show();
        }
    }
}

impl Node {
    fn start(yard: &Yard, plane: &Plane, host: Host, number: u8, images: &[&Path]) -> Self {
        let name = ["edge1", "edge2"][usize::from(number) - 1];
        // The last part names the node's cgroups.
        let folder = plane
            .folder
            .join(format!("ballast-{}-{name}", process::id()));
        fs::create_dir(&folder).expect("a folder");
        let mut command = Command::new(SCRIPT);
        command
            .arg(&folder)
            .arg(&yard.assets)
            .arg(name)
            .arg(host.address.to_string())
            .arg(pods_of(number))
            .arg(&plane.admin_config)
            .arg(DNS)
            .args(images);
        let log = folder.join("script.log");
        let script = host.network.within(|| Companion::hold(&mut command, &log));
        Self {
            name,
            host,
            folder,
            _script: script,
        }
    }

    fn is_ready(cluster: &Cluster) -> impl Fn(&Self) -> bool {
        |node| is_ready(&cluster.node_object(node))
    }
}

/// Whether a pod, or a node, says so.
pub(crate) fn is_ready(object: &Value) -> bool {
    condition(object, "Ready").is_some_and(|ready| ready["status"] == "True")
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind)
}

/// Whether a node can run on this machine.
fn permitted(yard: &Yard) -> Result<(), Unable> {
    let name = format!("ballast-{}-probe", process::id());
    let folder = env::temp_dir().join(name);
    fs::create_dir(&folder).expect("a folder");
    let host = yard.host();
    let probe = host
        .network
        .within(|| Command::new(SCRIPT).arg(&folder).output().expect("bash"));
    if probe.status.success() {
        Ok(())
    } else {
        Err(Unable::Refused(
            String::from_utf8_lossy(&probe.stderr).trim().to_owned(),
        ))
    }
}

fn installed(program: &str, package: &str) -> Result<(), Unable> {
    let folders = [
        "/usr/bin",
        "/usr/sbin",
        "/bin",
        "/sbin",
        "/usr/local/bin",
        "/usr/local/sbin",
    ];
    match folders
        .iter()
        .any(|folder| Path::new(folder).join(program).exists())
    {
        true => Ok(()),
        false => Err(Unable::Missing(format!(
            "there is no {program}; on Debian: apt-get install {package}"
        ))),
    }
}

/// Routes between all: the pods of a node are behind it, and nobody's address is changed on the way.
fn connect(yard: &Yard, hosts: &[Host; 2]) {
    let [one, other] = hosts;
    for (number, host, other) in [(1, one, other), (2, other, one)] {
        let (pods, address) = (pods_of(number), host.address);
        yard.place.ip(&format!("route add {pods} via {address}"));
        other.network.ip(&format!("route add {pods} via {address}"));
        host.network
            .ip(&format!("route add default via {}", crate::plane::PLACE));
        host.network.set("ipv4/ip_forward", "1");
    }
}

fn pods_of(node: u8) -> String {
    format!("10.51.{node}.0/24")
}

/// The processes of all cgroups below the one of this name.
fn processes_below(folder: &Path, name: &str, inside: bool) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            let inside = inside || entry.file_name().to_string_lossy().contains(name);
            found.extend(processes_below(&path, name, inside));
        } else if inside && entry.file_name() == "cgroup.procs" {
            let text = fs::read_to_string(path).unwrap_or_default();
            found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
        }
    }
    found
}

/// The names of the cluster; nobody else's are known, and that is said at once.
fn names(kubeconfig: &Path) -> String {
    format!(
        "cluster.local:5353 {{
  bind {place}
  errors
  kubernetes {{
    kubeconfig {}
    ttl 5
  }}
}}
.:5353 {{
  bind {place}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
",
        kubeconfig.display(),
        place = crate::plane::PLACE
    )
}

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/controller/cluster/node"
);
const WEB: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/controller/cluster/web.yaml"
);
const RC_YAML: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rc.yaml");
const DAEMONSET: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../templates/kustomize/overlays/daemonset"
);
const SURGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../templates/kustomize/overlays/surge"
);
const ANNOUNCE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../templates/kustomize/overlays/announce"
);
/// The key of the announcers.
const MEMBERS: &str = "apiVersion: v1
kind: Secret
metadata: {name: ballast-members, namespace: ballast}
stringData: {members.key: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}";
const MANUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/controller.md");
/// Of the cluster's DNS, among the addresses of Services.
const DNS: &str = "10.96.0.10";
const PATIENCE: Duration = Duration::from_secs(90);
