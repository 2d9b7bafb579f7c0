//! Where the bench takes place: three network namespaces of its own, joined by veth in a triangle (client to proxy, proxy to
//! origin, and client to origin for the run without a proxy), or loopback where namespaces are not permitted. Each process is
//! started here, in its place and on its core.
//!
//! A janitor process in a group of its own reads the bench's pipe. When that closes, for whatever reason (the end, a panic,
//! Ctrl-C, SIGKILL), it ends what still runs, deletes the namespaces and the folder. Nothing else cleans up.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::usage;

/// The cores that the three parties are pinned to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub(crate) proxy: usize,
    pub(crate) client: usize,
    pub(crate) origin: usize,
}

/// Who runs where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Client,
    Proxy,
    Origin,
}

/// The namespaces, or loopback; with the folder for configurations.
pub(crate) struct Net {
    pub(crate) cores: Cores,
    nice: i32,
    pub(crate) folder: PathBuf,
    /// How many descriptors each process may have.
    pub(crate) descriptors: u64,
    namespaces: Option<[String; 3]>,
    executable: PathBuf,
    janitor: Janitor,
}

impl Net {
    /// Makes the namespaces; the second value says why there are none.
    pub(crate) fn make(
        cores: Cores,
        nice: i32,
        loopback: bool,
    ) -> io::Result<(Self, Option<String>)> {
        let id = std::process::id();
        clear_away_the_dead();
        let names = PLACES.map(|place| format!("{NAMESPACE}{id}-{place}"));
        let folder = std::env::temp_dir().join(format!("{FOLDER}{id}"));
        std::fs::create_dir(&folder)?;
        let executable = std::env::current_exe()?;
        let janitor = Janitor::start(&executable, &folder, &names)?;
        let refusal = if loopback {
            Some("--loopback was given".to_owned())
        } else {
            join_namespaces(&names).err().map(|error| error.to_string())
        };
        let net = Self {
            cores,
            nice,
            folder,
            descriptors: usage::raise_descriptor_limit(),
            namespaces: refusal.is_none().then_some(names),
            executable,
            janitor,
        };
        for place in [Place::Client, Place::Proxy, Place::Origin] {
            if net.namespaces.is_some() {
                net.role(place, "tune").status()?;
            }
        }
        Ok((net, refusal))
    }

    /// Where a proxy listens.
    pub(crate) fn front(&self) -> SocketAddr {
        self.address([10, 203, 1, 2], [127, 77, 0, 2], 6000)
    }

    /// Where the origin is for a proxy.
    pub(crate) fn origin(&self) -> SocketAddr {
        self.address([10, 203, 2, 2], [127, 77, 0, 3], ORIGIN_PORT)
    }

    /// Where the origin is for the client, without a proxy between.
    pub(crate) fn direct(&self) -> SocketAddr {
        self.address([10, 203, 3, 2], [127, 77, 0, 3], ORIGIN_PORT)
    }

    /// Where the origin listens.
    pub(crate) fn origin_bind(&self) -> SocketAddr {
        self.address([0, 0, 0, 0], [127, 77, 0, 3], ORIGIN_PORT)
    }

    /// A command that will run in `place`, pinned to its core, under the same process id throughout.
    pub(crate) fn command(&self, place: Place, program: impl AsRef<OsStr>) -> Command {
        self.command_at(self.nice, place, program.as_ref())
    }

    /// A part of this bench as a process of its own.
    pub(crate) fn role(&self, place: Place, role: &str) -> Command {
        let mut command = self.command(place, &self.executable);
        command.args(["role", role]);
        command
    }

    /// The same at a lower priority, but above strangers where the others are far above them.
    pub(crate) fn background_role(&self, place: Place, role: &str) -> Command {
        let mut command = self.command_at(
            (self.nice + STEPS_DOWN).min(19),
            place,
            self.executable.as_ref(),
        );
        command.args(["role", role]);
        command
    }

    fn command_at(&self, nice: i32, place: Place, program: &OsStr) -> Command {
        let core = match place {
            Place::Client => self.cores.client,
            Place::Proxy => self.cores.proxy,
            Place::Origin => self.cores.origin,
        };
        let mut command = match &self.namespaces {
            Some(names) => {
                let mut command = Command::new("ip");
                command
                    .args(["netns", "exec", &names[place as usize]])
                    .arg(&self.executable);
                command
            }
            None => Command::new(&self.executable),
        };
        command
            .args(["role", "pinned", &core.to_string(), &nice.to_string()])
            .arg(program);
        command
    }

