//! What a header of version 2 says beside the addresses.

use std::net::SocketAddr;

use crate::proxy::spelling::{
    AUTHORITY, CRC32C, Field, UNIQUE_ID, crc32c, ends, fields, headed, v2,
};
use crate::proxy::{TRUSTING, next, recorder, say, table};
use support::Ballast;

#[test]
fn an_endpoint_hears_the_fields_that_it_is_to_hear() {
    let (authority, id) = (
        (AUTHORITY, &b"shop.example.com"[..]),
        (UNIQUE_ID, &b"request 7"[..]),
    );
    let both = [authority, id, (0xea, b"somebody's own")];
    let cases: [(&str, &[Field<'_>], &[Expected<'_>]); 9] = [
        // By default the name that the client asked for, where there is one; else exactly 28 bytes.
        ("", &[], &[]),
        ("", &both, &[Expected::Is(authority)]),
        (", send-proxy-tlvs: [authority]", &[id], &[]),
        (", send-proxy-tlvs: [unique-id]", &both, &[Expected::Is(id)]),
        (", send-proxy-tlvs: [unique-id]", &[], &[Expected::FreshId]),
        (", send-proxy-tlvs: [crc32c]", &both, &[Expected::Sum]),
        // Nobody speaks TLS here.
        (", send-proxy-tlvs: [ssl]", &both, &[]),
        (
            ", send-proxy-tlvs: [crc32c, authority, unique-id]",
            &both,
            &[Expected::Is(authority), Expected::Is(id), Expected::Sum],
        ),
        (
            ", send-proxy-tlvs: [crc32c, authority, unique-id]",
            &[authority],
            &[Expected::Is(authority), Expected::FreshId, Expected::Sum],
        ),
    ];
    let (source, destination) = ends("192.0.2.1:56324", "198.51.100.2:443");
    for (asked, given, expected) in cases {
        let (endpoint, heard) = recorder("127.0.0.1:0");
        let service = format!(", send-proxy: v2{asked}");
        let ballast = Ballast::serve(&table("127.0.0.1:0", TRUSTING, &service, endpoint), 1);
        let mut ids = Vec::new();
        for _ in 0..2 {
            say(
                &ballast,
                [&v2(source, destination, &fields(given))[..], b"hello"],
            );
            let bytes = next(&heard);
            let fields = fields_of(&bytes, source, destination);
            assert_eq!(fields.len(), expected.len(), "{asked}: {fields:x?}");
            for (field, expected) in fields.iter().zip(expected) {
                expected.check(*field, &bytes);
                if matches!(expected, Expected::FreshId) {
                    ids.push(field.1.to_vec());
                }
            }
        }
        assert!(ids.is_empty() || ids[0] != ids[1], "{ids:x?}");
    }
}

#[test]
fn who_speaks_for_nobody_gives_no_fields_to_pass_on() {
    let (endpoint, heard) = recorder("127.0.0.1:0");
    let service = ", send-proxy: v2, send-proxy-tlvs: [authority, unique-id]";
    let ballast = Ballast::serve(&table("127.0.0.1:0", TRUSTING, service, endpoint), 1);
    let given = fields(&[(AUTHORITY, b"shop.example.com"), (UNIQUE_ID, b"request 7")]);
    let (_client, own) = say(&ballast, [&headed([0x20, 0x00], &given)[..], b"hello"]);
    let (source, destination) = own;
    let bytes = next(&heard);
    let fields = fields_of(&bytes, source, destination);
    assert_eq!(fields.len(), 1, "{fields:x?}");
    Expected::FreshId.check(fields[0], &bytes);
}

/// What an endpoint is to hear behind the addresses.
enum Expected<'a> {
    Is(Field<'a>),
    /// 16 bytes that no other connection has.
    FreshId,
    /// CRC32c, and it is right.
    Sum,
}

impl Expected<'_> {
    fn check(&self, field: Field<'_>, heard: &[u8]) {
        match self {
            Self::Is(expected) => assert_eq!(field, *expected),
            Self::FreshId => assert_eq!((field.0, field.1.len()), (UNIQUE_ID, 16)),
            Self::Sum => {
                let mut header = heard[..heard.len() - b"hello".len()].to_vec();
                // It is the last one, and taken as zeros.
                let end = header.len();
                header[end - 4..].fill(0);
                assert_eq!(field, (CRC32C, &crc32c(&header).to_be_bytes()[..]));
            }
        }
    }
}

/// The fields of a header that names these two of IPv4, and has nothing but "hello" behind it.
fn fields_of(heard: &[u8], source: SocketAddr, destination: SocketAddr) -> Vec<Field<'_>> {
    let length = usize::from(u16::from_be_bytes([heard[14], heard[15]]));
    let (header, said) = heard.split_at(16 + length);
    assert_eq!(said, b"hello");
    let (_, mut rest) = header.split_at(28);
    assert!(header == v2(source, destination, rest), "{header:x?}");
    let mut fields = Vec::new();
    while let [kind, high, low, behind @ ..] = rest {
        let (value, behind) = behind.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        fields.push((*kind, value));
        rest = behind;
    }
    assert!(rest.is_empty(), "{rest:x?}");
    fields
}
