use super::*;

/// The differences from a plain request without a body to an endpoint of HTTP/1.1.
struct Case {
    framing: Framing,
    upgrades: bool,
    keeps_connection: bool,
    version: HttpVersion,
    client: Client<'static>,
    options: FrontendHttp,
    edits: Option<HeaderEdits>,
    rewrite: Option<Rewrite>,
    prefix: &'static str,
    cookie: Option<&'static str>,
}

fn plain() -> Case {
    Case {
        framing: Framing::Empty,
        upgrades: false,
        keeps_connection: true,
        version: HttpVersion::H1,
        client: Client {
            address: "192.0.2.7:4711".parse().unwrap(),
            peer_is_trusted: false,
            scheme: Scheme::Http,
            port: 80,
            subject: None,
        },
        options: FrontendHttp::default(),
        edits: None,
        rewrite: None,
        prefix: "",
        cookie: None,
    }
}

/// Without `X-Forwarded-`, for cases that are about something else.
fn quiet() -> Case {
    Case {
        options: options(r#"{"x-forwarded": "off"}"#),
        ..plain()
    }
}

/// The head for the endpoint.
fn forwarded(case: &Case, raw: &str) -> String {
    with_fields(raw, |line, fields| {
        let words: Vec<&str> = line.split(' ').collect();
        let [method, target, version] = words[..] else {
            panic!("{line}")
        };
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let asked = fields
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case("host"));
        let request = Request {
            method,
            path,
            query,
            host: asked.map(|asked| host(str::from_utf8(asked.value).unwrap())),
            version: match version {
                "HTTP/1.0" => Version::Http10,
                "HTTP/2" => Version::Http2,
                _ => Version::Http11,
            },
            fields,
        };
        let to = ToEndpoint {
            request: &request,
            framing: case.framing,
            upgrades: case.upgrades,
            keeps_connection: case.keeps_connection,
            version: case.version,
            endpoint: "10.1.0.7:8080".parse().unwrap(),
            client: &case.client,
            options: &case.options,
            edits: [None, None, case.edits.as_ref()].into(),
            rewrite: case.rewrite.as_ref(),
            prefix: case.prefix,
            cookie: case.cookie,
        };
        let mut out = Vec::new();
        super::request(&mut out, &to);
        shown(&out)
    })
}

fn check(case: &Case, raw: &str, wanted: &str) {
    assert_eq!(forwarded(case, raw), expected(wanted), "of {raw}");
}

#[test]
fn a_browser_s_request() {
    check(
        &plain(),
        "GET /a?b=c HTTP/1.1
         Host: Shop.example.com:80
         User-Agent: x
         Accept: */*
         Connection: keep-alive
         Keep-Alive: timeout=5
         traceparent: 00-1-2-01",
        "GET /a?b=c HTTP/1.1
         Host: Shop.example.com:80
         User-Agent: x
         Accept: */*
         traceparent: 00-1-2-01
         X-Forwarded-For: 192.0.2.7
         X-Forwarded-Proto: http
         X-Forwarded-Port: 80
         X-Forwarded-Host: Shop.example.com:80",
    );
}

#[test]
fn what_is_about_the_connection_ends_here() {
    for raw in [
        "GET / HTTP/1.1\nHost: a\nConnection: close",
        "GET / HTTP/1.1\nHost: a\nProxy-Connection: keep-alive\nkeep-alive: 9",
        "GET / HTTP/1.1\nHost: a\nTE: trailers, gzip\nConnection: TE",
        "GET / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nContent-Length: 7",
        "GET / HTTP/1.1\nHost: a\nTrailer: X-Sum",
        "GET / HTTP/1.1\nHost: a\nUpgrade: websocket",
        "GET / HTTP/1.1\nHost: a\nUpgrade: h2c\nHTTP2-Settings: AA\nConnection: Upgrade, HTTP2-Settings",
        "GET / HTTP/1.1\nHost: a\nX-Mine: 1\nX-Other: 1\nCONNECTION: close,x-mine\nConnection: , X-Other ,",
        "GET / HTTP/1.0\nHost: a\nConnection: keep-alive\nExpect: 100-continue",
    ] {
        check(&quiet(), raw, "GET / HTTP/1.1\nHost: a");
    }
}

