//! Tables of hellos, good and bad, and properties: however they are cut, they mean the same.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

#[test]
fn names_and_protocols_are_found() {
    let long = format!("{}.{}.example", "a".repeat(63), "b".repeat(63));
    for (name, expected) in [
        ("shop.example.com", Some("shop.example.com")),
        ("SHOP.Example.COM.", Some("shop.example.com")),
        ("localhost", Some("localhost")),
        ("_svc.a-b.example", Some("_svc.a-b.example")),
        (&*long, Some(&*long)),
        ("192.0.2.1", None),
        ("2001:db8::1", None),
    ] {
        let hello = found(&message(&[sni(name.as_bytes())]));
        assert_eq!(hello.sni.as_deref(), expected, "{name}");
    }
    let offered = alpn(&[b"h2", b"http/1.1", b"\x0a\x0a"]);
    let hello = found(&message(&[grease(), sni(b"a.test"), offered, grease_2()]));
    assert_eq!(hello.sni.as_deref(), Some("a.test"));
    let names: Vec<&[u8]> = hello.alpn.iter().map(|name| &**name).collect();
    assert_eq!(names, [&b"h2"[..], b"http/1.1", b"\x0a\x0a"]);
}

#[test]
fn a_hello_without_extensions_or_without_a_name_names_nothing() {
    assert_eq!(found(&body_without_extensions()), ClientHello::default());
    assert_eq!(found(&message(&[])), ClientHello::default());
    assert_eq!(found(&message(&[grease()])), ClientHello::default());
}

#[test]
fn bad_names_are_refused() {
    let long = "a.".repeat(127) + "b";
    let label = "a".repeat(64);
    for name in [
        &b""[..],
        b".",
        b"a..b",
        b".a",
        b"a b",
        b"a\0b",
        b"*.example.com",
        b"a/b",
        b"sh\xc3\xb6p.example",
        b"\xff\xfe",
        b"[::1]",
        long.as_bytes(),
        label.as_bytes(),
    ] {
        let rejected = step(&records(&message(&[sni(name)]), usize::MAX));
        assert_eq!(rejected, Hello::Reject(Reason::BadServerName), "{name:?}");
    }
}

#[test]
fn what_is_not_tls_is_refused_at_once() {
    for (bytes, reason) in [
        (&b"G"[..], Reason::NotTls),
        (b"GET / HTTP/1.1\r\n", Reason::NotTls),
        (b"SSH-2.0-x", Reason::NotTls),
        // SSL 2.0
        (b"\x80", Reason::NotTls),
        (b"\x80\x2e\x01\x03\x01", Reason::NotTls),
        // An alert, application data.
        (b"\x15\x03\x01\0\x02\x02\x28", Reason::NotTls),
        (b"\x17\x03\x03", Reason::NotTls),
        (b"\x16\x02", Reason::NotTls),
        (b"\x16\xfe\xff", Reason::NotTls),
        (b"\x16\x03\x01\0\0", Reason::Malformed),
        (b"\x16\x03\x01\x40\x01", Reason::Malformed),
        (b"\x16\x03\x01\0\x04\x02", Reason::NotClientHello),
        (b"\x16\x03\x01\0\x04\x01\0\x3f\xfd", Reason::TooLong),
        (b"\x16\x03\x01\0\x04\x01\x01\0\0", Reason::TooLong),
        (b"\x16\x03\x01\0\x04\x01\0\0\0", Reason::Malformed),
    ] {
        assert_eq!(step(bytes), Hello::Reject(reason), "{bytes:02x?}");
        oracle::check(bytes);
    }
    // Another record between those of the hello.
    let mut mixed = records(&message(&[sni(b"a.test")]), 20);
    mixed[25] = 23;
    assert_eq!(step(&mixed), Hello::Reject(Reason::NotTls));
}

#[test]
fn broken_structures_are_refused() {
    let good = message(&[sni(b"a.test"), alpn(&[b"h2"])]);
    for end in 0..good.len() {
        let whole_without_extensions = end == body_without_extensions().len();
        let cut = good.get(..end).unwrap();
        let verdict = step(&records(cut, usize::MAX));
        let is_refused = verdict == Hello::Reject(Reason::Malformed);
        assert_eq!(is_refused, !whole_without_extensions, "{end}: {verdict:?}");
    }
    let name = |kind: u8| [&[0, 4, kind, 0, 1], &b"a"[..]].concat();
    for extensions in [
        // Twice.
        vec![sni(b"a.test"), sni(b"a.test")],
        vec![alpn(&[b"h2"]), alpn(&[b"h2"])],
        // Nothing in it, or an empty list.
        vec![extension(SERVER_NAME, b"")],
        vec![extension(SERVER_NAME, b"\0\0")],
        vec![extension(ALPN, b"")],
        vec![extension(ALPN, b"\0\0")],
        vec![alpn(&[b""])],
        vec![alpn(&[b"h2", b""])],
        // More or less than the list says.
        vec![extension(SERVER_NAME, &[name(0), b"x".to_vec()].concat())],
        vec![extension(SERVER_NAME, &[0, 5, 0, 0, 1, b'a'])],
        vec![extension(SERVER_NAME, &[0, 4, 0, 0, 2, b'a'])],
        vec![extension(
            SERVER_NAME,
            &[0, 8, 0, 0, 1, b'a', 0, 0, 1, b'b'],
        )],
        vec![extension(ALPN, &[0, 3, 3, b'h', b'2'])],
        vec![extension(ALPN, &[0, 3, 2, b'h', b'2', 0])],
    ] {
        let verdict = step(&records(&message(&extensions), usize::MAX));
        assert_eq!(
            verdict,
            Hello::Reject(Reason::Malformed),
            "{extensions:02x?}"
        );
    }
    // A name of an unknown type next to the host name is passed over.
    let two = [0, 8, 9, 0, 1, b'x', 0, 0, 1, b'a'];
    let hello = found(&message(&[extension(SERVER_NAME, &two)]));
    assert_eq!(hello.sni.as_deref(), Some("a"));
    assert_eq!(
        found(&message(&[extension(SERVER_NAME, &name(7))])).sni,
        None
    );
}

