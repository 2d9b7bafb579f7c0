//! TLS that ends at a frontend: its certificates by name, its versions, its protocols, and the clients' certificates.

use std::sync::Arc;

use ballast_core::certificate::CertificateNames;
use ballast_core::table::{self, ClientAuth, ClientAuthMode, FrontendTls, Protocol, TlsVersion};
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoClientAuth, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use sha2::{Digest, Sha256};

use super::certificates::{Certificate, CertificateFiles, Certificates};
use super::served::{Listed, ServedCertificate, names_of};
use super::tickets::{Policy, TicketKeys};
use super::{Part, Problem, pem, trust};
use crate::os::files::NamedFiles;

#[derive(Debug)]
pub(crate) struct ServerTls {
    config: Arc<ServerConfig>,
    chooser: Arc<Chooser>,
    /// The settings of the table from which this was compiled.
    spec: FrontendTls,
    policy: Policy,
    certificates: Vec<Arc<Certificate>>,
    served: Arc<[ServedCertificate]>,
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
    ) -> Result<Arc<Self>, Vec<Problem>> {
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
            return Err(problems(spec, &certificates, None).collect());
        }
        let of_clients = |why| vec![Problem::new(Part::ClientAuth, why, None)];
        let verifier = client_verifier(spec.client_auth.as_ref(), context).map_err(of_clients)?;
        let config = ServerConfig::builder_with_provider(Arc::clone(context.provider))
            .with_protocol_versions(versions(spec.min_version))
            .map_err(|error| vec![Problem::new(Part::Settings, error.to_string(), None)])?;
        let chooser = Arc::new(Chooser::new(spec, &certificates));
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Chooser>::clone(&chooser);
        let mut config = config
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(resolver);
        config.alpn_protocols = alpn;
        config.ticketer = context.tickets.for_policy(policy);
        // Sessions are resumed by tickets only, which every worker and every swap understands.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(Self {
            config: Arc::new(config),
            chooser,
            spec: spec.clone(),
            policy,
            served: served(spec, &certificates),
            certificates,
        }))
    }

    /// Which certificates of clients are asked for and believed.
    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    pub(super) fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// Whether the handshake of a client that asks for this name, or for none, is refused.
    pub(super) fn refuses(&self, server_name: Option<&str>) -> bool {
        self.chooser.names.refuses(server_name)
    }

    /// The certificates that can be used, in the order of the table.
    pub(super) fn served(&self) -> &Arc<[ServedCertificate]> {
        &self.served
    }

    /// The problems with its certificates, of which some can be used.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        problems(&self.spec, &self.certificates, Some(&self.chooser.names))
    }
}

/// The problems with these certificates. `others`: which ones clients are offered; `None`: none can be used.
fn problems<'a>(
    spec: &'a FrontendTls,
    certificates: &'a [Arc<Certificate>],
    others: Option<&'a CertificateNames>,
) -> impl Iterator<Item = Problem> + 'a {
    let all = spec.certificates.iter().zip(certificates).enumerate();
    all.filter_map(move |(index, (spec, certificate))| {
        let why = certificate.problem.clone()?;
        let names = names_of(spec, certificate);
        let served = match certificate.key {
            Some(_) => Some("its names are served".to_owned()),
            None => others.map(|others| uncovered(&names, index == 0, others)),
        };
        Some(Problem::new(Part::Certificate(index), why, served))
    })
}

/// Which clients are refused because a certificate with these names cannot be used.
fn uncovered(names: &[Box<str>], is_first: bool, others: &CertificateNames) -> String {
    let is_refused = |name: &str| others.refuses(Some(&name.replacen('*', "any", 1)));
    let refused: Vec<Box<str>> = names
        .iter()
        .filter(|name| is_refused(name))
        .cloned()
        .collect();
    let mut clients = Vec::new();
    if !refused.is_empty() {
        clients.push(format!("for {}", Listed(&refused)));
    }
    if is_first && others.refuses(Some(UNKNOWN_NAME)) {
        clients.push("for names of no certificate".to_owned());
    }
    if is_first && others.refuses(None) {
        clients.push("without a name".to_owned());
    }
    let unread = match names {
        [] => "its names cannot be read; ",
        _ => "",
    };
    let who = match &*clients {
        [] => "no client is refused".to_owned(),
        clients => format!("clients {} are refused", clients.join(", ")),
    };
    format!("{unread}{who}; the other certificates are served")
}

fn served(spec: &FrontendTls, certificates: &[Arc<Certificate>]) -> Arc<[ServedCertificate]> {
    let served = spec.certificates.iter().zip(certificates);
    served
        .filter_map(|(spec, certificate)| ServedCertificate::of(spec, certificate))
        .collect()
}

/// The protocols that a frontend offers.
pub(super) fn protocols(frontend: &table::Frontend, tls: &FrontendTls) -> Vec<Vec<u8>> {
    match (&tls.alpn, frontend.protocol) {
        (Some(alpn), _) => alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
        (None, Protocol::Https) if frontend.http().http2().is_some() => {
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
    let trusted = pem::authorities(context.files, &auth.ca)?;
    let verifier = trust::client_verifier(trusted, auth.mode, context.provider);
    verifier.map_err(|error| format!("{}: {error}", auth.ca.display()))
}

/// Chooses a certificate by the name that a client asks for.
#[derive(Debug)]
struct Chooser {
    names: CertificateNames,
    /// In the order of the table. `None`: that certificate cannot be used.
    keys: Box<[Option<Arc<CertifiedKey>>]>,
}

impl Chooser {
    fn new(spec: &FrontendTls, certificates: &[Arc<Certificate>]) -> Self {
        let names = spec.certificates.iter().zip(certificates);
        let names: Vec<_> = names
            .map(|(spec, certificate)| names_of(spec, certificate))
            .collect();
        let offered = names.iter().zip(certificates).map(|(names, certificate)| {
            let names = names.iter().map(|name| &**name);
            (names, certificate.key.is_some())
        });
        Self {
            names: CertificateNames::new(offered, spec.unknown_name, spec.no_name),
            keys: certificates
                .iter()
                .map(|certificate| certificate.key.clone())
                .collect(),
        }
    }
}

impl ResolvesServerCert for Chooser {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let places = self.names.find(hello.server_name()).iter();
        let keys = places.filter_map(|place| self.keys.get(*place)?.as_ref());
        // Of certificates with keys of several kinds, the client gets the first that it understands.
        let schemes = hello.signature_schemes();
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        let fitting = keys.clone().find(fits);
        fitting.or_else(|| keys.clone().next()).cloned()
    }
}

/// A name that no certificate is for.
const UNKNOWN_NAME: &str = "unknown.invalid";
