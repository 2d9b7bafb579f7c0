//! `ballast`: what needs a network of its own: a node that goes silent, few ports, slow answers.

mod silent_node;
mod strangers;
mod viewers;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};
use support::connect;
use support::crowd::{Client, quiet_runtime, servers};
use support::netns::{PLACE, Site, node_address};
use support::peers::{End, Watched, hear, ping, reset};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[test]
fn ten_thousand_slow_handshakes_are_no_errors() {
    let Some(site) = Site::build(1) else {
        return;
    };
    site.nodes[0].within(|| echo_of_thousands_at(7001));
    if let Err(why) = site.slow_down() {
        return support::skip::skip(&why);
    }
    let endpoint = SocketAddr::from((node_address(0), 7001));
    site.place.within(|| {
        // Slow they are to be, but none is to be late.
        let service = ", timeouts: {connect: 20s}";
        let ballast = Watched::serve(&support::table("", service, &[endpoint]), 1);
        let (runtime, address) = (quiet_runtime(), ballast.address());
        // A quarter of the descriptors that a process may have: other tests run in this one.
        let (rounds, clients) = (8, 1_250);
        for round in 0..rounds {
            runtime.block_on(async {
                let clients: Vec<_> = (0..clients)
                    .map(|_| tokio::spawn(ping_once(address)))
                    .collect();
                for client in clients {
                    let echo = client.await.expect("no panic");
                    echo.unwrap_or_else(|error| panic!("round {round}: {error}"));
                }
            });
        }
        ballast.until(|ballast| ballast.in_flight() == 0);
        let found = [
            ballast.count(|counters| &counters.dials),
            ballast.count(|counters| &counters.sessions),
            ballast.count(|counters| &counters.connect_errors),
        ];
        assert_eq!(found, [10_000, 10_000, 0], "dials, sessions, failed dials");
        let slowest = ballast.count(|counters| &counters.connect_ms_max);
        assert!(slowest > 200, "{slowest} ms show nothing");
    });
}

async fn ping_once(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    stream.write_all(&[7]).await?;
    assert_eq!(stream.read_u8().await?, 7);
    Ok(())
}

/// A swap may close a socket that has begun a handshake.
#[test]
fn no_handshake_fails_while_an_address_becomes_all_of_them_and_one_again() {
    let Some(site) = Site::build(1) else {
        return;
    };
    if let Err(why) = site.narrow() {
        return support::skip::skip(&why);
    }
    let (over, begun) = (AtomicBool::new(false), Instant::now());
    let ask_on = || {
        let mut answers = 0;
        while !over.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(60) {
            Client::from(node_address(0).octets(), (PLACE, 6000).into())?.ask()?;
            answers += 1;
        }
        io::Result::Ok(answers)
    };
    site.place.within(|| {
        let server = servers(1)[0];
        let table = |host: &str| {
            support::table("", "", &[server]).replace("127.0.0.1:0", &format!("{host}:6000"))
        };
        let ballast = Watched::serve(&table("*"), 2);
        thread::scope(|scope| {
            let clients = [(); 8].map(|()| scope.spawn(|| site.nodes[0].within(ask_on)));
            for host in ["10.77.0.1", "*"].iter().cycle().take(40) {
                ballast.swap(&table(host));
                support::pause(Duration::from_millis(20));
            }
            over.store(true, Ordering::Relaxed);
            let answers = clients.map(|client| client.join().expect("no panic"));
            println!("{answers:?}");
            for count in answers {
                assert!(count.expect("answers") > 0);
            }
        });
    });
}

#[test]
fn two_endpoints_share_a_hundred_ports() {
    with_few_ports("", 150);
}

#[test]
fn two_endpoints_share_a_hundred_ports_of_one_source_address() {
    with_few_ports(", source: [\"10.77.0.1\"]", 150);
}

