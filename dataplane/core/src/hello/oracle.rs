//! Properties that hold for any bytes. The tests of this crate and the fuzz target `hello` include this file.

use super::{Hello, LONGEST, step};

/// Panics if reading `bytes` violates a guarantee.
pub(super) fn check(bytes: &[u8]) {
    let verdict = step(bytes);
    // Byte by byte, the verdict is `Need` up to some point, and then always the same.
    let mut decided = None;
    for length in 0..=bytes.len().min(LONGEST + 8) {
        let seen = step(bytes.get(..length).unwrap_or_default());
        match (&decided, seen) {
            (None, Hello::Need) => {}
            (None, seen) => decided = Some(seen),
            (Some(decided), seen) => {
                assert_eq!(&seen, decided, "{length}: a verdict was taken back");
            }
        }
    }
    assert_eq!(verdict, decided.unwrap_or(Hello::Need));
    assert!(verdict != Hello::Need || bytes.len() < LONGEST);
    if let Hello::Found(hello) = verdict {
        if let Some(name) = &hello.sni {
            assert!(
                !name.is_empty() && name.len() <= 253 && !name.ends_with('.'),
                "{name}"
            );
            assert_eq!(name.to_ascii_lowercase().as_str(), &**name);
        }
        assert!(hello.alpn.iter().all(|protocol| !protocol.is_empty()));
    }
}
