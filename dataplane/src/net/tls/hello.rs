//! Reads the ClientHello from a socket. The bytes are returned, too: they are given to the TLS session, or to the endpoint.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use ballast_core::handshake::HandshakeResult;
use ballast_core::hello::{ClientHello, Hello, Reason, step};
use ballast_core::moment::Moment;

use super::HandshakeError;
use crate::net::poller::{Poller, Stream, Timer};

/// The reason for which no ClientHello was read.
#[derive(Debug)]
pub(crate) enum HelloError {
    /// The peer connected and closed without sending a byte, as a probe for open ports does.
    PortProbe,
    Handshake(HandshakeError),
}

/// Reads the ClientHello until the deadline. `bytes` were received already. Returns what the client asks for; `bytes` then holds
/// all that was received.
pub(crate) async fn read_hello(
    socket: &Stream,
    poller: &Rc<Poller>,
    bytes: &mut Vec<u8>,
    until: Moment,
) -> Result<ClientHello, HelloError> {
    let mut timer = Timer::new(poller);
    timer.set(until);
    loop {
        match step(bytes) {
            Hello::Need => {}
            Hello::Found(hello) => return Ok(hello),
            Hello::Reject(reason) => return Err(reason.into()),
        }
        let held = bytes.len();
        bytes.resize(held + READ, 0);
        let received = poll_fn(|cx| {
            let room = &mut bytes[held..];
            match socket.poll_recv(cx, room) {
                Poll::Pending => timer.poll(cx).map(|()| None),
                Poll::Ready(received) => Poll::Ready(Some(received)),
            }
        })
        .await;
        bytes.truncate(
            held + received
                .as_ref()
                .and_then(|it| it.as_ref().ok())
                .map_or(0, |it| *it),
        );
        let failed = match received {
            Some(Ok(0) | Err(_)) if held == 0 => return Err(HelloError::PortProbe),
            Some(Ok(0) | Err(_)) => HandshakeResult::Closed,
            Some(Ok(_)) => continue,
            None => HandshakeResult::Timeout,
        };
        let why = "there was no whole ClientHello";
        return Err(HelloError::Handshake(HandshakeError::of(failed, why)));
    }
}

impl From<Reason> for HelloError {
    fn from(reason: Reason) -> Self {
        let result = match reason {
            Reason::NotTls | Reason::NotClientHello => HandshakeResult::NotTls,
            Reason::TooLong | Reason::Malformed | Reason::BadServerName => HandshakeResult::Other,
        };
        Self::Handshake(HandshakeError::of(result, reason.text()))
    }
}

/// Most ClientHellos arrive whole and fit.
const READ: usize = 2048;
