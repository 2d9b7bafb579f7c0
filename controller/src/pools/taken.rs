//! The Service that has each address: an index, by address, of everything that was given.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::ask::Ask;
use super::range::{AddressRange, AddressSet};
use super::read::Reservation;
use super::refusal::Refusal;
use crate::allocation::NodePort;
use crate::observe::Key;

/// What was given to a Service, as its status has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub addresses: Vec<IpAddr>,
    /// The name of the pool; empty where nobody wrote it down.
    pub pool: String,
    pub ports: BTreeSet<NodePort>,
    pub terms: Terms,
    /// When these addresses were given, in seconds of Unix time.
    pub since: Option<i64>,
}

/// On what conditions others may join a Service at its address.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Terms {
    pub sharing: Option<String>,
    pub strict: Option<String>,
    pub internal: bool,
}

impl Terms {
    pub fn of(ask: &Ask) -> Self {
        Self {
            sharing: ask.sharing.clone(),
            strict: ask.strict.clone(),
            internal: ask.internal,
        }
    }
}

/// A Service that loses an address, because another one that has had it for longer uses a port of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Displaced {
    pub service: Key,
    pub address: IpAddr,
    pub port: NodePort,
    pub owner: Key,
}

#[derive(Clone, Debug, Default)]
pub struct Taken {
    services: BTreeMap<Key, Held>,
    holders: BTreeMap<IpAddr, Holders>,
    /// The addresses of a sharing key.
    shared: BTreeMap<String, BTreeSet<IpAddr>>,
    /// The addresses that an AddressReservation keeps, with the Service for which it does.
    reserved: BTreeMap<IpAddr, Key>,
    /// The same by Service.
    reserved_for: BTreeMap<Key, BTreeSet<IpAddr>>,
    /// The addresses that another system gave, with their Services. None of them is reserved.
    foreign: BTreeMap<IpAddr, Key>,
    /// Ballast's own ports at the wildcard address, with their names.
    own_ports: BTreeMap<NodePort, String>,
    /// The ports at addresses of nodes that Services with node addresses have, with their owners.
    of_nodes: BTreeMap<(IpAddr, NodePort), String>,
    /// Every address that is held or blocked.
    addresses: AddressSet,
    /// What Services had before each change since [`Taken::begin`].
    undone: Option<Vec<(Key, Option<Held>)>>,
}

/// The Services at one address.
#[derive(Clone, Debug)]
enum Holders {
    /// Most have their address alone: then [`Taken::services`] says all.
    One(Key),
    Several(Box<Sharers>),
}

#[derive(Clone, Debug, Default)]
struct Sharers {
    ports: BTreeMap<NodePort, Key>,
    terms: BTreeMap<Terms, BTreeSet<Key>>,
}

impl Holders {
    /// Takes a Service out of several. Returns whether one of the others has its sharing key.
    fn leave(&mut self, service: &Key, held: &Held) -> bool {
        let Self::Several(sharers) = self else {
            return false;
        };
        sharers.remove(service, held);
        let key = held.terms.sharing.as_deref();
        let is_shared = key.is_some_and(|key| sharers.share(key));
        let mut rest = sharers.terms.values().flatten();
        if let (Some(only), None) = (rest.next(), rest.next()) {
            *self = Self::One(only.clone());
        }
        is_shared
    }
}

impl Sharers {
    fn add(&mut self, service: &Key, held: &Held) {
        for port in &held.ports {
            let owner = self.ports.entry(*port);
            owner.or_insert_with(|| service.clone());
        }
        let others = self.terms.entry(held.terms.clone()).or_default();
        others.insert(service.clone());
    }

    fn remove(&mut self, service: &Key, held: &Held) {
        for port in &held.ports {
            if self.ports.get(port) == Some(service) {
                self.ports.remove(port);
            }
        }
        if let Some(others) = self.terms.get_mut(&held.terms) {
            others.remove(service);
            if others.is_empty() {
                self.terms.remove(&held.terms);
            }
        }
    }

    fn share(&self, key: &str) -> bool {
        let mut keys = self.terms.keys().map(|terms| terms.sharing.as_deref());
        keys.any(|one| one == Some(key))
    }
}

impl Taken {
    /// The index of what Services hold. Where two use one port of an address, the one that has had it for longer keeps all that it
    /// has, and the other one holds nothing and is returned.
    pub fn new<'a>(
        own_ports: BTreeMap<NodePort, String>,
        held: impl IntoIterator<Item = (&'a Ask, Held)>,
    ) -> (Self, Vec<Displaced>) {
        let mut taken = Self {
            own_ports,
            ..Self::default()
        };
        let mut held: Vec<_> = held.into_iter().collect();
        held.sort_by(|(ask, held), (other, of_other)| {
            // What was written down counts before what is only published, which anybody may have written.
            let since = |held: &Held| (held.pool.is_empty(), held.since.is_none(), held.since);
            (since(held), ask.age()).cmp(&(since(of_other), other.age()))
        });
        let mut displaced = Vec::new();
        for (ask, held) in held {
            match taken.displaces(&ask.service, &held) {
                Some(one) => displaced.push(one),
                None => taken.take(ask.service.clone(), held),
            }
        }
        (taken, displaced)
    }

