//! Interfaces, routes and addresses of the kernel, by rtnetlink.

use std::future::ready;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use futures_util::{TryStream, TryStreamExt};
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
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use rtnetlink::{
    AddressAddRequest, AddressMessageBuilder, Error, Handle, MulticastGroup, new_connection,
    new_connection_with_strict_check,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::network::{Interface, Network, Route};
use crate::node::{LIFETIME, LOOPBACK, Present};

/// The kernel's tables of the network.
#[derive(Clone)]
pub(super) struct Netlink {
    handle: Handle,
    /// How long an answer to a change is waited for.
    patience: Duration,
}

/// Why the kernel did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error(transparent)]
    Refused(#[from] Error),
    #[error("the kernel did not answer in time")]
    Silent,
}

impl Netlink {
    /// A connection to the kernel, and what arrives when something changes. Of news there may be more than a socket holds, and no
    /// answer is to be lost with them, so they have a socket of their own. Each of the tasks ends only with an error.
    pub(super) fn open(tasks: &mut JoinSet<io::Error>) -> io::Result<(Self, mpsc::Receiver<()>)> {
        // Linux before 4.20 lists all tables in any case.
        let opened = new_connection_with_strict_check().or_else(|_| new_connection());
        let (connection, handle, _) = opened?;
        tasks.spawn(async move {
            connection.await;
            io::Error::other("the connection to the kernel's tables of the network ended")
        });
        let (changed, changes) = mpsc::channel(1);
        tasks.spawn(hear(news()?, changed));
        let netlink = Self {
            handle,
            patience: PATIENCE,
        };
        Ok((netlink, changes))
    }

    /// The answer to a change.
    async fn changed(&self, change: impl Future<Output = Result<(), Error>>) -> Result<(), Failed> {
        let answer = timeout(self.patience, change).await;
        Ok(answer.map_err(|_| Failed::Silent)??)
    }

    /// What `row` makes of the rows of a table, of which there may be very many: those that it leaves out take no memory.
    async fn rows<T, R>(
        &self,
        table: impl TryStream<Ok = T, Error = Error>,
        row: impl Fn(&T) -> Option<R>,
    ) -> Result<Vec<R>, Failed> {
        let rows = table.try_filter_map(|one| ready(Ok(row(&one))));
        let rows = rows.try_collect::<Vec<R>>();
        let answer = timeout(self.patience * LONGER_FOR_TABLES, rows).await;
        Ok(answer.map_err(|_| Failed::Silent)??)
    }

    /// The interfaces and routes, with these of IPv6.
    pub(super) async fn network(&self, v6: Vec<Route>) -> Result<Network, Failed> {
        let links = self.handle.link().get().execute();
        let interfaces = self.rows(links, interface).await?;
        let v4 = self.routes(AddressFamily::Inet).await?;
        Ok(Network::new(interfaces, v4.into_iter().chain(v6).collect()))
    }

    /// The routes of IPv6, of which a host may have nothing at all.
    pub(super) async fn v6_routes(&self) -> Result<Vec<Route>, Failed> {
        self.routes(AddressFamily::Inet6).await
    }

    /// The routes of a family that say where an address belongs.
    async fn routes(&self, family: AddressFamily) -> Result<Vec<Route>, Failed> {
        let mut which = RouteMessage::default();
        which.header.address_family = family;
        which.header.table = RouteHeader::RT_TABLE_MAIN;
        which.header.kind = RouteType::Unicast;
        let table = self.handle.route().get(which).execute();
        none_without_table(self.rows(table, route).await)
    }

    /// The addresses of all interfaces.
    pub(super) async fn addresses(&self) -> Result<Vec<Present>, Failed> {
        let all = self.handle.address().get().execute();
        self.rows(all, present).await
    }

    /// Puts an address on an interface. One that is there already is no error, and stays as it is, also if it has a network around it.
    /// Returns whether it is ours.
    pub(super) async fn add(&self, interface: u32, address: IpAddr) -> Result<bool, Failed> {
        let request = self.request(interface, address);
        let error = match self.changed(request.execute()).await {
            Ok(()) => return Ok(true),
            Err(error) => error,
        };
        if !is(&error, &[libc::EEXIST]) {
            return Err(error);
        }
        let there = self.addresses().await.unwrap_or_default();
        let there = there.iter();
        let it = there.filter(|one| (one.interface, one.address) == (interface, address));
        // Of IPv4 it may be there twice.
        it.map(|one| one.is_ours)
            .reduce(|one, other| one || other)
            .ok_or(error)
    }

    /// Whether the kernel takes in what is for the address. It puts one of IPv6 on the interface, and its route a moment later, when it
    /// has time.
    pub(super) async fn takes_in(&self, interface: u32, address: IpAddr) -> bool {
        let IpAddr::V6(address) = address else {
            return true;
        };
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet6;
        message.header.destination_prefix_length = 128;
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet6(address)),
            RouteAttribute::Oif(interface),
        ];
        let route = self.handle.route().get(message).execute();
        let local = |one: &RouteMessage| (one.header.kind == RouteType::Local).then_some(());
        // Without a route to it the answer is an error.
        self.rows(route, local)
            .await
            .is_ok_and(|rows| !rows.is_empty())
    }

    /// Gives an address of ours its whole lifetime again. Its connections notice nothing.
    pub(super) async fn renew(&self, interface: u32, address: IpAddr) -> Result<(), Failed> {
        let request = self.request(interface, address).replace();
        self.changed(request.execute()).await
    }

    fn request(&self, interface: u32, address: IpAddr) -> AddressAddRequest {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let mut request = self.handle.address().add(interface, address, length);
        let attributes = &mut request.message_mut().attributes;
        let mut flags = AddressFlags::Noprefixroute;
        let mut life = CacheInfo::default();
        let lifetime = if interface == LOOPBACK {
            FOREVER
        } else {
            LIFETIME
        };
        life.ifa_valid = lifetime;
        life.ifa_preferred = lifetime;
        if address.is_ipv6() {
            // We have asked the network ourselves.
            flags |= AddressFlags::Nodad;
            // The host uses the address for no connection of its own.
            life.ifa_preferred = 0;
        }
        attributes.push(AddressAttribute::CacheInfo(life));
        attributes.push(AddressAttribute::Flags(flags));
        attributes.push(AddressAttribute::Protocol(AddressProtocol::Other(OURS)));
        attributes.push(AddressAttribute::RoutePriority(OURS_TOO));
        request
    }

    /// Takes an address from an interface. One that is not there is no error, nor is an interface that is not there.
    pub(super) async fn remove(&self, interface: u32, address: IpAddr) -> Result<(), Failed> {
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
        let request = self.handle.address().del(message);
        match self.changed(request.execute()).await {
            Err(error) if is(&error, &[libc::EADDRNOTAVAIL, libc::ENODEV]) => Ok(()),
            done => done,
        }
    }
}

