use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::text::Append;

/// Names that mean something here, and others.
fn name() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "Connection",
        "connection",
        "Keep-Alive",
        "Proxy-Connection",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Content-Length",
        "HTTP2-Settings",
        "Host",
        "Cookie",
        "Set-Cookie",
        "Location",
        "Expect",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X_Forwarded_For",
        "Forwarded",
        "X-SSL-Client-DN",
        "Strict-Transport-Security",
    ];
    prop_oneof![
        prop::sample::select(KNOWN).prop_map(str::to_owned),
        "[A-Za-z-]{1,6}"
    ]
}

fn value() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "close",
        "keep-alive, Upgrade",
        "x, host, x-forwarded-for, content-length, transfer-encoding",
        "chunked",
        "5",
        "h2c",
        "websocket",
        "trailers",
        "http://a/x",
        "a=b; Path=/; SERVERID=1",
    ];
    prop_oneof![
        prop::sample::select(KNOWN).prop_map(str::to_owned),
        "[!-~\u{e4}][ -~\u{e4}]{0,20}"
    ]
}

fn framing() -> impl Strategy<Value = Framing> {
    prop_oneof![
        Just(Framing::Empty),
        any::<u64>().prop_map(Framing::Length),
        Just(Framing::Chunked),
    ]
}

type Fields = Vec<(String, String)>;

fn fields() -> impl Strategy<Value = Fields> {
    prop::collection::vec((name(), value()), 0..12)
}

fn borrowed(fields: &Fields) -> Vec<Field<'_>> {
    let field =
        |(name, value): &'_ (String, String)| -> (usize, usize) { (name.len(), value.len()) };
    assert!(fields.iter().all(|one| field(one).0 > 0));
    fields
        .iter()
        .map(|(name, value)| Field {
            name,
            value: value.as_bytes(),
        })
        .collect()
}

/// The fields of a head, which must be well formed: names are tokens, no other line breaks, one blank line at the end.
fn parsed(head: &[u8]) -> Vec<(String, String)> {
    let text = str::from_utf8(head).unwrap();
    let (_, rest) = text.split_once("\r\n").unwrap();
    let rest = rest.strip_suffix("\r\n").unwrap();
    let lines: Vec<&str> = rest.split_terminator("\r\n").collect();
    lines
        .into_iter()
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            assert!(
                !name.is_empty() && !line.contains(['\r', '\n', '\0']),
                "{line}"
            );
            assert!(
                name.bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            );
            (name.to_ascii_lowercase(), value.to_owned())
        })
        .collect()
}

fn count(fields: &[(String, String)], names: &[&str]) -> usize {
    fields
        .iter()
        .filter(|(name, _)| names.contains(&name.as_str()))
        .count()
}

const FRAMING: [&str; 2] = ["content-length", "transfer-encoding"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_message_stays_what_it_is_in_the_other_version(
        bytes in prop::collection::vec(any::<u8>(), 2..20),
    ) {
        translation::check(&bytes);
    }
}

#[test]
fn the_corpus_of_the_fuzz_target_keeps_every_promise() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/frames");
    let mut seeds = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        translation::check(&std::fs::read(entry.unwrap().path()).unwrap());
        seeds += 1;
    }
    assert!(seeds >= 10, "{seeds} seeds");
}

