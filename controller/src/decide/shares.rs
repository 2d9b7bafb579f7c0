//! The canaries of one Service port: their services in the table, and the routes and frontends that lead to them.

use ballast_core::table::{self, Backend, Frontend, HeaderMatch, List, Name, Route, When};

use super::canaries::Canary;
use crate::observe::{Port, Service};

/// What canaries get of the clients of one Service port. Those without a usable endpoint get nothing.
#[derive(Default)]
pub(super) struct Shares {
    /// The services of the canaries, with the settings of the Service port and endpoints of their own.
    pub(super) services: Vec<table::Service>,
    /// The Service port and the canaries that have a weight; empty if none has.
    backends: Vec<Backend>,
    /// The requests that lead to one canary, whatever its weight.
    headers: Vec<(HeaderMatch, Name)>,
}

impl Shares {
    /// Adds a canary, of which `service` is the service in the table.
    pub(super) fn add(&mut self, canary: &Canary<'_>, is_http: bool, service: table::Service) {
        if let Some(weight) = canary.weight {
            self.backends.push(backend(&service.name, weight));
        }
        let header = canary.header.clone().filter(|_| is_http);
        self.headers
            .extend(header.map(|header| (header, service.name.clone())));
        self.services.push(service);
    }

    /// Gives the Service port itself what its canaries leave of 100.
    pub(super) fn leave(mut self, main: &Name) -> Self {
        if !self.backends.is_empty() {
            let taken: u32 = self.backends.iter().map(|one| one.weight).sum();
            let rest = backend(main, 100_u32.saturating_sub(taken));
            self.backends.insert(0, rest);
        }
        self
    }

    /// Leads a route of the Service port to the canaries as well, by weight.
    pub(super) fn split(&self, route: &mut Route) {
        split(&mut route.service, &mut route.backends, &self.backends);
    }

    /// The routes beside one of the Service port that lead to one canary each, by a header field.
    pub(super) fn by_header(&self, route: &Route) -> impl Iterator<Item = Route> {
        self.headers.iter().map(|(header, name)| Route {
            when: Some(Box::new(When {
                headers: List::new(vec![header.clone()]),
                ..When::default()
            })),
            service: Some(name.clone()),
            backends: List::default(),
            ..route.clone()
        })
    }

    /// Leads a frontend of the Service port to the canaries as well.
    pub(super) fn split_frontend(&self, frontend: &mut Frontend) {
        split(
            &mut frontend.service,
            &mut frontend.backends,
            &self.backends,
        );
        let mut routes: Vec<Route> = frontend.routes.iter().cloned().collect();
        routes.iter_mut().for_each(|route| self.split(route));
        if let Some(default) = &mut frontend.default
            && default.service.is_some()
        {
            routes.extend(self.by_header(default));
            self.split(default);
        }
        frontend.routes = List::new(routes);
    }
}

/// Puts the backends in place of the one service, if there is one and there are any.
fn split(service: &mut Option<Name>, backends: &mut List<Backend>, shares: &[Backend]) {
    if service.is_some() && !shares.is_empty() {
        *service = None;
        *backends = List::new(shares.to_vec());
    }
}

fn backend(service: &Name, weight: u32) -> Backend {
    Backend {
        service: service.clone(),
        weight,
        request_headers: None,
        response_headers: None,
    }
}

/// The port of a canary that stands for a port of the Service: the one of its name, else of its number, else the only one of the
/// protocol.
pub(super) fn counterpart<'a>(canary: &'a Service, port: &Port) -> Option<&'a Port> {
    let ports = canary.ports.iter();
    let ports: Vec<&Port> = ports.filter(|own| own.protocol == port.protocol).collect();
    let find = |is_one: &dyn Fn(&&&Port) -> bool| ports.iter().find(is_one).copied();
    let named = find(&|own| !own.name.is_empty() && own.name == port.name);
    let numbered = named.or_else(|| find(&|own| own.number == port.number));
    numbered.or(match ports.as_slice() {
        [only] => Some(*only),
        _ => None,
    })
}