    /// Whether another Service has a port of what this one is to have.
    pub fn displaces(&self, service: &Key, held: &Held) -> Option<Displaced> {
        held.addresses.iter().find_map(|address| {
            let mut ports = held.ports.iter();
            let (port, owner) =
                ports.find_map(|port| Some((*port, self.owner(*address, *port)?)))?;
            Some(Displaced {
                service: service.clone(),
                address: *address,
                port,
                owner: owner.clone(),
            })
        })
    }

    /// Leaves of the index what Services hold, and marks the point to which [`Taken::undo`] returns.
    pub fn begin(&mut self) {
        let reserved = std::mem::take(&mut self.reserved).into_keys();
        for address in reserved.chain(std::mem::take(&mut self.foreign).into_keys()) {
            if !self.holders.contains_key(&address) {
                self.addresses.remove(AddressRange::of(address));
            }
        }
        self.reserved_for.clear();
        self.own_ports.clear();
        self.of_nodes.clear();
        self.undone = Some(Vec::new());
    }

    /// Gives Services back what they held at [`Taken::begin`].
    pub fn undo(&mut self) {
        for (service, held) in self.undone.take().into_iter().flatten().rev() {
            match held {
                Some(held) => self.take(service, held),
                None => self.free(&service),
            }
        }
    }

    /// Ballast's own port at the wildcard address, with its name.
    pub fn own(&mut self, port: NodePort, name: String) {
        self.own_ports.insert(port, name);
    }

    /// Whether a pool lists an address at which Services with node addresses have ports.
    pub fn has_ports_of_nodes(&self) -> bool {
        !self.of_nodes.is_empty()
    }

