//! TLS: the compiled configurations of everything in force, and sessions over a worker's sockets.
//!
//! `apply` compiles [`Configs`] with each plan, from the files that the table names; connections only look them up. If a file is
//! missing or wrong, the handshakes that need the file are refused, and the ack says why. Unchanged configurations are not
//! compiled again.
//!
//! | module | owns |
//! |---|---|
//! | `pem` | what files hold: certificates, keys, authorities |
//! | `x509` | what certificates say: names and subjects |
//! | `certificates` | certificates with their keys, by file |
//! | `server` | TLS that ends at a frontend |
//! | `served` | what is reported to operators of certificates |
//! | `tickets` | the keys of session tickets |
//! | `trust` | whose certificates of endpoints and of clients are trusted |
//! | `client` | TLS to endpoints, and to what checks ask |
//! | `failures` | which failed handshakes with endpoints are logged |
//! | `hello` | the ClientHello of a client, before a session exists |
//! | `session` | one TLS session: bytes in and out, without a socket of its own |
//! | `stream` | a socket with or without a session, as the relay sees it |

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use ballast_core::handover::{KeptCertificate, PairFiles, Tickets};
use ballast_core::http::Host;
use ballast_core::plan::{Frontend, HttpFrontend, Plan};
use ballast_core::route::SecureConnection;
use ballast_core::table::{self, Name};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use tokio::time::Instant;

use crate::os::files::NamedFiles;

mod certificates;
mod client;
mod failures;
mod hello;
mod pem;
mod served;
mod server;
mod session;
mod stream;
mod tickets;
mod trust;
mod x509;

use certificates::{CertificateFiles, Certificates};
pub(crate) use client::{AcceptAnyCertificate, ClientTls, reason};
pub(crate) use failures::TlsFailure;
pub(crate) use hello::{HelloError, read_hello};
pub(crate) use pem::authorities;
pub use served::ServedCertificate;
pub(crate) use server::ServerTls;
pub(crate) use session::{HandshakeError, Scratch, Session};
pub(crate) use stream::MaybeTls;
pub(crate) use tickets::Policy;
use tickets::TicketKeys;
pub(crate) use trust::verifier;

/// The compiled TLS configurations of one plan.
#[derive(Debug, Default)]
pub(crate) struct Configs {
    /// By the frontend's name.
    frontends: HashMap<Name, Result<Arc<ServerTls>, Vec<Problem>>>,
    /// By the service's name.
    services: HashMap<Name, Result<Arc<ClientTls>, String>>,
    certificates: Certificates,
}

impl Configs {
    /// The configuration of this frontend; `None`: the frontend has no TLS, or a file that TLS needs cannot be used.
    pub(crate) fn frontend(&self, name: &str) -> Option<&Arc<ServerTls>> {
        self.frontends.get(name)?.as_ref().ok()
    }

    /// Whether a request for `host` that came by `connection` is to be answered 421.
    pub(crate) fn is_misdirected(
        &self,
        frontend: &Frontend,
        http: &HttpFrontend,
        host: Option<Host<'_>>,
        connection: &SecureConnection<'_>,
    ) -> bool {
        http.is_misdirected(host, connection, |server_name| {
            let tls = self.frontend(frontend.name());
            // Without a configuration every handshake is refused.
            tls.is_none_or(|tls| tls.refuses(server_name))
        })
    }

    /// The configuration for the endpoints of this service; `None`: the service has no TLS, or a file that TLS needs cannot be
    /// used.
    pub(crate) fn service(&self, name: &str) -> Option<&Arc<ClientTls>> {
        self.services.get(name)?.as_ref().ok()
    }

    /// The certificates that this frontend serves; `None`: it has no TLS, or refuses every handshake.
    pub(crate) fn served(&self, frontend: &str) -> Option<&Arc<[ServedCertificate]>> {
        self.frontend(frontend).map(|tls| tls.served())
    }

    /// What operators should know of the certificates of this frontend `now`, in seconds since 1970, as sentences. A
    /// certificate with a warning is served.
    pub(crate) fn warnings<'a>(
        &'a self,
        frontend: &'a str,
        now: u64,
    ) -> impl Iterator<Item = String> + 'a {
        let served = self.served(frontend).into_iter();
        served.flat_map(move |served| served::warnings(frontend, served, now))
    }

    /// The files of the certificates that cannot be used. `folder` is that of the table.
    pub(crate) fn unusable_certificates(&self, folder: &Path) -> Vec<PairFiles> {
        self.certificates.unusable(folder)
    }

    /// The certificates of these files, or, where these are none, those that their files do not have any more, for the next process.
    pub(crate) fn lend_certificates(
        &self,
        wanted: &[PairFiles],
        folder: &Path,
    ) -> Vec<KeptCertificate> {
        self.certificates.lend(wanted, folder)
    }

    /// Why no TLS is spoken with the endpoints of this service, though the table asks for it.
    pub(crate) fn why_not_with(&self, service: &str) -> Option<&str> {
        let why = self.services.get(service)?.as_ref().err()?;
        Some(why)
    }

    /// The problems with the TLS of this frontend and of its services.
    pub(crate) fn problems(&self, frontend: &table::Frontend) -> Vec<Problem> {
        let mut found = match self.frontends.get(&frontend.name) {
            Some(Ok(tls)) => tls.problems().collect(),
            Some(Err(problems)) => problems.clone(),
            None => Vec::new(),
        };
        let is_reached = |name: &Name| self.why_not_with(name).is_none();
        let others = (frontend.services().any(is_reached) || frontend.answers_itself())
            .then(|| "the other routes are served".to_owned());
        for name in frontend.services() {
            let (why, served) = match self.services.get(name) {
                Some(Err(why)) => (
                    format!("service {name}: {why}; its endpoints are not connected to"),
                    others.clone(),
                ),
                Some(Ok(tls)) => match tls.problem() {
                    Some(why) => (
                        format!("service {name}: {why}"),
                        Some("its endpoints are connected to".to_owned()),
                    ),
                    None => continue,
                },
                None => continue,
            };
            let part = Part::Service(name.clone());
            if !found.iter().any(|known| known.part == part) {
                found.push(Problem::new(part, why, served));
            }
        }
        found
    }
}

