//! Many clients from many addresses, and servers that say who they are. Nobody leaves a port behind: clients reset.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream as StdTcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ballast::Config;
use ballast::config::Admin;
use ballast_core::rng::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{Ballast, free_port};

/// Serves `table` with `threads` workers, and with other settings than the usual ones.
pub fn serve_as(table: &str, threads: usize, settings: impl FnOnce(&mut Config)) -> Ballast {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("table.yaml"), table).expect("a table");
    let mut config = Config {
        threads: Some(threads),
        admin: Admin::At(vec![SocketAddr::from(([127, 0, 0, 1], free_port()))]),
        ..Config::new(folder.path().into())
    };
    settings(&mut config);
    Ballast::begin_as(folder, config)
}

/// Servers at addresses of their own. Each answers whatever it hears with its address, in a line.
pub fn servers(count: u8) -> Vec<SocketAddr> {
    let listeners: Vec<_> = (1..=count)
        .map(|host| {
            let listener = std::net::TcpListener::bind((Ipv4Addr::new(127, 20, 0, host), 0))
                .expect("a listener");
            listener.set_nonblocking(true).expect("an option");
            // Room for more than std's 128 who wait.
            SockRef::from(&listener).listen(4_096).expect("a listener");
            listener
        })
        .collect();
    let addresses = listeners
        .iter()
        .map(|listener| listener.local_addr().expect("an address"))
        .collect();
    thread::spawn(move || {
        quiet_runtime().block_on(async {
            for listener in listeners {
                tokio::spawn(answer_all(
                    TcpListener::from_std(listener).expect("a socket"),
                ));
            }
            std::future::pending::<()>().await;
        });
    });
    addresses
}

