//! `ballast`: PROXY headers over TCP, from end to end: what trusted peers say of their clients, what endpoints hear, and when it
//! changes.
//!
//! Headers are spelled out here byte by byte: neither the reader nor the writer of the product is asked what is right.

mod changes;
mod fields;
mod spelling;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use spelling::{CRC32C, Ends, crc32c, ends, fields, headed, header_of, v1, v2};
use support::{Ballast, server};

#[test]
fn whoever_a_trusted_peer_names_is_named_to_the_endpoint() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        for send in FORMS {
            let (endpoint, heard) = recorder("127.0.0.1:0");
            let service = format!(", send-proxy: {send}");
            let ballast = Ballast::serve(&table(bind, TRUSTING, &service, endpoint), 1);
            for (what, header, named) in introductions() {
                let whole = [&header[..], b"hello"].concat();
                // In one piece, and in as many as there are bytes.
                for size in [whole.len(), 1] {
                    let (_client, own) = say(&ballast, whole.chunks(size));
                    let expected = header_of(send, named.unwrap_or(own));
                    let context = format!("{what}, to {bind}, {send} to the endpoint");
                    assert_heard(&heard, &[&expected[..], b"hello"].concat(), &context);
                }
            }
            ballast.until(|ballast| ballast.in_flight() == 0);
            assert_eq!(header_errors(&ballast), 0);
        }
    }
}

/// What a peer may say first, and whom it names by that: client and destination, in the family in which an endpoint hears of
/// them. Nobody: the connection's own ends.
fn introductions() -> Vec<(&'static str, Vec<u8>, Option<Ends>)> {
    let four = Some(ends("192.0.2.1:56324", "198.51.100.2:443"));
    let six = Some(ends("[2001:db8::1]:56324", "[2001:db8::2]:443"));
    let mixed = Some(ends("[::ffff:192.0.2.1]:56324", "[2001:db8::2]:443"));
    let line = |text: &str| format!("PROXY {text}\r\n").into_bytes();
    let block_of = |(source, destination)| v2(source, destination, &[])[16..].to_vec();
    let block = block_of(ends("192.0.2.1:56324", "198.51.100.2:443"));
    let clothed = ends("[::ffff:192.0.2.1]:56324", "[::ffff:198.51.100.2]:443");
    let half_clothed = ends("[::ffff:192.0.2.1]:56324", "[2001:db8::2]:443");
    vec![
        (
            "a line of IPv4",
            line("TCP4 192.0.2.1 198.51.100.2 56324 443"),
            four,
        ),
        (
            "a line of IPv6",
            line("TCP6 2001:db8::1 2001:db8::2 56324 443"),
            six,
        ),
        (
            "a line of IPv4 in IPv6 clothes",
            line("TCP6 ::ffff:192.0.2.1 ::ffff:198.51.100.2 56324 443"),
            four,
        ),
        (
            "a line of an IPv4 client of an IPv6 address",
            line("TCP6 ::ffff:192.0.2.1 2001:db8::2 56324 443"),
            mixed,
        ),
        ("a line of nobody", line("UNKNOWN"), None),
        (
            "a line of nobody with addresses",
            line("UNKNOWN 192.0.2.1 198.51.100.2 56324 443"),
            None,
        ),
        ("a header of IPv4", headed([0x21, 0x11], &block), four),
        (
            "a header of IPv6",
            headed(
                [0x21, 0x21],
                &block_of(ends("[2001:db8::1]:56324", "[2001:db8::2]:443")),
            ),
            six,
        ),
        (
            "a header of IPv4 in IPv6 clothes",
            headed([0x21, 0x21], &block_of(clothed)),
            four,
        ),
        (
            "a header of an IPv4 client of an IPv6 address",
            headed([0x21, 0x21], &block_of(half_clothed)),
            mixed,
        ),
        ("LOCAL", headed([0x20, 0x00], &[]), None),
        ("LOCAL with addresses", headed([0x20, 0x11], &block), None),
        (
            "LOCAL of no family that there is",
            headed([0x20, 0x41], &[1, 2, 3]),
            None,
        ),
        ("an unspecified family", headed([0x21, 0x00], &block), None),
        (
            "a UNIX socket's client",
            headed([0x21, 0x31], &[b'/'; 216]),
            None,
        ),
        ("a UDP client", headed([0x21, 0x12], &block), None),
    ]
}

