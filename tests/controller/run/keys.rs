//! Our own keys of HTTP, and those of clouds, without TLS.

use crate::run::edge::{at_the_edge, curl, endpoint, raw, service, slice, until_curl};

#[test]
fn host_path_and_rewrite_choose_together() {
    at_the_edge(|mut host| {
        endpoint("web", "127.0.0.1:8001");
        let mut manifest = slice("web", "", 8001, &["127.0.0.1"]);
        let services = [
            ("keep", "/keep", ""),
            ("strip", "/strip", "strip"),
            ("other", "/other, /second", "/v2"),
        ];
        for (name, path, rewrite) in services {
            let host = format!("ballast.dev/host: {name}.example.com, *.{name}.example.com");
            let path = format!("ballast.dev/path: {path}");
            let rewrite = format!("ballast.dev/rewrite: {rewrite}");
            let mut annotations = vec![&*host, &path];
            if !rewrite.ends_with(' ') {
                annotations.push(&rewrite);
            }
            manifest += &service(name, &annotations, "ports: [{port: 80}]");
            manifest += &slice(name, "", 8001, &["127.0.0.1"]);
        }
        host.manifest("all.yaml", &manifest);
        host.start();
        until_curl(
            &host,
            "-H Host:keep.example.com http://127.0.0.1/keep",
            |answer| answer.status == 200,
        );
        for (name, path, target) in [
            ("keep", "/keep/a?b", Some("/keep/a?b")),
            ("x.keep", "/keep/a", Some("/keep/a")),
            ("strip", "/strip/a", Some("/a")),
            ("strip", "/strip", Some("/")),
            ("strip", "/strip//evil", Some("/evil")),
            ("other", "/other/a", Some("/v2/a")),
            ("other", "/second", Some("/v2")),
            ("keep", "/strip", None),
            ("keep", "/keepa", None),
            ("x.y.keep", "/keep", Some("/keep")),
        ] {
            let answer = curl(&format!(
                "-H Host:{name}.example.com http://127.0.0.1{path}"
            ));
            assert_eq!(answer.target(), target, "{name} {path}: {answer:?}");
            let expected = if target.is_some() { 200 } else { 404 };
            assert_eq!(answer.status, expected, "{name} {path}");
        }
        assert_eq!(curl("http://127.0.0.1/keep").status, 404, "the host counts");
    });
}

#[test]
fn source_ranges_are_of_a_route_on_the_shared_port() {
    at_the_edge(|mut host| {
        endpoint("web", "127.0.0.1:8001");
        let manifest = [
            service("open", &["ballast.dev/path: /open"], "ports: [{port: 80}]"),
            slice("open", "", 8001, &["127.0.0.1"]),
            service(
                "closed",
                &[
                    "ballast.dev/path: /closed",
                    "ballast.dev/source-ranges: 10.0.0.0/8",
                ],
                "ports: [{port: 80}]",
            ),
            slice("closed", "", 8001, &["127.0.0.1"]),
        ];
        host.manifest("all.yaml", &manifest.concat());
        host.start();
        until_curl(&host, "http://127.0.0.1/open", |answer| {
            answer.status == 200
        });
        assert_eq!(curl("http://127.0.0.1/closed").status, 403);
    });
}

#[test]
fn a_load_balancer_speaks_http_where_its_keys_say_so() {
    at_the_edge(|mut host| {
        endpoint("web", "127.0.0.1:8001");
        let service_of = |name: &str, port: u16, annotations: &[&str]| {
            let spec = format!("type: LoadBalancer, ports: [{{port: {port}}}]");
            service(name, annotations, &spec) + &slice(name, "", 8001, &["127.0.0.1"])
        };
        let manifest = [
            service_of(
                "octavia",
                8081,
                &["loadbalancer.openstack.org/x-forwarded-for: true"],
            ),
            service_of("bytes", 8082, &[]),
            service_of(
                "hidden",
                8083,
                &[
                    "ballast.dev/mode: http",
                    "ballast.dev/x-forwarded-for: false",
                ],
            ),
            service_of(
                "moved",
                8084,
                &["ballast.dev/mode: http", "ballast.dev/external-port: 9084"],
            ),
            service_of("sticky", 8085, &["ballast.dev/cookie-sticky-session: true"]),
            service_of(
                "sent",
                8086,
                &["ballast.dev/mode: http", "ballast.dev/redirect-https: true"],
            ),
        ];
        host.manifest("all.yaml", &manifest.concat());
        host.start();
        let answer = until_curl(
            &host,
            "-H X-Forwarded-For:192.0.2.1 http://127.0.0.1:8081/a",
            |answer| answer.status == 200,
        );
        assert_eq!(
            answer.heard("X-Forwarded-For"),
            Some("192.0.2.1, 127.0.0.1")
        );
        assert_eq!(answer.heard("X-Forwarded-Port"), Some("8081"));
        assert_eq!(answer.target(), Some("/a"));
        assert_eq!(
            curl("http://127.0.0.1:8082/a").heard("X-Forwarded-For"),
            None
        );
        assert_eq!(
            curl("http://127.0.0.1:8083/a").heard("X-Forwarded-For"),
            None
        );
        assert_eq!(curl("http://127.0.0.1:9084/a").target(), Some("/a"));
        assert_eq!(curl("http://127.0.0.1:8084/a").status, 0);
        let answer = curl("http://127.0.0.1:8085/");
        assert!(
            answer
                .field("Set-Cookie")
                .is_some_and(|value| value.starts_with("SERVERID="))
        );
        let answer = curl("-H Host:a.example.com:8086 http://127.0.0.1:8086/a?b");
        assert!([301, 302, 307, 308].contains(&answer.status), "{answer:?}");
        assert_eq!(answer.field("Location"), Some("https://a.example.com/a?b"));
        // It is HTTP: what is none is answered, and no endpoint hears it.
        let answer = raw("127.0.0.1:8081", b"no request\r\n\r\n").expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    });
}
