//! Gives addresses and ports to Services. What a Service has stays, whatever becomes of the pool and of other Services; it ends
//! where the Service itself asks for something that excludes it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::ask::{Ask, Families};
use super::refusal::{Refusal, Spent};
use super::set::{Entry, Pools};
use super::taken::{Held, Taken, Terms};
use crate::allocation::NodePort;
use crate::observe::{Family, Key};

/// What a Service has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// In the order of the Service's families.
    pub addresses: Vec<IpAddr>,
    /// The name of the pool.
    pub pool: String,
    pub ports: BTreeSet<NodePort>,
    /// What the Service asks for and does not get beside this.
    pub refused: Vec<Refusal>,
}

/// Gives to all Services: first those that have something already, then those that wait, requested addresses before free choice, the
/// oldest first. `taken` is then what all have, and `now` is written down for addresses that were given now.
pub fn give_all<'a>(
    pools: &Pools,
    taken: &mut Taken,
    asks: impl IntoIterator<Item = &'a Ask>,
    now: i64,
) -> BTreeMap<Key, Result<Given, Refusal>> {
    let mut order: Vec<&Ask> = asks.into_iter().collect();
    order.sort_by(|one, other| one.age().cmp(&other.age()));
    // What Services give up is there for all others.
    for ask in &order {
        let Some(held) = taken.held(&ask.service) else {
            continue;
        };
        match remaining(pools, held, ask) {
            Some(remaining) if remaining == *held => {}
            Some(remaining) => taken.take(ask.service.clone(), remaining),
            None => taken.free(&ask.service),
        }
    }
    order.sort_by_cached_key(|ask| match taken.held(&ask.service) {
        Some(_) => 0,
        None if !ask.requested.is_empty() => 1,
        None if !taken.reserved_for(&ask.service).is_empty() => 1,
        None => 2,
    });
    let mut answers = BTreeMap::new();
    for ask in order {
        let answer = give(pools, taken, ask);
        if let Ok(given) = &answer {
            record(taken, ask, given, now);
        }
        answers.insert(ask.service.clone(), answer);
    }
    answers
}

/// What one Service has, or is given now. [`Taken::take`] records it.
pub fn give(pools: &Pools, taken: &Taken, ask: &Ask) -> Result<Given, Refusal> {
    let held = taken.held(&ask.service);
    if let Some(remaining) = held.and_then(|held| remaining(pools, held, ask)) {
        return Ok(extended(pools, taken, ask, remaining));
    }
    if let Some(refusal) = ask.ports.iter().find_map(|port| taken.own_port(*port)) {
        return Err(refusal);
    }
    if !ask.requested.is_empty() {
        return requested(pools, taken, ask, &ask.requested);
    }
    let reserved = taken.reserved_for(&ask.service);
    let reserved = reserved
        .into_iter()
        .filter(|one| ask.families.wants(Family::of(*one)));
    // At most one of each family.
    let reserved: BTreeMap<Family, IpAddr> = reserved.map(|one| (Family::of(one), one)).collect();
    let reserved: Vec<IpAddr> = reserved.into_values().collect();
    if reserved.is_empty() {
        return choose(pools, taken, ask);
    }
    requested(pools, taken, ask, &reserved).or_else(|refusal| {
        let mut given = choose(pools, taken, ask)?;
        given.refused.push(refusal);
        Ok(given)
    })
}

/// What a Service has, if that is all that it asks for. Then it is given the same, whatever others have, while nobody else uses a port
/// of it.
pub fn settled(pools: &Pools, held: &Held, ask: &Ask) -> Option<Given> {
    let kept = remaining(pools, held, ask).filter(|kept| kept == held)?;
    let mut requested = ask.requested.iter();
    let has_all = !ask.ports.is_empty()
        && kept.ports == ask.ports
        && requested.all(|address| kept.addresses.contains(address))
        && ask.families.missing(&kept.addresses).0.is_empty();
    let mut addresses = kept.addresses;
    ask.families.sort(&mut addresses);
    has_all.then_some(Given {
        addresses,
        pool: kept.pool,
        ports: kept.ports,
        refused: Vec::new(),
    })
}

/// What a Service keeps of what it has; `None`: it asks for something that excludes that, or nobody knows of which pool it is.
pub(super) fn remaining(pools: &Pools, held: &Held, ask: &Ask) -> Option<Held> {
    let mut remaining = held.clone();
    if let Some(entry) = heir(pools, held, ask) {
        remaining.pool = entry.pool.name.clone();
    } else if held.pool.is_empty() {
        // Addresses that another build or implementation gave are those of the pool that lists them.
        let mut listed = held.addresses.iter().filter_map(|one| pools.of(*one));
        let entry = listed.next()?;
        remaining.pool = entry.pool.name.clone();
        let is_listed = |one: &IpAddr| pools.of(*one).is_some_and(|of| std::ptr::eq(of, entry));
        remaining.addresses.retain(is_listed);
    }
    let is_excluded = |address: &IpAddr| {
        let mut requested = ask.requested.iter();
        requested.any(|other| other != address && Family::of(*other) == Family::of(*address))
    };
    let is_wanted = |address: &IpAddr| ask.families.wants(Family::of(*address));
    remaining.addresses.retain(is_wanted);
    remaining.ports.retain(|port| ask.ports.contains(port));
    remaining.terms = Terms::of(ask);
    let stays = held.terms.internal == ask.internal
        && (ask.pools.is_empty() || ask.pools.contains(&remaining.pool))
        && !remaining.addresses.is_empty()
        && !remaining.addresses.iter().any(is_excluded);
    stays.then_some(remaining)
}

