//! Orders to a worker.

use std::sync::Arc;

use ballast_core::endpoint::EndpointState;
use ballast_core::plan::{SocketKey, Transport};
use ballast_core::service::ServiceState;
use socket2::Socket;
use tokio::sync::oneshot;

use super::{HandedOver, SessionInfo};
use crate::worker::live::Serving;

/// An order to a worker.
#[derive(Debug)]
pub(crate) enum Order {
    /// Accept or receive from this socket.
    Listen {
        /// Its identity.
        key: Arc<SocketKey>,
        socket: Socket,
        /// Notified when the worker uses the socket, or why it cannot.
        done: oneshot::Sender<std::io::Result<()>>,
    },
    /// Accept the connections in the backlog by `plan`, and close the socket.
    Close {
        /// Its identity.
        key: Arc<SocketKey>,
        /// The last plan that had the socket.
        plan: Arc<Serving>,
        /// Notified when the socket is closed.
        done: oneshot::Sender<()>,
    },
    /// Serve a connection that another worker accepted.
    Serve(HandedOver),
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
    /// Give the existing flows the idle timeouts of the plan in force.
    FollowIdleTimes,
    /// Begin no more flows, and from now on count the active flows among the connections to wait for.
    Finish {
        /// Notified when they have been counted.
        done: oneshot::Sender<()>,
    },
}

/// The order to end an accept loop. Dropping it reports the socket as closed.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) plan: Arc<Serving>,
    pub(crate) done: oneshot::Sender<()>,
}
