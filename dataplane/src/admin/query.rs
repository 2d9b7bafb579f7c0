//! The words behind `?`, and those of a form.

/// Names and values of `a=b&c`, decoded. haproxy's addresses part words by `;` and `?` too.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let words = text.split([';', '?', '&']).filter(|word| !word.is_empty());
    words.map(|word| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        (decode(name), decode(value))
    })
}

/// Takes `%2F` and `+` for what they stand for. What stands for nothing stays.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let coded = match (first, after) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match (first, coded) {
            (_, Some((high, low))) => {
                bytes.push(high << 4 | low);
                rest = after.get(2..).unwrap_or_default();
            }
            (b'+', None) => bytes.push(b' '),
            (other, None) => bytes.push(*other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// As it may stand in an address.
pub(super) fn encode(text: &str) -> String {
    use std::fmt::Write;

    let mut coded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                coded.push(char::from(byte));
            }
            // Writing into a string cannot fail.
            _ => write!(coded, "%{byte:02X}").unwrap_or_default(),
        }
    }
    coded
}

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
