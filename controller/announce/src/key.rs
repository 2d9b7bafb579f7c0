//! The file with the keys of the members: one key, or two while the key is changed.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use ballast_core::table::Problem;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The keys of the members. The first one seals; each of them opens.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys(Vec<[u8; Self::LENGTH]>);

impl Keys {
    /// The bytes of a key.
    pub const LENGTH: usize = 32;

    /// The keys, the first one first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8; Self::LENGTH]> {
        self.0.iter()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

/// Reads the text of a key file. Empty lines and lines that begin with `#` say nothing.
pub fn parse(text: &[u8]) -> Result<Keys, Vec<Problem>> {
    let text = String::from_utf8_lossy(text);
    let (mut keys, mut problems) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bytes = STANDARD.decode(line).ok();
        match bytes.and_then(|bytes| <[u8; Keys::LENGTH]>::try_from(bytes).ok()) {
            Some(key) if keys.contains(&key) => {
                problems.push(problem(index, "is the same key again", "keep one of them"));
            }
            Some(key) => keys.push(key),
            // The line may be a secret: it is not shown.
            None => problems.push(problem(index, "is not a key", A_KEY)),
        }
    }
    if keys.len() > MOST {
        let why = format!("{} keys", keys.len());
        problems.push(Problem::new(
            "",
            why,
            "expected one, or two while it is changed",
        ));
    }
    if keys.is_empty() && problems.is_empty() {
        problems.push(Problem::new("", "there is no key in it", A_KEY));
    }
    match problems.is_empty() {
        true => Ok(Keys(keys)),
        false => Err(problems),
    }
}

fn problem(index: usize, why: &str, remedy: &str) -> Problem {
    Problem::new(format!("line {}", index + 1), why, remedy)
}

/// The digest of a file, as the ack has it.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    let hex: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

const MOST: usize = 2;
const A_KEY: &str = "expected 32 bytes in base64, as `openssl rand -base64 32` prints them";

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const TWO: &str = "Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";

    #[test]
    fn one_or_two_keys_are_read_and_comments_are_not() {
        let keys = parse(format!("# new\n{ONE}\n\n{TWO}\n").as_bytes()).unwrap();
        let first: Vec<u8> = keys.iter().map(|key| key[0]).collect();
        assert_eq!(first, [0, 31]);
        assert_eq!(format!("{keys:?}"), "2 keys");
    }

    #[test]
    fn every_mistake_has_its_line_and_no_secret_is_shown() {
        let cases = [
            (String::new(), "there is no key in it"),
            ("c2VjcmV0\n".to_owned(), "line 1: is not a key"),
            (format!("{ONE}\n\n{ONE}"), "line 3: is the same key again"),
            (format!("{ONE}\nno!"), "line 2: is not a key"),
            (
                format!("{ONE}\n{TWO}\n{}", "A".repeat(43) + "="),
                "3 keys; expected one",
            ),
        ];
        for (text, expected) in cases {
            let problems = parse(text.as_bytes()).unwrap_err();
            let words: Vec<String> = problems.iter().map(Problem::to_string).collect();
            assert!(words[0].starts_with(expected), "{words:?}");
            assert!(!words.iter().any(|line| line.contains("c2Vj")), "{words:?}");
        }
    }

    #[test]
    fn the_digest_is_that_of_sha256sum() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest_of(b""), empty);
    }
}
