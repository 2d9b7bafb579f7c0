//! What a good table says and its author hardly means: warnings of `ballast check`.

use std::net::IpAddr;

use super::http::HeaderEdits;
use super::parse::doubts;
use super::{
    Bind, ErrorPage, Format, Frontend, Health, HealthMode, OrMap, Problem, Route, RoutingTable,
};

/// A warning for each such place: those of single texts, then the others in the order of the table. `table` was read from `text`.
/// `circles`, of redirects and in the order of the table, come among them.
pub fn advice(
    table: &RoutingTable,
    (text, format): (&[u8], Format),
    circles: Vec<Problem>,
) -> Vec<Problem> {
    let mut found = doubts(text, format);
    let mut circles = circles.into_iter().peekable();
    for (index, frontend) in table.frontends.iter().enumerate() {
        let at = format!("frontends[{index}]");
        of_binds(&at, frontend, &mut found);
        let routes = frontend.routes.iter().enumerate();
        let routes = routes.map(|(index, route)| (format!("{at}.routes[{index}]"), route));
        let default = frontend.default.as_deref();
        let default = default.map(|route| (format!("{at}.default"), route));
        for (at, route) in routes.chain(default) {
            let redirect = format!("{at}.redirect");
            found.extend(circles.next_if(|circle| circle.at == redirect));
            of_route(&at, route, &mut found);
        }
        for (status, page) in frontend.errors.iter() {
            if let OrMap::Map(page) = page {
                of_page(format!("{at}.errors.{}", status.code()), page, &mut found);
            }
        }
    }
    for (index, service) in table.services.iter().enumerate() {
        if let Some(health) = service.health.as_deref() {
            let at = format!("services[{index}].health");
            of_health(&at, health, &mut found);
            if service.tls.is_some() && health.mode == HealthMode::Http {
                found.push(Problem::new(
                    format!("{at}.mode"),
                    "http checks without TLS, and the clients of this service are sent on in TLS",
                    "use mode: https, unless the endpoints speak HTTP without TLS as well",
                ));
            }
        }
    }
    found
}

/// Addresses that no host has for itself.
fn of_binds(at: &str, frontend: &Frontend, found: &mut Vec<Problem>) {
    for (index, bind) in frontend.bind.iter().enumerate() {
        let Bind::Exact(address) = bind else {
            continue;
        };
        let is_broadcast = matches!(address.ip(), IpAddr::V4(ip) if ip.is_broadcast());
        if is_broadcast || address.ip().is_multicast() {
            found.push(Problem::new(
                format!("{at}.bind[{index}]"),
                format!(
                    "{bind} is an address of many hosts at once, which no client can connect to"
                ),
                "bind an address of this host, or *:PORT",
            ));
        }
    }
}

/// Fields of another mode.
fn of_health(at: &str, health: &Health, found: &mut Vec<Problem>) {
    let mode = health.mode;
    let is_http = matches!(mode, HealthMode::Http | HealthMode::Https);
    let fields = [
        ("method", health.method.is_some(), is_http),
        ("path", health.path.is_some(), is_http),
        ("host", health.host.is_some(), is_http),
        ("expect", health.expect.is_some(), is_http),
        ("body", health.body.is_some(), is_http),
        ("send", health.send.is_some(), !is_http),
        ("answer", health.answer.is_some(), !is_http),
        (
            "answer-contains",
            health.answer_contains.is_some(),
            !is_http,
        ),
        ("tls", health.tls.is_some(), mode == HealthMode::Https),
    ];
    for (field, is_there, has_effect) in fields {
        if is_there && !has_effect && mode != HealthMode::Off {
            found.push(Problem::new(
                format!("{at}.{field}"),
                format!("has no effect with mode: {mode}"),
                "remove it, or choose a mode that uses it",
            ));
        }
    }
}

fn of_route(at: &str, route: &Route, found: &mut Vec<Problem>) {
    let methods = route.when.iter().flat_map(|when| when.method.iter());
    for (index, method) in methods.enumerate() {
        let upper = method.to_ascii_uppercase();
        if **method != *upper {
            found.push(Problem::new(
                format!("{at}.when.method[{index}]"),
                format!("\"{method}\" is not \"{upper}\": methods are compared letter by letter"),
                format!("write {upper}, unless clients send it so"),
            ));
        }
    }
    if let Some(page) = &route.denied {
        let at = format!("{at}.denied");
        if route.source_ranges.is_none() {
            found.push(Problem::new(
                at.clone(),
                "nobody is denied by this route",
                "add source-ranges, or remove it",
            ));
        }
        of_page(at, page, found);
    }
    let edits = (&route.request_headers, &route.response_headers);
    of_edits(at, edits, found);
    for (index, backend) in route.backends.iter().enumerate() {
        let edits = (&backend.request_headers, &backend.response_headers);
        of_edits(&format!("{at}.backends[{index}]"), edits, found);
    }
}

fn of_page(at: String, page: &ErrorPage, found: &mut Vec<Problem>) {
    if *page == ErrorPage::default() {
        found.push(Problem::new(
            at,
            "changes nothing",
            "add status, body-file or response-headers, or remove it",
        ));
    }
}

