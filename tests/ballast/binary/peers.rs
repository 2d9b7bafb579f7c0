//! Clients and servers of the test's own, on loopback addresses that nobody else uses.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection};
use support::claims::free_port;
pub(crate) use support::claims::fresh_ip;
use support::papers::Papers;

/// Any port on a fresh address.
pub(crate) fn fresh_address() -> SocketAddr {
    SocketAddr::from((fresh_ip(), 17_000))
}

/// A port for the admin side: a second `ballast` with the same one would not start, on whatever address.
pub(crate) fn fresh_admin_port() -> u16 {
    free_port()
}

/// Whether a TLS handshake for `web.test` succeeds on a connection, with a client that trusts the authority of these papers.
pub(crate) fn has_handshake(mut stream: TcpStream, papers: &Papers) -> bool {
    let config = ClientConfig::builder()
        .with_root_certificates(papers.roots())
        .with_no_client_auth();
    let name = "web.test".try_into().unwrap();
    let mut session = ClientConnection::new(config.into(), name).unwrap();
    session.complete_io(&mut stream).is_ok()
}

pub(crate) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(stream)
}

/// Status and body of an answer.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = connect(address)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or(ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((status.ok_or(ErrorKind::InvalidData)?, body.to_owned()))
}

/// Sends a byte, and waits for it to come back.
pub(crate) fn ping(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0])
}

/// A server that sends back what it hears.
pub(crate) fn echo_server() -> SocketAddr {
    server(|mut client| {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(read @ 1..) = client.read(&mut bytes) {
            if client.write_all(&bytes[..read]).is_err() {
                return;
            }
        }
    })
}

/// A server that does this with each connection.
pub(crate) fn server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((fresh_ip(), 17_000)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(client));
        }
    });
    address
}
