//! The clients: those that ask as fast as they are answered, and those that wait.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use support::papers::Papers;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use tokio::task::{JoinSet, LocalSet};

use crate::Options;
use crate::hist::Histogram;
use crate::proxy::Places;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    Http,
    Http2,
    Tls,
    Udp,
    IdleHttp,
    IdleTcp,
    OfDying,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Tcp,
        Self::Http,
        Self::Http2,
        Self::Tls,
        Self::Udp,
        Self::IdleHttp,
        Self::IdleTcp,
        Self::OfDying,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Http => "HTTP/1",
            Self::Http2 => "HTTP/2",
            Self::Tls => "HTTP/1 in TLS",
            Self::Udp => "UDP",
            Self::IdleHttp => "HTTP/1, mostly idle",
            Self::IdleTcp => "TCP, mostly idle",
            Self::OfDying => "of dying endpoints",
        }
    }
}

/// What became of the exchanges of one kind.
pub(crate) struct Tally {
    done: AtomicU64,
    failed: AtomicU64,
    latencies: Mutex<Histogram>,
    reasons: Mutex<Vec<String>>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            latencies: Mutex::new(Histogram::new()),
            reasons: Mutex::default(),
        }
    }
}

impl Tally {
    /// Counts what began then.
    fn count<T>(&self, begun: Instant, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(found) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                let mut latencies = self
                    .latencies
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                latencies.record(begun.elapsed());
                Some(found)
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
                if reasons.len() < REASONS {
                    reasons.push(format!("after {:?}: {error}", begun.elapsed()));
                }
                None
            }
        }
    }

    pub(crate) fn counts(&self) -> (u64, u64) {
        let of = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        (of(&self.done), of(&self.failed))
    }

    pub(crate) fn quantiles_ms(&self, shares: [f64; 3]) -> [f64; 3] {
        let latencies = self
            .latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        shares.map(|share| latencies.quantile_us(share) / 1e3)
    }

    /// Of the first failures.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        reasons.clone()
    }
}

#[derive(Default)]
pub(crate) struct Tallies([Tally; 8]);

impl Tallies {
    pub(crate) fn of(&self, kind: Kind) -> &Tally {
        &self.0[kind as usize]
    }
}

/// What each client has.
#[derive(Clone)]
struct Visit {
    tallies: Arc<Tallies>,
    over: Arc<AtomicBool>,
}

impl Visit {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Asks again and again on a connection, and opens the next one when the proxy has closed it in order.
    fn ask_on<S: Read + Write>(&self, kind: Kind, open: impl Fn() -> io::Result<S>) {
        let tally = self.tallies.of(kind);
        let mut connection = None;
        while !self.is_over() {
            let begun = Instant::now();
            let answer = match connection.take() {
                Some(stream) => Ok(stream),
                None => open(),
            }
            .and_then(|mut stream| ask(&mut stream).map(|is_kept| is_kept.then_some(stream)));
            connection = tally.count(begun, answer).flatten();
            thread::sleep(THINKS);
        }
    }
}

/// The clients that are there.
pub(crate) struct Crowd(Vec<JoinHandle<()>>);

impl Crowd {
    pub(crate) fn come(
        places: &Places,
        papers: &Papers,
        options: &Options,
        tallies: &Arc<Tallies>,
        over: &Arc<AtomicBool>,
    ) -> Self {
        let visit = Visit {
            tallies: Arc::clone(tallies),
            over: Arc::clone(over),
        };
        let config = ClientConfig::builder()
            .with_root_certificates(papers.roots())
            .with_no_client_auth();
        let config = Arc::new(config);
        let mut threads = Vec::new();
        let share = (options.active / 10).max(1);
        let Places {
            tcp,
            udp,
            http,
            https,
            dying,
        } = *places;
        for number in 0..3 * share {
            let visit = visit.clone();
            threads.push(spawn(move || echo_on(&visit, tcp, number)));
        }
        for _ in 0..3 * share {
            let visit = visit.clone();
            threads.push(spawn(move || {
                visit.ask_on(Kind::Http, || connect(http));
            }));
        }
        for _ in 0..share {
            let (visit, config) = (visit.clone(), Arc::clone(&config));
            threads.push(spawn(move || {
                visit.ask_on(Kind::Tls, || connect_tls(https, &config));
            }));
        }
        for _ in 0..share {
            let visit = visit.clone();
            threads.push(spawn(move || {
                visit.ask_on(Kind::OfDying, || connect(dying));
            }));
        }
        for _ in 0..share {
            let visit = visit.clone();
            threads.push(spawn(move || send_datagrams(&visit, udp)));
        }
        let h2 = visit.clone();
        threads.push(spawn(move || streams(&h2, http, share)));
        let idle = options.idle;
        threads.push(spawn(move || stay(&visit, idle, http, tcp)));
        Self(threads)
    }

