//! Carries out the orders that a worker is given.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use ballast_core::plan::{SocketKey, Transport};
use socket2::Socket;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::os::panics::vital;
use crate::os::sys;
use crate::process::handover::MovedFlow;
use crate::tcp;
use crate::udp::{FlowRoom, Flows};
use crate::worker::{Closing, Order, Worker, hand_over_in_time};

/// Takes orders until every sender is gone, or until `stop` asks to cut what is left.
pub(crate) async fn run(
    worker: Rc<Worker>,
    flow_room: FlowRoom,
    mut inbox: mpsc::UnboundedReceiver<Order>,
    stop: CancellationToken,
) {
    let poller = Rc::clone(&worker.tools.poller);
    tokio::task::spawn_local(vital("a worker's poller", poller.run()));
    tokio::task::spawn_local(hand_over_in_time(Rc::clone(&worker)));
    let flows = Flows::new(Rc::clone(&worker), flow_room);
    // A worker may have several sockets of one address, if a process with more workers handed them over.
    let mut listening = Listening::new();
    while let Some(Some(order)) = stop.run_until_cancelled(inbox.recv()).await {
        match order {
            Order::Listen {
                key,
                socket,
                flows: moved,
                done,
            } => {
                let started = listen(&worker, (&flows, moved), Arc::clone(&key), socket);
                let started = started.map(|(close, adopted)| {
                    listening.entry(key).or_default().push(close);
                    adopted
                });
                done.send(started).ok();
            }
            Order::GiveFlows { sockets, done } => drop(done.send(flows.give(&sockets))),
            Order::Close { key, how, done } => {
                close_one(&mut listening, key, Closing { how, done });
            }
            Order::Serve(passed) => tcp::serve_passed_on(&worker, passed),
            Order::NewPlan => drop(worker.plan()),
            Order::Cut(endpoints) => {
                worker.tools.poller.cut(&endpoints);
                worker.pool.cut(&endpoints);
                flows.cut(&endpoints);
            }
            Order::ReviseFlows => flows.revise(),
            Order::LookAtClients => worker.tools.poller.wake_all(),
            Order::Finish {
                is_handed_over,
                done,
            } => {
                worker.is_draining.set(true);
                worker.keeps_idle.set(is_handed_over);
                worker.tools.poller.wake_all();
                flows.finish(done);
            }
            Order::EndIdle => {
                worker.keeps_idle.set(false);
                worker.tools.poller.wake_all();
            }
            Order::List { most, done } => {
                let mut sessions = worker.connections.borrow().list(most);
                sessions.extend(flows.list(most - sessions.len()));
                done.send(sessions).ok();
            }
            Order::End {
                transport,
                number,
                done,
            } => {
                let has_ended = match transport {
                    Transport::Tcp => worker.connections.borrow().end(number),
                    Transport::Udp => flows.end(number),
                };
                done.send(has_ended).ok();
            }
            Order::ForgetLongest(services, endpoints) => {
                services
                    .iter()
                    .for_each(|service| service.forget_longest(worker.id));
                endpoints
                    .iter()
                    .for_each(|endpoint| endpoint.forget_longest(worker.id));
            }
        }
    }
}

/// What closes each socket of an address.
type Listening = HashMap<Arc<SocketKey>, Vec<mpsc::Sender<Closing>>>;

/// Closes one socket of an address.
fn close_one(listening: &mut Listening, key: Arc<SocketKey>, closing: Closing) {
    let mut of_key = listening.remove(&key).unwrap_or_default();
    // If there is no socket, dropping `closing` reports it as closed.
    if let Some(close) = of_key.pop() {
        close.try_send(closing).ok();
    }
    if !of_key.is_empty() {
        listening.insert(key, of_key);
    }
}

/// Starts accepting or receiving. Returns how many of the flows of the process before go on.
fn listen(
    worker: &Rc<Worker>,
    (flows, moved): (&Flows, Vec<MovedFlow>),
    key: Arc<SocketKey>,
    socket: Arc<Socket>,
) -> io::Result<(mpsc::Sender<Closing>, usize)> {
    let socket = sys::watched_shared(socket)?;
    let (close, closing) = mpsc::channel(1);
    let mut adopted = 0;
    match key.transport {
        Transport::Tcp => {
            let key = Rc::new(SocketKey::clone(&key));
            let accept = tcp::accept_loop(Rc::clone(worker), key, socket, closing);
            tokio::task::spawn_local(accept);
        }
        Transport::Udp => adopted = flows.listen(key, socket, moved, closing)?,
    }
    Ok((close, adopted))
}
