//! TLS that ends at the frontend: the handshake with the client.

use ballast_core::handshake::HandshakeResult;
use ballast_core::hello::ClientHello;
use ballast_core::plan::Frontend;

use super::Entrance;
use super::preamble::HeaderError;
use super::reject::RejectReason;
use crate::net::tls::{HandshakeError, HelloError, Session, read_hello};
use crate::worker::Connection;

impl Connection {
    /// Reads the client's ClientHello. `bytes` were received already; afterwards they are all that was received.
    pub(crate) async fn read_hello(
        &mut self,
        frontend: &Frontend,
        bytes: &mut Vec<u8>,
    ) -> Result<ClientHello, RejectReason> {
        let now = self.worker.shared.clock.now();
        let until = now.after(frontend.preamble_timeout());
        let poller = &self.worker.tools.poller;
        let hello = read_hello(self.socket.stream(), poller, bytes, until).await;
        let hello = hello.map_err(|error| match error {
            HelloError::PortProbe => RejectReason::Header(HeaderError::PortProbe),
            HelloError::Handshake(error) => RejectReason::Handshake(error),
        })?;
        if let Some(name) = &hello.sni {
            // Endpoints learn this name, not one that another proxy reported: the client asked for it here.
            let info = self.proxy_info.get_or_insert_default();
            info.authority = Some(name.clone());
            info.is_asked_here = true;
        }
        Ok(hello)
    }

    /// Completes the handshake with the client, whose first bytes these are. Without a configuration it is refused: something
    /// that the frontend needs is missing.
    pub(super) async fn accept_tls(
        &mut self,
        at: &mut Entrance,
        bytes: Vec<u8>,
    ) -> Result<(), RejectReason> {
        let tls = at.plan.tls.frontend(at.frontend.name());
        let session = tls.and_then(|tls| Session::server(tls, bytes, &self.worker.tls));
        let Some(mut session) = session.map(Box::new) else {
            let missing = HandshakeError::of(HandshakeResult::Other, "no certificate can be used");
            return Err(RejectReason::Handshake(missing));
        };
        let now = self.worker.shared.clock.now();
        let until = now.after(at.frontend.preamble_timeout());
        let poller = &self.worker.tools.poller;
        let shaken = session.handshake(self.socket.stream(), poller, until).await;
        shaken.map_err(RejectReason::Handshake)?;
        at.follow(self)?;
        at.keeps_client_auth(&session)?;
        let result = if session.is_resumed() {
            HandshakeResult::Resumed
        } else {
            HandshakeResult::Complete
        };
        self.counters().handshakes[result.index()].add(1);
        self.socket.secure(session);
        Ok(())
    }
}

impl Entrance {
    /// Refuses a client that has shown its certificate, or none, by rules that a table has replaced during the handshake.
    fn keeps_client_auth(&self, session: &Session) -> Result<(), RejectReason> {
        let tls = self.plan.tls.frontend(self.frontend.name());
        let is_same = tls.is_some_and(|tls| tls.policy() == session.policy());
        if self.frontend.client_auth().is_none() || is_same {
            return Ok(());
        }
        Err(RejectReason::Handshake(HandshakeError::of(
            HandshakeResult::Other,
            "what the frontend asks of clients' certificates changed during the handshake",
        )))
    }
}
