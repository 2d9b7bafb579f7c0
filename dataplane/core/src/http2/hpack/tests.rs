//! Tests of header blocks that were written by hand.

use super::*;

mod decoding;
mod encoding;
mod vectors;

pub(super) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The fields of a block.
pub(super) fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Fields::new();
    decoder.decode(block, |name, value| {
        fields.push((name.to_vec(), value.to_vec()));
        Ok(())
    })?;
    Ok(fields)
}

/// The entries of the dynamic table, the newest one first.
pub(super) fn entries(decoder: &mut Decoder) -> Fields {
    let mut entries = Fields::new();
    for index in statics::LENGTH + 1.. {
        let mut block = Vec::new();
        integer::write(&mut block, form::INDEXED, form::INDEXED_PREFIX, index);
        match decoded(decoder, &block) {
            Ok(entry) => entries.extend(entry),
            Err(error) => {
                assert_eq!(error, HpackError::NoSuchEntry(index));
                break;
            }
        }
    }
    entries
}

/// What entries count in the dynamic table.
pub(super) fn size(entries: &Fields) -> usize {
    let sizes = entries.iter();
    sizes
        .map(|(name, value)| name.len() + value.len() + 32)
        .sum()
}

/// Fields of texts.
fn fields(texts: &[(&str, &str)]) -> Fields {
    let fields = texts.iter();
    fields
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect()
}

/// Bytes of hexadecimal digits, with any white space between them.
fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).unwrap();
        u8::from_str_radix(pair, 16).unwrap()
    });
    pairs.collect()
}

/// The Huffman code of a text, with padding.
pub(super) fn huffman_coded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut held, mut count) = (0u64, 0);
    for byte in text {
        let (code, length) = huffman_code(*byte);
        held = held << length | code;
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((held >> count & 0xff) as u8);
        }
    }
    if count > 0 {
        out.push((held << (8 - count) & 0xff) as u8 | 0xff >> count);
    }
    out
}

/// The code of a symbol, and its length in bits.
fn huffman_code(symbol: u8) -> (u64, u8) {
    let (mut code, mut previous) = (0, 0);
    for (length, symbols) in huffman::CODE {
        code <<= length - previous;
        match symbols.iter().position(|known| *known == symbol) {
            Some(number) => return (code + number as u64, length),
            None => code += symbols.len() as u64,
        }
        previous = length;
    }
    panic!("{symbol} has no code");
}
