//! API servers: etcd and kube-apiserver, with RBAC and an audit log, in a network of their own.

use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::{Value, json};

use crate::api::Api;
use crate::process::{Companion, PATIENCE, comes_within, until};
use support::netns::Namespace;

/// The network that all tests of this process share: a switch, API servers at its place, and hosts with cables to it.
pub(crate) struct Yard {
    pub(crate) place: Namespace,
    pub(crate) assets: PathBuf,
    hosts: AtomicU16,
    planes: AtomicU16,
}

/// A machine on the switch.
pub(crate) struct Host {
    pub(crate) network: Namespace,
    pub(crate) address: Ipv4Addr,
    port: String,
}

/// An API server and what it needs. It ends when it is dropped, or with this process.
pub(crate) struct Plane {
    pub(crate) admin: Api,
    /// The kubeconfig of somebody who may do everything.
    pub(crate) admin_config: PathBuf,
    server: Mutex<Option<Companion>>,
    etcd: Mutex<Option<Companion>>,
    audit: Mutex<Audit>,
    pub(crate) folder: PathBuf,
    /// Removes it in the end.
    _tidier: Companion,
    number: u16,
    yard: &'static Yard,
}

/// What was read of an audit log. Every line is read once: the log of the API server that tests share is long in the end.
#[derive(Default)]
struct Audit {
    /// How many bytes of it were read.
    read: u64,
    /// The entries, by the name of the user.
    asked: HashMap<String, Vec<Value>>,
}

