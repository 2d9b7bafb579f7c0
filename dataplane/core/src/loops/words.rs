//! What is said of services that lead to own frontends.

use std::borrow::Borrow;

use rustc_hash::{FxHashMap, FxHashSet};

use super::graph::Graph;
use super::{Lead, Users, node};
use crate::plan::Transport;
use crate::table;

/// What the lines are made of.
pub(super) struct Words<'a, F, S> {
    pub(super) frontends: &'a [F],
    pub(super) services: &'a [S],
    pub(super) users: &'a Users,
    pub(super) graph: &'a Graph,
    pub(super) leads: &'a [Lead],
}

impl<F: Borrow<table::Frontend>, S: Borrow<table::Service>> Words<'_, F, S> {
    /// A line for each loop, then one for each service that leads to another frontend. A service that one of the lines names
    /// gets no other one.
    pub(super) fn warnings(&self, closing: &[Lead], chains: &[Lead]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut unsaid = 0;
        let mut said: FxHashSet<(usize, Transport)> = FxHashSet::default();
        // An endpoint for each step from a service to a frontend.
        let steps: FxHashMap<(usize, usize), &Lead> = (self.leads.iter().rev())
            .map(|lead| ((self.service_node(lead), lead.frontend), lead))
            .collect();
        for lead in closing {
            if said.contains(&(lead.service, lead.transport)) {
                continue;
            }
            if lines.len() >= MOST_SAID {
                said.insert((lead.service, lead.transport));
                unsaid += 1;
                continue;
            }
            let mut way = self.graph.way(lead.frontend, self.service_node(lead));
            way.push(lead.frontend);
            let mut path = Vec::new();
            for (index, at) in way.iter().enumerate() {
                let before = index.checked_sub(1).and_then(|index| way.get(index));
                if let Some(step) = before.and_then(|before| steps.get(&(*before, *at))) {
                    said.insert((step.service, step.transport));
                    path.push(self.service_and_endpoint(step));
                }
                path.extend(self.frontend(*at));
            }
            lines.push(format!("{}: {LOOP}", path.join(" -> ")));
        }
        for lead in chains {
            if !said.insert((lead.service, lead.transport)) {
                continue;
            }
            if lines.len() >= MOST_SAID {
                unsaid += 1;
                continue;
            }
            let user = self.users.first(lead.service, lead.transport);
            let from = user.and_then(|user| self.frontend(user));
            let path = (from.into_iter())
                .chain([self.service_and_endpoint(lead)])
                .chain(self.frontend(lead.frontend));
            let path: Vec<String> = path.collect();
            lines.push(format!("{}: {CHAIN}", path.join(" -> ")));
        }
        if unsaid > 0 {
            lines.push(format!(
                "... and {unsaid} more services with endpoints that are frontends of this table"
            ));
        }
        lines
    }

    fn service_node(&self, lead: &Lead) -> usize {
        node(self.frontends.len(), lead.service, lead.transport)
    }

    /// `None`: this node of the graph is a service.
    fn frontend(&self, at: usize) -> Option<String> {
        let frontend = self.frontends.get(at)?;
        Some(format!("frontend {}", frontend.borrow().name))
    }

    fn service_and_endpoint(&self, lead: &Lead) -> String {
        let service = self.services.get(lead.service).map(Borrow::borrow);
        let endpoint = service.and_then(|service| service.endpoints.get(lead.endpoint));
        match (service, endpoint) {
            (Some(service), Some(endpoint)) => {
                format!("service {} -> endpoint {}", service.name, endpoint.address)
            }
            _ => String::new(),
        }
    }
}

const LOOP: &str = "a loop; no client is sent to these endpoints, and one for whom no other endpoint is left is refused with \
    the reason loop; remove them from their services, or move the frontend to another address";
const CHAIN: &str = "this endpoint is a frontend of the same table; its clients pass through Ballast twice, and count in both \
    frontends; if that is not wanted, use that frontend's service, or move the frontend to another address";
/// Lines for one table.
const MOST_SAID: usize = 20;
