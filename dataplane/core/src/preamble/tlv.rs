//! The type-length-value fields behind the addresses of a version 2 header.
//!
//! They are checked once, when the header is complete. Afterwards iterating over them cannot fail.

use super::Reason;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// Its type: [`Tlv::AUTHORITY`] and so on, or a number known only to sender and receiver.
    pub kind: u8,
    pub value: &'a [u8],
}

impl Tlv<'_> {
    /// The host name that the client asked for (SNI).
    pub const AUTHORITY: u8 = 0x02;
    /// The checksum of the whole header.
    pub const CRC32C: u8 = 0x03;
    /// The sender's id of the connection.
    pub const UNIQUE_ID: u8 = 0x05;
    /// How the client used TLS: flags, the verification result, and nested fields.
    pub const SSL: u8 = 0x20;
    /// Inside [`Tlv::SSL`]: the TLS version.
    pub const SSL_VERSION: u8 = 0x21;
    /// Inside [`Tlv::SSL`]: the common name of the client's certificate.
    pub const SSL_COMMON_NAME: u8 = 0x22;
    /// Inside [`Tlv::SSL`]: the cipher.
    pub const SSL_CIPHER: u8 = 0x23;
}

/// The checked fields of one header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    /// All fields, in the order sent.
    pub fn iter(self) -> impl Iterator<Item = Tlv<'a>> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (tlv, behind) = split(rest)?;
            rest = behind;
            Some(tlv)
        })
    }

    /// The host name that the client asked for. It is UTF-8, since a header where it is not is
    /// refused; it may still hold control characters, which a log has to escape.
    pub fn authority(self) -> Option<&'a str> {
        str::from_utf8(self.first(Tlv::AUTHORITY)?).ok()
    }

    /// The sender's id of the connection: up to 128 bytes of any value.
    pub fn unique_id(self) -> Option<&'a [u8]> {
        self.first(Tlv::UNIQUE_ID)
    }

    /// The fields inside the value of another one.
    #[cfg(test)]
    pub(super) fn within(value: &'a [u8]) -> Self {
        Self(value)
    }

    fn first(self, kind: u8) -> Option<&'a [u8]> {
        self.iter()
            .find(|tlv| tlv.kind == kind)
            .map(|tlv| tlv.value)
    }

    /// The fields of `header`, which is complete, from byte `start` to its end.
    pub(super) fn check(header: &'a [u8], start: usize) -> Result<Self, Reason> {
        let fields = header.get(start..).ok_or(Reason::TooShort)?;
        let mut checksum = None;
        let mut rest = fields;
        while !rest.is_empty() {
            let (tlv, behind) = split(rest).ok_or(Reason::TlvOverrun)?;
            check_value(tlv)?;
            if tlv.kind == Tlv::CRC32C && checksum.replace((tlv, behind)).is_some() {
                return Err(Reason::ChecksumTwice);
            }
            rest = behind;
        }
        if let Some((tlv, behind)) = checksum {
            check_sum(header, tlv, behind)?;
        }
        Ok(Self(fields))
    }
}

fn check_value(tlv: Tlv<'_>) -> Result<(), Reason> {
    match tlv.kind {
        Tlv::AUTHORITY if str::from_utf8(tlv.value).is_err() => Err(Reason::AuthorityNotText),
        Tlv::CRC32C if tlv.value.len() != 4 => Err(Reason::ChecksumLength),
        Tlv::UNIQUE_ID if tlv.value.len() > LONGEST_UNIQUE_ID => Err(Reason::UniqueIdTooLong),
        Tlv::SSL => check_ssl(tlv.value),
        _ => Ok(()),
    }
}

fn check_ssl(value: &[u8]) -> Result<(), Reason> {
    let mut rest = value.get(SSL_FIXED..).ok_or(Reason::SslTooShort)?;
    while !rest.is_empty() {
        (_, rest) = split(rest).ok_or(Reason::SslOverrun)?;
    }
    Ok(())
}

/// The checksum covers the whole header with its own four bytes, which end where `behind` begins, taken as zeros.
fn check_sum(header: &[u8], tlv: Tlv<'_>, behind: &[u8]) -> Result<(), Reason> {
    let value_start = header.len() - behind.len() - tlv.value.len();
    let before = &header[..value_start];
    let mut sum = CRC32C.digest();
    for part in [before, &[0; 4], behind] {
        sum.update(part);
    }
    if tlv.value == sum.finalize().to_be_bytes() {
        Ok(())
    } else {
        Err(Reason::Checksum)
    }
}

/// The first field of `bytes` and what follows it, if it fits.
fn split(bytes: &[u8]) -> Option<(Tlv<'_>, &[u8])> {
    let (&[kind, high, low], rest) = bytes.split_first_chunk()?;
    let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
    Some((Tlv { kind, value }, rest))
}

/// The checksum of a header.
pub(super) static CRC32C: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
/// The bound of the protocol.
pub(super) const LONGEST_UNIQUE_ID: usize = 128;
/// The flags and the verification result, before the nested fields of the SSL TLV.
pub(super) const SSL_FIXED: usize = 5;
