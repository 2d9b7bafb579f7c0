//! The whole brain: from what is seen of the cluster to what must be.
//!
//! [`decide`] is pure: it knows no socket, no clock and no cluster; equal input gives equal output, and everything is
//! computed anew each time. What it returns is acted upon elsewhere, part by part.
//!
//! # The walk
//!
//! `nodes` says which nodes are load balancers and which one this is. Every Service then goes through `services` (type
//! LoadBalancer) or `shared` (service-loadbalancer's way), which read its annotations (`annotations`, `knobs`), find its
//! endpoints (`endpoints`) and its checks (`health`), and ask for ports and routes. `claims` gives every port to its
//! oldest owner, `served` says what each node listens at then, and so who is published; `table` puts the table together, and
//! `sound` makes sure that the data plane takes it.

mod annotations;
mod claims;
mod endpoints;
mod files;
mod health;
mod knobs;
mod names;
mod nodes;
mod notice;
pub(crate) mod pem;
mod place;
mod ranges;
mod served;
mod services;
mod shared;
mod sound;
mod status;
mod table;
mod weight;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ballast_core::table::{RoutingTable, no_single_host};
use serde::Serialize;

use crate::lease::{Binds, hash_of_settings};
use crate::observe::{Key, Observed, Remembered, Service, ServiceKind, Wanted};
use crate::settings::{Role, Settings};
use annotations::Reader;
pub use annotations::values::algorithm;
pub(crate) use annotations::{ADDRESS, ID, LAST_GOOD, TOLD};
use claims::Claim;
use endpoints::{Slices, is_outside};
pub use files::{Source, WantedFile};
use names::Names;
use nodes::{Here, Nodes};
pub use notice::{About, Kind, Notice, Reason};
use place::Place;
use served::Expected;
pub(crate) use status::is_foreign;
pub use status::{Ingress, PortError, Status, Verdict};
use table::Shared;
pub(crate) use table::stats;

/// What must be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Desired {
    /// The table of this node; `None`: it is no load balancer. Large: one that stays as it was is kept once, however many
    /// decisions have it.
    pub table: Option<Arc<RoutingTable>>,
    /// The files that the table names, and where each comes from.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub files: BTreeSet<WantedFile>,
    /// Every Service that was looked at, by name.
    pub statuses: Vec<Status>,
    /// What people are told, in a fixed order.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub notices: BTreeSet<Notice>,
    /// What must be looked up for the next decision.
    #[serde(skip_serializing_if = "Wanted::is_empty")]
    pub wanted: Wanted,
    /// The last good values of annotations, for the next decision. Those that are in use now are annotations as well
    /// (`ballast.dev/last-good`), so that every node has the same ones, and has them after a restart.
    #[serde(skip)]
    pub remembered: Remembered,
    /// What this node's Lease says beside what the data plane does.
    #[serde(skip)]
    pub report: Arc<Report>,
}

/// What the publisher cannot know without the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What the node listens at when its data plane serves the table.
    pub binds: Binds,
    /// Services that have ports on this node, all of which stay closed.
    pub closed: BTreeSet<Key>,
    /// Services for the endpoints of this node alone that have no ready one.
    pub idle: BTreeSet<Key>,
    /// What follows from endpoints, Secrets and names.
    pub notices: BTreeSet<Notice>,
}

/// Decides everything.
#[must_use]
pub fn decide(observed: &Observed, settings: &Settings) -> Desired {
    decide_by(ask, observed, settings)
}

/// What each of these Services wants to be looked up. `observed` must have the Services too.
#[must_use]
pub fn wanted_by<'a>(
    services: impl Iterator<Item = &'a Service>,
    observed: &'a Observed,
    settings: &'a Settings,
) -> BTreeMap<Key, Wanted> {
    if settings.role == Role::Publisher {
        return BTreeMap::new();
    }
    let left_out = BTreeMap::new();
    let world = World {
        observed,
        settings,
        left_out: &left_out,
        claims: String::new(),
        slices: Slices::of(observed),
        nodes: Nodes::look(observed, settings, &mut Vec::new()),
    };
    let names = Names::of(observed, settings);
    let looked_at = services.filter(|service| settings.looks_at(&service.key.namespace));
    let wanted = looked_at.filter_map(|service| {
        // If this panics, the decision will panic too, and leave the Service out.
        let asked = sound::guarded(&world, service, &mut BTreeMap::new(), || {
            ask(&world, &names, service)
        });
        Some((service.key.clone(), asked?.wanted))
    });
    wanted.collect()
}

