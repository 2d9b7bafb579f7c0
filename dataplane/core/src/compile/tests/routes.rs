//! Frontends with routes: what their plans share, and that services which only routes name are services like all others.

use super::*;
use crate::http::{Host, Request, Version};
use crate::plan::HttpOptions;
use crate::route::{Matched, SniMatch, SniRoute};
use crate::service::Service;

const ROUTES: &str = "[{path: /a, service: a}, {path: /b, service: b, rewrite: /}, {path: /c, status: 410}, {path: /d, redirect: {scheme: https}}]";

fn table(frontend: &str, weight: u16) -> String {
    format!(
        "{{version: 1, frontends: [{{name: f, bind: ['127.0.0.1:80'], {frontend}}}], services: [
            {{name: a, endpoints: [{{address: '10.0.0.1:80'}}]}},
            {{name: b, endpoints: [{{address: '10.0.0.2:80', weight: {weight}}}]}}
        ]}}"
    )
}

fn http(plan: &Plan) -> &Arc<HttpFrontend> {
    match plan.frontends[0].serves() {
        Serves::Http(http) => http,
        other => panic!("{other:?}"),
    }
}

fn get<'r>(host: &'r str, path: &'r str) -> Request<'r> {
    Request {
        method: "GET",
        path,
        query: None,
        host: Some(Host {
            name: host,
            port: Some(80),
        }),
        version: Version::Http11,
        fields: &[],
    }
}

fn route<'p>(plan: &'p Plan, path: &str) -> Matched<'p> {
    http(plan).routes().find(&get("a.org", path))
}

fn is_of(plan: &Plan, service: &Arc<Service>) -> bool {
    let name = service.state().name();
    plan.service(name)
        .is_some_and(|of_plan| Arc::ptr_eq(of_plan, service))
}

#[test]
fn plans_share_the_routes_that_stay_the_same() {
    let frontend = format!("protocol: http, routes: {ROUTES}, default: {{service: b}}");
    let (mut process, _) = process_with(&table(&frontend, 1));
    let first = compiled(&mut process, &table(&frontend, 1));
    assert!(Arc::ptr_eq(http(&process.plan), http(&first)));

    let second = compiled(&mut process, &table(&frontend, 2));
    assert!(!Arc::ptr_eq(http(&first), http(&second)));
    for (path, is_shared) in [
        ("/a", true),
        ("/b", false),
        ("/c", true),
        ("/d", true),
        ("/x", false),
    ] {
        let (before, after) = (route(&first, path), route(&second, path));
        assert_eq!(Arc::ptr_eq(before.route, after.route), is_shared, "{path}");
        assert_eq!(before.prefix_length, after.prefix_length);
        let forward = after.route.forward().into_iter();
        let mut services = forward.flat_map(|forward| forward.backends.services());
        assert!(services.all(|own| is_of(&second, own)));
    }
    assert!(Arc::ptr_eq(http(&first).options(), http(&second).options()));

    process.plan = second;
    for other in [
        frontend.replace("/c", "/e"),
        frontend.replace("http,", "http, http: {forwarded: true},"),
    ] {
        let plan = compiled(&mut process, &table(&other, 2));
        assert!(!Arc::ptr_eq(http(&process.plan), http(&plan)), "{other}");
    }
    let back = compiled(&mut process, &table(&frontend, 2));
    assert!(Arc::ptr_eq(http(&process.plan), http(&back)));
    let revised = revise(
        &back,
        Overrides::default(),
        &mut CompileContext {
            now: Moment(1000),
            workers: 2,
            ipv6: true,
            host: &LOOPBACK_ONLY,
            rng: &mut process.rng,
        },
    );
    assert!(Arc::ptr_eq(http(&back), http(&revised)));
}

#[test]
fn plans_share_the_routes_of_connections_that_stay_unopened() {
    let tls = "protocol: tls, routes: [{host: a.org, service: a}, {host: b.org, service: b}]";
    let https = "protocol: https, tls: {certificates: [{cert: c}]}, default: {status: 404}, routes: [{host: a.org, passthrough: true, service: a}, {host: b.org, passthrough: true, service: b}]";
    for frontend in [tls, https] {
        let (mut process, _) = process_with(&table(frontend, 1));
        let same = compiled(&mut process, &table(frontend, 1));
        let other = compiled(&mut process, &table(frontend, 2));
        let sni = |plan: &Plan, name: &str| -> Arc<SniRoute> {
            let routes = match plan.frontends[0].serves() {
                Serves::Tls(routes) => routes,
                Serves::Http(http) => http.unopened().unwrap(),
                serves => panic!("{serves:?}"),
            };
            match routes.find(Some(name), &[] as &[&str]) {
                SniMatch::Relay(route) => Arc::clone(route),
                found => panic!("{found:?}"),
            }
        };
        for (name, is_shared) in [("a.org", true), ("b.org", false)] {
            let first = sni(&process.plan, name);
            assert!(Arc::ptr_eq(&first, &sni(&same, name)));
            assert_eq!(Arc::ptr_eq(&first, &sni(&other, name)), is_shared);
            let route = sni(&other, name);
            assert!(route.backends.services().all(|own| is_of(&other, own)));
        }
    }
}

#[test]
fn a_service_that_only_routes_name_is_watched_as_any_other() {
    let frontend = format!("protocol: http, routes: {ROUTES}");
    let with_loop = table(&frontend, 1).replace("10.0.0.2:80", "127.0.0.1:80");
    let (mut process, _) = process_with(&with_loop);
    assert_eq!(process.plan.loops().of_service(1), [0]);
    assert_eq!(process.plan.loops().of_service(0), [0_usize; 0]);
    let gone = swap(&mut process, &table(&frontend, 1)).gone_endpoints;
    let gone: Vec<String> = gone
        .iter()
        .map(|gone| gone.endpoint.address().to_string())
        .collect();
    assert_eq!(gone, ["127.0.0.1:80"]);
}

#[test]
fn the_options_of_http_are_the_tables() {
    let of = |frontend: &str| {
        let (process, _) = process_with(&table(frontend, 1));
        HttpOptions::clone(http(&process.plan).options())
    };
    let second = std::time::Duration::from_secs;
    assert_eq!(
        of("protocol: http, default: {service: a}"),
        HttpOptions {
            is_https: false,
            http2: true,
            http2_streams: 100,
            http2_memory: 1 << 20,
            max_header_bytes: 65_536,
            max_headers: 128,
            x_forwarded_trust: None,
            request_timeout: second(5),
            keep_alive_timeout: second(60),
        }
    );
    let written = of("protocol: https, tls: {certificates: [{cert: c}]}, default: {service: a},
        timeouts: {request: 3s, keep-alive: 4s},
        http: {http2: false, max-header-bytes: 8KiB, max-headers: 20, x-forwarded-trust: [10.0.0.0/8]}");
    assert!(written.is_https && !written.http2);
    assert_eq!((written.max_header_bytes, written.max_headers), (8192, 20));
    assert_eq!(
        (written.request_timeout, written.keep_alive_timeout),
        (second(3), second(4))
    );
    let (near, far) = ("10.1.2.3".parse().unwrap(), "192.0.2.1".parse().unwrap());
    let trusted = written.x_forwarded_trust.unwrap();
    assert!(trusted.contains(near) && !trusted.contains(far));
}
