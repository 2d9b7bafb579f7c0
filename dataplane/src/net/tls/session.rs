//! One TLS session: decrypts what a socket receives and encrypts what it sends. It has no socket of its own, so that the owner
//! of a connection keeps its socket; [`super::stream`] joins the two.
//!
//! An idle session owns no buffer. Bytes are received into the worker's one [`Scratch`] and decrypted there; only the
//! incomplete record at the end, plaintext for which the reader had no room, and ciphertext that the socket did not accept are
//! kept, and each is freed when it has been used.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ballast_core::handshake::HandshakeResult;
use ballast_core::moment::Moment;
use ballast_core::preamble::{ClientCertificate, Ssl};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CipherSuite, CommonState, Error, HandshakeKind, ProtocolVersion};

use super::tickets::Policy;
use super::x509::{self, Identity};
use super::{ClientTls, ServerTls};
use crate::net::poller::{Poller, Stream, Timer};

/// The buffers that all sessions of one worker share. No session holds one while it waits.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    incoming: RefCell<Vec<u8>>,
    outgoing: RefCell<Vec<u8>>,
}

/// A TLS session.
#[derive(Debug)]
pub(crate) struct Session {
    side: TlsSide,
    scratch: Rc<Scratch>,
    /// Received bytes of a record or handshake message that is incomplete.
    incoming: Vec<u8>,
    /// Plaintext for which the reader had no room, from `read` on.
    plain: Vec<u8>,
    read: usize,
    /// Ciphertext that the socket did not accept, from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
    /// How many bytes of the next [`Session::poll_send`] are encrypted already.
    encrypted: usize,
    input: Input,
    /// Why the session has failed. Nothing is read or written any more.
    failure: Option<Error>,
    /// Whether the close notification has been encrypted.
    is_closing: bool,
    /// The identity in the client's certificate.
    identity: Option<Box<Identity>>,
    /// The frontend's rules for certificates of clients when the session began; of a session with an endpoint none.
    policy: Policy,
}

enum TlsSide {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

impl fmt::Debug for TlsSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server(_) => "Server",
            Self::Client(_) => "Client",
        })
    }
}

/// The state of the peer's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Open,
    /// The peer has sent a close notification.
    Closed,
    /// The connection ended without a close notification.
    Truncated,
}

/// Why a handshake failed.
#[derive(Debug)]
pub(crate) struct HandshakeError {
    pub(crate) result: HandshakeResult,
    /// The reason as text.
    pub(crate) why: &'static str,
    /// Whether an alert with the reason was sent to the peer.
    pub(crate) has_alert: bool,
}

impl Session {
    /// A session with a client, whose first bytes were received already. `None`: the configuration cannot be used.
    pub(crate) fn server(tls: &ServerTls, first: Vec<u8>, scratch: &Rc<Scratch>) -> Option<Self> {
        let connection = UnbufferedServerConnection::new(Arc::clone(tls.config())).ok()?;
        let side = TlsSide::Server(Box::new(connection));
        let policy = tls.policy();
        Some(Self {
            policy,
            ..Self::new(side, first, scratch)
        })
    }

    /// A session with an endpoint at this address. `None`: the configuration cannot be used.
    pub(crate) fn client(tls: &ClientTls, address: IpAddr, scratch: &Rc<Scratch>) -> Option<Self> {
        let name = tls.name(address);
        let connection = UnbufferedClientConnection::new(Arc::clone(tls.config()), name).ok()?;
        let side = TlsSide::Client(Box::new(connection));
        Some(Self::new(side, Vec::new(), scratch))
    }

    fn new(side: TlsSide, incoming: Vec<u8>, scratch: &Rc<Scratch>) -> Self {
        Self {
            side,
            scratch: Rc::clone(scratch),
            incoming,
            plain: Vec::new(),
            read: 0,
            outgoing: Vec::new(),
            sent: 0,
            encrypted: 0,
            input: Input::Open,
            failure: None,
            is_closing: false,
            identity: None,
            policy: Policy::default(),
        }
    }

