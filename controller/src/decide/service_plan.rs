//! The plan of one Service: its ports of the node, its routes on the shared ports, its status and its events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ballast_core::table::{self, Certificate, Frontend, HostPattern, PathMatch, Route};

use super::annotations::{LAST_GOOD, Reader, TOLD};
use super::files::WantedFile;
use super::notice::{About, Notice, Reason};
use super::placement::Placement;
use super::shares::Shares;
use super::site::Reach;
use super::status::Status;
use crate::allocation::{At, NodePort};
use crate::observe::{Remembered, Service, Wanted};

pub(super) struct ServicePlan<'a> {
    pub(super) service: &'a Service,
    pub(super) status: Status,
    /// Where a LoadBalancer is served; `None` for other Services, and if it cannot be.
    pub(super) placement: Option<Placement<'a>>,
    /// The addresses that a LoadBalancer without a placement asks for, if that is known.
    pub(super) asks_at: Option<At>,
    /// Ports that it was given and that are not planned, since an annotation cannot be read.
    pub(super) unread: BTreeSet<NodePort>,
    pub(super) ports: Vec<PortPlan>,
    pub(super) routes: Vec<SharedRoute>,
    pub(super) files: BTreeSet<WantedFile>,
    pub(super) wanted: Wanted,
    pub(super) notices: BTreeSet<Notice>,
    /// Events that follow from what only nodes read.
    pub(super) node_notices: BTreeSet<Notice>,
    pub(super) memory: BTreeMap<String, (String, String)>,
}

impl<'a> ServicePlan<'a> {
    pub(super) fn nothing(service: &'a Service, status: Status) -> Self {
        Self {
            service,
            status,
            placement: None,
            asks_at: None,
            unread: BTreeSet::new(),
            ports: Vec::new(),
            routes: Vec::new(),
            files: BTreeSet::new(),
            wanted: Wanted::default(),
            notices: BTreeSet::new(),
            node_notices: BTreeSet::new(),
            memory: BTreeMap::new(),
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
        self.memory = reader.memory;
        self
    }

    /// For a Service with an annotation to ignore it: the last good values are remembered, and the Service is not written.
    pub(super) fn left_alone_by(mut self, reader: Reader<'_>) -> Self {
        self.notices = reader.notices;
        self.memory = reader.memory;
        self
    }

    /// For a Service that asks for nothing: if it did before, our annotations on it are removed.
    pub(super) fn withdrawn(mut self, before: &Remembered) -> Self {
        let service = self.service;
        let is_there = |key: &&str| service.annotations.contains_key(*key);
        let marks = [LAST_GOOD, TOLD].into_iter().filter(is_there);
        let marks: BTreeSet<String> = marks.map(str::to_owned).collect();
        // Without remembered values, the annotations may be those of another Ballast.
        if let Some(memory) = before.get(&service.key)
            && !marks.is_empty()
        {
            self.memory = memory.clone();
            self.status.stale_annotations = marks;
        }
        self
    }

    /// Serves nothing of the Service for now, once its ports were granted: its lookups are not done.
    pub(super) fn hold(&mut self) {
        self.ports.clear();
        self.routes.clear();
        self.files.clear();
        self.node_notices.clear();
    }

    /// Adds a Warning about the Service.
    pub(super) fn warn(&mut self, reason: Reason, message: impl Into<String>) {
        let about = About::Service(self.service.key.clone());
        self.notices.insert(Notice::warning(about, reason, message));
    }

    /// Whether an annotation asks for a route of this shared port.
    pub(super) fn asks_for_route(&self, secure: bool) -> bool {
        let mut routes = self.routes.iter();
        routes.any(|route| route.secure == secure && route.by_annotation)
    }

    /// Adds a Warning about the Service, which follows from what this node alone knows.
    pub(super) fn warn_by_node(&mut self, reason: Reason, message: impl Into<String>) {
        let about = About::Service(self.service.key.clone());
        let notice = Notice::warning(about, reason, message);
        self.node_notices.insert(notice);
    }

    /// The ports of the node that the Service asks for.
    pub(super) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.ports.iter().map(|port| &port.claim)
    }
}

/// A port of the node that a Service asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) port: NodePort,
    pub(super) reach: Reach,
}

impl Claim {
    pub(super) fn everywhere(port: NodePort) -> Self {
        let reach = Reach::Everywhere;
        Self { port, reach }
    }

    /// A claim at the addresses that a Service was given.
    pub(super) fn at(port: NodePort, at: &At) -> Self {
        let reach = match at {
            At::Node | At::NodeInternal => Reach::Everywhere,
            At::Addresses(addresses) => Reach::At(addresses.clone()),
        };
        Self { port, reach }
    }
}

/// A port of the node that leads to one Service port.
pub(super) struct PortPlan {
    pub(super) claim: Claim,
    /// Without binds if the port is not served on this node.
    pub(super) frontend: Frontend,
    pub(super) backend: table::Service,
    /// The services of its canaries.
    pub(super) canaries: Vec<table::Service>,
    /// Whether the port stays closed, since its certificate cannot be used, or another Service has it here. Its claim holds.
    pub(super) closed: bool,
    /// Whether the Service was given the port.
    pub(super) given: bool,
    /// Whether another Service, which was given the port earlier, has it on this node.
    pub(super) taken: bool,
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

/// Which shared ports exist.
#[derive(Clone, Copy)]
pub(super) struct SharedPorts {
    pub(super) http: bool,
    pub(super) https: bool,
}

impl SharedPorts {
    pub(super) fn has(self, secure: bool) -> bool {
        if secure { self.https } else { self.http }
    }

    /// Removes a shared port that another Service owns.
    pub(super) fn remove(&mut self, secure: bool) {
        match secure {
            true => self.https = false,
            false => self.http = false,
        }
    }
}

/// The names of the frontends of the shared ports.
pub(super) const HTTP: &str = "http";

pub(super) const HTTPS: &str = "https";