impl Yard {
    /// It. A test runs only where [`Yard::made`] it.
    pub(crate) fn of_this_process() -> &'static Self {
        Self::made().unwrap_or_else(|why| panic!("{why}"))
    }

    /// It, or why it cannot be had here.
    pub(crate) fn made() -> Result<&'static Self, &'static str> {
        static YARD: OnceLock<Result<Yard, String>> = OnceLock::new();
        YARD.get_or_init(Self::make)
            .as_ref()
            .map_err(String::as_str)
    }

    fn make() -> Result<Self, String> {
        let Some(assets) = env::var_os(ASSETS) else {
            return Err(format!(
                "{ASSETS} is not set; export {ASSETS}=$(tests/controller/controlplane/make)"
            ));
        };
        let place = Namespace::make().map_err(|why| format!("no network namespaces: {why}"))?;
        // With an address of its own: else it has the lowest of its ports', another one with every host that comes and
        // goes, and for ten seconds nobody finds it.
        place.ip("link add switch address 02:00:00:00:88:01 type bridge");
        place.ip(&format!("address add {PLACE}/16 dev switch"));
        place.ip("address add fd88::1/64 dev switch nodad");
        place.ip("link set switch up");
        Ok(Self {
            place,
            assets: assets.into(),
            hosts: AtomicU16::new(0),
            planes: AtomicU16::new(0),
        })
    }

    /// A new machine.
    pub(crate) fn host(&self) -> Host {
        let number = self.hosts.fetch_add(1, Ordering::Relaxed);
        let [high, low] = (number + 256).to_be_bytes();
        let address = Ipv4Addr::new(10, 88, high, low);
        let network = Namespace::make().expect("one more network");
        let port = format!("port{number}");
        self.place.lay_cable(&port, &network);
        self.place.ip(&format!("link set {port} master switch"));
        network.ip(&format!("address add {address}/16 dev eth0"));
        network.ip(&format!(
            "address add fd88::{}/64 dev eth0 nodad",
            number + 256
        ));
        network.ip("link set eth0 up");
        Host {
            network,
            address,
            port,
        }
    }

    /// From now on nobody hears this machine, and it hears nobody.
    pub(crate) fn cut(&self, host: &Host) {
        self.place.ip(&format!("link set {} down", host.port));
    }

    /// The end of [`Yard::cut`].
    pub(crate) fn mend(&self, host: &Host) {
        self.place.ip(&format!("link set {} up", host.port));
    }

    pub(crate) fn kubectl(&self, plane: &Plane, args: &[&str]) -> Result<String, String> {
        let output = self.place.within(|| {
            Command::new(self.assets.join("kubectl"))
                .arg("--kubeconfig")
                .arg(&plane.admin_config)
                .args(args)
                .output()
                .expect("kubectl")
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }
}

impl Host {
    /// Its other address.
    pub(crate) fn address6(&self) -> Ipv6Addr {
        let [.., high, low] = self.address.octets();
        let number = u16::from_be_bytes([high, low]);
        format!("fd88::{number}").parse().expect("an address")
    }
}

impl Plane {
    /// The one that tests share which do it no harm.
    pub(crate) fn shared(yard: &'static Yard) -> &'static Self {
        static SHARED: OnceLock<Plane> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(yard))
    }

    /// One of a test's own.
    pub(crate) fn start(yard: &'static Yard) -> Self {
        let number = yard.planes.fetch_add(1, Ordering::Relaxed);
        // In memory, where there is some: a busy disk keeps etcd waiting for half a minute.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.expect("a folder").keep();
        let at = |name: &str| folder.join(name);
        fs::write(
            at("tokens"),
            format!("{TOKEN},admin,admin,system:masters\n"),
        )
        .expect("a file");
        fs::write(at("audit.yaml"), AUDIT).expect("a file");
        make_key(&at("accounts.key"));
        let tidier = Companion::remove_in_the_end(&folder);
        let etcd = yard.place.within(|| start_etcd(yard, number, &folder));
        let server = yard.place.within(|| start_server(yard, number, &folder));
        let certificate = at("certificates/apiserver.crt");
        // Its own, and that of who signed it.
        until("the certificates of the API server", || {
            let text = fs::read_to_string(&certificate).unwrap_or_default();
            text.matches("-----END CERTIFICATE-----\n").count() == 2
        });
        let admin_config = at("admin.json");
        let config = kubeconfig(&server_url(number), &certificate, TOKEN);
        fs::write(&admin_config, config).expect("a file");
        let plane = Self {
            admin: yard.place.within(|| Api::of(&admin_config)),
            admin_config,
            server: Mutex::new(Some(server)),
            etcd: Mutex::new(Some(etcd)),
            audit: Mutex::default(),
            folder,
            _tidier: tidier,
            number,
            yard,
        };
        plane.until_ready();
        plane
    }

    /// A kubeconfig for who has this token.
    pub(crate) fn kubeconfig(&self, token: &str) -> String {
        self.kubeconfig_of(&server_url(self.number), token)
    }

    /// The same, for a server in front of this one.
    pub(crate) fn kubeconfig_of(&self, url: &str, token: &str) -> String {
        let certificate = self.folder.join("certificates/apiserver.crt");
        kubeconfig(url, &certificate, token)
    }

    /// What this user has asked of the API server until now: one entry for each request that was answered. The audit log has the
    /// requests of ServiceAccounts.
    pub(crate) fn asked_by(&self, user: &str) -> Vec<Value> {
        let mut audit = self.audit.lock().unwrap_or_else(PoisonError::into_inner);
        audit.read_on(&self.folder.join("audit.log"));
        audit.asked.get(user).cloned().unwrap_or_default()
    }

    /// Ends the API server at once.
    pub(crate) fn crash(&self) {
        self.server().take().expect("it runs");
    }

    /// Starts it again.
    pub(crate) fn restart(&self) {
        let mut server = self.server();
        let start = || start_server(self.yard, self.number, &self.folder);
        *server = Some(self.yard.place.within(start));
        drop(server);
        self.until_ready();
    }

    /// Keeps what the store has now, for [`Self::restore`].
    pub(crate) fn back_up(&self) {
        let mut etcd = self.etcd();
        // What it writes is whole when it has ended.
        etcd.take();
        copy(&self.folder.join("etcd"), &self.folder.join("backup"));
        *etcd = Some(self.new_etcd());
        drop(etcd);
        self.until_ready();
    }

    /// Goes back to the last backup, as an administrator does after a loss: versions go back, too.
    pub(crate) fn restore(&self) {
        self.crash();
        let mut etcd = self.etcd();
        etcd.take();
        let data = self.folder.join("etcd");
        fs::remove_dir_all(&data).expect("the data of etcd");
        copy(&self.folder.join("backup"), &data);
        *etcd = Some(self.new_etcd());
        drop(etcd);
        self.restart();
    }

    fn new_etcd(&self) -> Companion {
        let start = || start_etcd(self.yard, self.number, &self.folder);
        self.yard.place.within(start)
    }

    fn etcd(&self) -> MutexGuard<'_, Option<Companion>> {
        self.etcd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was before the state of now: a watch that wants to go on from there cannot.
    pub(crate) fn compact(&self) {
        let (_, range) = self.ask_etcd("/v3/kv/range", &json!({"key": "AA=="}));
        let revision = range["header"]["revision"].as_str().expect("a revision");
        let (head, _) = self.ask_etcd(
            "/v3/kv/compaction",
            &json!({"revision": revision, "physical": true}),
        );
        assert!(head.contains(" 200 "), "{head}");
    }

    fn ask_etcd(&self, path: &str, body: &Value) -> (String, Value) {
        let body = body.to_string();
        let answer = self.yard.place.within(|| {
            let port = etcd_port(self.number);
            let mut etcd = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("etcd");
            write!(
                etcd,
                "POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .expect("a request");
            let mut answer = String::new();
            etcd.read_to_string(&mut answer).expect("an answer");
            answer
        });
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (
            head.to_owned(),
            serde_json::from_str(body).unwrap_or_default(),
        )
    }

    fn until_ready(&self) {
        let mut said = None;
        let ready = comes_within(PATIENCE, || {
            said = self.admin.text("/readyz").err();
            said.is_none()
        });
        assert!(ready, "the API server is not ready: {said:?}");
    }

    fn server(&self) -> MutexGuard<'_, Option<Companion>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// kube-controller-manager, with its account's rights, until it is dropped.
    pub(crate) fn controllers(&self) -> Companion {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let flags = [
            format!("--kubeconfig={}", self.admin_config.display()),
            format!("--service-account-private-key-file={}", at("accounts.key")),
            format!("--root-ca-file={}", at("certificates/apiserver.crt")),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--use-service-account-credentials=false".to_owned(),
        ];
        self.companion("kube-controller-manager", &flags)
    }

    /// A program beside the API server, until it is dropped.
    pub(crate) fn companion(&self, program: &str, flags: &[String]) -> Companion {
        let log = self.folder.join(program).with_extension("log");
        let program = self.yard.assets.join(program);
        self.yard
            .place
            .within(|| Companion::start(&program, flags, &log))
    }
}

impl Audit {
    /// Reads what came to the log since the last time.
    fn read_on(&mut self, log: &Path) {
        let Ok(mut log) = File::open(log) else {
            return;
        };
        let mut text = Vec::new();
        log.seek(SeekFrom::Start(self.read)).expect("a file");
        log.read_to_end(&mut text).expect("the audit log");
        // The last line may be half written.
        let Some(end) = text.iter().rposition(|&byte| byte == b'\n') else {
            return;
        };
        self.read += end as u64 + 1;
        for line in text[..end].split(|&byte| byte == b'\n') {
            // A server that was killed leaves half a line.
            let Ok(entry) = serde_json::from_slice::<Value>(line) else {
                continue;
            };
            let user = entry["user"]["username"].as_str().unwrap_or_default();
            let asked = self.asked.entry(user.to_owned());
            asked.or_default().push(entry);
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.server().take();
        self.etcd().take();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.join("server.log"));
            let log = log.unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(20).collect();
            eprintln!(
                "--- the end of the API server's log, backwards:\n{}",
                last.join("\n")
            );
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.expect("the program cp").success());
}

fn start_etcd(yard: &Yard, number: u16, folder: &Path) -> Companion {
    let flags = etcd_flags(number, &folder.join("etcd"));
    let program = yard.assets.join("etcd");
    Companion::start(&program, &flags, &folder.join("etcd.log"))
}

fn start_server(yard: &Yard, number: u16, folder: &Path) -> Companion {
    let at = |name: &str| folder.join(name).display().to_string();
    let program = yard.assets.join("kube-apiserver");
    let mut flags = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", etcd_port(number)),
        format!("--bind-address={PLACE}"),
        format!("--advertise-address={PLACE}"),
        format!("--secure-port={}", server_port(number)),
        format!("--cert-dir={}", at("certificates")),
        format!("--token-auth-file={}", at("tokens")),
        "--authorization-mode=RBAC".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-signing-key-file={}", at("accounts.key")),
        format!("--service-account-key-file={}", at("accounts.key")),
        "--service-cluster-ip-range=10.96.0.0/16,fd96::/108".to_owned(),
        "--allow-privileged=true".to_owned(),
        // Names of nodes lead nowhere here.
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--audit-policy-file={}", at("audit.yaml")),
        format!("--audit-log-path={}", at("audit.log")),
        // It ends at once when it is told to.
        "--shutdown-delay-duration=0s".to_owned(),
    ];
    if has_gate(&program, STRICT_RANGES) {
        flags.push(format!("--feature-gates={STRICT_RANGES}=false"));
    }
    Companion::start(&program, &flags, &folder.join("server.log"))
}

/// Whether an API server of this version has a feature gate of this name.
fn has_gate(program: &Path, gate: &str) -> bool {
    let help = Command::new(program).arg("--help").output();
    let help = help.expect("kube-apiserver").stdout;
    String::from_utf8_lossy(&help).contains(&format!("{gate}=true|false"))
}

fn etcd_flags(number: u16, data: &Path) -> [String; 7] {
    let (clients, peers) = (etcd_port(number), etcd_port(number) + 1);
    [
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls=http://127.0.0.1:{clients}"),
        format!("--advertise-client-urls=http://127.0.0.1:{clients}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peers}"),
        format!("--initial-advertise-peer-urls=http://127.0.0.1:{peers}"),
        format!("--initial-cluster=default=http://127.0.0.1:{peers}"),
        "--log-level=warn".to_owned(),
    ]
}

fn kubeconfig(url: &str, certificate: &Path, token: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": {
            "server": url,
            "certificate-authority": certificate,
        }}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "current-context": "it",
    })
    .to_string()
}

/// The key that tokens of ServiceAccounts are signed with.
fn make_key(path: &Path) {
    let made = Command::new("openssl")
        .args([
            "ecparam",
            "-genkey",
            "-noout",
            "-name",
            "prime256v1",
            "-out",
        ])
        .arg(path)
        .output()
        .expect("openssl");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

fn etcd_port(number: u16) -> u16 {
    2379 + 10 * number
}

fn server_port(number: u16) -> u16 {
    6443 + 10 * number
}

fn server_url(number: u16) -> String {
    format!("https://{PLACE}:{}", server_port(number))
}

/// Where the API servers are, for everybody on the switch.
pub(crate) const PLACE: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// Without it ranges may have host bits, as with API servers before 1.36.
const STRICT_RANGES: &str = "StrictIPCIDRValidation";
/// Good for this process' servers only.
const TOKEN: &str = "the-admin-of-a-test";
/// Which ServiceAccount asked what, and what came of it.
const AUDIT: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
omitManagedFields: true
rules: [{level: Metadata, userGroups: ['system:serviceaccounts']}]
";
