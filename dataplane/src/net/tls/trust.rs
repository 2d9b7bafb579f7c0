//! Whose certificates of endpoints are trusted.

use std::sync::Arc;

use ballast_core::certificate::Validity;
use ballast_core::table::{OrOff, ServerName};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{self, CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::x509;

/// The certificates of a `ca` file, or those that the system trusts.
#[derive(Debug)]
pub(crate) struct Trusted {
    /// The authorities.
    pub(super) roots: Arc<RootCertStore>,
    /// The certificates of the file as they stand there: an endpoint may show one of them as its own.
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

/// Trusts certificates that these authorities have signed, and those that stand among them. `name`: the table's `verified-name`.
pub(crate) fn verifier(
    trusted: Arc<Trusted>,
    name: Option<&OrOff<ServerName>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let roots = Arc::clone(&trusted.roots);
    let signed = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider));
    Ok(Arc::new(Verifier {
        signed: signed.build().map_err(|error| error.to_string())?,
        trusted,
        name: match name {
            None => Name::AsAsked,
            Some(OrOff::Off) => Name::Any,
            Some(OrOff::On(name)) => Name::This(
                pki_types::ServerName::try_from(name.to_string())
                    .map_err(|_| format!("{name}: is not a host name"))?,
            ),
        },
    }))
}

#[derive(Debug)]
struct Verifier {
    signed: Arc<WebPkiServerVerifier>,
    trusted: Arc<Trusted>,
    name: Name,
}

/// The name that a certificate must have.
#[derive(Debug)]
enum Name {
    /// The one that the endpoint was asked for, or its address.
    AsAsked,
    This(pki_types::ServerName<'static>),
    Any,
}

impl Verifier {
    /// Whether the certificate, which stands among the trusted ones, is valid at this time and has this name.
    fn verify_trusted(
        certificate: &CertificateDer<'_>,
        name: &pki_types::ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let period = x509::use_of(certificate).map(|read| read.period);
        let period = period.ok_or(CertificateError::BadEncoding)?;
        match period.at(now.as_secs()) {
            Validity::Valid | Validity::ExpiresSoon => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
            }
            Validity::NotYetValid => Err(CertificateError::NotValidYet.into()),
            Validity::Expired => Err(CertificateError::Expired.into()),
        }
    }
}

impl ServerCertVerifier for Verifier {
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
        let verified = match self.trusted.certificates.contains(certificate) {
            true => Self::verify_trusted(certificate, name, now),
            false => self
                .signed
                .verify_server_cert(certificate, intermediates, name, ocsp, now)
                .map(drop),
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
        let signed = &self.signed;
        signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let signed = &self.signed;
        signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
