//! Services of type LoadBalancer that are ours: a port of the node for every port of the Service.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ballast_core::table::{Name, Text};

use super::annotations::{ADDRESS, ID, O, Reader};
use super::claims::Claim;
use super::endpoints::Scope;
use super::files::{self, WantedFile};
use super::knobs::{self, By, Tls, Wish};
use super::nodes::Here;
use super::notice::{About, Notice, Reason};
use super::place::{self, Place};
use super::ranges::Ranges;
use super::served::Expected;
use super::status::{PortError, Status, Verdict, is_foreign, is_to_be_given_back};
use super::table::{Offer, backend, frontend};
use super::{Asked, World, endpoints, health};
use crate::observe::{Key, Port, Protocol, Secret, Service};
use crate::settings::{Family, Role};

/// What a LoadBalancer of ours asks for.
pub(super) fn ask<'a>(world: &World<'a>, service: &'a Service) -> Asked<'a> {
    let mut reader = Reader::new(service, world.observed, world.settings);
    if reader
        .knob(&knobs::IGNORE, None)
        .is_some_and(|found| found.value)
    {
        let why = "an annotation says ignore";
        let status = match is_to_be_given_back(service, world.settings) {
            true => Status::released(service, why, world.settings),
            false => Status::left_alone(service, why),
        };
        return Asked::nothing(service, status).ignored(reader);
    }
    let mut taken_from = None;
    if is_foreign(service) {
        let says = reader.knob(&knobs::TAKE_OVER, None);
        let is_wanted = world.settings.take_over || says.is_some_and(|found| found.value);
        if !is_wanted || !world.observed.abandoned.contains(&service.key) {
            return foreign(service);
        }
        taken_from = Some(writer(service).to_owned());
    }
    reader.remark();
    remark_slices(world, &mut reader);
    place::wait_for_pools(&mut reader);
    let why = "a LoadBalancer has ports of its own; hosts and paths are for other Services, on the shared port";
    reader.without_effect(&["host", "path", "rewrite"], why);
    let mut asked = Asked::nothing(service, Status::new(service, Verdict::Served, ""));
    match place::find(world, &mut reader) {
        Err(why) => {
            reader.keep_ports();
            asked.status = Status::pending(service, why);
        }
        Ok(place) => {
            for port in served_ports(&mut reader) {
                open(world, &mut reader, &place, port, &mut asked);
            }
            if asked.offers.iter().all(|offer| offer.closed) {
                let port_errors = std::mem::take(&mut asked.status.port_errors);
                asked.status = Status {
                    port_errors,
                    ..Status::pending(service, "none of its ports can be served")
                };
            }
            if asked
                .offers
                .iter()
                .all(|offer| offer.frontend.bind.is_empty())
            {
                // A node that does not serve it keeps none of its keys.
                asked.files.clear();
            }
            asked.place = Some(place);
        }
    }
    asked.status.taken_from = taken_from;
    asked.read_by(reader)
}

/// A Service of no class that somebody else publishes.
fn foreign(service: &Service) -> Asked<'_> {
    let status = Status::left_alone(service, "somebody else publishes it");
    let mut asked = Asked::nothing(service, status);
    let writer = writer(service);
    let message = format!(
        "{writer} publishes this Service at {}, so Ballast does not touch it; to have it published by Ballast once {writer} has not written its status for a minute: \"ballast-controller publish --take-over\", or the annotation ballast.dev/take-over: \"true\" on this Service",
        service.ingress.join(", ")
    );
    asked.notices.insert(Notice::warning(
        About::Service(service.key.clone()),
        Reason::ForeignStatus,
        message,
    ));
    asked
}

/// The other controller that publishes a Service, as far as it can be seen.
fn writer(service: &Service) -> &str {
    let rival = service.rival.as_ref();
    rival.map_or("another controller", |rival| &rival.manager)
}

