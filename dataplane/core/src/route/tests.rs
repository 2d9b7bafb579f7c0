//! Which route a request gets: single cases, and random tables against a search that looks at every route.

mod decide;
mod misdirected;
mod oracle;
mod properties;
mod sni;
mod when;

use super::*;
use crate::compile::{CompileContext, compile};
use crate::http::{Field, Host, Version};
use crate::loops::LOOPBACK_ONLY;
use crate::moment::Moment;
use crate::plan::{Plan, Serves};
use crate::rng::Rng;
use crate::table::{Format, Frontend, parse};

/// The frontend of this table in YAML, without a single problem.
pub(super) fn frontend(rest: &str) -> Frontend {
    let yaml = format!(
        "{{version: 1, frontends: [{{name: f, bind: ['*:80'], {rest}}}], services: [{{name: s}}]}}"
    );
    let table = parse(yaml.as_bytes(), Format::Yaml);
    table.unwrap().frontends.remove(0)
}

/// The routes of an http frontend. Each is an answer whose Content-Type is the fields themselves, so that it can be told.
fn routes(fields: &[&str]) -> HttpRoutes {
    let list: Vec<String> = fields
        .iter()
        .map(|fields| {
            let comma = if fields.is_empty() { "" } else { "," };
            format!("{{{fields}{comma} status: 200, content-type: \"{fields}\"}}")
        })
        .collect();
    let frontend = frontend(&format!("protocol: http, routes: [{}]", list.join(", ")));
    compiled(&frontend)
}

/// The routes of a frontend whose services are all missing.
fn compiled(frontend: &Frontend) -> HttpRoutes {
    let context = BackendsContext {
        services: &|_| None,
        records: None,
    };
    HttpRoutes::compile(frontend, &context, None)
}

/// A request without fields. A host of no letters is none.
fn get<'r>(host: &'r str, path: &'r str) -> Request<'r> {
    Request {
        method: "GET",
        path,
        query: None,
        host: (!host.is_empty()).then_some(Host {
            name: host,
            port: None,
        }),
        version: Version::Http11,
        fields: &[],
    }
}

/// The fields of the route that is found, and the part of the path that it matched.
fn found<'p>(routes: &HttpRoutes, name: &str, path: &'p str) -> (String, &'p str) {
    let matched = routes.find(&get(name, path));
    let Target::Answer(answer) = &matched.route.target else {
        panic!("{:?}", matched.route);
    };
    let fields = match &answer.content_type {
        Some(fields) => fields.to_string(),
        None => answer.status.to_string(),
    };
    (fields, matched.prefix(path))
}

