//! The shapes of service-loadbalancer on plain HTTP: a Service by its name, and what its annotations and flags change.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::run::edge::{
    Answer, at_the_edge, curl, endpoint, h2_endpoint, server, service, slice, until_curl,
};

#[test]
fn every_shape_of_a_name_leads_to_its_service() {
    at_the_edge(|mut host| {
        endpoint("web", "127.0.0.1:8001");
        endpoint("web-8000", "127.0.0.1:8002");
        endpoint("others", "127.0.0.1:8003");
        endpoint("headless", "127.0.0.1:8004");
        endpoint("outside", "127.0.0.1:8005");
        let two = "ports: [{name: a, port: 80}, {name: b, port: 8000}]";
        let manifest = [
            service("web", &[], two),
            slice("web", "a", 8001, &["127.0.0.1"]),
            slice("web", "b", 8002, &["127.0.0.1"]),
            service("shop/web", &[], "ports: [{port: 80}]"),
            slice("shop/web", "", 8003, &["127.0.0.1"]),
            service("shop/bare", &[], "type: NodePort, ports: [{port: 80}]"),
            slice("shop/bare", "", 8003, &["127.0.0.1"]),
            service("headless", &[], "clusterIP: None, ports: [{port: 80}]"),
            slice("headless", "", 8004, &["127.0.0.1"]),
            service(
                "outside",
                &[],
                "type: ExternalName, externalName: 127.0.0.1, ports: [{port: 80, targetPort: 8005}]",
            ),
            service(
                "named",
                &[],
                "type: ExternalName, externalName: localhost, ports: [{port: 80, targetPort: 8005}]",
            ),
            service("empty", &[], "ports: [{port: 80}]"),
            service("datagrams", &[], "ports: [{port: 80, protocol: UDP}]"),
        ];
        host.manifest("all.yaml", &manifest.concat());
        host.flags(&["--http-services=all"]);
        host.start();
        until_curl(&host, "http://127.0.0.1/web", |answer| answer.status == 200);
        for (path, endpoint, target) in [
            ("/web", "web", "/"),
            ("/web/", "web", "/"),
            ("/web/a/b?c=d", "web", "/a/b?c=d"),
            ("/web?c=d", "web", "/?c=d"),
            ("/default/web/a", "web", "/a"),
            ("/web:8000", "web-8000", "/"),
            ("/web:8000/a", "web-8000", "/a"),
            ("/default/web:8000/a", "web-8000", "/a"),
            ("/shop/web/a", "others", "/a"),
            ("/shop/bare/a", "others", "/a"),
            ("/bare/a", "others", "/a"),
            ("/headless/a", "headless", "/a"),
            ("/outside/a", "outside", "/a"),
        ] {
            let answer = curl(&format!("http://127.0.0.1{path}"));
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            assert_eq!(answer.endpoint(), Some(endpoint), "{path}");
            assert_eq!(answer.target(), Some(target), "{path}");
            assert_eq!(answer.heard("X-Forwarded-For"), Some("127.0.0.1"), "{path}");
            assert_eq!(answer.heard("X-Forwarded-Proto"), Some("http"), "{path}");
        }
        until_curl(&host, "http://127.0.0.1/named/a", |answer| {
            answer.endpoint() == Some("outside") && answer.target() == Some("/a")
        });
        for path in ["/", "/webfoo", "/web:80", "/nobody", "/shop", "/datagrams"] {
            assert_eq!(
                curl(&format!("http://127.0.0.1{path}")).status,
                404,
                "{path}"
            );
        }
        assert_eq!(curl("http://127.0.0.1/empty").status, 503);
        // What answered before a Service was there, and after it went.
        host.remove("all.yaml");
        until_curl(&host, "http://127.0.0.1/web", |answer| answer.status == 404);
    });
}

#[test]
fn a_controller_that_begins_beside_a_dead_name_server_leaves_no_gap() {
    at_the_edge(|mut host| {
        endpoint("outside", "127.0.0.1:8005");
        let outside = |name: &str| {
            let spec = format!(
                "type: ExternalName, externalName: {name}, ports: [{{port: 80, targetPort: 8005}}]"
            );
            service("outside", &[], &spec)
        };
        host.manifest("outside.yaml", &outside("127.0.0.1"));
        host.flags(&["--http-services=all"]);
        host.start();
        let is_served = |answer: &Answer| answer.endpoint() == Some("outside");
        until_curl(&host, "http://127.0.0.1/outside/a", is_served);
        host.controller.take().expect("a controller").kill();

        // No name server is reached from here.
        host.manifest("outside.yaml", &outside("db.example.com"));
        host.start_controller();
        host.until_logged("does not resolve");
        // A table of the new process.
        host.manifest("web.yaml", &service("web", &[], "ports: [{port: 80}]"));
        until_curl(&host, "http://127.0.0.1/web", |answer| answer.status == 503);
        assert!(is_served(&curl("http://127.0.0.1/outside/a")));

        // Those of one name are not another one's.
        host.manifest("outside.yaml", &outside("other.example.com"));
        let is_gone = |answer: &Answer| answer.status == 503;
        until_curl(&host, "http://127.0.0.1/outside/a", is_gone);
    });
}

