//! Bodies.

use super::*;

/// The verdict on a body in chunks, in one line: the data, the trailers if there are any, and how the body ends. `+N`: N bytes
/// follow the body.
fn chunked(bytes: &[u8]) -> String {
    oracle::check(bytes);
    let mut body = Body::new(Framing::Chunked, &Limits::default());
    let mut pieces = body.pieces(bytes);
    let (mut text, mut trailers) = (String::new(), Vec::new());
    for piece in pieces.by_ref() {
        match piece {
            Ok(Piece::Data(data)) => text += &data.escape_ascii().to_string(),
            Ok(Piece::Trailers(bytes)) => trailers.extend_from_slice(bytes),
            Err(error) => return error.reason.into(),
        }
    }
    let behind = bytes.len() - pieces.used();
    if !body.is_complete() {
        return format!("{text} more");
    }
    for field in parse_trailers(&trailers).expect("trailers") {
        text += &format!(" {}={}", field.name, field.value.escape_ascii());
    }
    match behind {
        0 => text,
        behind => format!("{text} +{behind}"),
    }
}

#[test]
fn chunks() {
    let most = b";".repeat(256);
    #[rustfmt::skip]
    let rows: &[(&[u8], &str)] = &[
        (b"0\r\n\r\n",                              ""),
        (b"5\r\nhello\r\n0\r\n\r\n",                "hello"),
        (b"5\r\nhello\r\n1\r\n \r\n00\r\n\r\nGET",  "hello  +3"),
        (b"A\r\n0123456789\r\n0\r\n\r\n",           "0123456789"),
        (b"a\r\n0123456789\r\n0\r\n\r\n",           "0123456789"),
        (b"0000000000000001\r\nx\r\n0\r\n\r\n",     "x"),
        (b"4\r\n\r\n\r\n\r\n0\r\n\r\n",             "\\r\\n\\r\\n"),
        (b"",                                       " more"),
        (b"5\r\nhel",                               "hel more"),
        (b"5\r\nhello\r\n0\r\n",                    "hello more"),
        (b"5\r\nhello\r\n0\r\n\r",                  "hello more"),
        // Sizes
        (b"\r\n",                                   "chunk-size"),
        (b";x\r\n",                                 "chunk-size"),
        (b"+5\r\nhello\r\n",                        "chunk-size"),
        (b"-5\r\nhello\r\n",                        "chunk-size"),
        (b"0x5\r\nhello\r\n",                       "chunk-size"),
        (b"g\r\n",                                  "chunk-size"),
        (b"5_0\r\n",                                "chunk-size"),
        (b" 5\r\nhello\r\n",                        "chunk-size"),
        (b"5 \r\nhello\r\n",                        "chunk-size"),
        (b"5\t;x\r\nhello\r\n",                     "chunk-size"),
        (b"5\0\r\nhello\r\n",                       "chunk-size"),
        (b"7fffffffffffffff\r\nx",                  "x more"),
        (b"8000000000000000\r\nx",                  "chunk-size-too-large"),
        (b"ffffffffffffffff\r\nx",                  "chunk-size-too-large"),
        (b"10000000000000005\r\nx",                 "chunk-size-too-large"),
        (b"00000000000000005\r\nhello\r\n",         "chunk-size-too-large"),
        // Line ends
        (b"5\nhello\r\n0\r\n\r\n",                  "chunk-size"),
        (b"5\rhello\r\n0\r\n\r\n",                  "chunk-line-end"),
        (b"5\r\r\nhello\r\n0\r\n\r\n",              "chunk-line-end"),
        (b"5\r\nhello\n0\r\n\r\n",                  "chunk-line-end"),
        (b"5\r\nhello\r0\r\n\r\n",                  "chunk-line-end"),
        (b"5\r\nhello0\r\n\r\n",                    "chunk-line-end"),
        (b"5\r\nhellox\r\n0\r\n\r\n",               "chunk-line-end"),
        (b"5\r\nhell\r\n0\r\n\r\n",                 "chunk-line-end"),
        (b"0\n\r\n",                                "chunk-size"),
        (b"0\r\n\n",                                "trailer-name"),
        (b"0\r\n\rx",                               "trailer-line-end"),
        // Extensions
        (b"5;a=b;c=\"d e\"\r\nhello\r\n0;x\r\n\r\n", "hello"),
        (b"5;\r\nhello\r\n0\r\n\r\n",               "hello"),
        (b"5; a = b\t\r\nhello\r\n0\r\n\r\n",       "hello"),
        (b"5;a\nhello\r\n0\r\n\r\n",                "chunk-extensions"),
        (b"5;a\rb\r\nhello\r\n",                    "chunk-line-end"),
        (b"5;a\0\r\nhello\r\n",                     "chunk-extensions"),
        (b"5;\xff\r\nhello\r\n",                    "chunk-extensions"),
        (b"5;\x7f\r\nhello\r\n",                    "chunk-extensions"),
        (&[b"1", &*most, b"\r\nx\r\n0", &*most, b"\r\n\r\n"].concat(), "x"),
        (&[b"1;", &*most, b"\r\nx\r\n0\r\n\r\n"].concat(), "chunk-extensions-too-long"),
        // Trailers
        (b"0\r\nA: b\r\n\r\n",                      " A=b"),
        (b"1\r\nx\r\n0\r\nA:\t b \t\r\nC:\r\n\r\nx", "x A=b C= +1"),
        (b"0\r\nContent-Length: 5\r\n\r\nhello",    " Content-Length=5 +5"),
        (b"0\r\nA: \xff\r\n\r\n",                   " A=\\xff"),
        (b"0\r\nA: b\r\n",                          " more"),
        (b"0\r\nA: b\n\r\n",                        "trailer-value"),
        (b"0\r\nA: b\r\n\n",                        "trailer-name"),
        (b"0\r\nA: b\rc\r\n\r\n",                   "trailer-line-end"),
        (b"0\r\nA: b\r\n c\r\n\r\n",                "trailer-name"),
        (b"0\r\n A: b\r\n\r\n",                     "trailer-name"),
        (b"0\r\nA : b\r\n\r\n",                     "trailer-name"),
        (b"0\r\n: b\r\n\r\n",                       "trailer-name"),
        (b"0\r\nA\r\n\r\n",                         "trailer-name"),
        (b"0\r\nA: \0\r\n\r\n",                     "trailer-value"),
        (b"0\r\nA: \x7f\r\n\r\n",                   "trailer-value"),
        (b"0\r\nGET / HTTP/1.1\r\n\r\n",            "trailer-name"),
    ];
    for (bytes, expected) in rows {
        assert_eq!(chunked(bytes), *expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn trailers_are_limited() {
    let decode = |bytes: &[u8], limits| Body::new(Framing::Chunked, &limits).decode(bytes);
    let limits = |bytes, fields| Limits { bytes, fields };
    let body = b"1\r\nx\r\n0\r\nA: b\r\nC: d\r\n\r\n";
    let trailers = 14;
    let complete = Ok(Decoded {
        used: body.len(),
        is_complete: true,
    });
    let error = |reason| Err(BodyError { reason });
    assert_eq!(decode(body, limits(trailers, 2)), complete);
    assert_eq!(
        decode(body, limits(trailers - 1, 2)),
        error("trailers-too-large")
    );
    assert_eq!(
        decode(body, limits(trailers, 1)),
        error("too-many-trailers")
    );
    assert_eq!(
        decode(b"0\r\n\r\n", limits(2, 0)),
        Ok(Decoded {
            used: 5,
            is_complete: true
        })
    );
}

#[test]
fn bodies_of_other_framings() {
    let decode = |framing, bytes: &[u8]| {
        let mut body = Body::new(framing, &Limits::default());
        let decoded = body.decode(bytes).unwrap();
        (
            decoded.used,
            decoded.is_complete,
            body.remaining(),
            body.may_close(),
        )
    };
    assert_eq!(decode(Framing::Empty, b"GET"), (0, true, None, true));
    assert_eq!(decode(Framing::Empty, b""), (0, true, None, true));
    assert_eq!(decode(Framing::Length(0), b"GET"), (0, true, None, true));
    assert_eq!(
        decode(Framing::Length(5), b"hel"),
        (3, false, Some(2), false)
    );
    assert_eq!(
        decode(Framing::Length(5), b"helloGET"),
        (5, true, None, true)
    );
    let most = u64::MAX;
    assert_eq!(
        decode(Framing::Length(most), b"hi"),
        (2, false, Some(most - 2), false)
    );
    assert_eq!(
        decode(Framing::UntilClose, b"hello"),
        (5, false, Some(most), true)
    );
    assert_eq!(
        decode(Framing::UntilClose, b""),
        (0, false, Some(most), true)
    );
    assert_eq!(
        decode(Framing::Chunked, b"5\r\nhel"),
        (6, false, Some(2), false)
    );
    assert_eq!(
        decode(Framing::Chunked, b"5\r\nhello"),
        (8, false, None, false)
    );
}

#[test]
fn data_that_is_not_looked_at() {
    let mut body = Body::new(Framing::Chunked, &Limits::default());
    body.decode(b"1000\r\n").unwrap();
    assert_eq!(body.remaining(), Some(0x1000));
    body.pass(0xfff);
    assert_eq!(body.remaining(), Some(1));
    body.pass(1);
    assert_eq!(body.remaining(), None);
    let decoded = body.decode(b"\r\n0\r\n\r\n").unwrap();
    assert!(decoded.is_complete);

    let mut body = Body::new(Framing::Length(9), &Limits::default());
    body.pass(4);
    assert_eq!(body.remaining(), Some(5));
    body.pass(5);
    assert!(body.is_complete());
}

#[test]
fn a_malformed_body_stays_malformed() {
    let mut body = Body::new(Framing::Chunked, &Limits::default());
    let error = body.decode(b"x").unwrap_err();
    assert_eq!(body.decode(b"0\r\n\r\n"), Err(error));
    assert_eq!(body.pieces(b"0\r\n\r\n").next(), Some(Err(error)));
    assert_eq!(body.remaining(), None);
    assert!(!body.is_complete() && !body.may_close());
}
