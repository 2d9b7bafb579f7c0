//! Checks whether a text has the form of PEM, for Secrets and for the files of flags; and whether a certificate and a key can be
//! used together.

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// What a PEM text should have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    what: &'static str,
    /// How its first line ends.
    label: &'static str,
}

pub(crate) const CERT: Part = Part {
    what: "a certificate",
    label: "CERTIFICATE-----",
};

pub(crate) const KEY: Part = Part {
    what: "a private key",
    label: "PRIVATE KEY-----",
};

/// Why a text cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Flaw {
    #[error("has no PEM of {0}")]
    None(&'static str),
    #[error("has an encrypted key; Ballast knows no passphrase: give the key without one")]
    Encrypted,
}

impl Part {
    /// Why no port can be served with a text that should have this part.
    pub(crate) fn flaw(self, bytes: &[u8]) -> Option<Flaw> {
        let has = |text: &str| {
            bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        };
        match has("-----BEGIN ") && has(self.label) {
            false => Some(Flaw::None(self.what)),
            true => has("ENCRYPTED").then_some(Flaw::Encrypted),
        }
    }
}

/// The reason for which TLS cannot be served with this certificate and this key, as the rest of a sentence about their Secret. An
/// expired certificate can be served.
pub(crate) fn pair_flaw(certificate: &[u8], key: &[u8]) -> Option<&'static str> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = match chain {
        Ok(chain) if !chain.is_empty() => chain,
        _ => return Some("has broken PEM in its entry tls.crt"),
    };
    let Ok(key) = PrivateKeyDer::from_pem_slice(key) else {
        return Some("has broken PEM in its entry tls.key");
    };
    match CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()) {
        Ok(_) => None,
        Err(rustls::Error::InconsistentKeys(_)) => {
            Some("has a key in tls.key that is not that of the certificate in tls.crt")
        }
        Err(rustls::Error::InvalidCertificate(_)) => {
            Some("has something in tls.crt that is no certificate")
        }
        Err(_) => Some("has a key in tls.key that cannot be used"),
    }
}
