//! Reads the PROXY header that a trusted peer must send.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use ballast_core::plan::{AcceptProxy, Frontend, FrontendCounters};
use ballast_core::preamble::{Parsed, Reason, Transport, Versions, step};
use tokio::time::timeout;

use crate::net::poller::Stream;
use crate::worker::{Entry, ProxyInfo};

/// The content of a header, and the bytes that followed it.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// The client's address; `None` if the peer itself is the client.
    pub(super) client: Option<SocketAddr>,
    pub(super) proxy_info: Option<Box<ProxyInfo>>,
    /// The first bytes of the client itself.
    pub(super) rest: Vec<u8>,
}

/// Why there is no valid header.
#[derive(Debug)]
pub(crate) enum HeaderError {
    /// The peer connected and left without sending a byte, in order or by a reset: it only probed whether the port is open.
    PortProbe,
    /// The bytes are not a header.
    Invalid(Reason),
    /// The peer left in the middle of the header.
    Truncated,
    /// The header did not arrive in time.
    TimedOut,
}

pub(super) async fn read(client: &Stream, frontend: &Frontend) -> Result<Header, HeaderError> {
    let accept = frontend.accept_proxy();
    let versions = accept.map(AcceptProxy::versions).unwrap_or_default();
    let receive = async |buffer: &mut [u8]| poll_fn(|cx| client.poll_recv(cx, buffer)).await;
    timeout(frontend.preamble_timeout(), read_header(versions, receive))
        .await
        .unwrap_or(Err(HeaderError::TimedOut))
}

/// Reads the header by calls of `receive`, which fills the buffer that it is given.
async fn read_header(
    versions: Versions,
    mut receive: impl AsyncFnMut(&mut [u8]) -> io::Result<usize>,
) -> Result<Header, HeaderError> {
    let mut bytes = Vec::new();
    loop {
        let need = match step(&bytes, versions, Transport::Tcp) {
            Parsed::Need(need) => need,
            Parsed::Reject(reason) => return Err(HeaderError::Invalid(reason)),
            Parsed::Local { length } => {
                return Ok(Header {
                    rest: bytes.split_off(length.min(bytes.len())),
                    ..Header::default()
                });
            }
            Parsed::Header(header) => {
                let addresses = header.addresses.canonical();
                let proxy_info = ProxyInfo {
                    destination: Some(addresses.destination),
                    authority: header.tlvs.authority().map(Into::into),
                    is_asked_here: false,
                    unique_id: header.tlvs.unique_id().map(Into::into),
                };
                let length = header.length.min(bytes.len());
                return Ok(Header {
                    client: Some(addresses.source),
                    proxy_info: Some(Box::new(proxy_info)),
                    rest: bytes.split_off(length),
                });
            }
        };
        // Most headers arrive whole and fit, so one call reads them. Bytes behind the header that do not fit stay in the
        // socket, from where they can be spliced.
        let held = bytes.len();
        bytes.resize(held + need.max(FIRST_READ), 0);
        let received = receive(&mut bytes[held..]).await;
        bytes.truncate(held + received.as_ref().map_or(0, |received| *received));
        match received {
            Ok(0) | Err(_) if held == 0 => return Err(HeaderError::PortProbe),
            Ok(0) | Err(_) => return Err(HeaderError::Truncated),
            Ok(_) => {}
        }
    }
}

/// Counts a connection without a valid header.
pub(super) fn account(
    error: HeaderError,
    client: &Stream,
    counters: &FrontendCounters,
    entry: Option<Box<Entry>>,
) {
    let letters = match error {
        HeaderError::PortProbe => {
            counters.port_probes.add(1);
            client.close_in_order();
            if let Some(entry) = entry {
                entry.forget();
            }
            return;
        }
        HeaderError::TimedOut => {
            counters.late_headers.add(1);
            b"cR"
        }
        HeaderError::Invalid(reason) => {
            counters.bad_headers.add(1);
            tracing::debug!(peer = ?client.peer_addr().ok(), %reason, "no PROXY header");
            b"PR"
        }
        HeaderError::Truncated => {
            counters.bad_headers.add(1);
            b"CR"
        }
    };
    if let Some(mut entry) = entry {
        entry.end(letters);
    }
}

