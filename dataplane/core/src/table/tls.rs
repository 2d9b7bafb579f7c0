//! TLS towards clients and towards endpoints.

use super::fields::List;
use super::host::ServerName;
use super::record::{record, words};
use super::text::{Alpn, File, Token};

record! {
    /// TLS that ends at a frontend.
    pub struct FrontendTls {
        /// The first is the default; names are read from the certificate.
        certificates: List<Certificate>;
        /// Who gets the default certificate.
        unknown_name: UnknownName = UnknownName::Default;
        /// The oldest version that is spoken.
        min_version: TlsVersion = TlsVersion::V12;
        /// Absent: https follows `http.http2`, tcp offers none.
        alpn: Option<List<Alpn>> = None;
        /// Absent: clients are not asked for a certificate.
        client_auth: Option<ClientAuth> = None;
    }
}

record! {
    /// A certificate with its key.
    pub struct Certificate {
        /// PEM: the certificate and its chain.
        cert: File;
        /// Absent: `cert` holds the key too.
        key: Option<File> = None;
        /// A stapled OCSP answer.
        ocsp: Option<File> = None;
    }
}

record! {
    /// Certificates of clients.
    pub struct ClientAuth {
        /// Who must have signed them.
        ca: File;
        /// Whether one must be shown.
        mode: ClientAuthMode = ClientAuthMode::Required;
        /// http: the header that tells endpoints the subject. Absent: see [`ClientAuth::header`].
        header: Option<Token> = None;
    }
}

impl ClientAuth {
    /// The header that tells endpoints the subject.
    #[must_use]
    pub fn header(&self) -> &str {
        self.header.as_deref().unwrap_or("X-SSL-Client-DN")
    }
}

words! {
    /// What happens to a client that asks for a name without a certificate.
    pub enum UnknownName: "what to do about unknown names" {
        /// It gets the first certificate.
        Default = "default",
        /// Its handshake fails.
        Refuse = "refuse",
    }
}

words! {
    /// A version of TLS.
    pub enum TlsVersion: "a version of TLS" {
        /// TLS 1.2
        V12 = "1.2",
        /// TLS 1.3
        V13 = "1.3",
    }
}

words! {
    /// Whether clients must show a certificate.
    pub enum ClientAuthMode: "a mode of client-auth" {
        /// Who shows none is refused.
        Required = "required",
        /// Who shows none is welcome; who shows one of a foreign CA is refused.
        Optional = "optional",
    }
}

record! {
    /// TLS to the endpoints of a service.
    pub struct EndpointTls {
        /// The name that is asked for and verified. Absent: the endpoint's address.
        sni: Option<ServerName> = None;
        /// Who must have signed the endpoint's certificate. Absent: what the system trusts.
        ca: Option<File> = None;
        /// Our own certificate.
        cert: Option<File> = None;
        /// Its key. Absent: `cert` holds it too.
        key: Option<File> = None;
        /// No verification at all.
        insecure: bool = false;
    }
}

record! {
    /// TLS of an https check.
    pub struct HealthTls {
        /// The name that is asked for. Absent: the endpoint's address.
        sni: Option<ServerName> = None;
        /// Absent: the certificate is not verified.
        ca: Option<File> = None;
    }
}