/// The pool that lists all addresses which another pool gave, and lists no more: that one was renamed, or its range was moved. A Service
/// that names the other pool stays with that.
fn heir<'a>(pools: &'a Pools, held: &Held, ask: &Ask) -> Option<&'a Entry> {
    let entry = pools.of(*held.addresses.first()?)?;
    let mut rest = held.addresses.iter();
    let lists_all = rest.all(|one| pools.of(*one).is_some_and(|of| std::ptr::eq(of, entry)));
    let may_be = ask.pools.is_empty() || ask.pools.contains(&entry.pool.name);
    let is_other = !held.pool.is_empty() && entry.pool.name != held.pool;
    (lists_all && is_other && may_be).then_some(entry)
}

/// What a Service keeps, and what it has come to ask for beside it: ports, and an address of its second family from the same pool.
fn extended(pools: &Pools, taken: &Taken, ask: &Ask, held: Held) -> Given {
    let (mut addresses, pool) = (held.addresses, held.pool);
    let mut refused = Vec::new();
    for address in &ask.requested {
        match allowed(pools, taken, ask, *address) {
            _ if addresses.contains(address) => {}
            Ok(entry) if entry.pool.name == pool => addresses.push(*address),
            Ok(_) => refused.push(Refusal::TwoPools([&*addresses, &[*address]].concat())),
            Err(refusal) => refused.push(refusal),
        }
    }
    // Of two pools with the name, the one that has the first address.
    let first = addresses.first().and_then(|first| pools.of(*first));
    let entry = first.filter(|entry| entry.pool.name == pool);
    let entry = entry.or_else(|| pools.named(&pool).next());
    if refused.is_empty()
        && let Some(family) = add_missing(entry, taken, ask, &mut addresses)
    {
        refused.push(Refusal::NoSecondFamily(family, pool.clone()));
    }
    let mut ports = ask.ports.clone();
    ports.retain(|port| {
        let own = taken.own_port(*port).filter(|_| !held.ports.contains(port));
        let mut at = addresses.iter();
        let refusal = own.or_else(|| at.find_map(|one| taken.port_refused(*one, *port, ask)));
        let is_given = refusal.is_none();
        refused.extend(refusal);
        is_given
    });
    ask.families.sort(&mut addresses);
    Given {
        addresses,
        pool,
        ports,
        refused,
    }
}

/// These addresses, and one of the family that is not among them where the Service asks for both.
fn requested(pools: &Pools, taken: &Taken, ask: &Ask, wanted: &[IpAddr]) -> Result<Given, Refusal> {
    let mut from: Option<&Entry> = None;
    for address in wanted {
        let entry = allowed(pools, taken, ask, *address)?;
        if from.is_some_and(|other| !std::ptr::eq(other, entry)) {
            return Err(Refusal::TwoPools(wanted.to_vec()));
        }
        from = Some(entry);
    }
    let entry = from.ok_or(Refusal::NoPool)?;
    let mut addresses = wanted.to_vec();
    match add_missing(from, taken, ask, &mut addresses) {
        Some(family) => Err(exhausted(&[entry], taken, ask, &[family])),
        None => Ok(given(entry, ask, addresses)),
    }
}

/// Adds addresses of a pool, of the families that a Service asks for beside those that it has. Returns a family of which there is
/// none, and which the Service requires.
fn add_missing(
    from: Option<&Entry>,
    taken: &Taken,
    ask: &Ask,
    addresses: &mut Vec<IpAddr>,
) -> Option<Family> {
    let (missing, required) = ask.families.missing(addresses);
    let mut lacking = missing.into_iter().filter(|family| {
        let found = from.and_then(|entry| first_for(entry, taken, ask, *family));
        addresses.extend(found);
        found.is_none()
    });
    let lacking = lacking.next();
    lacking.filter(|_| required)
}

/// The pool that may give a requested address to a Service.
fn allowed<'a>(
    pools: &'a Pools,
    taken: &Taken,
    ask: &Ask,
    address: IpAddr,
) -> Result<&'a Entry, Refusal> {
    if !ask.families.wants(Family::of(address)) {
        return Err(Refusal::WrongFamily(address));
    }
    let entry = pools.of(address).ok_or(Refusal::NoPoolHolds(address))?;
    let pool = entry.pool.to_string();
    if !(ask.pools.is_empty() || ask.pools.contains(&entry.pool.name)) {
        return Err(Refusal::NotOfNamedPool(address, pool, ask.pools.clone()));
    }
    let is_for = entry.pool.is_for(ask);
    is_for.map_err(|why| Refusal::NotForService(pool, why))?;
    may_give(entry, taken, ask, address)?;
    Ok(entry)
}

