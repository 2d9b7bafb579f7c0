//! The Huffman code of strings (RFC 7541, section 5.2 and appendix B).

use super::HpackError;

/// Appends the decoded form of `coded` to `out`.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    out.reserve(coded.len() * 8 / SHORTEST);
    let mut bits = Bits {
        held: 0,
        count: 0,
        rest: coded,
    };
    loop {
        bits.fill();
        // The last bits may be padding, so a long code must be there as a whole before it is looked at.
        let is_last = bits.rest.is_empty();
        while bits.count >= SHORT {
            match SHORT_CODES[bits.first_byte()] {
                (0, _) if bits.count < LONGEST && !is_last => break,
                (0, _) => out.push(bits.take_long()?),
                (length, symbol) => {
                    out.push(symbol);
                    bits.skip(length.into());
                }
            }
        }
        if is_last {
            return bits.finish(out);
        }
    }
}

/// The next bits of a coded string.
struct Bits<'b> {
    /// The next bits, from the highest one down. Below the first `count` bits, all are either 0 or those of `rest`.
    held: u64,
    /// How many bits have been taken from `rest`.
    count: u32,
    rest: &'b [u8],
}

impl Bits<'_> {
    /// Takes bytes until more than 56 bits are held or none is left.
    #[inline]
    fn fill(&mut self) {
        if let Some(next) = self.rest.first_chunk() {
            let bytes = (u64::BITS - 1 - self.count) / 8;
            self.held |= u64::from_be_bytes(*next) >> self.count;
            self.count += bytes * 8;
            self.rest = &self.rest[bytes as usize..];
            return;
        }
        while self.count <= u64::BITS - 8
            && let Some((&byte, rest)) = self.rest.split_first()
        {
            self.held |= u64::from(byte) << (u64::BITS - 8 - self.count);
            self.count += 8;
            self.rest = rest;
        }
    }

    /// The next eight bits.
    #[inline]
    fn first_byte(&self) -> usize {
        (self.held >> (u64::BITS - 8)) as usize
    }

    #[inline]
    fn skip(&mut self, length: u32) {
        self.held <<= length;
        self.count -= length;
    }

    /// Takes a symbol whose code has more than eight bits.
    fn take_long(&mut self) -> Result<u8, HpackError> {
        let next = (self.held | self.padding()) >> 32;
        let group = LONG_CODES.iter().find(|group| next <= group.last);
        let Some(group) = group.filter(|group| group.length <= self.count) else {
            return Err(HpackError::Padding);
        };
        let number = (next - group.first) >> (32 - group.length);
        self.skip(group.length);
        let number = usize::try_from(number).ok();
        let symbol = number.and_then(|number| group.symbols.get(number));
        symbol.copied().ok_or(HpackError::EndSymbol)
    }

    /// Takes the last symbols, when fewer than eight bits are left, and checks the padding.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), HpackError> {
        loop {
            self.held |= self.padding();
            match SHORT_CODES[self.first_byte()] {
                (length, symbol) if length > 0 && u32::from(length) <= self.count => {
                    out.push(symbol);
                    self.skip(length.into());
                }
                _ if self.first_byte() == 0xff => return Ok(()),
                _ => return Err(HpackError::Padding),
            }
        }
    }

    /// Ones behind the bits that are held.
    fn padding(&self) -> u64 {
        u64::MAX.checked_shr(self.count).unwrap_or_default()
    }
}

/// The code of each symbol: a length in bits, and the symbols whose codes have that length, in the order of their codes. The code
/// is canonical: the first code is 0, each code is the previous one plus 1, and shifted to the left where the length grows. The
/// last code, of ones only, ends a string.
pub(super) const CODE: [(u8, &[u8]); 21] = [
    (5, b"012aceiost"),
    (6, b" %-./3456789=A_bdfghlmnpru"),
    (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, b"&*,;XZ"),
    (10, b"!\"()?"),
    (11, b"'+|"),
    (12, b"#>"),
    (13, b"\0$@[]~"),
    (14, b"^}"),
    (15, b"<`{"),
    (19, b"\\\xc3\xd0"),
    (20, b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2"),
    (21, b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6"),
    (
        22,
        b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9",
    ),
    (
        23,
        b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf\xc5\xe7\xef",
    ),
    (24, b"\x09\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed"),
    (25, b"\xc7\xcf\xea\xeb"),
    (
        26,
        b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff",
    ),
    (
        27,
        b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe",
    ),
    (
        28,
        b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f\xdc\xf9",
    ),
    (30, b"\x0a\x0d\x16"),
];

/// For each value of the next eight bits, the code that they begin with: its length and its symbol. The length is 0 if the code
/// is longer than that.
static SHORT_CODES: [(u8, u8); 256] = short_codes();

/// The codes of more than eight bits.
static LONG_CODES: [Group; CODE.len() - SHORT_GROUPS] = long_codes();

/// The codes of one length. The first and the last one are filled up to 32 bits, with zeros and with ones.
#[derive(Clone, Copy)]
struct Group {
    first: u64,
    last: u64,
    length: u32,
    symbols: &'static [u8],
}

const fn short_codes() -> [(u8, u8); 256] {
    let mut codes = [(0, 0); 256];
    let (mut group, mut next) = (0, 0);
    while group < SHORT_GROUPS {
        let (length, symbols) = CODE[group];
        let mut number = 0;
        while number < symbols.len() {
            let end = next + (1 << (SHORT - length as u32));
            while next < end {
                codes[next] = (length, symbols[number]);
                next += 1;
            }
            number += 1;
        }
        group += 1;
    }
    codes
}

const fn long_codes() -> [Group; CODE.len() - SHORT_GROUPS] {
    let none = Group {
        first: 0,
        last: 0,
        length: 0,
        symbols: b"",
    };
    let mut groups = [none; CODE.len() - SHORT_GROUPS];
    let (mut group, mut next) = (0, 0);
    while group < CODE.len() {
        let (length, symbols) = CODE[group];
        let is_last = group + 1 == CODE.len();
        // The symbol for the end follows the others.
        let count = symbols.len() as u64 + is_last as u64;
        let end = next + (count << (32 - length));
        if group >= SHORT_GROUPS {
            groups[group - SHORT_GROUPS] = Group {
                first: next,
                last: end - 1,
                length: length as u32,
                symbols,
            };
        }
        next = end;
        group += 1;
    }
    assert!(next == 1 << 32, "the codes do not use up all values");
    groups
}

/// The most bits of a short code, and the number of groups in [`CODE`] that have no more.
const SHORT: u32 = 8;
const SHORT_GROUPS: usize = 4;
/// The fewest and the most bits of a code.
const SHORTEST: usize = 5;
const LONGEST: u32 = 30;
