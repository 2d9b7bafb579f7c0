//! What a good table says and its author hardly means: warnings of `ballast check`.

use super::http::HeaderEdits;
use super::{
    ErrorPage, Frontend, HostPattern, OrMap, PathMatch, Problem, Protocol, Redirect, Route,
    RoutingTable,
};

/// A warning for each such place, in the order of the table.
#[must_use]
pub fn advice(table: &RoutingTable) -> Vec<Problem> {
    let mut found = Vec::new();
    for (index, frontend) in table.frontends.iter().enumerate() {
        let at = format!("frontends[{index}]");
        let routes = frontend.routes.iter().enumerate();
        let routes = routes.map(|(index, route)| (format!("{at}.routes[{index}]"), route));
        let default = frontend.default.as_deref();
        let default = default.map(|route| (format!("{at}.default"), route));
        for (at, route) in routes.chain(default) {
            of_route(&at, route, frontend, &mut found);
        }
        for (status, page) in frontend.errors.iter() {
            if let OrMap::Map(page) = page {
                of_page(format!("{at}.errors.{}", status.code()), page, &mut found);
            }
        }
    }
    found
}

fn of_route(at: &str, route: &Route, frontend: &Frontend, found: &mut Vec<Problem>) {
    if let Some(redirect) = &route.redirect
        && leads_to_itself(route, redirect, frontend)
    {
        found.push(Problem::new(
            format!("{at}.redirect"),
            "leads to this route again, so that clients go round in circles",
            "change scheme, host, port or path",
        ));
    }
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

/// Whether each request that this route redirects would come back to it. In doubt it would not.
fn leads_to_itself(route: &Route, redirect: &Redirect, frontend: &Frontend) -> bool {
    let Redirect {
        scheme,
        host,
        port,
        path,
        prefix,
        ..
    } = redirect;
    let own_scheme = match frontend.protocol {
        Protocol::Http => "http",
        _ => "https",
    };
    // Without a port the one of the scheme is meant, which may be led here by others.
    let same_scheme = scheme.as_ref().is_none_or(|scheme| **scheme == *own_scheme);
    let same_port = port.is_none_or(|port| {
        let mut binds = frontend.bind.iter();
        binds.any(|bind| bind.port() == port.get())
    });
    let same_host = match (host, &route.host) {
        (None, _) | (Some(_), None) => true,
        (Some(HostPattern::Exact(to)), Some(HostPattern::Exact(own))) => to == own,
        _ => false,
    };
    let same_path = match (path, prefix) {
        (Some(to), _) => **to == *route.path(),
        (None, Some(prefix)) => **prefix == *route.path() && route.r#match != PathMatch::Begins,
        (None, None) => true,
    };
    // A request that comes back with another host or path may be another route's.
    let others = || {
        frontend
            .routes
            .iter()
            .filter(|other| !std::ptr::eq(*other, route))
    };
    let is_hidden =
        host.is_some() && route.host.is_none() && others().any(|other| other.host.is_some())
            || path.is_some() && others().any(|other| other.path() == route.path());
    let always = route.when.is_none() && route.source_ranges.is_none();
    same_scheme && same_port && same_host && same_path && always && !is_hidden
}

type Edits = Option<Box<HeaderEdits>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Format, parse};

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
        let table = parse(table.as_bytes(), Format::Yaml).unwrap();
        let found = advice(&table).into_iter();
        found
            .map(|found| found.at.replace("frontends[0].routes", ""))
            .collect()
    }

    #[test]
    fn a_redirect_to_itself_is_told() {
        for (protocol, routes, is_told) in [
            ("https", &["{redirect: {scheme: https}}"][..], true),
            ("http", &["{redirect: {scheme: https}}"], false),
            ("http", &["{redirect: {scheme: http}}"], true),
            ("http", &["{redirect: {port: 8080}}"], true),
            ("http", &["{redirect: {port: 8081}}"], false),
            ("http", &["{host: a.test, redirect: {host: a.test}}"], true),
            ("http", &["{host: a.test, redirect: {host: b.test}}"], false),
            (
                "http",
                &["{host: \"*.a.test\", redirect: {host: b.a.test}}"],
                false,
            ),
            ("http", &["{redirect: {host: a.test}}"], true),
            (
                "http",
                &["{redirect: {host: a.test}}", "{host: a.test, service: s}"],
                false,
            ),
            ("http", &["{path: /a, redirect: {path: /a}}"], true),
            ("http", &["{path: /a, redirect: {path: /b}}"], false),
            ("http", &["{path: /a, redirect: {prefix: /a}}"], true),
            (
                "http",
                &[
                    "{redirect: {path: /}}",
                    "{path: /, match: exact, service: s}",
                ],
                false,
            ),
            (
                "http",
                &["{path: /a, when: {method: [GET]}, redirect: {path: /a}}"],
                false,
            ),
        ] {
            let found = places(protocol, routes);
            assert_eq!(found == ["[0].redirect"], is_told, "{routes:?}: {found:?}");
            assert_eq!(found.is_empty(), !is_told, "{routes:?}: {found:?}");
        }
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
        let table = parse(table.as_bytes(), Format::Yaml).unwrap();
        let found: Vec<String> = advice(&table).into_iter().map(|found| found.at).collect();
        assert_eq!(found, ["frontends[0].errors.503"]);
    }
}
