//! What the encoder writes.

use super::*;

#[test]
fn pseudo_fields_are_entries_of_the_static_table_where_there_is_one() {
    for (status, expected) in [
        (200, "88"),
        (204, "89"),
        (206, "8a"),
        (304, "8b"),
        (400, "8c"),
        (404, "8d"),
        (500, "8e"),
        (103, "0803 3130 33"),
        (302, "0803 3330 32"),
        (999, "0803 3939 39"),
    ] {
        let mut out = Vec::new();
        encode_status(&mut out, status);
        assert_eq!(out, bytes(expected), "{status}");
    }
    for (bytes_of_field, expected) in [
        (encoded(|out| encode_method(out, b"GET")), "82"),
        (encoded(|out| encode_method(out, b"POST")), "83"),
        (encoded(|out| encode_method(out, b"PUT")), "0203 5055 54"),
        (encoded(|out| encode_method(out, b"get")), "0203 6765 74"),
        (encoded(|out| encode_scheme(out, b"http")), "86"),
        (encoded(|out| encode_scheme(out, b"https")), "87"),
        (encoded(|out| encode_scheme(out, b"ws")), "0602 7773"),
        (encoded(|out| encode_authority(out, b"a.b")), "0103 612e 62"),
        (encoded(|out| encode_authority(out, b"")), "0100"),
        (path(b"/"), "84"),
        (path(b"/a"), "0402 2f61"),
        (path(b"*"), "0401 2a"),
        (path(b""), "0400"),
    ] {
        assert_eq!(bytes_of_field, bytes(expected));
    }
}

#[test]
fn names_of_the_static_table_are_found_in_any_case() {
    for (number, name) in NAMES.into_iter().enumerate() {
        let index = number + 15;
        for name in [name.to_owned(), name.to_uppercase(), capitals(name)] {
            assert_eq!(statics::index_of(name.as_bytes()), Some(index), "{name}");
        }
        for other in [
            format!("{name}x"),
            format!("x{name}"),
            name.replace('-', "_").replace('e', "i"),
        ] {
            assert!(
                statics::index_of(other.as_bytes()).is_none() || other == name,
                "{other}"
            );
        }
    }
    for name in ["", ":path", ":status", "x", "\u{1}"] {
        assert_eq!(statics::index_of(name.as_bytes()), None, "{name}");
    }
}

#[test]
fn a_field_is_literal_and_trimmed_and_its_name_in_lower_case() {
    for (name, value, expected) in [
        ("accept", "*/*", "0f04 032a 2f2a"),
        ("Content-Length", "7", "0f0d 0137"),
        ("ACCEPT-CHARSET", "a", "0f00 0161"),
        ("X-A", "b", "0003 782d 6101 62"),
        ("x", " \t b \tc\t ", "0001 7804 6220 0963"),
        ("x", " \t ", "0001 7800"),
        ("x", "", "0001 7800"),
        // Credentials.
        ("authorization", "a", "1f08 0161"),
        ("Cookie", "a", "1f11 0161"),
        ("Set-Cookie", "a", "1f28 0161"),
        ("proxy-authorization", "a", "1f22 0161"),
        ("proxy-authenticate", "a", "0f21 0161"),
    ] {
        let value = value.as_bytes();
        let field = encoded(|out| encode_field(out, name, value));
        assert_eq!(field, bytes(expected), "{name}");
        let in_place = encoded(|out| encode_field_with(out, name, |out| out.extend(value)));
        assert_eq!(in_place, field, "{name}");
    }
}

#[test]
fn long_names_and_values_have_long_lengths() {
    for length in [1, 126, 127, 128, 254, 255, 256, 16_510, 16_511, 70_000] {
        let value = "v".repeat(length - 1) + "w";
        let name = "n".repeat(length - 1) + "M";
        let mut out = Vec::new();
        encode_field(&mut out, &name, value.as_bytes());
        encode_field_with(&mut out, &name, |out| {
            out.extend(b"\t ");
            out.extend(value.as_bytes());
            out.extend(b" ");
        });
        encode_path(&mut out, |out| out.extend(value.as_bytes()));
        let name = name.to_lowercase();
        let expected = [(&*name, &*value), (&name, &value), (":path", &value)];
        assert_eq!(decoded(&mut Decoder::new(), &out), Ok(fields(&expected)));
    }
}

#[test]
fn a_block_after_a_new_table_size_of_the_peer_says_that_no_table_is_used() {
    let mut encoder = Encoder::default();
    let mut out = Vec::new();
    encoder.begin(&mut out);
    assert!(out.is_empty());
    encoder.peer_set_table_size();
    encoder.peer_set_table_size();
    encoder.begin(&mut out);
    assert_eq!(out, bytes("20"));
    encoder.begin(&mut out);
    assert_eq!(out, bytes("20"));
}

/// What `write` appends to bytes that are there already.
fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"/before".to_vec();
    write(&mut out);
    out.strip_prefix(b"/before").unwrap().to_vec()
}

fn path(path: &[u8]) -> Vec<u8> {
    encoded(|out| encode_path(out, |out| out.extend_from_slice(path)))
}

/// The same name with a capital letter at the beginning of each word.
fn capitals(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    words.collect::<Vec<_>>().join("-")
}

/// The names of the static table from index 15 on.
const NAMES: [&str; 47] = [
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "accept",
    "access-control-allow-origin",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "refresh",
    "retry-after",
    "server",
    "set-cookie",
    "strict-transport-security",
    "transfer-encoding",
    "user-agent",
    "vary",
    "via",
    "www-authenticate",
];
