//! Flows that go over to the next process, with their sockets.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use ballast_core::flow::{Adopting, FlowEnd};
use socket2::SockRef;

use super::flow_socket::FlowSocket;
use super::{Udp, UdpListener, service_of};
use crate::process::handover::MovedFlow;
use crate::worker::Worker;

/// Gives away the flows that come by these sockets. Neither the sockets nor the flows are read here any more.
pub(super) fn give(worker: &Worker, udp: &Udp, sockets: &BTreeSet<u64>) -> Vec<MovedFlow> {
    let mut state = udp.state.borrow_mut();
    let super::State {
        flows, listeners, ..
    } = &mut *state;
    let is_given = |listener: &&Rc<UdpListener>| {
        let number = listener.number;
        number.is_some_and(|number| sockets.contains(&number))
    };
    for listener in listeners.values().filter(is_given) {
        listener.is_given.set(true);
    }
    let workers = worker.shared.loads.len();
    let given = flows.give(worker.shared.clock.now(), workers, |listener| {
        listeners.get(&listener).filter(is_given)?.number
    });
    drop(state);
    let watch = udp.watch.as_fd();
    let moved = given.into_iter().map(|(mut flow, socket)| {
        let (socket, header) = socket.give(watch);
        flow.header = header;
        flow.bound = flow.bound.or_else(|| bound(&socket));
        MovedFlow { flow, socket }
    });
    let mut moved: Vec<MovedFlow> = moved.collect();
    udp.settle(worker);
    // Those that arrive before the next process has no descriptor any more.
    moved.sort_by_key(|moved| moved.flow.last_ms);
    moved
}

/// Goes on with flows of the process before. Returns how many. Where there is no room for all, those that were idle for the
/// shortest time go on.
pub(super) fn adopt(
    worker: &Worker,
    udp: &Udp,
    listener: &UdpListener,
    mut moved: Vec<MovedFlow>,
) -> usize {
    if moved.is_empty() {
        return 0;
    }
    let plan = worker.plan();
    let Some(frontend) = plan.frontend(&listener.key) else {
        return 0;
    };
    let adopting = Adopting::by(frontend);
    moved.sort_by_key(|moved| moved.flow.last_ms);
    let now = worker.shared.clock.now();
    let workers = worker.shared.loads.len();
    let flows = &mut udp.state.borrow_mut().flows;
    let mut adopted = Vec::new();
    for MovedFlow { mut flow, socket } in moved {
        let Some(id) = flows.adopt(now, listener.id, workers, &flow, &adopting) else {
            continue;
        };
        let (header, watch) = (flow.header.take(), udp.watch.as_fd());
        let service = flows
            .endpoint(id)
            .and_then(|endpoint| service_of(frontend, endpoint));
        match FlowSocket::adopt(socket, header, flow.endpoint, watch, id) {
            Ok(mut socket) => {
                if let (Some(service), Some(key)) = (service, flows.key(id)) {
                    socket.revise(worker, service, listener.ends(key, None));
                }
                flows.attach(id, socket);
                adopted.push(id);
            }
            Err(_) => flows.end(now, id, FlowEnd::Evicted),
        }
    }
    // The order in which they were idle is that in which they are evicted.
    for id in adopted.iter().rev() {
        flows.queue_last(now, *id);
    }
    adopted.len()
}

/// What a socket is bound to.
fn bound(socket: &OwnedFd) -> Option<SocketAddr> {
    SockRef::from(socket).local_addr().ok()?.as_socket()
}
