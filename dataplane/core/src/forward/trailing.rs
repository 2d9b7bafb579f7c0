//! Which trailers of a body are forwarded.

use super::Edits;
use crate::http::{FieldKind, Framing, Version, imitates};

/// The trailers that are forwarded in one direction.
///
/// A trailer must not take the place of a field that frames or routes the message (RFC 9110, section 6.5.1), of one that Ballast
/// writes itself, or of one that the table sets or removes: programs that read trailers as fields would believe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trailing {
    /// Names that the table decides about.
    names: Box<[Box<str>]>,
}

impl Trailing {
    /// The trailers that pass with these edits. `subject` is the field that holds the subject of the client's certificate.
    pub fn beside(subject: Option<&str>, edits: &Edits<'_>) -> Self {
        let names = subject.into_iter().chain(edits.names());
        Self {
            names: names.map(Into::into).collect(),
        }
    }

    /// Whether a body that is framed so, of a message in this version of HTTP, may have trailers: in HTTP/2 also one whose length is
    /// known.
    pub fn may_follow(framing: Framing, version: Version) -> bool {
        framing == Framing::Chunked || version == Version::Http2 && framing.has_body()
    }

    /// Whether a trailer of this name is forwarded.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        match FieldKind::of(name) {
            FieldKind::Other => !self.names.iter().any(|known| imitates(name, known)),
            FieldKind::Connection
            | FieldKind::Cookie
            | FieldKind::Expect
            | FieldKind::Forwarded
            | FieldKind::ForwardedFor
            | FieldKind::ForwardedFact
            | FieldKind::Host
            | FieldKind::ForwardedForImitation
            | FieldKind::ForwardedFactImitation
            | FieldKind::Location
            | FieldKind::SetCookie
            | FieldKind::StrictTransportSecurity
            | FieldKind::Trailer => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_frames_routes_or_is_written_here_is_no_trailer() {
        let trailing = Trailing::beside(Some("X-SSL-Client-DN"), &Edits::default());
        for name in [
            "Connection",
            "Content-Length",
            "cookie",
            "Forwarded",
            "Host",
            "HTTP2-Settings",
            "keep-alive",
            "Proxy-Connection",
            "TE",
            "Trailer",
            "transfer-encoding",
            "Upgrade",
            "X-Forwarded-For",
            "x-forwarded-proto",
            "X_Forwarded_For",
            "x-ssl-client-dn",
            "X_SSL_Client_DN",
        ] {
            assert!(!trailing.allows(name), "{name}");
        }
        for name in ["grpc-status", "X-Checksum", "Connections", "Server-Timing"] {
            assert!(trailing.allows(name), "{name}");
        }
    }
}
