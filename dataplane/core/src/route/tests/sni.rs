//! Where connections go that are relayed unopened.

use super::*;
use crate::service::{Service, fixture};

/// The routes of this frontend; every service is one of its own with the route's name.
fn routes(frontend: &Frontend) -> SniRoutes {
    SniRoutes::compile(frontend, &CONTEXT, None)
}

pub(super) const CONTEXT: BackendsContext<'_> = BackendsContext {
    services: &|name| Some(service(name)),
    records: None,
};

fn service(name: &str) -> Arc<Service> {
    let mut spec = table::Service::clone(&fixture::spec("{}"));
    spec.name = name.parse().unwrap();
    let process = fixture::Process::default();
    Arc::new(process.compile(Arc::new(spec), None, Moment(0)))
}

fn shown(matched: SniMatch<'_>) -> String {
    match matched {
        SniMatch::Relay(route) => {
            let service = route.backends.services().next().unwrap();
            service.spec().name.to_string()
        }
        SniMatch::Terminate => "terminate".to_owned(),
        SniMatch::Reset => "reset".to_owned(),
    }
}

fn read(protocol: &str, rest: &str) -> Frontend {
    let names = ["a", "b", "c", "d", "e", "f"];
    let services = names.map(|name| format!("{{name: {name}}}")).join(", ");
    let yaml = format!(
        "{{version: 1, frontends: [{{name: f, bind: ['*:443'], protocol: {protocol}, {rest}}}], services: [{services}]}}"
    );
    let table = parse(yaml.as_bytes(), Format::Yaml);
    table.unwrap().frontends.remove(0)
}

#[test]
fn the_name_and_the_protocols_decide() {
    let routes = routes(&read(
        "tls",
        "routes: [
            {host: db.example.com, service: a},
            {host: db.example.com, alpn: [h2, acme-tls/1], service: b},
            {host: db.example.com, alpn: [h3, h2], service: c},
            {host: '*.example.com', service: d},
            {host: only.example.com, alpn: [h2], service: e},
            {host: only.example.net, alpn: [h2], service: e},
        ]",
    ));
    for (sni, alpn, expected) in [
        (Some("db.example.com"), &[][..], "a"),
        (Some("DB.example.com."), &["http/1.1"], "a"),
        // Both ask for h2: by their protocols [acme-tls/1, h2] and [h2, h3] the first is b.
        (Some("db.example.com"), &["h2"], "b"),
        (Some("db.example.com"), &["h3", "h2"], "c"),
        (
            Some("db.example.com"),
            &["http/1.1", "acme-tls/1", "h3"],
            "b",
        ),
        (Some("db.example.com"), &["H2", "h"], "a"),
        (Some("x.y.example.com"), &["h2"], "d"),
        (Some("only.example.com"), &["h2"], "e"),
        (Some("only.example.com"), &["http/1.1"], "d"),
        (Some("only.example.net"), &["http/1.1"], "reset"),
        (Some("example.com"), &["h2"], "reset"),
        (Some("example.org"), &[], "reset"),
        (None, &["h2"], "reset"),
    ] {
        assert_eq!(shown(routes.find(sni, alpn)), expected, "{sni:?} {alpn:?}");
    }
}

#[test]
fn a_default_is_for_unknown_names_and_for_none() {
    let routes = routes(&read(
        "tls",
        "routes: [{host: db.example.com, alpn: [h2], service: a}], default: {service: b}",
    ));
    for (sni, alpn, expected) in [
        (Some("db.example.com"), &["h2"][..], "a"),
        (Some("db.example.com"), &[], "b"),
        (Some("example.org"), &["h2"], "b"),
        (None, &[], "b"),
    ] {
        assert_eq!(shown(routes.find(sni, alpn)), expected, "{sni:?} {alpn:?}");
    }
}

#[test]
fn on_https_names_with_opened_routes_are_never_relayed() {
    let tls = "tls: {certificates: [{cert: c}]}";
    let frontend = read(
        "https",
        &format!(
            "{tls}, routes: [
                {{host: '*.example.com', passthrough: true, service: a}},
                {{host: www.example.com, service: b}},
                {{host: www.example.com, path: /x, service: c}},
                {{host: x.example.com, alpn: [h2], passthrough: true, service: d}},
                {{host: y.example.com, alpn: [h2], passthrough: true, service: e}},
                {{host: y.example.com, path: /x, service: f}},
            ]"
        ),
    );
    let sni = routes(&frontend);
    for (name, alpn, expected) in [
        (Some("z.example.com"), &["h2"][..], "a"),
        (Some("www.example.com"), &["h2"], "terminate"),
        (Some("x.example.com"), &["h2"], "d"),
        (Some("x.example.com"), &["http/1.1"], "a"),
        (Some("y.example.com"), &["h2"], "e"),
        (Some("y.example.com"), &["http/1.1"], "terminate"),
        (Some("example.org"), &[], "terminate"),
        (None, &[], "terminate"),
    ] {
        assert_eq!(shown(sni.find(name, alpn)), expected, "{name:?} {alpn:?}");
    }
    // A request with the name of an unopened route gets no further in an opened connection.
    let http = HttpRoutes::compile(&frontend, &CONTEXT, None);
    let is_404 = |name| http.find(&get(name, "/")).route.forward().is_none();
    assert!(is_404("z.example.com") && is_404("x.example.com"));
    assert!(!is_404("www.example.com"));

    let everything = read(
        "https",
        &format!(
            "{tls}, default: {{passthrough: true, service: a}}, routes: [{{host: www.example.com, service: b}}]"
        ),
    );
    let sni = routes(&everything);
    let none: &[&str] = &[];
    assert_eq!(shown(sni.find(Some("www.example.com"), none)), "terminate");
    assert_eq!(shown(sni.find(Some("example.org"), none)), "a");
    assert_eq!(shown(sni.find(None, none)), "a");
}
