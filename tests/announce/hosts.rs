//! Hosts of `ballast-controller announce`: network namespaces on one bridge, which end with the test.

use std::fs;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

/// Hosts and a client on a network.
pub(crate) struct Place {
    pub(crate) hosts: Vec<Host>,
    pub(crate) client: Host,
    bridge: Space,
}

/// A host with its announcer.
pub(crate) struct Host {
    space: Space,
    folder: TempDir,
    announcer: Option<Child>,
    /// Capabilities that the announcer is started without, as setpriv names them.
    pub(crate) without: Option<&'static str>,
    data_plane: Option<DataPlane>,
    pub(crate) number: u8,
}

/// What stands for `ballast`: its runtime socket, and a port at which it takes clients.
struct DataPlane {
    socket: thread::JoinHandle<()>,
    port: thread::JoinHandle<()>,
    has_ended: Arc<AtomicBool>,
}

/// A network namespace, which lives as long as the process in it.
struct Space(Child);

impl Space {
    fn make() -> Result<Self, String> {
        let holder = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut space = Self(holder.map_err(|error| format!("unshare: {error}"))?);
        let own = fs::read_link("/proc/self/ns/net").map_err(|error| error.to_string())?;
        let begun = Instant::now();
        loop {
            if let Ok(Some(_)) = space.0.try_wait() {
                return Err("unshare --net: not permitted; it takes root".to_owned());
            }
            let there = fs::read_link(format!("/proc/{}/ns/net", space.0.id()));
            if there.is_ok_and(|there| there != own) {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return Err("unshare --net does not come".to_owned());
            }
            pause(Duration::from_millis(5));
        }
        space.ip("link set lo up");
        Ok(space)
    }

