//! TLS to endpoints: Ballast's own certificate, and the authorities that it trusts. Health checks use the same verifiers.

use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ballast_core::moment::Moment;
use ballast_core::table::{EndpointTls, HttpVersion, OrOff};
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::certificates::{Certificate, CertificateFiles, Certificates};
use super::failures::{Failures, TlsFailure};
use super::pem;
use super::trust::{Trusted, verifier};
use crate::os::files::NamedFiles;

/// TLS to the endpoints of one service.
#[derive(Debug)]
pub(crate) struct ClientTls {
    config: Arc<ClientConfig>,
    /// The server name that is sent and verified; `None`: none is sent, and the endpoint's address is verified.
    name: Option<ServerName<'static>>,
    /// The settings of the table from which this was compiled.
    spec: EndpointTls,
    http: HttpVersion,
    authorities: Option<Box<[u8]>>,
    certificate: Option<Arc<Certificate>>,
    failures: Failures,
}

/// Inputs of compiling that all configurations of a plan share.
pub(super) struct Context<'a> {
    pub(super) provider: &'a Arc<CryptoProvider>,
    pub(super) roots: &'a SystemRoots,
    pub(super) files: &'a NamedFiles,
}

impl ClientTls {
    /// Compiles the TLS of a service. Returns that of `before` if nothing has changed.
    pub(super) fn compile(
        spec: &EndpointTls,
        http: HttpVersion,
        certificates: &mut Certificates,
        context: &Context<'_>,
        before: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, String> {
        let certificate = spec.cert.as_deref().map(|cert| {
            let files = CertificateFiles::new(cert, spec.key.as_deref(), None);
            certificates.get(files, context.files, context.provider)
        });
        let authorities = match &spec.ca {
            Some(ca) => Some(pem::read(context.files, ca)?),
            None => None,
        };
        if let Some(before) = before
            && before.spec == *spec
            && before.http == http
            && before.authorities.as_deref() == authorities
            && before.certificate.as_ref().map(Arc::as_ptr) == certificate.as_ref().map(Arc::as_ptr)
        {
            return Ok(Arc::clone(before));
        }
        let verifier = match (&spec.ca, spec.insecure) {
            (_, true) => Arc::new(AcceptAnyCertificate(Arc::clone(context.provider))) as Arc<_>,
            (Some(ca), false) => {
                let trusted = pem::authorities(context.files, ca)?;
                verifier(trusted, spec.verified_name.as_ref(), context.provider)
                    .map_err(|why| format!("{}: {why}", ca.display()))?
            }
            (None, false) => {
                let trusted = context.roots.get();
                verifier(trusted, spec.verified_name.as_ref(), context.provider).map_err(|why| {
                    format!("the authorities of this system cannot be used: {why}")
                })?
            }
        };
        let shown = match &certificate {
            None => None,
            Some(certificate) => match &certificate.key {
                Some(key) => Some(Arc::clone(key)),
                None => return Err(certificate.problem.clone().unwrap_or_default()),
            },
        };
        let name = match &spec.sni {
            Some(name) => Some(
                ServerName::try_from(name.to_string())
                    .map_err(|_| format!("{name}: is not a host name"))?,
            ),
            None => None,
        };
        let mut config = config(context.provider, verifier, shown)?;
        if http == HttpVersion::H2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        Ok(Arc::new(Self {
            config: Arc::new(config),
            name,
            spec: spec.clone(),
            http,
            authorities: authorities.map(Into::into),
            certificate,
            failures: Failures::default(),
        }))
    }

    /// Logs that no TLS session with this endpoint came about.
    pub(crate) fn log_failure(
        &self,
        service: &str,
        endpoint: SocketAddr,
        why: &'static str,
        now: Moment,
    ) {
        let Some(suppressed) = self.failures.allow(endpoint, why, now) else {
            return;
        };
        let name = self.verified_name(endpoint.ip());
        tracing::warn!(%service, %endpoint, name, why, suppressed, "TLS with an endpoint failed");
    }

    /// The problem with the certificate that is shown all the same, as a sentence.
    pub(super) fn problem(&self) -> Option<&str> {
        self.certificate.as_ref()?.problem.as_deref()
    }

    /// The failures that [`ClientTls::log_failure`] was given.
    pub(crate) fn failed(&self) -> Vec<TlsFailure> {
        self.failures.all()
    }

    /// The name that the certificate of an endpoint at this address must have, for the log.
    fn verified_name(&self, address: IpAddr) -> String {
        match (&self.spec.verified_name, &self.spec.sni) {
            _ if self.spec.insecure => "any".into(),
            (Some(OrOff::Off), _) => "any".into(),
            (Some(OrOff::On(name)), _) | (None, Some(name)) => name.to_string(),
            (None, None) => address.to_string(),
        }
    }

    /// Whether this is a protocol for the service: h2 must have been chosen where the table asks for it.
    pub(crate) fn accepts(&self, alpn: Option<&[u8]>) -> bool {
        self.http != HttpVersion::H2 || alpn == Some(b"h2")
    }

    pub(super) fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// The name that an endpoint at this address must prove.
    pub(super) fn name(&self, address: IpAddr) -> ServerName<'static> {
        self.name.clone().unwrap_or_else(|| address.into())
    }
}

fn config(
    provider: &Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
    shown: Option<Arc<CertifiedKey>>,
) -> Result<ClientConfig, String> {
    let config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    Ok(match shown {
        Some(key) => {
            let resolver: Arc<dyn ResolvesClientCert> = Arc::new(SingleCertAndKey::from(key));
            config.with_client_cert_resolver(resolver)
        }
        None => config.with_no_client_auth(),
    })
}

/// The authorities that this system trusts, read once when they are needed.
#[derive(Debug, Default)]
pub(super) struct SystemRoots(OnceCell<Arc<Trusted>>);

impl SystemRoots {
    fn get(&self) -> Arc<Trusted> {
        let read = || {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            Arc::new(Trusted::of_system(roots))
        };
        Arc::clone(self.0.get_or_init(read))
    }
}
/// Accepts any certificate, as the probes of kubelet do.
#[derive(Debug)]
pub(crate) struct AcceptAnyCertificate(pub(crate) Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Why a handshake with an endpoint failed, as text.
pub(crate) fn reason(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(certificate) => match certificate {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet"
            }
            CertificateError::UnknownIssuer => "its certificate is by nobody in tls.ca",
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name"
            }
            CertificateError::Other(why) if why.to_string().contains("UnsupportedCertVersion") => {
                "its certificate is of X.509 version 1; issue one of version 3"
            }
            CertificateError::Other(why) if why.to_string().contains("CaUsedAsEndEntity") => {
                "its certificate is one of an authority (CA:TRUE), such as a self-signed one, and is not itself in tls.ca"
            }
            _ => "its certificate is not valid",
        },
        Error::AlertReceived(_) => "it refused the handshake",
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => "it does not speak TLS",
        Error::PeerIncompatible(_) => "no version or cipher in common",
        Error::NoApplicationProtocol => "no protocol (ALPN) in common",
        _ => "its TLS is broken",
    }
}
