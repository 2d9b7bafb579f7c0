//! Decodes header blocks.

use super::form::{
    ADDED, ADDED_PREFIX, HUFFMAN, INDEXED, INDEXED_PREFIX, NOT_ADDED_PREFIX, STRING_PREFIX,
    TABLE_SIZE, TABLE_SIZE_PREFIX,
};
use super::table::Table;
use super::{HpackError, huffman, integer, statics};

/// Decodes the header blocks of one peer, in the order in which they came.
///
/// The dynamic table takes at most 4 KiB for its strings and 768 bytes for where they are. Decoding takes at most 8 KiB and 3.2 times
/// the length of the largest block more, until [`Self::shrink`].
#[derive(Debug)]
pub(crate) struct Decoder {
    table: Table,
    /// Decoded strings of the current field, of no meaning between blocks.
    strings: Vec<u8>,
}

impl Decoder {
    /// A decoder with an empty dynamic table of 4,096 bytes, which is the default of `SETTINGS_HEADER_TABLE_SIZE`.
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(),
            strings: Vec::new(),
        }
    }

    /// Calls `field` with the name and the value of each field of a whole header block, in order. After an error the connection
    /// cannot go on (`COMPRESSION_ERROR`).
    ///
    /// One byte of a block can mean a field of 4 KiB, so it is up to `field` to bound what it keeps, and to end the decoding by an
    /// error where there is too much.
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]) -> Result<(), HpackError>,
    ) -> Result<(), HpackError> {
        let mut rest = self.read_table_sizes(block)?;
        let Self { table, strings } = self;
        while let Some((&first, after)) = rest.split_first() {
            rest = after;
            if first >= INDEXED {
                let index = integer::read(first, INDEXED_PREFIX, &mut rest)?;
                let (name, value) = entry(table, index)?;
                field(name, value)?;
            } else if first >= ADDED {
                let (name, value) = literal(first, ADDED_PREFIX, &mut rest, table, strings)?;
                field(name, value)?;
                table.insert(name, value);
            } else if first >= TABLE_SIZE {
                return Err(HpackError::MisplacedTableSize);
            } else {
                let (name, value) = literal(first, NOT_ADDED_PREFIX, &mut rest, table, strings)?;
                field(name, value)?;
            }
        }
        Ok(())
    }

    /// Gives back memory that an idle connection does not need. The dynamic table keeps its entries.
    pub(crate) fn shrink(&mut self) {
        self.strings = Vec::new();
        self.table.shrink();
    }

    /// The memory that it holds in addition to its own size.
    #[cfg(test)]
    pub(crate) fn table_bytes(&self) -> usize {
        self.table.held_bytes() + self.strings.capacity()
    }

    /// Reads the new sizes of the dynamic table at the beginning of a block: the smallest one since the last block, and the last
    /// one. Returns what follows them.
    fn read_table_sizes<'b>(&mut self, block: &'b [u8]) -> Result<&'b [u8], HpackError> {
        let mut rest = block;
        for _ in 0..2 {
            let Some((&first, mut after)) = rest.split_first() else {
                break;
            };
            if !(TABLE_SIZE..ADDED).contains(&first) {
                break;
            }
            let size = integer::read(first, TABLE_SIZE_PREFIX, &mut after)?;
            if size > Table::LARGEST {
                return Err(HpackError::LargeTable(size));
            }
            self.table.set_limit(size);
            rest = after;
        }
        Ok(rest)
    }
}

/// An entry of the static or the dynamic table.
#[inline]
fn entry(table: &Table, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
    let found = match index.checked_sub(statics::LENGTH + 1) {
        None => statics::entry(index),
        Some(number) => table.get(number),
    };
    found.ok_or(HpackError::NoSuchEntry(index))
}

/// Reads a literal field after its first byte. The name and the value are in the block, in the static table, or in `strings`.
fn literal<'s, 'b: 's>(
    first: u8,
    prefix: u8,
    rest: &mut &'b [u8],
    table: &Table,
    strings: &'s mut Vec<u8>,
) -> Result<(&'s [u8], &'s [u8]), HpackError> {
    strings.clear();
    let index = integer::read(first, prefix, rest)?;
    let name = match statics::entry(index) {
        Some((name, _)) => Some(name),
        None if index == 0 => string(rest, strings)?,
        None => {
            // A copy, because adding this field to the table may remove the entry.
            strings.extend_from_slice(entry(table, index)?.0);
            None
        }
    };
    let name_end = strings.len();
    let value = string(rest, strings)?;
    let (decoded_name, decoded_value) = strings.split_at_checked(name_end).unwrap_or_default();
    Ok((name.unwrap_or(decoded_name), value.unwrap_or(decoded_value)))
}

/// Reads a string. If it is Huffman coded, it is appended to `strings`, and `None` is returned.
fn string<'b>(rest: &mut &'b [u8], strings: &mut Vec<u8>) -> Result<Option<&'b [u8]>, HpackError> {
    let (&first, after) = rest.split_first().ok_or(HpackError::Truncated)?;
    *rest = after;
    let length = integer::read(first, STRING_PREFIX, rest)?;
    let (bytes, after) = rest.split_at_checked(length).ok_or(HpackError::Truncated)?;
    *rest = after;
    if first & HUFFMAN == 0 {
        return Ok(Some(bytes));
    }
    huffman::decode(bytes, strings)?;
    Ok(None)
}
