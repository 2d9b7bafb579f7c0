//! The test vectors, the corpus of the fuzz target, and single cases.

use std::net::SocketAddr;
use std::path::Path;

use super::vectors::{Expected, VECTORS, Vector, addresses};
use super::*;

fn read(bytes: &[u8]) -> Parsed<'_> {
    step(bytes, Versions::Both, Transport::Tcp)
}

#[test]
fn every_vector_gets_its_verdict_at_once() {
    for Vector {
        name,
        sent,
        expected,
        ..
    } in &VECTORS
    {
        let bytes = sent.bytes();
        match (*expected, read(&bytes)) {
            (Expected::Named(ends, behind), Parsed::Header(header)) => {
                assert_eq!(header.addresses, addresses(ends), "{name}");
                assert_eq!(header.length, bytes.len() - behind, "{name}");
            }
            (Expected::Local, Parsed::Local { length }) => {
                assert_eq!(length, bytes.len(), "{name}");
            }
            (Expected::Need, Parsed::Need(_)) | (Expected::RejectAt(_), Parsed::Reject(_)) => {}
            (_, seen) => panic!("{name}: {seen:?}"),
        }
    }
}

#[test]
fn every_vector_gets_the_same_verdict_byte_by_byte() {
    for Vector {
        name,
        sent,
        expected,
        ..
    } in &VECTORS
    {
        let bytes = sent.bytes();
        let whole = read(&bytes);
        let decided_at = match (*expected, whole) {
            (Expected::RejectAt(at), _) => at,
            (_, Parsed::Header(Header { length, .. }) | Parsed::Local { length }) => length,
            _ => usize::MAX,
        };
        for length in 0..=bytes.len() {
            let seen = read(&bytes[..length]);
            if length < decided_at {
                assert!(
                    matches!(seen, Parsed::Need(_)),
                    "{name} at {length}: {seen:?}"
                );
            } else {
                assert_eq!(seen, whole, "{name} at {length}");
            }
        }
    }
}

#[test]
fn every_vector_keeps_every_promise() {
    for vector in &VECTORS {
        oracle::check(&vector.sent.bytes());
    }
}

#[test]
fn the_corpus_of_the_fuzz_target_keeps_every_promise_and_holds_every_vector() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/preamble");
    let mut seeds = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let seed = std::fs::read(entry.unwrap().path()).unwrap();
        oracle::check(&seed);
        seeds.push(seed);
    }
    for vector in &VECTORS {
        assert!(
            seeds.contains(&vector.sent.bytes()),
            "{} is no seed in {folder:?}",
            vector.name
        );
    }
}

#[test]
fn udp_on_a_udp_listener_names_the_client() {
    let v2 = |kind| {
        [
            b"\r\n\r\n\0\r\nQUIT\n\x21".as_slice(),
            &[kind, 0, 12],
            &[9; 12],
            b"data",
        ]
        .concat()
    };
    let client = SocketAddr::from(([9, 9, 9, 9], 0x0909));
    let datagram = v2(0x12);
    let Parsed::Header(header) = step(&datagram, Versions::Both, Transport::Udp) else {
        panic!("a complete header");
    };
    assert_eq!((header.length, header.addresses.source), (28, client));
    let stream = v2(0x11);
    assert_eq!(
        step(&stream, Versions::Both, Transport::Udp),
        Parsed::Local { length: 28 }
    );
}

#[test]
fn a_datagram_without_a_whole_header_is_refused() {
    let cut = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c12345678901";
    let cases: [(&[u8], Reason); 5] = [
        (b"", Reason::Truncated),
        (&cut[..5], Reason::Truncated),
        (cut, Reason::Truncated),
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n",
            Reason::TextInDatagram,
        ),
        (b"hello", Reason::Signature),
    ];
    for (bytes, reason) in cases {
        let seen = step(bytes, Versions::Both, Transport::Udp);
        assert_eq!(seen, Parsed::Reject(reason), "{bytes:?}");
    }
}

