//! The TLS of checks by https: whom they trust, and bytes through a socket that is connected. Called by [`super::talk`].
//!
//! Nothing is resumed: each check sees the certificate that the endpoint has now.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ballast_core::table::HealthTls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use tokio::net::TcpStream;

use crate::intake::NamedFiles;

/// Who may say who an endpoint is.
#[derive(Debug)]
pub(super) struct Trust {
    provider: Arc<CryptoProvider>,
    /// By the file of the authorities. Without one, whoever answers is believed.
    configs: RefCell<BTreeMap<Option<PathBuf>, Arc<ClientConfig>>>,
    files: RefCell<Arc<NamedFiles>>,
}

impl Trust {
    pub(super) fn new() -> Self {
        Self {
            provider: Arc::new(aws_lc_rs::default_provider()),
            configs: RefCell::default(),
            files: RefCell::default(),
        }
    }

    /// Takes the authorities from these files from now on.
    pub(super) fn follow(&self, files: Arc<NamedFiles>) {
        self.configs.borrow_mut().clear();
        self.files.replace(files);
    }

    /// Begins a handshake; or why there can be none.
    pub(super) fn greet(
        &self,
        asked: Option<&HealthTls>,
        address: IpAddr,
    ) -> Result<Secret, &'static str> {
        let authorities = asked.and_then(|tls| tls.ca.as_ref());
        let authorities = authorities.map(|name| name.to_path_buf());
        let known = self.configs.borrow().get(&authorities).cloned();
        let config = match known {
            Some(config) => config,
            None => {
                let config = Arc::new(self.config(authorities.as_ref())?);
                let mut configs = self.configs.borrow_mut();
                configs.insert(authorities, Arc::clone(&config));
                config
            }
        };
        let name = match asked.and_then(|tls| tls.sni.as_ref()) {
            Some(name) => {
                ServerName::try_from(name.to_string()).map_err(|_| "its sni is no name")?
            }
            None => ServerName::from(address),
        };
        let connection = ClientConnection::new(config, name).map_err(|_| "TLS cannot begin")?;
        Ok(Secret(connection))
    }

    fn config(&self, authorities: Option<&PathBuf>) -> Result<ClientConfig, &'static str> {
        let verifier: Arc<dyn ServerCertVerifier> = match authorities {
            None => Arc::new(Credulous(Arc::clone(&self.provider))),
            Some(name) => {
                let files = self.files.borrow();
                let bytes = files.get(name).map_err(|_| "tls.ca cannot be read")?;
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(bytes) {
                    let added = certificate.map(|certificate| roots.add(certificate));
                    if !matches!(added, Ok(Ok(()))) {
                        return Err("tls.ca holds what is no certificate");
                    }
                }
                let provider = Arc::clone(&self.provider);
                WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
                    .build()
                    .map_err(|_| "tls.ca holds no certificate")?
            }
        };
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|_| "TLS cannot begin")?;
        let mut config = config
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// One conversation that nobody else reads.
pub(super) struct Secret(ClientConnection);

/// What came of listening.
pub(super) enum Heard {
    More,
    /// Nothing more will come.
    End,
}

/// Why nothing more can be said.
pub(super) enum Broken {
    Socket(io::Error),
    Tls(&'static str),
}

impl Secret {
    /// Whether the handshake is under way.
    pub(super) fn greets(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Says this once the handshake is over.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        // It is kept in memory: a question is far smaller than what fits there.
        self.0.writer().write_all(bytes).ok();
    }

    /// Sends all that is to be sent now.
    pub(super) async fn send(&mut self, stream: &TcpStream) -> io::Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut Plain(stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stream.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for more from the endpoint.
    pub(super) async fn receive(&mut self, stream: &TcpStream) -> Result<Heard, Broken> {
        let read = loop {
            stream.readable().await.map_err(Broken::Socket)?;
            match self.0.read_tls(&mut Plain(stream)) {
                Ok(read) => break read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Broken::Socket(error)),
            }
        };
        match self.0.process_new_packets() {
            Ok(state) if read == 0 || state.peer_has_closed() => Ok(Heard::End),
            Ok(_) => Ok(Heard::More),
            Err(error) => Err(Broken::Tls(reason(&error))),
        }
    }

    /// Some of what was said; `None`: that was all until now.
    pub(super) fn hear(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.0.reader().read(buffer).ok().filter(|read| *read > 0)
    }

    /// Says that this side is done, or what is wrong, if the socket takes it at once.
    pub(super) fn farewell(&mut self, stream: &TcpStream) {
        self.0.send_close_notify();
        while self.0.wants_write() && self.0.write_tls(&mut Plain(stream)).is_ok() {}
    }
}

/// A socket whose calls do not wait.
struct Plain<'a>(&'a TcpStream);

impl Read for Plain<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Plain<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Believes whoever answers, as kubelet's checks do.
#[derive(Debug)]
struct Credulous(Arc<CryptoProvider>);

impl ServerCertVerifier for Credulous {
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

/// What is wrong, for people.
fn reason(error: &Error) -> &'static str {
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
            _ => "its certificate is not valid",
        },
        Error::AlertReceived(_) => "it refused the handshake",
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => "it does not speak TLS",
        Error::PeerIncompatible(_) => "no version or cipher in common",
        _ => "its TLS is broken",
    }
}
