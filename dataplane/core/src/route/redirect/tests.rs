//! One row for each redirect: the request, the table's words, the Location and the status.

use super::*;
use crate::http::{Host, Version};
use crate::route::tests::frontend;

fn redirect(fields: &str) -> Redirect {
    let frontend = frontend(&format!(
        "protocol: http, default: {{redirect: {{{fields}}}}}"
    ));
    Redirect::new(frontend.default.unwrap().redirect.as_deref().unwrap())
}

fn request<'r>(method: &'r str, host: Option<Host<'r>>, target: &'r str) -> Request<'r> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    Request {
        method,
        path,
        query,
        host,
        version: Version::Http11,
        fields: &[],
    }
}

#[test]
fn a_location_is_made_of_the_request_and_the_table() {
    let host = |text: &'static str| {
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, Some(port.parse().unwrap())),
            _ => (text, None),
        };
        Host { name, port }
    };
    let to_https = "scheme: https";
    let http = Scheme::Http;
    let https = Scheme::Https;
    for (fields, scheme, asked, target, location) in [
        (to_https, http, "a.org", "/x?q=1", "https://a.org/x?q=1"),
        (to_https, http, "a.org:8080", "/", "https://a.org/"),
        (to_https, http, "A.org:80", "/", "https://A.org/"),
        (to_https, http, "[::1]:80", "/x", "https://[::1]/x"),
        (
            to_https,
            http,
            "[2001:db8::1]",
            "/x",
            "https://[2001:db8::1]/x",
        ),
        (
            to_https,
            http,
            "a.org",
            "//evil.org/x",
            "https://a.org//evil.org/x",
        ),
        (to_https, http, "a.org", "/x?", "https://a.org/x?"),
        (to_https, http, "a.org", "*", "https://a.org/"),
        (
            "scheme: https, port: 443",
            http,
            "a.org:80",
            "/",
            "https://a.org/",
        ),
        (
            "scheme: https, port: 8443",
            http,
            "a.org:80",
            "/",
            "https://a.org:8443/",
        ),
        ("scheme: http", https, "a.org:8443", "/", "http://a.org/"),
        (
            "scheme: http, port: 443",
            https,
            "a.org",
            "/",
            "http://a.org:443/",
        ),
        ("port: 8443", https, "a.org", "/x", "https://a.org:8443/x"),
        ("port: 443", https, "a.org:8443", "/x", "https://a.org/x"),
        ("port: 443", http, "a.org", "/x", "http://a.org:443/x"),
        ("host: b.org", https, "a.org", "/x", "https://b.org/x"),
        (
            "host: b.org",
            http,
            "a.org:8080",
            "/x",
            "http://b.org:8080/x",
        ),
        ("host: b.org", http, "a.org:80", "/x", "http://b.org/x"),
        ("host: b.org", http, "a.org:443", "/x", "http://b.org:443/x"),
        (
            "host: '[::2]', scheme: https",
            http,
            "a.org:81",
            "/",
            "https://[::2]/",
        ),
        (
            "path: /new",
            http,
            "a.org:81",
            "/old/x?q",
            "http://a.org:81/new?q",
        ),
        ("path: /new", http, "a.org", "*", "http://a.org/new"),
        ("location: /new", http, "a.org", "/old?q", "/new"),
        (
            "location: '/n\u{e4}?a=b#c'",
            http,
            "",
            "*",
            "/n%C3%A4?a=b#c",
        ),
        (
            "location: https://b.org",
            https,
            "a.org",
            "/",
            "https://b.org",
        ),
        (
            "scheme: https, drop-query: true",
            http,
            "a.org",
            "/x?q",
            "https://a.org/x",
        ),
        (
            "prefix: /p, relative: true",
            http,
            "a.org",
            "/x?q",
            "/p/x?q",
        ),
        (
            "path: /new, relative: true, drop-query: true",
            http,
            "",
            "/x?q",
            "/new",
        ),
        // What follows two slashes is a host for browsers.
        (
            "path: //new, relative: true",
            http,
            "a.org",
            "/x",
            "/.//new",
        ),
        (
            "prefix: /, relative: true",
            http,
            "a.org",
            "//evil.org/x",
            "/evil.org/x",
        ),
        (
            "prefix: /, relative: true",
            http,
            "a.org",
            "/\\evil.org",
            "/./\\evil.org",
        ),
        ("path: //new", http, "a.org", "/", "http://a.org//new"),
        (
            to_https,
            http,
            "a.org",
            "/\u{e4} \r\n?\n",
            "https://a.org/%C3%A4%20%0D%0A?%0A",
        ),
    ] {
        let redirect = redirect(fields);
        let mut out = Vec::new();
        let request = request("GET", Some(host(asked)), target);
        let status = redirect.write_location(&mut out, &request, 0, scheme);
        let written = String::from_utf8(out).unwrap();
        assert_eq!(
            (written.as_str(), status),
            (location, Some(301)),
            "{fields} {asked}"
        );
    }
}

#[test]
fn the_status_keeps_the_method() {
    let host = Host {
        name: "a.org",
        port: None,
    };
    for (method, fields, status) in [
        ("GET", "scheme: https", 301),
        ("HEAD", "scheme: https", 301),
        ("POST", "scheme: https", 308),
        ("get", "scheme: https", 308),
        ("OPTIONS", "scheme: https", 308),
        ("GET", "scheme: https, status: 302", 302),
        ("POST", "scheme: https, status: 307", 307),
    ] {
        let request = request(method, Some(host), "/");
        let got = redirect(fields).write_location(&mut Vec::new(), &request, 0, Scheme::Http);
        assert_eq!(got, Some(status), "{method} {fields}");
    }
}

#[test]
fn a_request_without_a_host_is_redirected_only_to_a_named_one() {
    let request = request("GET", None, "/x");
    let mut out = Vec::new();
    let without = redirect("scheme: https").write_location(&mut out, &request, 0, Scheme::Http);
    assert_eq!((without, out.as_slice()), (None, &b""[..]));
    let named = redirect("host: b.org").write_location(&mut out, &request, 0, Scheme::Http);
    assert_eq!((named, out.as_slice()), (Some(301), &b"http://b.org/x"[..]));
}

#[test]
fn a_prefix_takes_the_place_of_what_matched() {
    let host = Some(Host {
        name: "a.org",
        port: None,
    });
    for (prefix, target, matched, location) in [
        ("/new", "/old", 4, "http://a.org/new"),
        ("/new", "/old/x?q=/old", 4, "http://a.org/new/x?q=/old"),
        ("/new/", "/old/x", 4, "http://a.org/new/x"),
        ("/", "/old", 4, "http://a.org/"),
        ("/", "/old//evil.org", 4, "http://a.org/evil.org"),
        ("//evil.org", "/old/x", 4, "http://a.org/evil.org/x"),
        ("/new", "/x", 0, "http://a.org/new/x"),
        ("/new", "/old/\u{e4}", 4, "http://a.org/new/%C3%A4"),
        ("/new", "/old", 99, "http://a.org/new"),
        ("/new", "*", 0, "http://a.org/"),
    ] {
        let mut out = Vec::new();
        let request = request("GET", host, target);
        let redirect = redirect(&format!("prefix: {prefix}"));
        let status = redirect.write_location(&mut out, &request, matched, Scheme::Http);
        assert_eq!(status, Some(301));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            location,
            "{prefix} {target}"
        );
    }
}