/// Addresses of the first pool in the order of candidates that has enough.
fn choose(pools: &Pools, taken: &Taken, ask: &Ask) -> Result<Given, Refusal> {
    let groups = pools.candidates(ask)?;
    let choices = ask.families.choices();
    let of_group = |group: &[&Entry], find: &dyn Fn(&Entry, Family) -> Option<IpAddr>| {
        let mut tries = choices
            .iter()
            .flat_map(|families| group.iter().map(move |one| (families, *one)));
        tries.find_map(|(families, entry)| {
            let addresses = families.iter().map(|family| find(entry, *family));
            let mut addresses = addresses.collect::<Option<_>>()?;
            // It may share one family and have the other one for itself.
            add_missing(Some(entry), taken, ask, &mut addresses);
            Some(given(entry, ask, addresses))
        })
    };
    // Those with its sharing key are looked for first, in every pool.
    let joined = |entry: &Entry, family| shared(entry, taken, ask, family);
    let any = |entry: &Entry, family| first_for(entry, taken, ask, family);
    let joined = groups.iter().find_map(|group| of_group(group, &joined));
    joined
        .or_else(|| groups.iter().find_map(|group| of_group(group, &any)))
        .ok_or_else(|| {
            exhausted(
                &groups.concat(),
                taken,
                ask,
                // Any family would do: the first one is named.
                match ask.families {
                    Families::Any => choices.first(),
                    _ => choices.last(),
                }
                .map_or(&[], Vec::as_slice),
            )
        })
}

/// An address of a pool for a Service: one that it may share, or else the smallest that nobody has.
fn first_for(entry: &Entry, taken: &Taken, ask: &Ask, family: Family) -> Option<IpAddr> {
    let shared = shared(entry, taken, ask, family);
    shared.or_else(|| first_free(entry, taken, ask, family))
}

fn first_free(entry: &Entry, taken: &Taken, ask: &Ask, family: Family) -> Option<IpAddr> {
    let suits = |address| taken.may_join(address, ask).is_ok();
    entry.first_free(family, taken.addresses(), suits)
}

fn shared(entry: &Entry, taken: &Taken, ask: &Ask, family: Family) -> Option<IpAddr> {
    let mut shared = taken.shared_by(ask.sharing.as_deref()?);
    shared.find(|address| {
        Family::of(*address) == family && may_give(entry, taken, ask, *address).is_ok()
    })
}

/// Whether a pool may give this address to this Service.
fn may_give(entry: &Entry, taken: &Taken, ask: &Ask, address: IpAddr) -> Result<(), Refusal> {
    let gives = entry.gives(address);
    gives.map_err(|why| Refusal::NotGiven(address, entry.pool.to_string(), why))?;
    taken.may_join(address, ask)
}

fn given(entry: &Entry, ask: &Ask, mut addresses: Vec<IpAddr>) -> Given {
    ask.families.sort(&mut addresses);
    Given {
        addresses,
        pool: entry.pool.name.clone(),
        ports: ask.ports.clone(),
        refused: Vec::new(),
    }
}

fn exhausted(tried: &[&Entry], taken: &Taken, ask: &Ask, families: &[Family]) -> Refusal {
    let why = |entry: &&Entry| {
        let is_lacking = |family: &&Family| first_free(entry, taken, ask, **family).is_none();
        let family = *families.iter().find(is_lacking).unwrap_or(&Family::V4);
        let (total, used) = entry.count_of(family, taken.addresses());
        let ranges = entry.gives.ranges();
        let mut foreign = ranges.flat_map(|range| taken.of_other_systems_in(range));
        let foreign = foreign.find(|(address, _)| entry.gives(*address).is_ok());
        Spent {
            pool: entry.pool.to_string(),
            family,
            total,
            used,
            older: entry.older(family),
            foreign: foreign.map(|(address, service)| (address, service.clone())),
        }
    };
    match tried {
        [] => Refusal::NoPool,
        tried => Refusal::Exhausted(tried.iter().map(why).collect()),
    }
}

/// Writes down what was given.
fn record(taken: &mut Taken, ask: &Ask, given: &Given, now: i64) {
    let before = taken.held(&ask.service);
    let since = before.filter(|held| held.addresses == given.addresses);
    let held = Held {
        addresses: given.addresses.clone(),
        pool: given.pool.clone(),
        ports: given.ports.clone(),
        terms: Terms::of(ask),
        since: since.map_or(Some(now), |held| held.since),
    };
    // Most Services have what they had.
    if before != Some(&held) {
        taken.take(ask.service.clone(), held);
    }
}
