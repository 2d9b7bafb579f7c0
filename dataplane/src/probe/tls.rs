//! TLS for `https` checks: which certificates are trusted, and TLS sessions over connected sockets. Used by [`super::prober`].
//!
//! Sessions are never resumed: each check sees the endpoint's present certificate.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ballast_core::table::{HealthTls, OrOff, ServerName as Name};
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::net::TcpStream;

use crate::net::tls::{self, AcceptAnyCertificate, reason};
use crate::os::files::NamedFiles;

/// The TLS client configurations.
#[derive(Debug)]
pub(super) struct TlsConfigs {
    provider: Arc<CryptoProvider>,
    configs: RefCell<HashMap<Trust, Arc<ClientConfig>>>,
    files: RefCell<Arc<NamedFiles>>,
}

/// The file of certificate authorities, and the table's `verified-name`. Without a file, any certificate is accepted.
type Trust = (Option<PathBuf>, Option<OrOff<Name>>);

impl TlsConfigs {
    pub(super) fn new() -> Self {
        Self {
            provider: tls::provider(),
            configs: RefCell::default(),
            files: RefCell::default(),
        }
    }

    /// Takes the authorities from these files from now on.
    pub(super) fn follow_files(&self, files: Arc<NamedFiles>) {
        self.configs.borrow_mut().clear();
        self.files.replace(files);
    }

    /// Starts a TLS session, or returns why that is not possible.
    pub(super) fn start_session(
        &self,
        asked: Option<&HealthTls>,
        address: IpAddr,
    ) -> Result<TlsSession, &'static str> {
        let authorities = asked.and_then(|tls| tls.ca.as_ref());
        let name = asked.and_then(|tls| tls.verified_name.clone());
        let trust = (authorities.map(|file| file.to_path_buf()), name);
        let known = self.configs.borrow().get(&trust).cloned();
        let config = match known {
            Some(config) => config,
            None => {
                let config = Arc::new(self.config(&trust)?);
                let mut configs = self.configs.borrow_mut();
                configs.insert(trust, Arc::clone(&config));
                config
            }
        };
        let name = match asked.and_then(|tls| tls.sni.as_ref()) {
            Some(name) => {
                ServerName::try_from(name.to_string()).map_err(|_| "its sni is not a host name")?
            }
            None => ServerName::from(address),
        };
        let connection = ClientConnection::new(config, name).map_err(|_| "TLS cannot begin")?;
        Ok(TlsSession(connection))
    }

    fn config(&self, (authorities, verified): &Trust) -> Result<ClientConfig, &'static str> {
        let verifier: Arc<dyn ServerCertVerifier> = match authorities {
            None => Arc::new(AcceptAnyCertificate(Arc::clone(&self.provider))),
            Some(name) => {
                let files = self.files.borrow();
                let roots = tls::authorities(&files, name).map_err(|_| match files.get(name) {
                    Ok(_) => "tls.ca is not certificates in PEM form",
                    Err(_) => "tls.ca cannot be read",
                })?;
                tls::verifier(roots, verified.as_ref(), &self.provider)
                    .map_err(|_| "TLS cannot begin")?
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

/// A TLS session over a connected socket.
pub(super) struct TlsSession(ClientConnection);

/// The result of a read.
pub(super) enum TlsRead {
    More,
    /// Nothing more will arrive.
    End,
}

/// Why a session failed.
pub(super) enum TlsError {
    Socket(io::Error),
    Tls(&'static str),
}

impl TlsSession {
    /// Whether the handshake is in progress.
    pub(super) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Queues bytes to be sent once the handshake is complete.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        // The session buffers it in memory: a request is far smaller than the buffer.
        self.0.writer().write_all(bytes).ok();
    }

    /// Sends everything that is pending.
    pub(super) async fn send(&mut self, stream: &TcpStream) -> io::Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut NonBlocking(stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stream.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for more bytes from the endpoint.
    pub(super) async fn receive(&mut self, stream: &TcpStream) -> Result<TlsRead, TlsError> {
        let read = loop {
            stream.readable().await.map_err(TlsError::Socket)?;
            match self.0.read_tls(&mut NonBlocking(stream)) {
                Ok(read) => break read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(TlsError::Socket(error)),
            }
        };
        match self.0.process_new_packets() {
            Ok(state) if read == 0 || state.peer_has_closed() => Ok(TlsRead::End),
            Ok(_) => Ok(TlsRead::More),
            Err(error) => Err(TlsError::Tls(reason(&error))),
        }
    }

    /// Reads decrypted bytes; `None`: there are none yet.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.0.reader().read(buffer).ok().filter(|read| *read > 0)
    }

    /// Sends a close notification or an alert, if the socket accepts it at once.
    pub(super) fn close(&mut self, stream: &TcpStream) {
        self.0.send_close_notify();
        while self.0.wants_write() && self.0.write_tls(&mut NonBlocking(stream)).is_ok() {}
    }
}

/// A socket whose calls never block.
struct NonBlocking<'a>(&'a TcpStream);

impl Read for NonBlocking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for NonBlocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
