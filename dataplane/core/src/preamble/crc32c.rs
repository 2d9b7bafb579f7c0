//! CRC32c (Castagnoli) for the checksum TLV. One table and one byte at a time are enough, because headers are short.

/// A checksum that is being computed.
#[derive(Clone, Copy)]
pub(super) struct Sum(u32);

impl Sum {
    pub(super) fn new() -> Self {
        Self(u32::MAX)
    }

    /// The checksum extended by `bytes`.
    pub(super) fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |sum, byte| {
            let [lowest, ..] = sum.to_le_bytes();
            TABLE[usize::from(lowest ^ byte)] ^ (sum >> 8)
        }))
    }

    pub(super) fn value(self) -> u32 {
        !self.0
    }
}

/// The contribution of each value of the lowest byte.
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    let mut start = 0_u32;
    while index < table.len() {
        let mut entry = start;
        let mut bit = 0;
        while bit < 8 {
            entry = if entry & 1 == 1 {
                (entry >> 1) ^ POLYNOMIAL
            } else {
                entry >> 1
            };
            bit += 1;
        }
        table[index] = entry;
        index += 1;
        start += 1;
    }
    table
}

/// Castagnoli's polynomial, lowest bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn the_check_value_is_the_published_one() {
        assert_eq!(Sum::new().with(b"123456789").value(), 0xe306_9283);
    }

    #[test]
    fn known_sums_are_met() {
        let ascending: Vec<u8> = (0..32).collect();
        let cases: [(&[u8], u32); 4] = [
            (&[], 0),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
        ];
        for (bytes, sum) in cases {
            assert_eq!(Sum::new().with(bytes).value(), sum, "{bytes:?}");
        }
    }

    #[test]
    fn a_sum_may_be_built_in_pieces() {
        assert_eq!(
            Sum::new().with(b"1234").with(b"").with(b"56789").value(),
            0xe306_9283
        );
    }
}
