//! TLS that ends at the edge, or passes it; and Secrets that change, vanish or are garbage.

use std::fs;
use std::process::Command;

use crate::run::edge::{at_the_edge, curl, endpoint, secret, service, slice, until_curl};
use crate::run::host::{Host, Program, until};
use support::papers::Papers;

/// The words of curl for a name of the shared HTTPS port, of which the certificate is checked.
fn https(papers: &Papers, host: &str, path: &str) -> String {
    https_at(papers, host, 443, path)
}

fn https_at(papers: &Papers, host: &str, port: u16, path: &str) -> String {
    format!(
        "--cacert {} --resolve {host}:{port}:127.0.0.1 https://{host}:{port}{path}",
        papers.named("ca.pem")
    )
}

/// A Secret with what was issued by this name.
fn issued(papers: &Papers, secret_name: &str, name: &str) -> String {
    let read = |ending: &str| {
        fs::read_to_string(papers.path(&format!("{name}.{ending}"))).expect("a file")
    };
    secret(secret_name, &read("crt"), &read("key"))
}

/// The file of `--ssl-cert`: a certificate and its key.
fn default_certificate(papers: &Papers, hosts: &[&str]) -> String {
    papers.issue("default", hosts);
    let read = |file: &str| fs::read_to_string(papers.path(file)).expect("a file");
    let both = read("default.crt") + &read("default.key");
    papers.write("default.pem", both.as_bytes());
    papers.named("default.pem")
}

/// A Service `web` on the shared HTTPS port, and its endpoint.
fn secure_web(host: &Host) {
    endpoint("web", "127.0.0.1:8001");
    let term = "serviceloadbalancer/lb.sslTerm: true";
    let manifest =
        service("web", &[term], "ports: [{port: 80}]") + &slice("web", "", 8001, &["127.0.0.1"]);
    host.manifest("all.yaml", &manifest);
}

#[test]
fn ssl_term_moves_a_service_to_https_and_redirect_https_leads_there() {
    at_the_edge(|mut host| {
        let papers = Papers::new();
        let pem = default_certificate(&papers, &["node.example.com"]);
        endpoint("web", "127.0.0.1:8001");
        let port = "ports: [{port: 80}]";
        let term = "serviceloadbalancer/lb.sslTerm: true";
        let manifest = [
            service("web", &[term], port),
            slice("web", "", 8001, &["127.0.0.1"]),
            service(
                "acl",
                &[term, "serviceloadbalancer/lb.aclMatch: /pics"],
                port,
            ),
            slice("acl", "", 8001, &["127.0.0.1"]),
            service("sent", &[term, "ballast.dev/redirect-https: true"], port),
            slice("sent", "", 8001, &["127.0.0.1"]),
            service("plain", &[], port),
            slice("plain", "", 8001, &["127.0.0.1"]),
        ];
        host.manifest("all.yaml", &manifest.concat());
        let flag = format!("--ssl-cert={pem}");
        host.flags(&["--http-services=all", &flag]);
        host.start();
        let node = |path: &str| https(&papers, "node.example.com", path);
        let answer = until_curl(&host, &node("/web/a"), |answer| answer.status == 200);
        assert_eq!(answer.target(), Some("/a"));
        assert_eq!(answer.heard("X-Forwarded-Proto"), Some("https"));
        assert_eq!(
            answer.field("Strict-Transport-Security"),
            Some("max-age=15768000")
        );
        assert_eq!(curl("http://127.0.0.1/web/a").status, 404);
        assert_eq!(curl("http://127.0.0.1/plain/a").status, 200);
        assert_eq!(curl(&node("/plain/a")).status, 404);
        assert_eq!(curl(&node("/pics/a")).target(), Some("/pics/a"));
        assert_eq!(
            curl(&node("/acl/a")).status,
            404,
            "aclMatch is in place of the name"
        );
        assert_eq!(curl(&node("/sent/a")).target(), Some("/a"));
        let sent = curl("-H Host:node.example.com http://127.0.0.1/sent/a?b");
        assert!([301, 302, 307, 308].contains(&sent.status), "{sent:?}");
        assert_eq!(
            sent.field("Location"),
            Some("https://node.example.com/sent/a?b")
        );
    });
}