#[test]
fn the_longest_hello_is_16_kib() {
    let padded = |length: usize| {
        let bare = message(&[sni(b"a.test"), extension(21, b"")]).len();
        message(&[sni(b"a.test"), extension(21, &vec![0; length - bare])])
    };
    // One record: 5 bytes of its header, 4 of the message's.
    let bytes = records(&padded(LONGEST - 9), usize::MAX);
    assert_eq!(bytes.len(), LONGEST);
    assert!(matches!(step(&bytes), Hello::Found(_)));
    let bytes = records(&padded(LONGEST - 8), usize::MAX);
    assert_eq!(step(&bytes[..LONGEST - 1]), Hello::Need);
    assert_eq!(step(&bytes), Hello::Reject(Reason::TooLong));
    // In records of one byte each it becomes too long earlier.
    let bytes = records(&padded(LONGEST / 6), 1);
    assert_eq!(step(&bytes), Hello::Reject(Reason::TooLong));
}

#[test]
fn bytes_behind_the_hello_do_not_matter() {
    let mut bytes = records(&message(&[sni(b"a.test")]), usize::MAX);
    let alone = step(&bytes);
    bytes.extend_from_slice(b"\x14\x03\x03\0\x01\x01garbage");
    assert_eq!(step(&bytes), alone);
    assert!(matches!(alone, Hello::Found(_)));
}

#[test]
fn hellos_of_real_clients_are_read() {
    let h2 = ["h2", "http/1.1"].as_slice();
    for (file, name, protocols) in [
        ("openssl-13", Some("shop.example.com"), h2),
        ("in-records-of-7", Some("shop.example.com"), h2),
        ("openssl-12", Some("db.example.com"), &[]),
        ("openssl-nameless", None, &[]),
        ("curl", Some("x.example.com"), h2),
    ] {
        let verdict = step(&std::fs::read(corpus().join(file)).unwrap());
        let expected = ClientHello {
            sni: name.map(Into::into),
            alpn: protocols
                .iter()
                .map(|name| name.as_bytes().into())
                .collect(),
        };
        assert_eq!(verdict, Hello::Found(expected), "{file}");
    }
}

#[test]
fn the_corpus_of_the_fuzz_target_keeps_every_promise() {
    for entry in std::fs::read_dir(corpus()).unwrap() {
        oracle::check(&std::fs::read(entry.unwrap().path()).unwrap());
    }
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/hello")
}

proptest! {
    #[test]
    fn however_a_hello_is_cut_it_means_the_same(
        name in "([a-z0-9-]{1,10}\\.){0,4}[a-z]{1,10}",
        protocols in proptest::collection::vec("[a-z0-9/.]{1,12}", 1..4),
        size in 1_usize..300,
    ) {
        let offered: Vec<&[u8]> = protocols.iter().map(String::as_bytes).collect();
        let message = message(&[grease(), alpn(&offered), sni(name.as_bytes())]);
        let whole = found(&message);
        prop_assert_eq!(whole.sni.as_deref(), Some(&*name));
        let bytes = records(&message, size);
        prop_assert_eq!(step(&bytes), Hello::Found(whole));
        oracle::check(&bytes);
    }

    #[test]
    fn any_bytes_get_a_lasting_verdict(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        oracle::check(&bytes);
    }

    #[test]
    fn a_damaged_hello_gets_a_lasting_verdict(
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
        size in 1_usize..100,
    ) {
        let mut bytes = records(&message(&[sni(b"shop.test"), alpn(&[b"h2"])]), size);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        oracle::check(&bytes);
    }
}

fn found(message: &[u8]) -> ClientHello {
    let bytes = records(message, usize::MAX);
    oracle::check(&bytes);
    match step(&bytes) {
        Hello::Found(hello) => hello,
        other => panic!("{other:?}"),
    }
}

/// A handshake message in records of `size` bytes.
fn records(body: &[u8], size: usize) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1], &length[1..], body].concat();
    let mut records = Vec::new();
    for piece in message.chunks(size.min(LONGEST_RECORD)) {
        records.extend_from_slice(&[22, 3, 1]);
        records.extend(u16::try_from(piece.len()).unwrap().to_be_bytes());
        records.extend_from_slice(piece);
    }
    records
}

fn body_without_extensions() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([4, 1, 2, 3, 4]);
    body.extend([0, 4, 0x0a, 0x0a, 0x13, 0x01]);
    body.extend([1, 0]);
    body
}

fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut body = body_without_extensions();
    body.extend(vector16(&extensions.concat()));
    body
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector16(content)].concat()
}

fn sni(name: &[u8]) -> Vec<u8> {
    let entry = [&[HOST_NAME], &vector16(name)[..]].concat();
    extension(SERVER_NAME, &vector16(&entry))
}

fn alpn(names: &[&[u8]]) -> Vec<u8> {
    let list: Vec<u8> = names
        .iter()
        .flat_map(|name| [&[u8::try_from(name.len()).unwrap()], *name].concat())
        .collect();
    extension(ALPN, &vector16(&list))
}

fn grease() -> Vec<u8> {
    extension(0x3a3a, b"")
}

fn grease_2() -> Vec<u8> {
    extension(0xfafa, b"\0")
}

fn vector16(content: &[u8]) -> Vec<u8> {
    [
        &u16::try_from(content.len()).unwrap().to_be_bytes()[..],
        content,
    ]
    .concat()
}
