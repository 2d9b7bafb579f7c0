//! The warnings about services that lead to own frontends.

use std::borrow::Borrow;

use rustc_hash::{FxHashMap, FxHashSet};

use super::graph::Graph;
use super::{FrontendEdge, ServiceUsers, node};
use crate::table;
use crate::table::Transport;

/// Writes the warnings.
pub(super) struct WarningWriter<'a, F, S> {
    pub(super) frontends: &'a [F],
    pub(super) services: &'a [S],
    pub(super) users: &'a ServiceUsers,
    pub(super) graph: &'a Graph,
    pub(super) frontend_edges: &'a [FrontendEdge],
}

impl<F: Borrow<table::Frontend>, S: Borrow<table::Service>> WarningWriter<'_, F, S> {
    /// One line for each loop, then one for each service that leads to another frontend. Each service is named by one line
    /// only.
    pub(super) fn warnings(
        &self,
        closing: &[FrontendEdge],
        chains: &[FrontendEdge],
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let mut omitted = 0;
        let mut said: FxHashSet<(usize, Transport)> = FxHashSet::default();
        // One endpoint for each step from a service to a frontend.
        let steps: FxHashMap<(usize, usize), &FrontendEdge> = (self.frontend_edges.iter().rev())
            .map(|edge| ((self.service_node(edge), edge.frontend), edge))
            .collect();
        for edge in closing {
            if said.contains(&(edge.service, edge.transport)) {
                continue;
            }
            if lines.len() >= MAX_LINES {
                said.insert((edge.service, edge.transport));
                omitted += 1;
                continue;
            }
            let mut way = self
                .graph
                .shortest_path(edge.frontend, self.service_node(edge));
            way.push(edge.frontend);
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
        for edge in chains {
            if !said.insert((edge.service, edge.transport)) {
                continue;
            }
            if lines.len() >= MAX_LINES {
                omitted += 1;
                continue;
            }
            let user = self.users.first(edge.service, edge.transport);
            let from = user.and_then(|user| self.frontend(user));
            let path = (from.into_iter())
                .chain([self.service_and_endpoint(edge)])
                .chain(self.frontend(edge.frontend));
            let path: Vec<String> = path.collect();
            lines.push(format!("{}: {CHAIN}", path.join(" -> ")));
        }
        if omitted > 0 {
            lines.push(format!(
                "... and {omitted} more services with endpoints that are frontends of this table"
            ));
        }
        lines
    }

    fn service_node(&self, edge: &FrontendEdge) -> usize {
        node(self.frontends.len(), edge.service, edge.transport)
    }

    /// `None`: this node of the graph is a service.
    fn frontend(&self, at: usize) -> Option<String> {
        let frontend = self.frontends.get(at)?;
        Some(format!("frontend {}", frontend.borrow().name))
    }

    fn service_and_endpoint(&self, edge: &FrontendEdge) -> String {
        let service = self.services.get(edge.service).map(Borrow::borrow);
        let endpoint = service.and_then(|service| service.endpoints.get(edge.endpoint));
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
/// The most lines for one table.
const MAX_LINES: usize = 20;
