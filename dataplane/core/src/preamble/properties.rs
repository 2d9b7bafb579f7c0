//! Properties of any header, compared with the crate `proxy-protocol`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;

use super::vectors::{Oracle, VECTORS};
use super::*;

fn read(bytes: &[u8]) -> Parsed<'_> {
    step(bytes, Versions::Both, Transport::Tcp)
}

proptest! {
    #[test]
    fn no_bytes_break_a_promise(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        oracle::check(&bytes);
    }

    /// A vector with some bytes changed and its end cut or extended: close enough to a header to get far into the parser.
    #[test]
    fn no_damaged_vector_breaks_a_promise(
        index in 0..VECTORS.len(),
        changes in proptest::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4),
        end in any::<prop::sample::Index>(),
        behind in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bytes = VECTORS[index].sent.bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        oracle::check(&bytes);
        bytes.truncate(end.index(bytes.len() + 1));
        bytes.extend(behind);
        oracle::check(&bytes);
    }

    #[test]
    fn what_v1_writes_is_read_back(ends in any_addresses(), behind in any::<[u8; 4]>()) {
        let mut bytes = Vec::new();
        encode_v1(ends, &mut bytes);
        let length = bytes.len();
        prop_assert!((22..=104).contains(&length));
        bytes.extend(behind);
        oracle::check(&bytes);
        let Parsed::Header(header) = read(&bytes) else { panic!("{bytes:?}") };
        prop_assert_eq!((header.length, header.addresses.canonical()), (length, ends.canonical()));
    }

    #[test]
    fn what_v2_writes_is_read_back(
        ends in any_addresses(),
        transport in any_transport(),
        authority in any_text(),
        [version, cipher, common_name] in [any_text(), any_text(), any_text()],
        unique_id in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..140)),
        verify in any::<Option<u32>>(),
        (certificate, flags) in prop_oneof![
            Just((ClientCertificate::Absent, 1)),
            Just((ClientCertificate::InSession, 5)),
            Just((ClientCertificate::InConnection, 7)),
        ],
        has_checksum in any::<bool>(),
    ) {
        let fits = |text: &&str| !text.is_empty() && text.len() <= 255;
        let ssl = verify.map(|verify| Ssl {
            certificate,
            verify,
            version: version.as_deref(),
            cipher: cipher.as_deref(),
            common_name: common_name.as_deref(),
        });
        let extras = Extras {
            authority: authority.as_deref(),
            unique_id: unique_id.as_deref(),
            ssl,
            has_checksum,
        };
        let mut bytes = Vec::new();
        encode_v2(ends, transport, &extras, &mut bytes);
        let Parsed::Header(header) = step(&bytes, Versions::V2, transport) else {
            panic!("{bytes:?}")
        };
        prop_assert_eq!(header.length, bytes.len());
        prop_assert_eq!(header.addresses.canonical(), ends.canonical());
        prop_assert_eq!(header.tlvs.authority(), extras.authority.filter(fits));
        prop_assert_eq!(
            header.tlvs.unique_id(),
            extras.unique_id.filter(|id| !id.is_empty() && id.len() <= 128)
        );
        let said = header.tlvs.iter().find(|tlv| tlv.kind == Tlv::SSL).map(|tlv| tlv.value);
        prop_assert_eq!(said.is_some(), ssl.is_some());
        if let (Some(said), Some(ssl)) = (said, ssl) {
            let (fixed, inner) = said.split_at(5);
            prop_assert_eq!(fixed, [&[flags], ssl.verify.to_be_bytes().as_slice()].concat());
            let texts: Vec<&[u8]> = Tlvs::within(inner).iter().map(|tlv| tlv.value).collect();
            let sent = [ssl.version, ssl.common_name, ssl.cipher].into_iter().flatten();
            prop_assert_eq!(texts, sent.filter(fits).map(str::as_bytes).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_checksum_notices_any_changed_address(
        ends in any_addresses(),
        at in any::<prop::sample::Index>(),
        change in 1..=u8::MAX,
    ) {
        let mut bytes = Vec::new();
        let extras = Extras { has_checksum: true, ..Extras::default() };
        encode_v2(ends, Transport::Tcp, &extras, &mut bytes);
        let addresses = 16..bytes.len() - 7;
        bytes[addresses.start + at.index(addresses.len())] ^= change;
        prop_assert_eq!(read(&bytes), Parsed::Reject(Reason::Checksum));
    }

    #[test]
    fn the_other_crate_reads_what_we_write(ends in any_addresses(), transport in any_transport()) {
        let mut bytes = Vec::new();
        encode_v1(ends, &mut bytes);
        let line = second_opinion(&bytes).unwrap();
        prop_assert_eq!(line.named.map(Addresses::canonical), Some(ends.canonical()));
        prop_assert_eq!(line.length, bytes.len());
        bytes.clear();
        let extras = Extras { authority: Some("example.com"), ..Extras::default() };
        encode_v2(ends, transport, &extras, &mut bytes);
        let header = second_opinion(&bytes).unwrap();
        prop_assert_eq!(header.named.map(Addresses::canonical), Some(ends.canonical()));
        prop_assert_eq!(header.length, bytes.len());
    }

    /// A line with one byte changed: that crate accepts what we accept, with the same ends. What only that crate accepts has a
    /// sign before a number, or a wrong byte that it does not check.
    #[test]
    fn the_other_crate_is_never_stricter_on_lines(
        ends in any_addresses(),
        at in any::<prop::sample::Index>(),
        byte in prop_oneof![
            any::<u8>(),
            prop::sample::select(b"0123456789abcdef:. \r\n+".as_slice()),
        ],
    ) {
        let mut bytes = Vec::new();
        encode_v1(ends, &mut bytes);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        // That crate reads on after a lone CR.
        bytes.extend(b"\r\n\r\n");
        let theirs = second_opinion(&bytes);
        match read(&bytes) {
            Parsed::Header(header) => {
                let Opinion { named, length } = theirs.unwrap();
                prop_assert_eq!((Some(header.addresses), header.length), (named, length));
            }
            Parsed::Reject(_) => {
                let known = byte == b'+' || (6..11).contains(&at);
                prop_assert!(theirs.is_none() || known, "only we refuse {bytes:?}");
            }
            seen => panic!("{seen:?}"),
        }
    }
}

#[test]
fn the_other_crate_agrees_on_the_vectors() {
    for vector in VECTORS
        .iter()
        .filter(|vector| vector.oracle == Oracle::Agrees)
    {
        // That crate does not know the listener's transport and accepts a UDP header.
        let transport = if vector.name == "b03" {
            Transport::Udp
        } else {
            Transport::Tcp
        };
        let bytes = vector.sent.bytes();
        let (ours, theirs) = (
            step(&bytes, Versions::Both, transport),
            second_opinion(&bytes),
        );
        match (ours, theirs) {
            (
                Parsed::Header(header),
                Some(Opinion {
                    named: Some(ends),
                    length,
                }),
            ) => {
                assert_eq!(
                    (header.addresses, header.length),
                    (ends, length),
                    "{}",
                    vector.name
                );
            }
            (
                Parsed::Local { length: ours },
                Some(Opinion {
                    named: None,
                    length,
                }),
            ) => {
                assert_eq!(ours, length, "{}", vector.name);
            }
            (Parsed::Reject(_), None) => {}
            (ours, _) => panic!("{}: {ours:?}", vector.name),
        }
    }
}

/// The result of the crate `proxy-protocol` for a complete header.
struct Opinion {
    named: Option<Addresses>,
    length: usize,
}

fn second_opinion(bytes: &[u8]) -> Option<Opinion> {
    use proxy_protocol::{ProxyHeader, version1, version2};
    let ends = |source: SocketAddr, destination: SocketAddr| {
        Some(Addresses {
            source,
            destination,
        })
    };
    let mut rest = bytes;
    let named = match proxy_protocol::parse(&mut rest).ok()? {
        ProxyHeader::Version1 { addresses } => match addresses {
            version1::ProxyAddresses::Unknown => None,
            version1::ProxyAddresses::Ipv4 {
                source,
                destination,
            } => ends(source.into(), destination.into()),
            version1::ProxyAddresses::Ipv6 {
                source,
                destination,
            } => ends(source.into(), destination.into()),
        },
        ProxyHeader::Version2 {
            command: version2::ProxyCommand::Local,
            ..
        } => None,
        ProxyHeader::Version2 { addresses, .. } => match addresses {
            version2::ProxyAddresses::Ipv4 {
                source,
                destination,
            } => ends(source.into(), destination.into()),
            version2::ProxyAddresses::Ipv6 {
                source,
                destination,
            } => ends(source.into(), destination.into()),
            _ => None,
        },
        _ => None,
    };
    Some(Opinion {
        named,
        length: bytes.len() - rest.len(),
    })
}

fn any_addresses() -> impl Strategy<Value = Addresses> {
    let ip = prop_oneof![
        any::<Ipv4Addr>().prop_map(IpAddr::V4),
        any::<Ipv4Addr>().prop_map(|ip| IpAddr::V6(ip.to_ipv6_mapped())),
        any::<Ipv6Addr>().prop_map(IpAddr::V6),
        // Runs of zeros, which are abbreviated.
        any::<(u128, u8, u8)>().prop_map(|(bits, left, right)| {
            IpAddr::V6((bits >> (left % 128) << (right % 128)).to_be_bytes().into())
        }),
    ];
    let socket = (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port));
    (socket.clone(), socket).prop_map(|(source, destination)| Addresses {
        source,
        destination,
    })
}

fn any_transport() -> impl Strategy<Value = Transport> {
    prop_oneof![Just(Transport::Tcp), Just(Transport::Udp)]
}

fn any_text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[a-zA-Z0-9._ü-]{0,300}")
}
