//! How a TLS handshake with a client ends.

/// The result of a handshake. The word is the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakeResult {
    /// It succeeded.
    Complete,
    /// It succeeded by resuming an earlier session.
    Resumed,
    /// There is no version, cipher or protocol in common.
    NoSharedCipher,
    /// The client asked for a name that has no certificate.
    UnknownName,
    /// The client showed no certificate where one is required, or one that is not valid here.
    BadClientCertificate,
    /// The client does not speak TLS.
    NotTls,
    /// It took too long.
    Timeout,
    /// The client left.
    Closed,
    /// The client refused it, for example because it does not trust the certificate.
    Refused,
    /// Anything else.
    Other,
}

impl HandshakeResult {
    /// All results, in the order of [`HandshakeResult::index`].
    pub const ALL: [Self; 10] = [
        Self::Complete,
        Self::Resumed,
        Self::NoSharedCipher,
        Self::UnknownName,
        Self::BadClientCertificate,
        Self::NotTls,
        Self::Timeout,
        Self::Closed,
        Self::Refused,
        Self::Other,
    ];

    /// Its word in metrics and logs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Resumed => "resumed",
            Self::NoSharedCipher => "no-shared-cipher",
            Self::UnknownName => "unknown-name",
            Self::BadClientCertificate => "bad-client-certificate",
            Self::NotTls => "not-tls",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Refused => "refused",
            Self::Other => "other",
        }
    }

    /// Its index in an array of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}
