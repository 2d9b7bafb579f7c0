//! Orders to a worker.

use std::collections::BTreeSet;
use std::sync::Arc;

use ballast_core::endpoint::EndpointState;
use ballast_core::plan::{SocketKey, Transport};
use ballast_core::service::ServiceState;
use socket2::Socket;
use tokio::sync::oneshot;

use super::{PassedOn, SessionInfo};
use crate::process::handover::MovedFlow;
use crate::worker::live::Serving;

#[derive(Debug)]
pub(crate) enum Order {
    /// Accept or receive from this socket.
    Listen {
        /// Its identity.
        key: Arc<SocketKey>,
        socket: Arc<Socket>,
        /// The flows that the process before had there.
        flows: Vec<MovedFlow>,
        /// Notified when the worker uses the socket, and how many of the flows go on, or why it cannot.
        done: oneshot::Sender<std::io::Result<usize>>,
    },
    /// Read no datagram of these sockets any more, which are known by the kernel's numbers, and give away their flows.
    GiveFlows {
        sockets: Arc<BTreeSet<u64>>,
        done: oneshot::Sender<Vec<MovedFlow>>,
    },
    /// Close one socket.
    Close {
        /// Its identity.
        key: Arc<SocketKey>,
        how: Close,
        /// Notified when the socket is closed.
        done: oneshot::Sender<()>,
    },
    /// Serve a connection that another worker accepted.
    Serve(PassedOn),
    /// Reset the connections of these endpoints, and end their flows.
    Cut(Arc<[Arc<EndpointState>]>),
    /// List connections and flows.
    List {
        /// The most to list.
        most: usize,
        /// Receives the list.
        done: oneshot::Sender<Vec<SessionInfo>>,
    },
    /// End one connection, or one flow.
    End {
        transport: Transport,
        /// Its number in the list.
        number: u64,
        /// Receives whether there is one.
        done: oneshot::Sender<bool>,
    },
    /// Clear the maximum times of these services and endpoints. Only a worker may write its own counters.
    ForgetLongest(Arc<[Arc<ServiceState>]>, Arc<[Arc<EndpointState>]>),
    /// Drop the reference to the plan that was replaced.
    NewPlan,
    /// Give the existing flows the idle timeouts and the PROXY headers of the plan in force.
    ReviseFlows,
    /// Close the idle connections whose clients the plan in force does not let in.
    LookAtClients,
    /// End the idle connections that [`Finish`](Self::Finish) kept.
    EndIdle,
    /// Begin no more flows, and from now on count the active flows among the connections to wait for.
    Finish {
        /// Whether the next process has the sockets. Idle connections then end with their next response, and not at once.
        is_handed_over: bool,
        /// Notified when they have been counted.
        done: oneshot::Sender<()>,
    },
}

/// What becomes of those who wait at a socket that is closed.
#[derive(Debug)]
pub(crate) enum Close {
    /// They are accepted by the last plan that had the socket.
    Last(Arc<Serving>),
    /// The next process has the socket, and accepts them. Replies of existing flows still leave by it.
    HandedOver,
}

/// The order to end an accept loop. Dropping it reports the socket as closed.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) how: Close,
    pub(crate) done: oneshot::Sender<()>,
}
