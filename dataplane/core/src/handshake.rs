//! The results of TLS handshakes with clients.

use crate::words;

words! {
    /// The result of a handshake with a client. The word is the metric's label.
    pub enum HandshakeResult {
        /// The handshake was complete.
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
