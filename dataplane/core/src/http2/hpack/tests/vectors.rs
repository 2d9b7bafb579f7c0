//! The examples of RFC 7541, appendix C.

use super::*;

#[test]
fn c_1_integers() {
    for (prefix, value, expected) in [(0x1f, 10, "0a"), (0x1f, 1337, "1f 9a0a"), (0xff, 42, "2a")] {
        let mut out = Vec::new();
        integer::write(&mut out, 0, prefix, value);
        assert_eq!(out, bytes(expected));
        let (first, mut rest) = out.split_first().unwrap();
        assert_eq!(integer::read(*first, prefix, &mut rest), Ok(value));
        assert!(rest.is_empty());
    }
}

#[test]
fn c_2_forms_of_a_field() {
    let custom = [("custom-key", "custom-header")];
    for (block, field, table) in [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            custom,
            &custom[..],
        ),
        (
            "040c 2f73 616d 706c 652f 7061 7468",
            [(":path", "/sample/path")],
            &[],
        ),
        (
            "1008 7061 7373 776f 7264 0673 6563 7265 74",
            [("password", "secret")],
            &[],
        ),
        ("82", [(":method", "GET")], &[]),
    ] {
        check(None, &[(block, &field, table)]);
    }
}

#[test]
fn c_3_and_4_requests() {
    let authority = (":authority", "www.example.com");
    let no_cache = ("cache-control", "no-cache");
    let custom = ("custom-key", "custom-value");
    let first = &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        authority,
    ];
    let second = &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        authority,
        no_cache,
    ];
    let third = &[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        authority,
        custom,
    ];
    let tables: [&[(&str, &str)]; 3] = [
        &[authority],
        &[no_cache, authority],
        &[custom, no_cache, authority],
    ];
    for blocks in [
        [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
        [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
    ] {
        check(
            None,
            &[
                (blocks[0], first, tables[0]),
                (blocks[1], second, tables[1]),
                (blocks[2], third, tables[2]),
            ],
        );
    }
}

#[test]
fn c_5_and_6_responses_with_a_small_table() {
    let private = ("cache-control", "private");
    let date = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
    let later = ("date", "Mon, 21 Oct 2013 20:13:22 GMT");
    let location = ("location", "https://www.example.com");
    let gzip = ("content-encoding", "gzip");
    let cookie = (
        "set-cookie",
        "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    );
    let first = &[(":status", "302"), private, date, location];
    let second = &[(":status", "307"), private, date, location];
    let third = &[(":status", "200"), private, later, location, gzip, cookie];
    let tables: [&[(&str, &str)]; 3] = [
        &[location, date, private, (":status", "302")],
        &[(":status", "307"), location, date, private],
        &[cookie, gzip, later],
    ];
    for blocks in [
        [
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d
             546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f
             6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b
             2076 6572 7369 6f6e 3d31",
        ],
        [
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7
             8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335
             dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ],
    ] {
        check(
            Some(256),
            &[
                (blocks[0], first, tables[0]),
                (blocks[1], second, tables[1]),
                (blocks[2], third, tables[2]),
            ],
        );
    }
}

/// Decodes blocks on one connection: digits of a block, its fields, and the dynamic table after it.
#[expect(clippy::type_complexity, reason = "a table of examples")]
fn check(table_size: Option<usize>, blocks: &[(&str, &[(&str, &str)], &[(&str, &str)])]) {
    let mut decoder = Decoder::new();
    if let Some(size) = table_size {
        let mut block = Vec::new();
        integer::write(&mut block, form::TABLE_SIZE, form::TABLE_SIZE_PREFIX, size);
        assert_eq!(decoded(&mut decoder, &block), Ok(Vec::new()));
    }
    for (block, expected, table) in blocks {
        assert_eq!(
            decoded(&mut decoder, &bytes(block)),
            Ok(fields(expected)),
            "{block}"
        );
        assert_eq!(entries(&mut decoder), fields(table), "{block}");
    }
}
