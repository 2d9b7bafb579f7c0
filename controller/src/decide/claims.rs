//! Who gets a port: its oldest owner. Asked once all Services have said what they want.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::notice::{About, Notice, Reason};
use super::status::{Status, Verdict};
use super::table::shared_ports;
use super::{Asked, World};
use crate::observe::Service;
use crate::settings::HTTPS_PORT;

/// A port that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) udp: bool,
    pub(super) port: u16,
    pub(super) reach: Reach,
}

/// At which addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Wherever load balancers are published.
    Everywhere,
    /// At these only, on whichever node has them.
    At(Vec<IpAddr>),
}

impl Service {
    /// The older one comes first. What has no date is a manifest: those come by name, after all that have one.
    pub(super) fn age(&self) -> impl Ord + '_ {
        (self.created.is_none(), self.created, &self.uid, &self.key)
    }
}

/// Takes the offers of those who came too late; they stay pending, and the owner is named.
pub(super) fn grant(world: &World<'_>, asked: &mut [Asked<'_>]) {
    let mut held: BTreeMap<(bool, u16), Vec<(Reach, String)>> = BTreeMap::new();
    let flags = &world.settings.flags;
    let mut hold = |port: u16, owner: String| {
        held.entry((false, port))
            .or_default()
            .push((Reach::Everywhere, owner));
    };
    let shared = shared_ports(world.settings, asked);
    if shared.http {
        hold(flags.http_port, shared_port("HTTP", asked, false));
    }
    if shared.https {
        hold(HTTPS_PORT, shared_port("HTTPS", asked, true));
    }
    let mut routes = BTreeMap::new();
    let mut order: Vec<(usize, &Service)> =
        asked.iter().map(|one| one.service).enumerate().collect();
    order.sort_by(|(_, one), (_, other)| one.age().cmp(&other.age()));
    for (index, _) in order {
        let Some(one) = asked.get_mut(index) else {
            continue;
        };
        grant_routes(&mut routes, one);
        drop_doubles(one);
        let taken = one.claims().find_map(|claim| {
            // That one is nobody's, at whatever address.
            if !claim.udp && claim.port == flags.stats_port {
                return Some((claim.clone(), format!("the stats port ({})", claim.port)));
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
}

/// A shared port, with the oldest of those that it is there for.
fn shared_port(name: &str, asked: &[Asked<'_>], secure: bool) -> String {
    let has_route = |one: &&Asked<'_>| one.routes.iter().any(|route| route.secure == secure);
    let services = asked.iter().filter(has_route).map(|one| one.service);
    match services.min_by(|one, other| one.age().cmp(&other.age())) {
        Some(service) => format!("the shared {name} port, which leads to {}", service.key),
        None => format!("the shared {name} port"),
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
