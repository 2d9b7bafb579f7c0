//! What becomes of one Service in a decision: what it is given, of all that its plan asks for.

use std::collections::BTreeSet;
use std::sync::Arc;

use ballast_core::table::Bind;

use super::context::Context;
use super::notice::{About, Notice, Reason};
use super::service_plan::{Parts, PortPlan, ServicePlan, SharedRoute};
use super::site::{Reach, Site};
use super::status::{Allotment, Status, Verdict};
use crate::allocation::NodePort;
use crate::observe::{Service, ServiceKind};
use crate::settings::Role;

pub(super) struct Grant {
    pub(super) plan: Arc<ServicePlan>,
    pub(super) status: Status,
    /// Where a LoadBalancer listens: where it asks to, until it is given another place. `None`: where all nodes listen.
    pub(super) site: Option<Site>,
    /// What becomes of each port of the plan.
    pub(super) ports: Vec<PortGrant>,
    /// Whether it has each route of the plan.
    pub(super) routes: Vec<bool>,
    /// Whether it keeps the shared HTTP and HTTPS ports that it was given, whatever is planned.
    pub(super) keeps_routes: [bool; 2],
    /// Those of [`ServicePlan::unread`] that it keeps.
    pub(super) unread: BTreeSet<NodePort>,
    /// Whether it has something already: then it gets what is free of the rest. Any other Service gets all its ports or none.
    pub(super) is_kept: bool,
    /// Events beside those of the plan.
    pub(super) notices: Vec<Notice>,
    /// Those that follow from what this node alone knows.
    pub(super) node_notices: Vec<Notice>,
}

/// What becomes of a port that a Service asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortGrant {
    /// That is not decided yet.
    Asked,
    Given,
    /// It was given, and is closed on this node: another Service was given it earlier.
    Taken,
    /// Not given: the Service does not have it.
    Refused,
}

impl Grant {
    pub(super) fn of(plan: Arc<ServicePlan>) -> Self {
        Self {
            status: plan.status.clone(),
            site: plan.placement.as_ref().map(|place| place.site.clone()),
            ports: vec![PortGrant::Asked; plan.ports.len()],
            routes: vec![true; plan.routes.len()],
            keeps_routes: plan.keeps_routes,
            unread: BTreeSet::new(),
            is_kept: false,
            notices: Vec::new(),
            node_notices: Vec::new(),
            plan,
        }
    }

    pub(super) fn service(&self) -> &Service {
        &self.plan.service
    }

    pub(super) fn is_balancer(&self) -> bool {
        self.service().kind == ServiceKind::LoadBalancer
    }

