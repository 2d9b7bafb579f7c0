//! Peers that fall silent: an endpoint that keeps its socket and does nothing with it, and a client in the middle of a head.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::http2::site::{H2, table};
use support::Ballast;
use support::raw::{
    self, CONTINUATION, DATA, END_STREAM, Event, HEADERS, Raw, encode, frame, request,
};

/// As a stopped process, but that the test sees what comes. Connections after the first one are served.
#[test]
fn a_connection_to_an_endpoint_that_falls_silent_is_asked_by_ping_and_closed() {
    let seen = Arc::new(Mutex::new([None; 2]));
    let saw = Arc::clone(&seen);
    let endpoint = raw::Endpoint::scripted(&[], move |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            if heard.path() != "/silent" {
                raw.respond(heard.stream, 200, connection.to_string().as_bytes());
                continue;
            }
            raw.answers = false;
            raw.gives_back = false;
            loop {
                let at = match raw.event() {
                    Event::Ping(_) => 0,
                    Event::End => 1,
                    _ => continue,
                };
                saw.lock().expect("no panic")[at].get_or_insert_with(Instant::now);
                if at == 1 {
                    return;
                }
            }
        }
    });
    let timeouts = ", timeouts: {client: 2m}";
    let service = format!("{H2}, timeouts: {{server: 2m}}");
    let ballast = Ballast::serve(&table(timeouts, &[("s", &service, &[endpoint.address])]), 1);
    let mut client = Raw::to(ballast.address());
    client.patience(Duration::from_secs(60));
    client.get(1, "/");
    assert_eq!(client.message(1).text(), "0");
    let begun = Instant::now();
    client.get(3, "/silent");
    let response = client.message(3);
    assert!([502, 504].contains(&response.status()), "{response:?}");
    ballast.until(|_| seen.lock().unwrap()[1].is_some());
    let [asked, closed] = *seen.lock().unwrap();
    let asked = asked.expect("PING") - begun;
    let closed = closed.expect("the end") - begun - asked;
    println!("PING after {asked:?}, closed {closed:?} later");
    let seconds = |from, to| Duration::from_secs(from)..Duration::from_secs(to);
    assert!(seconds(9, 20).contains(&asked), "PING after {asked:?}");
    assert!(seconds(4, 15).contains(&closed), "closed {closed:?} later");
    client.get(5, "/");
    assert_eq!(client.message(5).text(), "1");
    assert_eq!(
        endpoint.count("/silent"),
        1,
        "nobody knows what became of it"
    );
}

#[test]
fn an_endpoint_that_answers_ping_may_take_its_time() {
    let endpoint = raw::Endpoint::scripted(&[], |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            // Two of them: it was believed after the first one.
            for _ in 0..2 {
                raw.seek(|event| matches!(event, Event::Ping(_)).then_some(()));
            }
            raw.respond(heard.stream, 200, b"at last");
        }
    });
    let timeouts = ", timeouts: {client: 2m}";
    let service = format!("{H2}, timeouts: {{server: 2m}}");
    let ballast = Ballast::serve(&table(timeouts, &[("s", &service, &[endpoint.address])]), 1);
    let mut client = Raw::to(ballast.address());
    client.patience(Duration::from_secs(50));
    client.get(1, "/");
    assert_eq!(client.message(1).text(), "at last");
}