proptest! {
    #[test]
    fn a_request_keeps_the_rules(
        sent in fields(),
        framing in framing(),
        upgrades: bool,
        keeps_connection: bool,
        is_trusted: bool,
        append: bool,
        subject in prop::option::of("\\PC{0,9}[\r\n\t]{0,2}"),
    ) {
        let fields = borrowed(&sent);
        let request = Request {
            method: "GET",
            path: "/",
            query: None,
            host: None,
            version: Version::Http11,
            fields: &fields,
        };
        let client = Client {
            address: "192.0.2.7:1".parse().unwrap(),
            peer_is_trusted: is_trusted,
            scheme: Scheme::Https,
            port: 443,
            subject: Some(Subject { header: "X-SSL-Client-DN", name: subject.as_deref() }),
        };
        let to = ToEndpoint {
            request: &request,
            framing,
            upgrades,
            keeps_connection,
            version: HttpVersion::H1,
            endpoint: "10.1.0.7:80".parse().unwrap(),
            client: &client,
            options: &options(if append { "{}" } else { r#"{"x-forwarded": "replace"}"# }),
            edits: Edits::default(),
            rewrite: None,
            prefix: "",
            cookie: Some("SERVERID"),
        };
        let mut out = Vec::new();
        super::request(&mut out, &to);
        let got = parsed(&out);
        let framings = usize::from(framing != Framing::Empty);
        prop_assert_eq!(count(&got, &FRAMING), framings);
        prop_assert_eq!(count(&got, &["keep-alive", "proxy-connection", "te", "http2-settings", "x_forwarded_for"]), 0);
        prop_assert!(count(&got, &["connection"]) <= 1);
        prop_assert_eq!(count(&got, &["upgrade"]), usize::from(upgrades));
        prop_assert_eq!(count(&got, &["host"]), 1);
        prop_assert_eq!(count(&got, &["x-ssl-client-dn"]), usize::from(subject.is_some()));
        prop_assert_eq!(count(&got, &["x-forwarded-proto"]), 1);
        let chain: Vec<_> = got.iter().filter(|(name, _)| name == "x-forwarded-for").collect();
        prop_assert_eq!(chain.len(), 1);
        prop_assert_eq!(chain[0].1.rsplit(", ").next(), Some("192.0.2.7"));
        prop_assert!(got.iter().all(|(name, value)| name != "cookie" || !value.contains("SERVERID=")));
        for (name, value) in &got {
            prop_assert!(name != "connection" || ["upgrade", "close"].contains(&value.as_str()));
        }
    }

    #[test]
    fn a_response_keeps_the_rules(
        sent in fields(),
        status in prop_oneof![Just(101_u16), Just(204), Just(304), Just(426), 200_u16..600],
        framing in prop_oneof![framing(), Just(Framing::UntilClose)],
        version in prop_oneof![Just(Version::Http10), Just(Version::Http11)],
        answers_head: bool,
        keeps_connection: bool,
    ) {
        let fields = borrowed(&sent);
        let is_bodiless = answers_head || matches!(status, 101 | 204 | 304);
        let framing = if is_bodiless { Framing::Empty } else { framing };
        let response = Response { status, reason: "x", version: Version::Http11, fields: &fields };
        let to = ToClient {
            response: &response,
            framing: framing_to(version, framing),
            answers_head,
            version,
            keeps_connection,
            edits: Edits::default(),
            hsts: None,
            sticky: Some(Sticky {
                name: "a",
                value: Some(CookieValue::of("s", "10.1.0.7:80".parse().unwrap())),
                secure: false,
            }),
            map_back: None,
        };
        let mut out = Vec::new();
        super::response(&mut out, &to);
        let got = parsed(&out);
        let framings = count(&got, &FRAMING);
        prop_assert!(framings <= 1);
        prop_assert!(is_bodiless || to.framing == Framing::UntilClose || framings == 1);
        prop_assert!(version == Version::Http11 || count(&got, &["transfer-encoding"]) == 0);
        prop_assert_eq!(count(&got, &["keep-alive", "proxy-connection", "te"]), 0);
        prop_assert!(count(&got, &["connection"]) <= 1);
        let upgrades = matches!(status, 101 | 426);
        prop_assert!(count(&got, &["upgrade"]) <= usize::from(upgrades));
        let closes = !keeps_connection || to.framing == Framing::UntilClose;
        let says_close = got.iter().any(|(name, value)| name == "connection" && value.ends_with("close"));
        prop_assert_eq!(says_close, closes && status != 101);
    }

    #[test]
    fn numbers_and_addresses_are_written_as_usual(number: u64, address: std::net::IpAddr) {
        let mut out = Vec::new();
        out.number(number);
        out.ip(address);
        prop_assert_eq!(String::from_utf8(out).unwrap(), format!("{number}{address}"));
    }

    #[test]
    fn a_location_never_breaks(value in "[ -~]{0,40}", host in "[a-z]{1,3}") {
        let rewrite = rewrite("/a", "/");
        let map_back = MapBack {
            rewrite: &rewrite,
            prefix: "/a",
            host: Some(Host { name: &host, port: None }),
            port: 80,
            endpoint: "10.1.0.7:80".parse().unwrap(),
        };
        let mut out = Vec::new();
        map_back.location(&mut out, value.as_bytes());
        let text = String::from_utf8(out).unwrap();
        prop_assert!(text == value || text.contains("/a/") || text.ends_with("/a"), "{text}");
        // A URL without a host gets none.
        prop_assert!(value.starts_with("//") || !text.starts_with("//"), "{text}");
    }
}
