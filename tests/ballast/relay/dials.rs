//! What happens to a connection while its endpoint has not answered yet: the door is shut, and whoever knocks waits.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::peers::{End, ShutDoor, Watched, hear, reset};
use support::{ask, named_server, table};

/// Longer than anybody in these tests would want to wait for.
const PATIENT: &str = ", timeouts: {connect: 60s}, retries: 3";

fn serve(service: &str, endpoints: &[SocketAddr]) -> Watched {
    Watched::serve(&table("", &format!("{PATIENT}{service}"), endpoints), 1)
}

/// A client for whom an endpoint is being dialed.
fn knock(ballast: &Watched) -> TcpStream {
    let before = ballast.in_flight();
    let client = ballast.connect();
    ballast.until(|ballast| ballast.in_flight() == before + 1);
    client
}

#[test]
fn who_aborts_while_its_endpoint_is_dialed_frees_its_place_and_is_counted() {
    let door = ShutDoor::new();
    let ballast = serve("", &[door.address()]);
    let begun = Instant::now();
    for _ in 0..10 {
        reset(knock(&ballast));
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
    // One with a question on its way, too, and one that had said that this is all.
    for half_closes in [false, true] {
        let mut client = knock(&ballast);
        client.write_all(b"?").unwrap();
        if half_closes {
            client.shutdown(Shutdown::Write).unwrap();
        }
        reset(client);
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(ballast.count(|counters| &counters.client_aborts), 12);
    assert_eq!(ballast.count(|counters| &counters.connect_errors), 0);
    let metrics = ballast.metrics();
    for line in [
        "haproxy_backend_client_aborts_total{proxy=\"s\"} 12\n",
        "haproxy_backend_connection_errors_total{proxy=\"s\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[test]
fn who_is_done_sending_while_its_endpoint_is_dialed_is_served() {
    let door = ShutDoor::new();
    let ballast = serve("", &[door.address()]);
    let (mut asked, mut silent) = (knock(&ballast), knock(&ballast));
    asked.write_all(b"a question").unwrap();
    for client in [&asked, &silent] {
        client.shutdown(Shutdown::Write).unwrap();
    }
    // It is heard of at once, if at all.
    support::pause(Duration::from_millis(200));
    assert_eq!(ballast.in_flight(), 2);
    door.open(|mut client| {
        let mut question = String::new();
        if client.read_to_string(&mut question).is_ok() {
            write!(client, "{question}!").unwrap();
        }
    });
    assert_eq!(hear(&mut asked), (b"a question!".to_vec(), End::Clean));
    assert_eq!(hear(&mut silent), (b"!".to_vec(), End::Clean));
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(ballast.count(|counters| &counters.client_aborts), 0);
}

#[test]
fn a_dial_that_is_cut_goes_on_at_another_endpoint() {
    let door = ShutDoor::new();
    let ballast = serve("", &[door.address()]);
    // While there is nobody else to try, it may take as long as it likes.
    let mut client = knock(&ballast);
    let both = [door.address(), named_server("other")];
    ballast.swap(&table("", PATIENT, &both));
    cut_first(&ballast);
    client.write_all(b"?").unwrap();
    assert_eq!(hear(&mut client), (b"other".to_vec(), End::Clean));
    assert_eq!(ballast.count(|counters| &counters.connect_errors), 0);
    assert_eq!(ballast.count(|counters| &counters.redispatches), 1);
}

#[test]
fn a_dial_that_is_cut_is_the_end_where_there_is_no_other_endpoint() {
    let door = ShutDoor::new();
    let ballast = serve("", &[door.address()]);
    let mut client = knock(&ballast);
    cut_first(&ballast);
    assert_eq!(hear(&mut client), (Vec::new(), End::Reset));
    ballast.until(|ballast| ballast.in_flight() == 0);
    let refused = "ballast_connections_refused_total{frontend=\"f\",reason=\"failed\"} 1\n";
    assert!(ballast.metrics().contains(refused));
}

#[test]
fn a_dial_to_an_endpoint_that_leaves_with_its_connections_goes_on_at_its_successor() {
    let door = ShutDoor::new();
    let leaves = ", on-removed: close";
    let ballast = serve(leaves, &[door.address()]);
    let mut client = knock(&ballast);
    let successor = named_server("successor");
    ballast.swap(&table("", &format!("{PATIENT}{leaves}"), &[successor]));
    client.write_all(b"?").unwrap();
    assert_eq!(hear(&mut client), (b"successor".to_vec(), End::Clean));
    assert_eq!(ask(ballast.address()).unwrap(), "successor");
}

#[test]
fn a_dial_to_an_endpoint_that_leaves_alone_goes_on() {
    let door = ShutDoor::new();
    let ballast = serve("", &[door.address()]);
    let mut client = knock(&ballast);
    ballast.swap(&table("", PATIENT, &[named_server("successor")]));
    client.write_all(b"?").unwrap();
    door.open(|mut client| {
        let _asked = client.read(&mut [0]);
        client.write_all(b"old").ok();
    });
    assert_eq!(hear(&mut client), (b"old".to_vec(), End::Clean));
}

#[test]
fn who_is_cut_at_the_end_while_its_endpoint_is_dialed_is_reset_and_counted() {
    let door = ShutDoor::new();
    let ballast = serve("", &[door.address()]);
    let mut clients = [knock(&ballast), knock(&ballast)];
    clients[0].write_all(b"?").unwrap();
    assert_eq!(ballast.stop(), 2);
    for client in &mut clients {
        assert_eq!(hear(client), (Vec::new(), End::Reset));
    }
}

fn cut_first(ballast: &Watched) {
    let shared = ballast.running.shared();
    let endpoint = Arc::clone(shared.live.plan().services()[0].endpoints()[0].live());
    shared.cut(vec![endpoint]);
}
