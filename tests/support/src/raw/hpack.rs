//! HPACK (RFC 7541) for peers of the test's own: fields are written as literals, and read in every form. Shares no code with the
//! product.

use std::collections::VecDeque;

/// Names and values of a head, in their order.
pub type Fields = Vec<(String, String)>;

/// The block of these fields: literals that enter no table, without Huffman's code.
pub fn encode<N: AsRef<str>, V: AsRef<str>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_ref(), value.as_ref()] {
            encode_length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// The length of a string that is not in Huffman's code: an integer with a prefix of seven bits.
fn encode_length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        block.push(u8::try_from(length).expect("a small number"));
        return;
    };
    block.push(127);
    while rest >= 128 {
        block.push(0x80 | u8::try_from(rest % 128).expect("a small number"));
        rest /= 128;
    }
    block.push(u8::try_from(rest).expect("a small number"));
}

/// Reads the blocks of one direction of a connection.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// The newest entry is the first.
    dynamic: VecDeque<(String, String)>,
    size: usize,
    most: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            dynamic: VecDeque::new(),
            size: 0,
            most: TABLE_SIZE,
        }
    }
}

impl Decoder {
    /// The fields of a whole block, or what is wrong with it.
    pub(crate) fn decode(&mut self, block: &[u8]) -> Result<Fields, String> {
        let mut fields = Fields::new();
        let mut block = Block(block);
        while let Some(&first) = block.0.first() {
            if first & 0x80 != 0 {
                let index = block.integer(7)?;
                fields.push(self.entry(index)?);
            } else if first & 0xe0 == 0x20 {
                if !fields.is_empty() {
                    return Err("a new size of the table behind a field".into());
                }
                self.resize(block.integer(5)?)?;
            } else {
                let enters = first & 0x40 != 0;
                let index = block.integer(if enters { 6 } else { 4 })?;
                let name = match index {
                    0 => block.string()?,
                    index => self.entry(index)?.0,
                };
                let field = (name, block.string()?);
                if enters {
                    self.enter(field.clone());
                }
                fields.push(field);
            }
        }
        Ok(fields)
    }

    fn entry(&self, index: usize) -> Result<(String, String), String> {
        let at = index.checked_sub(1).ok_or("index 0")?;
        if let Some((name, value)) = STATIC.get(at) {
            return Ok(((*name).into(), (*value).into()));
        }
        let entry = self.dynamic.get(at - STATIC.len());
        entry
            .cloned()
            .ok_or_else(|| format!("index {index} is nowhere"))
    }

    fn enter(&mut self, field: (String, String)) {
        self.size += size_of_entry(&field);
        self.dynamic.push_front(field);
        self.evict();
    }

    fn resize(&mut self, most: usize) -> Result<(), String> {
        if most > TABLE_SIZE {
            return Err(format!("a table of {most} bytes"));
        }
        self.most = most;
        self.evict();
        Ok(())
    }

    fn evict(&mut self) {
        while self.size > self.most {
            let oldest = self.dynamic.pop_back().expect("entries have a size");
            self.size -= size_of_entry(&oldest);
        }
    }
}

fn size_of_entry((name, value): &(String, String)) -> usize {
    name.len() + value.len() + 32
}

/// The rest of a block.
struct Block<'a>(&'a [u8]);

impl Block<'_> {
    fn byte(&mut self) -> Result<u8, String> {
        let (&first, rest) = self.0.split_first().ok_or("the block ends too early")?;
        self.0 = rest;
        Ok(first)
    }

    fn integer(&mut self, prefix: u32) -> Result<usize, String> {
        let most = (1_usize << prefix) - 1;
        let mut value = usize::from(self.byte()?) & most;
        if value < most {
            return Ok(value);
        }
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number that is too large".into())
    }

    fn string(&mut self) -> Result<String, String> {
        let is_huffman = self.0.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        if length > self.0.len() {
            return Err("a string behind the end of the block".into());
        }
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        let bytes = if is_huffman {
            huffman(bytes)?
        } else {
            bytes.to_vec()
        };
        String::from_utf8(bytes).map_err(|error| error.to_string())
    }
}

/// The text of these bytes. The code is canonical: codes of one length are consecutive, in the order of their symbols.
fn huffman(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let symbols = |length: u8| {
        let all = LENGTHS.iter().enumerate();
        all.filter(move |(_, other)| **other == length)
            .map(|(symbol, _)| symbol)
    };
    let mut text = Vec::new();
    // The bits of a code that has begun, how many they are, and the first code of that length.
    let (mut code, mut length, mut first) = (0_usize, 0_u8, 0_usize);
    let bits = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| usize::from(byte >> bit & 1)));
    for bit in bits {
        code = code << 1 | bit;
        first = (first + symbols(length).count()) << 1;
        length += 1;
        if length > 30 {
            return Err("no code of Huffman's".into());
        }
        if let Some(symbol) = code
            .checked_sub(first)
            .and_then(|at| symbols(length).nth(at))
        {
            let symbol = u8::try_from(symbol).map_err(|_| "an end of a string within it")?;
            text.push(symbol);
            (code, length, first) = (0, 0, 0);
        }
    }
    // The beginning of the longest code, all ones, fills the last byte.
    if length < 8 && code == (1 << length) - 1 {
        Ok(text)
    } else {
        Err("a string that ends within a code".into())
    }
}

/// As long as nobody announces another one.
const TABLE_SIZE: usize = 4096;

/// RFC 7541, appendix A.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// RFC 7541, appendix B: how many bits the code of each symbol has. The last symbol is the end of a string.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,
     5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
     7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,
     6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

#[test]
fn strings_of_the_specification_are_read() {
    let mut decoder = Decoder::default();
    // Appendix C.4, C.6.1: requests and a response in Huffman's code, with entries of the table.
    let requests: [(&str, &[(&str, &str)]); 2] = [
        (
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            &[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                (":authority", "www.example.com"),
            ],
        ),
        (
            "828684be5886a8eb10649cbf",
            &[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                (":authority", "www.example.com"),
                ("cache-control", "no-cache"),
            ],
        ),
    ];
    for (block, fields) in requests {
        let digits: Vec<u8> = block
            .chars()
            .map(|digit| u8::try_from(digit.to_digit(16).unwrap()).unwrap())
            .collect();
        let block: Vec<u8> = digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect();
        let expected: Fields = fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(decoder.decode(&block).unwrap(), expected);
        assert_eq!(Decoder::default().decode(&encode(fields)), Ok(expected));
    }
    // All codes together fill the whole tree.
    let leaves: u64 = LENGTHS.iter().map(|length| 1 << (30 - length)).sum();
    assert_eq!(leaves, 1 << 30);
}