#[test]
fn a_connection_on_which_a_request_timed_out_gets_no_further_one() {
    let endpoint = raw::Endpoint::scripted(&[], |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            match heard.path() {
                "/silent" => {}
                "/stream" => {
                    raw.head(heard.stream, &[(":status", "200")], false);
                    let mut writer = raw.stream.try_clone().expect("a clone");
                    thread::spawn(move || {
                        for part in 1..=PARTS {
                            let flags = if part == PARTS { END_STREAM } else { 0 };
                            support::pause(Duration::from_millis(100));
                            writer
                                .write_all(&frame(DATA, flags, heard.stream, b"x"))
                                .ok();
                        }
                    });
                }
                _ => raw.respond(heard.stream, 200, connection.to_string().as_bytes()),
            }
        }
    });
    let service = format!("{H2}, timeouts: {{server: 1s}}");
    let ballast = Ballast::serve(&table("", &[("s", &service, &[endpoint.address])]), 1);
    let mut client = Raw::to(ballast.address());
    client.get(1, "/");
    assert_eq!(client.message(1).text(), "0");
    client.get(3, "/stream");
    client.get(5, "/silent");
    let response = client.message(5);
    assert_eq!(response.status(), 504, "{response:?}");
    for stream in [7, 9, 11] {
        client.get(stream, "/");
        let response = client.message(stream);
        assert_eq!(response.status(), 200, "{response:?}");
        assert_eq!(
            response.text(),
            "1",
            "the connection of a timeout has got a request"
        );
    }
    // What is under way on it goes on.
    let stream = client.message(3);
    assert_eq!(stream.text(), "x".repeat(PARTS), "{stream:?}");
    assert_eq!(endpoint.count("/silent"), 1);
}

/// A route's limit may be much shorter than the time after which an endpoint is asked for a sign of life.
#[test]
fn a_connection_that_says_nothing_for_the_whole_time_of_a_request_gets_no_further_one() {
    let endpoint = raw::Endpoint::scripted(&[], |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            if heard.path() == "/silent" {
                // As if its host were gone.
                raw.answers = false;
                raw.seek(|event| (*event == Event::End).then_some(()));
                return;
            }
            raw.respond(heard.stream, 200, connection.to_string().as_bytes());
        }
    });
    let text = table("", &[("s", H2, &[endpoint.address])]);
    let text = text.replace("default: {service: s", "default: {timeout: 1s, service: s");
    let ballast = Ballast::serve(&text, 1);
    let mut client = Raw::to(ballast.address());
    client.get(1, "/");
    assert_eq!(client.message(1).text(), "0");
    client.get(3, "/silent");
    let response = client.message(3);
    assert_eq!(response.status(), 504, "{response:?}");
    client.get(5, "/");
    let response = client.message(5);
    assert_eq!((response.status(), response.text().as_str()), (200, "1"));
}

/// Nothing else can come by that connection.
#[test]
fn a_head_that_does_not_end_has_a_deadline_though_other_requests_are_under_way() {
    let endpoint = raw::Endpoint::scripted(
        &[],
        |raw, endpoint, connection| {
            while endpoint.hear(raw, connection).is_some() {}
        },
    );
    let frontend = ", timeouts: {request: 1s, keep-alive: 2m, client: 2m}";
    let service = format!("{H2}, timeouts: {{server: 2m}}");
    let ballast = Ballast::serve(&table(frontend, &[("s", &service, &[endpoint.address])]), 1);
    for drips in [false, true] {
        let before = endpoint.heard().len();
        let mut client = Raw::to(ballast.address());
        client.get(1, "/hang");
        ballast.until(|_| endpoint.heard().len() == before + 1);
        let begun = Instant::now();
        let head = encode(&request("GET", "/slow"));
        client.opens(3);
        client.send(&frame(HEADERS, END_STREAM, 3, &head));
        if drips {
            // A whole head's time is bounded, not that of its parts.
            let mut dripping = client.stream.try_clone().unwrap();
            thread::spawn(move || {
                dripping
                    .write_all(&frame(CONTINUATION, 0, 3, &[b'x'; 200])[..9])
                    .ok();
                while begun.elapsed() < Duration::from_secs(40) {
                    if dripping.write_all(&encode(&[("x", "")])[..1]).is_err() {
                        return;
                    }
                    support::pause(Duration::from_millis(200));
                }
            });
        }
        let mut rest = Vec::new();
        let ended = client.stream.read_to_end(&mut rest);
        let took = begun.elapsed();
        assert!(
            ended.is_ok()
                || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset),
            "it is open after {took:?}, drips: {drips}"
        );
        let expected = Duration::from_millis(900)..Duration::from_secs(10);
        assert!(expected.contains(&took), "{took:?}, drips: {drips}");
    }
}

const PARTS: usize = 30;
