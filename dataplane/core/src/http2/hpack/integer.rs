//! Integers: a prefix of up to seven bits in a first byte that says other things, too, and more bytes if that is not enough
//! (RFC 7541, section 5.1).

use super::HpackError;

/// Reads an integer whose first byte has been taken from `rest` already. All bits of the prefix are set in `prefix`.
#[inline]
pub(super) fn read(first: u8, prefix: u8, rest: &mut &[u8]) -> Result<usize, HpackError> {
    match first & prefix {
        small if small < prefix => Ok(usize::from(small)),
        _ => read_long(prefix, rest),
    }
}

/// Writes an integer. All bits of the prefix are set in `prefix`, and none of them in `flags`.
#[inline]
pub(super) fn write(out: &mut Vec<u8>, flags: u8, prefix: u8, value: usize) {
    match u8::try_from(value) {
        Ok(small) if small < prefix => out.push(flags | small),
        _ => {
            out.push(flags | prefix);
            write_rest(out, value - usize::from(prefix));
        }
    }
}

/// Writes the bytes after the first one. `value` is what the prefix could not hold.
pub(super) fn write_rest(out: &mut Vec<u8>, mut value: usize) {
    loop {
        let [low, ..] = value.to_le_bytes();
        if value <= LOW_BITS {
            return out.push(low);
        }
        out.push(low | MORE);
        value >>= 7;
    }
}

#[cold]
fn read_long(prefix: u8, rest: &mut &[u8]) -> Result<usize, HpackError> {
    let mut value = usize::from(prefix);
    for shift in [0, 7, 14, 21] {
        let (&byte, after) = rest.split_first().ok_or(HpackError::Truncated)?;
        *rest = after;
        value += (usize::from(byte) & LOW_BITS) << shift;
        if byte & MORE == 0 {
            return Ok(value);
        }
    }
    Err(HpackError::LongInteger)
}

/// The bit that says that another byte follows.
const MORE: u8 = 0x80;
/// The bits of a byte that are a part of the integer.
const LOW_BITS: usize = 0x7f;