async fn answer_all(listener: TcpListener) {
    let name = format!("{}\n", listener.local_addr().expect("an address"));
    loop {
        let Ok((mut client, _)) = listener.accept().await else {
            continue;
        };
        let name = name.clone();
        tokio::spawn(async move {
            let mut asked = [0; 64];
            while let Ok(1..) = client.read(&mut asked).await {
                if client.write_all(name.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// A client that comes from this address, and leaves with a reset.
pub struct Client {
    pub stream: StdTcpStream,
}

impl Client {
    pub fn from(source: [u8; 4], to: SocketAddr) -> io::Result<Self> {
        Self::at((source, 0).into(), to)
    }

    /// From this port, too.
    pub fn at(source: SocketAddr, to: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        if to.is_ipv4() {
            socket.bind(&source.into())?;
        }
        socket.set_linger(Some(Duration::ZERO))?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: socket.into(),
        })
    }

    /// Says something, and hears which of the [`servers`] answers.
    pub fn ask(&mut self) -> io::Result<SocketAddr> {
        self.stream.write_all(b"?")?;
        self.answer()
    }

    /// Hears which of the [`servers`] answers.
    pub fn answer(&mut self) -> io::Result<SocketAddr> {
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            self.stream.read_exact(&mut byte)?;
            if byte == *b"\n" {
                return named(&line);
            }
            line.push(byte[0]);
        }
    }

    /// Whether nobody has answered so far; it must have said something before.
    pub fn still_waits(&self) -> bool {
        self.stream.set_nonblocking(true).expect("an option");
        let heard = self.stream.peek(&mut [0; 1]);
        self.stream.set_nonblocking(false).expect("an option");
        heard.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Whether a client from this address that says this is turned away. Anything but a reset or an answer is a mistake.
pub fn is_reset(source: [u8; 4], to: SocketAddr, says: &str) -> bool {
    // The reset may come before, while or after it says something.
    let heard = Client::from(source, to).and_then(|mut client| {
        client.stream.write_all(says.as_bytes())?;
        client.ask()
    });
    match heard.as_ref().map_err(io::Error::kind) {
        Ok(_) => false,
        Err(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => true,
        Err(_) => panic!("{source:?}: {heard:?}"),
    }
}

/// One client of thousands.
pub struct Guest {
    stream: TcpStream,
}

impl Guest {
    pub async fn from(source: Ipv4Addr, to: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
        socket.bind((source, 0).into())?;
        let stream = tokio::time::timeout(PATIENCE, socket.connect(to)).await??;
        Ok(Self { stream })
    }

    /// Says something, and hears which of the [`servers`] answers.
    pub async fn ask(&mut self) -> io::Result<SocketAddr> {
        let line = self.exchange("?", "\n").await?;
        named(line.trim_ascii_end())
    }

    /// Says this, and hears what comes until its end is `end`.
    pub async fn exchange(&mut self, says: &str, end: &str) -> io::Result<Vec<u8>> {
        self.stream.write_all(says.as_bytes()).await?;
        let mut heard = Vec::new();
        while !heard.ends_with(end.as_bytes()) {
            let reading = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut heard));
            let read = reading.await;
            if !matches!(read, Ok(Ok(1..))) {
                let (says, heard) = (says.escape_default(), heard.escape_ascii());
                let why = format!("only {heard} came for {says}, and then {read:?}");
                return Err(io::Error::other(why));
            }
        }
        Ok(heard)
    }
}

/// Lets 500 clients come at once, each of which does `visit` with its connection and its number. A third of them leave before
/// its end, when their patience ends. Returns how many came to its end.
pub fn rush<V>(to: SocketAddr, visit: impl Fn(Guest, usize) -> V + Copy + Send + 'static) -> usize
where
    V: Future<Output = io::Result<()>> + Send + 'static,
{
    let seed = std::env::var("SEED").map_or(32, |seed| seed.parse().expect("a number"));
    println!("SEED={seed}");
    let mut rng = Rng::new(seed);
    let mut visits = Vec::new();
    for index in 0..500_usize {
        let leaves = rng.below(3) == 0;
        let patience = Duration::from_micros(rng.below(200_000));
        visits.push(async move {
            let guest = Guest::from(source(index as u64), to).await;
            let guest = guest.expect("a connection");
            let visit = visit(guest, index);
            if leaves {
                let visited = tokio::time::timeout(patience, visit).await;
                return usize::from(visited.is_ok_and(|visited| visited.is_ok()));
            }
            visit.await.expect("nobody is stranded");
            1
        });
    }
    quiet_runtime().block_on(async {
        let visits: Vec<_> = visits.into_iter().map(tokio::spawn).collect();
        let mut ended = 0;
        for visit in visits {
            ended += visit.await.expect("no panic");
        }
        ended
    })
}

/// The connections that a server has at once.
#[derive(Default)]
pub struct Presence {
    /// By number, and the most there ever were.
    there: Mutex<(BTreeMap<usize, StdTcpStream>, usize)>,
}

impl Presence {
    /// Counts this connection, until it ends or goes.
    pub fn comes(&self, number: usize, connection: &StdTcpStream) {
        let connection = connection.try_clone().expect("a descriptor");
        let mut held = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        let (there, most) = &mut *held;
        there.retain(|_, connection| is_open(connection));
        there.insert(number, connection);
        *most = there.len().max(*most);
    }

    /// Counts it no more.
    pub fn goes(&self, number: usize) {
        let mut there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        there.0.remove(&number);
    }

    /// How many there were at the most.
    pub fn most(&self) -> usize {
        let there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        there.1
    }
}

/// Whether neither side has ended it, whatever of it is unread.
fn is_open(connection: &StdTcpStream) -> bool {
    // While another thread reads, the kernel puts off what arrives. This call waits for the end of that.
    let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    rustix::net::recv(connection, &mut [0; 1], look).ok();
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut polled = [PollFd::new(connection, ended)];
    poll(&mut polled, Some(&Timespec::default())).expect("a look");
    polled[0].revents().is_empty()
}

/// The `index`-th of many addresses for clients.
pub fn source(index: u64) -> Ipv4Addr {
    let [.., high, low] = index.to_be_bytes();
    Ipv4Addr::new(127, 40, high, low.max(1))
}

/// A number below `bound`.
pub fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).expect("a small number")
}

/// A runtime for this thread, which gives way: a balancer does not share its cores with its peers.
pub fn quiet_runtime() -> tokio::runtime::Runtime {
    rustix::process::nice(QUIET).ok();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn named(line: &[u8]) -> io::Result<SocketAddr> {
    let text = std::str::from_utf8(line).map_err(io::Error::other)?;
    text.parse().map_err(io::Error::other)
}

/// More than any of this takes on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// As quiet as the thread that applies tables.
const QUIET: i32 = 10;