#[test]
fn one_field_frames_the_body() {
    let cases = [
        ("POST", Framing::Empty, "Content-Length: 0"),
        ("PUT", Framing::Length(7), "Content-Length: 7"),
        ("GET", Framing::Length(7), "Content-Length: 7"),
        (
            "PATCH",
            Framing::Chunked,
            "Trailer: X-Sum\nTransfer-Encoding: chunked",
        ),
    ];
    for (method, framing, wanted) in cases {
        let case = Case { framing, ..quiet() };
        let trailer = if framing == Framing::Chunked {
            "\nTrailer: X-Sum"
        } else {
            ""
        };
        let raw = format!(
            "{method} / HTTP/1.1\nHost: a{trailer}\ncontent-length: 7\nTransfer-encoding: chunked"
        );
        check(
            &case,
            &raw,
            &format!("{method} / HTTP/1.1\nHost: a\n{wanted}"),
        );
    }
}

#[test]
fn an_endpoint_of_http_2_gets_no_field_of_http_1() {
    for (framing, wanted) in [
        (Framing::Chunked, "Host: a\nTE: trailers"),
        (
            Framing::Length(5),
            "Host: a\nContent-Length: 5\nTE: trailers",
        ),
    ] {
        let case = Case {
            framing,
            version: HttpVersion::H2,
            keeps_connection: false,
            upgrades: true,
            ..quiet()
        };
        check(
            &case,
            "POST / HTTP/1.1\nHost: a\nTE: gzip, Trailers\nTE: trailers\nConnection: upgrade, te\nUpgrade: websocket",
            &format!("POST / HTTP/1.1\n{wanted}"),
        );
    }
}

#[test]
fn an_upgrade_stays_one() {
    let case = Case {
        upgrades: true,
        keeps_connection: false,
        ..quiet()
    };
    let raw = "GET / HTTP/1.1
         Host: a
         Connection: keep-alive, Upgrade
         Upgrade: websocket
         Sec-WebSocket-Key: x
         upgrade: foo/1";
    let head = "GET / HTTP/1.1\nHost: a\nSec-WebSocket-Key: x";
    check(
        &case,
        raw,
        &format!("{head}\nConnection: upgrade\nUpgrade: websocket, foo/1"),
    );
    let refused = Case {
        upgrades: false,
        ..case
    };
    check(&refused, raw, &format!("{head}\nConnection: close"));
}

#[test]
fn a_request_without_a_host_gets_the_endpoint_s() {
    check(
        &plain(),
        "GET / HTTP/1.0",
        "GET / HTTP/1.1
         Host: 10.1.0.7:8080
         X-Forwarded-For: 192.0.2.7
         X-Forwarded-Proto: http
         X-Forwarded-Port: 80",
    );
}

/// The fields that tell of the client, out of the head that the endpoint gets.
fn told(case: &Case, sent: &str) -> Vec<String> {
    let head = forwarded(case, &format!("GET / HTTP/1.1\nHost: a\n{sent}"));
    let names = ["x-forwarded", "x_forwarded", "forwarded", "x-ssl", "x_ssl"];
    head.lines()
        .filter(|line| {
            names
                .iter()
                .any(|name| line.to_ascii_lowercase().starts_with(name))
        })
        .map(str::to_owned)
        .collect()
}

/// The values of `X-Forwarded-For` alone.
fn chain(case: &Case, sent: &str) -> Vec<String> {
    let told = told(case, sent).into_iter();
    told.filter_map(|line| Some(line.strip_prefix("X-Forwarded-For: ")?.to_owned()))
        .collect()
}

