//! HPACK (RFC 7541): header blocks of HTTP/2 to fields, and fields to header blocks.
//!
//! | | by |
//! |---|---|
//! | the fields of a received header block | [`Decoder`] |
//! | the beginning of a header block to send | [`Encoder`] |
//! | the fields of a header block to send | [`encode_status()`] and its neighbours |
//!
//! Choices that the RFC leaves open:
//! - The dynamic table for received fields has the default size of 4,096 bytes, and Ballast never asks for another one.
//! - Sent fields use no dynamic table and no Huffman code: both cost more time than they save bytes on the links that Ballast
//!   serves.
//! - An integer has at most four bytes after its first one, which is enough for 2^28.
//! - Meaning is not checked here: names and values are any bytes.

use thiserror::Error;

pub(crate) use decode::Decoder;
pub(crate) use encode::{
    Encoder, encode_authority, encode_field, encode_field_with, encode_method, encode_path,
    encode_scheme, encode_status,
};

mod decode;
mod encode;
mod form;
mod huffman;
mod integer;
mod statics;
mod table;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

/// Why a header block cannot be decoded. The dynamic tables of both sides differ from then on, so the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum HpackError {
    /// A field, a string or an integer is not complete.
    #[error("the header block ends within a field")]
    Truncated,
    /// An integer has more bytes than any valid header block needs.
    #[error("an integer in the header block has too many bytes")]
    LongInteger,
    /// An index that no entry has.
    #[error("the header block names entry {0}, which is in neither table")]
    NoSuchEntry(usize),
    /// The symbol for the end of a string within a string.
    #[error("a Huffman coded string contains the symbol for its end")]
    EndSymbol,
    /// The bits after the last symbol of a string are more than seven, or not the first bits of the symbol for its end.
    #[error("a Huffman coded string ends with wrong padding")]
    Padding,
    /// The peer wants a larger dynamic table than it may have.
    #[error("the header block sets a dynamic table of {0} bytes, more than the 4096 allowed")]
    LargeTable(usize),
    /// A new size of the dynamic table after a field, or a third one in a header block.
    #[error("the header block sets the size of the dynamic table at a place where it may not")]
    MisplacedTableSize,
    /// The fields of the block are far more than may be kept, so that decoding them is but work.
    #[error("the header block stands for far more fields than the limit")]
    TooMuch,
}
