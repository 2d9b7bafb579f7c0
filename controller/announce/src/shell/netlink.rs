//! Interfaces, routes and addresses of the kernel, by rtnetlink.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::{StreamExt, TryStreamExt};
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, CacheInfo,
};
use rtnetlink::packet_route::link::{
    InfoPortKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteScope, RouteType,
};
use rtnetlink::{
    AddressMessageBuilder, Error, Handle, MulticastGroup, RouteMessageBuilder,
    new_multicast_connection,
};
use tokio::sync::mpsc;

use crate::network::{Interface, Network, Route};
use crate::node::Present;

/// The kernel's tables of the network.
#[derive(Clone)]
pub(super) struct Netlink(Handle);

impl Netlink {
    /// A connection to the kernel, and what arrives when something changes.
    pub(super) fn open() -> std::io::Result<(Self, mpsc::Receiver<()>)> {
        let (connection, handle, mut messages) = new_multicast_connection(&[
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ])?;
        tokio::spawn(connection);
        let (changed, changes) = mpsc::channel(1);
        tokio::spawn(async move {
            while messages.next().await.is_some() {
                // One is enough: who hears it looks at everything.
                changed.try_send(()).ok();
            }
        });
        Ok((Self(handle), changes))
    }

    /// The interfaces and routes.
    pub(super) async fn network(&self) -> Result<Network, Error> {
        let links: Vec<LinkMessage> = self.0.link().get().execute().try_collect().await?;
        let v4 = RouteMessageBuilder::<Ipv4Addr>::new().build();
        let v6 = RouteMessageBuilder::<Ipv6Addr>::new().build();
        let mut routes: Vec<RouteMessage> = self.0.route().get(v4).execute().try_collect().await?;
        // A host may have no IPv6 at all.
        let more: Result<Vec<RouteMessage>, Error> =
            self.0.route().get(v6).execute().try_collect().await;
        routes.extend(more.unwrap_or_default());
        let interfaces = links.iter().filter_map(interface).collect();
        let routes = routes.iter().filter_map(route).collect();
        Ok(Network::new(interfaces, routes))
    }

    /// The addresses that look as if a process of ours had put them on interfaces. Those with the tag are ours; kernels before 5.18
    /// have no tags.
    pub(super) async fn addresses(&self) -> Result<Vec<Present>, Error> {
        let all: Vec<AddressMessage> = self.0.address().get().execute().try_collect().await?;
        Ok(all.iter().filter_map(present).collect())
    }

    /// Whether the address itself, without a network around it, is on the interface.
    async fn has(&self, interface: u32, address: IpAddr) -> Result<bool, Error> {
        let all: Vec<AddressMessage> = self.0.address().get().execute().try_collect().await?;
        let is_it = |one: &AddressMessage| {
            one.header.index == interface && single(one).is_some_and(|single| single == address)
        };
        Ok(all.iter().any(is_it))
    }

    /// Puts an address on an interface. One that is there already is no error.
    pub(super) async fn add(&self, interface: u32, address: IpAddr) -> Result<(), Error> {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let mut request = self.0.address().add(interface, address, length);
        let attributes = &mut request.message_mut().attributes;
        let mut flags = AddressFlags::Noprefixroute;
        if address.is_ipv6() {
            // We have asked the network ourselves.
            flags |= AddressFlags::Nodad;
            // A preferred lifetime of 0: the host uses the address for no connection of its own.
            let mut life = CacheInfo::default();
            life.ifa_preferred = 0;
            life.ifa_valid = u32::MAX;
            attributes.push(AddressAttribute::CacheInfo(life));
        }
        attributes.push(AddressAttribute::Flags(flags));
        attributes.push(AddressAttribute::Protocol(AddressProtocol::Other(OURS)));
        match request.execute().await {
            Err(error) if is(&error, &[libc::EEXIST]) => match self.has(interface, address).await {
                Ok(true) => Ok(()),
                _ => Err(error),
            },
            done => done,
        }
    }