fn of_edits(at: &str, (request, response): (&Edits, &Edits), found: &mut Vec<Problem>) {
    for (field, edits) in [("request-headers", request), ("response-headers", response)] {
        if edits
            .as_deref()
            .is_some_and(|edits| *edits == HeaderEdits::default())
        {
            found.push(Problem::new(
                format!("{at}.{field}"),
                "changes nothing",
                "add set, add or remove, or remove it",
            ));
        }
    }
}

type Edits = Option<Box<HeaderEdits>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Format, parse};

    fn found(text: &str) -> Vec<Problem> {
        let text = text.as_bytes();
        let table = parse(text, Format::Yaml).unwrap();
        advice(&table, (text, Format::Yaml), Vec::new())
    }

    fn places(protocol: &str, routes: &[&str]) -> Vec<String> {
        let tls = if protocol == "https" {
            "tls: {certificates: [{cert: x}]},"
        } else {
            ""
        };
        let routes = routes.join(", ");
        let table = format!(
            "version: 1
frontends:
  - {{name: f, bind: [\"127.0.0.1:8080\"], protocol: {protocol}, {tls} routes: [{routes}]}}
services: [{{name: s, endpoints: []}}]
"
        );
        let found = found(&table).into_iter();
        found
            .map(|found| found.at.replace("frontends[0].routes", ""))
            .collect()
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let table = "version: 1
frontends:
  - {name: a, bind: [\"224.0.0.1:80\", \"127.0.0.1:80\", \"255.255.255.255:80\", \"[ff02::1]:80\"], protocol: tcp, service: s}
services:
  - {name: s, health: {mode: http, send: x, path: /}, endpoints: []}
  - {name: t, health: {mode: tcp, send: x, answer: y, expect: \"200\"}, endpoints: []}
  - {name: u, health: {mode: off, path: /}, endpoints: []}
  - {name: v, tls: {insecure: true}, health: {mode: http}, endpoints: []}
  - {name: w, tls: {insecure: true}, health: {mode: https}, endpoints: []}
";
        let found = found(table);
        let places: Vec<&str> = found.iter().map(|found| &*found.at).collect();
        let expected = [
            "frontends[0].bind[0]",
            "frontends[0].bind[2]",
            "frontends[0].bind[3]",
            "services[0].health.send",
            "services[1].health.expect",
            "services[3].health.mode",
        ];
        assert_eq!(places, expected);
    }

    #[test]
    fn a_range_that_does_not_begin_at_its_address_is_told() {
        let table = "version: 1
stats: {source-ranges: [10.0.0.0/8, \"::ffff:10.0.0.1/104\"]}
frontends:
  - name: f
    bind: [\"127.0.0.1:8080\"]
    protocol: http
    accept-proxy: {from: [\"2001:db8::1/32\"]}
    http: {x-forwarded-trust: [192.0.2.7/24]}
    source-ranges: [0.0.0.0/0, \"::/0\"]
    routes: [{path: /a, status: 200, source-ranges: [192.0.2.7/32, 10.0.0.1/8]}]
";
        let found: Vec<String> = found(table).iter().map(Problem::to_string).collect();
        let expected = [
            r#"stats.source-ranges[1]: "::ffff:10.0.0.1/104" means all of 10.0.0.0/8: ::ffff:10.0.0.1 is not its first address; write 10.0.0.0/8, or 10.0.0.1/32 for this address alone"#,
            r#"frontends[0].accept-proxy.from[0]: "2001:db8::1/32" means all of 2001:db8::/32: 2001:db8::1 is not its first address; write 2001:db8::/32, or 2001:db8::1/128 for this address alone"#,
            r#"frontends[0].http.x-forwarded-trust[0]: "192.0.2.7/24" means all of 192.0.2.0/24: 192.0.2.7 is not its first address; write 192.0.2.0/24, or 192.0.2.7/32 for this address alone"#,
            r#"frontends[0].routes[0].source-ranges[1]: "10.0.0.1/8" means all of 10.0.0.0/8: 10.0.0.1 is not its first address; write 10.0.0.0/8, or 10.0.0.1/32 for this address alone"#,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_method_in_lower_case_and_edits_of_nothing_are_told() {
        let routes = [
            "{path: /a, service: s, when: {method: [GET, post]}}",
            "{path: /b, service: s, request-headers: {}}",
            "{path: /c, backends: [{service: s, response-headers: {}}]}",
            "{path: /d, service: s, request-headers: {remove: [x]}}",
        ];
        let expected = [
            "[0].when.method[1]",
            "[1].request-headers",
            "[2].backends[0].response-headers",
        ];
        assert_eq!(places("http", &routes), expected);
    }

    #[test]
    fn a_denial_of_nobody_and_a_page_of_nothing_are_told() {
        let routes = [
            "{path: /a, service: s, denied: {status: 404}}",
            "{path: /b, service: s, source-ranges: [10.0.0.0/8], denied: {}}",
            "{path: /c, service: s, source-ranges: [10.0.0.0/8], denied: {status: 404}}",
        ];
        assert_eq!(places("http", &routes), ["[0].denied", "[1].denied"]);
        let table = "version: 1
frontends:
  - name: f
    bind: [\"127.0.0.1:8080\"]
    protocol: http
    errors: {502: {status: 503}, 503: {}, 504: e}
";
        let found: Vec<String> = found(table).into_iter().map(|found| found.at).collect();
        assert_eq!(found, ["frontends[0].errors.503"]);
    }
}
