//! What comes before the first byte for an endpoint, sent so that it never ends; and readers that never read.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::{Most, Siege, client_hello};
use crate::peers::connect;
use support::raw::{CONTINUATION, END_STREAM, HEADERS, INITIAL_WINDOW, PREFACE, Raw, frame};
use support::raw::{encode, request, settings_frame};

/// Where it goes, what is sent at once, and what is then sent byte by byte.
fn slow_ones(siege: &Siege) -> Vec<(&'static str, SocketAddr, Vec<u8>, Vec<u8>)> {
    let none = Vec::new;
    let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff\x7f\0\0\x01\x7f\0\0\x01\0\x01\0\x02".to_vec();
    let head = [
        PREFACE,
        &settings_frame(&[]),
        &frame(HEADERS, END_STREAM, 1, &encode(&request("GET", "/"))),
    ]
    .concat();
    let pieces = frame(CONTINUATION, 0, 1, &[0x10]).repeat(200);
    vec![
        ("PROXY v1", siege.proxied, none(), b"PROXY TCP6 ".to_vec()),
        ("PROXY v2", siege.proxied, v2, vec![0; 1 << 10]),
        (
            "a hello",
            siege.https,
            none(),
            client_hello("web.test", 9_000),
        ),
        (
            "a passed hello",
            siege.pass,
            none(),
            client_hello("web.test", 9_000),
        ),
        (
            "HTTP/1",
            siege.http,
            b"GET / HTTP/1.1\r\n".to_vec(),
            b"X: y\r\n".repeat(100),
        ),
        ("HTTP/1 lines", siege.http, none(), b"\r\n".repeat(300)),
        ("HTTP/2", siege.http, head, pieces),
        ("a preface", siege.http, none(), PREFACE.to_vec()),
    ]
}

#[test]
fn preambles_that_never_end_are_cut_off_at_their_time() {
    let siege = Siege::new();
    for (what, address, at_once, dripping) in slow_ones(&siege) {
        let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(address).unwrap()).collect();
        for client in &mut clients {
            client.set_nodelay(true).unwrap();
            client.write_all(&at_once).unwrap();
        }
        let begun = Instant::now();
        for byte in &dripping {
            clients.retain_mut(|client| client.write_all(&[*byte]).is_ok() && !has_ended(client));
            if clients.is_empty() || begun.elapsed() > LONGEST {
                break;
            }
            support::pause(Duration::from_millis(100));
        }
        siege.serves_others();
        // Who has said all that it has falls silent, which helps as little.
        let in_time = support::comes_within(LONGEST.saturating_sub(begun.elapsed()), || {
            clients.retain_mut(|client| !has_ended(client));
            clients.is_empty()
        });
        assert!(in_time, "{what}: {} clients are still held", clients.len());
        let most = Most {
            mebibytes: 32,
            cpu: 60.0,
        };
        siege.has_cost(what, &most);
    }
    siege.until_let_go();
}

/// Whether the other side has ended the connection, by whatever it said before.
fn has_ended(client: &mut TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let ended = loop {
        match client.read(&mut [0; 4096]) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) => break error.kind() != ErrorKind::WouldBlock,
        }
    };
    client.set_nonblocking(false).unwrap();
    ended
}

/// What has come is not looked at again with each byte: that would be the square of its length.
#[test]
fn the_longest_preambles_in_segments_of_one_byte_cost_no_more_than_their_bytes() {
    let siege = Siege::new();
    let extras = vec![0xe0, 0x0f, 0x00].into_iter().chain(vec![0; 0xf00]);
    let extras: Vec<u8> = extras.collect();
    let length = u16::try_from(12 + extras.len()).unwrap().to_be_bytes();
    let v2 = [
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11",
        &length[..],
        b"\x7f\0\0\x01\x7f\0\0\x01\0\x01\0\x02",
        &extras,
    ]
    .concat();
    let field = format!("X: {}\r\n", "y".repeat(400));
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", field.repeat(100));
    let chunks = "1\r\nx\r\n".repeat(4_000);
    let body = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
    );
    for (what, address, bytes) in [
        ("PROXY v2", siege.proxied, v2),
        ("a hello", siege.pass, client_hello("web.test", 12_000)),
        ("a head", siege.http, head.into_bytes()),
        ("chunks", siege.http, body.into_bytes()),
    ] {
        let mut client = connect(address).unwrap();
        client.set_nodelay(true).unwrap();
        let before = siege.process.cpu();
        for byte in &bytes {
            if client.write_all(&[*byte]).is_err() {
                break;
            }
        }
        if address == siege.proxied {
            client.write_all(b"x").unwrap();
        }
        client.read_exact(&mut [0]).unwrap();
        let each = (siege.process.cpu() - before) * 1e6 / bytes.len() as f64;
        println!("{what}: {} bytes, {each:.1} us each", bytes.len());
        assert!(each < 150.0, "{what}: {each} us a byte");
    }
    siege.serves_others();
    siege.has_cost(
        "segments of a byte",
        &Most {
            mebibytes: 16,
            cpu: 20.0,
        },
    );
}

/// By TCP and by windows of HTTP/2. `memory` has the same beside endpoints that never end.
#[test]
fn readers_that_never_read_hold_little_and_are_cut_off() {
    let siege = Siege::new();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = connect(siege.tcp).unwrap();
        SockRef::from(&client)
            .set_recv_buffer_size(4 << 10)
            .unwrap();
        client.set_nonblocking(true).unwrap();
        while client.write(&[7; 16 << 10]).is_ok_and(|sent| sent > 0) {}
        clients.push(client);
    }
    let mut windows = Vec::new();
    for _ in 0..50 {
        let mut client = Raw::with(siege.http, &[(INITIAL_WINDOW, 0)]);
        client.ask_for_many();
        windows.push(client);
    }
    siege.serves_others();
    siege.has_cost(
        "readers that never read",
        &Most {
            mebibytes: 160,
            cpu: 20.0,
        },
    );
    // The clients stay, and are let go all the same.
    siege.until_let_go();
    siege.serves_others();
    drop((clients, windows));
}

const CLIENTS: usize = 200;
/// The deadlines are 2 s, of clients that do not read 4 s; the rest is for a busy machine.
const LONGEST: Duration = Duration::from_secs(12);
