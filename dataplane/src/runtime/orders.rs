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
    let mut listening: HashMap<Arc<SocketKey>, Vec<mpsc::Sender<Closing>>> = HashMap::new();
    while let Some(Some(order)) = stop.run_until_cancelled(inbox.recv()).await {
        match order {
            Order::Listen { key, socket, done } => {
                let started = listen(&worker, &flows, Arc::clone(&key), socket);
                let started = started.map(|close| listening.entry(key).or_default().push(close));
                done.send(started).ok();
            }
            Order::Close { key, how, done } => {
                let mut of_key = listening.remove(&key).unwrap_or_default();
                // If there is no socket, dropping `done` reports it as closed.
                if let Some(close) = of_key.pop() {
                    close.try_send(Closing { how, done }).ok();
                }
                if !of_key.is_empty() {
                    listening.insert(key, of_key);
                }
            }
            Order::Serve(handed) => tcp::serve_handed_over(&worker, handed),
            Order::NewPlan => drop(worker.plan()),
            Order::Cut(endpoints) => {
                worker.tools.poller.cut(&endpoints);
                worker.pool.cut(&endpoints);
                flows.cut(&endpoints);
            }
            Order::FollowIdleTimes => flows.follow_idle_times(),
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

/// Starts accepting or receiving.
fn listen(
    worker: &Rc<Worker>,
    flows: &Flows,
    key: Arc<SocketKey>,
    socket: Arc<Socket>,
) -> io::Result<mpsc::Sender<Closing>> {
    let socket = sys::watched_shared(socket)?;
    let (close, closing) = mpsc::channel(1);
    match key.transport {
        Transport::Tcp => {
            let key = Rc::new(SocketKey::clone(&key));
            let accept = tcp::accept_loop(Rc::clone(worker), key, socket, closing);
            tokio::task::spawn_local(accept);
        }
        Transport::Udp => flows.listen(key, socket, closing)?,
    }
    Ok(close)
}
