//! The plan of one Service: the ports of the node and the routes on the shared ports that it asks for, with its status and its events
//! as far as they follow from itself. Nothing of it changes once it is made: what becomes of it is a `Grant`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ballast_core::table::{self, Certificate, Frontend, HostPattern, Name, PathMatch, Route};

use super::annotations::{LAST_GOOD, Reader};
use super::asks::Asked;
use super::files::WantedFile;
use super::notice::{About, Notice, Reason};
use super::placement::Placement;
use super::shares::Shares;
use super::status::{Status, Verdict};
use crate::allocation::{Allocated, At, NodePort};
use crate::observe::{Remembered, Service, Wanted};
use crate::settings::{HTTPS_PORT, Settings};

pub(super) struct ServicePlan {
    pub(super) service: Arc<Service>,
    pub(super) status: Status,
    /// Where a LoadBalancer is served; `None` for other Services, and if it cannot be.
    pub(super) placement: Option<Placement>,
    /// What it asks of address pools; `None`: its addresses are those of nodes.
    pub(super) asked: Option<Asked>,
    /// The addresses that a LoadBalancer without a placement asks for, if that is known.
    pub(super) asks_at: Option<At>,
    /// The ports that it was given and still has in its spec, and that are not planned, since an annotation cannot be read.
    pub(super) unread: BTreeSet<NodePort>,
    /// Whether it keeps the shared HTTP and HTTPS ports that it was given, whatever is planned: an annotation cannot be read.
    pub(super) keeps_routes: [bool; 2],
    pub(super) ports: Vec<PortPlan>,
    pub(super) routes: Vec<SharedRoute>,
    pub(super) files: BTreeSet<WantedFile>,
    pub(super) wanted: Wanted,
    pub(super) notices: BTreeSet<Notice>,
    /// Events that follow from what only nodes read.
    pub(super) node_notices: BTreeSet<Notice>,
    pub(super) memory: Arc<BTreeMap<String, (String, String)>>,
    /// Whether it may be another one where other last good values are remembered.
    pub(super) looks_back: bool,
}

impl ServicePlan {
    pub(super) fn nothing(service: &Arc<Service>, status: Status) -> Self {
        Self {
            service: Arc::clone(service),
            status,
            placement: None,
            asked: None,
            asks_at: None,
            unread: BTreeSet::new(),
            keeps_routes: [false; 2],
            ports: Vec::new(),
            routes: Vec::new(),
            files: BTreeSet::new(),
            wanted: Wanted::default(),
            notices: BTreeSet::new(),
            node_notices: BTreeSet::new(),
            memory: Arc::default(),
            looks_back: true,
        }
    }

    /// Adds what a reader found in the annotations.
    pub(super) fn with_findings(mut self, mut reader: Reader<'_>) -> Self {
        let written = self.service.annotations.get(LAST_GOOD);
        match reader.last_good() {
            Some(text) if written != Some(&text) => {
                let annotations = &mut self.status.annotations;
                annotations.insert(LAST_GOOD.to_owned(), text);
            }
            None if written.is_some() => {
                let stale = &mut self.status.stale_annotations;
                stale.insert(LAST_GOOD.to_owned());
            }
            _ => {}
        }
        self.notices.append(&mut reader.notices);
        self.node_notices.append(&mut reader.node_notices);
        self.wanted.nodes |= reader.needs_nodes;
        self.looks_back = reader.looks_back;
        self.memory = Arc::new(reader.memory);
        self
    }

    /// For a Service with an annotation to ignore it: the last good values are remembered, and the Service is not written.
    pub(super) fn left_alone_by(mut self, reader: Reader<'_>) -> Self {
        self.notices = reader.notices;
        self.memory = Arc::new(reader.memory);
        self
    }

    /// For a Service that asks for nothing: if it did before, our annotations on it are removed.
    pub(super) fn withdrawn(mut self, before: &Remembered) -> Self {
        let service = &self.service;
        // Without remembered values, the annotation may be that of another Ballast.
        if let Some(memory) = before.get(&service.key)
            && service.annotations.contains_key(LAST_GOOD)
        {
            self.memory = Arc::clone(memory);
            self.status.stale_annotations.insert(LAST_GOOD.to_owned());
        }
        self
    }

    /// Adds a Warning about the Service.
    pub(super) fn warn(&mut self, reason: Reason, message: impl Into<String>) {
        let about = About::Service(self.service.key.clone());
        self.notices.insert(Notice::warning(about, reason, message));
    }

