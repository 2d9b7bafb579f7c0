//! Which Services that are no LoadBalancers are served, and which of them owns a bare name (a name without its namespace).

use std::collections::BTreeMap;

use super::annotations::{CONTRIB, OWN, Reader};
use super::knobs;
use super::notice::{About, Notice, Reason};
use crate::observe::{self, Key, Observed, Port, Service, ServiceKind};
use crate::settings::{Compat, HttpServices, Settings};

/// The Service that owns each bare name.
pub(super) struct BareNames<'a> {
    owners: BTreeMap<&'a str, &'a Service>,
}

impl<'a> BareNames<'a> {
    /// Of several Services of one name, the one in the home namespace owns the name, else the oldest.
    pub(super) fn of(observed: &'a Observed, settings: &Settings) -> Self {
        let mut owners: BTreeMap<&str, &Service> = BTreeMap::new();
        for service in observed
            .services
            .values()
            .filter(|service| contends(service, observed, settings))
        {
            let away = |service: &Service| service.key.namespace != settings.home();
            let place = owners.entry(&service.key.name).or_insert(service);
            if (away(service), service.age()) < (away(place), place.age()) {
                *place = service;
            }
        }
        Self { owners }
    }

    pub(super) fn owns(&self, service: &Service) -> bool {
        self.owner(service)
            .is_some_and(|owner| owner.key == service.key)
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
        if port.protocol != observe::Protocol::Tcp {
            return None;
        }
        let is_meant = |namespace: &Option<String>| match namespace {
            Some(namespace) => *namespace == service.key.namespace,
            None => self.owns(service),
        };
        let listed = settings.flags.tcp_services.all().iter();
        let mut listed =
            listed.filter(|entry| entry.name == service.key.name && entry.port == port.number);
        listed
            .find(|entry| is_meant(&entry.namespace))
            .map(|entry| entry.external)
    }

    /// Warns of entries of `--tcp-services` for which there is no Service.
    pub(super) fn unknown_tcp_services(
        &self,
        observed: &Observed,
        settings: &Settings,
    ) -> Vec<Notice> {
        let unknown = settings.flags.tcp_services.all().iter().filter(|entry| {
            let found = match &entry.namespace {
                None => self.owners.get(entry.name.as_str()).copied(),
                Some(namespace) => {
                    let key = Key::new(namespace, &entry.name);
                    observed.services.get(&key).map(|service| &**service)
                }
            };
            !found.is_some_and(|service| {
                is_eligible(service, observed, settings) && has_port(service, entry.port)
            })
        });
        unknown
            .map(|entry| {
                let message = format!(
                    "there is no Service {} with TCP port {}, or it is a LoadBalancer",
                    entry.name, entry.port
                );
                Notice::warning(
                    About::Flag("--tcp-services"),
                    Reason::NoSuchService,
                    message,
                )
            })
            .collect()
    }
}

/// Whether the shared port or `--tcp-services` may lead to a Service.
fn is_eligible(service: &Service, observed: &Observed, settings: &Settings) -> bool {
    let flags = &settings.flags;
    service.kind != ServiceKind::LoadBalancer
        && settings.looks_at(&service.key.namespace)
        && !service.deleting
        && flags
            .target_service
            .as_ref()
            .is_none_or(|name| *name == service.key.name)
        && !says_ignore(service, observed, settings)
}

fn says_ignore(service: &Service, observed: &Observed, settings: &Settings) -> bool {
    let keys = knobs::IGNORE.aliases.iter().copied();
    let mut keys = keys.chain(["ballast.dev/ignore"]);
    keys.any(|key| service.annotations.contains_key(key))
        && Reader::new(service, observed, settings)
            .knob(&knobs::IGNORE, None)
            .is_some_and(|found| found.value)
}

pub(super) fn contends(service: &Service, observed: &Observed, settings: &Settings) -> bool {
    may_contend(service, settings) && is_eligible(service, observed, settings)
}

/// The same, without looking at what `ballast.dev/ignore` says.
pub(super) fn may_contend(service: &Service, settings: &Settings) -> bool {
    let named = settings.flags.tcp_services.all().iter().any(|entry| {
        let here = entry
            .namespace
            .as_ref()
            .is_none_or(|namespace| *namespace == service.key.namespace);
        entry.name == service.key.name && here && has_port(service, entry.port)
    });
    named || wants_http(service, settings)
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
    service.annotations.keys().any(|key| {
        let own = key.strip_prefix(OWN).is_some_and(|rest| {
            ["host", "path"]
                .iter()
                .any(|name| rest == *name || rest.starts_with(&format!("{name}.")))
        });
        own || (key.starts_with(CONTRIB) && settings.reads(Compat::Contrib))
    })
}

fn has_port(service: &Service, number: u16) -> bool {
    service
        .ports
        .iter()
        .any(|port| port.number == number && port.protocol == observe::Protocol::Tcp)
}
