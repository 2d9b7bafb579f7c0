//! Tables that change what is said and what is read: for new connections, at once, and for no old one.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::proxy::spelling::{ends, header_of, v1};
use crate::proxy::{FORMS, TRUSTING, assert_hears, header_errors, own, table};
use support::{Ballast, echo_server, named_server};

#[test]
fn a_swap_changes_what_new_connections_say_and_no_old_one_hears_of_it() {
    let endpoint = echo_server();
    let table = |send: &str| {
        let service = format!(", send-proxy: {send}");
        table("127.0.0.1:0", "", &service, endpoint)
    };
    let ballast = Ballast::serve(&table("v2"), 2);
    let visitors = Visitors::begin(ballast.address());
    let mut held: Vec<TcpStream> = Vec::new();
    for round in ["off", "v1", "v2", "off", "v2", "v1", "off"] {
        ballast.swap(&table(round));
        for _ in 0..4 {
            let client = ballast.connect();
            let header = header_of(round, own(&client));
            held.push(client);
            let client = held.last_mut().expect("one");
            client.write_all(b"first words").expect("a write");
            assert_hears(client, &[&header[..], b"first words"].concat(), round);
        }
        for client in &mut held {
            client.write_all(round.as_bytes()).expect("a write");
            assert_hears(client, round.as_bytes(), "an old connection");
        }
        visitors.await_one(round, &ballast);
    }
    visitors.end();
    // Nothing more was said to any of them.
    for client in &mut held {
        client.shutdown(Shutdown::Write).expect("an end");
        assert_eq!(client.read(&mut [0; 16]).expect("an end"), 0);
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn a_swap_changes_from_whom_headers_are_taken_and_no_old_connection_is_asked_for_one() {
    let endpoint = echo_server();
    let table = |accept: &str| table("127.0.0.1:0", accept, ", send-proxy: v1", endpoint);
    let ballast = Ballast::serve(&table(TRUSTING), 1);
    let (source, destination) = ends("192.0.2.1:56324", "198.51.100.2:443");
    let line = v1(source, destination);
    let mut held: Vec<TcpStream> = Vec::new();
    for accept in ["", TRUSTING, "", TRUSTING] {
        ballast.swap(&table(accept));
        let mut client = ballast.connect();
        let (peer, here) = own(&client);
        client.write_all(&line).expect("a write");
        let expected = match accept {
            "" => [v1(peer, here), line.clone()].concat(),
            _ => line.clone(),
        };
        assert_hears(&mut client, &expected, accept);
        held.push(client);
        for client in &mut held {
            client.write_all(&line).expect("a write");
            assert_hears(client, &line, "an old connection");
        }
    }
    assert_eq!(header_errors(&ballast), 0);
}

#[test]
fn a_client_whose_header_is_not_whole_when_a_table_comes_belongs_to_that_table() {
    let [old, new] = ["old", "new"].map(named_server);
    let table =
        |more: &str, endpoint| table("127.0.0.1:0", &format!("{TRUSTING}{more}"), "", endpoint);
    let ballast = Ballast::serve(&table("", old), 1);
    let (source, destination) = ends("192.0.2.1:56324", "198.51.100.2:443");
    let line = v1(source, destination);
    let (first, rest) = line.split_at(20);
    let open = table("", new);
    for (next, expected) in [
        (open.clone(), "new"),
        (table(", source-ranges: [198.51.100.0/24]", new), ""),
        // This peer may name nobody any more.
        (
            open.replace(TRUSTING, ", accept-proxy: {from: [10.0.0.0/8]}"),
            "",
        ),
        (open.replace(TRUSTING, ""), ""),
    ] {
        let mut client = ballast.connect();
        client.write_all(first).expect("a write");
        ballast.until(|ballast| ballast.running.shared().connections() == 1);
        ballast.swap(&next);
        client.write_all(rest).expect("a write");
        client.write_all(b"who?").ok();
        let mut heard = String::new();
        // A client that is refused is reset, and its last write may have failed by that already.
        client.read_to_string(&mut heard).ok();
        assert_eq!(heard, expected, "{next}");
        ballast.swap(&table("", old));
    }
}

/// Clients that come all the time. Each must be served, and its header be one of those that there are.
struct Visitors {
    over: Arc<AtomicBool>,
    /// How many heard each form.
    served: Arc<[AtomicU32; 3]>,
    coming: thread::JoinHandle<()>,
}

impl Visitors {
    fn begin(address: SocketAddr) -> Self {
        let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (ended, counts) = (Arc::clone(&over), Arc::<[AtomicU32; 3]>::clone(&served));
        let coming = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let mut client = support::connect(address);
                let own = own(&client);
                client.write_all(b"?").expect("a write");
                client.shutdown(Shutdown::Write).expect("an end");
                let mut heard = Vec::new();
                client.read_to_end(&mut heard).expect("an answer");
                let form = FORMS
                    .iter()
                    .position(|send| heard.strip_suffix(b"?") == Some(&header_of(send, own)[..]));
                let form = form.unwrap_or_else(|| panic!("{heard:x?}"));
                counts[form].fetch_add(1, Ordering::Relaxed);
            }
        });
        Self {
            over,
            served,
            coming,
        }
    }

    /// Waits for one that comes after this call and hears this form.
    fn await_one(&self, send: &str, ballast: &Ballast) {
        let form = FORMS.iter().position(|form| *form == send);
        let served = &self.served[form.expect("one of them")];
        let before = served.load(Ordering::Relaxed);
        ballast.until(|_| served.load(Ordering::Relaxed) > before);
    }

    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        self.coming.join().expect("all were served");
    }
}