    /// Keeps the shared ports that the Service was given.
    pub(super) fn keep_routes(&mut self, settings: &Settings) {
        if let Some(allocated) = &self.service.allocated {
            let given = &allocated.allocation.routes;
            self.keeps_routes =
                [false, true].map(|secure| given.contains(&shared_number(settings, secure)));
        }
        if self.keeps_routes.contains(&true) && self.status.verdict == Verdict::LeftAlone {
            self.status.verdict = Verdict::Routed;
        }
    }

    /// Drops a port that would listen at the same port of the node as an earlier port of the same Service.
    pub(super) fn drop_doubles(&mut self) {
        let mut seen = BTreeSet::new();
        let mut lost = Vec::new();
        self.ports.retain(|plan| {
            let is_new = seen.insert(plan.port);
            if !is_new {
                lost.push(format!("{} would listen at port {}, as another port of this Service does; it is not served", plan.name, plan.port.number));
            }
            is_new
        });
        for message in lost {
            self.warn(Reason::AllocationFailed, message);
        }
    }

    /// Finds the ports that the Service has, and still has in its spec, of which no plan could be made: an annotation cannot be read.
    pub(super) fn find_unread(&mut self) {
        let service = Arc::clone(&self.service);
        let Some(Allocated { allocation, .. }) = &service.allocated else {
            return;
        };
        let mut keys = service.annotations.keys();
        let moves_ports = keys.any(|key| key.contains("external-port"));
        let is_asked = |port: &&NodePort| {
            let mut planned = self.ports.iter();
            let mut asked = service.ports.iter();
            let is_in_spec =
                asked.any(|asked| NodePort::of(asked.number, asked.protocol) == **port);
            let is_planned = planned.any(|plan| plan.port == **port);
            let has_more = self.ports.len() < service.ports.len();
            !is_planned && (is_in_spec || (moves_ports && has_more))
        };
        self.unread = allocation.ports.iter().filter(is_asked).copied().collect();
    }
}

/// A port of the node that leads to one Service port.
pub(super) struct PortPlan {
    pub(super) port: NodePort,
    /// The name of its frontend.
    pub(super) name: Name,
    /// What it is in a table. `None`: at the publisher, which writes none.
    pub(super) parts: Option<Box<Parts>>,
    /// Whether the port stays closed, since its certificate cannot be used. Its claim holds.
    pub(super) closed: bool,
}

/// What a port becomes in a table.
#[derive(Clone)]
pub(super) struct Parts {
    /// It has no binds yet.
    pub(super) frontend: Frontend,
    pub(super) backend: table::Service,
    /// The services of its canaries.
    pub(super) canaries: Vec<table::Service>,
}

/// A route of a shared port.
#[derive(Clone)]
pub(super) struct SharedRoute {
    /// Whether the route is on the HTTPS port; else it is on the HTTP port.
    pub(super) secure: bool,
    /// Whether an annotation asks for it; else it exists by `--http-services=all` alone.
    pub(super) by_annotation: bool,
    pub(super) route: Route,
    /// The certificate that the HTTPS port needs for the route.
    pub(super) certificate: Option<Certificate>,
    /// The service to which the route leads. All routes of a Service port share one, with its endpoints.
    pub(super) backend: Option<Arc<table::Service>>,
    /// The canaries that it leads to as well.
    pub(super) shares: Arc<Shares>,
    /// Whether the route is not served, since its certificate cannot be used. Its claim holds.
    pub(super) closed: bool,
}

impl SharedRoute {
    /// The keys by which conflicts between routes are found: the requests of the route, which no other route may have; and on the
    /// HTTPS port its host, with whether connections are relayed unopened, which must be the same for all routes of the host.
    pub(super) fn places(&self) -> Vec<(String, Option<bool>)> {
        let route = &self.route;
        let scheme = if self.secure { "https" } else { "http" };
        let host = route.host.as_ref().map(HostPattern::to_string);
        let host = host.unwrap_or_else(|| "*".to_owned());
        let (path, kind, case) = match (route.path(), route.ignore_case) {
            ("/", _) => ("/".to_owned(), PathMatch::Segment, ""),
            (path, true) => (path.to_ascii_lowercase(), route.r#match, ", any case"),
            (path, false) => (path.to_owned(), route.r#match, ""),
        };
        let mut places = vec![(format!("{scheme}://{host}{path} ({kind}{case})"), None)];
        if self.secure {
            places.push((format!("{scheme}://{host}"), Some(route.passthrough)));
        }
        places
    }
}

/// The number of the shared HTTPS port, or of the shared HTTP port.
pub(super) fn shared_number(settings: &Settings, secure: bool) -> u16 {
    match secure {
        true => HTTPS_PORT,
        false => settings.flags.http_port,
    }
}

/// The names of the frontends of the shared ports.
pub(super) const HTTP: &str = "http";

pub(super) const HTTPS: &str = "https";
