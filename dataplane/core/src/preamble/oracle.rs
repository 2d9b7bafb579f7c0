//! Properties that hold for any bytes. The tests of this crate and the fuzz target `preamble` include this file.

use super::{
    Addresses, Extras, Header, Parsed, Reason, Transport, Versions, encode_v1, encode_v2, step,
};

/// Panics if reading `bytes` violates a guarantee.
pub(super) fn check(bytes: &[u8]) {
    let verdict = step(bytes, Versions::Both, Transport::Tcp);
    verdict_is_final_and_no_prefix_is_accepted(bytes, verdict);
    versions_agree(bytes, verdict);
    datagrams_agree(bytes);
    if let Parsed::Header(header) = verdict {
        tlvs_fill_the_header(header);
        ends_survive_encoding(header.addresses);
    }
}

/// Feeds `bytes` one by one: the verdict is `Need` up to some point, and then always `verdict`.
fn verdict_is_final_and_no_prefix_is_accepted(bytes: &[u8], verdict: Parsed<'_>) {
    let mut wanted = 1;
    let mut decided = None;
    for (length, prefix) in
        (0..=bytes.len().min(LONGEST + 8)).filter_map(|n| Some((n, bytes.get(..n)?)))
    {
        let seen = step(prefix, Versions::Both, Transport::Tcp);
        match (decided, seen) {
            (None, Parsed::Need(more)) => {
                assert!(
                    more > 0,
                    "{length}: nothing is needed, and yet there is no verdict"
                );
                assert!(
                    more <= LONGEST,
                    "{length}: {more} more bytes would be over the cap"
                );
                wanted = wanted.max(length + more);
            }
            (
                None,
                Parsed::Header(Header { length: taken, .. }) | Parsed::Local { length: taken },
            ) => {
                assert_eq!(taken, length, "accepted when its last byte came");
                assert!(
                    taken >= wanted,
                    "accepted with {taken} bytes when {wanted} were needed"
                );
                decided = Some(seen);
            }
            (None, Parsed::Reject(_)) => decided = Some(seen),
            (Some(decided), seen) => {
                assert_eq!(seen, decided, "{length}: a verdict was taken back");
            }
        }
    }
    match decided {
        Some(decided) => assert_eq!(verdict, decided, "all at once against byte by byte"),
        None => {
            assert!(
                matches!(verdict, Parsed::Need(_)),
                "byte by byte there was no verdict"
            );
            assert!(bytes.len() < LONGEST, "still no verdict");
        }
    }
}

/// A listener for one version judges that version like a listener for both, and refuses the other version at its first byte.
fn versions_agree(bytes: &[u8], verdict: Parsed<'_>) {
    let only = |versions| step(bytes, versions, Transport::Tcp);
    let not_accepted = Parsed::Reject(Reason::VersionNotAccepted);
    match bytes.first() {
        None => assert_eq!(
            (only(Versions::V1), only(Versions::V2)),
            (Parsed::Need(15), Parsed::Need(16))
        ),
        Some(b'P') => assert_eq!(
            (only(Versions::V1), only(Versions::V2)),
            (verdict, not_accepted)
        ),
        Some(b'\r') => assert_eq!(
            (only(Versions::V1), only(Versions::V2)),
            (not_accepted, verdict)
        ),
        Some(_) => assert_eq!((only(Versions::V1), only(Versions::V2)), (verdict, verdict)),
    }
}

/// A datagram is judged at once, and names a client exactly if its header says UDP.
fn datagrams_agree(bytes: &[u8]) {
    let stream = step(bytes, Versions::V2, Transport::Tcp);
    let datagram = step(bytes, Versions::V2, Transport::Udp);
    match (stream, datagram) {
        (Parsed::Need(_), datagram) => assert_eq!(datagram, Parsed::Reject(Reason::Truncated)),
        (Parsed::Header(Header { length, .. }), datagram) => {
            assert_eq!(datagram, Parsed::Local { length });
        }
        (Parsed::Local { length }, Parsed::Header(header)) => assert_eq!(header.length, length),
        (stream, datagram) => assert_eq!(datagram, stream),
    }
    let text = step(bytes, Versions::V1, Transport::Udp);
    assert!(
        matches!(text, Parsed::Reject(_)),
        "version 1 in a datagram: {text:?}"
    );
}

fn tlvs_fill_the_header(header: Header<'_>) {
    let size: usize = header.tlvs.iter().map(|tlv| 3 + tlv.value.len()).sum();
    assert!(
        size <= header.length,
        "{size} bytes of fields in a header of {}",
        header.length
    );
    assert!(header.tlvs.unique_id().is_none_or(|id| id.len() <= 128));
    let named = header.tlvs.iter().any(|tlv| tlv.kind == 2);
    assert_eq!(
        header.tlvs.authority().is_some(),
        named,
        "an authority that is no text was let in"
    );
}

fn ends_survive_encoding(addresses: Addresses) {
    let mut out = Vec::new();
    encode_v1(addresses, &mut out);
    assert!(out.len() <= 104, "a line of {} bytes", out.len());
    assert_reads_back(&out, addresses, Transport::Tcp);
    for transport in [Transport::Tcp, Transport::Udp] {
        out.clear();
        encode_v2(addresses, transport, &Extras::default(), &mut out);
        assert!(
            [28, 52].contains(&out.len()),
            "a header of {} bytes",
            out.len()
        );
        assert_reads_back(&out, addresses, transport);
    }
}

fn assert_reads_back(bytes: &[u8], addresses: Addresses, transport: Transport) {
    let Parsed::Header(header) = step(bytes, Versions::Both, transport) else {
        panic!("our own header is not accepted: {bytes:?}");
    };
    assert_eq!(header.length, bytes.len());
    assert_eq!(header.addresses.canonical(), addresses.canonical());
}

/// The longest header of all.
const LONGEST: usize = 16 + 4096;
