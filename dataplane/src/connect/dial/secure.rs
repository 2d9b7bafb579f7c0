//! TLS to an endpoint: the handshake is a part of the attempt to connect.

use std::io;

use ballast_core::handshake::HandshakeResult;
use ballast_core::service::Service;
use tokio::io::AsyncWriteExt;

use super::{AttemptError, Caller, Reach, open_stream};
use crate::net::poller::Stream;
use crate::net::tls::{MaybeTls, Session};

/// The PROXY header that precedes TLS with an endpoint of this service.
pub(super) fn header_before(caller: &Caller<'_>, service: &Service) -> Vec<u8> {
    match service.spec().tls {
        Some(_) => (caller.proxy_header)(service),
        None => Vec::new(),
    }
}

impl Reach {
    /// Connects to the endpoint, and completes the TLS handshake with it if the service asks for TLS.
    pub(super) async fn run(self) -> Result<MaybeTls, AttemptError> {
        let stream = open_stream(&self.worker, &self.service, &self.endpoint, self.until).await?;
        if self.service.spec().tls.is_none() {
            return Ok(stream.into());
        }
        // Boxed, so that connections without TLS do not pay for its size.
        Box::pin(self.secure(stream)).await
    }

    async fn secure(self, mut stream: Stream) -> Result<MaybeTls, AttemptError> {
        let worker = &self.worker;
        let tls = self.plan.tls.service(self.service.state().name());
        let address = self.endpoint.address().ip();
        let session = tls.and_then(|tls| Session::client(tls, address, &worker.tls));
        let (Some(tls), Some(mut session)) = (tls, session.map(Box::new)) else {
            let name = self.service.state().name();
            let why = self
                .plan
                .tls
                .why_not_with(name)
                .unwrap_or("TLS cannot begin");
            return Err(io::Error::other(why.to_owned()).into());
        };
        // A PROXY header is sent in the clear. It is small, and the socket is empty.
        stream.write_all(&self.proxy_header).await?;
        let poller = &worker.tools.poller;
        let shaken = session.handshake(&stream, poller, self.until).await;
        let why = match shaken {
            Ok(()) if tls.accepts(session.alpn()) => {
                let mut stream = MaybeTls::from(stream);
                stream.secure(session);
                return Ok(stream);
            }
            Ok(()) => "it does not speak HTTP/2, which the service's http.version asks for",
            Err(_) if stream.is_cut() => return Err(AttemptError::Cut),
            Err(error) if error.result == HandshakeResult::Timeout => {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            Err(error) => error.why,
        };
        let service = self.service.state().name();
        let now = worker.shared.clock.now();
        tls.log_failure(service, self.endpoint.address(), why, now);
        // To the service it is the same as an endpoint that refuses connections.
        Err(io::Error::new(io::ErrorKind::ConnectionRefused, why).into())
    }
}