    /// The frontend's rules for certificates of clients when the session began.
    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// Completes the handshake until the deadline.
    pub(crate) async fn handshake(
        &mut self,
        socket: &Stream,
        poller: &Rc<Poller>,
        until: Moment,
    ) -> Result<(), HandshakeError> {
        let mut timer = Timer::new(poller);
        timer.set(until);
        let mut has_begun = false;
        poll_fn(|cx| {
            if socket.is_cut() {
                return Poll::Ready(Err(HandshakeError::of(
                    HandshakeResult::Closed,
                    "it was cut",
                )));
            }
            let step = self.poll_handshake(socket, cx, &mut has_begun);
            if step.is_pending() && timer.poll(cx).is_ready() {
                return Poll::Ready(Err(HandshakeError::of(
                    HandshakeResult::Timeout,
                    "it took too long",
                )));
            }
            step
        })
        .await
    }

    fn poll_handshake(
        &mut self,
        socket: &Stream,
        cx: &Context<'_>,
        has_begun: &mut bool,
    ) -> Poll<Result<(), HandshakeError>> {
        if !mem::replace(has_begun, true) {
            // Bytes that were received already. Without any, a client session produces its ClientHello.
            let mut first = mem::take(&mut self.incoming);
            let advanced = self.advance(&mut first, &mut []);
            first.drain(..advanced.taken);
            self.incoming = first;
        }
        loop {
            let flushed = self.poll_flush(socket, cx);
            if let Some(error) = &self.failure {
                return Poll::Ready(Err(HandshakeError::of_tls(error)));
            }
            ready!(flushed).map_err(|_| HandshakeError::of_socket())?;
            if !self.common().is_handshaking() {
                self.identify();
                return Poll::Ready(Ok(()));
            }
            if self.input != Input::Open {
                let closed = HandshakeError::of(HandshakeResult::Closed, "the peer closed");
                return Poll::Ready(Err(closed));
            }
            ready!(self.poll_receive(socket, cx, &mut []))
                .map_err(|_| HandshakeError::of_socket())?;
        }
    }

