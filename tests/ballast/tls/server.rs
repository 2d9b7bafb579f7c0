//! Servers that speak TLS.
#![allow(dead_code, reason = "each test file uses its part of this")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use support::server;

pub(crate) type Session = StreamOwned<ServerConnection, TcpStream>;

/// For clients that show no certificate.
pub(crate) fn plain(
    (chain, key): (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
) -> ServerConfig {
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate with its key")
}

/// A server that does `before` with each connection, and then `serve` with its session.
pub(crate) fn serving(
    config: ServerConfig,
    before: impl Fn(&mut TcpStream) + Clone + Send + 'static,
    serve: impl Fn(Session) + Clone + Send + 'static,
) -> SocketAddr {
    let config = Arc::new(config);
    server(move |mut client| {
        before(&mut client);
        let tls = ServerConnection::new(Arc::clone(&config)).expect("a server");
        serve(StreamOwned::new(tls, client));
    })
}

/// Hears a line in the clear that begins so; none if that is empty.
pub(crate) fn line(start: &'static [u8]) -> impl Fn(&mut TcpStream) + Clone + Send {
    move |client| {
        let mut heard = Vec::new();
        while !start.is_empty() && !heard.ends_with(b"\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).expect("a byte");
            heard.push(byte[0]);
        }
        assert!(heard.starts_with(start), "{heard:?}");
    }
}

/// Sends back what it hears.
pub(crate) fn echo(mut client: Session) {
    let mut bytes = vec![0; 10_000];
    while let Ok(read @ 1..) = client.read(&mut bytes) {
        let sent = client.write_all(&bytes[..read]);
        if sent.and_then(|()| client.flush()).is_err() {
            return;
        }
    }
}
