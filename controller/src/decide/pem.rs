//! Whether a text is PEM at all, as far as that is plain to see. Asked of Secrets, and of the files of flags.

use std::fmt;

/// What a PEM text should have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    what: &'static str,
    /// How its first line ends.
    label: &'static str,
}

/// A certificate.
pub(crate) const CERT: Part = Part {
    what: "a certificate",
    label: "CERTIFICATE-----",
};

/// A private key.
pub(crate) const KEY: Part = Part {
    what: "a private key",
    label: "PRIVATE KEY-----",
};

/// Why a text cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It has no such part.
    None(&'static str),
    /// Its key asks for a passphrase.
    Encrypted,
}

impl Part {
    /// Why no port can be served with a text that should have this part.
    #[must_use]
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

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None(what) => write!(f, "has no PEM of {what}"),
            Self::Encrypted => f.write_str(
                "has an encrypted key; Ballast knows no passphrase: give the key without one",
            ),
        }
    }
}
