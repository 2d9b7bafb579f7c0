//! A cgroup with little memory: peers that stop reading do not end the process.

use std::cell::Cell;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::peers::{connect, fresh_address, get, server};
use crate::process::{Process, folder, limited, table};
use support::raw::{INITIAL_WINDOW, Raw};
use support::skip::skip;

#[test]
fn readers_that_stop_reading_do_not_use_up_the_memory_of_a_small_container() {
    let Some(group) = small() else { return };
    // An endpoint that sends as much as it can, and does not read while it cannot.
    let endless = server(|mut client| {
        narrow(&client);
        while client.write_all(&[7; 64 << 10]).is_ok() {}
    });
    let frontend = fresh_address();
    let folder = folder(&table(&[(frontend, endless)]));
    let mut process = serve_in(&group, folder.path());

    let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(frontend).unwrap()).collect();
    // They do not read either, and send until nobody takes more.
    for client in &clients {
        narrow(client);
        client.set_nonblocking(true).unwrap();
    }
    let before = Cell::new((0, 0));
    process.until("that nothing moves any more", || {
        let sent: usize = clients.iter().map(fill).sum();
        support::pause(Duration::from_millis(200));
        let now = (group.used(), bytes_out(&process));
        sent == 0 && now.1 > 0 && before.replace(now) == now
    });
    assert!(process.is_running(), "{}", process.err.text());
    assert!(group.used() <= LIMIT, "{} bytes are used", group.used());
    process.until_answers("/readyz", 200);
    let connections = value(&process.metrics(), "haproxy_process_current_connections ");
    assert!(
        (200..CLIENTS as u64).contains(&connections),
        "{connections}"
    );
}

/// Each of them reads a response by a connection of its own to the endpoint.
#[test]
fn streams_that_nobody_reads_do_not_use_up_the_memory_of_a_small_container() {
    let Some(group) = small() else { return };
    let endless = server(|mut client| {
        narrow(&client);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";
        let began = client
            .read(&mut [0; 4096])
            .and_then(|_| client.write_all(head));
        while began.is_ok() && client.write_all(&[7; 64 << 10]).is_ok() {}
    });
    let frontend = fresh_address();
    let folder = folder(&format!(
        "version: 1\nfrontends: [{{name: f0, bind: [\"{frontend}\"], protocol: http, default: {{service: s}}}}]\nservices: [{{name: s, endpoints: [{{address: \"{endless}\"}}]}}]\n"
    ));
    let mut process = serve_in(&group, folder.path());
    let mut clients = Vec::new();
    for _ in 0..STREAMING_CLIENTS {
        let mut client = Raw::with(frontend, &[(INITIAL_WINDOW, 1 << 30)]);
        client.grant(0, 1 << 30);
        // Who is one too many is told so, or hears nothing yet.
        for stream in (1..).step_by(2).take(100) {
            client.get(stream, "/");
        }
        clients.push(client);
    }
    let (begun, mut before) = (Instant::now(), (0, 0));
    loop {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it goes on moving bytes"
        );
        support::pause(Duration::from_millis(500));
        assert!(process.is_running(), "it was killed");
        // It may be killed in the middle of an answer.
        let Ok((_, metrics)) = get(process.admin(), "/metrics") else {
            continue;
        };
        let now = (group.used(), value(&metrics, BYTES_OUT));
        if now.1 > 0 && now == before {
            break;
        }
        before = now;
    }
    assert!(group.used() <= LIMIT, "{} bytes are used", group.used());
    process.until_answers("/readyz", 200);
    drop(clients);
}

/// A cgroup with little memory; `None`: there is none, which is said.
fn small() -> Option<Group> {
    match Group::limited(LIMIT) {
        Ok(group) => Some(group),
        Err(why) => {
            skip(&why);
            None
        }
    }
}

/// Runs the program in this group, with the table of this folder.
fn serve_in(group: &Group, folder: &Path) -> Process {
    let run = [
        "run",
        "--threads",
        "2",
        "--admin",
        "127.0.0.1:0",
        "--table",
        folder.to_str().unwrap(),
    ];
    let enter = format!("echo $$ > {}/cgroup.procs", group.0.display());
    let process = Process::spawn(&mut limited(&enter, &run));
    process.until_said("64 MiB of memory");
    process.until_answers("/readyz", 200);
    process
}

/// What peers hold themselves is none of the process's memory, but the machine's.
fn narrow(peer: &TcpStream) {
    let peer = SockRef::from(peer);
    peer.set_send_buffer_size(16 << 10).unwrap();
    peer.set_recv_buffer_size(16 << 10).unwrap();
}

/// Sends until the kernel takes no more.
fn fill(mut client: &TcpStream) -> usize {
    let mut sent = 0;
    loop {
        match client.write(&[7; 64 << 10]) {
            Ok(written) => sent += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return sent,
            Err(error) => panic!("{error}"),
        }
    }
}

fn bytes_out(process: &Process) -> u64 {
    value(&process.metrics(), BYTES_OUT)
}

fn value(metrics: &str, name: &str) -> u64 {
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    value.expect(name).parse().unwrap()
}

/// A cgroup of this test's own. It is removed when it is dropped, after its processes have ended.
struct Group(PathBuf);

impl Group {
    /// One with a limit of memory, or why there is none.
    fn limited(bytes: u64) -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ballast-test-{}-{number}", process::id());
        let limit = bytes.to_string();
        let v1 = own.lines().find_map(|line| line.split_once(":memory:"));
        let (folder, settings) = match (v1, own.lines().find_map(|line| line.strip_prefix("0::/")))
        {
            // Version 1 counts socket buffers only where they have a limit of their own.
            (Some((_, group)), _) => (
                Path::new("/sys/fs/cgroup/memory").join(group.trim_start_matches('/')),
                [
                    ("memory.limit_in_bytes", limit.as_str()),
                    ("memory.kmem.tcp.limit_in_bytes", limit.as_str()),
                ],
            ),
            // A group with processes hands no controllers on: beside it.
            (None, Some(group)) => (
                Path::new("/sys/fs/cgroup")
                    .join(Path::new(group).parent().unwrap_or_else(|| Path::new(""))),
                [("memory.max", limit.as_str()), ("memory.swap.max", "0")],
            ),
            (None, None) => return Err("there are no cgroups".into()),
        };
        let group = Self(folder.join(name));
        let cannot = |error| format!("{}: no cgroup can be made: {error}", group.0.display());
        fs::create_dir(&group.0).map_err(cannot)?;
        for (setting, value) in settings {
            fs::write(group.0.join(setting), value).map_err(cannot)?;
        }
        Ok(group)
    }

    /// Bytes that are used, socket buffers included.
    fn used(&self) -> u64 {
        let read = |file| {
            let text = fs::read_to_string(self.0.join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        read("memory.current").unwrap_or_else(|| {
            let used = read("memory.usage_in_bytes").unwrap();
            used + read("memory.kmem.tcp.usage_in_bytes").unwrap()
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What has just been killed may not have left yet.
        support::comes_within(Duration::from_secs(2), || {
            !self.0.exists() || fs::remove_dir(&self.0).is_ok()
        });
    }
}

const BYTES_OUT: &str = "haproxy_frontend_bytes_out_total{proxy=\"f0\"} ";
const LIMIT: u64 = 64 << 20;
const CLIENTS: usize = 1_500;
/// Each with a hundred streams.
const STREAMING_CLIENTS: usize = 30;
