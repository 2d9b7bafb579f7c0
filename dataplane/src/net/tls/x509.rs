//! Reads the host names, the period and the subject of a certificate.

use std::sync::Arc;

use ballast_core::certificate::Period;
use rustls::pki_types::CertificateDer;
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode;
use x509_cert::der::asn1::{Any, Ia5StringRef, PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::time::Time;

/// What a certificate says of its use.
#[derive(Debug)]
pub(super) struct Use {
    /// Its host names: lower case, without a dot at the end, `*.` in front of wildcards. They are its alternative names of type DNS
    /// or, only where it has no alternative names at all, its common name. Texts that no host name can be are left out.
    pub(super) names: Arc<[Box<str>]>,
    /// When it is valid.
    pub(super) period: Period,
}

/// The subject, the issuer and the serial number of a certificate.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    /// In the form of RFC 4514.
    pub(super) subject: Box<str>,
    /// In the form of RFC 4514.
    pub(super) issuer: Box<str>,
    /// The number that the issuer gave it, in hexadecimal digits.
    pub(super) serial: Box<str>,
}

/// What this certificate is for; `None`: it cannot be read.
pub(super) fn use_of(certificate: &CertificateDer<'_>) -> Option<Use> {
    let certificate = read(certificate)?;
    let tbs = certificate.tbs_certificate();
    let validity = tbs.validity();
    let names: Vec<String> = match tbs.get_extension::<SubjectAltName>().ok()? {
        Some((_, SubjectAltName(names))) => names
            .into_iter()
            .filter_map(|name| match name {
                GeneralName::DnsName(name) => Some(name.to_string()),
                _ => None,
            })
            .collect(),
        None => common_names(tbs.subject()).collect(),
    };
    let is_possible = |name: &String| name.bytes().all(|byte| byte.is_ascii_graphic());
    let normal = |name: String| {
        let name = name.to_ascii_lowercase();
        name.strip_suffix('.').unwrap_or(&name).into()
    };
    let seconds = |time: &Time| time.to_unix_duration().as_secs();
    Some(Use {
        names: names.into_iter().filter(is_possible).map(normal).collect(),
        period: Period {
            not_before: seconds(&validity.not_before),
            not_after: seconds(&validity.not_after),
        },
    })
}

/// Who has this certificate, and who has signed it; `None`: it cannot be read.
pub(super) fn origin(certificate: &CertificateDer<'_>) -> Option<Origin> {
    let certificate = read(certificate)?;
    let tbs = certificate.tbs_certificate();
    Some(Origin {
        subject: tbs.subject().to_string().into(),
        issuer: tbs.issuer().to_string().into(),
        // A first byte of 0 only keeps the number from being a negative one.
        serial: (tbs.serial_number().as_bytes().iter())
            .skip_while(|byte| **byte == 0)
            .map(|byte| format!("{byte:02X}"))
            .collect::<String>()
            .into(),
    })
}

/// The holder of a certificate.
#[derive(Debug)]
pub(crate) struct Identity {
    /// In the form of RFC 4514.
    pub(crate) subject: Box<str>,
    /// The last common name in it.
    pub(crate) common_name: Option<Box<str>>,
}

/// The holder of a certificate; `None`: the certificate cannot be read.
pub(super) fn identity(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let certificate = read(certificate)?;
    let subject = certificate.tbs_certificate().subject();
    Some(Identity {
        subject: subject.to_string().into(),
        common_name: common_names(subject).last().map(Into::into),
    })
}

fn common_names(subject: &Name) -> impl Iterator<Item = String> {
    let attributes = subject.iter_rdn().flat_map(|rdn| rdn.iter());
    let named = attributes.filter(|attribute| attribute.oid == CN);
    named.filter_map(|attribute| text(&attribute.value))
}

/// The checks of RFC 5280 are left out: whether a certificate is trusted is decided elsewhere.
fn read(certificate: &CertificateDer<'_>) -> Option<CertificateInner<Raw>> {
    CertificateInner::from_der(certificate).ok()
}

fn text(value: &Any) -> Option<String> {
    let utf8 = Utf8StringRef::try_from(value).map(|text| text.as_str().to_owned());
    let printable = || PrintableStringRef::try_from(value).map(|text| text.as_str().to_owned());
    let ia5 = || Ia5StringRef::try_from(value).map(|text| text.as_str().to_owned());
    utf8.or_else(|_| printable()).or_else(|_| ia5()).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn names_are_the_alternative_names_or_else_the_common_name() {
        for (alternative, common, expected) in [
            (
                &["Shop.Example.com.", "*.example.com", "10.0.0.1"][..],
                "x.test",
                &["shop.example.com", "*.example.com"][..],
            ),
            (&["10.0.0.1"], "x.test", &[]),
            (&[], "X.test", &["x.test"]),
            (&[], "Shop, Inc.\n2026 ERROR", &[]),
        ] {
            let alternative: Vec<String> = alternative.iter().map(|&name| name.into()).collect();
            let mut params = CertificateParams::new(alternative).unwrap();
            params.distinguished_name.push(DnType::CommonName, common);
            let certificate = signed(params);
            let names = use_of(&certificate).unwrap().names;
            let names: Vec<&str> = names.iter().map(|name| &**name).collect();
            assert_eq!(names, expected);
        }
        assert!(use_of(&CertificateDer::from(b"garbage".to_vec())).is_none());
    }

    #[test]
    fn the_period_is_read_from_both_forms_of_time() {
        // Up to 2049 the year has two digits, and four from then on.
        for (year, seconds) in [(2026, 1_767_225_600), (2051, 2_556_144_000)] {
            let mut params = CertificateParams::default();
            params.not_before = date_time_ymd(1970, 1, 1);
            params.not_after = date_time_ymd(year, 1, 1);
            let expected = Period {
                not_before: 0,
                not_after: seconds,
            };
            assert_eq!(use_of(&signed(params)).unwrap().period, expected);
        }
    }

    #[test]
    fn the_subject_is_written_as_rfc_4514_has_it() {
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        name.push(DnType::CountryName, "DE");
        name.push(DnType::OrganizationName, "Shop, Inc. + \"more\"");
        name.push(
            DnType::CommonName,
            DnValue::Utf8String("#1 \u{e9}\r\nX-Evil: 1 ".into()),
        );
        params.distinguished_name = name;
        let identity = identity(&signed(params)).unwrap();
        assert_eq!(
            &*identity.subject,
            r#"CN=\#1 é\0d\0aX-Evil: 1\ ,O=Shop\, Inc. \+ \"more\",C=DE"#
        );
        let common_name = identity.common_name.as_deref();
        assert_eq!(common_name, Some("#1 \u{e9}\r\nX-Evil: 1 "));
    }

    fn signed(params: CertificateParams) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }
}
