//! Who follows whom: health by whatever port, and swaps that move nobody.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ballast_core::flow::FlowEnd;

use crate::udp::{Ballast, answering, client, ended, free_udp_port, named_at, say};

#[test]
fn flows_leave_an_endpoint_whose_tcp_or_http_port_says_that_it_is_down() {
    for mode in ["tcp", "http"] {
        // One port at two addresses: a service has one port for its checks.
        let (checked, port) = loop {
            let one = TcpListener::bind("127.0.8.1:0").expect("a listener");
            let port = one.local_addr().expect("an address").port();
            if let Ok(other) = TcpListener::bind(("127.0.8.2", port)) {
                break ([one, other], port);
            }
        };
        let mut alive = checked.map(serve_checks);
        let endpoints = [
            named_at("127.0.8.1:0", "one"),
            named_at("127.0.8.2:0", "other"),
        ];
        let ballast = Ballast::serve(
            &with_health(&endpoints, &format!("mode: {mode}, port: {port}")),
            1,
        );
        until_checked(&ballast);
        let client = client(ballast.address());
        let first = say(&client, "?");
        let dies = usize::from(first == "other");
        alive[dies].end();
        ballast.until(|ballast| !is_passing(ballast, dies));
        let second = say(&client, "?");
        assert_ne!(first, second, "{mode}: with the first datagram");
        assert_eq!(ended(&ballast, FlowEnd::Endpoint), 1);
        assert_eq!(say(&client, "?"), second);
    }
}

#[test]
fn flows_leave_an_endpoint_that_does_not_answer_as_expected() {
    let well = [(); 2].map(|()| Arc::new(AtomicBool::new(true)));
    let endpoints = [0, 1].map(|index: usize| {
        let well = Arc::clone(&well[index]);
        answering("127.0.0.1:0", move |asked| {
            match (asked, well.load(Ordering::Relaxed)) {
                (b"well?", true) => b"very well".to_vec(),
                (b"well?", false) => b"not so well".to_vec(),
                _ => vec![b'0' + u8::try_from(index).expect("a small number")],
            }
        })
    });
    let health = "mode: udp, send: 'well?', answer: very";
    let ballast = Ballast::serve(&with_health(&endpoints, health), 1);
    until_checked(&ballast);
    let client = client(ballast.address());
    let first = say(&client, "?");
    let sick: usize = first.parse().expect("a number");
    well[sick].store(false, Ordering::Relaxed);
    ballast.until(|ballast| !is_passing(ballast, sick));
    let second = say(&client, "?");
    assert_ne!(first, second);
    // It is well again: nobody is moved for that.
    well[sick].store(true, Ordering::Relaxed);
    ballast.until(|ballast| is_passing(ballast, sick));
    assert_eq!(say(&client, "?"), second);
    assert_eq!(ended(&ballast, FlowEnd::Endpoint), 1);
}

#[test]
fn a_thousand_flows_stay_where_they_are_through_twenty_swaps() {
    let servers = ["a", "b", "c"].map(|name| named_at("127.0.0.1:0", name));
    let bind = format!("127.0.0.1:{}", free_udp_port());
    let with = |endpoints: &[SocketAddr], weight: u32| {
        let endpoints: Vec<String> = endpoints
            .iter()
            .map(|address| format!("{{address: \"{address}\", weight: {weight}}}"))
            .collect();
        format!(
            "version: 1\nfrontends:\n  - {{name: f, bind: [\"{bind}\"], protocol: udp, service: s}}\nservices:\n  - {{name: s, endpoints: [{}]}}\n",
            endpoints.join(", ")
        )
    };
    let ballast = Ballast::serve(&with(&servers, 1), 2);
    let clients: Vec<_> = (0..1_000).map(|_| client(ballast.address())).collect();
    let first: Vec<String> = clients.iter().map(|client| say(client, "?")).collect();
    for swap in 1..=20_u32 {
        let mut order = servers;
        order.rotate_left(swap as usize % 3);
        ballast.swap(&with(&order, 1 + swap % 2));
        for (client, first) in clients
            .iter()
            .zip(&first)
            .skip(swap as usize % 10)
            .step_by(10)
        {
            assert_eq!(&say(client, "?"), first);
        }
    }
    for (client, first) in clients.iter().zip(&first) {
        assert_eq!(&say(client, "?"), first);
    }
    assert_eq!(ended(&ballast, FlowEnd::Endpoint), 0);
    assert_eq!(ballast.in_flight(), 1_000);
}

fn with_health(endpoints: &[SocketAddr], health: &str) -> String {
    let quick = "interval: 2s, timeout: 2s, rise: 1, fall: 1";
    crate::udp::table(
        "127.0.0.1:0",
        "",
        &format!(", ejection: off, health: {{{health}, {quick}}}"),
        endpoints,
    )
}

fn until_checked(ballast: &Ballast) {
    ballast.until(|ballast| (0..2).all(|index| seen_up(ballast, index)));
}

fn seen_up(ballast: &Ballast, index: usize) -> bool {
    let plan = ballast.running.shared().live.plan();
    let monitor = plan.services()[0].endpoints()[index].live().monitor();
    monitor.is_some_and(|monitor| {
        let last = monitor.last.map_or("", |seen| seen.outcome.word());
        monitor.is_up() && last.ends_with("OK")
    })
}

fn is_passing(ballast: &Ballast, index: usize) -> bool {
    let plan = ballast.running.shared().live.plan();
    plan.services()[0].endpoints()[index].live().is_passing()
}

/// A port that says that its endpoint is well, until it is ended.
struct Checked {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

fn serve_checks(listener: TcpListener) -> Checked {
    let address = listener.local_addr().expect("an address");
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    let thread = thread::spawn(move || {
        for stream in listener.incoming() {
            if told.load(Ordering::Relaxed) {
                return;
            }
            if let Ok(mut stream) = stream {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    .ok();
            }
        }
    });
    Checked {
        address,
        over,
        thread: Some(thread),
    }
}

impl Checked {
    fn end(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        drop(std::net::TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it is well");
        }
    }
}
