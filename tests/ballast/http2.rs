//! `ballast`: HTTP/2: clients by prior knowledge, endpoints, and both mixed with HTTP/1.

mod anew;
mod broken;
mod dials;
mod differential;
mod drain;
mod fairness;
mod grpc;
mod limits;
mod moved;
mod peers;
mod programs;
mod repeats;
mod routes;
mod silence;
mod site;
pub(crate) mod strict;
mod translation;
mod truncation;

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use h2::client::SendRequest;
use http::HeaderMap;
use peers::{
    LARGE, client, fetch, h1_endpoint, h2_endpoint, pattern, read_all, request, rest, send_all,
};
use support::papers::Papers;
use support::{Ballast, run};
use tokio::task::spawn_local;
use tokio::time::timeout;

#[test]
fn requests_of_http2_reach_endpoints_of_both_versions() {
    for (version, endpoint) in endpoints() {
        let ballast = Ballast::serve(&table("", version, endpoint), 1);
        run(async {
            let client = client(ballast.address()).await;
            let answer = fetch(&client, request("GET", "/some?q=1"), None, None)
                .await
                .unwrap();
            assert_eq!(answer.status, 200, "{version}");
            let text = answer.text();
            assert!(text.contains("/some?q=1"), "{text}");
            assert!(text.contains("shop.example"), "{text}");
            assert!(
                text.to_lowercase().contains("x-forwarded-for: 127.0.0.1\n"),
                "{text}"
            );
            assert!(
                text.to_lowercase().contains("x-forwarded-proto: http\n"),
                "{text}"
            );

            let large = fetch(&client, request("GET", "/large"), None, None)
                .await
                .unwrap();
            assert!(large.body == pattern(LARGE), "{version}");

            let sent = pattern(LARGE);
            let echoed = fetch(&client, request("POST", "/echo"), Some(sent.clone()), None);
            assert!(echoed.await.unwrap().body == sent, "{version}");

            let mut with_length = request("PUT", "/echo");
            with_length
                .headers_mut()
                .insert("content-length", LARGE.into());
            let echoed = fetch(&client, with_length, Some(sent.clone()), None);
            assert!(echoed.await.unwrap().body == sent, "{version}");

            let head = fetch(&client, request("HEAD", "/large"), None, None);
            if version == "h2" {
                // It may have come together with the head, or later.
                let is_failed = head.await.map_or(true, |answer| answer.status == 502);
                assert!(is_failed, "the endpoint sent a body");
            }
        });
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}

#[test]
fn a_hundred_requests_share_one_connection_on_each_side() {
    let (endpoint, seen) = h2_endpoint(1_000, usize::MAX);
    let ballast = Ballast::serve(&table("", "h2", endpoint), 1);
    run(async {
        let client = client(ballast.address()).await;
        let tasks: Vec<_> = (0..100)
            .map(|number| {
                let client = client.clone();
                spawn_local(async move {
                    let body = Bytes::from(format!("{number}"));
                    let answer = fetch(&client, request("POST", "/echo"), Some(body.clone()), None);
                    assert_eq!(answer.await.unwrap().body, body);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(seen.requests.load(Ordering::Relaxed), 100);
    assert_eq!(seen.connections.load(Ordering::Relaxed), 1);
}

#[test]
fn an_endpoint_gets_no_more_requests_at_once_by_one_connection_than_it_allows() {
    let (endpoint, seen) = h2_endpoint(3, usize::MAX);
    let ballast = Ballast::serve(&table("", "h2", endpoint), 1);
    run(async {
        let client = client(ballast.address()).await;
        fetch(&client, request("GET", "/"), None, None)
            .await
            .unwrap();
        let hanging: Vec<_> = (0..7)
            .map(|_| {
                let client = client.clone();
                spawn_local(
                    async move { fetch(&client, request("GET", "/hang"), None, None).await },
                )
            })
            .collect();
        until(|| seen.requests.load(Ordering::Relaxed) == 8).await;
        let answer = fetch(&client, request("GET", "/"), None, None)
            .await
            .unwrap();
        assert_eq!(answer.status, 200);
        for task in hanging {
            task.abort();
        }
    });
    assert_eq!(seen.connections.load(Ordering::Relaxed), 3);
}

#[test]
fn trailers_pass_in_both_directions() {
    for (version, endpoint) in endpoints() {
        let ballast = Ballast::serve(&table("", version, endpoint), 1);
        run(async {
            let client = client(ballast.address()).await;
            let mut trailers = HeaderMap::new();
            trailers.insert("x-up", "42".parse().unwrap());
            let mut call = request("POST", "/echo");
            call.headers_mut().insert("te", "trailers".parse().unwrap());
            let answer = fetch(&client, call, Some("body".into()), Some(trailers))
                .await
                .unwrap();
            assert_eq!(answer.body, b"body", "{version}");
            assert_eq!(answer.trailers.unwrap()["x-down"], "42", "{version}");
        });
        // A client of HTTP/1 to both, too.
        let mut client = ballast.connect();
        client
            .write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-up: 7\r\n\r\n")
            .unwrap();
        let text = String::from_utf8(rest(client)).unwrap();
        assert!(
            text.contains("\r\n3\r\nabc\r\n0\r\nx-down: 7\r\n\r\n"),
            "{text}"
        );
    }
}

#[test]
fn interim_responses_pass() {
    let ballast = Ballast::serve(&table("", "h1", h1_endpoint()), 1);
    run(async {
        let mut client = client(ballast.address()).await.ready().await.unwrap();
        let (mut response, mut send) = client
            .send_request(request("POST", "/echo"), false)
            .unwrap();
        send.send_data("x".into(), true).unwrap();
        let interim = poll_fn(|cx| response.poll_informational(cx)).await;
        let interim = interim.unwrap().unwrap();
        assert_eq!(interim.status().as_u16(), 103);
        assert_eq!(interim.headers()["link"], "</a>");
        assert_eq!(response.await.unwrap().status().as_u16(), 200);
    });
}

#[test]
fn both_directions_stream_like_grpc() {
    let (endpoint, _) = h2_endpoint(100, usize::MAX);
    let ballast = Ballast::serve(&table("", "h2", endpoint), 1);
    run(async {
        let mut client = client(ballast.address()).await.ready().await.unwrap();
        let mut call = request("POST", "/echo");
        call.headers_mut().insert("te", "trailers".parse().unwrap());
        let (response, mut send) = client.send_request(call, false).unwrap();
        // The response begins before the request has a body.
        let mut response = response.await.unwrap().into_body();
        for number in 0..20 {
            let message = Bytes::from(format!("message {number}"));
            send_all(&mut send, message.clone(), false).await.unwrap();
            let heard = response.data().await.unwrap().unwrap();
            assert_eq!(heard, message);
            response
                .flow_control()
                .release_capacity(heard.len())
                .unwrap();
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-up", "0".parse().unwrap());
        send.send_trailers(trailers).unwrap();
        assert_eq!(read_all(&mut response).await.unwrap(), b"");
        assert_eq!(response.trailers().await.unwrap().unwrap()["x-down"], "0");
    });
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn clients_of_http1_reach_endpoints_of_http2() {
    let (endpoint, seen) = h2_endpoint(100, usize::MAX);
    let ballast = Ballast::serve(&table("", "h2", endpoint), 1);
    let mut client = ballast.connect();
    client.write_all(b"GET /a HTTP/1.1\r\nHost: one\r\nConnection: x-a\r\nX-A: 1\r\n\r\nGET /b HTTP/1.0\r\nHost: two\r\n\r\n").unwrap();
    let text = String::from_utf8(rest(&client)).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.contains("GET http://one/a\n"), "{text}");
    assert!(text.contains("GET http://two/b\n"), "{text}");
    assert!(!text.contains("x-a: 1"), "{text}");
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2, "{text}");
    // The second response has no chunks.
    assert_eq!(
        text.matches("ransfer-Encoding: chunked").count(),
        1,
        "{text}"
    );

    let mut client = ballast.connect();
    client.write_all(b"GET /large HTTP/1.0\r\n\r\n").unwrap();
    let all = rest(&client);
    assert!(all.ends_with(&pattern(LARGE)));

    let mut client = ballast.connect();
    let sent = pattern(LARGE);
    let head = format!("POST /echo HTTP/1.0\r\nContent-Length: {LARGE}\r\n\r\n");
    let mut writer = client.try_clone().unwrap();
    let body = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(head.as_bytes()).unwrap();
        writer.write_all(&body).unwrap();
    });
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    writing.join().unwrap();
    assert!(all.ends_with(&sent));
    // The first request of a client takes no idle connection if it cannot be repeated.
    assert_eq!(seen.connections.load(Ordering::Relaxed), 2);
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn a_reset_of_either_side_is_passed_on_and_releases_the_endpoint() {
    let (h2, seen) = h2_endpoint(100, usize::MAX);
    for (version, endpoint) in [("h1", h1_endpoint()), ("h2", h2)] {
        let ballast = Ballast::serve(&table("", version, endpoint), 1);
        run(async {
            let client = client(ballast.address()).await;
            let mut ready = client.clone().ready().await.unwrap();
            let (response, mut send) = ready.send_request(request("GET", "/hang"), true).unwrap();
            until(|| ballast.in_flight() == 1).await;
            send.send_reset(Reason::CANCEL);
            drop(response);
            until(|| ballast.in_flight() == 0).await;
            // The connection goes on.
            let answer = fetch(&client, request("GET", "/"), None, None)
                .await
                .unwrap();
            assert_eq!(answer.status, 200);
            if version == "h2" {
                until(|| seen.resets.load(Ordering::Relaxed) == 1).await;
                let reset = fetch(&client, request("GET", "/reset"), None, None).await;
                let reason = reset.unwrap_err().reason();
                assert_eq!(reason, Some(Reason::ENHANCE_YOUR_CALM));
            }
            // So does a client's end.
            let mut ready = client.ready().await.unwrap();
            let hanging = ready.send_request(request("GET", "/hang"), true).unwrap();
            until(|| ballast.in_flight() == 1).await;
            drop((ready, hanging));
            until(|| ballast.in_flight() == 0).await;
        });
    }
}

#[test]
fn requests_that_are_no_good_are_refused_alone() {
    let options = ", http: {max-header-bytes: 4KiB, max-headers: 20}";
    let ballast = Ballast::serve(&table(options, "h1", h1_endpoint()), 1);
    run(async {
        let client = client(ballast.address()).await;
        let status = async |request: http::Request<()>| {
            let answer = fetch(&client, request, None, None).await;
            answer.map(|answer| answer.status)
        };
        let with = |name: &'static str, value: &str| {
            let mut request = request("GET", "/");
            let value = value.parse().expect("a value");
            request.headers_mut().insert(name, value);
            request
        };
        assert_eq!(status(with("host", "shop.example")).await.unwrap(), 200);
        assert_eq!(status(with("host", "SHOP.example:80")).await.unwrap(), 200);
        assert_eq!(status(with("host", "other.example")).await.unwrap(), 400);
        assert_eq!(status(with("expect", "miracles")).await.unwrap(), 417);
        assert_eq!(
            status(with("x-long", &"a".repeat(5_000))).await.unwrap(),
            431
        );
        let mut many = request("GET", "/");
        for number in 0..21 {
            let name: http::HeaderName = format!("x-{number}").parse().unwrap();
            many.headers_mut().insert(name, "1".parse().unwrap());
        }
        assert_eq!(status(many).await.unwrap(), 431);
        let connect = http::Request::connect("shop.example:443").body(()).unwrap();
        assert_eq!(status(connect).await.unwrap(), 405);
        assert_eq!(status(request("GET", "/")).await.unwrap(), 200);
    });
}

#[test]
fn where_http2_is_off_its_preface_is_a_bad_request() {
    let ballast = Ballast::serve(&table(", http: {http2: false}", "h1", h1_endpoint()), 1);
    let mut client = ballast.connect();
    client
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .unwrap();
    let text = String::from_utf8(rest(client)).unwrap();
    assert!(text.starts_with("HTTP/1.1 505 "), "{text}");
}

#[test]
fn the_preface_may_come_byte_by_byte() {
    let ballast = Ballast::serve(&table("", "h1", h1_endpoint()), 1);
    let mut client = ballast.connect();
    client.set_nodelay(true).unwrap();
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
        client.write_all(&[*byte]).unwrap();
        support::pause(Duration::from_millis(2));
    }
    // An empty SETTINGS frame. The answer is one, too.
    client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    let mut head = [0; 9];
    client.read_exact(&mut head).unwrap();
    assert_eq!(head[3], 4);
}

#[test]
fn a_client_that_asks_for_nothing_is_told_to_go() {
    let timeouts = ", timeouts: {request: 300ms, keep-alive: 300ms}";
    let ballast = Ballast::serve(&table(timeouts, "h1", h1_endpoint()), 1);
    let mut silent = ballast.connect();
    silent
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    run(async {
        let client = client(ballast.address()).await;
        fetch(&client, request("GET", "/"), None, None)
            .await
            .unwrap();
        // A request that lasts keeps the connection.
        let mut ready = client.clone().ready().await.unwrap();
        let hanging = ready.send_request(request("GET", "/hang"), true).unwrap();
        support::pause_async(Duration::from_millis(800)).await;
        fetch(&client, request("GET", "/"), None, None)
            .await
            .unwrap();
        drop(hanging);
        timeout(Duration::from_secs(5), async {
            while fetch(&client, request("GET", "/hang"), None, None)
                .await
                .is_ok()
            {}
        })
        .await
        .unwrap_err();
    });
    // GOAWAY is a frame of type 7.
    let heard = rest(silent);
    assert!(
        heard.windows(6).any(|frame| frame == [0, 0, 8, 7, 0, 0]),
        "{heard:?}"
    );
}

/// The crate `h2` bounds the size of such a head. Its time is bounded by the other requests of the connection.
#[test]
fn a_connection_whose_client_never_ends_a_head_is_closed() {
    let timeouts = ", timeouts: {request: 300ms, keep-alive: 300ms}";
    let (endpoint, _) = h2_endpoint(100, usize::MAX);
    let table = table(timeouts, "h2", endpoint);
    let table = table.replace("endpoints:", "timeouts: {server: 1s}, endpoints:");
    let ballast = Ballast::serve(&table, 1);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // GET, http, shop.example and the path `/hang`, by HPACK's static table.
    let head = b"\x82\x86\x41\x0cshop.example\x44\x05/hang";
    let length = u8::try_from(head.len()).unwrap();
    for active in [false, true] {
        let mut sent = preface.to_vec();
        let stream = if active {
            sent.extend([0, 0, length, HEADERS, END_STREAM | END_HEADERS, 0, 0, 0, 1]);
            sent.extend(head);
            3
        } else {
            1
        };
        sent.extend([0, 0, length, HEADERS, END_STREAM, 0, 0, 0, stream]);
        sent.extend(head);
        sent.extend([0, 0, 200, CONTINUATION, 0, 0, 0, 0, stream]);
        let mut client = ballast.connect();
        client.write_all(&sent).unwrap();
        let mut dripping = client.try_clone().unwrap();
        let begun = Instant::now();
        std::thread::spawn(move || {
            while begun.elapsed() < Duration::from_secs(15) && dripping.write_all(&[0x82]).is_ok() {
                support::pause(Duration::from_millis(100));
            }
        });
        let heard = rest(client);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?}");
        // GOAWAY is a frame of type 7.
        let has_goaway = heard.windows(4).any(|frame| frame == [0, 8, 7, 0]);
        assert!(has_goaway, "{heard:?}");
    }
}

#[test]
fn a_draining_node_says_goaway_and_ends_what_has_begun() {
    let (endpoint, _) = h2_endpoint(100, usize::MAX);
    let ballast = Ballast::serve(&table("", "h2", endpoint), 1);
    let address = ballast.address();
    run(async {
        let client = client(address).await;
        let mut ready = client.clone().ready().await.unwrap();
        let (response, mut send) = ready.send_request(request("POST", "/echo"), false).unwrap();
        let mut response = response.await.unwrap().into_body();
        let Ballast { running, .. } = ballast;
        let drained = spawn_local(running.drain(std::future::ready(())));
        timeout(Duration::from_secs(5), async {
            while fetch(&client, request("GET", "/"), None, None)
                .await
                .is_ok()
            {
                support::pause_async(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("GOAWAY");
        send_all(&mut send, "the end".into(), true).await.unwrap();
        assert_eq!(read_all(&mut response).await.unwrap(), b"the end");
        drop((send, response, ready, client));
        assert_eq!(drained.await.unwrap(), 0, "nothing was cut");
    });
}

#[test]
fn an_endpoint_that_says_goaway_costs_no_request() {
    let (endpoint, seen) = h2_endpoint(100, 7);
    let ballast = Ballast::serve(&table("", "h2", endpoint), 1);
    run(async {
        let client = client(ballast.address()).await;
        for _ in 0..20 {
            assert_eq!(statuses(&client, 10).await, [200; 10]);
        }
    });
    assert!(seen.connections.load(Ordering::Relaxed) > 10);
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn an_endpoint_that_is_cut_ends_its_requests() {
    for (version, endpoint) in endpoints() {
        let closing = |version, endpoint| {
            table("", version, endpoint).replace("name: s,", "name: s, on-removed: close,")
        };
        let ballast = Ballast::serve(&closing(version, endpoint), 1);
        let other = closing("h1", h1_endpoint());
        run(async {
            let client = client(ballast.address()).await;
            let mut ready = client.clone().ready().await.unwrap();
            let (response, _send) = ready.send_request(request("GET", "/hang"), true).unwrap();
            until(|| ballast.in_flight() == 1).await;
            ballast.swap(&other);
            let answer = timeout(Duration::from_secs(5), response)
                .await
                .expect("an answer");
            assert_eq!(answer.unwrap().status().as_u16(), 502, "{version}");
        });
    }
}

#[test]
fn no_request_fails_while_tables_change() {
    let (first, _) = h2_endpoint(100, usize::MAX);
    let second = h1_endpoint();
    let ballast = Ballast::serve(&table("", "h2", first), 2);
    let tables = [table("", "h2", first), table("", "h1", second)];
    let is_over = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let address = ballast.address();
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let (is_over, served) = (Arc::clone(&is_over), Arc::clone(&served));
            std::thread::spawn(move || {
                run(async {
                    let client = client(address).await;
                    while !is_over.load(Ordering::Relaxed) {
                        let body = Some(Bytes::from_static(b"body"));
                        let answer = fetch(&client, request("POST", "/echo"), body, None).await;
                        assert_eq!(answer.expect("an answer").body, b"body");
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                });
            })
        })
        .collect();
    let mut turn = 0;
    while turn < 30 || served.load(Ordering::Relaxed) < 300 {
        turn += 1;
        ballast.swap(&tables[turn % 2]);
        support::pause(Duration::from_millis(20));
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn an_endpoint_of_http2_that_is_not_there_is_a_502() {
    let ballast = Ballast::serve(&table("", "h2", support::nobody()), 1);
    run(async {
        let client = client(ballast.address()).await;
        assert_eq!(statuses(&client, 20).await, [502; 20]);
    });
}

#[test]
fn an_endpoint_of_http2_may_want_a_proxy_header_and_then_is_not_shared() {
    let headers = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&headers);
    let endpoint = support::server(move |mut client| {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") && client.read(&mut byte).is_ok_and(|read| read > 0) {
            line.push(byte[0]);
        }
        let line = String::from_utf8(line).expect("a line");
        seen.lock().expect("a lock").push(line);
        rest(client);
    });
    let table = table("", "h2", endpoint).replace("name: s,", "name: s, send-proxy: v1,");
    let ballast = Ballast::serve(&table, 1);
    run(async {
        for count in 1..=2 {
            let client = client(ballast.address()).await;
            let mut ready = client.ready().await.unwrap();
            let _one = ready.send_request(request("GET", "/"), true).unwrap();
            let _two = ready.send_request(request("GET", "/"), true).unwrap();
            until(|| headers.lock().unwrap().len() == count).await;
        }
    });
    for header in headers.lock().unwrap().iter() {
        assert!(
            header.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "),
            "{header}"
        );
    }
}

#[test]
fn requests_pass_in_tls_on_both_sides() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let (endpoint, _) = h2_endpoint(100, usize::MAX);
    let inner = Ballast::serve(&https_table(&papers, "h2", endpoint), 1);
    let tls = format!(
        "name: s, tls: {{sni: shop.test, ca: {}}},",
        papers.named("ca.pem")
    );
    let outer = table("", "h2", inner.address()).replace("name: s,", &tls);
    let outer = Ballast::serve(&outer, 1);
    assert_eq!(outer.ack().unwrap().refused, None);
    run(async {
        let client = client(outer.address()).await;
        let sent = pattern(LARGE);
        let mut trailers = HeaderMap::new();
        trailers.insert("x-up", "tls".parse().unwrap());
        let call = fetch(
            &client,
            request("POST", "/echo"),
            Some(sent.clone()),
            Some(trailers),
        );
        let answer = call.await.unwrap();
        assert!(answer.body == sent);
        assert_eq!(answer.trailers.unwrap()["x-down"], "tls");
        let text = fetch(&client, request("GET", "/"), None, None)
            .await
            .unwrap()
            .text();
        assert!(text.contains("x-forwarded-proto: https\n"), "{text}");
    });
    until_idle(&outer);
    until_idle(&inner);
}

#[test]
fn a_request_that_waits_is_sent_in_the_version_that_it_was_written_for() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let gate = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&gate);
    let slow = support::server(move |mut client| {
        // A part of the request is enough.
        client.read_exact(&mut [0; 16]).ok();
        support::until("the gate is open", || is_open.load(Ordering::Relaxed));
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        client.write_all(answer).ok();
    });
    let inner = Ballast::serve(&https_table(&papers, "h1", slow), 1);
    let service = format!(
        "name: s, tls: {{sni: shop.test, ca: {}}}, timeouts: {{queue: 20s}},",
        papers.named("ca.pem")
    );
    let of_version = |version| {
        let text = table("", version, inner.address());
        let text = text.replace("name: s,", &service);
        text.replace("\"}]", "\", max-connections: 1}]")
    };
    let outer = Ballast::serve(&of_version("h1"), 1);
    let asks = |path: &str| {
        let mut client = std::net::TcpStream::connect(outer.address()).expect("a connection");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).expect("a request");
        client
    };
    let waits = |count| {
        let line = format!("ballast_queue_waiting{{service=\"s\"}} {count}\n");
        outer.until(|outer| outer.metrics().contains(&line));
    };
    let mut first = asks("/first");
    outer.until(|outer| outer.in_flight() == 1);
    let mut second = asks("/second");
    waits(1);
    outer.swap(&of_version("h2"));
    gate.store(true, Ordering::Relaxed);
    for client in [&mut first, &mut second] {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    // The next request is written for the new version.
    let mut answer = String::new();
    let mut third = asks("/third");
    third.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    until_idle(&outer);
}

#[test]
fn operators_see_requests_of_http2() {
    for (form, expected) in [
        ("haproxy", "\"GET http://shop.example/a?q=1 HTTP/2.0\""),
        (
            "json",
            "\"method\":\"GET\",\"path\":\"/a?q=1\",\"host\":\"shop.example\",\"version\":\"HTTP/2.0\",\"status\":200",
        ),
    ] {
        let syslog = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        syslog
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let to = syslog.local_addr().unwrap();
        let log = format!("version: 1\nlog: {{access: {form}, to: [\"udp:{to}\"]}}\n");
        let table = table("", "h2", h2_endpoint(100, usize::MAX).0).replace("version: 1\n", &log);
        let ballast = Ballast::serve(&table, 1);
        run(async {
            let client = client(ballast.address()).await;
            fetch(&client, request("GET", "/a?q=1"), None, None)
                .await
                .unwrap();
        });
        let mut line = [0; 4096];
        let read = syslog.recv(&mut line).unwrap();
        let line = String::from_utf8_lossy(&line[..read]);
        assert!(line.contains(expected), "{line}");
        assert!(line.contains("----"), "{line}");
        let csv = support::get(ballast.running.admin()[0], "/;csv").1;
        let mut rows = csv.lines().map(|row| row.split(',').collect::<Vec<_>>());
        let header = rows.next().unwrap();
        let frontend = rows.find(|row| row.get(1) == Some(&"FRONTEND")).unwrap();
        for (name, value) in [
            ("h1sess", "0"),
            ("h2sess", "1"),
            ("h1req", "0"),
            ("h2req", "1"),
            ("hrsp_2xx", "1"),
        ] {
            let at = header.iter().position(|column| *column == name).unwrap();
            assert_eq!(frontend[at], value, "{name}");
        }
        // The heads of the request and of the response; the body of the request is empty.
        let column = |name: &str| -> u64 {
            let at = header.iter().position(|column| *column == name).unwrap();
            frontend[at].parse().unwrap()
        };
        assert!((10..200).contains(&column("bin")), "{}", column("bin"));
        assert!(column("bout") > 10, "{}", column("bout"));
    }
}

/// The statuses of so many requests at once.
async fn statuses(client: &SendRequest<Bytes>, count: usize) -> Vec<u16> {
    let answers: Vec<_> = (0..count)
        .map(|_| {
            let client = client.clone();
            spawn_local(async move { fetch(&client, request("GET", "/"), None, None).await })
        })
        .collect();
    let mut statuses = Vec::new();
    for answer in answers {
        statuses.push(answer.await.expect("no panic").expect("an answer").status);
    }
    statuses
}

fn until_idle(ballast: &Ballast) {
    ballast.until(|ballast| ballast.in_flight() == 0);
}

/// The table of [`table`] with TLS.
fn https_table(papers: &Papers, version: &str, endpoint: SocketAddr) -> String {
    let tls = format!(
        "protocol: https, tls: {{certificates: [{}]}}",
        papers.entry("shop")
    );
    table("", version, endpoint).replace("protocol: http", &tls)
}

/// An endpoint of each version.
fn endpoints() -> [(&'static str, SocketAddr); 2] {
    [
        ("h1", h1_endpoint()),
        ("h2", h2_endpoint(100, usize::MAX).0),
    ]
}

/// A table of one frontend with these options, and one service with one endpoint of this version.
fn table(frontend: &str, version: &str, endpoint: SocketAddr) -> String {
    format!(
        "version: 1\nfrontends:\n  - {{name: f, bind: [\"127.0.0.1:0\"], protocol: http, default: {{service: s}}{frontend}}}\nservices:\n  - {{name: s, http: {{version: {version}}}, endpoints: [{{address: \"{endpoint}\"}}]}}\n"
    )
}

/// Waits for something that must come, while other tasks run.
async fn until(come: impl Fn() -> bool) {
    support::until_async("what a test waits for", come).await;
}

/// Types of frames of HTTP/2, and flags of HEADERS.
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
