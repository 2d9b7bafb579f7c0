//! Why a header was refused.

/// Why a header was refused, for the log. The metric has the label `bad-header` for all reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// The first bytes are not those of a header.
    #[error("it does not begin like a PROXY header")]
    Signature,
    /// It begins like a version that this listener does not accept.
    #[error("it begins like a version of the PROXY header that is not accepted here")]
    VersionNotAccepted,
    /// A datagram ends inside its header.
    #[error("the datagram ends before its header does")]
    Truncated,
    /// Version 1 in a datagram, which it cannot describe.
    #[error("a version 1 header cannot come in a datagram")]
    TextInDatagram,

    /// v1: the word behind `PROXY`.
    #[error("v1: the protocol is none of TCP4, TCP6 and UNKNOWN")]
    Protocol,
    /// v1: the first address.
    #[error("v1: the source is not an address of the announced family")]
    SourceAddress,
    /// v1: the second address.
    #[error("v1: the destination is not an address of the announced family")]
    DestinationAddress,
    /// v1: the first port.
    #[error("v1: the source port is not a number from 0 to 65535 without leading zeros")]
    SourcePort,
    /// v1: the second port.
    #[error("v1: the destination port is not a number from 0 to 65535 without leading zeros")]
    DestinationPort,
    /// v1: CR without LF.
    #[error("v1: the line does not end in CR LF")]
    LineEnd,
    /// v1: no CR LF within 107 bytes.
    #[error("v1: the line is longer than 107 bytes")]
    LineTooLong,

    /// v2: the version is not 2.
    #[error("v2: the version is not 2")]
    Version,
    /// v2: an unassigned command.
    #[error("v2: the command is neither LOCAL nor PROXY")]
    Command,
    /// v2: an unassigned address family.
    #[error("v2: the address family is unknown")]
    Family,
    /// v2: an unassigned transport.
    #[error("v2: the transport is unknown")]
    Transport,
    /// v2: the declared length is above the cap.
    #[error("v2: the declared length is above 4096 bytes")]
    TooLong,
    /// v2: the declared length has no room for the addresses.
    #[error("v2: the declared length is too short for the addresses")]
    TooShort,
    /// v2: a TLV, or what is left behind the last one, does not fit.
    #[error("v2: a TLV runs over the end of the header")]
    TlvOverrun,
    /// v2: the checksum is not four bytes.
    #[error("v2: the CRC32c TLV is not 4 bytes long")]
    ChecksumLength,
    /// v2: two checksums.
    #[error("v2: there is more than one CRC32c TLV")]
    ChecksumTwice,
    /// v2: the checksum is wrong.
    #[error("v2: the CRC32c does not match")]
    Checksum,
    /// v2: the unique ID is too long.
    #[error("v2: the unique ID is longer than 128 bytes")]
    UniqueIdTooLong,
    /// v2: the authority is not text.
    #[error("v2: the authority is not UTF-8")]
    AuthorityNotText,
    /// v2: the SSL TLV has no room for its own fields.
    #[error("v2: the SSL TLV is shorter than 5 bytes")]
    SslTooShort,
    /// v2: a TLV inside the SSL TLV does not fit.
    #[error("v2: a TLV runs over the end of the SSL TLV")]
    SslOverrun,
}