#[test]
fn the_annotations_of_service_loadbalancer_choose_by_host_path_and_cookie() {
    at_the_edge(|mut host| {
        for (name, port) in [("host", 8001), ("acl", 8002), ("one", 8003), ("two", 8003)] {
            let address = if name == "two" {
                "127.0.0.2"
            } else {
                "127.0.0.1"
            };
            endpoint(name, &format!("{address}:{port}"));
        }
        let port = "ports: [{port: 80}]";
        let manifest = [
            service(
                "host",
                &["serviceloadbalancer/lb.host: a.example.com"],
                port,
            ),
            slice("host", "", 8001, &["127.0.0.1"]),
            service(
                "acl",
                &["serviceloadbalancer/lb.aclMatch: -i /Pics /more"],
                port,
            ),
            slice("acl", "", 8002, &["127.0.0.1"]),
            service(
                "sticky",
                &["serviceloadbalancer/lb.cookie-sticky-session: true"],
                port,
            ),
            slice("sticky", "", 8003, &["127.0.0.1", "127.0.0.2"]),
        ];
        host.manifest("all.yaml", &manifest.concat());
        // Without --http-services=all: those that carry one of its annotations.
        host.manifest("silent.yaml", &service("silent", &[], port));
        host.start();
        until_curl(&host, "http://127.0.0.1/host", |answer| {
            answer.status == 200
        });
        assert_eq!(curl("http://127.0.0.1/silent").status, 404);
        for (words, endpoint, target) in [
            ("-H Host:a.example.com http://127.0.0.1/a", "host", "/a"),
            ("-H Host:A.Example.com:80 http://127.0.0.1/a", "host", "/a"),
            (
                "-H Host:a.example.com http://127.0.0.1/host/a",
                "host",
                "/a",
            ),
            ("http://127.0.0.1/host/a", "host", "/a"),
            ("http://127.0.0.1/pics/a", "acl", "/pics/a"),
            ("http://127.0.0.1/PICSA", "acl", "/PICSA"),
            ("http://127.0.0.1/more", "acl", "/more"),
            ("http://127.0.0.1/acl/a", "acl", "/a"),
        ] {
            let answer = curl(words);
            assert_eq!(answer.endpoint(), Some(endpoint), "{words}: {answer:?}");
            assert_eq!(answer.target(), Some(target), "{words}");
        }
        assert_eq!(curl("-H Host:b.example.com http://127.0.0.1/a").status, 404);

        let first = curl("http://127.0.0.1/sticky/");
        let cookie = first.field("Set-Cookie").expect("a cookie").to_owned();
        let (pair, _) = cookie.split_once(';').unwrap_or((&cookie, ""));
        assert!(pair.starts_with("SERVERID="), "{cookie}");
        assert!(
            first
                .field("Cache-Control")
                .is_some_and(|value| value.contains("private"))
        );
        let name = first.endpoint().expect("an endpoint").to_owned();
        for _ in 0..4 {
            let again = curl(&format!(
                "-H Cookie:mine=1;{{h}}{pair} http://127.0.0.1/sticky/"
            ));
            assert_eq!(again.endpoint(), Some(&*name));
            assert_eq!(again.heard("Cookie"), Some("mine=1"));
            assert_eq!(again.field("Set-Cookie"), None);
        }
    });
}

#[test]
fn target_service_is_the_only_one_and_forward_services_go_to_the_cluster_address() {
    at_the_edge(|mut host| {
        endpoint("cluster", "127.0.0.9:8090");
        endpoint("pod", "127.0.0.1:8001");
        let spec = "clusterIP: 127.0.0.9, ports: [{port: 8090, targetPort: 8001}]";
        let manifest = [
            service("web", &[], spec),
            slice("web", "", 8001, &["127.0.0.1"]),
            service("other", &[], spec),
            slice("other", "", 8001, &["127.0.0.1"]),
        ];
        host.manifest("all.yaml", &manifest.concat());
        host.flags(&[
            "--http-services=all",
            "--forward-services",
            "--target-service=web",
        ]);
        host.start();
        let answer = until_curl(&host, "http://127.0.0.1/web:8090/a", |answer| {
            answer.status == 200
        });
        assert_eq!(answer.endpoint(), Some("cluster"));
        assert_eq!(answer.target(), Some("/a"));
        assert_eq!(curl("http://127.0.0.1/other:8090/a").status, 404);
    });
}

