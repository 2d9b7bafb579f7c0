//! The Ballast that serves, its table, and the next one.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::papers::Papers;
use tempfile::TempDir;

use crate::endpoints::Endpoints;
use crate::program;

/// Where clients find each kind of frontend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) tcp: SocketAddr,
    pub(crate) udp: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) dying: SocketAddr,
}

/// What a process uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) resident_kib: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
}

pub(crate) struct Proxy {
    folder: TempDir,
    program: PathBuf,
    /// The last one serves; those before it finish the clients that they have.
    processes: Vec<Child>,
    started: usize,
    endpoints: [String; 6],
    certificate: String,
}

impl Proxy {
    pub(crate) fn start(endpoints: &Endpoints, papers: &Papers) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("a folder: {error}"))?;
        program::build()?;
        let mut proxy = Self {
            folder,
            program: program::path(),
            processes: Vec::new(),
            started: 0,
            endpoints: endpoints.addresses().map(|address| address.to_string()),
            certificate: papers.entry("soak"),
        };
        proxy.swap(0)?;
        proxy.hand_over()?;
        Ok(proxy)
    }

    pub(crate) fn places(&self) -> Places {
        let at = |port| SocketAddr::from((PLACE, port));
        Places {
            tcp: at(17_001),
            udp: at(17_002),
            http: at(17_003),
            https: at(17_004),
            dying: at(17_005),
        }
    }

    /// Replaces the table by the one of this number.
    pub(crate) fn swap(&self, number: u64) -> Result<(), String> {
        let draft = self.folder.path().join("draft");
        let renamed = fs::write(&draft, self.table(number))
            .and_then(|()| fs::rename(&draft, self.folder.path().join("table.yaml")));
        renamed.map_err(|error| format!("the table: {error}"))
    }

    fn table(&self, number: u64) -> String {
        let places = self.places();
        let [tcp, udp, web, second, third, dying] = &self.endpoints;
        let weight = 1 + number % 5;
        let third = match number % 2 {
            0 => format!(", {{address: \"{third}\"}}"),
            _ => String::new(),
        };
        let extra = match number % 3 {
            0 => format!(
                "  - {{name: extra, bind: [\"{PLACE}:17006\"], protocol: tcp, service: t}}\n"
            ),
            _ => String::new(),
        };
        format!(
            "version: 1
frontends:
  - {{name: t, bind: [\"{}\"], protocol: tcp, service: t}}
  - {{name: u, bind: [\"{}\"], protocol: udp, timeouts: {{idle: 5s}}, service: u}}
  - {{name: h, bind: [\"{}\"], protocol: http, default: {{service: w}}}}
  - {{name: s, bind: [\"{}\"], protocol: https, tls: {{certificates: [{}]}}, default: {{service: w}}}}
  - {{name: d, bind: [\"{}\"], protocol: http, default: {{service: d}}}}
{extra}services:
  - {{name: t, endpoints: [{{address: \"{tcp}\"}}]}}
  - {{name: u, endpoints: [{{address: \"{udp}\"}}]}}
  - {{name: w, endpoints: [{{address: \"{web}\", weight: {weight}}}, {{address: \"{second}\"}}{third}]}}
  - {{name: d, health: {{mode: http, path: /, interval: 500ms}}, endpoints: [{{address: \"{dying}\"}}, {{address: \"{web}\"}}]}}
",
            places.tcp, places.udp, places.http, places.https, self.certificate, places.dying,
        )
    }

    /// Starts a process; returns when it serves.
    fn run(&mut self) -> Result<Child, String> {
        self.started += 1;
        let log = self.log(self.started);
        let file = File::create(&log).map_err(|error| format!("a log: {error}"))?;
        let folder = self.folder.path();
        let child = Command::new(&self.program)
            .args(["run", "--threads", "1", "--admin", ADMIN, "--table"])
            .arg(folder)
            .arg("--handover")
            .arg(folder.join("handover"))
            .args(["--drain-timeout", "45s"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let begun = Instant::now();
        while !text(&log).contains("table applied") {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err(format!("Ballast does not serve:\n{}", text(&log)));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(child)
    }

    /// Has a new process take over, if there is one to take over from.
    pub(crate) fn hand_over(&mut self) -> Result<(), String> {
        self.processes
            .retain_mut(|process| !matches!(process.try_wait(), Ok(Some(_))));
        let next = self.run()?;
        self.processes.push(next);
        Ok(())
    }

    /// What the process that serves uses.
    pub(crate) fn look(&self) -> Result<Usage, String> {
        let serving = self.processes.last().ok_or("no Ballast was started")?;
        let of = PathBuf::from(format!("/proc/{}", serving.id()));
        let status = fs::read_to_string(of.join("status"));
        let status = status.map_err(|error| format!("Ballast has ended: {error}"))?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            number.and_then(|number| number.parse::<u64>().ok())
        };
        let descriptors = fs::read_dir(of.join("fd"));
        Ok(Usage {
            resident_kib: number("VmRSS:").unwrap_or(0),
            descriptors: descriptors.map_or(0, Iterator::count),
            threads: usize::try_from(number("Threads:").unwrap_or(0)).unwrap_or(0),
        })
    }

    /// The gauges that are not zero within this time after all clients have gone.
    pub(crate) fn left(&self, patience: Duration) -> Result<Vec<String>, String> {
        let begun = Instant::now();
        loop {
            let metrics = support::get(ADMIN.parse().map_err(|_| "an address")?, "/metrics").1;
            let left: Vec<String> = metrics
                .lines()
                .filter(|line| GAUGES.iter().any(|gauge| line.starts_with(gauge)))
                .filter(|line| !line.ends_with(" 0"))
                .map(str::to_owned)
                .collect();
            if left.is_empty() || begun.elapsed() > patience {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Ends all processes; returns the lines of their logs that are errors.
    pub(crate) fn end(mut self) -> Result<Vec<String>, String> {
        for process in &mut self.processes {
            if let Some(pid) = i32::try_from(process.id()).ok().and_then(Pid::from_raw) {
                kill_process(pid, Signal::TERM).ok();
            }
            process
                .wait()
                .map_err(|error| format!("Ballast: {error}"))?;
        }
        let logs = (1..=self.started).map(|number| text(&self.log(number)));
        let lines = logs.collect::<String>();
        let is_error = |line: &&str| line.contains(" ERROR ") || line.contains("panicked");
        Ok(lines.lines().filter(is_error).map(str::to_owned).collect())
    }

    fn log(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("log-{number}"))
    }
}

fn text(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

const PLACE: Ipv4Addr = Ipv4Addr::new(127, 90, 0, 1);
const ADMIN: &str = "127.90.0.1:17000";
/// What must be zero where there are no clients.
const GAUGES: [&str; 4] = [
    "haproxy_frontend_current_sessions",
    "haproxy_server_current_sessions",
    "ballast_udp_flows{",
    "ballast_worker_connections",
];
