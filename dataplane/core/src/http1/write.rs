//! Writes the frames of a body.

use super::body::Body;
use crate::forward::Sink;
use crate::http::{Field, Framing};

/// Appends bytes of a body. None make no chunk: an empty chunk is the end.
pub fn write_data(out: &mut Vec<u8>, framing: Framing, bytes: &[u8]) {
    if framing != Framing::Chunked {
        return out.extend_from_slice(bytes);
    }
    if bytes.is_empty() {
        return;
    }
    write_hex(out, bytes.len());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends the end of a body. Trailers are written in chunks only: no other framing has room for them.
pub fn write_end(out: &mut Vec<u8>, framing: Framing, trailers: &[Field<'_>]) {
    if framing == Framing::Chunked {
        out.extend_from_slice(b"0\r\n");
        write_trailers(out, trailers);
    }
}

/// Appends the trailer section that follows the last chunk.
pub fn write_trailers(out: &mut Vec<u8>, trailers: &[Field<'_>]) {
    for trailer in trailers {
        out.field(trailer.name, trailer.value);
    }
    out.extend_from_slice(b"\r\n");
}

fn write_hex(out: &mut Vec<u8>, number: usize) {
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let digit = (number >> (4 * digit)) & 15;
        out.push(HEX.get(digit).copied().unwrap_or_default());
    }
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// How much of some bytes is forwarded: made by [`Body::relay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// The number of bytes that belong to the body.
    pub used: usize,
    /// The number of those that are forwarded as they are.
    pub forwarded: usize,
}

impl Body {
    /// Follows the body through `bytes`, which are forwarded as they are, but for trailers: those are appended to `trailers`, to be
    /// [filtered](crate::forward::Trailing) first. An empty trailer section that comes in one piece is forwarded.
    pub fn relay(
        &mut self,
        bytes: &[u8],
        trailers: &mut Vec<u8>,
    ) -> Result<Relayed, super::BodyError> {
        let mut pieces = self.trailers_in(bytes, trailers)?;
        if self.is_complete() && trailers == EMPTY && pieces.used == pieces.forwarded + EMPTY.len()
        {
            trailers.clear();
            pieces.forwarded = pieces.used;
        }
        Ok(pieces)
    }
}

/// A trailer section without trailers.
const EMPTY: &[u8] = b"\r\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::Limits;

    #[test]
    fn bodies_are_framed() {
        let field = |name, value| Field { name, value };
        let trailers = [field("a", &b"1"[..]), field("b", b"")];
        for (framing, data, ended, with_trailers) in [
            (Framing::Length(3), "abc", "abc", "abc"),
            (Framing::UntilClose, "abc", "abc", "abc"),
            (
                Framing::Chunked,
                "3\r\nabc\r\n",
                "3\r\nabc\r\n0\r\n\r\n",
                "3\r\nabc\r\n0\r\na: 1\r\nb: \r\n\r\n",
            ),
        ] {
            let mut out = Vec::new();
            write_data(&mut out, framing, b"abc");
            write_data(&mut out, framing, b"");
            assert_eq!(out, data.as_bytes());
            let mut without = out.clone();
            write_end(&mut without, framing, &[]);
            assert_eq!(without, ended.as_bytes());
            write_end(&mut out, framing, &trailers);
            assert_eq!(out, with_trailers.as_bytes());
        }
    }

    #[test]
    fn sizes_of_chunks_are_hexadecimal() {
        for number in [1, 9, 10, 15, 16, 255, 256, 65_535, 1 << 20] {
            let mut out = Vec::new();
            write_hex(&mut out, number);
            assert_eq!(out, format!("{number:X}").as_bytes());
        }
    }

    #[test]
    fn trailers_are_held_back_wherever_the_bytes_are_cut() {
        let whole = b"3;x\r\nabc\r\n0\r\nA: 1\r\n\r\nNEXT";
        let plain = b"3\r\nabc\r\n0\r\n\r\nNEXT";
        for (bytes, body, section) in [
            (
                &whole[..],
                &b"3;x\r\nabc\r\n0\r\n"[..],
                &b"A: 1\r\n\r\n"[..],
            ),
            (plain, b"3\r\nabc\r\n0\r\n", b"\r\n"),
        ] {
            for cut in 0..bytes.len() {
                let (first, second) = bytes.split_at(cut);
                let mut relay = Body::new(Framing::Chunked, &Limits::default());
                let (mut out, mut held) = (Vec::new(), Vec::new());
                let mut used = 0;
                for part in [first, second] {
                    let relayed = relay.relay(part, &mut held).unwrap();
                    out.extend_from_slice(&part[..relayed.forwarded]);
                    used += relayed.used;
                }
                assert!(relay.is_complete());
                assert_eq!(used, bytes.len() - b"NEXT".len(), "cut at {cut}");
                out.extend_from_slice(&held);
                assert_eq!(out, [body, section].concat(), "cut at {cut}");
                let is_plain = section == b"\r\n";
                assert!(is_plain || held == section, "cut at {cut}");
            }
        }
    }
}
