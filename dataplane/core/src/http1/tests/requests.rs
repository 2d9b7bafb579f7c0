//! Heads of requests.

use std::path::Path;

use super::*;

#[test]
fn whole_heads() {
    #[rustfmt::skip]
    let rows: &[(&[u8], &str)] = &[
        // Complete or not
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",              "GET / a Empty"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b",        "GET / a Empty +6"),
        (b"",                                               "more"),
        (b"G",                                              "more"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r",                "more"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n",                  "more"),
        (b"GET / HTTP/1.0\r\n\r\n",                         "GET / nowhere Empty 1.0 close"),
        // Empty lines before it
        (b"\r",                                             "more"),
        (b"\r\n",                                           "more"),
        (b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nx",         "GET / a Empty +1"),
        (b"\r\n\r",                                         "400 request-line"),
        (b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",      "400 request-line"),
        (b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",            "400 bare-lf"),
        (b"\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",        "400 bare-lf"),
        (b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",            "400 bare-cr"),
        // Line ends
        (b"GET / HTTP/1.1\nHost: a\r\n\r\n",                "400 bare-lf"),
        (b"GET / HTTP/1.1\n",                               "400 bare-lf"),
        (b"GET / HTTP/1.1\r\nHost: a\n\r\n",                "400 bare-lf"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\n",                "400 bare-lf"),
        (b"GET / HTTP/1.1\r\nHost: a\n\n",                  "400 bare-lf"),
        (b"GET / HTTP/1.1\rHost: a\r\n\r\n",                "400 line-end"),
        (b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",            "400 line-end"),
        (b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",            "400 field-value"),
        (b"GET / HTTP/1.1\r\n\rHost: a\r\n\r\n",            "400 line-end"),
        (b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",        "400 field-value"),
        // Method
        (b"PURGE / HTTP/1.1\r\nHost: a\r\n\r\n",            "PURGE / a Empty"),
        (b"get / HTTP/1.1\r\nHost: a\r\n\r\n",              "get / a Empty"),
        (b"M-SEARCH * HTTP/1.1\r\nHost: a\r\n\r\n",         "400 target"),
        (b" GET / HTTP/1.1\r\nHost: a\r\n\r\n",             "400 request-line"),
        (b"G\0T / HTTP/1.1\r\nHost: a\r\n\r\n",             "400 request-line"),
        (b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",             "400 request-line"),
        (b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n",              "400 request-line"),
        (b"(",                                              "400 request-line"),
        (b"\x16\x03\x01\x02\0\x01\0\x01",                   "400 request-line"),
        (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",  "405 connect"),
        (b"CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n",          "405 connect"),
        // Version
        (b"GET /\r\n\r\n",                                  "400 request-line"),
        (b"GET / \r\n\r\n",                                 "400 request-line"),
        (b"GET / HTTP/0.9\r\nHost: a\r\n\r\n",              "400 request-line"),
        (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",              "505 version"),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",              "505 version"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",               "505 version"),
        (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n",              "505 version"),
        (b"GET / HTTP/1.10\r\nHost: a\r\n\r\n",             "400 line-end"),
        (b"GET / HTTP/11.1\r\nHost: a\r\n\r\n",             "400 request-line"),
        (b"GET / HTTP/1.\r\nHost: a\r\n\r\n",               "400 request-line"),
        (b"GET / HTTP/1\r\n\r\n",                           "400 request-line"),
        (b"GET / HTTP/2\r\nHost: a\r\n\r\n",                "400 request-line"),
        (b"GET / http/1.1\r\nHost: a\r\n\r\n",              "400 request-line"),
        (b"GET / H\r\n\r\n",                                "400 request-line"),
        (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",             "400 line-end"),
        (b"GET / HTTP/1.1 x\r\nHost: a\r\n\r\n",            "400 line-end"),
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",             "400 request-line"),
        (b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n",             "400 request-line"),
        (b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",           "400 request-line"),
        // HTTP/1.0
        (b"GET / HTTP/1.0\r\nHost: a\r\n\r\n",              "GET / a Empty 1.0 close"),
        (b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",   "400 host-twice"),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET / nowhere Empty 1.0"),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", "GET / nowhere Empty 1.0 close"),
        (b"GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", "GET / nowhere Empty 1.0 close"),
        (b"GET http://a/b HTTP/1.0\r\n\r\n",                "GET /b a Empty 1.0 close"),
        (b"POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\n",   "POST / nowhere Length(5) 1.0 close"),
        (b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n", "POST / nowhere Length(5) 1.0"),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n", "GET / nowhere Length(5) 1.0 close"),
        (b"HEAD / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n", "HEAD / nowhere Length(5) 1.0 close"),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", "GET / nowhere Empty 1.0"),
        (b"POST / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", "POST / nowhere Length(5) 1.0 close"),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "400 chunked-in-http-1.0"),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: identity\r\n\r\n", "501 transfer-coding-unknown"),
        // Host
        (b"GET / HTTP/1.1\r\n\r\n",                         "400 host-missing"),
        (b"GET / HTTP/1.1\r\nX-Host: a\r\n\r\n",            "400 host-missing"),
        (b"GET http://a/ HTTP/1.1\r\n\r\n",                 "400 host-missing"),
    ];
    for (bytes, expected) in rows {
        assert_eq!(request(bytes), *expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn targets() {
    #[rustfmt::skip]
    let rows: &[(&str, &str, &str, &str)] = &[
        ("GET", "/",                        "a",        "GET / a Empty"),
        ("GET", "/a/b?c=d&e=/?f",           "a",        "GET /a/b ?c=d&e=/?f a Empty"),
        ("GET", "/?",                       "a",        "GET / ? a Empty"),
        ("GET", "//evil",                   "a",        "GET //evil a Empty"),
        ("GET", "/a/../%2f%00%zz/./;x",     "a",        "GET /a/../%2f%00%zz/./;x a Empty"),
        ("GET", "/{|}\"<>\\^`",             "a",        "GET /{|}\"<>\\^` a Empty"),
        ("GET", "/@a:b",                    "a",        "GET /@a:b a Empty"),
        ("GET", "/#",                       "a",        "400 target"),
        ("GET", "/a?b#c",                   "a",        "400 target"),
        ("GET", "/ü",                       "a",        "400 target"),
        ("GET", "/a\0",                     "a",        "400 request-line"),
        ("GET", "/a\x7f",                   "a",        "400 request-line"),
        ("GET", "/a\tb",                    "a",        "400 request-line"),
        ("GET", "a",                        "a",        "400 target"),
        ("GET", "?a",                       "a",        "400 target"),
        ("GET", "a:80",                     "a:80",     "400 target"),
        ("GET", "\\",                       "a",        "400 target"),
        // OPTIONS *
        ("OPTIONS", "*",                    "a",        "OPTIONS * a Empty"),
        ("OPTIONS", "/",                    "a",        "OPTIONS / a Empty"),
        ("OPTIONS", "*?a",                  "a",        "400 target"),
        ("OPTIONS", "**",                   "a",        "400 target"),
        ("options", "*",                    "a",        "400 target"),
        ("GET", "*",                        "a",        "400 target"),
        ("OPTIONS", "http://a",             "a",        "OPTIONS * a Empty"),
        ("OPTIONS", "http://a/",            "a",        "OPTIONS / a Empty"),
        ("OPTIONS", "http://a?b",           "a",        "OPTIONS / ?b a Empty"),
        // Absolute
        ("GET", "http://a/b?c",             "a",        "GET /b ?c a Empty"),
        ("GET", "http://a",                 "a",        "GET / a Empty"),
        ("GET", "http://a?b",               "a",        "GET / ?b a Empty"),
        ("GET", "http://a?b/c",             "a",        "GET / ?b/c a Empty"),
        ("GET", "HTTP://A/b",               "a",        "GET /b A Empty"),
        ("GET", "http://a.example/",        "A.Example", "GET / a.example Empty"),
        ("GET", "http://a:80/",             "a",        "GET / a:80 Empty"),
        ("GET", "http://a/",                "a:80",     "GET / a Empty"),
        ("GET", "http://a:/",               "a",        "GET / a Empty"),
        ("GET", "https://a/",               "a:443",    "GET / a Empty"),
        ("GET", "https://a:443/",           "a",        "GET / a:443 Empty"),
        ("GET", "http://a:8080/",           "a:8080",   "GET / a:8080 Empty"),
        ("GET", "http://[::1]:80/",         "[::1]",    "GET / [::1]:80 Empty"),
        ("GET", "http://b/",                "a",        "400 host-differs"),
        ("GET", "http://a/",                "",         "400 host-differs"),
        ("GET", "http://a:443/",            "a",        "400 host-differs"),
        ("GET", "https://a/",               "a:80",     "400 host-differs"),
        ("GET", "http://a:8080/",           "a",        "400 host-differs"),
        ("GET", "http://a./",               "a",        "400 host-differs"),
        ("GET", "http://a@b/",              "b",        "400 target"),
        ("GET", "http://a:b@c/",            "c",        "400 target"),
        ("GET", "http://a#b/",              "a",        "400 target"),
        ("GET", "http://a\\b/",             "a",        "400 target"),
        ("GET", "http://a%41/",             "aA",       "400 target"),
        ("GET", "http://a:99999/",          "a",        "400 target"),
        ("GET", "http://a:0/",              "a:0",      "400 target"),
        ("GET", "http:///b",                "",         "400 target"),
        ("GET", "http://",                  "",         "400 target"),
        ("GET", "http:/a",                  "a",        "400 target"),
        ("GET", "http:a",                   "a",        "400 target"),
        ("GET", "ftp://a/",                 "a",        "400 target"),
        ("GET", "ws://a/",                  "a",        "400 target"),
        ("GET", "://a/",                    "a",        "400 target"),
        // Host
        ("GET", "/",                        "",         "GET / nowhere Empty"),
        ("GET", "/",                        " \t a \t", "GET / a Empty"),
        ("GET", "/",                        "A.b:8080", "GET / A.b:8080 Empty"),
        ("GET", "/",                        "[::1]:8080", "GET / [::1]:8080 Empty"),
        ("GET", "/",                        "a:65536",  "400 host"),
        ("GET", "/",                        "a:4294967376", "400 host"),
        ("GET", "/",                        "u@a",      "400 host"),
        ("GET", "/",                        "a#b",      "400 host"),
        ("GET", "/",                        "a/b",      "400 host"),
        ("GET", "/",                        "a, b",     "400 host"),
        ("GET", "/",                        "a b",      "400 host"),
        ("GET", "/",                        "ü",        "400 host"),
        ("GET", "/",                        "http://a", "400 host"),
        ("GET", "/",                        "a\r\nhost: a", "400 host-twice"),
        ("GET", "/",                        "a\r\nHOST: b", "400 host-twice"),
        ("GET", "/",                        "a\r\nX: y\r\nHost:", "400 host-twice"),
    ];
    for (method, target, host, expected) in rows {
        let bytes = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(request(bytes.as_bytes()), *expected, "{bytes:?}");
    }
    let bytes = b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(request(bytes), "400 request-line");
    let bytes = b"GET / HTTP/1.1\r\nHost: a\xff\r\n\r\n";
    assert_eq!(request(bytes), "400 host");
}

#[test]
fn fields() {
    #[rustfmt::skip]
    let rows: &[(&[u8], &str)] = &[
        // Syntax
        (b"X:",                                             "Empty"),
        (b"X:\t y \t",                                      "Empty"),
        (b"!#$%&'*+-.^_`|~09azAZ: y",                       "Empty"),
        (b"X: a\tb",                                        "Empty"),
        (b"X: \xff\xc3\xbc",                                "Empty"),
        (b"X: :",                                           "Empty"),
        (b"X: a\0",                                         "400 field-value"),
        (b"X: \x01",                                        "400 field-value"),
        (b"X: \x0b",                                        "400 field-value"),
        (b"X: a\x0cb",                                      "400 field-value"),
        (b"X: a\x1bb",                                      "400 field-value"),
        (b"X: a\x7f",                                       "400 field-value"),
        (b"X: a\rb",                                        "400 field-value"),
        (b"X: \rb",                                         "400 field-value"),
        (b"X:\r",                                           "400 field-value"),
        (b"X: a\nb: c",                                     "400 bare-lf"),
        (b"X: a\r\n b",                                     "400 field-name"),
        (b"X: a\r\n\tb",                                    "400 field-name"),
        (b"X:\r\n b",                                       "400 field-name"),
        (b" X: a",                                          "400 field-name"),
        (b"\tX: a",                                         "400 field-name"),
        (b"X : a",                                          "400 field-name"),
        (b"X\t: a",                                         "400 field-name"),
        (b"X a: b",                                         "400 field-name"),
        (b": a",                                            "400 field-name"),
        (b":",                                              "400 field-name"),
        (b"X",                                              "400 field-name"),
        (b"X\0: a",                                         "400 field-name"),
        (b"X\r: a",                                         "400 field-name"),
        (b"X(: a",                                          "400 field-name"),
        (b"X\xff: a",                                       "400 field-name"),
        (b"X\x7f: a",                                       "400 field-name"),
        (b"[X]: a",                                         "400 field-name"),
        (b"\"X\": a",                                       "400 field-name"),
        // Content-Length
        (b"Content-Length: 0",                              "Empty"),
        (b"Content-Length: 5",                              "Length(5)"),
        (b"CONTENT-LENGTH:5\t",                             "Length(5)"),
        (b"Content-Length: 005",                            "Length(5)"),
        (b"Content-Length: 9223372036854775807",            "Length(9223372036854775807)"),
        (b"Content-Length: 9223372036854775808",            "400 content-length"),
        (b"Content-Length: 18446744073709551615",           "400 content-length"),
        (b"Content-Length: 18446744073709551616",           "400 content-length"),
        (b"Content-Length: 99999999999999999999999999",     "400 content-length"),
        (b"Content-Length:",                                "400 content-length"),
        (b"Content-Length: +5",                             "400 content-length"),
        (b"Content-Length: -5",                             "400 content-length"),
        (b"Content-Length: 5 5",                            "400 content-length"),
        (b"Content-Length: 5,5",                            "400 content-length"),
        (b"Content-Length: 5, 5",                           "400 content-length"),
        (b"Content-Length: 5,",                             "400 content-length"),
        (b"Content-Length: 0x5",                            "400 content-length"),
        (b"Content-Length: 5.0",                            "400 content-length"),
        (b"Content-Length: 5e1",                            "400 content-length"),
        (b"Content-Length: 1_000",                          "400 content-length"),
        (b"Content-Length: \"5\"",                          "400 content-length"),
        (b"Content-Length: \xd9\xa5",                       "400 content-length"),
        (b"Content-Length: five",                           "400 content-length"),
        (b"Content-Length: 5\r\nContent-Length: 5",         "400 content-length-twice"),
        (b"Content-Length: 5\r\nContent-Length: 6",         "400 content-length-twice"),
        (b"Content-Length: 0\r\nX: y\r\ncontent-length: 0", "400 content-length-twice"),
        (b"Content-Length : 5",                             "400 field-name"),
        (b"Content-Length: 5\r\n 6",                        "400 field-name"),
        (b"Content_Length: 5",                              "Empty"),
        (b"X-Content-Length: 5",                            "Empty"),
        // Transfer-Encoding
        (b"Transfer-Encoding: chunked",                     "Chunked"),
        (b"transfer-encoding:\t ChUnKeD \t",                "Chunked"),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 5", "400 length-and-chunked"),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked", "400 length-and-chunked"),
        (b"Content-Length: 0\r\nTransfer-Encoding: chunked", "400 length-and-chunked"),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "400 transfer-encoding-twice"),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "400 transfer-encoding-twice"),
        (b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", "501 transfer-coding-unknown"),
        (b"Transfer-Encoding: gzip",                        "501 transfer-coding-unknown"),
        (b"Transfer-Encoding: identity",                    "501 transfer-coding-unknown"),
        (b"Transfer-Encoding: gzip, chunked",               "501 transfer-coding-unknown"),
        (b"Transfer-Encoding: identity, chunked",           "501 transfer-coding-unknown"),
        (b"Transfer-Encoding: xchunked",                    "501 transfer-coding-unknown"),
        (b"Transfer-Encoding: chunked-x",                   "501 transfer-coding-unknown"),
        (b"Transfer-Encoding: gzip\r\nContent-Length: 5",   "501 transfer-coding-unknown"),
        (b"Transfer-Encoding:",                             "400 transfer-encoding"),
        (b"Transfer-Encoding: ,",                           "400 transfer-encoding"),
        (b"Transfer-Encoding: chunked,",                    "400 transfer-encoding"),
        (b"Transfer-Encoding: ,chunked",                    "400 transfer-encoding"),
        (b"Transfer-Encoding: chunked, chunked",            "400 transfer-encoding"),
        (b"Transfer-Encoding: chunked, gzip",               "400 transfer-encoding"),
        (b"Transfer-Encoding: chunked;q=1",                 "400 transfer-encoding"),
        (b"Transfer-Encoding: chunked chunked",             "400 transfer-encoding"),
        (b"Transfer-Encoding: \"chunked\"",                 "400 transfer-encoding"),
        (b"Transfer-Encoding: chunked\xa0",                 "400 transfer-encoding"),
        (b"Transfer-Encoding: \x0bchunked",                 "400 field-value"),
        (b"Transfer-Encoding: chunked\0",                   "400 field-value"),
        (b"Transfer-Encoding:\r\n chunked",                 "400 field-name"),
        (b"Transfer-Encoding : chunked",                    "400 field-name"),
        (b"Transfer_Encoding: chunked",                     "Empty"),
        // Connection
        (b"Connection: close",                              "Empty close"),
        (b"Connection: CLOSE",                              "Empty close"),
        (b"Connection: foo ,\tClose",                       "Empty close"),
        (b"Connection: foo\r\nConnection: close",           "Empty close"),
        (b"Connection: close, keep-alive",                  "Empty close"),
        (b"Connection: keep-alive",                         "Empty"),
        (b"Connection:",                                    "Empty"),
        (b"Connection: ,, ,",                               "Empty"),
        (b"Connection: closed",                             "Empty"),
        (b"Proxy-Connection: close",                        "Empty"),
        // Expect
        (b"Content-Length: 5\r\nExpect: 100-continue",      "Length(5) continue"),
        (b"Transfer-Encoding: chunked\r\nexpect: 100-Continue", "Chunked continue"),
        (b"Expect: 100-continue",                           "Empty"),
        (b"Content-Length: 5\r\nExpect: 100-continue\r\nExpect: 100-continue", "Length(5) continue"),
        (b"Content-Length: 5\r\nExpect: 100-continue\r\nExpect: other", "417 expectation"),
        (b"Expect: 100-continue, other",                    "417 expectation"),
        (b"Expect: 200-ok",                                 "417 expectation"),
        (b"Expect:",                                        "417 expectation"),
        // Upgrade
        (b"Connection: upgrade\r\nUpgrade: websocket",      "Empty upgrade"),
        (b"Upgrade: WebSocket\r\nConnection: keep-alive, Upgrade", "Empty upgrade"),
        (b"Connection: upgrade, close\r\nUpgrade: foo/2",   "Empty close upgrade"),
        (b"Connection: upgrade",                            "Empty"),
        (b"Upgrade: websocket",                             "Empty"),
        (b"Connection: x-upgrade\r\nUpgrade: websocket",    "Empty"),
        (b"Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk", "Empty"),
        (b"Connection: upgrade\r\nUpgrade: websocket, H2C", "Empty"),
        (b"Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c", "Empty"),
        (b"Connection: upgrade\r\nUpgrade: TLS/1.0", "Empty"),
        (b"Connection: upgrade\r\nUpgrade: HTTP/2.0",       "Empty"),
        (b"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 5", "Length(5)"),
    ];
    for (lines, expected) in rows {
        let bytes = [b"GET / HTTP/1.1\r\nHost: a\r\n", *lines, b"\r\n\r\n"].concat();
        let expected = match expected.bytes().next() {
            Some(b'0'..=b'9') => (*expected).to_owned(),
            _ => format!("GET / a {expected}"),
        };
        assert_eq!(request(&bytes), expected, "{}", lines.escape_ascii());
    }
}

#[test]
fn the_fields_are_as_they_were_sent() {
    let bytes = b"GET /a?b HTTP/1.1\r\nhOST: a\r\nX-Y: \t1, 2 \r\nX-Y:\r\nZ: \xff\r\n\r\nbody";
    let mut places = [const { MaybeUninit::uninit() }; 4];
    let mut search = HeadSearch::default();
    let head = parse_request(bytes, &mut search, &mut places, &Limits::default())
        .unwrap()
        .unwrap();
    let fields: Vec<_> = head
        .request
        .fields
        .iter()
        .map(|f| (f.name, f.value))
        .collect();
    assert_eq!(
        fields,
        [
            ("hOST", b"a".as_slice()),
            ("X-Y", b"1, 2"),
            ("X-Y", b""),
            ("Z", b"\xff"),
        ]
    );
    assert_eq!(bytes.get(head.length..), Some(b"body".as_slice()));
    assert_eq!(head.request.version, Version::Http11);
}

#[test]
fn limits() {
    let head = |fields: usize, padding: usize| {
        let fields = "X: y\r\n".repeat(fields - 1);
        let padding = "p".repeat(padding);
        format!("GET /{padding} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    };
    let limits = |bytes, fields| Limits { bytes, fields };
    let check = |text: &str, limits: &Limits, expected: &str| {
        let found = request_within(text.as_bytes(), limits);
        let found = found.split(' ').next().expect("a word");
        assert_eq!(found, expected, "{limits:?} {}", text.len());
    };
    let text = head(3, 0);
    check(&text, &limits(text.len(), 3), "GET");
    check(&text, &limits(text.len(), 2), "431");
    check(&text, &limits(text.len() - 1, 3), "431");
    check(&text, &limits(text.len() + 100, 0), "431");
    check(&format!("{text}{text}"), &limits(text.len(), 3), "GET");
    let beginning = |length| text.get(..length).expect("a part of it");
    // An empty line before the head counts, too.
    check(&format!("\r\n{text}"), &limits(text.len(), 3), "431");
    check(&format!("\r\n{text}"), &limits(text.len() + 2, 3), "GET");
    // The head is refused as soon as it cannot end within the limit any more, and not before.
    check(beginning(text.len() - 1), &limits(text.len(), 3), "more");
    check(beginning(text.len() - 1), &limits(text.len() - 1, 3), "431");
    check(beginning(10), &limits(10, 3), "414");
    check(beginning(10), &limits(11, 3), "more");
    check(beginning(16), &limits(16, 3), "431");
    check(&format!("\r\n{text}"), &limits(10, 3), "414");
    check(&text, &limits(0, 3), "414");

    let default = Limits::default();
    check(&head(128, 0), &default, "GET");
    check(&head(129, 0), &default, "431");
    let room = default.bytes - head(1, 0).len();
    check(&head(1, room), &default, "GET");
    check(&head(1, room + 1), &default, "431");
    check(&head(1, 70_000), &default, "414");

    // More fields than places.
    let mut places = [const { MaybeUninit::uninit() }; 2];
    let mut search = HeadSearch::default();
    let verdict = parse_request(text.as_bytes(), &mut search, &mut places, &default);
    assert_eq!(verdict.unwrap_err(), Reject::new(431, "too-many-fields"));
}

#[test]
fn no_byte_is_searched_twice() {
    let mut search = HeadSearch::default();
    let mut is_incomplete = |bytes: &[u8]| {
        let mut places = [const { MaybeUninit::uninit() }; 4];
        let verdict = parse_request(bytes, &mut search, &mut places, &Limits::default());
        verdict.unwrap().is_none()
    };
    assert!(is_incomplete(b"GET / HTTP/1.1\r\nHost: a\r\nX"));
    // A second search would find the bare LF.
    assert!(is_incomplete(b"GET / HTTP/1.1\r\nHost: a\n\nXY"));
}

#[test]
fn the_corpus_of_the_fuzz_target_keeps_every_promise() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/request_head");
    let mut seeds = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        oracle::check(&std::fs::read(entry.unwrap().path()).unwrap());
        seeds += 1;
    }
    assert!(seeds > 20, "{seeds} seeds");
}