/// Whether the kernel answered with one of these errors.
fn is(error: &Failed, codes: &[i32]) -> bool {
    matches!(error, Failed::Refused(Error::NetlinkError(error)) if codes.contains(&-error.raw_code()))
}

/// A socket for what the kernel says of changes.
fn news() -> io::Result<TokioSocket> {
    let groups = [
        MulticastGroup::Link,
        MulticastGroup::Ipv4Ifaddr,
        MulticastGroup::Ipv6Ifaddr,
        MulticastGroup::Ipv4Route,
        MulticastGroup::Ipv6Route,
    ];
    let bits = groups.iter().map(|group| 1 << (*group as u32 - 1)).sum();
    let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
    socket.socket_mut().bind(&SocketAddr::new(0, bits))?;
    Ok(socket)
}

/// Says that something changed whenever there is news. Returns why it cannot go on.
async fn hear(socket: TokioSocket, changed: mpsc::Sender<()>) -> io::Error {
    let mut news = Vec::with_capacity(4 << 10);
    loop {
        news.clear();
        match socket.recv(&mut news).await {
            // There was more than the socket holds, so something changed.
            Err(error) if error.raw_os_error() != Some(libc::ENOBUFS) => return error,
            // One is enough: who hears it looks at everything.
            _ => changed.try_send(()).ok(),
        };
    }
}

/// The rows of a table, which the kernel need not have: of IPv6, or the main one before its first route.
fn none_without_table<T>(rows: Result<Vec<T>, Failed>) -> Result<Vec<T>, Failed> {
    rows.or_else(|error| match is(&error, &WITHOUT_TABLE) {
        true => Ok(Vec::new()),
        false => Err(error),
    })
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
    // Most routes of a router lead neither to neighbours nor everywhere.
    if !is_link && header.destination_prefix_length > 0 {
        return None;
    }
    Some(Route {
        interface: interface?,
        to: IpNet::new(to, header.destination_prefix_length).ok()?,
        is_link,
    })
}

/// The address of the message. It is ours if it has a tag of ours, and no network around it.
fn present(message: &AddressMessage) -> Option<Present> {
    let (mut local, mut address, mut is_tagged) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            // Of an interface between two hosts, `Address` is the other one.
            AddressAttribute::Local(it) => local = Some(*it),
            AddressAttribute::Address(it) => address = Some(*it),
            AddressAttribute::Protocol(tag) => is_tagged |= *tag == AddressProtocol::Other(OURS),
            AddressAttribute::RoutePriority(tag) => is_tagged |= *tag == OURS_TOO,
            _ => {}
        }
    }
    let address = local.or(address)?;
    let length = if address.is_ipv4() { 32 } else { 128 };
    Some(Present {
        interface: message.header.index,
        address,
        is_ours: is_tagged && message.header.prefix_len == length,
    })
}

