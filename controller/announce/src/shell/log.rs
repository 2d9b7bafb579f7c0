//! The lines of the log about members and addresses.

use crate::ack::{State, Status};
use crate::node::Event;

pub(super) fn tell(event: &Event) {
    match event {
        Event::MemberUp(name) => tracing::info!(member = name, "a member is alive"),
        Event::MemberDown(name) => tracing::warn!(member = name, "a member is dead, or left"),
        Event::DeclaredDead => tracing::warn!(
            "others declared this node dead while it lived; see that the network between the members works, and that this process gets its share of the processor"
        ),
        Event::SameName(at) => {
            tracing::error!(%at, "another member has the name of this node; give each node another name");
        }
        Event::OtherKey(at) => tracing::warn!(
            %at,
            "the datagrams of a peer cannot be opened: its key differs; give both hosts the same key-file. If it has the same, another host sends under its address"
        ),
        Event::TooManyUnable(count) => tracing::error!(
            count,
            "more addresses cannot be held here than the members can be told; this node holds none. See why they are not ready"
        ),
        Event::Left(address) => {
            tracing::warn!(%address, "an address was on an interface, and this node is not to hold it; it is removed");
        }
        Event::Lost(address) => {
            tracing::warn!(%address, "an address is gone from its interface, and this node takes it again: something else took it, see what manages the addresses of this host; or this process did not run for a minute");
        }
        Event::Address(status) => tell_address(status),
    }
}

fn tell_address(status: &Status) {
    let (address, owner, detail) = (status.address, status.owner.as_deref(), &status.detail);
    match status.state {
        State::Held if detail.is_empty() => tracing::info!(%address, "this node holds an address"),
        State::Held => tracing::warn!(%address, "this node holds an address, but {detail}"),
        State::NotOurs if detail.is_empty() => {
            tracing::info!(%address, owner, "this node does not hold an address");
        }
        State::NotOurs => {
            tracing::warn!(%address, "this node cannot take an address yet: {detail}");
        }
        State::NotReady => tracing::info!(%address, "this node cannot serve an address: {detail}"),
        State::Conflict | State::NoInterface => {
            tracing::error!(%address, "this node cannot hold an address: {detail}");
        }
    }
}
