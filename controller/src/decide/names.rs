//! Which Services that are no LoadBalancers are served, and which of them owns a bare name (a name without its namespace).

use std::collections::BTreeMap;

use super::annotations::{CONTRIB, OWN, Reader, knobs};
use super::notice::{About, Notice, Reason};
use crate::observe::{Key, Observed, Port, Protocol, Service, ServiceKind};
use crate::settings::{Compat, HttpServices, Settings, TcpService};

/// The Service that owns each bare name.
pub(super) struct BareNames<'a> {
    owners: BTreeMap<&'a str, &'a Service>,
}

impl<'a> BareNames<'a> {
    /// Of several Services of one name, the one in the home namespace owns the name, else the oldest.
    pub(super) fn of(observed: &'a Observed, settings: &Settings) -> Self {
        let mut owners: BTreeMap<&str, &Service> = BTreeMap::new();
        let away = |service: &Service| service.key.namespace != settings.home();
        for service in observed.services.values() {
            if contends(service, observed, settings) {
                let place = owners.entry(&service.key.name).or_insert(service);
                if (away(service), service.age()) < (away(place), place.age()) {
                    *place = service;
                }
            }
        }
        Self { owners }
    }

    pub(super) fn owns(&self, service: &Service) -> bool {
        let owner = self.owner(service);
        owner.is_some_and(|owner| owner.key == service.key)
    }

    pub(super) fn owner(&self, service: &Service) -> Option<&'a Service> {
        self.owners.get(service.key.name.as_str()).copied()
    }

    /// The port of the node that `--tcp-services` gives to a Service port.
    pub(super) fn listed(
        &self,
        settings: &Settings,
        service: &Service,
        port: &Port,
    ) -> Option<u16> {
        let is_meant = |entry: &&TcpService| {
            let is_here = match &entry.namespace {
                Some(namespace) => *namespace == service.key.namespace,
                None => self.owns(service),
            };
            entry.name == service.key.name && entry.port == port.number && is_here
        };
        let mut listed = settings.flags.tcp_services.0.iter();
        let found = listed.find(|entry| port.protocol == Protocol::Tcp && is_meant(entry));
        found.map(|entry| entry.external)
    }

    /// Warns of entries of `--tcp-services` for which there is no Service.
    pub(super) fn unknown_tcp_services(
        &self,
        observed: &Observed,
        settings: &Settings,
    ) -> Vec<Notice> {
        let is_known = |entry: &TcpService| {
            let found = match &entry.namespace {
                None => self.owners.get(entry.name.as_str()).copied(),
                Some(namespace) => {
                    let key = Key::new(namespace, &entry.name);
                    observed.services.get(&key).map(|service| &**service)
                }
            };
            found.is_some_and(|service| {
                is_eligible(service, observed, settings) && has_port(service, entry.port)
            })
        };
        let listed = settings.flags.tcp_services.0.iter();
        let unknown = listed.filter(|entry| !is_known(entry));
        let notices = unknown.map(|TcpService { name, port, .. }| {
            let about = About::Flag("--tcp-services");
            let message =
                format!("there is no Service {name} with TCP port {port}, or it is a LoadBalancer");
            Notice::warning(about, Reason::NoSuchService, message)
        });
        notices.collect()
    }
}

/// Whether the shared port or `--tcp-services` may lead to a Service.
fn is_eligible(service: &Service, observed: &Observed, settings: &Settings) -> bool {
    let target = settings.flags.target_service.as_ref();
    service.kind != ServiceKind::LoadBalancer
        && settings.looks_at(&service.key.namespace)
        && !service.deleting
        && target.is_none_or(|name| *name == service.key.name)
        && !says_ignore(service, observed, settings)
}

fn says_ignore(service: &Service, observed: &Observed, settings: &Settings) -> bool {
    let keys = knobs::IGNORE.aliases.iter().copied();
    let mut keys = keys.chain(["ballast.dev/ignore"]);
    keys.any(|key| service.annotations.contains_key(key))
        && Reader::new(service, observed, settings).is_on(&knobs::IGNORE, None)
}

pub(super) fn contends(service: &Service, observed: &Observed, settings: &Settings) -> bool {
    may_contend(service, settings) && is_eligible(service, observed, settings)
}

/// The same, without looking at what `ballast.dev/ignore` says.
pub(super) fn may_contend(service: &Service, settings: &Settings) -> bool {
    let is_named = |entry: &TcpService| {
        let namespace = entry.namespace.as_ref();
        entry.name == service.key.name
            && namespace.is_none_or(|namespace| *namespace == service.key.namespace)
            && has_port(service, entry.port)
    };
    settings.flags.tcp_services.0.iter().any(is_named) || wants_http(service, settings)
}

pub(super) fn wants_http(service: &Service, settings: &Settings) -> bool {
    match settings.flags.http_services {
        HttpServices::All => true,
        HttpServices::None => false,
        HttpServices::Annotated => asks_for_route(service, settings),
    }
}

/// Whether an annotation asks for a route of a shared port.
pub(super) fn asks_for_route(service: &Service, settings: &Settings) -> bool {
    let is_one = |key: &String| match key.strip_prefix(OWN) {
        Some(rest) => matches!(rest.split('.').next(), Some("host" | "path")),
        None => key.starts_with(CONTRIB) && settings.reads(Compat::Contrib),
    };
    service.annotations.keys().any(is_one)
}

fn has_port(service: &Service, number: u16) -> bool {
    let mut ports = service.ports.iter();
    ports.any(|port| port.number == number && port.protocol == Protocol::Tcp)
}