/// The answers of a kernel that has no IPv6, or not that table of routes.
const WITHOUT_TABLE: [i32; 5] = [
    libc::EAFNOSUPPORT,
    libc::EPFNOSUPPORT,
    libc::EOPNOTSUPP,
    libc::ENOENT,
    libc::ESRCH,
];
/// A lifetime without an end.
const FOREVER: u32 = u32::MAX;
/// The tag of our addresses, IFA_PROTO, which kernels keep since 5.18.
const OURS: u8 = 0xba;
/// The same for kernels since 4.18: the metric of the route of a network around the address, of which ours have none.
const OURS_TOO: u32 = 0x0ba1_1a57;
/// The kernel does a change within microseconds, or when it can have a lock.
const PATIENCE: Duration = Duration::from_secs(5);
/// A table may have the routes of the whole Internet.
const LONGER_FOR_TABLES: u32 = 12;

#[cfg(test)]
mod tests {
    use std::num::NonZeroI32;

    use rtnetlink::packet_core::ErrorMessage;

    use super::*;

    #[tokio::test]
    async fn nothing_waits_for_ever_for_a_kernel_that_does_not_answer() {
        // Without its connection nothing is sent, and nothing comes.
        let (_connection, handle, _) = new_connection().unwrap();
        let netlink = Netlink {
            handle,
            patience: Duration::from_millis(10),
        };
        let address = "192.0.2.1".parse().unwrap();
        let is_silent = |failed: Option<Failed>| matches!(failed, Some(Failed::Silent));
        assert!(is_silent(netlink.add(1, address).await.err()));
        assert!(is_silent(netlink.renew(1, address).await.err()));
        assert!(is_silent(netlink.remove(1, address).await.err()));
        assert!(is_silent(netlink.addresses().await.err()));
        assert!(is_silent(netlink.network(Vec::new()).await.err()));
        assert!(is_silent(netlink.v6_routes().await.err()));
    }

    #[test]
    fn a_kernel_without_a_table_has_no_routes_of_it_and_any_other_refusal_is_an_error() {
        let refusal = |code: i32| {
            let mut message = ErrorMessage::default();
            message.code = NonZeroI32::new(-code);
            Failed::Refused(Error::NetlinkError(message))
        };
        for code in WITHOUT_TABLE {
            let rows = none_without_table::<u8>(Err(refusal(code)));
            assert!(rows.is_ok_and(|rows| rows.is_empty()), "{code}");
        }
        for code in [libc::EPERM, libc::ENOBUFS, libc::EBUSY, libc::ENOMEM] {
            assert!(none_without_table::<u8>(Err(refusal(code))).is_err());
        }
        assert!(none_without_table::<u8>(Err(Failed::Silent)).is_err());
        assert_eq!(none_without_table(Ok(vec![1])).ok(), Some(vec![1]));
    }

    #[test]
    fn an_address_is_ours_by_one_of_the_tags_and_of_another_length_it_is_not() {
        let message = |length, tag: Option<u8>, metric: Option<u32>| {
            let mut message = AddressMessageBuilder::<Ipv4Addr>::new()
                .index(2)
                .address(Ipv4Addr::new(192, 0, 2, 1), length)
                .build();
            let tag = tag.map(|tag| AddressAttribute::Protocol(AddressProtocol::Other(tag)));
            let metric = metric.map(AddressAttribute::RoutePriority);
            message.attributes.extend(tag.into_iter().chain(metric));
            message
        };
        for (length, tag, metric, is_ours) in [
            (32, Some(OURS), Some(OURS_TOO), true),
            (32, Some(OURS), None, true),
            (32, None, Some(OURS_TOO), true),
            (32, Some(3), Some(100), false),
            (32, None, None, false),
            (24, None, None, false),
            (24, Some(OURS), Some(OURS_TOO), false),
        ] {
            let expected = Present {
                interface: 2,
                address: Ipv4Addr::new(192, 0, 2, 1).into(),
                is_ours,
            };
            let found = present(&message(length, tag, metric));
            assert_eq!(found, Some(expected), "{length} {tag:?} {metric:?}");
        }
    }

    #[test]
    fn of_a_link_between_two_hosts_the_own_address_counts() {
        let [own, other]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|one| one.parse().unwrap());
        let mut message = AddressMessage::default();
        message.header.prefix_len = 32;
        message.attributes = vec![
            AddressAttribute::Address(other),
            AddressAttribute::Local(own),
        ];
        assert_eq!(present(&message).unwrap().address, own);
    }
}
