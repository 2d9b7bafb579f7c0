//! What comes out of a node, and what goes in.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::ack::Status;
use crate::sealed::{Boot, Dropped};

/// An action that the shell carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a datagram to a member.
    Send(SocketAddr, Vec<u8>),
    /// Find out at which address a member that sends from there reaches this node, and call [`super::Node::found_at`].
    Locate(SocketAddr),
    /// Ask for an address at once, whatever else is to be done. If that fails, [`super::Node::not_asked`] is to be called.
    Probe {
        /// The number of the interface.
        interface: u32,
        /// The address.
        address: IpAddr,
        /// The whole frame.
        bytes: Vec<u8>,
    },
    /// Send a frame.
    Frame {
        /// The number of the interface.
        interface: u32,
        /// The whole frame.
        bytes: Vec<u8>,
    },
    /// Put an address on an interface.
    Add {
        /// The number of the interface.
        interface: u32,
        /// The address.
        address: IpAddr,
    },
    /// Give an address on an interface its whole lifetime again.
    Renew {
        /// The number of the interface.
        interface: u32,
        /// The address.
        address: IpAddr,
    },
    /// Take an address from an interface.
    Remove {
        /// The number of the interface.
        interface: u32,
        /// The address.
        address: IpAddr,
        /// What becomes of its connections.
        connections: Connections,
    },
    /// Tell people.
    Tell(Event),
}

/// What becomes of the connections of an address that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// They stay: the address may come back.
    Stay,
    /// They end, and the address is removed when they have, so that clients hear of it.
    EndFirst,
    /// They end, and the address does not wait for that.
    End,
}

/// The state of the data plane of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPlane {
    /// The data plane does not run, or hangs.
    Gone,
    /// The data plane runs, and its /readyz says that it is not ready: it ends soon, or has just begun.
    Unready,
    /// The data plane serves.
    Ready,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A member is alive.
    MemberUp(String),
    /// A member is dead, or left.
    MemberDown(String),
    /// Others declared this node dead while it lived.
    DeclaredDead,
    /// Two members have the name of this one.
    SameName(SocketAddr),
    /// Datagrams of a peer of the file cannot be opened.
    OtherKey(SocketAddr),
    /// There are more addresses, of which some cannot be held, than a state can speak of: this node holds none.
    TooManyUnable(usize),
    /// An address was on an interface that is not to have it, and is removed.
    Left(IpAddr),
    /// An address that this node held was taken from the interface by something else.
    Lost(IpAddr),
    /// An address changed its state on this node.
    Address(Status),
}

/// The identity of this node at its start, and its random values.
pub struct Start {
    /// Where datagrams of the others reach it. The unspecified address: that is open.
    pub at: SocketAddr,
    /// A number that is higher at each start, if the clock has it so.
    pub generation: u64,
    /// A random id, never used before.
    pub boot: Boot,
    /// Of this number depends whom this node probes when.
    pub seed: u64,
}

/// Counters for the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that were dropped, by reason.
    pub dropped: BTreeMap<Dropped, u64>,
    /// Hosts that are no members and said that they have one of our addresses.
    pub conflicts: u64,
    /// Addresses that this node took and gave up, by reason.
    pub moves: BTreeMap<&'static str, u64>,
}
