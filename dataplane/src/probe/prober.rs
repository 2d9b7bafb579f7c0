//! Runs one check: its socket, its deadline, and the close of its connection.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::health::{Check, CheckExchange, Outcome};
use ballast_core::rng::mix;
use ballast_core::service::Failure;
use ballast_core::table::{Health, HealthMode};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::{SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

use super::tls::{TlsConfigs, TlsError, TlsRead};
use crate::net::source_address;
use crate::os::files::NamedFiles;
use crate::os::socket_error;

/// The resources that all checks share.
#[derive(Debug)]
pub(super) struct Prober {
    /// A check never suspends while it borrows this buffer.
    scratch: RefCell<Box<[u8]>>,
    sockets_opened: Cell<u64>,
    tls: TlsConfigs,
}

impl Prober {
    pub(super) fn new() -> Self {
        Self {
            scratch: RefCell::new(vec![0; SCRATCH].into()),
            sockets_opened: Cell::new(0),
            tls: TlsConfigs::new(),
        }
    }

    /// Uses these files from now on.
    pub(super) fn follow_files(&self, files: Arc<NamedFiles>) {
        self.tls.follow_files(files);
    }

    /// Runs a check and returns its outcome. A connection over which bytes were exchanged is returned too, to be closed in
    /// order.
    pub(super) async fn check(&self, check: &Check) -> (Outcome, Option<Connection>) {
        let Some(health) = check.health() else {
            return (Outcome::NoCheck("the check has no settings"), None);
        };
        let until = Instant::now() + health.timeout();
        if health.mode == HealthMode::Udp {
            let asked = timeout_at(until, self.check_by_datagram(check, health));
            let outcome = asked.await.unwrap_or(Outcome::AnswerTimeout);
            return (outcome, None);
        }
        let connected = OnceCell::new();
        let asked = timeout_at(until, self.check_by_stream(check, health, &connected));
        let outcome = asked.await.unwrap_or_else(|_| match connected.get() {
            None => Outcome::ConnectTimeout,
            Some(connection) if connection.is_handshaking.get() => Outcome::TlsTimeout,
            Some(_) => Outcome::AnswerTimeout,
        });
        (outcome, connected.into_inner())
    }

    /// Checks over a connection. It is stored in `connected` once it must be closed in order.
    async fn check_by_stream(
        &self,
        check: &Check,
        health: &Health,
        connected: &OnceCell<Connection>,
    ) -> Outcome {
        let exchange = CheckExchange::new(health);
        let speaker = FirstSpeaker::of(check, &exchange);
        let stream = match self.connect(check, speaker).await {
            Ok(stream) => stream,
            Err(outcome) => return outcome,
        };
        if speaker == FirstSpeaker::Nobody {
            // The stream is dropped and so reset, which leaves no state on either side.
            return Outcome::Connected;
        }
        let connection = connected.get_or_init(|| Connection {
            stream,
            is_handshaking: Cell::new(false),
            has_ended: Cell::new(false),
        });
        self.converse(check, health, exchange, connection).await
    }

    /// Sends the request and reads the answer.
    async fn converse(
        &self,
        check: &Check,
        health: &Health,
        mut exchange: CheckExchange<'_>,
        connection: &Connection,
    ) -> Outcome {
        let stream = &connection.stream;
        let mut request = Vec::with_capacity(REQUEST_CAPACITY);
        if check.sends_proxy_header() {
            match stream.local_addr() {
                Ok(local) => check.write_proxy_header(local, &mut request),
                Err(error) => return Outcome::WrongAnswer(reason(&error)),
            }
        }
        if health.mode == HealthMode::Https {
            return self
                .converse_by_tls(check, health, &request, exchange, connection)
                .await;
        }
        exchange.write_request(check.address, &mut request);
        let said = write_all(stream, &request).await;
        match (exchange.sent(), said) {
            (Some(Outcome::Connected), _) => return Outcome::Connected,
            (Some(outcome), Ok(())) => return outcome,
            (Some(_), Err(error)) => return Outcome::WrongAnswer(reason(&error)),
            // An endpoint that answered and closed before it received the request may have answered correctly.
            (None, _) => {}
        }
        loop {
            let ready = match stream.ready(Interest::READABLE).await {
                Ok(ready) => ready,
                Err(error) => return Outcome::WrongAnswer(reason(&error)),
            };
            let mut scratch = self.scratch.borrow_mut();
            let heard = match stream.try_read(&mut scratch) {
                Ok(0) => return exchange.closed(),
                Ok(read) => {
                    // The end had arrived before this read, and the read returned all that was left.
                    connection
                        .has_ended
                        .set(ready.is_read_closed() && read < scratch.len());
                    scratch
                        .get(..read)
                        .and_then(|bytes| exchange.received(bytes))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(error) => return Outcome::WrongAnswer(reason(&error)),
            };
            if let Some(outcome) = heard {
                return outcome;
            }
        }
    }

    /// Sends the request and reads the answer by TLS, after sending `introduction` in the clear.
    async fn converse_by_tls(
        &self,
        check: &Check,
        health: &Health,
        introduction: &[u8],
        mut exchange: CheckExchange<'_>,
        connection: &Connection,
    ) -> Outcome {
        let stream = &connection.stream;
        let mut session = match self
            .tls
            .start_session(health.tls.as_ref(), check.address.ip())
        {
            Ok(session) => session,
            Err(why) => return Outcome::NoCheck(why),
        };
        connection.is_handshaking.set(true);
        if let Err(error) = write_all(stream, introduction).await {
            return Outcome::NoTls(reason(&error));
        }
        let mut request = Vec::with_capacity(REQUEST_CAPACITY);
        exchange.write_request(check.address, &mut request);
        session.write(&request);
        let outcome = loop {
            if let Err(error) = session.send(stream).await {
                break Outcome::NoTls(reason(&error));
            }
            let heard = match session.receive(stream).await {
                Ok(heard) => heard,
                Err(TlsError::Socket(error)) if connection.is_handshaking.get() => {
                    break Outcome::NoTls(reason(&error));
                }
                Err(TlsError::Socket(error)) => break Outcome::WrongAnswer(reason(&error)),
                Err(TlsError::Tls(why)) => break Outcome::NoTls(why),
            };
            connection.is_handshaking.set(session.is_handshaking());
            let mut scratch = self.scratch.borrow_mut();
            let mut verdict = None;
            while verdict.is_none()
                && let Some(read) = session.read(&mut scratch)
            {
                verdict = exchange.received(scratch.split_at(read).0);
            }
            match (verdict, heard) {
                (Some(outcome), _) => break outcome,
                (None, TlsRead::More) => {}
                (None, TlsRead::End) if session.is_handshaking() => {
                    break Outcome::NoTls("it closed during the handshake");
                }
                (None, TlsRead::End) => break exchange.closed(),
            }
        };
        connection.is_handshaking.set(false);
        session.close(stream);
        outcome
    }

    /// Lets the endpoint finish, and close first if it wants to: then it sees an orderly end instead of a reset, and this side
    /// keeps no state.
    pub(super) async fn close_in_order(&self, connection: Connection) {
        let Connection {
            stream, has_ended, ..
        } = connection;
        if has_ended.get() {
            return;
        }
        let mut shut = false;
        let mut heard = 0;
        let until = Instant::now() + LINGER;
        while heard < MAX_DRAINED {
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

    async fn connect(&self, check: &Check, speaker: FirstSpeaker) -> Result<TcpStream, Outcome> {
        let socket = self.socket(check, Type::STREAM)?;
        let set = match speaker {
            FirstSpeaker::Nobody => socket.set_linger(Some(Duration::ZERO)),
            // The acknowledgement of the handshake is sent with the request: one packet less.
            FirstSpeaker::Check => socket.set_tcp_quickack(false),
            FirstSpeaker::Endpoint => Ok(()),
        };
        let stream = set.and_then(|()| TcpStream::from_std(socket.into()));
        let stream = stream.map_err(|error| connect_outcome(&error))?;
        let failed = match stream.ready(Interest::WRITABLE).await {
            // After an error, both directions are closed.
            Ok(ready) if ready.is_write_closed() => stream.take_error(),
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        };
        match failed {
            Ok(None) => Ok(stream),
            // The connection was established and then reset. What the endpoint sent before can still be read.
            Ok(Some(error)) if is_reset(&error) => Ok(stream),
            Ok(Some(error)) | Err(error) => Err(connect_outcome(&error)),
        }
    }

    async fn check_by_datagram(&self, check: &Check, health: &Health) -> Outcome {
        let socket = match self.socket(check, Type::DGRAM) {
            Ok(socket) => UdpSocket::from_std(socket.into()),
            Err(outcome) => return outcome,
        };
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => return connect_outcome(&error),
        };
        let mut exchange = CheckExchange::new(health);
        let mut request = Vec::with_capacity(REQUEST_CAPACITY);
        check.write_proxy_header(check.address, &mut request);
        exchange.write_request(check.address, &mut request);
        if let Err(error) = socket.send(&request).await {
            return connect_outcome(&error);
        }
        // An unreachable port is reported only as an error, which does not make a datagram socket readable.
        let news = Interest::READABLE | Interest::ERROR;
        loop {
            let what = match socket.ready(news).await {
                Ok(ready) if ready.is_readable() => Interest::READABLE,
                Ok(_) => Interest::ERROR,
                Err(error) => return connect_outcome(&error),
            };
            let mut scratch = self.scratch.borrow_mut();
            let heard = socket.try_io(what, || {
                let (read, _) = recv(&socket, &mut **scratch, RecvFlags::empty())?;
                Ok(read)
            });
            match heard {
                Ok(read) => {
                    let bytes = scratch.split_at(read).0;
                    return exchange
                        .received(bytes)
                        .unwrap_or_else(|| exchange.closed());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return connect_outcome(&error),
            }
        }
    }

    /// Opens a socket that connects to the endpoint, from one of the service's source addresses if it has any.
    fn socket(&self, check: &Check, kind: Type) -> Result<Socket, Outcome> {
        let count = self.sockets_opened.get();
        self.sockets_opened.set(count.wrapping_add(1));
        // Checks are periodic, so a simple rotation could give a service the same address each time.
        let turn = || usize::try_from(mix(count) >> 32).unwrap_or_default();
        let mut failed = io::ErrorKind::AddrNotAvailable.into();
        for source in source_address::candidates(&check.spec.source, check.address, turn) {
            match source_address::begin_connect(check.address, source, kind) {
                Ok(socket) => return Ok(socket),
                Err(error) if source_address::has_no_port(&error) => failed = error,
                Err(error) => return Err(connect_outcome(&error)),
            }
        }
        Err(connect_outcome(&failed))
    }
}

/// A connection over which bytes are exchanged.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// Whether the TLS handshake is in progress.
    is_handshaking: Cell<bool>,
    /// Whether everything that the endpoint will ever send was read.
    has_ended: Cell<bool>,
}

/// The side that sends first over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstSpeaker {
    /// No answer: being connected is enough.
    Nobody,
    Check,
    Endpoint,
}

impl FirstSpeaker {
    fn of(check: &Check, exchange: &CheckExchange<'_>) -> Self {
        match (
            check.sends_proxy_header() || exchange.has_request(),
            exchange.awaits_answer(),
        ) {
            (true, _) => Self::Check,
            (false, true) => Self::Endpoint,
            (false, false) => Self::Nobody,
        }
    }
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(written) => bytes = bytes.split_at(written).1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The outcome of a failed connection. A failure for want of a local resource says nothing about the endpoint.
fn connect_outcome(error: &io::Error) -> Outcome {
    match socket_error::endpoint_failure(error) {
        Some(Failure::TimedOut) => Outcome::ConnectTimeout,
        None if socket_error::is_local(error) => Outcome::NoCheck(reason(error)),
        _ => Outcome::Unreached(reason(error)),
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// The system's text for an error, if it is one of the known errors.
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

/// Enough for most requests without growing.
const REQUEST_CAPACITY: usize = 256;
/// Enough for most answers in one read.
const SCRATCH: usize = 16 << 10;
/// Time for the endpoint to finish after the result.
const LINGER: Duration = Duration::from_millis(500);
/// The most bytes to read meanwhile.
const MAX_DRAINED: usize = 256 << 10;
