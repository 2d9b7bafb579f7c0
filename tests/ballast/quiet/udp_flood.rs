//! `ballast`: a flood of datagrams from invented clients, a million or as many as there is time for: memory stays bounded, and the
//! clients that were there are served.
//!
//! A file of its own, since the memory of the whole process is weighed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use ballast::sys::datagrams::{self, Outgoing};
use ballast_core::flow::{FlowEnd, UdpCounters};
use support::Ballast;

#[test]
fn invented_clients_take_bounded_memory_and_the_others_are_served() {
    let _turn = crate::turn();
    let endpoint = echo_of_questions();
    let table = format!(
        "version: 1\nfrontends:\n  - {{name: f, bind: [\"127.0.0.1:0\"], protocol: udp, service: s}}\nservices:\n  - {{name: s, endpoints: [{{address: \"{endpoint}\"}}]}}\n"
    );
    let ballast = Ballast::serve(&table, 1);
    let address = ballast.address();
    let established: Vec<UdpSocket> = (0..50).map(|_| client(address)).collect();
    for client in established.iter().chain(&established) {
        ask(client);
    }
    let ports = established.iter().map(port_of_flow).collect::<Vec<u16>>();

    let flood = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let begun = Instant::now();
    let mut invented = 0_u32;
    let mut full = None;
    while invented < INVENTED && begun.elapsed() < AT_MOST {
        let sources: Vec<IpAddr> = (0..32).map(|next| source(invented + next)).collect();
        let datagrams: Vec<Outgoing<'_>> = sources
            .iter()
            .map(|from| Outgoing {
                bytes: b"nobody hears this",
                to: Some(address),
                from: Some(*from),
                ..Outgoing::default()
            })
            .collect();
        let sent = datagrams::send_many(&flood, &datagrams).expect("it is sent");
        invented += u32::try_from(sent).expect("a batch");
        // No faster than they are taken: each one is to cost a flow.
        support::until_within(2 * AT_MOST, "it takes more", || {
            seen(&ballast) + 1_000 >= u64::from(invented)
        });
        if invented.is_multiple_of(16_384) {
            established.iter().for_each(ask);
            if evicted(&ballast) > 0 && full.is_none() {
                full = Some(resident());
            }
        }
    }
    let (full, after) = (full.expect("it was full"), resident());
    println!(
        "{invented} invented clients in {:.1} s: {} MiB when it was full, {} MiB at the end, {} flows, {} evicted",
        begun.elapsed().as_secs_f64(),
        full >> 20,
        after >> 20,
        ballast.in_flight(),
        evicted(&ballast)
    );
    assert!(after < full + (8 << 20), "memory grew: {full} to {after}");
    established.iter().for_each(ask);
    let same = established.iter().map(port_of_flow).collect::<Vec<u16>>();
    assert_eq!(ports, same, "an established flow had to make room");
    assert!(evicted(&ballast) + 20_000 > u64::from(invented));
}

/// Each has an address of its own.
fn source(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(FIRST_SOURCE + number).into()
}

/// Answers questions with the port that they came from; everything else is lost.
fn echo_of_questions() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("an address");
    thread::spawn(move || {
        let mut asked = [0; 64];
        loop {
            if let Ok((length, peer)) = socket.recv_from(&mut asked)
                && asked[..length] == *b"?"
            {
                socket.send_to(&peer.port().to_be_bytes(), peer).ok();
            }
        }
    });
    address
}

fn client(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(to).expect("an address");
    let wait = Some(Duration::from_secs(10));
    socket.set_read_timeout(wait).expect("an option");
    socket
}

fn ask(client: &UdpSocket) {
    port_of_flow(client);
}

/// Which port the endpoint sees: the flow's.
fn port_of_flow(client: &UdpSocket) -> u16 {
    let mut port = [0; 2];
    // The endpoint's own buffer may be full of what nobody hears.
    for _ in 0..5 {
        client.send(b"?").expect("it is sent");
        if client.recv(&mut port).is_ok() {
            return u16::from_be_bytes(port);
        }
    }
    panic!("no answer");
}

fn counted(ballast: &Ballast, counter: impl Fn(&UdpCounters) -> u64) -> u64 {
    let plan = ballast.running.shared().live.plan();
    let counters = plan.frontends()[0].state().all_udp_counters();
    counters.map_or(0, |all| all.each().map(&counter).sum())
}

/// Datagrams that were passed on, or are lost.
fn seen(ballast: &Ballast) -> u64 {
    counted(ballast, |udp| {
        udp.datagrams_in.value() + udp.kernel_drops.value() + udp.unsent.value()
    })
}

fn evicted(ballast: &Ballast) -> u64 {
    counted(ballast, |udp| udp.ended[FlowEnd::Evicted.index()].value())
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("it can be read");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * 4096
}

const INVENTED: u32 = 1_000_000;
/// A slow machine sees as many as it can in this time: it is full long before.
const AT_MOST: Duration = Duration::from_secs(40);
/// 127.16.0.0: all addresses that begin with 127 are ours.
const FIRST_SOURCE: u32 = 0x7f10_0000;
