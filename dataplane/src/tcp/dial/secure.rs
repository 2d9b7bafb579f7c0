//! TLS to an endpoint: the handshake is a part of the attempt to connect.

use std::io;
use std::sync::Arc;

use ballast_core::endpoint::EndpointState;
use ballast_core::handshake::HandshakeResult;
use ballast_core::moment::Moment;
use ballast_core::service::Service;
use tokio::io::AsyncWriteExt;

use super::{AttemptError, Caller, connect};
use crate::poller::Stream;
use crate::tls::{MaybeTls, Session};
use crate::worker::WorkerPlan;

/// Connects to an endpoint, and completes the TLS handshake with it if the service asks for TLS.
pub(super) async fn reach(
    caller: &Caller<'_>,
    service: &Service,
    plan: &WorkerPlan,
    endpoint: &Arc<EndpointState>,
    until: Moment,
) -> Result<MaybeTls, AttemptError> {
    let stream = connect(caller.worker, service, endpoint, until).await?;
    if service.spec().tls.is_none() {
        return Ok(stream.into());
    }
    // Boxed, so that connections without TLS do not pay for its size.
    Box::pin(secure(caller, service, plan, endpoint, stream, until)).await
}

async fn secure(
    caller: &Caller<'_>,
    service: &Service,
    plan: &WorkerPlan,
    endpoint: &EndpointState,
    mut stream: Stream,
    until: Moment,
) -> Result<MaybeTls, AttemptError> {
    let worker = caller.worker;
    let tls = plan.tls.service(service.state().name());
    let address = endpoint.address().ip();
    let session = tls.and_then(|tls| Session::client(tls, address, &worker.tls));
    let (Some(tls), Some(mut session)) = (tls, session.map(Box::new)) else {
        return Err(io::Error::other("what TLS to this service needs is missing").into());
    };
    // A PROXY header is sent in the clear. It is small, and the socket is empty.
    stream.write_all(&(caller.preface)(service)).await?;
    let poller = &worker.tools.poller;
    let shaken = session.handshake(&stream, poller, until).await;
    let why = match shaken {
        Ok(()) if tls.accepts(session.alpn()) => {
            let mut stream = MaybeTls::from(stream);
            stream.secure(session);
            return Ok(stream);
        }
        Ok(()) => "it does not speak h2",
        Err(_) if stream.is_cut() => return Err(AttemptError::Cut),
        Err(error) if error.result == HandshakeResult::Timeout => {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        Err(error) => error.why,
    };
    tracing::debug!(endpoint = %endpoint.address(), why, "no TLS");
    // To the service it is the same as an endpoint that refuses connections.
    Err(io::Error::new(io::ErrorKind::ConnectionRefused, why).into())
}
