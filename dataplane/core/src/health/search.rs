//! Looks for a text in the first bytes of an answer, which come in pieces.

use memchr::memmem;

/// Keeps as much of the last bytes as may be the beginning of the needle.
#[derive(Debug)]
pub(super) struct Search<'a> {
    needle: &'a [u8],
    last: Vec<u8>,
    /// The number of bytes that are still looked at.
    rest: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(needle: &'a [u8]) -> Self {
        Self {
            needle,
            last: Vec::new(),
            rest: MOST_SEARCHED,
        }
    }

    /// Whether the needle has been seen by the end of these bytes. Bytes behind the first [`MOST_SEARCHED`] are not looked at.
    pub(super) fn found_in(&mut self, bytes: &[u8]) -> bool {
        let bytes = bytes.get(..self.rest).unwrap_or(bytes);
        self.rest -= bytes.len();
        self.last.extend_from_slice(bytes);
        let is_found = memmem::find(&self.last, self.needle).is_some();
        let kept = self.needle.len().saturating_sub(1);
        self.last.drain(..self.last.len().saturating_sub(kept));
        is_found
    }

    /// Whether no further byte is looked at.
    pub(super) fn is_over(&self) -> bool {
        self.rest == 0
    }
}

/// A needle is looked for in this number of bytes.
const MOST_SEARCHED: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_finds_what_the_whole_text_contains(
            needle in "[ab]{1,6}",
            text in "[abc]{0,60}",
            cuts in prop::collection::vec(0_usize..60, 0..5),
        ) {
            let mut search = Search::new(needle.as_bytes());
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let found = cuts
                .windows(2)
                .any(|cut| search.found_in(&text.as_bytes()[cut[0]..cut[1]]));
            prop_assert_eq!(found, text.contains(&needle));
        }
    }
}
