//! What a client speaks. The proxies are configured by it, and the load says it to the client.

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Bytes, the first of which says to the origin what they are for.
    Tcp,
    /// HTTP/1.1.
    Http,
    /// HTTP/2 without TLS, with prior knowledge.
    Http2,
    /// HTTP/2 without TLS on both sides of the proxy, whose requests are calls of gRPC.
    Grpc,
    /// HTTP/2 in TLS 1.3, with the cheapest cipher.
    Http2Tls,
    /// HTTP/1.1 in TLS 1.3. `resumes`: with a ticket of an earlier session.
    Https { cipher: Cipher, resumes: bool },
}

/// The only cipher that a client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cipher {
    Aes128,
    Aes256,
}

impl Protocol {
    /// Full handshakes with the cheapest cipher.
    pub(crate) const HTTPS: Self = Self::Https {
        cipher: Cipher::Aes128,
        resumes: false,
    };

    const ALL: [Self; 8] = [
        Self::Tcp,
        Self::Http,
        Self::Http2,
        Self::Grpc,
        Self::Http2Tls,
        Self::HTTPS,
        Self::Https {
            cipher: Cipher::Aes256,
            resumes: false,
        },
        Self::Https {
            cipher: Cipher::Aes128,
            resumes: true,
        },
    ];

    pub(crate) fn is_tls(self) -> bool {
        self.cipher().is_some()
    }

    /// The cipher of its TLS, if it has one.
    pub(crate) fn cipher(self) -> Option<Cipher> {
        match self {
            Self::Https { cipher, .. } => Some(cipher),
            Self::Http2Tls => Some(Cipher::Aes128),
            _ => None,
        }
    }

    /// Whether clients speak HTTP/2.
    pub(crate) fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Grpc | Self::Http2Tls)
    }

    /// Whether a client resumes sessions; `None`: it has none.
    pub(crate) fn resumes(self) -> Option<bool> {
        match self {
            Self::Https { resumes, .. } => Some(resumes),
            _ => None,
        }
    }

    /// Its word on the command line of a client.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http => "http",
            Self::Http2 => "http2",
            Self::Grpc => "grpc",
            Self::Http2Tls => "http2-tls",
            Self::Https { resumes: true, .. } => "https-resumed",
            Self::Https { cipher, .. } => match cipher {
                Cipher::Aes128 => "https-aes128",
                Cipher::Aes256 => "https-aes256",
            },
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.word() == word)
    }
}
