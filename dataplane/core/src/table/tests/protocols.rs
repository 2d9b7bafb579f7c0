//! Which fields of a frontend belong to which protocol.

use super::super::Protocol;
use super::{frontend, good, hold, row};

/// A field of a frontend, and the protocols that have it.
struct Field {
    text: &'static str,
    at: &'static str,
    of: &'static [Protocol],
}

/// A frontend field of another protocol is a Problem; those of `timeouts` are not.
#[test]
fn a_field_belongs_to_its_protocols() {
    use Protocol::{Http, Https, Tcp, Tls, Udp};
    const EVERY: &[Protocol] = Protocol::ALL;
    let fields = [
        ("description: d", "description", EVERY),
        ("labels: {a: b}", "labels", EVERY),
        ("accept-proxy: {from: [10.0.0.0/8]}", "accept-proxy", EVERY),
        ("source-ranges: [10.0.0.0/8]", "source-ranges", EVERY),
        ("max-connections: 1", "max-connections", EVERY),
        ("max-connection-rate: 1", "max-connection-rate", EVERY),
        (
            "max-connections-per-client: 1",
            "max-connections-per-client",
            EVERY,
        ),
        (
            "max-connection-rate-per-client: 1",
            "max-connection-rate-per-client",
            EVERY,
        ),
        ("on-limit: reject", "on-limit", EVERY),
        (
            "timeouts: {client: 1s, client-fin: 1s, preamble: 1s, request: 1s, keep-alive: 1s, idle: 1s}",
            "timeouts",
            EVERY,
        ),
        ("service: s", "service", &[Tcp, Udp]),
        ("udp: {}", "udp", &[Udp]),
        ("udp: {requests: 1}", "udp", &[Udp]),
        ("tls: {certificates: [{cert: c}]}", "tls", &[Tcp, Https]),
        ("http: {}", "http", &[Http, Https]),
        ("http: {forwarded: true}", "http", &[Http, Https]),
        ("http: {hsts: 1d}", "http.hsts", &[Https]),
        (
            "routes: [{host: a.org, service: s}]",
            "routes",
            &[Http, Https, Tls],
        ),
        ("default: {service: s}", "default", &[Http, Https, Tls]),
        ("errors: {503: e}", "errors", &[Http, Https]),
    ];
    for (text, at, of) in fields {
        for protocol in EVERY {
            hold_field(&Field { text, at, of }, *protocol);
        }
    }
}

fn hold_field(field: &Field, protocol: Protocol) {
    let needed: &[&str] = match protocol {
        Protocol::Tcp | Protocol::Udp => &["service: s"],
        Protocol::Https => &["tls: {certificates: [{cert: c}]}"],
        Protocol::Http | Protocol::Tls => &[],
    };
    let mut fields: Vec<&str> = needed.to_vec();
    if !fields.contains(&field.text) {
        fields.push(field.text);
    }
    let text = frontend(&protocol.to_string(), &fields.join(", "));
    if field.of.contains(&protocol) {
        good(&text);
        return;
    }
    let problems = super::problems_of(&text);
    let [problem] = problems.as_slice() else {
        panic!("{text}\nexpected one problem, found {problems:#?}");
    };
    // A plain http frontend has `http`, but nothing in it that is https' own; others have no `http` at all.
    let at = match field.at {
        "http.hsts" if protocol != Protocol::Http => "http",
        at => at,
    };
    assert_eq!(
        problem.at,
        format!("frontends[0].{at}"),
        "{text}\n{problem}"
    );
    assert!(!problem.remedy.is_empty(), "{text}\n{problem}");
}

#[test]
fn the_remedy_says_what_the_protocol_has_instead() {
    let tls = "tls: {certificates: [{cert: c}]}";
    hold(vec![
        row(
            frontend("tcp", "service: s, default: {service: s}"),
            "frontends[0].default",
            "protocol tcp has no default",
            "use service: NAME",
        ),
        row(
            frontend("http", "service: s"),
            "frontends[0].service",
            "protocol http has no service",
            "use default: {service: NAME} or routes",
        ),
        row(
            frontend("http", tls),
            "frontends[0].tls",
            "protocol http has no tls",
            "protocol: https",
        ),
        row(
            frontend("tls", tls),
            "frontends[0].tls",
            "protocol tls passes TLS on unopened",
            "protocol: https",
        ),
        row(
            frontend(
                "tcp",
                "service: s, tls: {certificates: [{cert: c}], client-auth: {ca: a, header: X-DN}}",
            ),
            "frontends[0].tls.client-auth.header",
            "protocol tcp has no header",
            "protocol: https",
        ),
    ]);
    good(&frontend(
        "tcp",
        "service: s, tls: {certificates: [{cert: c}], alpn: [imap], client-auth: {ca: a}}",
    ));
}
