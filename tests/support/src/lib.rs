//! What the end-to-end tests of `ballast` and of `ballast-controller` share. Here: a data plane in the test's own process, with tables
//! of the test's making, and simple servers. In the modules: other peers, certificates, networks, the programs themselves.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ballast::config::Admin;
use ballast::{Config, Running};
use ballast_core::ack::Ack;
use tempfile::TempDir;

pub mod apart;
pub mod claims;
pub mod crowd;
pub mod netns;
pub mod papers;
pub mod peers;
pub mod program;
pub mod raw;
pub mod skip;
mod wait;

pub use claims::free_port;
pub use wait::{
    comes_within, comes_within_async, found_within, pause, pause_async, until, until_async,
    until_within,
};

/// A running data plane and its table.
pub struct Ballast {
    pub running: Running,
    folder: TempDir,
    /// The threads of its workers.
    workers: BTreeSet<u32>,
}

impl Ballast {
    /// Serves `table` with `threads` workers.
    pub fn serve(table: &str, threads: usize) -> Self {
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
        Self::start(table, threads, Admin::At(vec![admin]))
    }

    /// Serves `table`, which says where the admin side is.
    pub fn serve_from_table(table: &str) -> Self {
        Self::start(table, 1, Admin::FromTable)
    }

    /// Serves `table`, with a runtime socket.
    pub fn serve_with_socket(table: &str, threads: usize) -> Self {
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config {
            threads: Some(threads),
            admin: Admin::At(vec![admin]),
            socket: Some(folder.path().join("socket")),
            ..Config::new(folder.path().into())
        };
        Self::begin(folder, table, config)
    }

    /// Where its runtime socket is, if it has one.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn start(table: &str, threads: usize, admin: Admin) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config {
            threads: Some(threads),
            admin,
            ..Config::new(folder.path().into())
        };
        Self::begin(folder, table, config)
    }

    fn begin(folder: TempDir, table: &str, config: Config) -> Self {
        fs::write(folder.path().join("table.yaml"), table).expect("a table");
        let config = Config {
            drain_timeout: Duration::from_secs(5),
            ..config
        };
        Self::begin_as(folder, config)
    }

    /// Starts it with exactly these settings. Its workers are told from those of other tests by being new: all tests start theirs
    /// here, one at a time.
    pub(crate) fn begin_as(folder: TempDir, config: Config) -> Self {
        let _alone = peers::alone();
        let before = peers::worker_threads();
        let running = ballast::start(config).expect("a start");
        let mut ballast = Self {
            running,
            folder,
            workers: BTreeSet::new(),
        };
        ballast.until(|ballast| ballast.ack().is_some_and(|ack| ack.served.is_some()));
        ballast.workers = peers::worker_threads()
            .difference(&before)
            .copied()
            .collect();
        ballast
    }

    /// Where the table is.
    pub fn table_path(&self) -> PathBuf {
        self.folder.path().join("table.yaml")
    }

    /// Replaces the table by a rename, and waits until it is served or refused.
    pub fn swap(&self, table: &str) {
        let before = self.ack();
        let draft = self.folder.path().join("draft");
        fs::write(&draft, table).expect("a table");
        fs::rename(draft, self.table_path()).expect("a rename");
        self.until(|ballast| {
            let after = ballast.ack();
            let digests = |ack: &Option<Ack>| {
                ack.as_ref().map(|ack| {
                    let served = ack.served.as_ref().map(|served| served.digest.clone());
                    let refused = ack.refused.as_ref().map(|refused| refused.digest.clone());
                    (served, refused)
                })
            };
            digests(&after) != digests(&before)
        });
    }

    pub fn ack(&self) -> Option<Ack> {
        let ack = self.running.shared().status.ack()?;
        Some(Ack::clone(&ack))
    }

    /// Where the frontend with port 0 really listens.
    pub fn address(&self) -> SocketAddr {
        let listening = self.running.shared().status.listening();
        *listening.values().next().expect("a socket")
    }

    /// Waits for something that must come.
    pub fn until(&self, come: impl Fn(&Self) -> bool) {
        let in_time = comes_within(Duration::from_secs(20), || come(self));
        assert!(in_time, "it never came: {:?}", self.ack());
    }

    pub fn connect(&self) -> TcpStream {
        connect(self.address())
    }

    /// What `/metrics` says.
    pub fn metrics(&self) -> String {
        get(self.running.admin()[0], "/metrics").1
    }

    /// Connections that are counted on all endpoints now.
    pub fn in_flight(&self) -> u32 {
        let plan = self.running.shared().live.plan();
        let endpoints = plan
            .services()
            .iter()
            .flat_map(|service| service.endpoints());
        endpoints.map(|endpoint| endpoint.live().in_flight()).sum()
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream =
        TcpStream::connect_timeout(&address, Duration::from_secs(5)).expect("a connection");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("an option");
    stream
}

/// Status line and body of an answer.
pub fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = connect(address);
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.lines().next().unwrap_or_default().into(), body.into())
}

/// A server that answers each connection's first bytes with its name and closes.
pub fn named_server(name: &'static str) -> SocketAddr {
    server(named(name))
}

/// What `named_server` does with each connection.
pub fn named(name: &'static str) -> impl Fn(TcpStream) + Clone + Send + 'static {
    move |mut client| {
        let mut asked = [0; 1024];
        if client.read(&mut asked).is_ok_and(|read| read > 0) {
            client.write_all(name.as_bytes()).ok();
        }
    }
}

/// A server that sends back what it hears.
pub fn echo_server() -> SocketAddr {
    server(|mut client| {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(read @ 1..) = client.read(&mut bytes) {
            if client.write_all(&bytes[..read]).is_err() {
                return;
            }
        }
    })
}

/// A server that does this with each connection.
pub fn server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    server_at(Ipv4Addr::LOCALHOST, serve)
}

/// The same at another address of this host.
pub fn server_at(ip: Ipv4Addr, serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((ip, 0)).expect("a listener");
    let address = listener.local_addr().expect("an address");
    serve_all(listener, Arc::default(), move |client, _| serve(client));
    address
}

/// Runs a test's tasks in one thread.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

/// Serves each client of the listener in a thread of its own. Each has a number, by which `accepted` counts them.
pub fn serve_all(
    listener: TcpListener,
    accepted: Arc<AtomicUsize>,
    serve: impl Fn(TcpStream, usize) + Clone + Send + 'static,
) {
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let number = accepted.fetch_add(1, Ordering::SeqCst);
            let serve = serve.clone();
            thread::spawn(move || serve(client, number));
        }
    });
}

/// Asks once, and hears the whole answer.
pub fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"?")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// An address where nobody listens.
pub fn nobody() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// A table of one frontend on any port and one service with these endpoints.
pub fn table(frontend: &str, service: &str, endpoints: &[SocketAddr]) -> String {
    let endpoints: Vec<String> = endpoints
        .iter()
        .map(|address| format!("{{address: \"{address}\"}}"))
        .collect();
    format!(
        "version: 1\nfrontends:\n  - {{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s{frontend}}}\nservices:\n  - {{name: s{service}, endpoints: [{}]}}\n",
        endpoints.join(", ")
    )
}
