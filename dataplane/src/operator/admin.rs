//! The admin addresses: the page, the counters in all their forms, health. They are served by a thread of their own, so that
//! no reader costs a client anything.
//!
//! With each table, apply says where they should be; nothing else opens a listening socket that is not for clients.

pub(crate) mod auth;

mod action;
mod announced;
mod answers;
mod client;
mod connections;
mod early;
mod events;
mod gzip;
mod handler;
mod listeners;
mod page;
mod permission;
mod places;
mod query;
mod viewers;

pub(crate) use announced::AnnouncerAck;
pub use early::EarlyAdmin;
pub(crate) use listeners::{CommandLine, Listeners, Purpose, Wanted, admin_addresses};
pub(crate) use viewers::Viewers;

use std::convert::Infallible;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::answers::{Answer, Watched};
use self::connections::Connections;
use self::handler::{Handler, Peer};
use crate::operator::admin::auth::Auth;
use crate::os::panics::vital;
use crate::process::handover::LendRequests;
use crate::process::handover::old::HandedSockets;
use crate::stats::{self, Statistics};

/// Answers at `listeners`, and has them follow `wanted`, until `leaving` is ready; then the addresses are free, and a client
/// that is connected gets no more than the reply that it waits for. Until a table has said who may see the page, `viewers` may.
pub(crate) async fn serve(
    mut listeners: Listeners,
    mut wanted: watch::Receiver<Option<Wanted>>,
    stats: Arc<Statistics>,
    auth: Option<Auth>,
    viewers: Viewers,
    announced: Option<AnnouncerAck>,
    mut lend_requests: LendRequests,
    leaving: impl Future<Output = Option<Arc<HandedSockets>>>,
) {
    let mut leaving = pin!(leaving);
    let shared = &stats.shared;
    tokio::task::spawn_local(vital("counting", stats::watch(Arc::clone(&stats))));
    // Without an address, nothing was logged of who may see the page.
    let mut logged = (!listeners.bound().is_empty()).then(|| viewers.clone());
    let handler = Rc::new(Handler::new(Arc::clone(&stats), auth, viewers, announced));
    let connections = Connections::new(Rc::clone(&handler));
    let handed = loop {
        let now = wanted.borrow_and_update().clone();
        let whole = match &now {
            Some(Wanted { addresses, viewers }) => {
                // First: no address may open to those whom this table does not let see the page.
                handler.show_to(viewers.clone());
                let made_way = listeners.make_way(addresses).await;
                listeners.follow(addresses, &made_way)
            }
            None => true,
        };
        let viewers = now.map(|now| now.viewers);
        if !listeners.bound().is_empty() && viewers.is_some() && viewers != logged {
            viewers.iter().for_each(Viewers::log);
            logged = viewers;
        }
        for (purpose, address, listener) in listeners.fresh() {
            match TcpListener::from_std(listener) {
                Ok(listener) => {
                    let listener = Arc::new(listener);
                    let accepting = Rc::clone(&connections).accept(Arc::clone(&listener), purpose);
                    let accepting = vital(format!("answering at {address}"), accepting);
                    let task = tokio::task::spawn_local(accepting).abort_handle();
                    listeners.accepts((purpose, address), listener, task);
                }
                Err(error) => tracing::error!(%error, "cannot answer at an admin address"),
            }
        }
        shared.status.set_admin(listeners.bound());
        let again = if whole { Duration::MAX } else { RETRY_EVERY };
        tokio::select! {
            changed = timeout(again, wanted.changed()) => if let Ok(Err(_)) = changed {
                // No further table will come.
                break leaving.as_mut().await;
            },
            // A process that has asked and gone needs no answer.
            Some(request) = lend_requests.recv() => drop(request.send(listeners.lend())),
            handed = leaving.as_mut() => break handed,
        }
    };
    drop(lend_requests);
    for (purpose, listener) in listeners.close(handed.as_deref()).await {
        connections.accept_rest(&listener, purpose);
    }
    connections.close();
    shared.status.set_admin(Vec::new());
}

async fn serve_connection(
    stream: TcpStream,
    handler: Rc<Handler>,
    peer: Peer,
    leaving: CancellationToken,
) {
    // Without it, the connection only lasts longer.
    SockRef::from(&stream)
        .set_tcp_user_timeout(Some(WRITE_TIMEOUT))
        .ok();
    let (until, cut) = (Rc::clone(&peer.until), peer.cut.clone());
    let stream = Watched::new(stream, Rc::clone(&peer.answers));
    let answer = service_fn(move |request| {
        let (handler, peer) = (Rc::clone(&handler), peer.clone());
        let answers = Rc::clone(&peer.answers);
        answers.begin();
        async move {
            let reply = handler.answer(request, peer).await;
            Ok::<_, Infallible>(reply.map(|body| Answer::new(body, answers)))
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MOST_BUFFERED)
            .serve_connection(TokioIo::new(stream), answer)
    );
    let mut is_last = false;
    loop {
        let end = until.get();
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%error, "admin connection ended");
                }
                return;
            }
            () = cut.cancelled() => return,
            () = leaving.cancelled(), if !is_last => {
                is_last = true;
                until.set(Instant::now() + LONGEST);
                connection.as_mut().graceful_shutdown();
            },
            // A reply may have made it later meanwhile.
            () = sleep_until(end) => if Instant::now() >= until.get() {
                if is_last {
                    return;
                }
                // The reply that is being sent may be finished.
                is_last = true;
                until.set(Instant::now() + LONGEST);
                connection.as_mut().graceful_shutdown();
            },
        }
    }
}

const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// A client that reads nothing for so long has gone: the kernel then ends the connection.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection lasts.
const LONGEST: Duration = Duration::from_secs(60);
/// Bytes of a reply that are not sent yet, in addition to a piece of a rendering.
const MOST_BUFFERED: usize = 64 * 1024;
const RETRY_EVERY: Duration = Duration::from_secs(5);