#[test]
fn the_default_page_is_a_file_with_the_code_of_a_flag() {
    at_the_edge(|mut host| {
        let page = host.folder.path().join("404.http");
        fs::write(&page, "<p>a page of a file").expect("a file");
        let flag = format!("--error-page=file://{}", page.display());
        host.flags(&["--http-services=all", "--default-return-code=410", &flag]);
        host.start();
        let answer = until_curl(&host, "http://127.0.0.1/nobody", |answer| {
            answer.status == 410
        });
        assert_eq!(answer.body, "<p>a page of a file");
        assert!(
            answer
                .field("Content-Type")
                .is_some_and(|value| value.starts_with("text/html"))
        );
    });
}

#[test]
fn the_default_page_of_a_url_comes_when_its_server_has_it_and_is_kept() {
    at_the_edge(|mut host| {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        server("127.0.0.1:9000", move || {
            match count.fetch_add(1, Ordering::Relaxed) {
                0 => (500, b"broken".to_vec()),
                1 => (200, vec![b'x'; 2 << 20]),
                _ => (200, b"<p>a page of a server".to_vec()),
            }
        });
        host.flags(&[
            "--http-services=all",
            "--error-page=http://127.0.0.1:9000/a?b",
        ]);
        host.start();
        // Until it comes there is another one.
        let answer = until_curl(&host, "http://127.0.0.1/nobody", |answer| {
            answer.status == 404
        });
        assert_ne!(answer.body, "");
        host.until_logged("answered 500");
        host.until_logged("is larger than 1 MiB");
        until_curl(&host, "http://127.0.0.1/nobody", |answer| {
            answer.body == "<p>a page of a server" && answer.status == 404
        });
        let times = asked.load(Ordering::Relaxed);
        // It is asked once: a change of something else asks nobody.
        host.manifest("web.yaml", &service("web", &[], "ports: [{port: 80}]"));
        until_curl(&host, "http://127.0.0.1/web", |answer| answer.status == 503);
        assert_eq!(asked.load(Ordering::Relaxed), times);
    });
}

#[test]
fn a_load_balancer_on_port_80_takes_it_from_names_that_nobody_asked_for() {
    at_the_edge(|mut host| {
        endpoint("named", "127.0.0.1:8001");
        endpoint("balanced", "127.0.0.1:8002");
        let named = [
            service("web", &[], "ports: [{port: 80}]"),
            slice("web", "", 8001, &["127.0.0.1"]),
        ];
        host.manifest("web.yaml", &named.concat());
        host.flags(&["--http-services=all"]);
        host.start();
        until_curl(&host, "http://127.0.0.1/web/a", |answer| {
            answer.target() == Some("/a")
        });

        let balanced = [
            service("edge", &[], "type: LoadBalancer, ports: [{port: 80}]"),
            slice("edge", "", 8002, &["127.0.0.1"]),
        ];
        host.manifest("edge.yaml", &balanced.concat());
        let answer = until_curl(&host, "http://127.0.0.1/web/a", |answer| {
            answer.endpoint() == Some("balanced")
        });
        assert_eq!(answer.target(), Some("/web/a"), "bytes are relayed");
        host.until_logged("RoutesWithdrawn");

        host.remove("edge.yaml");
        until_curl(&host, "http://127.0.0.1/web/a", |answer| {
            answer.target() == Some("/a")
        });
    });
}

#[test]
fn an_app_protocol_of_h2c_gets_http2_by_prior_knowledge() {
    at_the_edge(|mut host| {
        h2_endpoint("grpc", "127.0.0.1:8001");
        endpoint("web", "127.0.0.1:8002");
        let manifest = [
            service(
                "grpc",
                &[],
                "ports: [{name: a, port: 80, appProtocol: kubernetes.io/h2c}, {name: b, port: 8000}]",
            ),
            slice("grpc", "a", 8001, &["127.0.0.1"]),
            slice("grpc", "b", 8002, &["127.0.0.1"]),
        ];
        host.manifest("all.yaml", &manifest.concat());
        host.flags(&["--http-services=all"]);
        host.start();
        // The client speaks HTTP/1.1.
        let grpc = until_curl(&host, "http://127.0.0.1/grpc/a?b", |answer| {
            answer.endpoint() == Some("grpc")
        });
        assert_eq!(grpc.body.lines().next(), Some("GET /a?b HTTP/2.0"));
        assert_eq!(grpc.heard("X-Forwarded-For"), Some("127.0.0.1"));
        // The other port of the Service has no protocol, and its endpoint gets HTTP/1.1.
        let web = curl("http://127.0.0.1/grpc:8000/a?b");
        assert_eq!(web.endpoint(), Some("web"));
        assert_eq!(web.body.lines().next(), Some("GET /a?b HTTP/1.1"));
        // Without the protocol, the endpoint of HTTP/2 gets bytes that it does not understand.
        let manifest = [
            service("grpc", &[], "ports: [{name: a, port: 80}]"),
            slice("grpc", "a", 8001, &["127.0.0.1"]),
        ];
        host.manifest("all.yaml", &manifest.concat());
        until_curl(&host, "http://127.0.0.1/grpc/a?b", |answer| {
            answer.status == 502
        });
    });
}