#[test]
fn the_best_path_is_found() {
    let routes = routes(&[
        "path: /svc-1",
        "path: /svc-10",
        "path: '/svc-1:443'",
        "path: /svc",
        "path: /svc/below, match: exact",
        "path: /svc/below/more",
        "path: /svc/be, match: begins",
        "path: /folder/",
        "path: /Case, ignore-case: true",
        "path: /case/exact, match: exact, ignore-case: true",
        "path: /case/both",
        "path: /case/both, ignore-case: true",
        "path: /one, match: exact",
        "path: /one",
        "path: /one, match: begins",
        "path: /two, match: begins",
        "path: /two, ignore-case: true",
        "path: '/%2f'",
        "path: //twice",
    ]);
    for (path, fields, prefix) in [
        ("/svc-1", "path: /svc-1", "/svc-1"),
        ("/svc-1/", "path: /svc-1", "/svc-1"),
        ("/svc-1/x", "path: /svc-1", "/svc-1"),
        ("/svc-10", "path: /svc-10", "/svc-10"),
        ("/svc-100", "404", ""),
        ("/svc-1:443/x", "path: '/svc-1:443'", "/svc-1:443"),
        ("/svc-1:80", "404", ""),
        ("/svc-", "404", ""),
        ("/svc", "path: /svc", "/svc"),
        ("/svc//x", "path: /svc", "/svc"),
        ("/svc/./x", "path: /svc", "/svc"),
        ("/svc;v=1", "404", ""),
        ("/svc%2fx", "404", ""),
        ("/%73vc", "404", ""),
        ("//svc", "404", ""),
        ("/./svc", "404", ""),
        ("/SVC", "404", ""),
        ("/svc/below", "path: /svc/below, match: exact", "/svc/below"),
        ("/svc/below/", "path: /svc/be, match: begins", "/svc/be"),
        (
            "/svc/below/more/x",
            "path: /svc/below/more",
            "/svc/below/more",
        ),
        ("/svc/below/mor", "path: /svc/be, match: begins", "/svc/be"),
        ("/svc/b", "path: /svc", "/svc"),
        ("/folder/", "path: /folder/", "/folder"),
        ("/folder/x", "path: /folder/", "/folder"),
        ("/folder", "404", ""),
        ("/case", "path: /Case, ignore-case: true", "/case"),
        ("/CASE/x", "path: /Case, ignore-case: true", "/CASE"),
        (
            "/cAse/exAct",
            "path: /case/exact, match: exact, ignore-case: true",
            "/cAse/exAct",
        ),
        ("/case/both/x", "path: /case/both", "/case/both"),
        (
            "/case/Both/x",
            "path: /case/both, ignore-case: true",
            "/case/Both",
        ),
        ("/one", "path: /one, match: exact", "/one"),
        ("/one/x", "path: /one", "/one"),
        ("/one-x", "path: /one, match: begins", "/one"),
        ("/two/x", "path: /two, ignore-case: true", "/two"),
        ("/two-x", "path: /two, match: begins", "/two"),
        ("/%2f", "path: '/%2f'", "/%2f"),
        ("/%2F", "404", ""),
        ("//twice/x", "path: //twice", "//twice"),
        ("/twice", "404", ""),
        ("/", "404", ""),
        ("*", "404", ""),
        ("", "404", ""),
        ("/svc/\u{e4}", "path: /svc", "/svc"),
        ("/sv\u{e4}", "404", ""),
    ] {
        let (found, matched) = found(&routes, "a.org", path);
        assert_eq!((found.as_str(), matched), (fields, prefix), "{path}");
    }
}

#[test]
fn the_most_specific_host_whose_path_matches_is_found() {
    let routes = routes(&[
        "host: a.b.example.org",
        "host: '*.b.example.org', path: /b",
        "host: '*.example.org'",
        "host: '*.example.org', path: /longer",
        "host: example.org, path: /x",
        "host: '*.org', path: /x",
        "host: '[2001:db8::1]'",
        "host: 192.0.2.1",
        "path: /any",
        "path: /any, match: exact",
    ]);
    let long = format!("{}.example.org", ["a"; 120].join("."));
    let longer = format!("{}.example.org", ["a"; 122].join("."));
    for (host, path, fields) in [
        ("a.b.example.org", "/any", "host: a.b.example.org"),
        ("A.b.Example.ORG.", "/b", "host: a.b.example.org"),
        ("c.b.example.org", "/b", "host: '*.b.example.org', path: /b"),
        ("c.b.example.org", "/any", "host: '*.example.org'"),
        ("b.example.org", "/b", "host: '*.example.org'"),
        (
            "x.b.example.org",
            "/longer",
            "host: '*.example.org', path: /longer",
        ),
        ("1.2.3.example.org", "/", "host: '*.example.org'"),
        ("example.org", "/x", "host: example.org, path: /x"),
        ("example.org", "/y", "404"),
        ("example.org", "/any", "path: /any, match: exact"),
        ("example.org", "/any/y", "path: /any"),
        ("anotherexample.org", "/x", "host: '*.org', path: /x"),
        ("anotherexample.org", "/", "404"),
        (".example.org", "/x", "host: '*.org', path: /x"),
        (".org", "/x", "404"),
        ("org", "/x", "404"),
        ("[2001:DB8::1]", "/", "host: '[2001:db8::1]'"),
        ("[2001:db8::2]", "/", "404"),
        ("192.0.2.1", "/", "host: 192.0.2.1"),
        ("192.0.2.10", "/", "404"),
        ("", "/any", "path: /any, match: exact"),
        ("", "/", "404"),
        (&long, "/", "host: '*.example.org'"),
        (&longer, "/", "404"),
        (&longer, "/any", "path: /any, match: exact"),
    ] {
        assert_eq!(found(&routes, host, path).0, fields, "{host} {path}");
    }
}

