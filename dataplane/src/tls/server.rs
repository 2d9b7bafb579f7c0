//! TLS that ends at a frontend: its certificates by name, its versions, its protocols, and the clients' certificates.

use std::collections::HashMap;
use std::sync::Arc;

use ballast_core::table::{
    self, ClientAuth, ClientAuthMode, FrontendTls, Protocol, TlsVersion, UnknownName,
};
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoClientAuth, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use sha2::{Digest, Sha256};

use super::certificates::{Certificate, CertificateFiles, Certificates};
use super::pem;
use super::tickets::{Policy, TicketKeys};
use crate::intake::NamedFiles;

/// TLS of one frontend.
#[derive(Debug)]
pub(crate) struct ServerTls {
    config: Arc<ServerConfig>,
    /// The settings of the table from which this was compiled.
    spec: FrontendTls,
    policy: Policy,
    certificates: Vec<Arc<Certificate>>,
}

/// Inputs of compiling that all configurations of a plan share.
pub(super) struct Context<'a> {
    pub(super) provider: &'a Arc<CryptoProvider>,
    pub(super) tickets: &'a Arc<TicketKeys>,
    pub(super) files: &'a NamedFiles,
}

impl ServerTls {
    /// Compiles the TLS of a frontend that offers these protocols. Returns that of `before` if nothing has changed, and an error
    /// if no certificate is left, or if the authorities of clients cannot be used.
    pub(super) fn compile(
        spec: &FrontendTls,
        alpn: Vec<Vec<u8>>,
        certificates: &mut Certificates,
        context: &Context<'_>,
        before: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, String> {
        let certificates: Vec<Arc<Certificate>> = spec
            .certificates
            .iter()
            .map(|certificate| {
                let (key, ocsp) = (certificate.key.as_deref(), certificate.ocsp.as_deref());
                let files = CertificateFiles::new(&certificate.cert, key, ocsp);
                certificates.get(files, context.files, context.provider)
            })
            .collect();
        let policy = policy(spec.client_auth.as_ref(), context.files);
        if let Some(before) = before
            && before.spec == *spec
            && before.config.alpn_protocols == alpn
            && before.policy == policy
            && before.certificates.len() == certificates.len()
            && before
                .certificates
                .iter()
                .zip(&certificates)
                .all(|(before, now)| Arc::ptr_eq(before, now))
        {
            return Ok(Arc::clone(before));
        }
        if certificates
            .iter()
            .all(|certificate| certificate.key.is_none())
        {
            let problems = certificates.iter().filter_map(|one| one.problem.clone());
            return Err(problems.collect::<Vec<_>>().join("; "));
        }
        let verifier = client_verifier(spec.client_auth.as_ref(), context)?;
        let config = ServerConfig::builder_with_provider(Arc::clone(context.provider))
            .with_protocol_versions(versions(spec.min_version))
            .map_err(|error| error.to_string())?;
        let mut config = config
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(Chooser::new(&certificates, spec.unknown_name)));
        config.alpn_protocols = alpn;
        config.ticketer = context.tickets.for_policy(policy);
        // Sessions are resumed by tickets only, which every worker and every swap understands.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(Self {
            config: Arc::new(config),
            spec: spec.clone(),
            policy,
            certificates,
        }))
    }

    pub(super) fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// The problems with its certificates.
    pub(super) fn problems(&self) -> impl Iterator<Item = &str> {
        self.certificates
            .iter()
            .filter_map(|certificate| certificate.problem.as_deref())
    }
}

/// The protocols that a frontend offers.
pub(super) fn protocols(frontend: &table::Frontend, tls: &FrontendTls) -> Vec<Vec<u8>> {
    match (&tls.alpn, frontend.protocol) {
        (Some(alpn), _) => alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
        (None, Protocol::Https) if frontend.http().http2 => {
            vec![b"h2".to_vec(), b"http/1.1".to_vec()]
        }
        (None, Protocol::Https) => vec![b"http/1.1".to_vec()],
        (None, _) => Vec::new(),
    }
}

fn versions(least: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    match least {
        TlsVersion::V12 => rustls::ALL_VERSIONS,
        TlsVersion::V13 => const { &[&version::TLS13] },
    }
}

/// The digest of the rules for client certificates. It changes with the authorities, so no ticket is valid after they have
/// changed.
fn policy(auth: Option<&ClientAuth>, files: &NamedFiles) -> Policy {
    let Some(auth) = auth else {
        return Policy::default();
    };
    let mut whole = Sha256::new();
    whole.update(match auth.mode {
        ClientAuthMode::Required => b"required",
        ClientAuthMode::Optional => b"optional",
    });
    whole.update(files.get(&auth.ca).unwrap_or_default());
    whole.finalize().into()
}

fn client_verifier(
    auth: Option<&ClientAuth>,
    context: &Context<'_>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let Some(auth) = auth else {
        return Ok(Arc::new(NoClientAuth));
    };
    let roots = pem::authorities(context.files, &auth.ca)?;
    let provider = Arc::clone(context.provider);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
    let verifier = match auth.mode {
        ClientAuthMode::Required => verifier,
        // A certificate that a client shows must be issued by one of these authorities all the same.
        ClientAuthMode::Optional => verifier.allow_unauthenticated(),
    };
    let verifier = verifier.build();
    verifier.map_err(|error| format!("{}: {error}", auth.ca.display()))
}

/// Chooses a certificate by the name that a client asks for.
#[derive(Debug)]
struct Chooser {
    exact: HashMap<Box<str>, Keys>,
    /// Keyed by the part of the name behind `*.`.
    wildcards: HashMap<Box<str>, Keys>,
    /// The first certificate, for clients without a name; `None`: it cannot be used.
    first: Option<Arc<CertifiedKey>>,
    unknown: UnknownName,
}

/// The certificates for one name, in the order of the table. A name whose only certificate cannot be used has none: it is
/// refused.
type Keys = Vec<Arc<CertifiedKey>>;

impl Chooser {
    fn new(certificates: &[Arc<Certificate>], unknown: UnknownName) -> Self {
        let mut chooser = Self {
            exact: HashMap::new(),
            wildcards: HashMap::new(),
            first: certificates.first().and_then(|first| first.key.clone()),
            unknown,
        };
        for certificate in certificates {
            for name in &certificate.names {
                let keys = match name.strip_prefix("*.") {
                    Some(parent) => chooser.wildcards.entry(parent.into()),
                    None => chooser.exact.entry(name.clone()),
                };
                keys.or_default().extend(certificate.key.clone());
            }
        }
        chooser
    }

    fn keys(&self, name: &str) -> Option<&Keys> {
        let name = name.strip_suffix('.').unwrap_or(name);
        self.exact.get(name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.wildcards.get(parent)
        })
    }
}

impl ResolvesServerCert for Chooser {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let known = hello
            .server_name()
            .map(|name| self.keys(&name.to_ascii_lowercase()));
        match known {
            // Of certificates with keys of several kinds, the client gets the first that it understands.
            Some(Some(keys)) => {
                let schemes = hello.signature_schemes();
                let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
                keys.iter().find(fits).or_else(|| keys.first()).cloned()
            }
            Some(None) if self.unknown == UnknownName::Refuse => None,
            Some(None) | None => self.first.clone(),
        }
    }
}