/// The ports of a Service that are served: the first ones, in the order of its spec. Its owner is told which are not.
pub(super) fn served_ports<'a>(reader: &mut Reader<'a>) -> &'a [Port] {
    let ports = &reader.service.ports;
    let most = usize::from(reader.settings.flags.max_ports_per_service);
    let Some((served, others)) = ports
        .split_at_checked(most)
        .filter(|(_, others)| !others.is_empty())
    else {
        return ports;
    };
    let message = format!(
        "this Service has {} ports, and at most {most} of one Service are served (--max-ports-per-service); not served: {}",
        ports.len(),
        port_ranges(others)
    );
    reader.warn(Reason::TooManyPorts, message);
    served
}

/// The numbers of ports, as ranges: `257-5000/TCP, 53/UDP`.
fn port_ranges(ports: &[Port]) -> String {
    let numbers = ports.iter().map(|port| (port.protocol, port.number));
    let numbers: BTreeSet<(Protocol, u16)> = numbers.collect();
    let mut ranges: Vec<(Protocol, u16, u16)> = Vec::new();
    for (protocol, number) in numbers {
        match ranges.last_mut() {
            Some((of, _, last)) if *of == protocol && last.checked_add(1) == Some(number) => {
                *last = number;
            }
            _ => ranges.push((protocol, number, number)),
        }
    }
    let words = ranges
        .into_iter()
        .map(|(protocol, first, last)| match first == last {
            true => format!("{first}/{}", protocol.word()),
            false => format!("{first}-{last}/{}", protocol.word()),
        });
    words.collect::<Vec<_>>().join(", ")
}

/// One port of a Service.
fn open(
    world: &World<'_>,
    reader: &mut Reader<'_>,
    place: &Place<'_>,
    port: &Port,
    asked: &mut Asked<'_>,
) {
    if port.protocol == Protocol::Sctp {
        reader.warn(Reason::SyncLoadBalancerFailed, format!("Error syncing load balancer: port {}/SCTP is not served; Ballast speaks TCP and UDP", port.number));
        asked
            .status
            .port_errors
            .push(PortError::unsupported(port.number, port.protocol));
        return;
    }
    let wish = Wish::read(reader, port, By::OwnPort);
    let check = health::check(reader, &world.slices, port);
    let external = external(reader, port);
    let (front_text, back_text) = descriptions(reader, port);
    if wish.ranges == Ranges::Closed {
        return;
    }
    let (certificate, closed) = match certificate(world, reader, &wish, port, asked) {
        Ends::Nowhere => return,
        Ends::Closed => (None, true),
        Ends::Open(certificate) => (certificate, false),
    };
    let service = reader.service;
    let Some(name) = qualified(&service.key, port) else {
        return;
    };
    let scope = Scope {
        nodes: wish
            .target_nodes
            .as_ref()
            .filter(|_| endpoints::goes_by_node(world.settings, service)),
        only_on: match world.nodes.here {
            Here::Serves(node) if place.strict => Some(&node.name),
            _ => None,
        },
    };
    asked.wanted.nodes |= scope.nodes.is_some();
    let endpoints = world.slices.endpoints(world, service, port, scope);
    let binds = place.site.binds(world.nodes.here, external);
    asked.offers.push(Offer {
        claim: Claim {
            udp: port.protocol == Protocol::Udp,
            port: external,
            reach: place.reach.clone(),
        },
        frontend: frontend(&name, front_text, &service.key, &wish, certificate, binds),
        backend: backend(&name, back_text, service, port, &wish, check, endpoints),
        closed,
    });
}

/// Slices of names, and addresses of no host, are not read: their owner is told once.
pub(super) fn remark_slices(world: &World<'_>, reader: &mut Reader<'_>) {
    let slices = world.slices.of_service(&reader.service.key);
    if let Some((address, what)) = endpoints::unusable(slices) {
        let message = format!(
            "Error syncing load balancer: the endpoint {address} is {what}; it is left out"
        );
        reader.warn_by_node(Reason::SyncLoadBalancerFailed, message);
    }
    if endpoints::have_names(slices) {
        reader.warn_by_node(
            Reason::SyncLoadBalancerFailed,
            "Error syncing load balancer: an EndpointSlice of addressType FQDN is not read; use IPv4 or IPv6, or a Service of type ExternalName",
        );
    }
}