    /// Starts a process that ends with the returned value, or with the bench.
    pub(crate) fn start(&self, command: &mut Command) -> io::Result<Started> {
        let child = command.stdin(Stdio::null()).spawn()?;
        self.janitor.watch(child.id());
        Ok(Started(child))
    }

    fn address(&self, inside: [u8; 4], loopback: [u8; 4], port: u16) -> SocketAddr {
        let octets = if self.namespaces.is_some() {
            inside
        } else {
            loopback
        };
        (Ipv4Addr::from(octets), port).into()
    }
}

/// A running process; dropped, it and its descendants are ended.
pub(crate) struct Started(Child);

impl Started {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.is_running() {
            end_family(self.0.id());
        }
        if let Err(error) = self.0.wait() {
            eprintln!("peers: a process could not be awaited: {error}");
        }
    }
}

impl Cores {
    /// The first cores this process may use: one for the proxy, one for the client, one for the origin if there is a third.
    pub(crate) fn available() -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|core| allowed.is_set(*core))
            .collect();
        let proxy = cores.first().copied().unwrap_or_default();
        let client = cores.get(1).copied().unwrap_or(proxy);
        let origin = cores.get(2).copied().unwrap_or(client);
        Self {
            proxy,
            client,
            origin,
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let cores: Option<Vec<usize>> = text.split(',').map(|core| core.parse().ok()).collect();
        match cores.as_deref() {
            Some(&[proxy, client, origin]) => Ok(Self {
                proxy,
                client,
                origin,
            }),
            _ => Err(format!(
                "--cores {text}: three core numbers wanted, such as 0,1,1"
            )),
        }
    }

    /// Each core once.
    pub(crate) fn distinct(self) -> Vec<usize> {
        let mut cores = vec![self.proxy, self.client, self.origin];
        cores.sort_unstable();
        cores.dedup();
        cores
    }
}

/// Pins this process, and what it will start, to one core.
pub(crate) fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|error| io::Error::other(format!("core {core}: {error}")))
}

/// The role `pinned CORE NICE PROGRAM ARGS..`: becomes that program; returns only if that fails.
pub(crate) fn become_pinned(words: &[String]) -> io::Error {
    let [core, nice, program, arguments @ ..] = words else {
        return io::Error::other("pinned: no core, no priority or no program");
    };
    let pinned = core.parse().map_err(io::Error::other).and_then(pin);
    let pinned = pinned.and_then(|()| prioritize(nice.parse().map_err(io::Error::other)?));
    match pinned {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    }
}