/// Decides, with `ask` to plan each Service. Tests pass a function that panics.
fn decide_by(ask: Ask, observed: &Observed, settings: &Settings) -> Desired {
    let mut left_out = BTreeMap::new();
    loop {
        // One Service must not take the others with it.
        let blamed = match decide_without(&left_out, ask, observed, settings) {
            Err(panicked) => panicked,
            Ok(desired) => {
                let table = desired.table.as_deref();
                let mut blamed = table.map(sound::blamed).unwrap_or_default();
                blamed.retain(|key, _| !left_out.contains_key(key));
                if blamed.is_empty() {
                    return desired;
                }
                blamed
            }
        };
        left_out.extend(blamed);
    }
}

/// The function that plans one Service.
type Ask = for<'a> fn(&World<'a>, &Names<'_>, &'a Service) -> Asked<'a>;

/// One pass over all Services, without those that are left out. `Err`: the Services for which a panic was caught, with its
/// message.
fn decide_without(
    left_out: &BTreeMap<Key, String>,
    ask: Ask,
    observed: &Observed,
    settings: &Settings,
) -> Result<Desired, BTreeMap<Key, String>> {
    let mut notices = Vec::new();
    let world = World {
        observed,
        settings,
        left_out,
        claims: hash_of_settings(&settings.claims()),
        slices: Slices::of(observed),
        nodes: Nodes::look(observed, settings, &mut notices),
    };
    let names = Names::of(observed, settings);
    notices.extend(names.unknown_tcp_services(observed, settings));
    let mut panicked = BTreeMap::new();
    let mut asked = Vec::with_capacity(observed.services.len());
    let looked_at = |service: &&Arc<Service>| settings.looks_at(&service.key.namespace);
    for service in observed.services.values().filter(looked_at) {
        let one = sound::guarded(&world, service, &mut panicked, || {
            ask(&world, &names, service)
        });
        asked.extend(one);
    }
    if !panicked.is_empty() {
        return Err(panicked);
    }
    let shared = claims::grant(&world, &mut asked);
    let expected = Expected::of(&world, shared, &asked);
    for one in &mut asked {
        sound::guarded(&world, one.service, &mut panicked, || {
            services::publish(&world, one, &expected);
        });
    }
    if !panicked.is_empty() {
        return Err(panicked);
    }
    let mut report = match settings.role {
        Role::Publisher => Report::default(),
        Role::Whole | Role::Node => report(&world, shared, &asked),
    };
    let table = match world.nodes.here {
        Here::Idle => None,
        Here::Host | Here::Serves(_) => {
            Some(Arc::new(table::assemble(settings, shared, &mut asked)))
        }
    };
    let mut files = files::settings_files(settings);
    let mut wanted = Wanted::default();
    let mut remembered = Remembered::new();
    let mut statuses = Vec::with_capacity(asked.len());
    for one in asked {
        notices.extend(one.notices);
        report.notices.extend(one.node_notices);
        files.extend(one.files);
        wanted.extend(one.wanted);
        if !one.memory.is_empty() {
            remembered.insert(one.service.key.clone(), one.memory);
        }
        statuses.push(one.status);
    }
    wanted.nodes |= settings.needs_all_nodes();
    match settings.role {
        Role::Whole => notices.extend(std::mem::take(&mut report.notices)),
        Role::Node => {}
        Role::Publisher => {
            // Nodes look things up.
            wanted = Wanted::default();
            notices.extend(reported(observed, &world.claims));
        }
    }
    Ok(Desired {
        files: match table {
            Some(_) => files,
            None => BTreeSet::new(),
        },
        table,
        statuses,
        notices: notices.into_iter().collect(),
        wanted,
        remembered,
        report: Arc::new(report),
    })
}

