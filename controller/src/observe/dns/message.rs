//! DNS messages (RFC 1035), as far as addresses need them. Sans-IO. Used by `exchange`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Which addresses are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    const fn record(self) -> u16 {
        match self {
            Self::V4 => A,
            Self::V6 => AAAA,
        }
    }
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The addresses, and how long all of them hold; none: the name has none of this family.
    Records {
        addresses: Vec<IpAddr>,
        ttl: Duration,
    },
    /// There is no such name.
    NoSuchName,
    /// It does not fit into a datagram.
    Truncated,
    /// The server cannot, or does not want to, say; why, as a number.
    Refused(u8),
}

/// The question for the addresses of a name; `None`: that is no name.
pub(super) fn question(id: u16, name: &str, family: Family) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(HEADER + name.len() + 6);
    for word in [id, RECURSION_DESIRED, 1, 0, 0, 0] {
        message.extend(word.to_be_bytes());
    }
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok();
        message.push(length.filter(|length| (1..64).contains(length))?);
        message.extend(label.as_bytes());
    }
    message.push(0);
    if message.len() - HEADER > MOST_OF_A_NAME {
        return None;
    }
    for word in [family.record(), INTERNET] {
        message.extend(word.to_be_bytes());
    }
    Some(message)
}

/// What a message answers to this question; `None`: it is no answer to it.
pub(super) fn read(message: &[u8], question: &[u8]) -> Option<Answer> {
    let mut reader = Reader { message, at: 0 };
    let (id, flags) = (reader.word()?, reader.word()?);
    let [questions, answers] = [reader.word()?, reader.word()?];
    let asked = question.get(HEADER..)?;
    let echoed = message.get(HEADER..HEADER + asked.len())?;
    let ours = question.get(..2)? == id.to_be_bytes()
        && flags & (RESPONSE | OPCODE) == RESPONSE
        && questions == 1
        && echoed.eq_ignore_ascii_case(asked);
    if !ours {
        return None;
    }
    if flags & TRUNCATED != 0 {
        return Some(Answer::Truncated);
    }
    match flags & CODE {
        0 => {}
        NO_SUCH_NAME => return Some(Answer::NoSuchName),
        code => return Some(Answer::Refused(u8::try_from(code).unwrap_or(u8::MAX))),
    }
    reader.at = HEADER;
    let name = reader.name()?;
    let record = reader.word()?;
    reader.word()?;
    let records = (0..answers).map(|_| reader.record());
    let records: Vec<Record> = records.collect::<Option<_>>()?;
    Some(gather(name, record, &records))
}

/// The addresses of `name`, by way of its aliases.
fn gather(mut name: Vec<u8>, wanted: u16, records: &[Record]) -> Answer {
    let mut ttl = u32::MAX;
    for _ in 0..MOST_ALIASES {
        let of_name = || records.iter().filter(|record| record.name == name);
        let mut addresses = Vec::new();
        for record in of_name() {
            if let Data::Address(address, kind) = &record.data
                && *kind == wanted
            {
                addresses.push(*address);
                ttl = ttl.min(record.ttl);
            }
        }
        let alias = of_name().find_map(|record| match &record.data {
            Data::Alias(alias) => Some((alias, record.ttl)),
            _ => None,
        });
        match alias {
            Some((alias, holds)) if addresses.is_empty() => {
                ttl = ttl.min(holds);
                name.clone_from(alias);
            }
            _ => {
                let ttl = Duration::from_secs(ttl.into());
                return Answer::Records { addresses, ttl };
            }
        }
    }
    // A circle.
    Answer::Records {
        addresses: Vec::new(),
        ttl: Duration::ZERO,
    }
}

struct Record {
    name: Vec<u8>,
    ttl: u32,
    data: Data,
}

enum Data {
    /// With the type of its record.
    Address(IpAddr, u16),
    Alias(Vec<u8>),
    Other,
}

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn record(&mut self) -> Option<Record> {
        let name = self.name()?;
        let [kind, class] = [self.word()?, self.word()?];
        let ttl = u32::from_be_bytes(self.bytes()?);
        let length = usize::from(self.word()?);
        let begin = self.at;
        let end = begin.checked_add(length)?;
        if end > self.message.len() {
            return None;
        }
        let data = match (class, kind, length) {
            (INTERNET, A, 4) => Data::Address(IpAddr::V4(Ipv4Addr::from(self.bytes::<4>()?)), A),
            (INTERNET, AAAA, 16) => {
                Data::Address(IpAddr::V6(Ipv6Addr::from(self.bytes::<16>()?)), AAAA)
            }
            (INTERNET, CNAME, _) => Data::Alias(self.name()?),
            _ => Data::Other,
        };
        self.at = end;
        // RFC 2181, 8: with its highest bit, it is none.
        let ttl = i32::try_from(ttl).map_or(0, i32::unsigned_abs);
        Some(Record { name, ttl, data })
    }

    /// A name in its uncompressed form, in small letters.
    fn name(&mut self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        let mut at = self.at;
        // Every jump goes further back than the one before: there is no circle.
        let mut lowest = at;
        let mut after = None;
        loop {
            let length = *self.message.get(at)?;
            match length {
                0 => break,
                1..64 => {
                    let end = at + 1 + usize::from(length);
                    name.extend(self.message.get(at..end)?.to_ascii_lowercase());
                    if name.len() >= MOST_OF_A_NAME {
                        return None;
                    }
                    at = end;
                }
                0xc0.. => {
                    let low = *self.message.get(at + 1)?;
                    after.get_or_insert(at + 2);
                    at = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                    if at >= lowest {
                        return None;
                    }
                    lowest = at;
                }
                _ => return None,
            }
        }
        self.at = after.unwrap_or(at + 1);
        Some(name)
    }

    fn word(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_be_bytes)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.message.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(*bytes)
    }
}

/// In bytes.
const HEADER: usize = 12;

/// With the lengths of its labels and the end.
const MOST_OF_A_NAME: usize = 255;

const MOST_ALIASES: usize = 16;

const RESPONSE: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const TRUNCATED: u16 = 0x0200;
const RECURSION_DESIRED: u16 = 0x0100;
const CODE: u16 = 0x000f;

const NO_SUCH_NAME: u16 = 3;

const INTERNET: u16 = 1;
const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