#[test]
fn a_version_that_is_not_taken_is_refused_at_its_first_byte() {
    let refused = Parsed::Reject(Reason::VersionNotAccepted);
    assert_eq!(step(b"P", Versions::V2, Transport::Tcp), refused);
    assert_eq!(step(b"\r", Versions::V1, Transport::Tcp), refused);
    assert!(matches!(
        step(b"P", Versions::V1, Transport::Tcp),
        Parsed::Need(14)
    ));
    assert!(matches!(
        step(b"\r", Versions::V2, Transport::Tcp),
        Parsed::Need(15)
    ));
}

#[test]
fn refusals_say_what_is_wrong() {
    let cases: [(&str, Reason); 9] = [
        ("a09", Reason::SourceAddress),
        ("a11", Reason::SourcePort),
        ("a08", Reason::LineEnd),
        ("a06", Reason::LineTooLong),
        ("b12", Reason::Command),
        ("b18", Reason::TlvOverrun),
        ("b21", Reason::Checksum),
        ("b22", Reason::ChecksumLength),
        ("b29", Reason::SslOverrun),
    ];
    for (name, reason) in cases {
        let vector = VECTORS.iter().find(|vector| vector.name == name).unwrap();
        assert_eq!(read(&vector.sent.bytes()), Parsed::Reject(reason), "{name}");
    }
}

/// A v2 header for IPv4 over TCP with `fields` behind the addresses.
fn with_fields(fields: &[u8]) -> Vec<u8> {
    let length = u16::try_from(12 + fields.len()).unwrap().to_be_bytes();
    [
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11".as_slice(),
        &length,
        &[9; 12],
        fields,
    ]
    .concat()
}

#[test]
fn an_authority_that_is_no_text_is_refused() {
    assert_eq!(
        read(&with_fields(b"\x02\0\x02a\xff")),
        Parsed::Reject(Reason::AuthorityNotText)
    );
    let header = with_fields("\u{2}\0\u{5}gr\u{fc}n".as_bytes());
    let Parsed::Header(header) = read(&header) else {
        panic!("{header:?}")
    };
    assert_eq!(header.tlvs.authority(), Some("gr\u{fc}n"));
}

#[test]
fn a_second_checksum_is_refused() {
    let twice = with_fields(b"\x03\0\x04\0\0\0\0\x03\0\x04\0\0\0\0");
    assert_eq!(read(&twice), Parsed::Reject(Reason::ChecksumTwice));
}

#[test]
fn a_header_for_another_transport_is_still_checked() {
    let mut broken = with_fields(b"\x02\0\x0a12345");
    broken[13] = 0x12;
    assert_eq!(read(&broken), Parsed::Reject(Reason::TlvOverrun));
}

#[test]
fn the_cap_is_the_last_length_taken() {
    let filled = |size: u16| {
        with_fields(&[[4].as_slice(), &size.to_be_bytes(), &vec![0; size.into()]].concat())
    };
    let fits = filled(4096 - 12 - 3);
    assert!(matches!(
        read(&fits),
        Parsed::Header(Header { length: 4112, .. })
    ));
    oracle::check(&fits);
    let over = filled(4096 - 12 - 2);
    assert_eq!(read(&over[..16]), Parsed::Reject(Reason::TooLong));
}

