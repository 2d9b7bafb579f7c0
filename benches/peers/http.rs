//! The HTTP of client and origin: one small request and its answer, and a body that never ends.

use std::io::{self, Read, Write};

/// A small request. The proxies take its prefix `/svc` away.
pub(crate) const REQUEST: &[u8] =
    b"GET /svc/item HTTP/1.1\r\nHost: bench.example\r\nUser-Agent: peers\r\nAccept: */*\r\n\r\n";
/// A request for [`ENDLESS_HEAD`].
pub(crate) const ENDLESS_REQUEST: &[u8] =
    b"GET /svc/endless HTTP/1.1\r\nHost: bench.example\r\nUser-Agent: peers\r\nAccept: */*\r\n\r\n";
/// What the origin answers: a body of 64 bytes, the last of which is [`END`].
pub(crate) const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 64\r\n\r\n\
    EEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEE\0";
/// The head before a body that is longer than any window.
pub(crate) const ENDLESS_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 1099511627776\r\n\r\n";
/// The length of its body.
pub(crate) const ANSWER_BODY: usize = 64;
/// The host of every request.
pub(crate) const HOST: &str = "bench.example";
/// A request of HTTP/1.0 for [`CHUNKS_HEAD`].
pub(crate) const CHUNKS_REQUEST: &[u8] = b"GET /svc/chunks HTTP/1.0\r\nHost: bench.example\r\n\r\n";
/// The head before chunks without end, each as [`chunk`] makes it.
pub(crate) const CHUNKS_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
/// The last byte of an answer. No head has it.
pub(crate) const END: u8 = 0;

/// Whether these bytes, the first of an answer or later ones, end it. A status other than 200 is an error.
#[inline]
pub(crate) fn is_end(bytes: &[u8], are_first: bool) -> io::Result<bool> {
    if are_first && !bytes.starts_with(b"HTTP/1.1 200") {
        let line = bytes.split(|byte| *byte == b'\r').next();
        let line = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
        return Err(io::Error::other(format!("the answer is {line}")));
    }
    Ok(bytes.last() == Some(&END))
}

/// Whether a head that the origin has received is whole. No request has a body, and none is sent before the last is answered.
#[inline]
pub(crate) fn is_whole(head: &[u8]) -> bool {
    head.ends_with(b"\r\n\r\n")
}

/// Whether a request that has reached the origin, by whatever way, wants [`ENDLESS_HEAD`].
#[inline]
pub(crate) fn is_endless(head: &[u8]) -> bool {
    head.starts_with(b"GET /endless")
}

/// The same of [`CHUNKS_HEAD`].
#[inline]
pub(crate) fn is_for_chunks(head: &[u8]) -> bool {
    head.starts_with(b"GET /chunks")
}

/// A chunk of 1 KiB.
pub(crate) fn chunk() -> Vec<u8> {
    [b"400\r\n".as_slice(), &[0; 1024], b"\r\n"].concat()
}

/// Sends the small request and reads its answer.
pub(crate) fn ask(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.write_all(REQUEST)?;
    let mut bytes = [0; 1024];
    let mut are_first = true;
    loop {
        let length = stream.read(&mut bytes)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if is_end(&bytes[..length], are_first)? {
            return Ok(());
        }
        are_first = false;
    }
}
