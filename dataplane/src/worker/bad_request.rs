//! The last request that was refused because it breaks the rules of HTTP/1, for `show errors`.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::SystemTime;

use ballast_core::table::Name;
use ballast_core::text::Append;

use crate::os::clock::{DATE, utc};
use crate::os::threads::lock;

/// The last bad request of the process.
#[derive(Debug, Default)]
pub(crate) struct LastBadRequest(Mutex<Option<BadRequest>>);

#[derive(Debug)]
struct BadRequest {
    at: SystemTime,
    frontend: Name,
    client: SocketAddr,
    reason: &'static str,
    /// How much of it had come.
    length: usize,
    /// The first of its bytes.
    bytes: Box<[u8]>,
}

impl LastBadRequest {
    /// Notes a bad request, unless another worker does so at this moment: a worker never waits here.
    pub(crate) fn note(
        &self,
        frontend: &Name,
        client: SocketAddr,
        reason: &'static str,
        held: &[u8],
    ) {
        let Ok(mut last) = self.0.try_lock() else {
            return;
        };
        *last = Some(BadRequest {
            at: SystemTime::now(),
            frontend: frontend.clone(),
            client,
            reason,
            length: held.len(),
            bytes: held.get(..KEPT).unwrap_or(held).into(),
        });
    }

    /// The request in haproxy's form; empty if there was none.
    pub(crate) fn in_words(&self) -> String {
        let mut out = String::new();
        let last = lock(&self.0);
        let Some(bad) = last.as_ref() else {
            return out;
        };
        let date = utc(bad.at, DATE);
        write!(
            out,
            " \n[{date}] frontend {}: invalid request\n  src {}, reason: {}\n  len {}, the first {} bytes :\n  \n",
            bad.frontend,
            bad.client,
            bad.reason,
            bad.length,
            bad.bytes.len(),
        );
        let mut position = 0;
        for line in bad.bytes.split_inclusive(|byte| *byte == b'\n') {
            for part in line.chunks(WIDTH) {
                writeln!(out, "  {position:05}  {}", part.escape_ascii());
                position += part.len();
            }
        }
        out
    }
}

/// Bytes that are kept of a request.
const KEPT: usize = 1024;
/// Bytes of a line.
const WIDTH: usize = 70;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_is_shown_with_its_bytes() {
        let last = LastBadRequest::default();
        assert_eq!(last.in_words(), "");
        let client = "192.0.2.7:5".parse().unwrap();
        let name: Name = "web".parse().unwrap();
        last.note(&name, client, "first", b"x");
        last.note(
            &name,
            client,
            "field name",
            b"GET / HTTP/1.1\r\nHo st: \xff\r\n\r\n",
        );
        let words = last.in_words();
        let (head, rest) = words.split_once("] ").unwrap();
        assert!(head.starts_with(" \n["), "{words}");
        assert_eq!(
            rest,
            "frontend web: invalid request\n  src 192.0.2.7:5, reason: field name\n  len 28, the first 28 bytes :\n  \n  00000  GET / HTTP/1.1\\r\\n\n  00016  Ho st: \\xff\\r\\n\n  00026  \\r\\n\n"
        );
        last.note(&name, client, "long", &[b'a'; 5000]);
        let words = last.in_words();
        assert!(words.contains("len 5000, the first 1024 bytes"), "{words}");
        assert!(
            !words.contains("\n\n"),
            "an empty line ends an answer: {words}"
        );
    }
}