#[test]
fn what_is_no_header_is_data_from_strangers_and_the_end_for_trusted_peers() {
    let (source, destination) = ends("192.0.2.1:56324", "198.51.100.2:443");
    let (line, header) = (v1(source, destination), v2(source, destination, &[]));
    let mut damaged = v2(source, destination, &fields(&[(CRC32C, &[0; 4])]));
    let sum = crc32c(&damaged).to_be_bytes();
    let end = damaged.len();
    damaged[end - 4..].copy_from_slice(&sum);
    let undamaged = damaged.clone();
    damaged[20] ^= 1;
    let from = |range: &str, more: &str| format!(", accept-proxy: {{from: [{range}]{more}}}");
    let (trusted, stranger) = ("\"127.0.0.0/8\"", "\"192.0.2.0/24\", \"::1/128\"");
    let cases = [
        (from(stranger, ""), &line, Fate::Data),
        (from(stranger, ""), &header, Fate::Data),
        (String::new(), &line, Fate::Data),
        (String::new(), &header, Fate::Data),
        (from(trusted, ", versions: [v1]"), &line, Fate::Header),
        (from(trusted, ", versions: [v1]"), &header, Fate::Reset),
        (from(trusted, ", versions: [v2]"), &line, Fate::Reset),
        (from(trusted, ", versions: [v2]"), &header, Fate::Header),
        (from(trusted, ", versions: [v1, v2]"), &line, Fate::Header),
        (from(trusted, ", versions: [v1, v2]"), &header, Fate::Header),
        (from(trusted, ""), &undamaged, Fate::Header),
        (from(trusted, ""), &damaged, Fate::Reset),
        (
            from(trusted, ""),
            &b"hello, who are you?".to_vec(),
            Fate::Reset,
        ),
    ];
    for (accept, bytes, fate) in cases {
        let (endpoint, heard) = recorder("127.0.0.1:0");
        let text = table("127.0.0.1:0", &accept, ", send-proxy: v1", endpoint);
        let ballast = Ballast::serve(&text, 1);
        // In one piece: of a reset the kernel tells once, and a second write would hear of it.
        let whole = [&bytes[..], b"hello"].concat();
        let (mut client, (peer, here)) = say(&ballast, [&whole[..]]);
        let expected = match fate {
            Fate::Data => [v1(peer, here), bytes.clone()].concat(),
            Fate::Header => v1(source, destination),
            Fate::Reset => {
                let error = client.read(&mut [0; 16]).expect_err("nobody answers");
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{accept}");
                ballast.until(|ballast| header_errors(ballast) == 1);
                assert!(
                    heard.try_recv().is_err(),
                    "{accept}: an endpoint was dialed"
                );
                continue;
            }
        };
        assert_heard(&heard, &[&expected[..], b"hello"].concat(), &accept);
        assert_eq!(header_errors(&ballast), 0, "{accept}");
    }
}

/// What becomes of a connection.
enum Fate {
    /// Its first bytes are a header, and gone.
    Header,
    /// They go on like all others.
    Data,
    Reset,
}

#[test]
fn families_of_clients_and_endpoints_do_not_have_to_agree() {
    for (bind, endpoint) in [("127.0.0.1:0", "[::1]:0"), ("[::1]:0", "127.0.0.1:0")] {
        for send in ["v1", "v2"] {
            let (endpoint, heard) = recorder(endpoint);
            let service = format!(", send-proxy: {send}");
            let ballast = Ballast::serve(&table(bind, "", &service, endpoint), 1);
            let (_client, own) = say(&ballast, [&b"hello"[..]]);
            let expected = header_of(send, own);
            assert_heard(&heard, &[&expected[..], b"hello"].concat(), bind);
        }
    }
}

