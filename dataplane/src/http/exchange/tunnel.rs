//! Another protocol, to which both sides of an exchange have switched.

use std::future::poll_fn;
use std::task::{Context, Poll};

use ballast_core::service::Service;

use super::relay::Relay;
use super::{Ended, ExchangeFailure, Failed};
use crate::access::relay_letters;
use crate::connect::EndpointSession;
use crate::http::account::Account;
use crate::http::peer::Peer;
use crate::http::side::{H1, HttpSide};
use crate::net::relay::{RelayTimeouts, Why, relay};
use crate::net::tls::MaybeTls;

impl Relay<'_, '_> {
    /// Sends the client the response that switches, and the bytes that came with it.
    pub(super) async fn begin_tunnel(&mut self) -> Result<(), Failed> {
        if let (HttpSide::H1(server), HttpSide::H1(client)) = (&mut self.server, &mut *self.client)
        {
            let held = server.buffer.held();
            client.pending.extend_from_slice(held);
            self.head_bytes += held.len() as u64;
            server.buffer.clear();
        }
        self.timer.begin(self.timeouts.client);
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    fn poll_flush(&mut self, cx: &Context<'_>) -> Poll<Result<(), Failed>> {
        if let Poll::Ready(flushed) = self.client.poll_flush(cx) {
            return Poll::Ready(flushed.map_err(Failed::by_client));
        }
        let expired = self.timer.poll(self.timeouts.client, cx);
        expired.map(|_| Err(ExchangeFailure::ClientTimedOut.into()))
    }
}

/// Relays the bytes of the other protocol.
pub(super) async fn run(
    client: &mut H1<'_>,
    mut stream: MaybeTls,
    session: &EndpointSession,
    service: &Service,
    peer: &Peer,
    account: &mut Account,
) -> Ended {
    let spec = &service.spec().timeouts;
    let timeouts = RelayTimeouts {
        idle: Some(spec.tunnel),
        half_closed: spec.server_fin,
        abort: spec.server_fin,
    };
    let (worker, frontend) = (&peer.worker, peer.counters());
    let moved = |up, down| {
        account.moved(frontend, up, down);
        session.count_bytes(up, down);
        worker.count_spliced();
    };
    let first = client.buffer.held().to_vec();
    client.buffer.clear();
    let closed = relay(
        client.stream,
        &mut stream,
        first,
        timeouts,
        &worker.tools,
        moved,
    )
    .await;
    let fault = closed.fault(true);
    session.count_fault(fault);
    account.ends(relay_letters(closed.why, fault));
    account.sees(service, session.lease.endpoint());
    let in_order = closed.why == Why::Finished;
    Ended::Tunnel { in_order }
}