    /// Waits until all have gone.
    pub(crate) fn go(self) {
        for thread in self.0 {
            thread.join().ok();
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let thread = thread::Builder::new().stack_size(256 << 10);
    thread.spawn(work).expect("a thread")
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn connect_tls(
    to: SocketAddr,
    config: &Arc<ClientConfig>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::try_from("soak.example").map_err(io::Error::other)?;
    let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(session, connect(to)?))
}

/// One request and its answer. Whether the connection is kept.
fn ask(stream: &mut (impl Read + Write)) -> io::Result<bool> {
    stream.write_all(REQUEST)?;
    let mut head = Vec::new();
    let mut bytes = [0; 2_048];
    loop {
        let length = stream.read(&mut bytes)?;
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&bytes[..length]);
        if let Some(answer) = Answer::of(&head)? {
            return Ok(answer.is_kept);
        }
    }
}

/// A whole answer.
struct Answer {
    is_kept: bool,
}

impl Answer {
    /// `None`: there is more to come.
    fn of(bytes: &[u8]) -> io::Result<Option<Self>> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        if !head.starts_with("http/1.1 200 ") {
            let line = head.lines().next().unwrap_or_default().to_owned();
            return Err(io::Error::other(line));
        }
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        let is_whole = bytes.len() >= end + 4 + length;
        Ok(is_whole.then(|| Self {
            is_kept: !head.contains("connection: close"),
        }))
    }
}

/// Ten echoes a connection.
fn echo_on(visit: &Visit, to: SocketAddr, number: usize) {
    let tally = visit.tallies.of(Kind::Tcp);
    let said = vec![u8::try_from(number % 256).unwrap_or(0); 1_000];
    while !visit.is_over() {
        let begun = Instant::now();
        let visited = connect(to).and_then(|mut stream| {
            let mut heard = vec![0; said.len()];
            for _ in 0..10 {
                stream.write_all(&said)?;
                stream.read_exact(&mut heard)?;
                if heard != said {
                    return Err(io::Error::other("another one's bytes"));
                }
            }
            Ok(())
        });
        tally.count(begun, visited);
        thread::sleep(THINKS);
    }
}

/// Two datagrams a second from each of twenty sockets.
fn send_datagrams(visit: &Visit, to: SocketAddr) {
    let tally = visit.tallies.of(Kind::Udp);
    let open = || {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(to)?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        io::Result::Ok(socket)
    };
    let sockets: Vec<UdpSocket> = (0..20).filter_map(|_| open().ok()).collect();
    let mut number = 0_u64;
    while !visit.is_over() {
        for socket in &sockets {
            number += 1;
            let begun = Instant::now();
            let echo = socket.send(&number.to_be_bytes());
            let echo = echo.and_then(|_| await_echo(socket, number, begun));
            tally.count(begun, echo);
            thread::sleep(Duration::from_millis(25));
        }
    }
}

/// Waits for the echo of this number. One that comes late fails, and says so: it was not lost.
fn await_echo(socket: &UdpSocket, number: u64, begun: Instant) -> io::Result<()> {
    let mut bytes = [0; 8];
    while begun.elapsed() < LOST {
        match socket.recv(&mut bytes) {
            // An answer that came too late for the one before is not this one's.
            Ok(_) if u64::from_be_bytes(bytes) != number => {}
            Ok(_) if begun.elapsed() > LATE => return Err(io::Error::other("an answer came late")),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no answer came"))
}

/// Connections of HTTP/2 with five streams each.
fn streams(visit: &Visit, to: SocketAddr, connections: usize) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
        return;
    };
    LocalSet::new().block_on(&runtime, async {
        let mut all = JoinSet::new();
        for _ in 0..connections {
            all.spawn_local(stream_on(visit.clone(), to));
        }
        while all.join_next().await.is_some() {}
    });
}

async fn stream_on(visit: Visit, to: SocketAddr) {
    let tally = visit.tallies.of(Kind::Http2);
    while !visit.is_over() {
        let begun = Instant::now();
        let opened = async {
            let socket = tokio::net::TcpStream::connect(to).await?;
            h2::client::handshake(socket)
                .await
                .map_err(io::Error::other)
        };
        let (client, connection) = match opened.await {
            Ok(opened) => opened,
            Err(error) => {
                tally.count::<()>(begun, Err(error));
                continue;
            }
        };
        tokio::task::spawn_local(async move {
            connection.await.ok();
        });
        let mut asking = JoinSet::new();
        for _ in 0..5 {
            asking.spawn_local(requests(visit.clone(), client.clone()));
        }
        drop(client);
        while asking.join_next().await.is_some() {}
    }
}

