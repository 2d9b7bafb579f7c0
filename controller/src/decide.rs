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
//! oldest owner, `served` says what each node listens at then, and so who is published; `table` puts the table together.

mod annotations;
mod claims;
mod endpoints;
mod files;
mod health;
mod knobs;
mod nodes;
mod notice;
mod place;
mod served;
mod services;
mod shared;
mod status;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use ballast_core::table::RoutingTable;
use serde::Serialize;

use crate::observe::{Observed, Remembered, Service, ServiceKind};
use crate::settings::Settings;
pub use annotations::values::algorithm;
use claims::Claim;
use endpoints::Slices;
pub use files::{Source, WantedFile};
use nodes::{Here, Nodes};
pub use notice::{About, Kind, Notice, Reason};
use place::Place;
use served::Expected;
pub use served::served;
use shared::Names;
pub use status::{Ingress, PortError, Status, Verdict};

/// What must be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Desired {
    /// The table of this node; `None`: it is no load balancer.
    pub table: Option<RoutingTable>,
    /// The files that the table names, and where each comes from.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub files: BTreeSet<WantedFile>,
    /// Every Service that was looked at, by name.
    pub statuses: Vec<Status>,
    /// What people are told, in a fixed order.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub notices: BTreeSet<Notice>,
    /// The last good values of annotations, for the next decision.
    #[serde(skip)]
    pub remembered: Remembered,
}

/// Decides everything.
#[must_use]
pub fn decide(observed: &Observed, settings: &Settings) -> Desired {
    let mut notices = Vec::new();
    let world = World {
        observed,
        settings,
        slices: Slices::of(observed),
        nodes: Nodes::look(observed, settings, &mut notices),
    };
    let names = Names::of(observed, settings);
    notices.extend(names.unknown_tcp_services(observed, settings));
    let mut asked: Vec<Asked<'_>> = observed
        .services
        .values()
        .filter(|service| settings.looks_at(&service.key.namespace))
        .map(|service| ask(&world, &names, service))
        .collect();
    claims::grant(&world, &mut asked);
    let expected = Expected::of(&world, &asked);
    for one in &mut asked {
        services::publish(&world, one, &expected);
    }
    let table = match world.nodes.here {
        Here::Idle => None,
        Here::Host | Here::Serves(_) => Some(table::assemble(settings, &asked)),
    };
    let mut wanted = files::settings_files(settings);
    let mut remembered = Remembered::new();
    let mut statuses = Vec::with_capacity(asked.len());
    for one in asked {
        notices.extend(one.notices);
        wanted.extend(one.files);
        if !one.memory.is_empty() {
            remembered.insert(one.service.key.clone(), one.memory);
        }
        statuses.push(one.status);
    }
    Desired {
        files: match table {
            Some(_) => wanted,
            None => BTreeSet::new(),
        },
        table,
        statuses,
        notices: notices.into_iter().collect(),
        remembered,
    }
}

/// What every part of a decision may look at.
struct World<'a> {
    observed: &'a Observed,
    settings: &'a Settings,
    slices: Slices<'a>,
    nodes: Nodes<'a>,
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
    notices: BTreeSet<Notice>,
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
            notices: BTreeSet::new(),
            memory: BTreeMap::new(),
        }
    }

    /// The ports that it would hold.
    fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.offers.iter().map(|offer| &offer.claim)
    }
}

/// Whose a Service is, and what it asks for.
fn ask<'a>(world: &World<'a>, names: &Names<'_>, service: &'a Service) -> Asked<'a> {
    if service.kind != ServiceKind::LoadBalancer {
        return match service.finalizer && service.class.is_none() && takes_classless(world.settings)
        {
            true => Asked::nothing(
                service,
                Status::released(service, "is no LoadBalancer any more"),
            ),
            false => shared::ask(world, names, service),
        };
    }
    let flags = &world.settings.flags;
    match &service.class {
        Some(class) if flags.lb_class.as_ref() == Some(class) => {}
        Some(class) => {
            let why = format!("its class is {class}");
            return Asked::nothing(service, Status::left_alone(service, why));
        }
        None if takes_classless(world.settings) => {}
        None => return Asked::nothing(service, Status::left_alone(service, "it has no class")),
    }
    match service.deleting {
        true => Asked::nothing(service, Status::released(service, "is being deleted")),
        false => services::ask(world, service),
    }
}

/// Whether Services without a class are ours.
fn takes_classless(settings: &Settings) -> bool {
    settings.flags.default_class || settings.flags.lb_class.is_none()
}