/// Says where a Service is published, once every port has its owner.
pub(super) fn publish(world: &World<'_>, asked: &mut Asked<'_>, expected: &Expected<'_>) {
    let is_host = matches!(world.nodes.here, Here::Host);
    let service = asked.service;
    let status = &mut asked.status;
    let mut addresses = Vec::new();
    match (&asked.place, status.verdict) {
        (Some(place), Verdict::Served) => {
            let (ingress, found) = place.published(world, service, expected);
            if ingress.is_empty() && !is_host {
                place.why_not().clone_into(&mut status.why);
            }
            status.ingress = ingress;
            addresses = found;
        }
        (_, Verdict::Pending) if !is_host => {}
        _ => return,
    }
    if world.settings.reads(Family::Openstack) {
        write_outputs(service, &addresses, is_host, status);
    }
}

/// The annotations that OpenStack's users read, where they are not there yet, or say what is no more.
fn write_outputs(service: &Service, addresses: &[IpAddr], is_host: bool, status: &mut Status) {
    if !service.annotations.keys().any(|key| key.starts_with(O)) {
        return;
    }
    let there = service.annotations.get(ADDRESS);
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let addresses = addresses.join(",");
    if addresses.is_empty() {
        // A host knows no address of its own.
        let is_stale = there.is_some() && !is_host;
        let stale = is_stale.then(|| ADDRESS.to_owned());
        status.stale_annotations.extend(stale);
    } else if there != Some(&addresses) {
        status.annotations.insert(ADDRESS.to_owned(), addresses);
    }
    let is_new = !service.uid.is_empty() && !service.annotations.contains_key(ID);
    if is_new && status.verdict == Verdict::Served {
        let id = service.uid.clone();
        status.annotations.insert(ID.to_owned(), id);
    }
}

/// The port of the node.
fn external(reader: &mut Reader<'_>, port: &Port) -> u16 {
    let Some(found) = reader.knob(&knobs::EXTERNAL_PORT, Some(port)) else {
        return port.number;
    };
    let whole = !found.key.contains(&format!(".{}", port.number));
    match found.value.as_slice() {
        [(None, _)] if whole && reader.service.ports.len() > 1 => {
            let message = format!(
                "{}: this Service has several ports; say 80:8080, 443:8443; it is ignored",
                found.key
            );
            reader.warn(Reason::InvalidAnnotation, message);
            port.number
        }
        [(None, external)] => *external,
        map => map
            .iter()
            .find(|(inner, _)| *inner == Some(port.number))
            .map_or(port.number, |(_, external)| *external),
    }
}

/// Of the frontend and of the table's service. Exoscale's words for the latter count for Services of one port only.
fn descriptions(reader: &mut Reader<'_>, port: &Port) -> (Option<Text>, Option<Text>) {
    let some = Some(port);
    let name = reader
        .knob(&knobs::DISPLAY_NAME, some)
        .map(|found| found.value);
    let description = reader
        .knob(&knobs::DESCRIPTION, some)
        .map(|found| found.value);
    let front = text(name.clone(), description.clone());
    if reader.service.ports.len() > 1 {
        return (front.clone(), front);
    }
    let name = reader
        .knob(&knobs::SERVICE_NAME, some)
        .map(|found| found.value)
        .or(name);
    let description = reader
        .knob(&knobs::SERVICE_DESCRIPTION, some)
        .map(|found| found.value)
        .or(description);
    (front, text(name, description))
}

fn text(name: Option<String>, description: Option<String>) -> Option<Text> {
    let parts: Vec<String> = [name, description]
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(": ").parse().ok().filter(|_| !parts.is_empty())
}

/// Where TLS of a port ends.
pub(super) enum Ends {
    /// It is not served, whatever Secrets there are.
    Nowhere,
    /// Its certificate cannot be had now: it stays closed, and keeps its port.
    Closed,
    /// Not here, or with this certificate.
    Open(Option<ballast_core::table::Certificate>),
}

