//! Any bytes of a peer, and the corpus of the fuzz target.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::wire::*;
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        oracle::check(&bytes);
    }

    /// Frames in any order, whole but for a byte.
    #[test]
    fn any_frames(
        how in any::<[u8; 2]>(),
        frames in prop::collection::vec(any_frame(), 0..40),
        changed in prop::option::weighted(0.3, (any::<Index>(), any::<u8>())),
    ) {
        let mut bytes = [&how[..], &frames.concat()].concat();
        if let Some((at, byte)) = changed {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        oracle::check(&bytes);
    }
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = || select(&[0, 1, 1, 1, 2, 3, 3, 3, 5, 7, 9, 11, 99][..]);
    let flags = || {
        prop_oneof![
            Just(0),
            Just(END),
            Just(END_HEADERS),
            Just(END_HEADERS | END),
            any::<u8>()
        ]
    };
    let few = || prop::collection::vec(prop_oneof![0..10_u8, any::<u8>()], 0..20);
    let value = prop_oneof![0..5_u32, 65_530..65_540_u32, 0x7fff_fff0..=0x8000_000f_u32];
    prop_oneof![
        2 => (0..12_u8, flags(), stream(), few()).prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload)),
        6 => (stream(), head(), flags()).prop_map(|(stream, head, flags)| frame(HEADERS, flags | END_HEADERS & !PADDED, stream, &head)),
        2 => (stream(), head(), 0..2_usize).prop_map(|(stream, head, cut)| {
            let (first, rest) = head.split_at(head.len() / (1 + cut));
            [frame(HEADERS, 0, stream, first), frame(CONTINUATION, END_HEADERS, stream, rest)].concat()
        }),
        6 => (stream(), 0..300_usize, flags()).prop_map(|(stream, length, flags)| data(stream, vec![b'x'; length], flags & END)),
        1 => (stream(), select(&[16_384, 16_383, 9_000][..])).prop_map(|(stream, length)| data(stream, vec![b'x'; length], 0)),
        2 => (stream(), any::<u8>(), flags()).prop_map(|(stream, padding, flags)| padded(stream, "body", padding, flags & END)),
        2 => (stream(), 0..14_u32).prop_map(|(stream, code)| reset(stream, code)),
        2 => (stream(), value.clone()).prop_map(|(stream, more)| window(stream, more)),
        2 => prop::collection::vec((0..8_u16, value), 0..4).prop_map(|all| settings(&all)),
        1 => Just(confirmation()),
        1 => flags().prop_map(|flags| frame(PING, flags & ACK, 0, b"goodbye.")),
        1 => (0..8_u32, 0..3_u32).prop_map(|(last, code)| goaway(last, code)),
    ]
}

/// Header blocks, most of them of a request or of a response.
fn head() -> impl Strategy<Value = Vec<u8>> {
    let fields = prop::collection::vec(select(FIELDS), 0..6);
    (select(BEGINNINGS), fields).prop_map(|(begin, fields)| [begin, &fields.concat()].concat())
}

const BEGINNINGS: &[&[u8]] = &[
    b"\x82\x86\x84",
    b"\x83\x87\x85",
    b"\x88",
    b"\x8d",
    b"\x48\x03103",
    b"",
];
const FIELDS: &[&[u8]] = &[
    b"\x41\x01a",
    b"\x5c\x013",
    b"\x5c\x0299",
    b"\x40\x01k\x01v",
    b"\xbe",
    b"\xbf",
    b"\x00\x02te\x08trailers",
    b"\x00\x01X\x01v",
    b"\x20",
];

#[test]
fn the_corpus_of_the_fuzz_target_keeps_every_promise() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/http2");
    let mut seeds = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        oracle::check(&std::fs::read(entry.unwrap().path()).unwrap());
        seeds += 1;
    }
    assert!(seeds >= 10, "{seeds} seeds");
}