    fn power_on(&self, number: u8) {
        self.ip("link set eth0 up");
        self.ip(&format!("address add 10.77.0.{number}/24 dev eth0"));
        self.ip(&format!("address add fd77::{number}/64 dev eth0 nodad"));
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.0.id().to_string(), "-n", program]);
        command
    }

    fn ip(&self, words: &str) -> String {
        let said = self.try_ip(words);
        said.unwrap_or_else(|said| panic!("ip {words}: {said}"))
    }

    /// What `ip` says to these words. `Err`: why it does not do it.
    fn try_ip(&self, words: &str) -> Result<String, String> {
        let mut command = self.command("ip");
        let output = command.args(words.split(' ')).output().expect("ip");
        let [said, failed] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        output.status.success().then_some(said).ok_or(failed)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Place {
    /// The client is the host with the number behind the last one.
    pub(crate) fn build(hosts: u8) -> Result<Self, String> {
        let bridge = Space::make()?;
        bridge.ip("link add br0 type bridge");
        bridge.ip("link set br0 up");
        let host = |number: u8| -> Result<Host, String> {
            let space = Space::make()?;
            let (port, pid) = (format!("port{number}"), space.0.id());
            bridge.ip(&format!(
                "link add {port} type veth peer name eth0 netns {pid}"
            ));
            bridge.ip(&format!("link set {port} master br0 up"));
            space.ip(&format!(
                "link set eth0 address 02:00:00:00:77:{number:02x}"
            ));
            space.power_on(number);
            Ok(Host {
                space,
                number,
                folder: tempfile::tempdir().map_err(|error| error.to_string())?,
                announcer: None,
                without: None,
                data_plane: None,
            })
        };
        Ok(Self {
            hosts: (1..=hosts).map(host).collect::<Result<_, _>>()?,
            client: host(hosts + 1)?,
            bridge,
        })
    }

    /// Plugs the cable of a host in, or pulls it.
    pub(crate) fn plug(&self, number: usize, is_in: bool) {
        let state = if is_in { "up" } else { "down" };
        let port = number + 1;
        self.bridge.ip(&format!("link set port{port} {state}"));
    }

    /// Starts the announcer of a host, and its data plane.
    pub(crate) fn start(&mut self, number: usize) {
        let addresses = "- {address: 10.77.0.100, mode: l2, nodes: [NODES], ready: true}
- {address: \"fd77::100\", mode: l2, nodes: [NODES]}
";
        self.start_with(number, addresses);
    }

    /// Starts the announcer of a host with these addresses, and its data plane, unless it runs.
    pub(crate) fn start_with(&mut self, number: usize, addresses: &str) {
        let names: Vec<String> = (1..=self.hosts.len())
            .map(|number| format!("edge{number}"))
            .collect();
        let addresses = addresses.replace("NODES", &names.join(", "));
        // Of the first two hosts each knows the other; the rest is told.
        let peer = if number == 0 { 2 } else { 1 };
        let host = &mut self.hosts[number];
        let text = format!(
            "version: 1
node: edge{}
members: {{bind: \"0.0.0.0:7956\", peers: [\"10.77.0.{}:7956\"], key-file: members.key}}
data-plane: {{socket: ballast.sock}}
addresses:
{addresses}",
            number + 1,
            peer
        );
        let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
        fs::write(host.path("members.key"), key).expect("a key");
        if host.data_plane.is_none() {
            host.begin_data_plane();
        }
        if host.announcer.is_none() {
            host.announce(&text);
        }
    }

    pub(crate) fn holds(&self, number: usize, address: &str) -> bool {
        let shown = self.hosts[number].ip("-o address show dev eth0");
        shown.contains(&format!(" {address}/"))
    }

    /// The hosts that have the address on their interface, and power.
    pub(crate) fn holders(&self, address: &str) -> Vec<usize> {
        (0..self.hosts.len())
            .filter(|number| self.holds(*number, address))
            .collect()
    }
}

impl Host {
    pub(crate) fn ip(&self, words: &str) -> String {
        self.space.ip(words)
    }

    pub(crate) fn try_ip(&self, words: &str) -> Result<String, String> {
        self.space.try_ip(words)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn file(&self) -> String {
        fs::read_to_string(self.path("announce.yaml")).expect("a file")
    }

    /// Replaces the file whole.
    pub(crate) fn write(&self, text: &str) {
        let new = self.path("announce.yaml.new");
        fs::write(&new, text).expect("a file");
        fs::rename(new, self.path("announce.yaml")).expect("a file");
    }

    /// Replaces words of the file.
    pub(crate) fn replace(&self, old: &str, new: &str) {
        let file = self.file();
        assert!(file.contains(old), "{old} is not in {file}");
        self.write(&file.replace(old, new));
    }

    pub(crate) fn ack(&self) -> String {
        fs::read_to_string(self.path("announce-ack.json")).unwrap_or_default()
    }

    pub(crate) fn mac(&self) -> Option<String> {
        let shown = self.ip("-o link show dev eth0");
        let words = shown.split(' ').skip_while(|word| *word != "link/ether");
        words.into_iter().nth(1).map(str::to_owned)
    }

    /// The hardware address that the kernel of this host knows for an address.
    pub(crate) fn neighbour(&self, address: &str) -> Option<String> {
        let shown = self.ip(&format!("neigh show {address} dev eth0"));
        let words = shown.split(' ').skip_while(|word| *word != "lladdr");
        words.into_iter().nth(1).map(str::to_owned)
    }

    /// Whether a host with the address answers: it refuses a connection.
    pub(crate) fn reaches(&self, address: &str) -> bool {
        let script = format!("</dev/tcp/{address}/9");
        let mut command = self.space.command("timeout");
        let asked = command
            .args(["2", "bash", "-c", &script])
            .output()
            .expect("bash");
        String::from_utf8_lossy(&asked.stderr).contains("refused")
    }

    /// The process that holds the network of this host.
    pub(crate) fn holder(&self) -> u32 {
        self.space.0.id()
    }

    /// The seconds for which the announcer had a processor.
    pub(crate) fn processor(&self) -> f64 {
        let text = self.about("stat");
        let words: Vec<&str> = text
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .split(' ')
            .collect();
        let ticks = |place: usize| words[place].parse::<f64>().expect("a number");
        (ticks(11) + ticks(12)) / 100.0
    }

    /// The kilobytes of memory of the announcer.
    pub(crate) fn memory(&self) -> u64 {
        let text = self.about("status");
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number
            .and_then(|number| number.parse().ok())
            .expect("a number")
    }

    fn about(&self, what: &str) -> String {
        let id = self.announcer.as_ref().expect("an announcer").id();
        fs::read_to_string(format!("/proc/{id}/{what}")).expect("it runs")
    }

    pub(crate) fn begin_data_plane(&mut self) {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (holder, is_over) = (self.holder(), Arc::clone(&has_ended));
        let port = thread::spawn(move || {
            enter(holder);
            let listener = TcpListener::bind("[::]:80").expect("a port");
            listener.set_nonblocking(true).expect("a socket");
            while !is_over.load(Ordering::Relaxed) {
                if listener.accept().is_err() {
                    pause(Duration::from_millis(2));
                }
            }
        });
        let listener = UnixListener::bind(self.path("ballast.sock")).expect("a socket");
        let socket = thread::spawn(move || {
            let mut clients = Vec::new();
            // The word that a test says to end it.
            for mut client in listener.incoming().flatten() {
                use std::io::{Read, Write};
                let mut word = [0; 4];
                client.read_exact(&mut word).ok();
                if &word == b"END!" {
                    return;
                }
                client.write_all(b"\n> ").ok();
                clients.push(client);
            }
        });
        self.data_plane = Some(DataPlane {
            socket,
            port,
            has_ended,
        });
    }

    pub(crate) fn end_data_plane(&mut self) {
        use std::io::Write;
        let Some(data_plane) = self.data_plane.take() else {
            return;
        };
        data_plane.has_ended.store(true, Ordering::Relaxed);
        let path = self.path("ballast.sock");
        let mut client = std::os::unix::net::UnixStream::connect(&path).expect("the data plane");
        fs::remove_file(path).expect("its socket");
        client.write_all(b"END!").expect("the data plane");
        data_plane.socket.join().expect("no panic");
        data_plane.port.join().expect("no panic");
    }

    /// Starts the announcer with this file.
    pub(crate) fn announce(&mut self, text: &str) {
        self.write(text);
        let own = std::env::current_exe().expect("this program");
        let own = own.to_str().expect("a path");
        let mut command = match self.without {
            Some(capability) => {
                let mut command = self.space.command("setpriv");
                command.args([&format!("--bounding-set=-{capability}"), own]);
                command
            }
            None => self.space.command(own),
        };
        command.arg("announce").arg(self.path("announce.yaml"));
        self.announcer = Some(command.spawn().expect("an announcer"));
    }

    /// A program in the folder and the network of this host.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = self.space.command(name);
        command.current_dir(self.folder.path());
        command
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self
            .announcer
            .as_ref()
            .expect("an announcer")
            .id()
            .to_string();
        let done = Command::new("kill").args(["-s", name, &id]).status();
        assert!(done.expect("kill").success());
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        let announcer = self.announcer.as_mut().expect("an announcer");
        announcer.try_wait().expect("a child").is_some()
    }

    /// Ends the announcer without a word.
    pub(crate) fn kill(&mut self) {
        if let Some(mut announcer) = self.announcer.take() {
            announcer.kill().ok();
            announcer.wait().ok();
        }
    }

    /// The host is gone: its programs and its network.
    pub(crate) fn power_off(&mut self) {
        self.ip("link set eth0 down");
        self.kill();
        self.ip("address flush dev eth0");
    }

    /// It starts, and nothing runs on it yet.
    pub(crate) fn power_on(&self) {
        self.space.power_on(self.number);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end_data_plane();
        self.kill();
    }
}

/// Takes this thread into the network that a process has.
pub(crate) fn enter(holder: u32) {
    let network = fs::File::open(format!("/proc/{holder}/ns/net")).expect("a network");
    let kind = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(network.as_fd(), kind).expect("the rights of root");
}

/// Whether a program that a test needs is not installed: the test is skipped then, and fails in CI.
pub(crate) fn is_missing(command: &mut Command, package: &str) -> bool {
    if command.output().is_ok() {
        return false;
    }
    let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_ci, "CI=true, and {package} is not installed");
    eprintln!("SKIP: {package} is not installed (apt-get install {package})");
    true
}

/// Waits for something, with patience for a busy machine.
pub(crate) fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_within(PATIENCE, what, is_so);
}

pub(crate) fn until_within(patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(
            begun.elapsed() < patience,
            "{what}: not within {patience:?}"
        );
        pause(Duration::from_millis(10));
    }
}

/// Time that is a part of the test. What wakes this thread before, as the end of a scope of threads does, is not the end of it.
pub(crate) fn pause(time: Duration) {
    let begun = Instant::now();
    while let Some(left) = time
        .checked_sub(begun.elapsed())
        .filter(|left| !left.is_zero())
    {
        thread::park_timeout(left);
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
