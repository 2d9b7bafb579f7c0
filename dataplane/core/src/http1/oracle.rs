//! Properties that hold for any bytes. The tests of this crate and the fuzz target `request_head` include this file.

use std::mem::MaybeUninit;

use super::{
    Body, BodyError, Field, Framing, HeadSearch, Limits, Piece, Reject, parse_request,
    parse_response, parse_trailers,
};

/// Small, so that short inputs exceed them.
const LIMITS: Limits = Limits {
    bytes: 1024,
    fields: 12,
};

/// Panics if reading `bytes` violates a guarantee.
pub(super) fn check(bytes: &[u8]) {
    verdict_is_the_same_in_any_pieces(bytes, &request);
    for method in ["GET", "HEAD"] {
        verdict_is_the_same_in_any_pieces(bytes, &|bytes, search| response(bytes, search, method));
    }
    body_is_the_same_in_any_pieces(bytes, Framing::Chunked);
    body_is_the_same_in_any_pieces(bytes, Framing::Length(7));
}

/// A parsed head, in a form that verdicts are compared by.
#[derive(Clone, Debug, PartialEq)]
struct Head {
    /// The `Debug` text of the whole head.
    text: String,
    length: usize,
    framing: Framing,
    /// Whether the framing follows from the fields alone.
    is_framed_by_fields: bool,
}

type Verdict = Result<Option<Head>, Reject>;

fn request(bytes: &[u8], search: &mut HeadSearch) -> Verdict {
    let mut fields = [const { MaybeUninit::uninit() }; 16];
    let head = parse_request(bytes, search, &mut fields, &LIMITS)?;
    Ok(head.map(|head| {
        let request = head.request;
        check_fields(request.fields);
        assert!(request.path.starts_with('/') || request.path == "*");
        assert!(!request.path.contains(['?', '#', ' ']));
        assert_ne!(head.framing, Framing::UntilClose);
        Head {
            text: format!("{head:?}"),
            length: head.length,
            framing: head.framing,
            is_framed_by_fields: true,
        }
    }))
}

fn response(bytes: &[u8], search: &mut HeadSearch, method: &str) -> Verdict {
    let mut fields = [const { MaybeUninit::uninit() }; 16];
    let head = parse_response(bytes, search, &mut fields, &LIMITS, method)
        .inspect_err(|reject| assert_eq!(reject.status, 502))?;
    Ok(head.map(|head| {
        let status = head.response.status;
        check_fields(head.response.fields);
        assert!((100..1000).contains(&status));
        Head {
            text: format!("{head:?}"),
            length: head.length,
            framing: head.framing,
            is_framed_by_fields: head.framing != Framing::UntilClose
                && method != "HEAD"
                && !matches!(status, 100..=199 | 204 | 304),
        }
    }))
}

fn check_fields(fields: &[Field<'_>]) {
    assert!(fields.len() <= LIMITS.fields);
    for Field { name, value } in fields {
        assert!(!name.is_empty());
        assert!(!name.contains(|c: char| c.is_whitespace() || c.is_control() || c == ':'));
        let is_control = |&byte: &u8| byte != b'\t' && byte.is_ascii_control();
        assert!(!value.iter().any(is_control), "{value:?}");
        assert_eq!(value.trim_ascii(), *value);
    }
}

/// Feeds `bytes` one by one: the verdict is `None` up to some point, and then the one on all of them.
fn verdict_is_the_same_in_any_pieces(
    bytes: &[u8],
    read: &dyn Fn(&[u8], &mut HeadSearch) -> Verdict,
) {
    let at_once = read(bytes, &mut HeadSearch::default());
    let mut search = HeadSearch::default();
    let mut verdicts = (0..=bytes.len())
        .filter_map(|length| Some((length, read(bytes.get(..length)?, &mut search))))
        .skip_while(|(_, verdict)| *verdict == Ok(None));
    match verdicts.next() {
        None => {
            assert_eq!(at_once, Ok(None));
            assert!(bytes.len() < LIMITS.bytes);
        }
        Some((length, verdict)) => {
            assert_eq!(verdict, at_once);
            assert!(length <= LIMITS.bytes);
            if let Ok(Some(head)) = verdict {
                assert_eq!(head.length, length, "accepted when its last byte came");
                if head.is_framed_by_fields {
                    lax_readers_find_the_same_end(bytes, &head);
                }
            }
        }
    }
}

/// A reader with simpler rules must find the same end of an accepted message.
fn lax_readers_find_the_same_end(bytes: &[u8], head: &Head) {
    let mut body = Body::new(head.framing, &LIMITS);
    let rest = bytes.get(head.length..).expect("it was found in them");
    let Ok(decoded) = body.decode(rest) else {
        return;
    };
    let end = decoded.is_complete.then_some(head.length + decoded.used);
    for line_end in ["\r\n", "\n"] {
        assert_eq!(lax_end(bytes, line_end), end, "lines end in {line_end:?}");
    }
}

/// The end of the message, as found by a reader that checks nothing. `None` if more bytes are needed.
fn lax_end(bytes: &[u8], line_end: &str) -> Option<usize> {
    let mut reader = LaxReader {
        rest: bytes,
        length: bytes.len(),
        line_end,
    };
    let first = reader.line()?;
    if first.is_empty() {
        reader.line()?;
    }
    let mut lengths = Vec::new();
    let mut is_chunked = false;
    loop {
        let line = reader.line()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').expect("accepted without a colon");
        match name.trim().to_ascii_lowercase().as_str() {
            "content-length" => lengths.push(value.trim().parse::<u64>().expect("a number")),
            "transfer-encoding" => is_chunked |= value.to_ascii_lowercase().contains("chunked"),
            _ => {}
        }
    }
    assert!(lengths.len() <= usize::from(!is_chunked), "{lengths:?}");
    if let Some(&length) = lengths.first() {
        reader.skip(length)?;
    }
    if !is_chunked {
        return Some(reader.position());
    }
    loop {
        let line = reader.line()?;
        let size = line.split(';').next().expect("there is always a first");
        let size = u64::from_str_radix(size.trim(), 16).expect("a size");
        if size == 0 {
            while !reader.line()?.is_empty() {}
            return Some(reader.position());
        }
        reader.skip(size)?;
        assert_eq!(reader.line()?, "");
    }
}

struct LaxReader<'a> {
    rest: &'a [u8],
    length: usize,
    line_end: &'a str,
}

