//! TLS towards clients and towards endpoints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{List, OrOff, is_default};
use super::host::{HostPattern, ServerName};
use super::text::{Alpn, File, Token};

/// TLS that ends at a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FrontendTls {
    /// The certificates. The first one is the default; the names of each are read from it, unless `hosts` says them.
    pub certificates: List<Certificate>,
    /// What happens to a client that asks for a name without a certificate. Default: default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unknown_name: UnknownName,
    /// What happens to a client that asks for no name. Default: default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub no_name: UnknownName,
    /// The oldest version of TLS that is spoken. Default: "1.2".
    #[serde(default, skip_serializing_if = "is_default")]
    pub min_version: TlsVersion,
    /// The protocols that are offered (ALPN). Default: https follows `http.http2`, tcp offers none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub alpn: Option<List<Alpn>>,
    /// Certificates of clients. Absent: clients are not asked for one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub client_auth: Option<ClientAuth>,
}

/// A certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Certificate {
    /// A PEM file with the certificate and its chain.
    pub cert: File,
    /// A PEM file with the key. Absent: the key is in `cert` too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub key: Option<File>,
    /// A file with an OCSP answer that is stapled.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ocsp: Option<File>,
    /// The names that it is offered for, such as shop.example.com or *.example.com, where `*` is one label. Absent: those in it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hosts: Option<List<HostPattern>>,
}

/// Certificates of clients.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ClientAuth {
    /// A PEM file with the authorities that must have signed a client's certificate.
    pub ca: File,
    /// Whether clients must show a certificate. Default: required.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: ClientAuthMode,
    /// https: the header that tells endpoints the subject of the certificate. Default: X-SSL-Client-DN.
    #[serde(default, skip_serializing_if = "is_default")]
    pub header: Option<Token>,
}

impl ClientAuth {
    /// The header that tells endpoints the subject.
    pub fn header(&self) -> &str {
        self.header.as_deref().unwrap_or("X-SSL-Client-DN")
    }
}

/// What happens to a client that asks for a name without a certificate, or for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "what to do about unknown names")]
pub enum UnknownName {
    /// It gets the first certificate.
    #[default]
    Default,
    /// Its handshake fails.
    Refuse,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "a version of TLS")]
pub enum TlsVersion {
    /// TLS 1.2
    #[default]
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3
    #[serde(rename = "1.3")]
    V13,
}

/// Whether clients must show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a mode of client-auth")]
pub enum ClientAuthMode {
    /// A client without a certificate is refused.
    #[default]
    Required,
    /// A client without a certificate is served. One with a certificate of another authority is refused.
    Optional,
}

/// TLS towards the endpoints of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct EndpointTls {
    /// The server name that is asked for and verified. Default: the endpoint's address is verified.
    #[serde(skip_serializing_if = "is_default")]
    pub sni: Option<ServerName>,
    /// The name that the endpoint's certificate must have, or off: any name. Default: `sni`, else the endpoint's address.
    #[serde(skip_serializing_if = "is_default")]
    pub verified_name: Option<OrOff<ServerName>>,
    /// A PEM file with the authorities that must have signed the endpoint's certificate. Default: those of the system.
    #[serde(skip_serializing_if = "is_default")]
    pub ca: Option<File>,
    /// A PEM file with Ballast's own certificate. Absent: none is shown.
    #[serde(skip_serializing_if = "is_default")]
    pub cert: Option<File>,
    /// A PEM file with its key. Absent: the key is in `cert` too.
    #[serde(skip_serializing_if = "is_default")]
    pub key: Option<File>,
    /// The endpoint's certificate is not verified. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub insecure: bool,
}

/// TLS of an https check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct HealthTls {
    /// The server name that is asked for and verified. Default: none is asked for, and the endpoint's address is verified.
    #[serde(skip_serializing_if = "is_default")]
    pub sni: Option<ServerName>,
    /// The name that the certificate must have, or off: any name. Default: `sni`, else the endpoint's address.
    #[serde(skip_serializing_if = "is_default")]
    pub verified_name: Option<OrOff<ServerName>>,
    /// A PEM file with the authorities that must have signed the certificate. Absent: it is not verified.
    #[serde(skip_serializing_if = "is_default")]
    pub ca: Option<File>,
}