#[test]
fn the_file_of_ssl_cert_is_followed_and_a_bad_one_keeps_the_last() {
    at_the_edge(|mut host| {
        let papers = Papers::new();
        let pem = default_certificate(&papers, &["node.example.com"]);
        secure_web(&host);
        let flag = format!("--ssl-cert={pem}");
        host.flags(&[&flag]);
        host.start();
        let node = https(&papers, "node.example.com", "/web/a");
        until_curl(&host, &node, |answer| answer.target() == Some("/a"));

        papers.write("default.pem", b"garbage");
        host.until_logged("what was there before is used");
        assert_eq!(curl(&node).target(), Some("/a"));

        default_certificate(&papers, &["node.example.com", "newer.example.com"]);
        let newer = https(&papers, "newer.example.com", "/web/a");
        until_curl(&host, &newer, |answer| answer.target() == Some("/a"));
        assert_eq!(curl(&node).target(), Some("/a"));
    });
}

#[test]
fn ssl_ca_cert_lets_in_who_has_a_certificate() {
    at_the_edge(|mut host| {
        let papers = Papers::new();
        let pem = default_certificate(&papers, &["node.example.com"]);
        papers.issue("client", &["client.example.com"]);
        secure_web(&host);
        let (cert, ca) = (format!("--ssl-cert={pem}"), papers.named("ca.pem"));
        let ca = format!("--ssl-ca-cert={ca}");
        host.flags(&[&cert, &ca]);
        host.start();
        let words = https(&papers, "node.example.com", "/web/a");
        let with = format!(
            "--cert {} --key {} {words}",
            papers.named("client.crt"),
            papers.named("client.key")
        );
        until_curl(&host, &with, |answer| answer.target() == Some("/a"));
        assert_eq!(curl(&words).status, 0);
    });
}

#[test]
fn a_secret_that_changes_vanishes_or_is_garbage_takes_out_itself_alone() {
    at_the_edge(|mut host| {
        let papers = Papers::new();
        papers.issue("one", &["one.example.com"]);
        papers.issue("again", &["one.example.com", "again.example.com"]);
        papers.issue("two", &["two.example.com"]);
        endpoint("one", "127.0.0.1:8001");
        endpoint("two", "127.0.0.1:8002");
        let port = "ports: [{port: 80}]";
        for (name, at) in [("one", 8001), ("two", 8002)] {
            let host_key = format!("ballast.dev/host: {name}.example.com");
            let secret_key = format!("ballast.dev/tls-secret: {name}");
            let manifest = service(name, &[&host_key, &secret_key], port)
                + &slice(name, "", at, &["127.0.0.1"]);
            host.manifest(&format!("{name}.yaml"), &manifest);
            host.manifest(&format!("secret-{name}.yaml"), &issued(&papers, name, name));
        }
        // A port of its own, with the same Secret.
        let own = service(
            "own",
            &["loadbalancer.openstack.org/default-tls-container-ref: one"],
            "type: LoadBalancer, ports: [{port: 8443}]",
        ) + &slice("own", "", 8001, &["127.0.0.1"]);
        host.manifest("own.yaml", &own);
        host.start();
        let one = https(&papers, "one.example.com", "/a");
        let two = https(&papers, "two.example.com", "/a");
        let own = https_at(&papers, "one.example.com", 8443, "/a");
        let is_of = |name: &'static str| {
            move |answer: &crate::run::edge::Answer| answer.endpoint() == Some(name)
        };
        until_curl(&host, &one, is_of("one"));
        until_curl(&host, &two, is_of("two"));
        let answer = until_curl(&host, &own, is_of("one"));
        assert_eq!(answer.heard("X-Forwarded-For"), Some("127.0.0.1"));
        assert_eq!(answer.heard("X-Forwarded-Proto"), Some("https"));

        // Changes: the newer certificate has a name more.
        host.manifest("secret-one.yaml", &issued(&papers, "one", "again"));
        let again = https_at(&papers, "again.example.com", 8443, "/a");
        until_curl(&host, &again, is_of("one"));
        until_curl(&host, &one, is_of("one"));

        let begin = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = fs::read_to_string(papers.path("two.key")).expect("a file");
        let good = fs::read_to_string(papers.path("one.crt")).expect("a file");
        let garbage = [
            secret("one", "garbage", "garbage"),
            secret("one", begin, &key),
            // Another certificate's key.
            secret("one", &good, &key),
            // It is gone.
            "kind: Service\nmetadata: {name: nothing}\n".to_owned(),
        ];
        for garbage in garbage {
            host.manifest("secret-one.yaml", &garbage);
            until_closed(&host, 8443, &garbage);
            until_curl(&host, &two, is_of("two"));
            assert_eq!(curl(&one).endpoint(), None, "{garbage}");
            host.manifest("secret-one.yaml", &issued(&papers, "one", "one"));
            until_curl(&host, &own, is_of("one"));
            until_curl(&host, &one, is_of("one"));
        }
        host.until_logged("SecretUnreadable");
        host.until_logged("is not that of the certificate");
    });
}