#[test]
fn two_endpoints_share_a_hundred_ports_of_each_of_two_source_addresses() {
    with_few_ports(", source: [\"10.77.0.1\", \"10.77.0.100\"]", 300);
}

/// So many connections at once from a place that has a hundred ports for connections that it makes.
fn with_few_ports(service: &str, connections: usize) {
    let Some(site) = Site::build(2) else {
        return;
    };
    site.place.ip("address add 10.77.0.100/24 dev switch");
    site.place.set("ipv4/ip_local_port_range", "40000 40099");
    for node in &site.nodes {
        node.within(|| echo_at(7001));
    }
    let table = format!(
        "version: 1
frontends: [{{name: f, bind: [\"{PLACE}:6000\"], protocol: tcp, service: s}}]
services:
  - name: s
    endpoints: [{{address: \"{}:7001\"}}, {{address: \"{}:7001\"}}]
    timeouts: {{connect: 5s}}{}
",
        node_address(0),
        node_address(1),
        service.replacen(", ", "\n    ", 1),
    );
    let ballast = site.place.within(|| Watched::serve(&table, 2));
    // Clients come from elsewhere, where there are ports enough.
    site.nodes[0].within(|| {
        let mut clients: Vec<_> = (0..connections)
            .map(|_| connect(ballast.address()))
            .collect();
        for client in &mut clients {
            ping(client).expect("an echo");
        }
        assert_eq!(ballast.in_flight() as usize, connections);
        clients.into_iter().for_each(reset);
    });
    assert_eq!(ballast.count(|counters| &counters.connect_errors), 0);
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn a_replaced_table_is_free_as_soon_as_its_last_dial_is_given_up() {
    let Some(site) = Site::build(1) else {
        return;
    };
    site.nodes[0].within(|| echo_at(7001));
    // Packets to this one are sent, and nobody has them.
    site.place
        .ip("neigh add 10.77.0.200 lladdr 02:00:00:00:00:99 dev switch nud permanent");
    let timeouts = ", timeouts: {connect: 2s}";
    let (hole, node) = (
        SocketAddr::from(([10, 77, 0, 200], 7001)),
        SocketAddr::from((node_address(0), 7001)),
    );
    site.place.within(|| {
        let ballast = Watched::serve(&support::table("", timeouts, &[hole]), 2);
        let old =
            Arc::clone(ballast.running.shared().live.plan().services()[0].endpoints()[0].live());
        let clients: Vec<_> = (0..20).map(|_| connect(ballast.address())).collect();
        ballast.until(|_| old.in_flight() == 20);

        let begun = Instant::now();
        ballast.swap(&support::table("", timeouts, &[node]));
        ping(&mut connect(ballast.address())).unwrap();
        let retired = || {
            ballast
                .running
                .shared()
                .status
                .retired
                .load(Ordering::Relaxed)
        };
        ballast.until(|_| old.in_flight() == 0 && retired() == 0);
        // The connect time-out, a second until apply looks, and a busy machine's delay.
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        for mut client in clients {
            assert_eq!(hear(&mut client), (Vec::new(), End::Reset));
        }
    });
}

/// The same for thousands at once, on one thread.
fn echo_of_thousands_at(port: u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    socket.bind(&any.into()).expect("a port");
    socket.listen(4_096).expect("a listener");
    socket.set_nonblocking(true).expect("an option");
    thread::spawn(move || {
        quiet_runtime().block_on(async {
            let listener = tokio::net::TcpListener::from_std(socket.into()).expect("a listener");
            loop {
                let (mut client, _) = listener.accept().await.expect("a client");
                tokio::spawn(async move {
                    while let Ok(byte) = client.read_u8().await {
                        client.write_u8(byte).await.ok();
                    }
                });
            }
        });
    });
}

/// An echo server at this port of the namespace that this thread is in.
fn echo_at(port: u16) {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).expect("a port");
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = client.read(&mut bytes) {
                    if client.write_all(&bytes[..read]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}
