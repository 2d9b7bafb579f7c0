//! One check's conversation: a socket, a deadline, and how it is closed.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::health::{Check, Exchange, Outcome};
use ballast_core::rng::mix;
use ballast_core::service::Failure;
use ballast_core::table::{Health, HealthMode};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::{SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

use super::tls::{Broken, Heard, Trust};
use crate::intake::NamedFiles;
use crate::{fault, source};

/// What all checks share.
#[derive(Debug)]
pub(super) struct Tools {
    /// No check waits while it reads into this.
    scratch: RefCell<Box<[u8]>>,
    /// Sockets that were asked for.
    asked: Cell<u64>,
    trust: Trust,
}

impl Tools {
    pub(super) fn new() -> Self {
        Self {
            scratch: RefCell::new(vec![0; SCRATCH].into()),
            asked: Cell::new(0),
            trust: Trust::new(),
        }
    }

    /// Checks need these files from now on.
    pub(super) fn follow(&self, files: Arc<NamedFiles>) {
        self.trust.follow(files);
    }

    /// Asks, and says how it went. A connection over which something was said is left to be closed in order.
    pub(super) async fn ask(&self, check: &Check) -> (Outcome, Option<Connection>) {
        let Some(health) = check.health() else {
            return (Outcome::NoCheck("nothing is to be asked"), None);
        };
        let until = Instant::now() + health.timeout();
        if health.mode == HealthMode::Udp {
            let asked = timeout_at(until, self.ask_by_datagram(check, health));
            let outcome = asked.await.unwrap_or(Outcome::AnswerTimeout);
            return (outcome, None);
        }
        let connected = OnceCell::new();
        let asked = timeout_at(until, self.ask_by_stream(check, health, &connected));
        let outcome = asked.await.unwrap_or_else(|_| match connected.get() {
            None => Outcome::ConnectTimeout,
            Some(connection) if connection.greets.get() => Outcome::TlsTimeout,
            Some(_) => Outcome::AnswerTimeout,
        });
        (outcome, connected.into_inner())
    }

    /// Asks over a connection, which is in `connected` as soon as there is one that must be closed in order.
    async fn ask_by_stream(
        &self,
        check: &Check,
        health: &Health,
        connected: &OnceCell<Connection>,
    ) -> Outcome {
        let exchange = Exchange::new(health);
        let manner = Manner::of(check, &exchange);
        let stream = match self.connect(check, manner).await {
            Ok(stream) => stream,
            Err(outcome) => return outcome,
        };
        if manner == Manner::Silent {
            // Dropped, and so reset: nothing is left of it, neither here nor there.
            return Outcome::Connected;
        }
        let connection = connected.get_or_init(|| Connection {
            stream,
            greets: Cell::new(false),
            is_over: Cell::new(false),
        });
        self.talk(check, health, exchange, connection).await
    }

    /// Says what is to be said, and hears the answer.
    async fn talk(
        &self,
        check: &Check,
        health: &Health,
        mut exchange: Exchange<'_>,
        connection: &Connection,
    ) -> Outcome {
        let stream = &connection.stream;
        let mut question = Vec::with_capacity(A_QUESTION);
        if check.is_introduced() {
            match stream.local_addr() {
                Ok(local) => check.introduce(local, &mut question),
                Err(error) => return Outcome::WrongAnswer(reason(&error)),
            }
        }
        if health.mode == HealthMode::Https {
            return self
                .talk_by_tls(check, health, &question, exchange, connection)
                .await;
        }
        exchange.question(check.address, &mut question);
        let said = say(stream, &question).await;
        match (exchange.asked(), said) {
            (Some(Outcome::Connected), _) => return Outcome::Connected,
            (Some(outcome), Ok(())) => return outcome,
            (Some(_), Err(error)) => return Outcome::WrongAnswer(reason(&error)),
            // Who has answered and gone before it was asked may have answered well.
            (None, _) => {}
        }
        loop {
            let ready = match stream.ready(Interest::READABLE).await {
                Ok(ready) => ready,
                Err(error) => return Outcome::WrongAnswer(reason(&error)),
            };
            let mut scratch = self.scratch.borrow_mut();
            let heard = match stream.try_read(&mut scratch) {
                Ok(0) => return exchange.ended(),
                Ok(read) => {
                    // Its end had come before this was read, and this was all that there was.
                    connection
                        .is_over
                        .set(ready.is_read_closed() && read < scratch.len());
                    scratch.get(..read).and_then(|bytes| exchange.heard(bytes))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(error) => return Outcome::WrongAnswer(reason(&error)),
            };
            if let Some(outcome) = heard {
                return outcome;
            }
        }
    }

    /// The same by TLS, after what goes before it in the clear.
    async fn talk_by_tls(
        &self,
        check: &Check,
        health: &Health,
        introduction: &[u8],
        mut exchange: Exchange<'_>,
        connection: &Connection,
    ) -> Outcome {
        let stream = &connection.stream;
        let mut secret = match self.trust.greet(health.tls.as_ref(), check.address.ip()) {
            Ok(secret) => secret,
            Err(why) => return Outcome::NoCheck(why),
        };
        connection.greets.set(true);
        if let Err(error) = say(stream, introduction).await {
            return Outcome::NoTls(reason(&error));
        }
        let mut question = Vec::with_capacity(A_QUESTION);
        exchange.question(check.address, &mut question);
        secret.say(&question);
        let outcome = loop {
            if let Err(error) = secret.send(stream).await {
                break Outcome::NoTls(reason(&error));
            }
            let heard = match secret.receive(stream).await {
                Ok(heard) => heard,
                Err(Broken::Socket(error)) if connection.greets.get() => {
                    break Outcome::NoTls(reason(&error));
                }
                Err(Broken::Socket(error)) => break Outcome::WrongAnswer(reason(&error)),
                Err(Broken::Tls(why)) => break Outcome::NoTls(why),
            };
            connection.greets.set(secret.greets());
            let mut scratch = self.scratch.borrow_mut();
            let mut verdict = None;
            while verdict.is_none()
                && let Some(read) = secret.hear(&mut scratch)
            {
                verdict = exchange.heard(scratch.get(..read).unwrap_or_default());
            }
            match (verdict, heard) {
                (Some(outcome), _) => break outcome,
                (None, Heard::More) => {}
                (None, Heard::End) if secret.greets() => {
                    break Outcome::NoTls("it closed during the handshake");
                }
                (None, Heard::End) => break exchange.ended(),
            }
        };
        connection.greets.set(false);
        secret.farewell(stream);
        outcome
    }

    /// Lets the endpoint finish, and close first if it wants to: it sees an end, not a reset, and this side keeps nothing.
    pub(super) async fn close_in_order(&self, connection: Connection) {
        let Connection {
            stream, is_over, ..
        } = connection;
        if is_over.get() {
            return;
        }
        let mut shut = false;
        let mut heard = 0;
        let until = Instant::now() + LINGER;
        while heard < MOST_UNHEARD {
            let read = stream.try_read(&mut self.scratch.borrow_mut());
            match read {
                Ok(0) => return,
                Ok(read) => heard += read,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    if !shut && SockRef::from(&stream).shutdown(Shutdown::Write).is_err() {
                        return;
                    }
                    shut = true;
                    if timeout_at(until, stream.readable()).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn connect(&self, check: &Check, manner: Manner) -> Result<TcpStream, Outcome> {
        let socket = self.socket(check, Type::STREAM)?;
        let set = match manner {
            Manner::Silent => socket.set_linger(Some(Duration::ZERO)),
            // The handshake is acknowledged with the question: one packet less.
            Manner::Speaks => socket.set_tcp_quickack(false),
            Manner::Listens => Ok(()),
        };
        let stream = set.and_then(|()| TcpStream::from_std(socket.into()));
        let stream = stream.map_err(|error| judge(&error))?;
        let failed = match stream.ready(Interest::WRITABLE).await {
            // Where something is wrong, both directions are closed.
            Ok(ready) if ready.is_write_closed() => stream.take_error(),
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        };
        match failed {
            Ok(None) => Ok(stream),
            // It was connected, and is so no more. What it said before that can be read still.
            Ok(Some(error)) if is_reset(&error) => Ok(stream),
            Ok(Some(error)) | Err(error) => Err(judge(&error)),
        }
    }

    async fn ask_by_datagram(&self, check: &Check, health: &Health) -> Outcome {
        let socket = match self.socket(check, Type::DGRAM) {
            Ok(socket) => UdpSocket::from_std(socket.into()),
            Err(outcome) => return outcome,
        };
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => return judge(&error),
        };
        let mut exchange = Exchange::new(health);
        let mut question = Vec::with_capacity(A_QUESTION);
        check.introduce(check.address, &mut question);
        exchange.question(check.address, &mut question);
        if let Err(error) = socket.send(&question).await {
            return judge(&error);
        }
        // That nobody listens there comes as an error alone, which does not make a datagram socket readable.
        let news = Interest::READABLE | Interest::ERROR;
        loop {
            let what = match socket.ready(news).await {
                Ok(ready) if ready.is_readable() => Interest::READABLE,
                Ok(_) => Interest::ERROR,
                Err(error) => return judge(&error),
            };
            let mut scratch = self.scratch.borrow_mut();
            let heard = socket.try_io(what, || {
                let (read, _) = recv(&socket, &mut **scratch, RecvFlags::empty())?;
                Ok(read)
            });
            match heard {
                Ok(read) => {
                    let bytes = scratch.get(..read).unwrap_or_default();
                    return exchange.heard(bytes).unwrap_or_else(|| exchange.ended());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return judge(&error),
            }
        }
    }

    /// A socket that connects to the endpoint, from one of the service's own addresses if it has some.
    fn socket(&self, check: &Check, kind: Type) -> Result<Socket, Outcome> {
        let count = self.asked.get();
        self.asked.set(count.wrapping_add(1));
        // Checks come in a rhythm, in which simple turns could give a service the same address each time.
        let turn = || usize::try_from(mix(count) >> 32).unwrap_or_default();
        let mut failed = io::ErrorKind::AddrNotAvailable.into();
        for source in source::candidates(&check.service().source, check.address, turn) {
            match source::connecting(check.address, source, kind) {
                Ok(socket) => return Ok(socket),
                Err(error) if source::is_used_up(&error) => failed = error,
                Err(error) => return Err(judge(&error)),
            }
        }
        Err(judge(&failed))
    }
}

/// A connection over which something is said.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// The handshake of TLS is under way.
    greets: Cell<bool>,
    /// Whether all that the endpoint will ever say was read.
    is_over: Cell<bool>,
}

/// Who speaks first over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Nobody: to be connected is enough.
    Silent,
    /// The check.
    Speaks,
    /// The endpoint.
    Listens,
}

impl Manner {
    fn of(check: &Check, exchange: &Exchange<'_>) -> Self {
        match (
            check.is_introduced() || exchange.speaks(),
            exchange.listens(),
        ) {
            (true, _) => Self::Speaks,
            (false, true) => Self::Listens,
            (false, false) => Self::Silent,
        }
    }
}

async fn say(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What it means that there is no connection: for want of something of our own that says nothing about the endpoint.
fn judge(error: &io::Error) -> Outcome {
    match fault::of_endpoint(error) {
        Some(Failure::TimedOut) => Outcome::ConnectTimeout,
        None if fault::is_ours(error) => Outcome::NoCheck(reason(error)),
        _ => Outcome::Unreached(reason(error)),
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// The system's words, where they are known before.
fn reason(error: &io::Error) -> &'static str {
    let number = error.raw_os_error();
    REASONS
        .iter()
        .find(|(errno, _)| Some(errno.raw_os_error()) == number)
        .map_or("system error", |(_, words)| words)
}

const REASONS: [(Errno, &str); 15] = [
    (Errno::CONNREFUSED, "Connection refused"),
    (Errno::CONNRESET, "Connection reset by peer"),
    (Errno::PIPE, "Broken pipe"),
    (Errno::HOSTUNREACH, "No route to host"),
    (Errno::NETUNREACH, "Network is unreachable"),
    (Errno::HOSTDOWN, "Host is down"),
    (Errno::PERM, "Operation not permitted"),
    (Errno::ACCESS, "Permission denied"),
    (Errno::MFILE, "Too many open files"),
    (Errno::NFILE, "Too many open files in system"),
    (Errno::NOBUFS, "No buffer space available"),
    (Errno::NOMEM, "Cannot allocate memory"),
    (Errno::ADDRNOTAVAIL, "Cannot assign requested address"),
    (Errno::ADDRINUSE, "Address already in use"),
    (Errno::AFNOSUPPORT, "Address family not supported"),
];

/// Enough for most questions, so that one need not grow.
const A_QUESTION: usize = 256;
/// Enough for most answers at once.
const SCRATCH: usize = 16 << 10;
/// After the verdict, for the endpoint to finish.
const LINGER: Duration = Duration::from_millis(500);
/// ... and so many bytes more.
const MOST_UNHEARD: usize = 256 << 10;