#[test]
fn families_are_chosen_as_the_ends_need() {
    let (four, six) = ("192.0.2.1:1", "[2001:db8::1]:2");
    let mapped = "[::ffff:192.0.2.9]:3";
    let cases = [
        (four, four, "PROXY TCP4 192.0.2.1 192.0.2.1 1 1\r\n"),
        (six, six, "PROXY TCP6 2001:db8::1 2001:db8::1 2 2\r\n"),
        (four, six, "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 1 2\r\n"),
        (six, four, "PROXY TCP6 2001:db8::1 ::ffff:192.0.2.1 2 1\r\n"),
        (mapped, mapped, "PROXY TCP4 192.0.2.9 192.0.2.9 3 3\r\n"),
        (mapped, four, "PROXY TCP4 192.0.2.9 192.0.2.1 3 1\r\n"),
        (
            mapped,
            six,
            "PROXY TCP6 ::ffff:192.0.2.9 2001:db8::1 3 2\r\n",
        ),
    ];
    for (source, destination, line) in cases {
        let ends = addresses((source, destination));
        let mut out = Vec::new();
        encode_v1(ends, &mut out);
        assert_eq!(str::from_utf8(&out), Ok(line));
        out.clear();
        encode_v2(ends, Transport::Tcp, &Extras::default(), &mut out);
        assert_eq!(
            out.len(),
            if line.starts_with("PROXY TCP4") {
                28
            } else {
                52
            },
            "{line}"
        );
    }
}

#[test]
fn what_is_written_is_what_the_vectors_say() {
    let ends = addresses(("192.0.2.1:56324", "198.51.100.2:443"));
    let ssl = Ssl {
        certificate: ClientCertificate::Absent,
        verify: 0,
        version: Some("TLSv1.3"),
        cipher: Some("TLS_AES_128_GCM_SHA256"),
        common_name: None,
    };
    let cases = [
        ("b01", Extras::default()),
        (
            "b17",
            Extras {
                authority: Some("example.com"),
                ..Extras::default()
            },
        ),
        (
            "b20",
            Extras {
                has_checksum: true,
                ..Extras::default()
            },
        ),
        (
            "b25",
            Extras {
                unique_id: Some(&[0x75; 128]),
                ..Extras::default()
            },
        ),
        (
            "b27",
            Extras {
                ssl: Some(ssl),
                ..Extras::default()
            },
        ),
    ];
    for (name, extras) in cases {
        let mut out = Vec::new();
        encode_v2(ends, Transport::Tcp, &extras, &mut out);
        let vector = VECTORS
            .iter()
            .find(|vector| vector.name == name)
            .unwrap()
            .sent
            .bytes();
        assert_eq!(out, vector[..out.len()], "{name}");
    }
    let mut local = Vec::new();
    encode_local(&mut local);
    let vector = VECTORS.iter().find(|vector| vector.name == "b04");
    assert_eq!(Some(local), vector.map(|vector| vector.sent.bytes()));
}

#[test]
fn what_does_not_fit_is_left_out_and_the_rest_stays() {
    let long = "x".repeat(256);
    let fitting = "x".repeat(255);
    let ends = addresses(("[2001:db8::1]:1", "[2001:db8::2]:2"));
    let ssl = |text| Ssl {
        certificate: ClientCertificate::InConnection,
        verify: 0,
        version: text,
        cipher: text,
        common_name: text,
    };
    let has_checksum = true;
    let too_long = Extras {
        authority: Some(&long),
        unique_id: Some(&[1; 129]),
        ssl: Some(ssl(Some(&long))),
        has_checksum,
    };
    let longest = Extras {
        authority: Some(&fitting),
        unique_id: Some(&[1; 128]),
        ssl: Some(ssl(Some(&fitting))),
        has_checksum,
    };
    let absent = Extras {
        authority: Some(""),
        unique_id: Some(&[]),
        ssl: Some(ssl(None)),
        has_checksum,
    };
    for (extras, size) in [
        (too_long, 52 + 8 + 7),
        (longest, 1230),
        (absent, 52 + 8 + 7),
    ] {
        let mut out = b"kept".to_vec();
        encode_v2(ends, Transport::Udp, &extras, &mut out);
        let header = out.strip_prefix(b"kept").unwrap();
        assert_eq!(header.len(), size);
        let seen = step(header, Versions::V2, Transport::Udp);
        assert!(
            matches!(seen, Parsed::Header(Header { length, .. }) if length == size),
            "{seen:?}"
        );
    }
}