    fn identify(&mut self) {
        if let TlsSide::Server(_) = self.side {
            let shown = self.common().peer_certificates();
            let shown = shown.and_then(<[CertificateDer<'_>]>::first);
            self.identity = shown.and_then(x509::identity).map(Box::new);
        }
    }

    /// Reads decrypted bytes into `buffer`, which is not empty. Returns 0 once the peer has ended its direction.
    pub(crate) fn poll_recv(
        &mut self,
        socket: &Stream,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        for _ in 0..RECORDS_WITHOUT_BYTES {
            if self.read < self.plain.len() {
                return Poll::Ready(Ok(self.read_kept(buffer)));
            }
            if let Some(error) = &self.failure {
                return Poll::Ready(Err(io_error(error)));
            }
            if self.input != Input::Open {
                return Poll::Ready(Ok(0));
            }
            // Messages of the session itself, such as a key update. The task is woken when the socket accepts more bytes.
            if let Poll::Ready(Err(error)) = self.poll_flush(socket, cx) {
                return Poll::Ready(Err(error));
            }
            let read = ready!(self.poll_receive(socket, cx, buffer))?;
            if read > 0 {
                return Poll::Ready(Ok(read));
            }
        }
        // A peer that sends nothing but records without bytes must not keep other tasks from running.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Encrypts and sends some of `bytes`, and returns how many of them the socket has accepted. After `Pending` the next call
    /// must begin with the same bytes, because they are encrypted already.
    pub(crate) fn poll_send(
        &mut self,
        socket: &Stream,
        cx: &Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = &self.failure {
            return Poll::Ready(Err(io_error(error)));
        }
        ready!(self.poll_flush(socket, cx))?;
        if self.encrypted == 0 && !bytes.is_empty() {
            let bytes = bytes.get(..MOST_ENCRYPTED).unwrap_or(bytes);
            let scratch = Rc::clone(&self.scratch);
            let mut out = scratch.outgoing.borrow_mut();
            let length = self.write(Write::Bytes(bytes), &mut out)?;
            self.encrypted = bytes.len();
            let mut rest = out.split_at(length).0;
            // If messages of the session itself wait to be sent, these bytes wait behind them.
            while !rest.is_empty() && self.outgoing.is_empty() {
                match socket.poll_send(cx, rest) {
                    Poll::Ready(sent) => rest = rest.split_at(sent?).1,
                    Poll::Pending => break,
                }
            }
            self.outgoing.extend_from_slice(rest);
            ready!(self.poll_flush(socket, cx))?;
        }
        let accepted = self.encrypted.min(bytes.len());
        self.encrypted -= accepted;
        Poll::Ready(Ok(accepted))
    }

    /// Sends the kept ciphertext.
    pub(crate) fn poll_flush(&mut self, socket: &Stream, cx: &Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.outgoing.get(self.sent..)
            && !rest.is_empty()
        {
            self.sent += ready!(socket.poll_send(cx, rest))?;
        }
        if self.sent > 0 {
            self.outgoing = Vec::new();
            self.sent = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Ends this direction: sends a close notification, and then the end of the socket's direction.
    pub(crate) fn poll_shutdown(
        &mut self,
        socket: &Stream,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(socket, cx))?;
        if !self.is_closing && self.failure.is_none() {
            self.is_closing = true;
            let scratch = Rc::clone(&self.scratch);
            let mut out = scratch.outgoing.borrow_mut();
            // This fails only for a session that has failed, which has sent an alert instead.
            if let Ok(length) = self.write(Write::CloseNotify, &mut out) {
                let alert = out.split_at(length).0;
                self.outgoing.extend_from_slice(alert);
            }
            drop(out);
            ready!(self.poll_flush(socket, cx))?;
        }
        Poll::Ready(socket.end_writing())
    }

    /// Whether the connection ended without a close notification: an attacker on the way may then have cut off bytes of the peer.
    /// Known once a read has returned 0.
    pub(crate) fn is_truncated(&self) -> bool {
        self.input == Input::Truncated
    }

    /// Bytes that can be read without the socket.
    pub(crate) fn has_plaintext(&self) -> bool {
        self.read < self.plain.len()
    }

    /// Whether the session resumed an earlier one.
    pub(crate) fn is_resumed(&self) -> bool {
        self.common().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The protocol that was negotiated.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.common().alpn_protocol()
    }

    /// The identity in the client's certificate, if the client has shown one.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    /// The client's use of TLS, for the PROXY header that endpoints get.
    pub(crate) fn ssl(&self) -> Ssl<'_> {
        let identity = self.identity();
        Ssl {
            common_name: identity.and_then(|identity| identity.common_name.as_deref()),
            ..self.anonymous_ssl()
        }
    }

    /// The same without the name of the client.
    pub(crate) fn anonymous_ssl(&self) -> Ssl<'static> {
        let common = self.common();
        let identity = self.identity();
        let suite = common.negotiated_cipher_suite();
        Ssl {
            certificate: match identity {
                None => ClientCertificate::Absent,
                Some(_) if self.is_resumed() => ClientCertificate::InSession,
                Some(_) => ClientCertificate::InConnection,
            },
            verify: identity.is_none().into(),
            version: match common.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => Some("TLSv1.2"),
                Some(ProtocolVersion::TLSv1_3) => Some("TLSv1.3"),
                _ => None,
            },
            cipher: suite.and_then(|suite| cipher(suite.suite())),
            common_name: None,
        }
    }

    fn common(&self) -> &CommonState {
        self.side.common()
    }

    fn read_kept(&mut self, buffer: &mut [u8]) -> usize {
        let kept = self.plain.split_at(self.read).1;
        let length = copy(kept, buffer);
        self.read += length;
        if self.read == self.plain.len() {
            self.plain = Vec::new();
            self.read = 0;
        }
        length
    }

    /// Receives and decrypts. Returns how much of `buffer` was filled, which may be 0.
    fn poll_receive(
        &mut self,
        socket: &Stream,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let scratch = Rc::clone(&self.scratch);
        let mut bytes = scratch.incoming.borrow_mut();
        if bytes.is_empty() {
            bytes.resize(INCOMING, 0);
        }
        let held = copy(&self.incoming, &mut bytes);
        // With a small buffer, no more than about one record is decrypted ahead of the reader.
        let most = held + buffer.len().max(LONGEST_RECORD);
        let most = most.min(bytes.len());
        let room = &mut bytes[held..most];
        if room.is_empty() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a handshake message is too long",
            )));
        }
        let received = ready!(socket.poll_recv(cx, room))?;
        if received == 0 {
            self.input = Input::Truncated;
            return Poll::Ready(Ok(0));
        }
        let bytes = &mut bytes[..held + received];
        let Advanced { taken, filled } = self.advance(bytes, buffer);
        let rest = bytes.split_at(taken).1;
        if rest.is_empty() {
            self.incoming = Vec::new();
        } else {
            self.incoming.clear();
            self.incoming.extend_from_slice(rest);
        }
        Poll::Ready(Ok(filled))
    }

    /// Processes records. A failure is noted, and its alert queued.
    fn advance(&mut self, bytes: &mut [u8], buffer: &mut [u8]) -> Advanced {
        let mut advanced = Advanced::default();
        let mut sinks = Sinks {
            buffer,
            filled: &mut advanced.filled,
            plain: &mut self.plain,
            outgoing: &mut self.outgoing,
        };
        loop {
            let rest = bytes.get_mut(advanced.taken..).unwrap_or_default();
            let (taken, step) = self.side.step(rest, &mut sinks, None);
            advanced.taken += taken;
            match step {
                Ok(Step::Again) => {}
                Ok(Step::PeerClosed) => self.input = Input::Closed,
                Ok(Step::Waits | Step::Written(_)) => return advanced,
                Err(error) => {
                    self.failure = Some(error);
                    // The alert for the peer. The session reads no bytes while an alert waits to be sent.
                    while self.side.common().wants_write() {
                        drop(self.side.step(&mut [], &mut sinks, None));
                    }
                    return advanced;
                }
            }
        }
    }

    /// Encrypts into `out`, and returns the length.
    fn write(&mut self, write: Write<'_>, out: &mut Vec<u8>) -> io::Result<usize> {
        if out.is_empty() {
            out.resize(OUTGOING, 0);
        }
        let mut incoming = mem::take(&mut self.incoming);
        let mut filled = 0;
        let mut sinks = Sinks {
            buffer: &mut [],
            filled: &mut filled,
            plain: &mut self.plain,
            outgoing: &mut self.outgoing,
        };
        let mut writing = Writing { write, out };
        let written = loop {
            let (taken, step) = self
                .side
                .step(&mut incoming, &mut sinks, Some(&mut writing));
            incoming.drain(..taken);
            match step {
                Ok(Step::Again) => {}
                Ok(Step::PeerClosed) => self.input = Input::Closed,
                Ok(Step::Written(length)) => break Ok(length),
                Ok(Step::Waits) => break Err(io::ErrorKind::NotConnected.into()),
                Err(error) => {
                    let failed = io_error(&error);
                    self.failure = Some(error);
                    break Err(failed);
                }
            }
        };
        self.incoming = incoming;
        written
    }
}

