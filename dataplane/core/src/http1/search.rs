//! Finds the end of a head, with no byte searched twice.

use memchr::{memchr, memchr_iter};

use super::{Reject, is_token};

/// How far the search for the end of one head has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadSearch {
    searched: usize,
}

/// The bytes of a complete head.
pub(super) struct Head<'b> {
    /// The head, from the first byte of its first line to the end of the empty line.
    pub(super) bytes: &'b [u8],
    /// The length of the head and of an empty line before it.
    pub(super) length: usize,
}

impl HeadSearch {
    /// Finds the end of a request's head within `limit` bytes. One empty line may precede the head (RFC 9112, section 2.2).
    pub(super) fn request<'b>(
        &mut self,
        bytes: &'b [u8],
        limit: usize,
    ) -> Result<Option<Head<'b>>, Reject> {
        let start = match bytes {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => 2,
            [b'\r', ..] => return Err(Reject::bad("bare-cr")),
            _ => 0,
        };
        match bytes.get(start) {
            None => Ok(None),
            Some(b'\n') => Err(Reject::bad("bare-lf")),
            Some(&byte) if !is_token(byte) => Err(Reject::bad("request-line")),
            Some(_) => self.find(bytes, start, limit),
        }
    }

    /// Finds the end of a response's head within `limit` bytes.
    pub(super) fn response<'b>(
        &mut self,
        bytes: &'b [u8],
        limit: usize,
    ) -> Result<Option<Head<'b>>, Reject> {
        let begins_well = bytes.iter().zip(b"HTTP/1.").all(|(a, b)| a == b);
        if !begins_well {
            return Err(Reject::bad("status-line"));
        }
        self.find(bytes, 0, limit)
    }

    fn find<'b>(
        &mut self,
        bytes: &'b [u8],
        start: usize,
        limit: usize,
    ) -> Result<Option<Head<'b>>, Reject> {
        let within = bytes.get(..limit).unwrap_or(bytes);
        let unsearched = within.get(self.searched..).unwrap_or_default();
        for position in memchr_iter(b'\n', unsearched) {
            let length = self.searched + position + 1;
            let found = &bytes[..length];
            if !found.ends_with(b"\r\n") {
                return Err(Reject::bad("bare-lf"));
            }
            if found.ends_with(b"\r\n\r\n") {
                let bytes = found.get(start..).unwrap_or_default();
                return Ok(Some(Head { bytes, length }));
            }
        }
        self.searched = within.len();
        if bytes.len() < limit {
            return Ok(None);
        }
        let lines = within.get(start..).unwrap_or_default();
        Err(match memchr(b'\n', lines) {
            Some(_) => Reject::new(431, "head-too-large"),
            None => Reject::new(414, "request-line-too-long"),
        })
    }
}
