//! Searches for a text in a stream of bytes, without storing them.

/// The state of a search: how many bytes of the needle the last bytes match (Knuth, Morris, Pratt).
#[derive(Debug)]
pub(super) struct Search<'a> {
    needle: &'a [u8],
    /// For each prefix of the needle: the length of the longest shorter prefix that it ends with.
    fallback: Box<[usize]>,
    matched: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(needle: &'a [u8]) -> Self {
        let mut fallback = vec![0; needle.len()];
        let mut matched = 0;
        for (index, byte) in needle.iter().enumerate().skip(1) {
            matched = extended(needle, &fallback, matched, *byte);
            if let Some(place) = fallback.get_mut(index) {
                *place = matched;
            }
        }
        Self {
            needle,
            fallback: fallback.into(),
            matched: 0,
        }
    }

    /// Whether the needle has been found by the end of these bytes.
    pub(super) fn found_in(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            if self.is_found() {
                return true;
            }
            self.matched = extended(self.needle, &self.fallback, self.matched, *byte);
        }
        self.is_found()
    }

    fn is_found(&self) -> bool {
        self.matched == self.needle.len()
    }
}

/// The number of matched bytes after `byte` follows `matched` matched bytes, which are not the whole needle.
fn extended(needle: &[u8], fallback: &[usize], mut matched: usize, byte: u8) -> usize {
    loop {
        if needle.get(matched) == Some(&byte) {
            return matched + 1;
        }
        let Some(shorter) = matched.checked_sub(1).and_then(|last| fallback.get(last)) else {
            return 0;
        };
        matched = *shorter;
    }
}

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