#[test]
fn the_star_of_options_goes_where_every_path_of_the_host_goes() {
    let routes = routes(&[
        "host: a.org",
        "host: a.org, ignore-case: false, match: exact",
        "host: b.org, match: begins",
        "host: c.org, match: exact",
        "host: d.org, path: /x",
        "host: '*.org', path: /*",
    ]);
    for (host, fields) in [
        ("a.org", "host: a.org"),
        ("b.org", "host: b.org, match: begins"),
        ("c.org", "404"),
        ("d.org", "404"),
        ("e.org", "404"),
    ] {
        assert_eq!(found(&routes, host, "*"), (fields.to_owned(), ""), "{host}");
    }
}

#[test]
fn without_a_match_it_is_the_default() {
    let default = |rest: &str| {
        let frontend = frontend(&format!("protocol: http, {rest}"));
        let routes = compiled(&frontend);
        let matched = routes.find(&get("a.org", "/y"));
        assert_eq!(matched.prefix_length, 0);
        match &matched.route.target {
            Target::Answer(answer) => (answer.status, answer.body_file.is_some()),
            Target::Redirect(_) => (0, false),
            Target::Forward(_) => (0, true),
        }
    };
    assert_eq!(default("routes: [{path: /x, status: 200}]"), (404, false));
    assert_eq!(
        default("default: {status: 410, body-file: gone}"),
        (410, true)
    );
    assert_eq!(default("default: {redirect: {scheme: https}}"), (0, false));
    assert_eq!(default("default: {service: s}"), (503, false), "not there");
}

/// A search reads no more of a path than the longest route has, whatever the client sends.
#[test]
fn a_search_in_a_trie_ends_with_the_longest_key() {
    let keys = ["", "a", "ab", "abc/d", "abc/e", "b", "\u{e4}"];
    let mut tries = trie::Tries::default();
    let other = tries.add(vec![(b"x".to_vec(), "x"), (b"a".to_vec(), "other")]);
    let root = tries.add(
        keys.iter()
            .map(|key| (key.as_bytes().to_vec(), *key))
            .collect(),
    );
    let empty = tries.add(Vec::new());
    for (text, expected, read) in [
        ("", vec![""], 1),
        ("a", vec!["", "a"], 2),
        ("abc/", vec!["", "a", "ab"], 5),
        ("abc/e", vec!["", "a", "ab", "abc/e"], 6),
        ("abc/defghijk", vec!["", "a", "ab", "abc/d"], 6),
        ("aab", vec!["", "a"], 2),
        ("bbbbbb", vec!["", "b"], 2),
        ("xyz", vec![""], 1),
        ("\u{e4}\u{e4}", vec!["", "\u{e4}"], 3),
    ] {
        let mut count = 0;
        let mut found = Vec::new();
        let mut bytes = text.bytes();
        let counted = std::iter::from_fn(|| {
            count += 1;
            bytes.next()
        });
        tries.prefixes(root, counted, |length, key| {
            assert_eq!(length, key.len());
            found.push(*key);
        });
        assert_eq!((found, count), (expected, read), "{text}");
    }
    tries.prefixes(other, *b"ab", |_, key| assert_eq!(*key, "other"));
    tries.prefixes(empty, *b"x", |_, _| panic!("there is no key"));
}