/// The certificate of a port where TLS ends.
pub(super) fn certificate(
    world: &World<'_>,
    reader: &mut Reader<'_>,
    wish: &Wish,
    port: &Port,
    asked: &mut Asked<'_>,
) -> Ends {
    let key = match &wish.tls {
        Tls::Plain => return Ends::Open(None),
        Tls::Closed => return Ends::Nowhere,
        Tls::Default => return Ends::Open(Some(WantedFile::default_certificate())),
        Tls::Secret(key) => key,
    };
    if world.settings.role == Role::Publisher {
        // Nodes read Secrets, and say which they cannot use.
        return Ends::Open(None);
    }
    asked.wanted.secrets.insert(key.clone());
    let found = world.observed.secrets.get(key);
    if found != Some(&Secret::Forbidden) && !may_use(world, reader.service, key, found, asked) {
        refuse_reference(world, reader, key, port);
        return Ends::Closed;
    }
    let why = match found {
        Some(Secret::Readable(material)) => match files::flaw(material) {
            Some(flaw) => flaw.to_owned(),
            None => {
                let (certificate, wanted) = WantedFile::of_secret(key);
                asked.files.extend(wanted);
                return Ends::Open(Some(certificate));
            }
        },
        Some(Secret::Forbidden) => {
            let own = &world.settings.own_namespace;
            format!(
                "may not be read; allow it with: kubectl create rolebinding ballast-tls --namespace={} --clusterrole=ballast-tls --serviceaccount={own}:ballast",
                key.namespace
            )
        }
        None if looks_up(world) && !world.observed.looked_up.secrets.contains(key) => {
            "could not be read yet: the API server does not answer".to_owned()
        }
        None => "does not exist".to_owned(),
    };
    reader.warn_by_node(
        Reason::SecretUnreadable,
        format!("port {} stays closed: Secret {key} {why}", port.number),
    );
    Ends::Closed
}

/// Whether a Service may use a Secret: one of its own namespace, or one that permits it. The ReferenceGrants are looked up only
/// where the Secret itself does not permit it.
fn may_use(
    world: &World<'_>,
    service: &Service,
    key: &Key,
    found: Option<&Secret>,
    asked: &mut Asked<'_>,
) -> bool {
    let from = &service.key.namespace;
    if key.namespace == *from {
        return true;
    }
    if let Some(Secret::Readable(material)) = found
        && material.allows(from)
    {
        return true;
    }
    let is_read = !looks_up(world) || world.observed.looked_up.secrets.contains(key);
    if is_read {
        asked.wanted.grants.insert(key.namespace.clone());
    }
    let mut grants = world
        .observed
        .grants
        .get(&key.namespace)
        .into_iter()
        .flatten();
    grants.any(|grant| grant.permits(from, &key.name))
}

/// Warns of a Secret that the Service may not use. The message does not tell whether the Secret exists: that is known to its own
/// namespace only.
fn refuse_reference(world: &World<'_>, reader: &mut Reader<'_>, key: &Key, port: &Port) {
    let from = &reader.service.key.namespace;
    let looked_up = &world.observed.looked_up;
    let is_known = looked_up.secrets.contains(key) && looked_up.grants.contains(&key.namespace);
    let why = match looks_up(world) && !is_known {
        true => "whether it permits that is not known yet".to_owned(),
        false => format!(
            "it must have the annotation ballast.dev/allow-from: \"{from}\", or a ReferenceGrant there must permit Services of {from}"
        ),
    };
    let message = format!(
        "port {} stays closed: Secret {key} is of another namespace, which does not permit its use from {from}; {why}",
        port.number
    );
    reader.warn_by_node(Reason::RefNotPermitted, message);
}

/// Whether Secrets and ReferenceGrants are looked up one by one. In a folder of manifests they are seen like everything else.
fn looks_up(world: &World<'_>) -> bool {
    world.settings.role == Role::Node || world.observed.leases.is_some()
}

/// `NAMESPACE.NAME:PORT`, and `-udp` for UDP.
pub(super) fn qualified(key: &Key, port: &Port) -> Option<Name> {
    let udp = if port.protocol == Protocol::Udp {
        "-udp"
    } else {
        ""
    };
    format!("{}.{}:{}{udp}", key.namespace, key.name, port.number)
        .parse()
        .ok()
}
