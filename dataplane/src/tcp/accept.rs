//! The accept loop of a listening socket. It belongs to the socket, not to a frontend: whose client has come is asked of
//! the plan for each connection.

use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::plan::{Plan, SocketKey};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::Socket;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::arrival::arrive;
use super::permits::Permits;
use crate::fault;
use crate::log::Rarely;
use crate::panics::{At, Vital};
use crate::worker::{Closing, Worker};

/// Accepts until it is told to close.
pub(crate) async fn accept_loop(
    worker: Rc<Worker>,
    key: Arc<SocketKey>,
    listener: AsyncFd<Socket>,
    mut closing: mpsc::Receiver<Closing>,
) {
    let _vital = Vital(At("accepting", Arc::clone(&key)));
    loop {
        let last = tokio::select! {
            biased;
            last = closing.recv() => last,
            () = accept_some(&worker, &key, &listener) => continue,
        };
        let Some(last) = last else {
            return;
        };
        accept_the_last(&worker, &key, &listener, &last.plan).await;
        drop(listener);
        last.done.send(()).ok();
        return;
    }
}

/// Waits for connections and takes in a batch of them, so that other tasks have their turn in between.
async fn accept_some(worker: &Rc<Worker>, key: &Arc<SocketKey>, listener: &AsyncFd<Socket>) {
    let Ok(mut ready) = listener.readable().await else {
        return;
    };
    let mut now = worker.shared.clock.now();
    for _ in 0..BATCH {
        let Some((plan, permits)) = Permits::wait(worker, key, now).await else {
            // No table wants this socket any more: the order to close it is on its way.
            return pending().await;
        };
        now = permits.now;
        match accept(listener) {
            Ok(Some(came)) => arrive(worker, key, plan, came, now, Some(permits)),
            Ok(None) => {
                ready.clear_ready();
                return;
            }
            Err(error) => {
                note(worker, key, &error);
                if fault::is_exhausted(&error) {
                    // Time for what is open to end; and nothing else of this worker waits meanwhile.
                    drop(permits);
                    sleep(EXHAUSTED_PAUSE).await;
                    return;
                }
            }
        }
    }
    tokio::task::yield_now().await;
}

/// What the kernel has accepted already is served by the last plan that knew this socket: what is still there when it is
/// closed gets a reset.
async fn accept_the_last(
    worker: &Rc<Worker>,
    key: &Arc<SocketKey>,
    listener: &AsyncFd<Socket>,
    plan: &Arc<Plan>,
) {
    let (mut pauses, mut misfortunes) = (0, 0);
    while pauses < LAST_PAUSES && misfortunes < MISFORTUNES {
        match accept(listener) {
            Ok(Some(came)) => {
                let now = worker.shared.clock.now();
                arrive(worker, key, Arc::clone(plan), came, now, None);
            }
            Ok(None) => return,
            Err(error) => {
                note(worker, key, &error);
                if fault::is_exhausted(&error) {
                    pauses += 1;
                    sleep(EXHAUSTED_PAUSE).await;
                } else {
                    misfortunes += 1;
                }
            }
        }
    }
}

/// The next connection; `None` if there is none.
fn accept(listener: &AsyncFd<Socket>) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    match acceptfrom_with(
        listener.get_ref(),
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
    ) {
        Ok((socket, peer)) => {
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            // Without an address there is nobody to serve; the kernel never does that for TCP.
            Ok(peer.map(|peer| (TcpStream::from(socket), peer)))
        }
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn note(worker: &Worker, key: &SocketKey, error: &io::Error) {
    worker
        .shared
        .count_accept_error(error.raw_os_error().unwrap_or(0));
    if fault::is_exhausted(error) {
        static SAID: Rarely = Rarely::new();
        if let Some(unsaid) = SAID.say(worker.shared.clock.now()) {
            tracing::warn!(address = %key, %error, unsaid, "cannot accept; waiting for connections to end");
        }
    }
}

/// Connections taken in a row before other tasks have their turn.
const BATCH: usize = 32;
/// How long nothing is accepted when descriptors or memory have run out.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// How often a socket that is to be closed waits for that: the table's change waits with it.
const LAST_PAUSES: u32 = 10;
/// Connections that were gone before they were accepted: no more than a backlog holds.
const MISFORTUNES: u32 = 4_096;