    /// The addresses at which it claims its ports.
    pub(super) fn reach(&self) -> Reach<'_> {
        self.site.as_ref().unwrap_or(&Site::EVERYWHERE).reach()
    }

    /// The ports that were not refused, by their place in the plan.
    pub(super) fn ports(&self) -> impl Iterator<Item = (usize, &PortPlan, PortGrant)> {
        let ports = self.plan.ports.iter().zip(&self.ports).enumerate();
        let ports = ports.map(|(index, (port, grant))| (index, port, *grant));
        ports.filter(|(_, _, grant)| *grant != PortGrant::Refused)
    }

    pub(super) fn has_ports(&self) -> bool {
        self.ports().next().is_some()
    }

    /// The routes that it has.
    pub(super) fn routes(&self) -> impl Iterator<Item = &SharedRoute> + Clone {
        let routes = self.plan.routes.iter().zip(&self.routes);
        routes.filter(|(_, has)| **has).map(|(route, _)| route)
    }

    /// Takes away the routes for which this does not hold.
    pub(super) fn retain_routes(&mut self, mut keeps: impl FnMut(&SharedRoute) -> bool) {
        let routes = self.plan.routes.iter().zip(&mut self.routes);
        for (route, has) in routes.filter(|(_, has)| **has) {
            *has = keeps(route);
        }
    }

    pub(super) fn has_routes(&self) -> bool {
        self.routes().next().is_some()
    }

    /// Whether an annotation asks for a route of this shared port, or did before it could not be read.
    pub(super) fn asks_for_route(&self, secure: bool) -> bool {
        let keeps = self.keeps_routes.get(usize::from(secure));
        let mut routes = self.routes();
        keeps == Some(&true) || routes.any(|route| route.secure == secure && route.by_annotation)
    }

    /// Gives it all ports that are not decided.
    pub(super) fn give_asked(&mut self) {
        let asked = self.ports.iter_mut();
        for port in asked.filter(|port| **port == PortGrant::Asked) {
            *port = PortGrant::Given;
        }
    }

    /// Refuses the ports for which this holds.
    pub(super) fn refuse_ports(&mut self, is_refused: impl Fn(NodePort, PortGrant) -> bool) {
        for (plan, grant) in self.plan.ports.iter().zip(&mut self.ports) {
            if is_refused(plan.port, *grant) {
                *grant = PortGrant::Refused;
            }
        }
    }

    /// Refuses a Service that has nothing yet: it gets all its ports or none.
    pub(super) fn refuse(&mut self, why: String) {
        let message = format!(
            "Failed to allocate IP for \"{}\": {why}",
            self.service().key
        );
        self.warn(Reason::AllocationFailed, message.clone());
        self.ports.fill(PortGrant::Refused);
        let service = &self.plan.service;
        self.status = match self.status.verdict {
            Verdict::Routed if self.has_routes() => Status::new(service, Verdict::Routed, why),
            Verdict::Routed => Status::left_alone(service, why),
            _ => Status {
                port_errors: std::mem::take(&mut self.status.port_errors),
                allotment: Some(Allotment::Failed(message)),
                ..Status::pending(service, why)
            },
        };
    }

    /// Says of a Service of whose routes other Services have every one that nothing leads to it.
    pub(super) fn tell_unrouted(&mut self) {
        let is_routed = self.status.verdict == Verdict::Routed && !self.plan.routes.is_empty();
        let has_some = self.has_routes() || self.has_ports() || self.keeps_routes.contains(&true);
        if is_routed && !has_some {
            self.status.verdict = Verdict::LeftAlone;
            "other Services have all of its routes".clone_into(&mut self.status.why);
        }
    }

    /// Refuses one more port of a Service that keeps the others.
    pub(super) fn refuse_port(&mut self, port: NodePort, owner: &str) {
        let key = &self.service().key;
        let message = format!(
            "Failed to allocate port {port} for \"{key}\": it is taken by {owner}; the Service keeps its other ports"
        );
        self.warn(Reason::AllocationFailed, message);
        self.refuse_ports(|one, _| one == port);
    }

    /// Serves nothing of it for now. What it was given stays its own.
    pub(super) fn hold(&mut self) {
        self.ports.fill(PortGrant::Refused);
        self.routes.fill(false);
        self.node_notices.clear();
    }

    /// Adds a Warning about the Service.
    pub(super) fn warn(&mut self, reason: Reason, message: impl Into<String>) {
        let about = About::Service(self.service().key.clone());
        self.notices.push(Notice::warning(about, reason, message));
    }

    /// Adds a Warning about the Service, which follows from what this node alone knows.
    pub(super) fn warn_by_node(&mut self, reason: Reason, message: impl Into<String>) {
        let about = About::Service(self.service().key.clone());
        let notice = Notice::warning(about, reason, message);
        self.node_notices.push(notice);
    }

    /// The ports of the Service on this node.
    pub(super) fn here(&self, context: &Context<'_>) -> impl Iterator<Item = PortHere<'_>> {
        let site = self.site.as_ref().unwrap_or(&Site::EVERYWHERE);
        let (here, settings) = (context.nodes.here, context.settings);
        // Only a node of a cluster keeps a port for itself.
        let own = settings.admin_port.filter(|_| settings.role == Role::Node);
        let own = own.map(NodePort::tcp);
        self.ports().map(move |(index, plan, grant)| PortHere {
            index,
            plan,
            binds: site.binds(here, plan.port.number),
            is_taken: grant == PortGrant::Taken,
            is_closed: plan.closed || grant == PortGrant::Taken || own == Some(plan.port),
        })
    }

    /// What a port of the plan is in a table, taken out of a plan that nobody else keeps.
    pub(super) fn take_parts(&mut self, index: usize) -> Option<Box<Parts>> {
        match Arc::get_mut(&mut self.plan) {
            Some(plan) => plan.ports.get_mut(index)?.parts.take(),
            None => self.plan.ports.get(index)?.parts.clone(),
        }
    }

    /// The routes that it has, taken likewise.
    pub(super) fn take_routes(&mut self) -> Vec<SharedRoute> {
        let routes = match Arc::get_mut(&mut self.plan) {
            Some(plan) => std::mem::take(&mut plan.routes),
            None => self.plan.routes.clone(),
        };
        let routes = routes.into_iter().zip(std::mem::take(&mut self.routes));
        routes
            .filter(|(_, has)| *has)
            .map(|(route, _)| route)
            .collect()
    }

    /// Whether anything of it is served on this node, be it closed. A node that does not serve a Service gets none of its private
    /// keys.
    pub(super) fn is_here(&self, context: &Context<'_>) -> bool {
        self.has_routes() || self.here(context).any(|port| !port.binds.is_empty())
    }
}

/// A port of a Service on this node.
pub(super) struct PortHere<'g> {
    /// Its place in the plan.
    pub(super) index: usize,
    pub(super) plan: &'g PortPlan,
    /// Where it listens; nowhere: other nodes have it.
    pub(super) binds: Vec<Bind>,
    /// Whether another Service, which was given the port earlier, has it here.
    pub(super) is_taken: bool,
    /// Whether it stays closed, though it was given.
    pub(super) is_closed: bool,
}