fn report(world: &World<'_>, shared: Shared, asked: &[Asked<'_>]) -> Report {
    let is_closed = |one: &&Asked<'_>| {
        let mut here = one.offers.iter();
        let is_open = here.any(|offer| !offer.closed);
        !one.offers.is_empty() && !is_open
    };
    let is_idle = |one: &&Asked<'_>| one.place.as_ref().is_some_and(|place| place.idle_here);
    let key = |one: &Asked<'_>| one.service.key.clone();
    Report {
        binds: served::binds_here(world, shared, asked),
        closed: asked.iter().filter(is_closed).map(key).collect(),
        idle: asked.iter().filter(is_idle).map(key).collect(),
        notices: BTreeSet::new(),
    }
}

/// What the Leases of nodes ask the publisher to tell.
fn reported(observed: &Observed, claims: &str) -> BTreeSet<Notice> {
    let mut notices = BTreeSet::new();
    for (node, messages) in &observed.others_say {
        let about = || About::Node(node.clone());
        let said = messages
            .iter()
            .map(|message| Notice::said_by_node(about(), message));
        notices.extend(said);
    }
    for (node, lease) in observed.leases.iter().flatten() {
        if !lease.settings.is_empty() && lease.settings != claims {
            let message = "runs with other settings than the publisher: which Service has which port is decided differently, and no address of it is published anew";
            let about = About::Node(node.clone());
            notices.insert(Notice::warning(about, Reason::SettingsDiffer, message));
        }
        for message in &lease.exceptions.node {
            notices.insert(Notice::said_by_node(About::Node(node.clone()), message));
        }
        for (service, exception) in &lease.exceptions.services {
            let Some((namespace, name)) = service.split_once('/') else {
                continue;
            };
            let key = Key::new(namespace, name);
            if !observed.services.contains_key(&key) {
                continue;
            }
            for message in &exception.messages {
                notices.insert(Notice::said_by_node(About::Service(key.clone()), message));
            }
        }
    }
    notices
}

/// Whether a Service may have a part in a table, so that its endpoints count.
pub(crate) fn may_be_served(service: &Service, settings: &Settings) -> bool {
    match service.kind {
        ServiceKind::LoadBalancer => match &service.class {
            Some(class) => settings.flags.lb_class.as_ref() == Some(class),
            None => settings.takes_classless(),
        },
        _ => names::may_contend(service, settings),
    }
}

/// What every part of a decision may look at.
struct World<'a> {
    observed: &'a Observed,
    settings: &'a Settings,
    /// Services that would have the table refused, or for which a panic was caught, and the reason.
    left_out: &'a BTreeMap<Key, String>,
    /// A hash of the settings by which ports are given to Services.
    claims: String,
    slices: Slices<'a>,
    nodes: Nodes<'a>,
}

impl World<'_> {
    /// Whether a name may lead to an address. Never to this machine: in a cluster, whoever may make a Service may not reach
    /// what listens there.
    fn may_lead_to(&self, address: IpAddr) -> bool {
        no_single_host(address).is_none() && (!self.refuses_own() || is_outside(address))
    }

    fn refuses_own(&self) -> bool {
        self.settings.another_cluster || !matches!(self.nodes.here, Here::Host)
    }
}

/// What one Service asks for, and what is to be said about it.
struct Asked<'a> {
    service: &'a Service,
    status: Status,
    /// Of a LoadBalancer.
    place: Option<Place<'a>>,
    offers: Vec<table::Offer>,
    routes: Vec<table::SharedRoute>,
    files: BTreeSet<WantedFile>,
    wanted: Wanted,
    notices: BTreeSet<Notice>,
    /// Those that follow from what only nodes look at.
    node_notices: BTreeSet<Notice>,
    memory: BTreeMap<String, (String, String)>,
}

impl<'a> Asked<'a> {
    fn nothing(service: &'a Service, status: Status) -> Self {
        Self {
            service,
            status,
            place: None,
            offers: Vec::new(),
            routes: Vec::new(),
            files: BTreeSet::new(),
            wanted: Wanted::default(),
            notices: BTreeSet::new(),
            node_notices: BTreeSet::new(),
            memory: BTreeMap::new(),
        }
    }