/// How far [`Session::advance`] came.
#[derive(Default)]
struct Advanced {
    /// Processed bytes.
    taken: usize,
    /// Bytes of plaintext in the reader's buffer.
    filled: usize,
}

/// Where the output of a session goes.
struct Sinks<'a> {
    /// The reader's buffer, filled up to `filled`.
    buffer: &'a mut [u8],
    filled: &'a mut usize,
    /// Plaintext that does not fit there.
    plain: &'a mut Vec<u8>,
    /// Ciphertext.
    outgoing: &'a mut Vec<u8>,
}

impl Sinks<'_> {
    fn plaintext(&mut self, bytes: &[u8]) {
        let room = &mut self.buffer[*self.filled..];
        let fits = if self.plain.is_empty() {
            copy(bytes, room)
        } else {
            0
        };
        *self.filled += fits;
        self.plain.extend_from_slice(bytes.split_at(fits).1);
    }
}

/// An input of encryption.
#[derive(Clone, Copy)]
enum Write<'a> {
    Bytes(&'a [u8]),
    CloseNotify,
}

/// An input of encryption, and the buffer for the ciphertext.
struct Writing<'a> {
    write: Write<'a>,
    out: &'a mut Vec<u8>,
}

/// The result of one step: what the session needs next.
enum Step {
    /// Another step.
    Again,
    /// More bytes from the peer.
    Waits,
    /// The peer has ended its direction. Another step follows.
    PeerClosed,
    /// This number of bytes was encrypted.
    Written(usize),
}

impl TlsSide {
    fn common(&self) -> &CommonState {
        match self {
            Self::Server(server) => server,
            Self::Client(client) => client,
        }
    }