    /// Keeps addresses for Services that may come again. Of two reservations of one address the older one counts.
    pub fn reserve<'r>(&mut self, reservations: impl IntoIterator<Item = &'r Reservation>) {
        let mut order: Vec<&Reservation> = reservations.into_iter().collect();
        order.sort_by_key(|one| (one.created.is_none(), one.created, &one.service));
        for reservation in order {
            for address in &reservation.addresses {
                if !self.is_blocked(*address) {
                    let service = &reservation.service;
                    self.reserved.insert(*address, service.clone());
                    let of_service = self.reserved_for.entry(service.clone()).or_default();
                    of_service.insert(*address);
                    self.addresses.add(AddressRange::of(*address));
                }
            }
        }
    }

    /// An address that another system gave to a Service.
    pub fn of_another_system(&mut self, service: Key, address: IpAddr) {
        let address = address.to_canonical();
        if !self.is_blocked(address) {
            self.foreign.insert(address, service);
            self.addresses.add(AddressRange::of(address));
        }
    }

    /// A port that a Service with node addresses has at the address of a node, which a pool lists.
    pub fn at_node(&mut self, address: IpAddr, port: NodePort, owner: String) {
        self.of_nodes.insert((address, port), owner);
    }

    /// Records what a Service has now, in place of what it had.
    pub fn take(&mut self, service: Key, held: Held) {
        self.free(&service);
        if let Some(undone) = &mut self.undone {
            undone.push((service.clone(), None));
        }
        for address in &held.addresses {
            let holders = self.holders.entry(*address);
            let holders = holders.or_insert_with(|| Holders::One(service.clone()));
            if let Holders::One(first) = holders
                && *first != service
            {
                let mut sharers = Box::<Sharers>::default();
                if let Some(held) = self.services.get(first) {
                    sharers.add(first, held);
                }
                *holders = Holders::Several(sharers);
            }
            if let Holders::Several(sharers) = holders {
                sharers.add(&service, &held);
            }
            if let Some(key) = &held.terms.sharing {
                self.shared.entry(key.clone()).or_default().insert(*address);
            }
            self.addresses.add(AddressRange::of(*address));
        }
        self.services.insert(service, held);
    }

    pub fn free(&mut self, service: &Key) {
        let Some(held) = self.services.remove(service) else {
            return;
        };
        if let Some(undone) = &mut self.undone {
            undone.push((service.clone(), Some(held.clone())));
        }
        for address in &held.addresses {
            let is_shared = match self.holders.get_mut(address) {
                Some(holders @ Holders::Several(_)) => holders.leave(service, &held),
                Some(Holders::One(one)) if one == service => {
                    self.holders.remove(address);
                    false
                }
                // It is listed twice.
                _ => continue,
            };
            if !self.holders.contains_key(address) && !self.is_blocked(*address) {
                self.addresses.remove(AddressRange::of(*address));
            }
            if !is_shared && let Some(key) = &held.terms.sharing {
                let empty = self.shared.get_mut(key).is_some_and(|addresses| {
                    addresses.remove(address);
                    addresses.is_empty()
                });
                if empty {
                    self.shared.remove(key);
                }
            }
        }
    }

    pub fn held(&self, service: &Key) -> Option<&Held> {
        self.services.get(service)
    }

    /// Every Service that holds something.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Held)> {
        self.services.iter()
    }

    /// The addresses that other systems gave, with their Services.
    pub fn of_other_systems(&self) -> impl Iterator<Item = (IpAddr, &Key)> {
        self.foreign
            .iter()
            .map(|(address, owner)| (*address, owner))
    }

    /// Those of them in a range.
    pub(super) fn of_other_systems_in(
        &self,
        range: AddressRange,
    ) -> impl Iterator<Item = (IpAddr, &Key)> {
        let found = self.foreign.range(range.first()..=range.last());
        found.map(|(address, owner)| (*address, owner))
    }

    /// Whether a Service may have an address with all its ports: nobody has it, or all that have it share it with this Service.
    pub fn may_join(&self, address: IpAddr, ask: &Ask) -> Result<(), Refusal> {
        if let Some(owner) = self.reserved.get(&address)
            && *owner != ask.service
        {
            return Err(Refusal::Reserved(address, owner.clone()));
        }
        if let Some(owner) = self.foreign.get(&address) {
            return Err(Refusal::Foreign(address, owner.clone()));
        }
        if let Some((owner, why)) = self.unlike(address, ask) {
            return Err(Refusal::InUse(address, owner.clone(), why));
        }
        match ask
            .ports
            .iter()
            .find_map(|port| self.port_refused(address, *port, ask))
        {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    /// The reason for which a Service does not get a port of an address.
    pub(super) fn port_refused(
        &self,
        address: IpAddr,
        port: NodePort,
        ask: &Ask,
    ) -> Option<Refusal> {
        if let Some(owner) = self.of_nodes.get(&(address, port))
            && *owner != ask.service.to_string()
        {
            return Some(Refusal::AtNode(address, port, owner.clone()));
        }
        let owner = self.owner(address, port)?;
        (*owner != ask.service).then(|| Refusal::PortTaken(address, port, owner.clone()))
    }

    /// The Service that has a port of an address.
    fn owner(&self, address: IpAddr, port: NodePort) -> Option<&Key> {
        match self.holders.get(&address)? {
            Holders::One(owner) => {
                let held = self.services.get(owner)?;
                held.ports.contains(&port).then_some(owner)
            }
            Holders::Several(sharers) => sharers.ports.get(&port),
        }
    }

    /// Another Service at an address beside which this one cannot be, and why.
    fn unlike(&self, address: IpAddr, ask: &Ask) -> Option<(&Key, &'static str)> {
        match self.holders.get(&address)? {
            Holders::One(owner) => {
                let held = self.services.get(owner).filter(|_| *owner != ask.service)?;
                Some((owner, unlike(&held.terms, ask)?))
            }
            Holders::Several(sharers) => sharers.terms.iter().find_map(|(terms, services)| {
                let owner = services.iter().find(|service| **service != ask.service)?;
                Some((owner, unlike(terms, ask)?))
            }),
        }
    }

    /// The reason for which no Service gets a port of any address of a pool.
    pub(super) fn own_port(&self, port: NodePort) -> Option<Refusal> {
        let name = self.own_ports.get(&port)?.clone();
        Some(Refusal::OwnPort(port, name))
    }

    /// The first addresses that Services with a key share, in order.
    pub(super) fn shared_by(&self, key: &str) -> impl Iterator<Item = IpAddr> {
        let addresses = self.shared.get(key).into_iter().flatten();
        addresses.copied().take(MOST_TO_JOIN)
    }

    /// The addresses that are kept for a Service.
    pub(super) fn reserved_for(&self, service: &Key) -> Vec<IpAddr> {
        let reserved = self.reserved_for.get(service).into_iter().flatten();
        reserved.copied().collect()
    }

    pub fn addresses(&self) -> &AddressSet {
        &self.addresses
    }

    /// Whether an address is not given, though no Service of ours holds it.
    fn is_blocked(&self, address: IpAddr) -> bool {
        self.reserved.contains_key(&address) || self.foreign.contains_key(&address)
    }
}

/// Why a Service cannot be at one address with others of these terms, and what to do.
fn unlike(terms: &Terms, ask: &Ask) -> Option<&'static str> {
    match (&terms.sharing, &ask.sharing) {
        _ if terms.internal || ask.internal => {
            Some("internal Services share no address; request another one")
        }
        (Some(key), Some(own)) if key == own => (terms.strict != ask.strict).then_some(
            "Services that share an address with strict externalTrafficPolicy Local need one selector; request another address, or leave strict",
        ),
        (Some(_), Some(_)) => Some("it has another ballast.dev/sharing-key; use that key, or request another address"),
        (None, _) => Some("it has no ballast.dev/sharing-key; give both the same, or request another address"),
        (Some(_), None) => Some("this Service has no ballast.dev/sharing-key; give it that of the other, or request another address"),
    }
}

/// A Service looks at no more addresses of its sharing key for one where its ports are free; then it gets one of its own.
const MOST_TO_JOIN: usize = 64;
