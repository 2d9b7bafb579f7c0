//! Routes that ask for more than a host and a path, and what they change, for clients and endpoints of HTTP/2.

use http::Request;

use crate::http2::peers::{client, fetch, request};
use crate::http2::{SocketAddr, endpoints};
use support::{Ballast, run};

fn table(version: &str, endpoint: SocketAddr) -> String {
    let service = |name: &str| {
        format!(
            "{{name: {name}, http: {{version: {version}, request-headers: {{add: {{X-Way: {name}}}}}}}, endpoints: [{{address: \"{endpoint}\"}}]}}"
        )
    };
    let routes = "
      - {path: /, service: s}
      - path: /
        when: {headers: [{name: X-Canary, value: '1'}]}
        backends: [{service: s, weight: 0}, {service: next, request-headers: {add: {X-Way: backend}}, response-headers: {set: {x-from: backend}}}]
        request-headers: {set: {X-Way: route}}
        response-headers: {add: {x-from: route}}
        rewrite: {prefix: /inside, host: inside.example}
      - {path: /, when: {method: [PUT], query: [{name: v, value: '2'}]}, status: 410}
      - {path: /admin, source-ranges: [192.0.2.0/24], service: s}
      - {path: /hidden, source-ranges: [192.0.2.0/24], denied: {status: 404, response-headers: {set: {x-from: denial}}}, service: s}
      - {path: /none, service: none}
    errors: {503: {status: 200, response-headers: {set: {x-from: page}}}}";
    format!(
        "version: 1\nfrontends:\n  - name: f\n    bind: [\"127.0.0.1:0\"]\n    protocol: http\n    routes:{routes}\nservices: [{}, {}, {{name: none, endpoints: []}}]\n",
        service("s"),
        service("next")
    )
}

fn with_header(path: &str) -> Request<()> {
    let mut request = request("GET", path);
    request
        .headers_mut()
        .insert("x-canary", http::HeaderValue::from_static("1"));
    request
}

#[test]
fn routes_hold_for_requests_of_http2_as_for_others() {
    for (version, endpoint) in endpoints() {
        let ballast = Ballast::serve(&table(version, endpoint), 1);
        run(async {
            let client = client(ballast.address()).await;
            let get = |request| fetch(&client, request, None, None);

            let plain = get(request("GET", "/x?q")).await.unwrap();
            let text = plain.text().to_lowercase();
            assert!(
                text.contains("/x?q") && text.contains("shop.example"),
                "{text}"
            );
            assert!(text.contains("x-way: s\n"), "{text}");

            let canary = get(with_header("/x?q")).await.unwrap();
            let text = canary.text().to_lowercase();
            assert!(text.contains("/inside/x?q"), "{text}");
            assert!(text.contains("inside.example"), "{text}");
            let ways: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("x-way: "))
                .collect();
            assert_eq!(ways, ["route", "backend", "next"], "{version}: {text}");

            let mut sender = client.clone().ready().await.unwrap();
            let (response, _) = sender.send_request(with_header("/x"), true).unwrap();
            let response = response.await.unwrap();
            let from: Vec<&[u8]> = response
                .headers()
                .get_all("x-from")
                .iter()
                .map(|value| value.as_bytes())
                .collect();
            assert_eq!(from, [&b"backend"[..], b"route"], "{version}");

            for (method, path, status, from) in [
                ("GET", "/hidden", 404, "denial"),
                ("HEAD", "//hidden", 404, "denial"),
                ("GET", "/none", 200, "page"),
                ("HEAD", "/none", 200, "page"),
            ] {
                let mut sender = client.clone().ready().await.unwrap();
                let (response, _) = sender.send_request(request(method, path), true).unwrap();
                let response = response.await.unwrap();
                assert_eq!(response.status().as_u16(), status, "{method} {path}");
                assert_eq!(response.headers()["x-from"], from, "{method} {path}");
            }

            for (method, path, status) in [
                ("PUT", "/x?v=2", 410),
                ("PUT", "/x?v=1&v=2", 200),
                ("GET", "/x?v=2", 200),
                ("GET", "/admin", 403),
                ("GET", "//admin", 403),
                ("GET", "/%61dmin/x", 403),
                ("GET", "/x/../admin", 403),
                ("GET", "/admin%2fx", 200),
            ] {
                let answer = get(request(method, path)).await.unwrap();
                assert_eq!(answer.status, status, "{version}: {method} {path}");
            }
        });
    }
}