    /// One step with these received bytes. Returns how many of them were processed.
    fn step(
        &mut self,
        bytes: &mut [u8],
        sinks: &mut Sinks<'_>,
        writing: Option<&mut Writing<'_>>,
    ) -> (usize, Result<Step, Error>) {
        match self {
            Self::Server(server) => follow(server.process_tls_records(bytes), sinks, writing),
            Self::Client(client) => follow(client.process_tls_records(bytes), sinks, writing),
        }
    }
}

fn follow<D>(
    status: UnbufferedStatus<'_, '_, D>,
    sinks: &mut Sinks<'_>,
    writing: Option<&mut Writing<'_>>,
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = state.and_then(|state| match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                discard += record.discard;
                sinks.plaintext(record.payload);
            }
            Ok(Step::Again)
        }
        ConnectionState::EncodeTlsData(mut data) => {
            let before = sinks.outgoing.len();
            if let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) {
                sinks.outgoing.resize(before + size.required_size, 0);
                let room = &mut sinks.outgoing[before..];
                data.encode(room)
                    .map_err(|error| Error::General(error.to_string()))?;
            }
            Ok(Step::Again)
        }
        ConnectionState::TransmitTlsData(data) => {
            // The bytes are in `outgoing`, which keeps their order.
            data.done();
            Ok(Step::Again)
        }
        ConnectionState::WriteTraffic(mut traffic) => {
            let Some(Writing { write, out }) = writing else {
                return Ok(Step::Waits);
            };
            loop {
                let written = match write {
                    Write::Bytes(bytes) => traffic.encrypt(bytes, out),
                    Write::CloseNotify => traffic.queue_close_notify(out),
                };
                match written {
                    Ok(length) => return Ok(Step::Written(length)),
                    Err(EncryptError::InsufficientSize(size)) if size.required_size > out.len() => {
                        out.resize(size.required_size, 0);
                    }
                    Err(error) => return Err(Error::General(error.to_string())),
                }
            }
        }
        ConnectionState::PeerClosed => Ok(Step::PeerClosed),
        // Early data is never accepted.
        ConnectionState::BlockedHandshake | ConnectionState::Closed | _ => Ok(Step::Waits),
    });
    (discard, step)
}

impl HandshakeError {
    pub(crate) fn of(result: HandshakeResult, why: &'static str) -> Self {
        Self {
            result,
            why,
            has_alert: false,
        }
    }

    fn of_socket() -> Self {
        Self::of(HandshakeResult::Closed, "the connection broke")
    }

    fn of_tls(error: &Error) -> Self {
        let result = match error {
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => {
                HandshakeResult::NoSharedCipher
            }
            Error::InvalidCertificate(_) | Error::NoCertificatesPresented => {
                HandshakeResult::BadClientCertificate
            }
            Error::InvalidMessage(_) => HandshakeResult::NotTls,
            Error::AlertReceived(_) => HandshakeResult::Refused,
            Error::General(why) if why.contains("no server certificate") => {
                HandshakeResult::UnknownName
            }
            _ => HandshakeResult::Other,
        };
        Self {
            has_alert: true,
            ..Self::of(result, super::reason(error))
        }
    }
}

fn io_error(error: &Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.clone())
}

/// The name by which OpenSSL, and so most software, knows a cipher suite.
fn cipher(suite: CipherSuite) -> Option<&'static str> {
    Some(match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "ECDHE-ECDSA-CHACHA20-POLY1305"
        }
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => return None,
    })
}

/// Copies as much as fits.
fn copy(from: &[u8], to: &mut [u8]) -> usize {
    let length = from.len().min(to.len());
    if let (Some(from), Some(to)) = (from.get(..length), to.get_mut(..length)) {
        to.copy_from_slice(from);
    }
    length
}

/// The most plaintext that is encrypted at once.
const MOST_ENCRYPTED: usize = 64 * 1024;
/// Room for that, encrypted: each record of 16 KiB grows by less than 64 bytes.
const OUTGOING: usize = MOST_ENCRYPTED + 1024;
/// Size of the scratch buffer for received bytes. It bounds the handshake messages that a peer may send, too.
const INCOMING: usize = 68 * 1024;
/// The longest encrypted record, with its header.
const LONGEST_RECORD: usize = 5 + 16 * 1024 + 256;
const RECORDS_WITHOUT_BYTES: usize = 16;
