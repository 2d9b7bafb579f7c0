//! Reads the host names, the period, the subject and the permitted uses of a certificate.

use std::sync::Arc;

use ballast_core::certificate::Period;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use x509_cert::certificate::{CertificateInner, Raw, Version};
use x509_cert::der::asn1::{Any, Ia5StringRef, PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::der::oid::db::rfc5280::{
    ANY_EXTENDED_KEY_USAGE, ID_KP_CLIENT_AUTH, ID_KP_SERVER_AUTH,
};
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAltName};
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

/// Whether the key is that of the first certificate.
pub(super) fn has_key(pair: &CertifiedKey) -> bool {
    let certificate = pair.cert.first().and_then(read);
    let of_certificate = certificate.and_then(|read| {
        let key = read.tbs_certificate().subject_public_key_info();
        key.to_der().ok()
    });
    let own = pair.key.public_key();
    own.is_some_and(|own| of_certificate.as_deref() == Some(own.as_ref()))
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

/// The peer whose certificate is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Client,
    Endpoint,
}

/// Whether this peer may show the certificate: it names no purposes, or that of the peer.
pub(super) fn is_for(certificate: &CertificateDer<'_>, peer: Peer) -> bool {
    let own = match peer {
        Peer::Client => ID_KP_CLIENT_AUTH,
        Peer::Endpoint => ID_KP_SERVER_AUTH,
    };
    let purposes = read(certificate).map(|read| {
        let purposes = read.tbs_certificate().get_extension::<ExtendedKeyUsage>();
        purposes.map(|found| found.map(|(_, purposes)| purposes.0))
    });
    match purposes {
        Some(Ok(None)) => true,
        Some(Ok(Some(purposes))) => {
            purposes.contains(&own) || purposes.contains(&ANY_EXTENDED_KEY_USAGE)
        }
        Some(Err(_)) | None => false,
    }
}

/// Whether the certificate may sign others. One of version 1 cannot say so: it may if it is signed by itself.
pub(super) fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    read(certificate).is_some_and(|read| {
        let tbs = read.tbs_certificate();
        let usage = tbs.get_extension::<KeyUsage>();
        let constraints = tbs.get_extension::<BasicConstraints>();
        match (tbs.version(), usage, constraints) {
            (Version::V1, ..) => tbs.issuer() == tbs.subject(),
            (_, Ok(Some((_, usage))), _) if !usage.key_cert_sign() => false,
            (_, Ok(_), Ok(Some((_, constraints)))) => constraints.ca,
            (_, Ok(usage), Ok(None)) => usage.is_some(),
            (_, Err(_), _) | (.., Err(_)) => false,
        }
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
    use rcgen::{
        BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue,
        ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
    };

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

    #[test]
    fn only_an_authority_may_sign_others() {
        let (ca, sign) = (
            BasicConstraints::Unconstrained,
            KeyUsagePurpose::KeyCertSign,
        );
        let other = KeyUsagePurpose::DigitalSignature;
        for (is_ca, usages, expected) in [
            (IsCa::Ca(ca), vec![], true),
            (IsCa::Ca(ca), vec![sign, other], true),
            (IsCa::Ca(ca), vec![other], false),
            (IsCa::ExplicitNoCa, vec![], false),
            (IsCa::ExplicitNoCa, vec![sign], false),
            (IsCa::NoCa, vec![], false),
            (IsCa::NoCa, vec![other], false),
            (IsCa::NoCa, vec![sign], true),
        ] {
            let mut params = CertificateParams::default();
            let case = format!("{is_ca:?} {usages:?}");
            (params.is_ca, params.key_usages) = (is_ca, usages);
            assert_eq!(is_authority(&signed(params)), expected, "{case}");
        }
        assert!(!is_authority(&CertificateDer::from(b"garbage".to_vec())));
    }

    #[test]
    fn a_certificate_for_others_is_for_no_client() {
        use ExtendedKeyUsagePurpose::{Any, ClientAuth, CodeSigning, ServerAuth};
        for (purposes, client, endpoint) in [
            (vec![], true, true),
            (vec![ClientAuth], true, false),
            (vec![ServerAuth], false, true),
            (vec![CodeSigning, ServerAuth, ClientAuth], true, true),
            (vec![CodeSigning], false, false),
            (vec![Any], true, true),
        ] {
            let mut params = CertificateParams::default();
            params.extended_key_usages.clone_from(&purposes);
            let certificate = signed(params);
            let found = [Peer::Client, Peer::Endpoint].map(|peer| is_for(&certificate, peer));
            assert_eq!(found, [client, endpoint], "{purposes:?}");
        }
    }

    fn signed(params: CertificateParams) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }
}
