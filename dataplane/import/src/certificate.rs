//! Certificates of which haproxy verifies the common name, and Ballast no name at all.

use super::importer::Importer;
use super::words::Line;

impl Importer<'_> {
    /// Tells where an endpoint's own certificate stands in its `ca-file` and has the verified name as its common name alone.
    pub(super) fn common_name(&mut self, line: &Line, ca: Option<&str>, name: Option<&str>) {
        let (Some(ca), Some(name)) = (ca, name) else {
            return;
        };
        let Ok(pem) = self.world.read(ca) else {
            return;
        };
        let mut bare = blocks(&pem).filter_map(|certificate| bare_name(&certificate));
        if bare.any(|common| is_meant(&common, name)) {
            self.report.differs(line, format!("the certificate in {ca} has {name} as its common name only, which Ballast does not compare, so that TLS with the endpoint fails; give it a subjectAltName, or write verified-name: off"));
        } else {
            self.report.note(line, format!("{name} is looked for among the subjectAltNames of the endpoint's certificate alone, and by haproxy in its common name, too; see that it stands there"));
        }
    }
}

/// Whether haproxy takes a certificate of this common name for one of `name`.
fn is_meant(common: &str, name: &str) -> bool {
    let below = || Some((common.strip_prefix("*.")?, name.split_once('.')?.1));
    common.eq_ignore_ascii_case(name)
        || below().is_some_and(|(domain, of)| domain.eq_ignore_ascii_case(of))
}

/// The certificates of a PEM file, without their base64.
fn blocks(pem: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let text = String::from_utf8_lossy(pem);
    let blocks: Vec<Vec<u8>> = text
        .split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .filter_map(|block| bytes(block.split("-----").next()?))
        .collect();
    blocks.into_iter()
}

/// What base64 stands for; `None`: it is none.
fn bytes(base64: &str) -> Option<Vec<u8>> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    let digits = base64.chars().filter(|digit| !digit.is_whitespace());
    for digit in digits.take_while(|digit| *digit != '=') {
        bits = bits << 6 | u32::try_from(DIGITS.find(digit)?).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.extend(u8::try_from(bits >> count & 0xff));
        }
    }
    Some(bytes)
}

/// The common name of a certificate (DER, RFC 5280) without a subjectAltName; `None`: it has none, or names beside it.
fn bare_name(certificate: &[u8]) -> Option<String> {
    let (certificate, _) = inner(certificate)?;
    let (mut fields, _) = inner(certificate)?;
    let mut subject = None;
    let mut sequences = 0;
    while let Some((field, rest)) = inner(fields) {
        // Algorithm, issuer, period, subject and key, in this order; what is numbered has other tags.
        sequences += u8::from(fields.first() == Some(&SEQUENCE));
        if sequences == 4 {
            subject = subject.or(Some(field));
        }
        if sequences == 5 && holds(field, SUBJECT_ALT_NAME).is_some() {
            return None;
        }
        fields = rest;
    }
    let value = holds(subject?, COMMON_NAME)?;
    let (name, _) = inner(value)?;
    String::from_utf8(name.to_vec()).ok()
}

/// What stands behind an object identifier in some DER.
fn holds<'d>(der: &'d [u8], identifier: &[u8]) -> Option<&'d [u8]> {
    let at = der
        .windows(identifier.len())
        .position(|window| window == identifier)?;
    der.get(at + identifier.len()..)
}

/// The content of the first element of some DER, and what stands behind it.
fn inner(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.get(1..)?.split_first()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(*first), rest),
        long => {
            let (length, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let length = length.iter().try_fold(0_usize, |length, byte| {
                length.checked_mul(256)?.checked_add(usize::from(*byte))
            });
            (length?, rest)
        }
    };
    rest.split_at_checked(length)
}

const SEQUENCE: u8 = 0x30;
/// 2.5.4.3, with its tag and length.
const COMMON_NAME: &[u8] = &[0x06, 3, 0x55, 4, 3];
/// 2.5.29.17
const SUBJECT_ALT_NAME: &[u8] = &[0x06, 3, 0x55, 29, 17];