    /// Takes an address from an interface. One that is not there is no error, nor is an interface that is not there.
    pub(super) async fn remove(&self, interface: u32, address: IpAddr) -> Result<(), Error> {
        let message = match address {
            IpAddr::V4(address) => AddressMessageBuilder::<Ipv4Addr>::new()
                .index(interface)
                .address(address, 32)
                .build(),
            IpAddr::V6(address) => AddressMessageBuilder::<Ipv6Addr>::new()
                .index(interface)
                .address(address, 128)
                .build(),
        };
        match self.0.address().del(message).execute().await {
            Err(error) if is(&error, &[libc::EADDRNOTAVAIL, libc::ENODEV]) => Ok(()),
            done => done,
        }
    }
}

/// Whether the kernel answered with one of these errors.
fn is(error: &Error, codes: &[i32]) -> bool {
    matches!(error, Error::NetlinkError(error) if codes.contains(&-error.raw_code()))
}

fn interface(link: &LinkMessage) -> Option<Interface> {
    // Without a carrier nobody hears what it says.
    let is_up = link
        .header
        .flags
        .contains(LinkFlags::Up | LinkFlags::LowerUp);
    let asks = !link.header.flags.contains(LinkFlags::Noarp);
    if !is_up || !asks || link.header.link_layer_type != LinkLayerType::Ether {
        return None;
    }
    let (mut name, mut mac) = (None, None);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(it) => name = Some(it.clone()),
            LinkAttribute::Address(it) => mac = it.as_slice().try_into().ok(),
            // A part of a bond or of a bridge carries no address of its own.
            LinkAttribute::LinkInfo(infos)
                if infos.iter().any(|info| {
                    let part = [InfoPortKind::Bond, InfoPortKind::Bridge];
                    matches!(info, LinkInfo::PortKind(kind) if part.contains(kind))
                }) =>
            {
                return None;
            }
            _ => {}
        }
    }
    Some(Interface {
        index: link.header.index,
        name: name?,
        mac: mac?,
    })
}

fn route(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    if header.table != RouteHeader::RT_TABLE_MAIN || header.kind != RouteType::Unicast {
        return None;
    }
    let any: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let (mut to, mut interface, mut has_gateway) = (any, None, false);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(it)) => to = (*it).into(),
            RouteAttribute::Destination(RouteAddress::Inet6(it)) => to = (*it).into(),
            RouteAttribute::Oif(it) => interface = Some(*it),
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => has_gateway = true,
            RouteAttribute::MultiPath(hops) => {
                has_gateway = true;
                interface = hops.first().map(|hop| hop.interface_index);
            }
            _ => {}
        }
    }
    // IPv6 has no scopes: a route without a gateway is one to neighbours.
    let is_link = match header.address_family {
        AddressFamily::Inet => header.scope == RouteScope::Link,
        _ => !has_gateway,
    };
    Some(Route {
        interface: interface?,
        to: IpNet::new(to, header.destination_prefix_length).ok()?,
        is_link,
    })
}

/// The address of the message, if it is one without a network around it.
fn single(message: &AddressMessage) -> Option<IpAddr> {
    let mut attributes = message.attributes.iter();
    let address = attributes.find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    })?;
    let length = if address.is_ipv4() { 32 } else { 128 };
    (message.header.prefix_len == length).then_some(address)
}

fn present(message: &AddressMessage) -> Option<Present> {
    let address = single(message)?;
    let has = |is_it: &dyn Fn(&AddressAttribute) -> bool| message.attributes.iter().any(is_it);
    let is_ours = has(&|it| *it == AddressAttribute::Protocol(AddressProtocol::Other(OURS)));
    let is_alike = has(
        &|it| matches!(it, AddressAttribute::Flags(flags) if flags.contains(AddressFlags::Noprefixroute)),
    );
    (is_ours || is_alike).then_some(Present {
        interface: message.header.index,
        address,
        is_ours,
    })
}

/// The tag of our addresses (IFA_PROTO, Linux 5.18 and later).
const OURS: u8 = 0xba;
