//! The first bytes of fields and strings (RFC 7541, sections 5.2 and 6), and which of their bits are a part of an integer.

/// A field that is an entry of a table. All higher values are such fields, too.
pub(super) const INDEXED: u8 = 0x80;
pub(super) const INDEXED_PREFIX: u8 = 0x7f;
/// From here to the next one above: a literal field that is added to the dynamic table.
pub(super) const ADDED: u8 = 0x40;
pub(super) const ADDED_PREFIX: u8 = 0x3f;
/// From here to the next one above: a new size of the dynamic table.
pub(super) const TABLE_SIZE: u8 = 0x20;
pub(super) const TABLE_SIZE_PREFIX: u8 = 0x1f;
/// From here to the next one above: a literal field that no proxy may add to a dynamic table.
pub(super) const NEVER_ADDED: u8 = 0x10;
/// From here to the next one above: a literal field that is not added to the dynamic table.
pub(super) const NOT_ADDED: u8 = 0x00;
/// The integer of both.
pub(super) const NOT_ADDED_PREFIX: u8 = 0x0f;

/// The bit of a string that says that it is Huffman coded, and the bits of its length.
pub(super) const HUFFMAN: u8 = 0x80;
pub(super) const STRING_PREFIX: u8 = 0x7f;
