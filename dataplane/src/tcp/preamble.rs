//! Reads the PROXY header that a trusted peer owes.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use ballast_core::plan::{AcceptProxy, Frontend, FrontendCounters};
use ballast_core::preamble::{Reason, Step, Transport, Versions, step};
use tokio::time::timeout;

use crate::access::Entry;
use crate::poller::Stream;

/// What a header said, and what came behind it.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// The client's address; `None`: the peer is the client.
    pub(super) client: Option<SocketAddr>,
    pub(super) introduced: Option<Box<Introduced>>,
    /// The first of the client's own bytes.
    pub(super) rest: Vec<u8>,
}

/// What a PROXY header says beside the client's address.
#[derive(Debug, Default)]
pub(super) struct Introduced {
    /// What the client connected to.
    pub(super) destination: Option<SocketAddr>,
    /// The name that the client asked for.
    pub(super) authority: Option<Box<str>>,
    /// What another proxy calls this connection.
    pub(super) unique_id: Option<Box<[u8]>>,
}

/// Why there is no header.
#[derive(Debug)]
pub(super) enum End {
    /// Connected, said nothing, left, by an end or a reset: somebody looked whether the port is open.
    PortProbe,
    /// Bytes that are no header.
    Bad(Reason),
    /// Left within the header.
    Cut,
    /// Took too long.
    Late,
}

/// Reads the header.
pub(super) async fn read(client: &Stream, frontend: &Frontend) -> Result<Header, End> {
    let accept = frontend.accept_proxy();
    let versions = accept.map(AcceptProxy::versions).unwrap_or_default();
    let receive = async |buffer: &mut [u8]| poll_fn(|cx| client.poll_take(cx, buffer)).await;
    timeout(frontend.preamble_timeout(), read_header(versions, receive))
        .await
        .unwrap_or(Err(End::Late))
}

/// The same with whatever `receive` puts into the buffer that it is given.
async fn read_header(
    versions: Versions,
    mut receive: impl AsyncFnMut(&mut [u8]) -> io::Result<usize>,
) -> Result<Header, End> {
    let mut bytes = Vec::new();
    loop {
        let need = match step(&bytes, versions, Transport::Stream) {
            Step::Need(need) => need,
            Step::Reject(reason) => return Err(End::Bad(reason)),
            Step::Local { length } => {
                return Ok(Header {
                    rest: bytes.split_off(length.min(bytes.len())),
                    ..Header::default()
                });
            }
            Step::Header(header) => {
                let addresses = header.addresses.canonical();
                let introduced = Introduced {
                    destination: Some(addresses.destination),
                    authority: header.tlvs.authority().map(Into::into),
                    unique_id: header.tlvs.unique_id().map(Into::into),
                };
                let length = header.length.min(bytes.len());
                return Ok(Header {
                    client: Some(addresses.source),
                    introduced: Some(Box::new(introduced)),
                    rest: bytes.split_off(length),
                });
            }
        };
        // Most headers come whole and fit, so one call reads them. What lies behind the header and no longer fits stays in
        // the socket, where it can be spliced from.
        let held = bytes.len();
        bytes.resize(held + need.max(AT_ONCE), 0);
        let received = receive(bytes.get_mut(held..).unwrap_or_default()).await;
        bytes.truncate(held + received.as_ref().map_or(0, |received| *received));
        match received {
            Ok(0) | Err(_) if held == 0 => return Err(End::PortProbe),
            Ok(0) | Err(_) => return Err(End::Cut),
            Ok(_) => {}
        }
    }
}

/// Counts a connection that had no header.
pub(super) fn account(
    end: End,
    client: &Stream,
    counters: &FrontendCounters,
    entry: Option<Box<Entry>>,
) {
    let letters = match end {
        End::PortProbe => {
            counters.port_probes.add(1);
            client.close_in_order();
            if let Some(entry) = entry {
                entry.forget();
            }
            return;
        }
        End::Late => {
            counters.late_headers.add(1);
            b"cR"
        }
        End::Bad(reason) => {
            counters.bad_headers.add(1);
            tracing::debug!(peer = ?client.peer_addr().ok(), %reason, "no PROXY header");
            b"PR"
        }
        End::Cut => {
            counters.bad_headers.add(1);
            b"CR"
        }
    };
    if let Some(mut entry) = entry {
        entry.end(letters);
    }
}

/// Room for a header and a small request behind it.
const AT_ONCE: usize = 1024;

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// What came of bytes that arrive in these segments, and in how many calls they were read. One call reads of one segment.
    fn read_all(segments: &[&[u8]]) -> (Result<Vec<u8>, End>, Option<SocketAddr>, usize) {
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
                    calls == 2 || header.len() > AT_ONCE && calls <= 4,
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
            assert!(rest.len() <= AT_ONCE, "{}", rest.len());
        }
    }

    #[test]
    fn an_end_before_and_within_the_header_are_told_apart() {
        assert!(matches!(read_all(&[]).0, Err(End::PortProbe)));
        assert!(matches!(read_all(&[b"PROXY TCP4 192."]).0, Err(End::Cut)));
        let line = [b'x'; 2_000];
        let endless = [b"PROXY UNKNOWN ", &line[..]].concat();
        assert!(matches!(read_all(&[&endless]).0, Err(End::Bad(_))));
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
