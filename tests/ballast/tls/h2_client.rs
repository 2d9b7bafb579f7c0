//! A client of HTTP/2 in TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::spawn_local;

/// A connection that asks for this name.
pub(crate) struct H2Client(SendRequest<Bytes>);

impl H2Client {
    pub(crate) async fn connect(address: SocketAddr, mut config: ClientConfig, name: &str) -> Self {
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let in_tls = InTls {
            socket: TcpStream::connect(address).await.expect("a connection"),
            session: ClientConnection::new(Arc::new(config), name).expect("a session"),
        };
        let (client, connection) = h2::client::handshake(in_tls).await.expect("HTTP/2");
        spawn_local(async move {
            connection.await.ok();
        });
        Self(client)
    }

    /// Status and body of the answer to a request for this URL.
    pub(crate) async fn get(&self, url: &str) -> (u16, String) {
        let mut client = self.0.clone().ready().await.expect("a connection");
        let request = Request::get(url).body(()).expect("a request");
        let (answer, _) = client.send_request(request, true).expect("a stream");
        let (head, mut body) = answer.await.expect("an answer").into_parts();
        let mut whole = Vec::new();
        while let Some(bytes) = body.data().await {
            let bytes = bytes.expect("a body");
            let length = bytes.len();
            body.flow_control().release_capacity(length).expect("room");
            whole.extend_from_slice(&bytes);
        }
        let text = String::from_utf8(whole).expect("text");
        (head.status.as_u16(), text)
    }
}

struct InTls {
    socket: TcpStream,
    session: ClientConnection,
}

impl AsyncRead for InTls {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut this = self;
        loop {
            match this.session.reader().read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            // The session's own messages, such as those of the handshake.
            if let Poll::Ready(Err(error)) = this.as_mut().poll_flush(cx) {
                return Poll::Ready(Err(error));
            }
            ready!(this.socket.poll_read_ready(cx))?;
            let Self { socket, session } = &mut *this;
            match session.read_tls(&mut Raw(socket)) {
                Ok(_) => {
                    session.process_new_packets().map_err(io::Error::other)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for InTls {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut this = self;
        ready!(this.as_mut().poll_flush(cx))?;
        Poll::Ready(this.session.writer().write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { socket, session } = self.get_mut();
        while session.wants_write() {
            ready!(socket.poll_write_ready(cx))?;
            match session.write_tls(&mut Raw(socket)) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut this = self;
        this.session.send_close_notify();
        this.poll_flush(cx)
    }
}

/// The socket, which never blocks.
struct Raw<'a>(&'a TcpStream);

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
