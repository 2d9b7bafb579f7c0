//! Decides between Services that ask for the same port of a node: the oldest Service gets it. Runs once the ports of all Services
//! are known.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::notice::{About, Notice, Reason};
use super::status::{Status, Verdict};
use super::table::{Shared, shared_ports};
use super::{Asked, World};
use crate::observe::Service;
use crate::settings::HTTPS_PORT;

/// A port that a Service asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) udp: bool,
    pub(super) port: u16,
    pub(super) reach: Reach,
}

/// The addresses at which a port is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Wherever load balancers are published.
    Everywhere,
    /// At these only, on whichever node has them.
    At(Vec<IpAddr>),
}

impl Service {
    /// The key by which Services are ordered, oldest first. Services from manifests have no date: they come last, by name.
    pub(super) fn age(&self) -> impl Ord + '_ {
        (self.created.is_none(), self.created, &self.uid, &self.key)
    }
}

/// The owners of ports, by transport (true: UDP) and number: the addresses, and the owner's name.
type Held = BTreeMap<(bool, u16), Vec<(Reach, String)>>;

/// Grants each port to its oldest claimant. Services that do not get a port lose their offers, stay pending, and are told the
/// owner. Returns the shared ports that exist.
///
/// A shared port is as old as the oldest Service that asks for a route of it by an annotation. Routes that exist only by
/// `--http-services=all` are no claim: they are served while no other Service has the port at every address.
pub(super) fn grant(world: &World<'_>, asked: &mut [Asked<'_>]) -> Shared {
    let mut held = Held::new();
    let mut routes = BTreeMap::new();
    let mut shared = shared_ports(world.settings, asked);
    let claimants = [false, true].map(|secure| oldest_that_asks(asked, secure));
    let mut order: Vec<(usize, &Service)> =
        asked.iter().map(|one| one.service).enumerate().collect();
    order.sort_by(|(_, one), (_, other)| one.age().cmp(&other.age()));
    let mut lost = Vec::new();
    for (index, _) in order {
        for secure in [false, true] {
            if claimants[usize::from(secure)] == Some(index) && shared.has(secure) {
                lost.extend(claim_shared(world, asked, &mut held, &mut shared, secure));
            }
        }
        let Some(one) = asked.get_mut(index) else {
            continue;
        };
        grant_routes(&mut routes, one);
        drop_doubles(one);
        grant_offers(world, &mut held, one);
    }
    for secure in [false, true] {
        let number = port_number(world, secure);
        let holder = held.get(&(false, number)).and_then(|others| {
            let mut others = others.iter();
            others.find(|(reach, _)| *reach == Reach::Everywhere)
        });
        if claimants[usize::from(secure)].is_none()
            && shared.has(secure)
            && let Some((_, owner)) = holder
        {
            shared.remove(secure);
            lost.push((secure, owner.clone()));
        }
    }
    for (secure, owner) in lost {
        withdraw(world, asked, secure, &owner);
    }
    shared
}

/// Records a shared port as owned by the routes that annotations ask for, or returns the owner that has it already.
fn claim_shared(
    world: &World<'_>,
    asked: &[Asked<'_>],
    held: &mut Held,
    shared: &mut Shared,
    secure: bool,
) -> Option<(bool, String)> {
    let others = held.entry((false, port_number(world, secure))).or_default();
    let holder = others
        .iter()
        .find(|(reach, _)| meet(world, reach, &Reach::Everywhere));
    if let Some((_, owner)) = holder {
        shared.remove(secure);
        return Some((secure, owner.clone()));
    }
    others.push((Reach::Everywhere, shared_port(asked, secure)));
    None
}

/// Gives a Service its ports of the node, all or none.
fn grant_offers(world: &World<'_>, held: &mut Held, one: &mut Asked<'_>) {
    let own_ports = world.settings.own_ports();
    let taken = one.claims().find_map(|claim| {
        // No Service may have one of Ballast's own ports, at any address.
        let mut own_ports = own_ports.iter();
        if let Some((port, name)) = own_ports.find(|(port, _)| !claim.udp && claim.port == *port) {
            return Some((claim.clone(), format!("{name} ({port})")));
        }
        let others = held.get(&(claim.udp, claim.port))?;
        let owner = others
            .iter()
            .find(|(reach, _)| meet(world, reach, &claim.reach))?;
        Some((claim.clone(), owner.1.clone()))
    });
    match taken {
        Some((claim, owner)) => refuse(one, &claim, &owner),
        None => {
            let owner = one.service.key.to_string();
            for claim in one.offers.iter().map(|offer| &offer.claim) {
                held.entry((claim.udp, claim.port))
                    .or_default()
                    .push((claim.reach.clone(), owner.clone()));
            }
        }
    }
}

/// The oldest Service that asks for a route of a shared port by an annotation.
fn oldest_that_asks(asked: &[Asked<'_>], secure: bool) -> Option<usize> {
    let asks = |one: &Asked<'_>| {
        let mut routes = one.routes.iter();
        routes.any(|route| route.secure == secure && route.by_annotation)
    };
    let askers = asked.iter().enumerate().filter(|(_, one)| asks(one));
    let oldest = askers.min_by(|(_, one), (_, other)| one.service.age().cmp(&other.service.age()));
    oldest.map(|(index, _)| index)
}

fn port_number(world: &World<'_>, secure: bool) -> u16 {
    match secure {
        true => HTTPS_PORT,
        false => world.settings.flags.http_port,
    }
}

fn shared_name(secure: bool) -> &'static str {
    if secure { "HTTPS" } else { "HTTP" }
}