    /// With all that a reader found out.
    fn read_by(mut self, mut reader: Reader<'_>) -> Self {
        reader.write_down(&mut self.status);
        self.notices.append(&mut reader.notices);
        self.node_notices.append(&mut reader.node_notices);
        self.wanted.nodes |= reader.needs_nodes;
        self.memory = reader.memory;
        self
    }

    /// One that says that it is not to be touched: what was read is remembered, and not written down.
    fn ignored(mut self, reader: Reader<'_>) -> Self {
        self.notices = reader.notices;
        self.memory = reader.memory;
        self
    }

    /// One that asks for nothing any more. If it did before, what we wrote on it goes.
    fn silent(mut self, before: &Remembered) -> Self {
        let service = self.service;
        let is_there = |key: &&str| service.annotations.contains_key(*key);
        let marks = [LAST_GOOD, TOLD].into_iter().filter(is_there);
        let marks: BTreeSet<String> = marks.map(str::to_owned).collect();
        // Another Ballast's marks are not ours to take.
        if let Some(memory) = before.get(&service.key)
            && !marks.is_empty()
        {
            self.memory = memory.clone();
            self.status.stale_annotations = marks;
        }
        self
    }

    /// The ports that it would hold.
    fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.offers.iter().map(|offer| &offer.claim)
    }
}

fn ask<'a>(world: &World<'a>, names: &Names<'_>, service: &'a Service) -> Asked<'a> {
    let settings = world.settings;
    if let Some(why) = world.left_out.get(&service.key) {
        return sound::left_out(world, service, why);
    }
    if service.kind != ServiceKind::LoadBalancer {
        return match status::is_to_be_given_back(service, settings) {
            true => Asked::nothing(
                service,
                Status::released(service, "is no LoadBalancer any more", settings),
            ),
            false => shared::ask(world, names, service),
        };
    }
    let left_alone = |why: &str| Asked::nothing(service, Status::left_alone(service, why));
    match &service.class {
        class if settings.takes(class.as_deref()) => {}
        Some(class) => return left_alone(&format!("its class is {class}")),
        None => return left_alone("it has no class"),
    }
    match service.deleting {
        true if is_foreign(service) => left_alone("somebody else publishes it"),
        true => Asked::nothing(
            service,
            Status::released(service, "is being deleted", settings),
        ),
        false => services::ask(world, service),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Flags;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }

    /// Panics over the Services called `broken`.
    fn ask_with_a_fault<'a>(
        world: &World<'a>,
        names: &Names<'_>,
        service: &'a Service,
    ) -> Asked<'a> {
        assert!(
            service.key.name != "broken" || world.left_out.contains_key(&service.key),
            "a fault"
        );
        ask(world, names, service)
    }

    #[test]
    fn a_panic_over_one_service_leaves_that_one_out_and_no_other() {
        let mut observed = Observed::default();
        for (name, port) in [("broken", 80), ("web", 81)] {
            let manifest = format!(
                "kind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{type: LoadBalancer, ports: [{{port: {port}}}]}}\n"
            );
            assert_eq!(observed.take_file("a.yaml", &manifest), []);
        }
        let cli: Cli = clap::Parser::parse_from(["x"]);
        let settings = Settings::new(cli.flags).unwrap();
        let desired = decide_by(ask_with_a_fault, &observed, &settings);
        let verdicts: Vec<Verdict> = desired.statuses.iter().map(|one| one.verdict).collect();
        assert_eq!(verdicts, [Verdict::Pending, Verdict::Served]);
        let table = desired.table.unwrap();
        assert_eq!(table.frontends.len(), 1);
        let notice = desired.notices.first().unwrap();
        assert_eq!(notice.about, About::Service(Key::new("shop", "broken")));
        assert_eq!(notice.reason, Reason::LeftOut);
        assert!(notice.message.contains("(a fault)"), "{}", notice.message);
        assert_eq!(desired.notices.len(), 1);
    }
}
