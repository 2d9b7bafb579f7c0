//! The results of TLS handshakes with clients.

use crate::words;

words! {
    /// The result of a handshake with a client. The word is the metric's label.
    pub enum HandshakeResult {
        Complete = "complete",
        /// The handshake was complete, and resumed an earlier session.
        Resumed = "resumed",
        /// There is no version, cipher or protocol in common.
        NoSharedCipher = "no-shared-cipher",
        /// The client asked for a name that has no certificate.
        UnknownName = "unknown-name",
        /// The client showed no certificate where one is required, or one that is not valid here.
        BadClientCertificate = "bad-client-certificate",
        /// The client does not speak TLS.
        NotTls = "not-tls",
        /// The handshake took too long.
        Timeout = "timeout",
        /// The client closed the connection.
        Closed = "closed",
        /// The client refused the handshake, for example because it does not trust the certificate.
        Refused = "refused",
        /// Any other failure.
        Other = "other",
    }
}

impl HandshakeResult {
    /// The reason under which it is an error of the frontend. A client that merely closes the connection, as a port scan does,
    /// is none.
    #[must_use]
    pub fn failure(self) -> Option<&'static str> {
        match self {
            Self::Complete | Self::Resumed | Self::Closed => None,
            Self::NoSharedCipher => Some("tls-no-shared-cipher"),
            Self::UnknownName => Some("tls-unknown-name"),
            Self::BadClientCertificate => Some("tls-bad-client-certificate"),
            Self::NotTls => Some("not-tls"),
            Self::Timeout => Some("tls-timeout"),
            Self::Refused => Some("tls-refused"),
            Self::Other => Some("tls-other"),
        }
    }
}