/// Asks until the proxy takes no more streams on this connection.
async fn requests(visit: Visit, client: h2::client::SendRequest<bytes::Bytes>) {
    let tally = visit.tallies.of(Kind::Http2);
    while !visit.is_over() {
        // The proxy has said that it goes.
        let Ok(mut client) = client.clone().ready().await else {
            return;
        };
        let begun = Instant::now();
        let request = http::Request::get("http://soak.example/").body(());
        let Ok(request) = request else { return };
        let Ok((answer, _)) = client.send_request(request, true) else {
            return;
        };
        let whole = async {
            let answer = answer.await?;
            let (head, mut body) = answer.into_parts();
            while let Some(bytes) = body.data().await {
                let length = bytes?.len();
                body.flow_control().release_capacity(length)?;
            }
            Ok(head.status)
        };
        let found = match whole.await {
            Ok(status) if status == 200 => Ok(()),
            Ok(status) => Err(io::Error::other(status.to_string())),
            // It was not begun: the client may ask again.
            Err(error) if is_untouched(&error) => return,
            Err(error) => Err(io::Error::other(error)),
        };
        if tally.count(begun, found).is_none() {
            return;
        }
        tokio::time::sleep(THINKS).await;
    }
}

fn is_untouched(error: &h2::Error) -> bool {
    error.reason() == Some(h2::Reason::REFUSED_STREAM)
        || error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR)
}

/// Idle clients: three of four speak HTTP and ask every half minute, the fourth stays with TCP for up to half a minute.
fn stay(visit: &Visit, count: usize, http: SocketAddr, tcp: SocketAddr) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
        return;
    };
    LocalSet::new().block_on(&runtime, async {
        let mut all = JoinSet::new();
        for number in 0..count {
            // Not all in the same moment.
            if number % 50 == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let visit = visit.clone();
            match number % 4 {
                0 => all.spawn_local(idle_tcp(visit, tcp, number)),
                _ => all.spawn_local(idle_http(visit, http, number)),
            };
        }
        while all.join_next().await.is_some() {}
    });
}

/// Waits this long, or until the end.
async fn wait(visit: &Visit, number: usize) {
    let until = Instant::now() + Duration::from_millis(20_000 + (number as u64 * 37) % 10_000);
    while Instant::now() < until && !visit.is_over() {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn idle_http(visit: Visit, to: SocketAddr, number: usize) {
    let tally = visit.tallies.of(Kind::IdleHttp);
    let mut kept: Option<tokio::net::TcpStream> = None;
    while !visit.is_over() {
        // What the proxy closed in order while nothing was asked is no failure.
        if let Some(stream) = &kept
            && matches!(stream.try_read(&mut [0]), Ok(0))
        {
            kept = None;
        }
        let begun = Instant::now();
        let answer = async {
            let mut stream = match kept.take() {
                Some(stream) => stream,
                None => tokio::net::TcpStream::connect(to).await?,
            };
            stream.write_all(REQUEST).await?;
            let (mut head, mut bytes) = (Vec::new(), [0; 2_048]);
            loop {
                let length = stream.read(&mut bytes).await?;
                if length == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                head.extend_from_slice(&bytes[..length]);
                if let Some(answer) = Answer::of(&head)? {
                    return io::Result::Ok(answer.is_kept.then_some(stream));
                }
            }
        };
        kept = tally.count(begun, answer.await).flatten();
        wait(&visit, number).await;
    }
}

async fn idle_tcp(visit: Visit, to: SocketAddr, number: usize) {
    let tally = visit.tallies.of(Kind::IdleTcp);
    while !visit.is_over() {
        let begun = Instant::now();
        let opened = async {
            let mut stream = tokio::net::TcpStream::connect(to).await?;
            say_and_hear(&mut stream).await?;
            io::Result::Ok(stream)
        };
        let Some(mut stream) = tally.count(begun, opened.await) else {
            continue;
        };
        wait(&visit, number).await;
        let begun = Instant::now();
        tally.count(begun, say_and_hear(&mut stream).await);
    }
}

async fn say_and_hear(stream: &mut tokio::net::TcpStream) -> io::Result<()> {
    stream.write_all(b"?").await?;
    stream.read_u8().await?;
    Ok(())
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: soak.example\r\n\r\n";
const PATIENCE: Duration = Duration::from_secs(5);
/// An answer to a datagram that takes longer is late.
const LATE: Duration = Duration::from_secs(1);
/// And one that takes so long is lost.
const LOST: Duration = Duration::from_secs(6);
/// Between two exchanges of a client.
const THINKS: Duration = Duration::from_millis(20);
const REASONS: usize = 5;
