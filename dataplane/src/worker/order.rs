//! What a worker is told to do.

use std::sync::Arc;

use ballast_core::endpoint::EndpointState;
use ballast_core::plan::{Plan, SocketKey};
use ballast_core::service::ServiceState;
use socket2::Socket;
use tokio::sync::oneshot;

use super::Seen;
use crate::tcp::HandedOver;

/// An order to a worker.
#[derive(Debug)]
pub(crate) enum Order {
    /// Accept from this socket.
    Listen {
        /// Its identity.
        key: Arc<SocketKey>,
        /// The socket.
        socket: Socket,
        /// Told when it accepts, or why it does not.
        done: oneshot::Sender<std::io::Result<()>>,
    },
    /// Accept what is in the queue already, by `plan`, and close.
    Close {
        /// Its identity.
        key: Arc<SocketKey>,
        /// The last plan that had it.
        plan: Arc<Plan>,
        /// Told when it is closed.
        done: oneshot::Sender<()>,
    },
    /// Serve what another worker accepted.
    Serve(HandedOver),
    /// Reset the connections that these endpoints have, and end their flows.
    Cut(Arc<[Arc<EndpointState>]>),
    /// Say which connections and flows there are.
    List {
        /// So many at most.
        most: usize,
        /// Told them.
        done: oneshot::Sender<Vec<Seen>>,
    },
    /// Forget the longest times of these services and endpoints: only their worker may write what it counts.
    ForgetLongest(Arc<[Arc<ServiceState>]>, Arc<[Arc<EndpointState>]>),
    /// Let go of the plan that was replaced.
    NewPlan,
    /// Give the flows that are there the idle times of the plan in force.
    FollowIdleTimes,
    /// Begin no more flows, and from now on count the active ones among the connections to wait for.
    Finish {
        /// Told when they are counted.
        done: oneshot::Sender<()>,
    },
}

/// The end of an accept loop. Dropping it says that the socket is closed.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) plan: Arc<Plan>,
    pub(crate) done: oneshot::Sender<()>,
}
