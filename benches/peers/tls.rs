//! The client's side of TLS, and the certificate of the proxies. The client chooses cipher and group, so that all proxies do the
//! same work, and believes every certificate, so that it is cheap.

use std::fs;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{self, RecvFlags, SendFlags};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientConnection, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, NamedGroup, SignatureScheme, version};

use crate::protocol::{Cipher, Protocol};

/// What the sessions of one client have in common; `None`: it speaks no TLS.
pub(crate) fn config(protocol: Protocol) -> io::Result<Option<Arc<ClientConfig>>> {
    let Some(cipher) = protocol.cipher() else {
        return Ok(None);
    };
    let provider = CryptoProvider {
        cipher_suites: vec![match cipher {
            Cipher::Aes128 => cipher_suite::TLS13_AES_128_GCM_SHA256,
            Cipher::Aes256 => cipher_suite::TLS13_AES_256_GCM_SHA384,
        }],
        kx_groups: vec![kx_group::X25519],
        ..aws_lc_rs::default_provider()
    };
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&version::TLS13])
        .map_err(io::Error::other)?;
    let mut config = config
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous))
        .with_no_client_auth();
    if protocol.is_http2() {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    config.resumption = match protocol.resumes() == Some(true) {
        true => Resumption::store(Arc::new(Tickets::default())),
        false => Resumption::disabled(),
    };
    Ok(Some(Arc::new(config)))
}

/// A new session.
pub(crate) fn session(config: &Arc<ClientConfig>) -> io::Result<ClientConnection> {
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)
}

/// `None`: it would block.
pub(crate) fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// A socket as a session reads and writes it.
pub(crate) struct Socket<'a>(pub(crate) &'a OwnedFd);

impl Read for Socket<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let (_, length) = net::recv(self.0, bytes, RecvFlags::empty())?;
        Ok(length)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    /// A session has several records to send at once. In packets of their own, all but the first would wait for an ACK.
    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where the certificate of the proxies is, and its key, an ECDSA key on P-256.
pub(crate) struct Certificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Both in one file.
    pub(crate) both: PathBuf,
}

impl Certificate {
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self {
            certificate: folder.join("certificate.pem"),
            key: folder.join("key.pem"),
            both: folder.join("both.pem"),
        }
    }

    /// Makes the files.
    pub(crate) fn make(folder: &Path) -> io::Result<()> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]);
        let made = made.map_err(io::Error::other)?;
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let files = Self::in_folder(folder);
        fs::write(files.both, format!("{certificate}{key}"))?;
        fs::write(files.certificate, certificate)?;
        fs::write(files.key, key)
    }
}

/// The tickets of the one server. The library's own store keeps eight, fewer than connections are made at once.
#[derive(Debug, Default)]
struct Tickets(Mutex<Vec<Tls13ClientSessionValue>>);

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tickets.len() < MOST_TICKETS {
            tickets.push(ticket);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// Checks nothing.
#[derive(Debug)]
struct Credulous;

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
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

const NAME: &str = "bench.example";
const MOST_TICKETS: usize = 1_000;