#[test]
fn the_client_s_address_is_the_last_of_one_list() {
    let trusting = |peer_is_trusted| Case {
        options: options(r#"{"x-forwarded-trust": ["10.0.0.0/8"]}"#),
        client: Client {
            peer_is_trusted,
            ..plain().client
        },
        ..plain()
    };
    let replacing = Case {
        options: options(r#"{"x-forwarded": "replace"}"#),
        ..plain()
    };
    let two = "X-Forwarded-For: 1.1.1.1\nx-forwarded-for:  2.2.2.2, 3.3.3.3 ";
    let appended = "1.1.1.1, 2.2.2.2, 3.3.3.3, 192.0.2.7";
    let cases = [
        (plain(), "", "192.0.2.7"),
        (plain(), "X-Forwarded-For:", "192.0.2.7"),
        (plain(), two, appended),
        (trusting(true), two, appended),
        (trusting(false), two, "192.0.2.7"),
        (replacing, two, "192.0.2.7"),
    ];
    for (case, sent, wanted) in cases {
        assert_eq!(chain(&case, sent), [wanted], "{sent}");
        // `Connection` cannot remove what Ballast writes.
        let sent = format!("{sent}\nConnection: X-Forwarded-For, x-forwarded-proto, host, close");
        assert_eq!(chain(&case, sent.trim()), [wanted], "{sent}");
        assert_eq!(told(&case, sent.trim()).len(), 4);
    }
}

#[test]
fn addresses_have_one_form() {
    for (address, wanted, forwarded) in [
        ("[::ffff:192.0.2.7]:1", "192.0.2.7", "for=192.0.2.7"),
        ("[2001:db8::1]:1", "2001:db8::1", "for=\"[2001:db8::1]\""),
    ] {
        let case = Case {
            client: Client {
                address: address.parse().unwrap(),
                ..plain().client
            },
            options: options(r#"{"forwarded": true}"#),
            ..plain()
        };
        assert_eq!(chain(&case, ""), [wanted]);
        let told = told(&case, "");
        assert_eq!(
            told[4],
            format!("Forwarded: {forwarded};proto=http;host=\"a\"")
        );
    }
}

#[test]
fn facts_are_always_ours_unless_off() {
    let spoofed = "X-Forwarded-Proto: https\nX-Forwarded-Port: 1\nX-FORWARDED-HOST: b\nX-Forwarded-Prefix: //evil\nX_Forwarded_For: 9.9.9.9\nx-forwarded_proto: https";
    let trusted = Case {
        client: Client {
            peer_is_trusted: true,
            scheme: Scheme::Https,
            port: 8443,
            ..plain().client
        },
        rewrite: Some(rewrite("/shop/", "/")),
        prefix: "/shop/",
        ..plain()
    };
    assert_eq!(
        told(&trusted, spoofed),
        [
            "X-Forwarded-For: 192.0.2.7",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Port: 8443",
            "X-Forwarded-Host: a",
            "X-Forwarded-Prefix: /shop"
        ]
    );
    for (prefix, rewrite) in [
        ("/shop", None),
        ("/", Some(rewrite("/", "/app"))),
        ("", Some(rewrite("/", "/app"))),
    ] {
        let case = Case {
            prefix,
            rewrite,
            ..plain()
        };
        assert_eq!(told(&case, spoofed).len(), 4, "no prefix");
    }
    assert_eq!(told(&quiet(), spoofed).join("\n"), spoofed);
}

#[test]
fn the_client_s_address_alone_can_be_ours() {
    let facts = "X-Forwarded-Proto: https\nX-Forwarded-Port: 1\nX-FORWARDED-HOST: b\nX-Forwarded-Prefix: /p\nx-forwarded_proto: https\nForwarded: for=9.9.9.9";
    let sent = format!("X-Forwarded-For: 1.1.1.1\nX_Forwarded_For: 9.9.9.9\n{facts}");
    let trust = r#""x-forwarded-trust": ["10.0.0.0/8"]"#;
    for (json, peer_is_trusted, address) in [
        (
            r#"{"x-forwarded": "append-for"}"#.to_owned(),
            false,
            "1.1.1.1, 192.0.2.7",
        ),
        (
            r#"{"x-forwarded": "replace-for"}"#.to_owned(),
            true,
            "192.0.2.7",
        ),
        (
            format!(r#"{{"x-forwarded": "append-for", {trust}}}"#),
            true,
            "1.1.1.1, 192.0.2.7",
        ),
        (
            format!(r#"{{"x-forwarded": "append-for", {trust}}}"#),
            false,
            "192.0.2.7",
        ),
    ] {
        let case = Case {
            options: options(&json),
            client: Client {
                peer_is_trusted,
                ..plain().client
            },
            rewrite: Some(rewrite("/shop", "/")),
            prefix: "/shop",
            ..plain()
        };
        let own = format!("X-Forwarded-For: {address}");
        assert_eq!(
            told(&case, &sent).join("\n"),
            format!("{facts}\n{own}"),
            "{json}"
        );
        assert_eq!(told(&case, ""), ["X-Forwarded-For: 192.0.2.7"], "{json}");
    }
}

#[test]
fn forwarded_follows_the_same_rules() {
    let case = |json: &str, peer_is_trusted| Case {
        options: options(json),
        client: Client {
            peer_is_trusted,
            ..plain().client
        },
        ..plain()
    };
    let own = "Forwarded: for=192.0.2.7;proto=http;host=\"a\"";
    let both = "Forwarded: for=1.1.1.1, for=192.0.2.7;proto=http;host=\"a\"";
    let theirs = "Forwarded: for=1.1.1.1";
    let trust = r#""x-forwarded-trust": ["10.0.0.0/8"]"#;
    let cases = [
        ("{}".to_owned(), false, Some(theirs)),
        (r#"{"x-forwarded": "replace"}"#.to_owned(), false, None),
        (r#"{"x-forwarded": "off"}"#.to_owned(), false, Some(theirs)),
        (
            r#"{"x-forwarded": "replace-for"}"#.to_owned(),
            false,
            Some(theirs),
        ),
        (
            r#"{"forwarded": true, "x-forwarded": "replace-for"}"#.to_owned(),
            true,
            Some(own),
        ),
        (
            r#"{"forwarded": true, "x-forwarded": "append-for"}"#.to_owned(),
            true,
            Some(both),
        ),
        (format!("{{{trust}}}"), false, None),
        (format!("{{{trust}}}"), true, Some(theirs)),
        (r#"{"forwarded": true}"#.to_owned(), false, Some(both)),
        (
            r#"{"forwarded": true, "x-forwarded": "off"}"#.to_owned(),
            false,
            Some(both),
        ),
        (
            r#"{"forwarded": true, "x-forwarded": "replace"}"#.to_owned(),
            true,
            Some(own),
        ),
        (
            format!("{{\"forwarded\": true, {trust}}}"),
            false,
            Some(own),
        ),
        (
            format!("{{\"forwarded\": true, {trust}}}"),
            true,
            Some(both),
        ),
    ];
    for (json, trusted, wanted) in cases {
        let told = told(
            &case(&json, trusted),
            "Forwarded: for=1.1.1.1\nConnection: forwarded",
        );
        let found: Vec<&str> = told
            .iter()
            .map(String::as_str)
            .filter(|line| line.starts_with("Forwarded"))
            .collect();
        assert_eq!(found, Vec::from_iter(wanted), "{json} {trusted}");
    }
}

#[test]
fn the_subject_of_a_certificate_is_only_ours() {
    let spoofed = "X-SSL-Client-DN: CN=root\nx_ssl_client_dn: CN=root\nConnection: X-SSL-Client-DN";
    let case = |name| Case {
        client: Client {
            subject: Some(Subject {
                header: "X-SSL-Client-DN",
                name,
            }),
            ..plain().client
        },
        ..quiet()
    };
    assert_eq!(told(&case(None), spoofed), [""; 0]);
    assert_eq!(
        told(&case(Some("CN=J\u{fc}rgen,O=a\r\nb")), spoofed),
        ["X-SSL-Client-DN: CN=J\u{fc}rgen,O=a\\0D\\0Ab"]
    );
    assert_eq!(
        told(&quiet(), "X-SSL-Client-DN: a"),
        ["X-SSL-Client-DN: a"],
        "nobody asks"
    );
}

#[test]
fn edits_come_last() {
    let case = Case {
        edits: Some(edits(
            r#"{"set": {"X-Env": "prod", "Host": "inside", "X-Forwarded-Proto": "https", "X-None": ""},
                "remove": ["x-debug", "X-Forwarded-Port", "cookie"]}"#,
        )),
        ..plain()
    };
    check(
        &case,
        "GET / HTTP/1.1
         Host: a
         x-env: test
         X-ENV: test
         X-Debug: 1
         Cookie: a=b",
        "GET / HTTP/1.1
         Host: inside
         X-Forwarded-For: 192.0.2.7
         X-Forwarded-Host: a
         X-Env: prod
         X-Forwarded-Proto: https
         X-None: ",
    );
    let hostless = Case {
        edits: Some(edits(r#"{"remove": ["Host"]}"#)),
        ..quiet()
    };
    check(
        &hostless,
        "GET / HTTP/1.1\nHost: a",
        "GET / HTTP/1.1\nHost: a",
    );
}

#[test]
fn the_affinity_cookie_stays_here_and_others_are_one_field() {
    let cases = [
        ("Cookie: a=1; SERVERID=x; b=2", "Cookie: a=1; b=2"),
        ("Cookie: SERVERID=x", ""),
        ("Cookie: SERVERID=x;SERVERID = y", ""),
        (
            "Cookie: serverid=x; SERVERID2=y",
            "Cookie: serverid=x; SERVERID2=y",
        ),
        ("Cookie: SERVERID", "Cookie: SERVERID"),
        (
            "Cookie: a=1\nX: 1\ncookie: b=2; SERVERID=x",
            "Cookie: a=1; b=2\nX: 1",
        ),
        ("Cookie: ;", ""),
    ];
    for (sent, wanted) in cases {
        let case = Case {
            cookie: Some("SERVERID"),
            ..quiet()
        };
        check(
            &case,
            &format!("GET / HTTP/1.1\nHost: a\n{sent}"),
            &format!("GET / HTTP/1.1\nHost: a\n{wanted}"),
        );
    }
    check(
        &quiet(),
        "GET / HTTP/1.1\nHost: a\nCookie: SERVERID=x",
        "GET / HTTP/1.1\nHost: a\nCookie: SERVERID=x",
    );
}

#[test]
fn who_names_too_many_fields_keeps_only_those_that_are_known() {
    let names: Vec<String> = (0..17).map(|n| format!("X-{n}")).collect();
    let raw = |names: &[String]| {
        format!(
            "GET / HTTP/1.1\nHost: a\nX-3: 1\nX-Else: 1\nExpect: 100-continue\nConnection: {}",
            names.join(",")
        )
    };
    check(
        &quiet(),
        &raw(&names[..16]),
        "GET / HTTP/1.1\nHost: a\nX-Else: 1\nExpect: 100-continue",
    );
    check(
        &quiet(),
        &raw(&names),
        "GET / HTTP/1.1\nHost: a\nExpect: 100-continue",
    );
}

#[test]
fn a_path_is_rewritten_and_a_query_stays() {
    let cases = [
        ("/", "/shop/a?b=/shop/", "/a?b=/shop/"),
        ("/", "/shop?", "/?"),
        ("/app", "/shop/%2f//a", "/app/%2f//a"),
    ];
    for (to, sent, wanted) in cases {
        let case = Case {
            rewrite: Some(rewrite("/shop", to)),
            prefix: "/shop",
            ..quiet()
        };
        check(
            &case,
            &format!("GET {sent} HTTP/1.1\nHost: a"),
            &format!("GET {wanted} HTTP/1.1\nHost: a"),
        );
    }
}