fn until_closed(host: &Host, port: u16, what: &str) {
    until(&format!("a closed port: {what}"), || {
        host.ask(port).is_err()
    });
}

#[test]
fn tls_passes_unopened_by_name_beside_names_that_end_here() {
    at_the_edge(|mut host| {
        let papers = Papers::new();
        let pem = default_certificate(&papers, &["node.example.com"]);
        papers.issue("pod", &["pod.example.com", "x.pods.example.com"]);
        endpoint("web", "127.0.0.1:8001");
        let _pod = tls_pod(&host, &papers, 9443);
        let port = "ports: [{port: 80}]";
        let manifest = [
            service("web", &["serviceloadbalancer/lb.sslTerm: true"], port),
            slice("web", "", 8001, &["127.0.0.1"]),
            service(
                "pod",
                &[
                    "ballast.dev/path: /",
                    "ballast.dev/tls-passthrough: pod.example.com, *.pods.example.com",
                ],
                port,
            ),
            slice("pod", "", 9443, &["127.0.0.1"]),
            service(
                "own",
                &["ballast.dev/mode: tls"],
                "type: LoadBalancer, ports: [{port: 8443}]",
            ),
            slice("own", "", 9443, &["127.0.0.1"]),
            service(
                "named",
                &[
                    "ballast.dev/mode: tls",
                    "ballast.dev/tls-passthrough: pod.example.com",
                ],
                "type: LoadBalancer, ports: [{port: 8444}]",
            ),
            slice("named", "", 9443, &["127.0.0.1"]),
        ];
        host.manifest("all.yaml", &manifest.concat());
        let flag = format!("--ssl-cert={pem}");
        host.flags(&[&flag]);
        host.start();
        until_curl(
            &host,
            &https(&papers, "node.example.com", "/web/a"),
            |answer| answer.target() == Some("/a"),
        );
        for (name, port) in [
            ("pod.example.com", 443),
            ("x.pods.example.com", 443),
            ("pod.example.com", 8443),
            ("pod.example.com", 8444),
        ] {
            let words = https_at(&papers, name, port, "/");
            until_curl(&host, &words, |answer| answer.body.contains("s_server"));
        }
        assert_eq!(
            curl(&https_at(&papers, "node.example.com", 8444, "/")).status,
            0
        );
    });
}

#[test]
fn where_tls_ends_on_a_tcp_port_plain_bytes_go_on() {
    at_the_edge(|mut host| {
        let papers = Papers::new();
        papers.issue("one", &["one.example.com"]);
        endpoint("one", "127.0.0.1:8001");
        let manifest = [
            issued(&papers, "one", "one"),
            service(
                "own",
                &["ballast.dev/tls-secret: one"],
                "type: LoadBalancer, ports: [{port: 8443}]",
            ),
            slice("own", "", 8001, &["127.0.0.1"]),
        ];
        host.manifest("all.yaml", &manifest.concat());
        host.start();
        let words = https_at(&papers, "one.example.com", 8443, "/a");
        let answer = until_curl(&host, &words, |answer| answer.target() == Some("/a"));
        assert_eq!(
            answer.heard("X-Forwarded-For"),
            None,
            "nobody reads HTTP there"
        );
    });
}

/// A pod that ends TLS itself.
fn tls_pod(host: &Host, papers: &Papers, port: u16) -> Program {
    let mut command = Command::new("openssl");
    command.args(["s_server", "-www", "-accept", &port.to_string()]);
    command.arg("-cert").arg(papers.path("pod.crt"));
    command.arg("-key").arg(papers.path("pod.key"));
    Program::start(&mut command, host.folder.path().join("pod.log"))
}
