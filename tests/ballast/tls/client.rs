//! A TLS client that says what it was shown.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, StreamOwned, SupportedProtocolVersion,
};

use support::papers::Papers;

/// A client of this authority, without sessions to resume.
pub(crate) fn config(papers: &Papers) -> ClientConfig {
    let config = ClientConfig::builder().with_root_certificates(papers.roots());
    let mut config = config.with_no_client_auth();
    config.resumption = Resumption::disabled();
    config
}

/// The same for one version.
pub(crate) fn config_of(
    papers: &Papers,
    version: &'static SupportedProtocolVersion,
) -> ClientConfig {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups.insert(0, kx_group::X25519MLKEM768);
    let config = ClientConfig::builder_with_provider(Arc::new(provider));
    let config = config
        .with_protocol_versions(&[version])
        .expect("a version");
    let config = config.with_root_certificates(papers.roots());
    let mut config = config.with_no_client_auth();
    config.resumption = Resumption::disabled();
    config
}

/// The same, showing what `by` issued by this name.
pub(crate) fn showing(papers: &Papers, by: &Papers, name: &str) -> ClientConfig {
    let (chain, key) = by.pair(name);
    let config = ClientConfig::builder().with_root_certificates(papers.roots());
    let config = config.with_client_auth_cert(chain, key);
    let mut config = config.expect("a certificate");
    config.resumption = Resumption::disabled();
    config
}

/// The same, showing what was issued by this name, without having its key: it signs with another one's.
pub(crate) fn showing_with_key(papers: &Papers, name: &str, key_of: &str) -> ClientConfig {
    let ((chain, _), (_, key)) = (papers.pair(name), papers.pair(key_of));
    let key = aws_lc_rs::sign::any_supported_type(&key).expect("a key");
    let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    let config = ClientConfig::builder().with_root_certificates(papers.roots());
    let mut config = config.with_client_cert_resolver(Arc::new(shown));
    config.resumption = Resumption::disabled();
    config
}

/// A session, whose handshake is complete.
pub(crate) struct Tls(pub(crate) StreamOwned<ClientConnection, TcpStream>);

impl Tls {
    pub(crate) fn connect(
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        name: &str,
    ) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        Self::over(socket, config, name)
    }

    pub(crate) fn over(
        mut socket: TcpStream,
        config: &Arc<ClientConfig>,
        name: &str,
    ) -> io::Result<Self> {
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        socket.set_write_timeout(Some(Duration::from_secs(10)))?;
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let mut session =
            ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(Self(StreamOwned::new(session, socket)))
    }

    /// Says this, and hears as many bytes.
    pub(crate) fn echo(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(bytes)?;
        self.0.flush()?;
        let mut heard = vec![0; bytes.len()];
        self.0.read_exact(&mut heard)?;
        Ok(heard)
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The certificate that the server has shown.
    pub(crate) fn certificate(&self) -> Vec<u8> {
        let shown = self.0.conn.peer_certificates().expect("a certificate");
        shown[0].to_vec()
    }
}

/// One connection: a handshake, and a byte that comes back. With TLS 1.3 a refused client learns of it only then.
pub(crate) fn visit(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    name: &str,
) -> io::Result<Tls> {
    let mut tls = Tls::connect(address, config, name)?;
    assert_eq!(tls.echo(b"!")?, b"!");
    Ok(tls)
}