/// A header is read together with what follows it, as far as that fits into a small buffer.
#[test]
fn bytes_behind_a_header_arrive_whole_and_are_counted() {
    let (source, destination) = ends("192.0.2.1:56324", "198.51.100.2:443");
    let bulk: Vec<u8> = (0..64 << 10).map(|n: u32| n.to_be_bytes()[3]).collect();
    for header in [v1(source, destination), v2(source, destination, &[])] {
        let (endpoint, heard) = recorder("127.0.0.1:0");
        let text = table("127.0.0.1:0", TRUSTING, ", send-proxy: v1", endpoint);
        let ballast = Ballast::serve(&text, 1);
        let mut counted = 0;
        for length in [1, 900, 1 << 10, 8 << 10, 64 << 10] {
            let (_client, _) = say(&ballast, [&[&header, &bulk[..length]].concat()[..]]);
            let expected = [v1(source, destination), bulk[..length].to_vec()].concat();
            assert!(next(&heard) == expected, "{length} bytes");
            counted += length;
        }
        ballast.until(|ballast| ballast.in_flight() == 0);
        let metrics = ballast.metrics();
        for of in [
            "frontend_bytes_in_total{proxy=\"f\"}",
            "backend_bytes_in_total{proxy=\"s\"}",
        ] {
            let line = format!("haproxy_{of} {counted}\n");
            assert!(metrics.contains(&line), "{line}");
        }
    }
}

/// As MySQL does: the server speaks first, and before that it wants to know to whom.
#[test]
fn an_endpoint_hears_who_is_there_before_the_client_has_said_a_word() {
    for (send, length) in [("v1", 0), ("v2", 28)] {
        let greeting = server(move |mut client| {
            let mut header = vec![0; length];
            client.read_exact(&mut header).expect("a header");
            while length == 0 && !header.ends_with(b"\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).expect("a byte");
                header.push(byte[0]);
            }
            client.write_all(&header).expect("a greeting");
        });
        let service = format!(", send-proxy: {send}");
        let ballast = Ballast::serve(&table("127.0.0.1:0", "", &service, greeting), 1);
        let mut client = ballast.connect();
        let expected = header_of(send, own(&client));
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).expect("a greeting");
        assert!(heard == expected, "{send}: {heard:x?}");
    }
}

/// An endpoint that hands over all that it heard in one connection.
fn recorder(bind: &str) -> (SocketAddr, Receiver<Vec<u8>>) {
    let (told, heard) = channel();
    let listener = TcpListener::bind(bind).expect("a listener");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut bytes = Vec::new();
            client.read_to_end(&mut bytes).expect("an end");
            if told.send(bytes).is_err() {
                return;
            }
        }
    });
    (address, heard)
}

fn next(heard: &Receiver<Vec<u8>>) -> Vec<u8> {
    let wait = Duration::from_secs(20);
    heard.recv_timeout(wait).expect("a connection")
}

fn assert_heard(heard: &Receiver<Vec<u8>>, expected: &[u8], context: &str) {
    let heard = next(heard);
    assert!(
        heard == expected,
        "{context}: {heard:x?}, not {expected:x?}"
    );
}

fn assert_hears(client: &mut TcpStream, expected: &[u8], context: &str) {
    let mut heard = vec![0; expected.len()];
    client.read_exact(&mut heard).expect("an echo");
    assert!(
        heard == expected,
        "{context}: {heard:x?}, not {expected:x?}"
    );
}

/// Says this in pieces, and that it was all. Also who says it, and to whom.
fn say<'a>(ballast: &Ballast, pieces: impl IntoIterator<Item = &'a [u8]>) -> (TcpStream, Ends) {
    let mut client = ballast.connect();
    let own = own(&client);
    client.set_nodelay(true).expect("an option");
    for piece in pieces {
        // Who is not liked may be cut at the first byte.
        if client.write_all(piece).is_err() {
            break;
        }
    }
    client.shutdown(Shutdown::Write).ok();
    (client, own)
}

fn header_errors(ballast: &Ballast) -> u64 {
    let metrics = ballast.metrics();
    let counts = metrics.lines().filter_map(|line| {
        line.starts_with("ballast_proxy_header_errors_total{")
            .then(|| line.rsplit_once(' ')?.1.parse::<u64>().ok())?
    });
    counts.sum()
}

/// A client's address, and the one that it connected to.
fn own(client: &TcpStream) -> Ends {
    let here = client.local_addr().expect("an address");
    (here, client.peer_addr().expect("an address"))
}

fn table(bind: &str, frontend: &str, service: &str, endpoint: SocketAddr) -> String {
    format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"{bind}\"], protocol: tcp, service: s{frontend}}}]\nservices: [{{name: s{service}, endpoints: [{{address: \"{endpoint}\"}}]}}]\n"
    )
}

const TRUSTING: &str = ", accept-proxy: {from: [\"127.0.0.0/8\", \"::1/128\"]}";
/// What `send-proxy` may say.
const FORMS: [&str; 3] = ["off", "v1", "v2"];