impl LaxReader<'_> {
    fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    fn line(&mut self) -> Option<String> {
        let end = self.line_end.as_bytes();
        let length = self.rest.windows(end.len()).position(|at| at == end)?;
        let (line, rest) = self.rest.split_at(length);
        self.rest = rest.get(end.len()..)?;
        Some(String::from_utf8_lossy(line).trim_end().to_owned())
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(count).ok()?..)?;
        Some(())
    }
}

/// All at once, byte by byte, in pieces, and past the data that need not be looked at: always the same body.
fn body_is_the_same_in_any_pieces(bytes: &[u8], framing: Framing) {
    let body = Body::new(framing, &LIMITS);
    let at_once = body.clone().decode(bytes);
    let at_once = at_once.map(|decoded| (decoded.used, decoded.is_complete));
    assert_eq!(byte_by_byte(body.clone(), bytes), at_once);

    let taken_apart = take_apart(body.clone(), bytes);
    assert_eq!(taken_apart.end, at_once);
    assert_eq!(data_passed_over(body, bytes), taken_apart.data);
    assert!(taken_apart.trailers.len() <= LIMITS.bytes);
    if framing == Framing::Chunked && at_once.is_ok_and(|(_, is_complete)| is_complete) {
        let trailers = parse_trailers(&taken_apart.trailers).expect("trailers");
        assert!(trailers.len() <= 16);
        check_fields(&trailers);
    }
}

/// The number of bytes of a body, and whether it is complete.
type End = Result<(usize, bool), BodyError>;

fn byte_by_byte(mut body: Body, bytes: &[u8]) -> End {
    let mut used = 0;
    while let Some(byte) = bytes.get(used..=used)
        && !body.is_complete()
    {
        used += body.decode(byte)?.used;
    }
    Ok((used, body.is_complete()))
}

struct TakenApart {
    data: Vec<u8>,
    trailers: Vec<u8>,
    end: End,
}

fn take_apart(mut body: Body, bytes: &[u8]) -> TakenApart {
    let (mut data, mut trailers, mut error) = (Vec::new(), Vec::new(), None);
    let mut pieces = body.pieces(bytes);
    for piece in pieces.by_ref() {
        match piece {
            Ok(Piece::Data(piece)) => data.extend_from_slice(piece),
            Ok(Piece::Trailers(piece)) => trailers.extend_from_slice(piece),
            Err(reason) => {
                error = Some(reason);
                break;
            }
        }
    }
    let used = pieces.used();
    let end = match error {
        Some(error) => Err(error),
        None => Ok((used, body.is_complete())),
    };
    TakenApart {
        data,
        trailers,
        end,
    }
}

fn data_passed_over(mut body: Body, bytes: &[u8]) -> Vec<u8> {
    let (mut rest, mut data) = (bytes, Vec::new());
    while !rest.is_empty() {
        let used = if let Some(most) = body.remaining() {
            let used = usize::try_from(most).map_or(rest.len(), |most| most.min(rest.len()));
            data.extend_from_slice(rest.get(..used).expect("not more than there are"));
            body.pass(used as u64);
            used
        } else {
            match body.decode(rest.get(..1).expect("one at least")) {
                Ok(decoded) if decoded.used > 0 => decoded.used,
                _ => break,
            }
        };
        rest = rest.get(used..).expect("not more than there are");
    }
    data
}