/// Size of the first read: room for a header and a small request behind it.
const FIRST_READ: usize = 1024;

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// What came of bytes that arrive in these segments, and in how many calls they were read. One call reads of one segment.
    fn read_all(segments: &[&[u8]]) -> (Result<Vec<u8>, HeaderError>, Option<SocketAddr>, usize) {
        let mut left = segments.concat();
        let mut ends: Vec<usize> = segments.iter().map(|segment| segment.len()).collect();
        let mut calls = 0;
        let receive = async |buffer: &mut [u8]| {
            calls += 1;
            let Some(end) = ends.first_mut() else {
                return Ok(0);
            };
            let read = buffer.len().min(*end);
            *end -= read;
            if *end == 0 {
                ends.remove(0);
            }
            for (to, byte) in buffer.iter_mut().zip(left.drain(..read)) {
                *to = byte;
            }
            Ok(read)
        };
        let outcome = {
            let mut reading = Box::pin(read_header(Versions::Both, receive));
            match reading
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => panic!("it never waits"),
            }
        };
        let client = outcome.as_ref().ok().and_then(|header| header.client);
        // Nothing is lost: what was not read is still there.
        let outcome = outcome.map(|header| [header.rest, left].concat());
        (outcome, client, calls)
    }

    #[test]
    fn a_header_in_one_segment_is_read_by_one_call() {
        let bulk = vec![b'x'; 64 << 10];
        for header in [LINE.as_bytes(), &v2(0), &v2(900)] {
            for data in [&b""[..], b"hello", &bulk] {
                let (outcome, client, calls) = read_all(&[&[header, data].concat()]);
                assert!(outcome.unwrap() == data, "{} bytes", data.len());
                assert_eq!(client, Some(CLIENT.parse().unwrap()));
                assert_eq!(calls, 1);
            }
        }
    }

    #[test]
    fn a_header_in_pieces_is_read_by_one_call_for_each() {
        for header in [LINE.as_bytes(), &v2(0), &v2(4_000)] {
            for cut in 1..header.len() {
                let (first, second) = header.split_at(cut);
                let (outcome, client, calls) = read_all(&[first, &[second, b"hello"].concat()]);
                assert_eq!(outcome.unwrap(), b"hello");
                assert_eq!(client, Some(CLIENT.parse().unwrap()));
                // 4,016 bytes are more than fits at once: the length is read first, and then the rest.
                assert!(
                    calls == 2 || header.len() > FIRST_READ && calls <= 4,
                    "{calls}"
                );
            }
            let bytes: Vec<&[u8]> = header.chunks(1).collect();
            let (outcome, _, calls) = read_all(&bytes);
            assert_eq!((outcome.unwrap().len(), calls), (0, header.len()));
        }
    }

    #[test]
    fn no_more_is_held_than_the_longest_header_and_one_buffer() {
        for header in [LINE.as_bytes(), &v2(4_000)] {
            let mut endless = header.iter().copied().chain(std::iter::repeat(b'x'));
            let receive = async |buffer: &mut [u8]| {
                for (to, byte) in buffer.iter_mut().zip(&mut endless) {
                    *to = byte;
                }
                Ok(buffer.len())
            };
            let reading = Box::pin(read_header(Versions::Both, receive));
            let outcome = std::pin::pin!(reading).poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(Ok(Header { rest, .. })) = outcome else {
                panic!("{outcome:?}");
            };
            assert!(rest.len() <= FIRST_READ, "{}", rest.len());
        }
    }

    #[test]
    fn an_end_before_and_within_the_header_are_told_apart() {
        assert!(matches!(read_all(&[]).0, Err(HeaderError::PortProbe)));
        assert!(matches!(
            read_all(&[b"PROXY TCP4 192."]).0,
            Err(HeaderError::Truncated)
        ));
        let line = [b'x'; 2_000];
        let endless = [b"PROXY UNKNOWN ", &line[..]].concat();
        assert!(matches!(
            read_all(&[&endless]).0,
            Err(HeaderError::Invalid(_))
        ));
    }

    /// A header of the same client, with so many bytes of a TLV that means nothing.
    fn v2(more: u16) -> Vec<u8> {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
        header.extend((12 + more).to_be_bytes());
        header.extend([192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb]);
        if let Some(value) = more.checked_sub(3) {
            header.push(4);
            header.extend(value.to_be_bytes());
            header.resize(header.len() + usize::from(value), 0);
        }
        header
    }

    const CLIENT: &str = "192.0.2.1:56324";
    const LINE: &str = "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n";
}
