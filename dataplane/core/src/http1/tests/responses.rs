//! Heads of responses.

use super::*;

#[test]
fn responses() {
    #[rustfmt::skip]
    let rows: &[(&str, &[u8], &str)] = &[
        // Status line
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",    "200 [OK] Length(5)"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "200 [OK] Length(5) +5"),
        ("GET", b"HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\n",      "200 [] Length(5)"),
        ("GET", b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n",       "200 [] Length(5)"),
        ("GET", b"HTTP/1.1 404 Not  Found\tx\r\nContent-Length: 5\r\n\r\n", "404 [Not  Found\tx] Length(5)"),
        ("GET", b"HTTP/1.1 200 \xff\r\nContent-Length: 5\r\n\r\n",  "200 [] Length(5)"),
        ("GET", b"HTTP/1.1 999 x\r\nContent-Length: 5\r\n\r\n",     "999 [x] Length(5)"),
        ("GET", b"HTTP/1.1 099 x\r\nContent-Length: 5\r\n\r\n",     "502 status-line"),
        ("GET", b"HTTP/1.1 20 OK\r\n\r\n",                          "502 status-line"),
        ("GET", b"HTTP/1.1 2000 OK\r\n\r\n",                        "502 status-line"),
        ("GET", b"HTTP/1.1 +20 OK\r\n\r\n",                         "502 status-line"),
        ("GET", b"HTTP/1.1  200 OK\r\n\r\n",                        "502 status-line"),
        ("GET", b"HTTP/1.1\t200 OK\r\n\r\n",                        "502 status-line"),
        ("GET", b"HTTP/1.1\r\n\r\n",                                "502 status-line"),
        ("GET", b"HTTP/1.2 200 OK\r\n\r\n",                         "502 status-line"),
        ("GET", b"HTTP/2.0 200 OK\r\n\r\n",                         "502 status-line"),
        ("GET", b"HTTP/2 200 OK\r\n\r\n",                           "502 status-line"),
        ("GET", b"http/1.1 200 OK\r\n\r\n",                         "502 status-line"),
        ("GET", b"ICY 200 OK\r\n\r\n",                              "502 status-line"),
        ("GET", b"220 mail.example ESMTP\r\n",                      "502 status-line"),
        ("GET", b"\r\nHTTP/1.1 200 OK\r\n\r\n",                     "502 status-line"),
        ("GET", b" HTTP/1.1 200 OK\r\n\r\n",                        "502 status-line"),
        ("GET", b"HTTP/1.1 200 O\0K\r\n\r\n",                       "502 status-line"),
        ("GET", b"HTTP/1.1 200 O\rK\r\n\r\n",                       "502 status-line"),
        ("GET", b"HTTP/1.1 200 OK\nContent-Length: 5\n\n",          "502 bare-lf"),
        ("GET", b"",                                                "more"),
        ("GET", b"HTT",                                             "more"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",        "more"),
        // Fields
        ("GET", b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",                "502 field-name"),
        ("GET", b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n",           "502 field-name"),
        ("GET", b"HTTP/1.1 200 OK\r\n: y\r\n\r\n",                  "502 field-name"),
        ("GET", b"HTTP/1.1 200 OK\r\nX: \0\r\n\r\n",                "502 field-value"),
        ("GET", b"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",              "502 field-value"),
        ("GET", b"HTTP/1.1 200 OK\r\nHost: a\r\nHost: b\r\nExpect: x\r\nContent-Length: 0\r\n\r\n", "200 [OK] Empty"),
        // Framing
        ("GET", b"HTTP/1.1 200 OK\r\n\r\n",                         "200 [OK] UntilClose close"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",    "200 [OK] Empty"),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", "200 [OK] Chunked"),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "502 length-and-chunked"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", "502 content-length-twice"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", "502 content-length"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",   "502 content-length"),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "502 transfer-coding-unknown"),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "502 transfer-coding-unknown"),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, x\r\n\r\n", "502 transfer-encoding"),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "502 transfer-encoding-twice"),
        ("GET", b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "502 chunked-in-http-1.0"),
        ("POST", b"HTTP/1.1 205 x\r\nContent-Length: 5\r\n\r\n",    "205 [x] Length(5)"),
        // No body, whatever the fields say
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",   "200 [OK] Empty"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "200 [OK] Empty"),
        ("HEAD", b"HTTP/1.1 200 OK\r\n\r\n",                        "200 [OK] Empty"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",   "502 content-length"),
        ("HEAD", b"HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n",    "204 [x] Empty close"),
        ("head", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",   "200 [OK] Length(5)"),
        ("GET", b"HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n",     "304 [x] Empty"),
        ("GET", b"HTTP/1.1 304 x\r\nTransfer-Encoding: chunked\r\n\r\n", "304 [x] Empty"),
        ("GET", b"HTTP/1.1 304 x\r\n\r\n",                          "304 [x] Empty"),
        ("GET", b"HTTP/1.1 204 x\r\n\r\n",                          "204 [x] Empty"),
        ("GET", b"HTTP/1.1 204 x\r\nContent-Length: 0\r\n\r\n",     "204 [x] Empty"),
        ("GET", b"HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n",     "204 [x] Empty close"),
        ("GET", b"HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n", "204 [x] Empty close"),
        // Interim responses
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "100 [Continue] Empty interim +19"),
        ("GET", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",  "103 [Early Hints] Empty interim"),
        ("GET", b"HTTP/1.1 199 x\r\nContent-Length: 5\r\n\r\n",     "199 [x] Empty close interim"),
        ("GET", b"HTTP/1.1 100 x\r\nTransfer-Encoding: chunked\r\n\r\n", "100 [x] Empty close interim"),
        ("GET", b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00", "101 [x] Empty upgraded +2"),
        ("GET", b"HTTP/1.0 101 x\r\n\r\n",                          "502 upgraded-in-http-1.0"),
        // Connection
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n", "200 [OK] Length(5) close"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: a, CLOSE\r\n\r\n", "200 [OK] Length(5) close"),
        ("GET", b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n", "200 [OK] UntilClose close"),
        ("GET", b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n",    "200 [OK] Length(5) 1.0 close"),
        ("GET", b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n", "200 [OK] Length(5) 1.0"),
        ("GET", b"HTTP/1.0 200 OK\r\n\r\n",                         "200 [OK] UntilClose 1.0 close"),
    ];
    for (method, bytes, expected) in rows {
        let found = response(method, bytes);
        assert_eq!(found, *expected, "{method} {}", bytes.escape_ascii());
    }
}

#[test]
fn limits() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(70_000));
    assert_eq!(response("GET", long.as_bytes()), "502 head-too-large");
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(129));
    assert_eq!(response("GET", many.as_bytes()), "502 too-many-fields");
}
