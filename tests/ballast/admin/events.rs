//! Server-sent events.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::admin::client::{Request, connect, connect_from, get, is_open};
use support::{Ballast, ask, named_server, table};

#[test]
fn a_listener_hears_once_a_second_what_has_changed() {
    let ballast = Ballast::serve(&table("", "", &[named_server("a")]), 1);
    let admin = ballast.running.admin()[0];
    let mut listener = Listener::at(admin, "/events");
    let first = listener.next();
    let shape = first["shape"].as_str().unwrap().to_owned();
    assert!(
        get(admin, "/")
            .body
            .contains(&format!("data-shape=\"{shape}\""))
    );
    let lines = |event: &Value| -> Vec<String> {
        let lines = event["lines"].as_array().unwrap();
        lines
            .iter()
            .map(|line| line[0].as_str().unwrap().to_owned())
            .collect()
    };
    let all = lines(&first);
    assert_eq!(all.len(), 6, "{all:?}");
    assert_eq!(all[..2], ["facts", "tiles"]);

    // Nothing happens: the endpoint grows older, but its frontend has nothing new.
    listener.until(|event| {
        lines(event)
            .iter()
            .all(|id| id == "facts" || !id.starts_with('f'))
    });
    let begun = Instant::now();
    (0..3).for_each(|_| drop(listener.next()));
    assert!(begun.elapsed() > Duration::from_millis(1500));

    ask(ballast.address()).unwrap();
    let row = all.iter().find(|id| id.starts_with('e')).unwrap();
    listener.until(|event| {
        let lines = event["lines"].as_array().unwrap();
        let line = lines.iter().find(|line| line[0] == **row);
        // Its tenth cell counts sessions.
        line.is_some_and(|line| {
            line[2]
                .as_array()
                .unwrap()
                .iter()
                .any(|cell| cell[0] == 9 && cell[1] == "1")
        })
    });

    ballast.swap(&table("", "", &[named_server("a"), named_server("b")]));
    let event = listener.until(|event| event["shape"] != shape);
    assert_eq!(lines(&event).len(), 7, "all of a new page");
}

#[test]
fn a_listener_hears_only_of_what_it_looks_at() {
    let ballast = Ballast::serve(&crate::admin::many(120, 2), 1);
    let mut listener = Listener::at(ballast.running.admin()[0], "/events?q=s7&p=1");
    let text = listener.next().to_string();
    assert!(
        text.contains("s77/Backend") && !text.contains("s81/Backend"),
        "{text}"
    );
}

#[test]
fn there_are_only_so_many_listeners_and_their_places_are_given_back() {
    let ballast = Ballast::serve("version: 1\n", 1);
    let admin = ballast.running.admin()[0];
    let come = |client| Listener::over(connect_from(client, admin), "/events");
    // One client may have all places. Others take theirs from it, until it has no more than they.
    let mut listeners: Vec<Listener> = (0..16).map(|_| come(2)).collect();
    listeners.iter_mut().for_each(|one| drop(one.next()));
    let mut others: Vec<Listener> = (3..6)
        .flat_map(|client| (0..4).map(move |_| client))
        .map(come)
        .collect();
    others.iter_mut().for_each(|one| drop(one.next()));
    support::until("four of the first client's are left", || {
        let there = listeners.iter();
        let there = there.filter(|one| is_open(admin, one.0.get_ref()));
        there.count() == 4
    });
    // One more is too many. On a busy machine one of its own client's may hear nothing for long, and ends instead.
    support::until("one is refused", || {
        let mut stream = connect_from(3, admin);
        Request::new("GET", "/events").write(&mut stream);
        let mut bytes = [0; 512];
        let read = stream.read(&mut bytes).unwrap();
        let head = String::from_utf8_lossy(&bytes[..read]).into_owned();
        head.starts_with("HTTP/1.1 503") && head.contains("retry-after: 5")
    });
    assert_eq!(get(admin, "/;csv").status, 200, "others are answered");
    drop((listeners, others));
    ballast.until(|_| {
        let mut stream = connect(admin).unwrap();
        Request::new("GET", "/events").write(&mut stream);
        let mut line = [0; 12];
        stream.read_exact(&mut line).unwrap();
        line == *b"HTTP/1.1 200"
    });
}

#[test]
fn listeners_are_told_that_this_is_the_end() {
    let ballast = Ballast::serve("version: 1\n", 1);
    let mut listener = Listener::at(ballast.running.admin()[0], "/events");
    listener.next();
    let Ballast { running, .. } = ballast;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(running.stop());
    let mut rest = String::new();
    listener.0.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("event: end\ndata: {}\n\n"), "{rest}");
    assert!(
        rest.ends_with("\r\n0\r\n\r\n"),
        "it is finished in order: {rest:?}"
    );
}

/// Reads events.
struct Listener(BufReader<TcpStream>);

impl Listener {
    fn at(admin: SocketAddr, address: &str) -> Self {
        Self::over(connect(admin).unwrap(), address)
    }

    fn over(mut stream: TcpStream, address: &str) -> Self {
        Request::new("GET", address).write(&mut stream);
        let mut reader = BufReader::new(stream);
        let (mut head, mut line) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
            head.push_str(&line);
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        Self(reader)
    }

    fn next(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "it has ended");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    /// Waits for an event that must come.
    fn until(&mut self, come: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..30 {
            let event = self.next();
            if come(&event) {
                return event;
            }
        }
        panic!("it never came");
    }
}
