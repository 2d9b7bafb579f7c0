//! Which requests are answered 421, by the connection that they come by.

use super::*;
use crate::certificate::CertificateNames;
use crate::plan::HttpFrontend;
use crate::table::UnknownName;

/// The frontend of these routes and options. Its certificates are for `*.example.com`, and for `*.example.net` a bad one.
struct Case {
    http: Arc<HttpFrontend>,
    certificates: CertificateNames,
}

impl Case {
    fn new(rest: &str, unknown: UnknownName) -> Self {
        let frontend = frontend(&format!(
            "protocol: https, tls: {{certificates: [{{cert: c}}]}}, {rest}"
        ));
        let certificates = [(["*.example.com"], true), (["*.example.net"], false)];
        Self {
            http: HttpFrontend::compile(&frontend, &sni::CONTEXT, None),
            certificates: CertificateNames::new(certificates, unknown, UnknownName::Default),
        }
    }

    /// Whether a request for this host is misdirected on a connection of this name and protocol.
    fn is_misdirected(&self, host: &str, server_name: Option<&str>, alpn: Option<&str>) -> bool {
        let connection = SecureConnection {
            server_name,
            alpn: alpn.map(str::as_bytes),
        };
        let host = (!host.is_empty()).then(|| Host::parse(host).unwrap());
        let refuses = |name: Option<&str>| self.certificates.refuses(name);
        self.http.is_misdirected(host, &connection, refuses)
    }
}

const OPENED: &str =
    "routes: [{host: www.example.com, service: s}, {host: x.example.com, service: s}]";

#[test]
fn a_host_with_a_pass_through_route_is_served_by_its_endpoints_alone() {
    let case = Case::new(
        "routes: [
            {host: www.example.com, service: s},
            {host: db.example.com, passthrough: true, service: s},
            {host: '*.db.example.com', passthrough: true, service: s},
            {host: www.db.example.com, service: s},
            {host: h2.example.com, alpn: [h2], passthrough: true, service: s},
        ]",
        UnknownName::Default,
    );
    let www = Some("www.example.com");
    for (host, server_name, alpn, expected) in [
        ("www.example.com", www, Some("h2"), false),
        ("WWW.example.com.:8443", www, Some("h2"), false),
        ("other.example.com", www, Some("h2"), false),
        ("db.example.com", www, Some("h2"), true),
        ("DB.Example.com.:443", www, Some("http/1.1"), true),
        ("db.example.com", www, None, true),
        ("a.b.db.example.com", www, None, true),
        ("www.db.example.com", www, None, false),
        // A new table may have made the route: what the client asked for is what it has.
        ("db.example.com", Some("db.example.com"), None, false),
        ("db.example.com", Some("a.db.example.com"), None, true),
        // The route is for one protocol.
        ("h2.example.com", www, Some("h2"), true),
        ("h2.example.com", www, Some("http/1.1"), false),
        ("h2.example.com", www, None, false),
        // Without a server name.
        ("db.example.com", None, None, true),
        ("www.example.com", None, None, false),
        // Without a host, or with an address, nothing is asked for.
        ("", www, None, false),
        ("", None, None, false),
        ("192.0.2.1", www, None, false),
        ("192.0.2.1:443", None, None, false),
        ("[2001:db8::1]:443", None, None, false),
    ] {
        let is_misdirected = case.is_misdirected(host, server_name, alpn);
        assert_eq!(
            is_misdirected, expected,
            "{host} by {server_name:?} {alpn:?}"
        );
    }
}

#[test]
fn a_default_that_is_passed_through_is_for_hosts_without_a_route_and_for_addresses() {
    let case = Case::new(
        "routes: [{host: www.example.com, service: s}], default: {passthrough: true, service: s}",
        UnknownName::Default,
    );
    for (host, server_name, expected) in [
        ("www.example.com", Some("www.example.com"), false),
        ("other.example.com", Some("www.example.com"), true),
        ("192.0.2.1", Some("www.example.com"), true),
        ("", Some("www.example.com"), false),
        ("www.example.com", None, false),
        ("192.0.2.1", None, false),
    ] {
        let is_misdirected = case.is_misdirected(host, server_name, None);
        assert_eq!(is_misdirected, expected, "{host} by {server_name:?}");
    }
}

#[test]
fn a_host_whose_handshakes_are_refused_is_refused_on_every_connection() {
    let www = Some("www.example.com");
    for (unknown, host, server_name, expected) in [
        (UnknownName::Default, "x.example.com", www, false),
        (UnknownName::Default, "other.test", www, false),
        (UnknownName::Default, "other.test", None, false),
        (UnknownName::Refuse, "x.example.com", www, false),
        (UnknownName::Refuse, "X.Example.com.:443", www, false),
        (UnknownName::Refuse, "other.test", www, true),
        (UnknownName::Refuse, "other.test", None, true),
        (UnknownName::Refuse, "a.b.example.com", www, true),
        (UnknownName::Refuse, "other.test", Some("other.test"), false),
        // Clients without a name get the first certificate, and a client that asks for an address has none.
        (UnknownName::Refuse, "192.0.2.1", www, false),
        (UnknownName::Refuse, "", www, false),
        // The only certificate for this name cannot be used.
        (UnknownName::Default, "x.example.net", www, true),
        (
            UnknownName::Default,
            "x.example.net",
            Some("x.example.net"),
            false,
        ),
    ] {
        let case = Case::new(OPENED, unknown);
        let is_misdirected = case.is_misdirected(host, server_name, None);
        assert_eq!(
            is_misdirected, expected,
            "{host} by {server_name:?}, {unknown:?}"
        );
    }
}

#[test]
fn a_frontend_that_has_become_plain_serves_every_host() {
    let plain = frontend("protocol: http, default: {service: s}");
    let plain = HttpFrontend::compile(&plain, &sni::CONTEXT, None);
    let connection = SecureConnection::default();
    let host = Host::parse("db.example.com");
    assert!(!plain.is_misdirected(host, &connection, |_| panic!("nothing is asked")));
}

#[test]
fn certificates_are_not_asked_for_the_name_that_the_connection_has() {
    let case = Case::new(OPENED, UnknownName::Refuse);
    let connection = SecureConnection {
        server_name: Some("www.example.com"),
        alpn: Some(b"h2"),
    };
    let host = Host::parse("WWW.EXAMPLE.COM:443");
    let http = &case.http;
    assert!(!http.is_misdirected(host, &connection, |_| panic!("it is the same")));
}
