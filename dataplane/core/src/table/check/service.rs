//! What a service's fields mean together.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::http::FieldKind;

use super::super::address::no_single_host;
use super::super::span::Shown;
use super::super::{EndpointTls, HeaderEdits, Health, Service, Token};
use super::{Inspection, twice};

impl Inspection<'_> {
    pub(super) fn service(&mut self, index: usize, service: &Service) {
        let at = Place(index);
        self.labels(at, &service.labels);
        self.source(at, &service.source);
        self.ejection(at, service);
        if let Some(health) = &service.health {
            self.health(at, health);
        }
        if let Some(tls) = &service.tls {
            self.endpoint_tls(at, tls);
        }
        if let Some(http) = &service.http {
            self.header_edits(&format!("{at}.http.request-headers"), &http.request_headers);
            self.header_edits(
                &format!("{at}.http.response-headers"),
                &http.response_headers,
            );
        }
        self.endpoints(at, service);
    }

    fn source(&mut self, at: Place, source: &[IpAddr]) {
        for (index, address) in source.iter().enumerate() {
            if let Some(what) = no_single_host(*address) {
                self.report(
                    format_args!("{at}.source[{index}]"),
                    format!("{address} is {what}"),
                    "expected an address of this node",
                );
            }
        }
        self.stand_once(format_args!("{at}.source"), source);
    }

    fn ejection(&mut self, at: Place, service: &Service) {
        let Some(ejection) = service.ejection.on() else {
            return;
        };
        if ejection.first > ejection.longest
            && !self.doubt.within(format_args!("{at}.ejection.first"))
            && !self.doubt.within(format_args!("{at}.ejection.longest"))
        {
            let (first, longest) = (Shown(ejection.first), Shown(ejection.longest));
            self.report(
                format_args!("{at}.ejection"),
                format!("first ({first}) is above longest ({longest})"),
                "expected first to be at most longest",
            );
        }
    }

    /// A field of another mode is no mistake: like one of another protocol it has no effect at a service.
    fn health(&mut self, at: Place, health: &Health) {
        for (field, time) in [
            ("interval", Some(health.interval)),
            ("fast-interval", health.fast_interval),
        ] {
            if let Some(time) = time.filter(|time| *time < SHORTEST_INTERVAL) {
                self.report(
                    format_args!("{at}.health.{field}"),
                    format!("{} is out of range", Shown(time)),
                    "expected 100ms to 24d",
                );
            }
        }
        if let Some(timeout) = health.timeout
            && timeout > health.interval
            && health.interval >= SHORTEST_INTERVAL
            && !self.doubt.within(format_args!("{at}.health.interval"))
        {
            let (timeout, interval) = (Shown(timeout), Shown(health.interval));
            self.report(
                format_args!("{at}.health.timeout"),
                format!("{timeout} is above the interval ({interval})"),
                format!("expected at most {interval}, or a longer interval"),
            );
        }
        if health.answer.is_some() && health.answer_contains.is_some() {
            self.report(
                format_args!("{at}.health.answer-contains"),
                "stands beside answer",
                "keep answer for how the answer begins, or answer-contains for what it contains",
            );
        }
        if let Some(tls) = &health.tls
            && tls.verified_name.is_some()
            && tls.ca.is_none()
            && !self.doubt.within(format_args!("{at}.health.tls.ca"))
        {
            self.report(
                format_args!("{at}.health.tls.verified-name"),
                "without ca nothing is verified",
                "add ca, or remove it",
            );
        }
        if health.host.as_ref().is_some_and(|host| host.is_empty()) {
            self.report(
                format_args!("{at}.health.host"),
                "is empty",
                "expected a host, or leave the key out",
            );
        }
    }

    fn endpoint_tls(&mut self, at: Place, tls: &EndpointTls) {
        if tls.key.is_some()
            && tls.cert.is_none()
            && !self.doubt.within(format_args!("{at}.tls.cert"))
        {
            self.report(
                format_args!("{at}.tls.key"),
                "is the key of no certificate",
                "add cert, or remove it",
            );
        }
        if tls.insecure && tls.verified_name.is_some() {
            self.report(
                format_args!("{at}.tls.verified-name"),
                "insecure: true verifies nothing",
                "remove verified-name, or insecure",
            );
        }
        if tls.insecure && tls.ca.is_some() {
            self.report(
                format_args!("{at}.tls.ca"),
                "insecure: true verifies nothing",
                "remove ca, or insecure",
            );
        }
    }

    pub(super) fn header_edits(&mut self, at: &str, edits: &HeaderEdits) {
        let set = edits
            .set
            .iter()
            .map(|(name, _)| (name, format!("{at}.set.{name}")));
        let removed = edits
            .remove
            .iter()
            .enumerate()
            .map(|(index, name)| (name, format!("{at}.remove[{index}]")));
        self.edited_once(set.chain(removed));
        let added = || {
            let added = edits.add.iter();
            added.map(|(name, _)| (name, format!("{at}.add.{name}")))
        };
        self.edited_once(added());
        for (name, place) in added() {
            if FieldKind::of(name) == FieldKind::Host {
                self.report(place, "a message has one host", "use set");
            }
        }
    }

    /// No name twice among these, whatever its case, and none that is Ballast's own.
    fn edited_once<'t>(&mut self, edits: impl Iterator<Item = (&'t Token, String)>) {
        let mut first: HashMap<String, String> = HashMap::new();
        for (name, place) in edits {
            if self.doubt.covers(&place) {
                continue;
            }
            let lower = name.to_ascii_lowercase();
            if FieldKind::of(name).is_of_connection() {
                self.report(
                    &place,
                    format!("{name} is about the connection, which is Ballast's own"),
                    "remove it",
                );
            }
            match first.entry(lower) {
                Entry::Vacant(free) => _ = free.insert(place),
                Entry::Occupied(taken) => {
                    self.report(
                        place,
                        format!("{name} stands at {} already", taken.get()),
                        "keep one of them",
                    );
                }
            }
        }
    }

    fn endpoints(&mut self, at: Place, service: &Service) {
        for (index, endpoint) in service.endpoints.iter().enumerate() {
            let place = format_args!("{at}.endpoints[{index}].address");
            if let Some(what) = no_single_host(endpoint.address.ip()) {
                self.report(
                    place,
                    format!("{} is {what}", endpoint.address.ip()),
                    "expected the address of one host",
                );
            } else if endpoint.address.port() == 0 {
                self.report(
                    place,
                    "port 0 is no port that an endpoint can have",
                    "expected 1 to 65535",
                );
            }
        }
        // As the controller writes them; then no two are the same.
        let ascending = service
            .endpoints
            .is_sorted_by(|one, next| one.address < next.address);
        let addresses = service
            .endpoints
            .iter()
            .enumerate()
            .filter(|_| !ascending)
            .map(|(index, endpoint)| {
                let place = format_args!("{at}.endpoints[{index}].address");
                (!self.doubt.covers(place)).then_some(endpoint.address)
            });
        for (index, earlier) in twice(addresses) {
            let address = service
                .endpoints
                .get(index)
                .map(|endpoint| endpoint.address.to_string());
            self.report(
                format_args!("{at}.endpoints[{index}].address"),
                format!(
                    "{} is the address of endpoints[{earlier}] already",
                    address.unwrap_or_default()
                ),
                "keep one of them; weight gives an endpoint more clients",
            );
        }
        self.endpoint_names(at, service);
    }

    /// No two endpoints of a service are shown by one name; those without are shown as their address.
    fn endpoint_names(&mut self, at: Place, service: &Service) {
        let endpoints = &service.endpoints;
        if endpoints.iter().all(|endpoint| endpoint.name.is_none()) {
            return;
        }
        let names = endpoints.iter().map(|endpoint| endpoint.name.as_ref());
        for (index, earlier) in twice(names) {
            let name = endpoints
                .get(index)
                .and_then(|endpoint| endpoint.name.clone());
            self.report(
                format_args!("{at}.endpoints[{index}].name"),
                format!(
                    "{:?} is the name of endpoints[{earlier}] already",
                    name.as_deref().unwrap_or_default()
                ),
                "give each endpoint of a service a name of its own",
            );
        }
        for (index, endpoint) in endpoints.iter().enumerate() {
            let like_an_address = endpoint
                .name
                .as_ref()
                .filter(|name| name.contains(':'))
                .and_then(|name| name.parse::<SocketAddr>().ok());
            let Some(address) = like_an_address else {
                continue;
            };
            let shown_so =
                |other: &super::super::Endpoint| other.name.is_none() && other.address == address;
            if let Some(other) = endpoints.iter().position(shown_so) {
                self.report(
                    format_args!("{at}.endpoints[{index}].name"),
                    format!("endpoints[{other}] has no name and is shown as {address} already"),
                    "give one of them another name",
                );
            }
        }
    }
}

/// The place of a service.
#[derive(Clone, Copy)]
struct Place(usize);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "services[{}]", self.0)
    }
}

/// A check needs some time, and an endpoint some rest.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
