//! A request of HTTP/1 for an endpoint that speaks HTTP/2.

use std::rc::Rc;

use ballast_core::http::Framing;

use super::bridge::{self, Ended, H1, Origin, Prepared, Side};
use super::forwarding::{IdlePolicy, LIMITS};
use super::{Client, Next};
use crate::worker::WorkerPlan;

/// Serves the request.
pub(super) async fn run(client: &mut Client, prepared: Prepared, plan: WorkerPlan) -> Next {
    let (service, facts) = (&prepared.service, &prepared.facts);
    let policy = IdlePolicy::of(client.key(), client.requests == 1, service, facts);
    let port = client.local_port();
    let header = client.connection.proxy_header(service);
    let Client {
        connection,
        buffer,
        timer,
        account,
        ..
    } = client;
    let worker = Rc::clone(&connection.worker);
    let origin = Origin {
        worker: &worker,
        key: connection.key,
        counters: connection.frontend.counters().of(worker.id),
        account,
        slot: connection.slot,
        port,
        policy,
        proxy_header: &|_| header.clone(),
    };
    let pending = worker.buffers.for_writing();
    let socket = &mut connection.socket;
    let body = (prepared.framing, &LIMITS);
    let mut side = Side::H1(H1::new(socket, buffer, body, pending, Framing::Empty));
    // Boxed, so that requests that stay in HTTP/1 have no room for it.
    let ended = Box::pin(bridge::run(origin, &prepared, &mut side, plan, timer)).await;
    let is_read = side.has_ended();
    drop(side);
    let facts = &prepared.facts;
    let next = match ended {
        Ended::Done(done) => {
            let wants_close = !facts.keep_alive && client.buffer.is_empty();
            Next::after_response(done.request_is_complete, done.client_keeps, wants_close)
        }
        Ended::Unserved(unserved) => client.turn_away(unserved, facts, is_read).await,
        Ended::Failed(failed) => client.report(failed.failure, facts, is_read).await,
        Ended::Broken(_) => Next::Reset,
    };
    client.leave_endpoint(&prepared.service);
    next
}