/// Why a certificate with its key cannot be used, as a sentence. `key`: `None` if it is in the same file.
pub(crate) fn pair_problem(cert: &Path, key: Option<&Path>, named: &NamedFiles) -> Option<String> {
    let files = CertificateFiles::new(cert, key, None);
    let certificate = Certificates::default().get(files, named, &provider());
    certificate.problem.clone()
}

/// A problem with the TLS of a frontend.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) part: Part,
    /// A sentence.
    pub(crate) why: String,
    /// What the frontend serves all the same; `None`: nothing.
    pub(crate) served: Option<String>,
}

/// What of the TLS of a frontend has a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The certificate with this index.
    Certificate(usize),
    ClientAuth,
    Settings,
    /// TLS with the endpoints of this service.
    Service(Name),
}

impl Problem {
    fn new(part: Part, why: String, served: Option<String>) -> Self {
        Self { part, why, served }
    }
}

/// Compiles configurations. Belongs to `apply`.
#[derive(Debug)]
pub(crate) struct Compiler {
    provider: Arc<CryptoProvider>,
    tickets: Arc<TicketKeys>,
    roots: client::SystemRoots,
}

impl Compiler {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            provider: provider(),
            tickets: Arc::new(TicketKeys::random(now)),
            roots: client::SystemRoots::default(),
        }
    }

    /// Replaces the keys of session tickets where that is due.
    pub(crate) fn rotate_tickets(&self, now: Instant) {
        self.tickets.rotate(now);
    }

    /// Whether the file with the keys of session tickets that `plan` names cannot be used.
    pub(crate) fn lacks_tickets(&self, plan: &Plan) -> bool {
        plan.ticket_keys().is_some() && self.tickets.are_random()
    }

    /// The keys of session tickets, for the next process; `wants_file`: that lacks those of its file.
    pub(crate) fn lend_tickets(&self, wants_file: bool, now: Instant) -> Option<Tickets> {
        self.tickets.lend(wants_file, now)
    }

    /// Goes on with the keys of session tickets of the process before.
    pub(crate) fn resume_tickets(&self, tickets: &Tickets, now: Instant) {
        self.tickets.resume(tickets, now);
    }

    /// The configurations of `plan` with certificates of the process before, where this one has compiled `configs` without them.
    pub(crate) fn resume_certificates(
        &self,
        (kept, folder): (&[KeptCertificate], &Path),
        plan: &Plan,
        files: &NamedFiles,
        mut configs: Configs,
    ) -> Configs {
        if !configs.certificates.resume(kept, folder, &self.provider) {
            return configs;
        }
        self.compile(plan, files, &configs)
    }

    /// Compiles the configurations of `plan`, reusing those of `previous` that have not changed.
    pub(crate) fn compile(&self, plan: &Plan, files: &NamedFiles, previous: &Configs) -> Configs {
        self.tickets.follow(plan.ticket_keys(), files);
        let mut certificates = Certificates::following(&previous.certificates);
        let frontends = plan.frontends().iter().filter_map(|frontend| {
            let spec = frontend.spec();
            let tls = spec.tls.as_deref()?;
            let before = previous.frontend(&spec.name);
            let alpn = server::protocols(spec, tls);
            let make = || {
                let context = server::Context {
                    provider: &self.provider,
                    tickets: &self.tickets,
                    files,
                };
                ServerTls::compile(tls, alpn, &mut certificates, &context, before)
            };
            Some((spec.name.clone(), make()))
        });
        let frontends = frontends.collect();
        let services = plan.services().iter().filter_map(|service| {
            let spec = service.spec();
            let tls = spec.tls.as_deref()?;
            let before = previous.service(&spec.name);
            let context = client::Context {
                provider: &self.provider,
                roots: &self.roots,
                files,
            };
            let http = spec.http_version();
            let compiled = ClientTls::compile(tls, http, &mut certificates, &context, before);
            Some((spec.name.clone(), compiled))
        });
        Configs {
            frontends,
            services: services.collect(),
            certificates: certificates.finished(),
        }
    }
}

/// The cryptography of all sessions: authenticated ciphers with forward secrecy only. The preferred key exchange resists quantum
/// computers.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    let first = kx_group::X25519MLKEM768;
    provider
        .kx_groups
        .retain(|group| group.name() != first.name());
    provider.kx_groups.insert(0, first);
    Arc::new(provider)
}
