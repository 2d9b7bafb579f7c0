//! What a table amounts to: the files it names, and a line about it for people.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::{
    Bind, EndpointTls, ErrorPage, Frontend, OrMap, Protocol, Route, RoutingTable, Service,
};

/// Every file that the table names, with its place, as it is written: relative to the table's folder, or absolute.
pub fn files(table: &RoutingTable) -> Vec<(String, PathBuf)> {
    let mut files = Files::default();
    files.add("ticket-keys", table.ticket_keys.as_deref());
    for (index, frontend) in table.frontends.iter().enumerate() {
        files.frontend(index, frontend);
    }
    for (index, service) in table.services.iter().enumerate() {
        files.service(index, service);
    }
    files.named
}

/// Where the frontends listen for connections, with the places. (Datagrams reach another socket of the same port.)
pub fn stream_binds(table: &RoutingTable) -> Vec<(String, Bind)> {
    let mut binds = Vec::new();
    for (index, frontend) in table.frontends.iter().enumerate() {
        if !frontend.protocol.is_udp() {
            let places = frontend.bind.iter().enumerate();
            let named =
                places.map(|(place, bind)| (format!("frontends[{index}].bind[{place}]"), *bind));
            binds.extend(named);
        }
    }
    binds
}

#[derive(Default)]
struct Files {
    named: Vec<(String, PathBuf)>,
}

impl Files {
    fn add(&mut self, at: impl Display, file: Option<&Path>) {
        if let Some(file) = file {
            self.named.push((at.to_string(), file.to_owned()));
        }
    }

    fn frontend(&mut self, index: usize, frontend: &Frontend) {
        if let Some(tls) = &frontend.tls {
            let at = format!("frontends[{index}].tls");
            for (index, certificate) in tls.certificates.iter().enumerate() {
                let at = format!("{at}.certificates[{index}]");
                self.add(format_args!("{at}.cert"), Some(&certificate.cert));
                self.add(format_args!("{at}.key"), certificate.key.as_deref());
                self.add(format_args!("{at}.ocsp"), certificate.ocsp.as_deref());
            }
            let ca = tls.client_auth.as_ref().map(|auth| &*auth.ca);
            self.add(format_args!("{at}.client-auth.ca"), ca);
        }
        for (route, written) in frontend.routes.iter().enumerate() {
            self.route(format_args!("frontends[{index}].routes[{route}]"), written);
        }
        if let Some(route) = &frontend.default {
            self.route(format_args!("frontends[{index}].default"), route);
        }
        for (status, page) in frontend.errors.iter() {
            let at = format!("frontends[{index}].errors.{}", status.code());
            match page {
                OrMap::Value(file) => self.add(at, Some(file)),
                OrMap::Map(page) => self.page(at, page),
            }
        }
    }

    fn route(&mut self, at: impl Display, route: &Route) {
        if let Some(page) = &route.denied {
            self.page(format_args!("{at}.denied"), page);
        }
        self.add(format_args!("{at}.body-file"), route.body_file.as_deref());
    }

    fn page(&mut self, at: impl Display, page: &ErrorPage) {
        self.add(format_args!("{at}.body-file"), page.body_file.as_deref());
    }

    fn service(&mut self, index: usize, service: &Service) {
        let health_tls = service
            .health
            .as_ref()
            .and_then(|health| health.tls.as_ref());
        self.add(
            format_args!("services[{index}].health.tls.ca"),
            health_tls.and_then(|tls| tls.ca.as_deref()),
        );
        if let Some(EndpointTls { ca, cert, key, .. }) = service.tls.as_deref() {
            for (field, file) in [("ca", ca), ("cert", cert), ("key", key)] {
                self.add(
                    format_args!("services[{index}].tls.{field}"),
                    file.as_deref(),
                );
            }
        }
    }
}

impl RoutingTable {
    /// What is in it, as in `3 frontends (2 tcp, 1 http), 12 services, 40 endpoints`.
    pub fn summary(&self) -> String {
        let endpoints: usize = self
            .services
            .iter()
            .map(|service| service.endpoints.len())
            .sum();
        let by_protocol: Vec<String> = Protocol::ALL
            .iter()
            .map(|protocol| {
                (
                    protocol,
                    self.frontends
                        .iter()
                        .filter(|frontend| frontend.protocol == *protocol)
                        .count(),
                )
            })
            .filter(|(_, count)| *count > 0)
            .map(|(protocol, count)| format!("{count} {protocol}"))
            .collect();
        let protocols = if by_protocol.is_empty() {
            String::new()
        } else {
            format!(" ({})", by_protocol.join(", "))
        };
        format!(
            "{}{protocols}, {}, {}",
            counted(self.frontends.len(), "frontend"),
            counted(self.services.len(), "service"),
            counted(endpoints, "endpoint"),
        )
    }
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