/// The name of a shared port for messages, with the oldest Service that asks for a route of it.
fn shared_port(asked: &[Asked<'_>], secure: bool) -> String {
    let name = shared_name(secure);
    let oldest = oldest_that_asks(asked, secure).and_then(|index| asked.get(index));
    match oldest {
        Some(one) => format!("the shared {name} port, which leads to {}", one.service.key),
        None => format!("the shared {name} port"),
    }
}

/// Removes every route of a shared port that another Service owns. A Service that asked for a route by an annotation is told; of
/// the Services that have one by `--http-services=all` alone, only the newest is told.
fn withdraw(world: &World<'_>, asked: &mut [Asked<'_>], secure: bool, owner: &str) {
    let number = port_number(world, secure);
    let name = shared_name(secure);
    let why = format!("port {number}/TCP is taken by {owner}");
    let mut newest: Option<&Service> = None;
    for one in &mut *asked {
        let mut of_port = one.routes.iter().filter(|route| route.secure == secure);
        let Some(first) = of_port.next() else {
            continue;
        };
        let asks = first.by_annotation || of_port.any(|route| route.by_annotation);
        one.routes.retain(|route| route.secure != secure);
        one.status.why.clone_from(&why);
        if one.routes.is_empty() && one.offers.is_empty() {
            one.files.clear();
            one.status.verdict = Verdict::LeftAlone;
        }
        if asks {
            let key = &one.service.key;
            let message = format!("Failed to allocate the shared {name} port for \"{key}\": {why}");
            let about = About::Service(key.clone());
            one.notices
                .insert(Notice::warning(about, Reason::AllocationFailed, message));
        } else if newest.is_none_or(|newest| one.service.age() > newest.age()) {
            newest = Some(one.service);
        }
    }
    let is_told = |one: &&mut Asked<'_>| newest.is_some_and(|told| told.key == one.service.key);
    if let Some(one) = asked.iter_mut().find(is_told) {
        let message = format!(
            "{why}: the routes of this Service, and all others of the shared {name} port, are withdrawn; they return when that port is free"
        );
        let about = About::Service(one.service.key.clone());
        one.notices
            .insert(Notice::warning(about, Reason::RoutesWithdrawn, message));
    }
}

/// Of two ports of one Service that come out at one port of the node, the first counts.
fn drop_doubles(one: &mut Asked<'_>) {
    let mut seen = BTreeSet::new();
    let mut lost = BTreeSet::new();
    one.offers.retain(|offer| {
        let is_new = seen.insert((offer.claim.udp, offer.claim.port));
        if !is_new {
            lost.insert(format!("{} would listen at port {}, as another port of this Service does; it is not served", offer.frontend.name, offer.claim.port));
        }
        is_new
    });
    let about = || About::Service(one.service.key.clone());
    one.notices.extend(
        lost.into_iter()
            .map(|message| Notice::warning(about(), Reason::AllocationFailed, message)),
    );
}

/// Of two equal routes the older Service's counts; of one Service, that of its first port.
fn grant_routes(held: &mut BTreeMap<String, (String, bool)>, one: &mut Asked<'_>) {
    let owner = one.service.key.to_string();
    let mut taken = BTreeSet::new();
    one.routes.retain(|route| {
        let mut lost = None;
        for (place, unopened) in route.places() {
            match held.get(&place) {
                Some((other, _)) if unopened.is_none() => lost = Some((place, other.clone())),
                Some((other, theirs)) if unopened != Some(*theirs) => {
                    lost = Some((place, other.clone()));
                }
                _ => {}
            }
        }
        match lost {
            Some((place, other)) => {
                if other != owner {
                    taken.insert(format!(
                        "{place} leads to {other} already; this Service does not get it"
                    ));
                }
                false
            }
            None => {
                for (place, unopened) in route.places() {
                    held.entry(place)
                        .or_insert_with(|| (owner.clone(), unopened.unwrap_or_default()));
                }
                true
            }
        }
    });
    let about = || About::Service(one.service.key.clone());
    one.notices.extend(
        taken
            .into_iter()
            .map(|message| Notice::warning(about(), Reason::AnnotationConflict, message)),
    );
}

fn refuse(one: &mut Asked<'_>, claim: &Claim, owner: &str) {
    let transport = if claim.udp { "UDP" } else { "TCP" };
    let key = &one.service.key;
    let why = format!("port {}/{transport} is taken by {owner}", claim.port);
    let message = format!("Failed to allocate IP for \"{key}\": {why}");
    one.notices.insert(Notice::warning(
        About::Service(key.clone()),
        Reason::AllocationFailed,
        message,
    ));
    one.offers.clear();
    if one.routes.is_empty() {
        one.files.clear();
    }
    one.status = match one.status.verdict {
        Verdict::Routed if !one.routes.is_empty() => Status::new(one.service, Verdict::Routed, why),
        Verdict::Routed => Status::left_alone(one.service, why),
        _ => Status {
            port_errors: std::mem::take(&mut one.status.port_errors),
            ..Status::pending(one.service, why)
        },
    };
}

/// Whether two claims of one port meet at some address.
fn meet(world: &World<'_>, one: &Reach, other: &Reach) -> bool {
    match (one, other) {
        (Reach::Everywhere, Reach::Everywhere) => true,
        (Reach::Everywhere, Reach::At(addresses)) | (Reach::At(addresses), Reach::Everywhere) => {
            addresses
                .iter()
                .any(|address| world.nodes.publishes(*address))
        }
        (Reach::At(ours), Reach::At(theirs)) => ours.iter().any(|address| theirs.contains(address)),
    }
}
