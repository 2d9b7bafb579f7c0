//! Whose certificates of endpoints and of clients are trusted.

use std::sync::Arc;

use ballast_core::certificate::Validity;
use ballast_core::table::{ClientAuthMode, OrOff, ServerName};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{self, CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};

use super::x509::{self, Peer};

/// The certificates of a `ca` file, or those that the system trusts.
#[derive(Debug)]
pub(crate) struct Trusted {
    /// Those that may sign others.
    authorities: Arc<RootCertStore>,
    /// The certificates of the file as they are there: a peer may show one of them as its own.
    certificates: Vec<CertificateDer<'static>>,
    /// The subjects of all of them, by which clients choose the certificate that they show.
    subjects: Vec<DistinguishedName>,
}

impl Trusted {
    /// The certificates of a `ca` file.
    pub(super) fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, Error> {
        let (mut authorities, mut all) = (RootCertStore::empty(), RootCertStore::empty());
        for certificate in &certificates {
            all.add(certificate.clone())?;
            // The TLS library takes whatever it is given for an authority.
            if x509::is_authority(certificate) {
                authorities.add(certificate.clone())?;
            }
        }
        Ok(Self {
            authorities: Arc::new(authorities),
            certificates,
            subjects: all.subjects(),
        })
    }

    pub(super) fn of_system(authorities: RootCertStore) -> Self {
        Self {
            authorities: Arc::new(authorities),
            certificates: Vec::new(),
            subjects: Vec::new(),
        }
    }

    /// Whether a peer shows one of these certificates as its own. An error: it does, and must not.
    fn is_shown(
        &self,
        certificate: &CertificateDer<'_>,
        peer: Peer,
        now: UnixTime,
    ) -> Result<bool, Error> {
        if !self.certificates.contains(certificate) {
            return Ok(false);
        }
        let read = x509::use_of(certificate).ok_or(CertificateError::BadEncoding)?;
        if !x509::is_for(certificate, peer) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        match read.period.at(now.as_secs()) {
            Validity::Valid | Validity::ExpiresSoon => Ok(true),
            Validity::NotYetValid => Err(CertificateError::NotValidYet.into()),
            Validity::Expired => Err(CertificateError::Expired.into()),
        }
    }
}

/// Trusts certificates of endpoints that these authorities have signed, and those that are among them. `name`: the table's
/// `verified-name`.
pub(crate) fn verifier(
    trusted: Arc<Trusted>,
    name: Option<&OrOff<ServerName>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let roots = Arc::clone(&trusted.authorities);
    let signed = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider));
    Ok(Arc::new(OfEndpoints {
        signed: if trusted.authorities.is_empty() {
            None
        } else {
            Some(signed.build().map_err(|error| error.to_string())?)
        },
        trusted,
        name: match name {
            None => Name::AsAsked,
            Some(OrOff::Off) => Name::Any,
            Some(OrOff::On(name)) => Name::This(
                pki_types::ServerName::try_from(name.to_string())
                    .map_err(|_| format!("{name}: is not a host name"))?,
            ),
        },
        algorithms: provider.signature_verification_algorithms,
    }))
}

#[derive(Debug)]
struct OfEndpoints {
    /// `None`: there is no authority.
    signed: Option<Arc<WebPkiServerVerifier>>,
    trusted: Arc<Trusted>,
    name: Name,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The name that a certificate must have.
#[derive(Debug)]
enum Name {
    /// The one that the endpoint was asked for, or its address.
    AsAsked,
    This(pki_types::ServerName<'static>),
    Any,
}

impl ServerCertVerifier for OfEndpoints {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        asked: &pki_types::ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let name = match &self.name {
            Name::AsAsked | Name::Any => asked,
            Name::This(name) => name,
        };
        // Names are compared last, so a certificate whose name is wrong is good otherwise.
        let verified = if self.trusted.is_shown(certificate, Peer::Endpoint, now)? {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
        } else {
            let signed = self.signed.as_ref();
            let signed = signed.ok_or(CertificateError::UnknownIssuer)?;
            let verified = signed.verify_server_cert(certificate, intermediates, name, ocsp, now);
            verified.map(drop)
        };
        match verified {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if matches!(self.name, Name::Any) => {}
            verified => verified?,
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Trusts certificates of clients that these authorities have signed, and those that are among them.
pub(super) fn client_verifier(
    trusted: Arc<Trusted>,
    mode: ClientAuthMode,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let roots = Arc::clone(&trusted.authorities);
    let signed = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    Ok(Arc::new(OfClients {
        signed: if trusted.authorities.is_empty() {
            None
        } else {
            Some(signed.build().map_err(|error| error.to_string())?)
        },
        trusted,
        mode,
        algorithms: provider.signature_verification_algorithms,
    }))
}

#[derive(Debug)]
struct OfClients {
    /// `None`: there is no authority.
    signed: Option<Arc<dyn ClientCertVerifier>>,
    trusted: Arc<Trusted>,
    /// A certificate that a client shows must be trusted in both modes.
    mode: ClientAuthMode,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for OfClients {
    fn client_auth_mandatory(&self) -> bool {
        self.mode == ClientAuthMode::Required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.trusted.subjects
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.trusted.is_shown(certificate, Peer::Client, now)? {
            return Ok(ClientCertVerified::assertion());
        }
        let signed = self.signed.as_ref();
        let signed = signed.ok_or(CertificateError::UnknownIssuer)?;
        signed.verify_client_cert(certificate, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
