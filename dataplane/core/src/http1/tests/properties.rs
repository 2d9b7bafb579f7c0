//! Properties of all messages.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        oracle::check(&bytes);
    }

    /// Words that matter, in any order.
    #[test]
    fn any_words(words in prop::collection::vec(select(WORDS), 0..40)) {
        oracle::check(&words.concat());
        let head = [b"POST / HTTP/1.1\r\nHost: a\r\n".as_slice(), &words.concat()].concat();
        oracle::check(&head);
        oracle::check(&[b"HTTP/1.1 200 OK\r\n".as_slice(), &words.concat()].concat());
    }

    /// A valid message, a byte of which is replaced, added or removed.
    #[test]
    fn almost_valid(message in message(), at in any::<Index>(), byte in any::<u8>(), how in 0..3) {
        let mut bytes = message.bytes;
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => drop(bytes.remove(at)),
        }
        oracle::check(&bytes);
    }

    #[test]
    fn a_valid_message_is_the_same_in_any_pieces(
        message in message(),
        behind in prop::collection::vec(any::<u8>(), 0..20),
        cuts in prop::collection::vec(any::<Index>(), 0..10),
    ) {
        let bytes = [message.bytes.as_slice(), &behind].concat();
        oracle::check(&bytes);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();

        let limits = Limits::default();
        let mut search = HeadSearch::default();
        let mut body: Option<Body> = None;
        let (mut used, mut data) = (0, Vec::new());
        for cut in cuts {
            if body.is_none() {
                let mut fields = [const { MaybeUninit::uninit() }; 128];
                let Some(head) = parse_request(&bytes[..cut], &mut search, &mut fields, &limits).unwrap() else {
                    continue;
                };
                used = head.length;
                body = Some(Body::new(head.framing, &limits));
            }
            let body = body.as_mut().expect("the head is complete");
            let mut pieces = body.pieces(&bytes[used..cut]);
            for piece in pieces.by_ref() {
                if let Piece::Data(piece) = piece.unwrap() {
                    data.extend_from_slice(piece);
                }
            }
            used += pieces.used();
        }
        prop_assert!(body.expect("the head is complete").is_complete());
        prop_assert_eq!(used, message.bytes.len());
        prop_assert_eq!(data, message.data);
    }
}

const WORDS: &[&[u8]] = &[
    b"GET ",
    b"OPTIONS ",
    b"/",
    b"*",
    b"http://a",
    b"?",
    b" HTTP/1.1",
    b" HTTP/1.0",
    b"\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\r",
    b"\n",
    b" ",
    b"\t",
    b":",
    b"Host: a",
    b"Content-Length: ",
    b"Transfer-Encoding: ",
    b"chunked",
    b"Connection: ",
    b"Upgrade: ",
    b"x",
    b",",
    b";",
    b"0",
    b"1",
    b"5",
    b"a",
    b"\0",
    b"X: y",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
];

#[derive(Clone, Debug)]
struct Message {
    bytes: Vec<u8>,
    data: Vec<u8>,
}

/// A request with a body.
fn message() -> impl Strategy<Value = Message> {
    let fields = prop::collection::vec("[!#$%&'*+.^_`|~A-Za-z0-9-]{1,3}:[ \t]?[ -~]{0,20}", 0..9);
    let path = "/[!\"$->@-~]{0,20}(\\?[!\"$-~]{0,20})?";
    let chunks = prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..5);
    let line = ("[A-Z]{1,7}", path, any::<bool>());
    (
        line,
        fields,
        chunks,
        any::<bool>(),
        "(;[!-~]{0,9})?",
        "(T: [!-~]{1,9}\r\n)?",
    )
        .prop_map(
            |((method, path, has_empty_line), fields, chunks, is_chunked, extension, trailers)| {
                let empty_line = if has_empty_line { "\r\n" } else { "" };
                let mut head = format!("{empty_line}{method}X {path} HTTP/1.1\r\nHost: a\r\n");
                for field in fields {
                    head += &format!("X-{field}\r\n");
                }
                let data = chunks.concat();
                let mut body = Vec::new();
                if is_chunked {
                    head += "Transfer-Encoding: chunked\r\n\r\n";
                    for chunk in chunks {
                        body.extend_from_slice(
                            format!("{:x}{extension}\r\n", chunk.len()).as_bytes(),
                        );
                        body.extend_from_slice(&chunk);
                        body.extend_from_slice(b"\r\n");
                    }
                    body.extend_from_slice(format!("0{extension}\r\n{trailers}\r\n").as_bytes());
                } else {
                    head += &format!("Content-Length: {}\r\n\r\n", data.len());
                    body.extend_from_slice(&data);
                }
                let bytes = [head.as_bytes(), &body].concat();
                Message { bytes, data }
            },
        )
}
