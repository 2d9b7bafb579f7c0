//! `max-connections` of an endpoint, which counts requests.

use std::io::Write;
use std::sync::Arc;

use crate::http::wire::{Endpoint, response, routed};
use support::Ballast;
use support::crowd::{Presence, rush};
use support::skip::{MUCH, Others, undecided};

/// What a client sends, and how that ends after which it leaves. All but the first leave in the middle of their request: in the
/// response, before it, and in the body.
const VISITS: [(&str, &str); 4] = [
    ("GET /whole HTTP/1.1\r\nHost: a\r\n\r\n", "whole\n"),
    ("GET /begun HTTP/1.1\r\nHost: a\r\n\r\n", "begun\n"),
    ("GET /hints HTTP/1.1\r\nHost: a\r\n\r\n", "hints\r\n\r\n"),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\nbody",
        "continue\r\n\r\n",
    ),
];

#[test]
fn no_endpoint_has_more_requests_than_its_limit_whoever_leaves_in_the_middle() {
    for reuse in ["safe", "never"] {
        let strict: Vec<_> = (0..3).map(|_| strict_endpoint()).collect();
        let endpoints: Vec<_> = strict
            .iter()
            .map(|(endpoint, _)| {
                format!("{{address: \"{}\", max-connections: 1}}", endpoint.address)
            })
            .collect();
        let service = format!(
            "{{name: s, timeouts: {{queue: 5m}}, http: {{reuse: {reuse}}}, endpoints: [{}]}}",
            endpoints.join(", ")
        );
        // On a busy machine the clients may be slow to send their requests.
        let text = routed(
            ", timeouts: {request: 5m}, default: {service: s}",
            &[&service],
        );
        let others = Others::watch();
        let ballast = Ballast::serve(&text, 2);
        let served = rush(ballast.address(), |mut guest, index| async move {
            let (request, end) = VISITS[index % VISITS.len()];
            // A second request shows that the connection was kept, and is a turn of its own.
            if request.contains("/whole") {
                guest.exchange(request, end).await?;
            }
            guest.exchange(request, end).await.map(drop)
        });
        let most = strict.iter().map(|(_, presence)| presence.most()).max();
        println!("{served} of 500 served with reuse {reuse}, at most {most:?} at once");
        ballast.until(|ballast| ballast.in_flight() == 0);
        for endpoint in ballast.running.shared().live.plan().services()[0].endpoints() {
            assert_eq!(endpoint.live().peak(), 1, "{reuse}");
        }
        let busy = others.share();
        if most > Some(1) && busy > MUCH {
            // Where a processor is slow to deliver the end of one connection, another delivers the next one before it.
            undecided(&format!("others took {busy:.2} of the machine"));
            continue;
        }
        assert_eq!(most, Some(1), "{reuse}");
    }
}

/// An endpoint that notes how many connections it has at once with a request under way, and now and then closes one after its
/// response.
fn strict_endpoint() -> (Endpoint, Arc<Presence>) {
    let presence = Arc::new(Presence::default());
    let there = Arc::clone(&presence);
    let endpoint = Endpoint::scripted(move |wire, _, connection| {
        while let Some(request) = wire.request_head() {
            there.comes(connection, &wire.stream);
            let begins = match request.target() {
                "/whole" => {
                    // From the last byte of a response on, another request may come.
                    there.goes(connection);
                    let closes = connection % 5 == 0;
                    let fields = if closes { "Connection: close\r\n" } else { "" };
                    let answer = response("200 OK", fields, "whole\n");
                    if wire.stream.write_all(&answer).is_err() || closes {
                        return;
                    }
                    continue;
                }
                "/begun" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun\n",
                "/hints" => "HTTP/1.1 103 Early Hints\r\nLink: hints\r\n\r\n",
                _ => "HTTP/1.1 100 Continue\r\nLink: continue\r\n\r\n",
            };
            // Neither the rest of the body nor the rest of the response ever comes.
            wire.stream.write_all(begins.as_bytes()).ok();
            wire.rest();
            return;
        }
    });
    (endpoint, presence)
}
