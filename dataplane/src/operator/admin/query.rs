//! The words behind `?`, and those of a form.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Names and values of `a=b&c`, decoded. haproxy's addresses part words by `;` and `?` too.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let words = text.split([';', '?', '&']).filter(|word| !word.is_empty());
    words.map(|word| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        (decode(name), decode(value))
    })
}

/// Decodes `%2F` and `+`. What is no code stays.
fn decode(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

/// As it may be written in an address.
pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, CODED).to_string()
}

/// All but what RFC 3986 never reserves; `~` is coded, too.
const CODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_decoded_and_what_is_no_code_stays() {
        let pairs: Vec<(String, String)> =
            pairs("s=a%3Ab&s=%5b::1%5D&x=1+2&y&=z&p=%zz%4&u=%ff").collect();
        let expected = [
            ("s", "a:b"),
            ("s", "[::1]"),
            ("x", "1 2"),
            ("y", ""),
            ("", "z"),
            ("p", "%zz%4"),
            ("u", "\u{fffd}"),
        ];
        assert_eq!(
            pairs,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn what_is_encoded_is_decoded_to_itself() {
        for text in ["", "web:80", "ü & <b>?;#=+%", "[2001:db8::1]:80"] {
            let coded = encode(text);
            assert!(coded.is_ascii() && !coded.contains(['&', ';', '<', '#', '"', ' ']));
            assert_eq!(decode(&coded), text);
        }
    }
}
