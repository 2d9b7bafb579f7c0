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

/// The same as the first request of a connection of HTTP/2 (RFC 9113).
pub(crate) fn ask_http2(stream: &mut (impl Read + Write)) -> io::Result<()> {
    let mut fields = vec![METHOD_GET, SCHEME_HTTP];
    for (name, value) in [
        (NAME_OF_AUTHORITY, "bench.example"),
        (NAME_OF_PATH, "/svc/item"),
    ] {
        fields.push(name);
        fields.extend(u8::try_from(value.len()));
        fields.extend_from_slice(value.as_bytes());
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 1, &fields));
    stream.write_all(&bytes)?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [first, second, third, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, first, second, third]) as usize];
        stream.read_exact(&mut payload)?;
        match kind {
            SETTINGS if flags & ACK == 0 => stream.write_all(&frame(SETTINGS, ACK, 0, &[]))?,
            DATA if flags & END_STREAM != 0 => return Ok(()),
            RST_STREAM | GOAWAY => return Err(io::Error::other("HTTP/2: the request failed")),
            _ => {}
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap_or_default();
    let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, stream];
    frame.extend_from_slice(payload);
    frame
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Fields of HPACK's static table (RFC 7541, appendix A): whole ones, and names before a value that is not indexed.
const METHOD_GET: u8 = 0x82;
const SCHEME_HTTP: u8 = 0x86;
const NAME_OF_AUTHORITY: u8 = 1;
const NAME_OF_PATH: u8 = 4;