fn prioritize(nice: i32) -> io::Result<()> {
    if nice == 0 {
        return Ok(());
    }
    let refused = |error| io::Error::other(format!("--nice {nice}: {error}"));
    rustix::process::setpriority_process(None, nice).map_err(refused)?;
    // Where the kernel groups processes by session, a priority counts within the group only; the group has one of its own.
    rustix::process::setsid()?;
    match std::fs::write("/proc/self/autogroup", nice.to_string()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The role `tune`: settings of this namespace, so that connection-per-request does not run out of ports.
pub(crate) fn tune() {
    for (name, value) in SETTINGS {
        // An older kernel has not all of them; the bench runs without, and counts what then fails.
        if let Err(error) = std::fs::write(format!("/proc/sys/net/{name}"), value) {
            eprintln!("peers: net/{name} stays as it is: {error}");
        }
    }
}

/// The role `janitor FOLDER NAMESPACE..`: waits for the end of the bench, and cleans up.
pub(crate) fn clean_up_at_end(words: &[String]) -> io::Result<()> {
    let [folder, namespaces @ ..] = words else {
        return Ok(());
    };
    let mut started = String::new();
    io::stdin().read_to_string(&mut started)?;
    for line in started.lines() {
        let Some((pid, start)) = line.split_once(' ') else {
            continue;
        };
        // A number may belong to somebody else by now; the moment of the start tells.
        if let Ok(pid) = pid.parse()
            && usage::start_time(pid).is_some_and(|now| now == start)
        {
            end_family(pid);
        }
    }
    for name in namespaces {
        delete_namespace(name);
    }
    std::fs::remove_dir_all(folder)
}

struct Janitor {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Janitor {
    fn start(executable: &Path, folder: &Path, names: &[String]) -> io::Result<Self> {
        let mut command = Command::new(executable);
        command
            .args(["role", "janitor"])
            .arg(folder)
            .args(names)
            .stdin(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn()?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe })
    }

    fn watch(&self, pid: u32) {
        let start = usage::start_time(pid).unwrap_or_default();
        let told = self
            .pipe
            .as_ref()
            .map(|mut pipe| writeln!(pipe, "{pid} {start}"));
        if let Some(Err(error)) = told {
            eprintln!("peers: the janitor does not listen: {error}");
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.pipe.take());
        if let Err(error) = self.child.wait() {
            eprintln!("peers: the janitor could not be awaited: {error}");
        }
    }
}

fn join_namespaces(names: &[String; 3]) -> io::Result<()> {
    for name in names {
        ip(&["netns", "add", name])?;
        ip(&["-n", name, "link", "set", "lo", "up"])?;
    }
    let [client, proxy, origin] = names;
    join(client, "10.203.1.1/24", proxy, "10.203.1.2/24", "front")?;
    join(proxy, "10.203.2.1/24", origin, "10.203.2.2/24", "back")?;
    join(client, "10.203.3.1/24", origin, "10.203.3.2/24", "direct")
}

fn join(
    left: &str,
    left_address: &str,
    right: &str,
    right_address: &str,
    link: &str,
) -> io::Result<()> {
    ip(&[
        "-n", left, "link", "add", link, "type", "veth", "peer", "name", link, "netns", right,
    ])?;
    for (namespace, address) in [(left, left_address), (right, right_address)] {
        ip(&["-n", namespace, "address", "add", address, "dev", link])?;
        ip(&["-n", namespace, "link", "set", link, "up"])?;
    }
    Ok(())
}

fn ip(words: &[&str]) -> io::Result<()> {
    let output = Command::new("ip")
        .args(words)
        .output()
        .map_err(|error| io::Error::other(format!("ip: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "ip {}: {}",
        words.join(" "),
        why.trim()
    )))
}

/// What an earlier run left behind whose janitor was killed too: namespaces and folders of processes that are no more.
fn clear_away_the_dead() {
    let is_left_behind = |name: &str, prefix: &str| {
        let id = name
            .strip_prefix(prefix)
            .and_then(|rest| rest.split('-').next());
        id.and_then(|id| id.parse().ok())
            .is_some_and(|id: u32| usage::start_time(id).is_none())
    };
    for name in names_in(Path::new("/run/netns")) {
        if is_left_behind(&name, NAMESPACE) {
            delete_namespace(&name);
        }
    }
    let folders = std::env::temp_dir();
    for name in names_in(&folders) {
        if is_left_behind(&name, FOLDER)
            && let Err(error) = std::fs::remove_dir_all(folders.join(&name))
        {
            eprintln!("peers: {name} of an earlier run stays behind: {error}");
        }
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn delete_namespace(name: &str) {
    let listed = Command::new("ip").args(["netns", "pids", name]).output();
    let Ok(listed) = listed else {
        return;
    };
    if !listed.status.success() {
        return;
    }
    for pid in String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter_map(|line| line.parse().ok())
    {
        kill(pid);
    }
    if let Err(error) = ip(&["netns", "delete", name]) {
        eprintln!("peers: namespace {name} stays behind: {error}");
    }
}

/// Parents first, so that nginx's master does not start its worker anew.
fn end_family(root: u32) {
    usage::family(root).into_iter().for_each(kill);
    std::thread::sleep(Duration::from_millis(1));
}

fn kill(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    match kill_process(pid, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => eprintln!("peers: process {pid:?} could not be ended: {error}"),
    }
}

/// A tenth of the processor's time beside one of the others.
const STEPS_DOWN: i32 = 10;
const PLACES: [&str; 3] = ["client", "proxy", "origin"];
/// Followed by the number of the bench's process.
const NAMESPACE: &str = "peers-";
const FOLDER: &str = "ballast-peers-";

/// The first of the origin's two ports.
pub(crate) const ORIGIN_PORT: u16 = 7000;

const SETTINGS: [(&str, &str); 6] = [
    ("ipv4/ip_local_port_range", "10240 65535"),
    ("ipv4/tcp_tw_reuse", "1"),
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv4/tcp_max_syn_backlog", "8192"),
    ("core/somaxconn", "8192"),
    ("ipv6/conf/all/disable_ipv6", "1"),
];
