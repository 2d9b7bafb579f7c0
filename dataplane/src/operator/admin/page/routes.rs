//! What the page shows of routes: host and path, where they lead, and what is counted of them.

use std::hash::{Hash, Hasher};

use ballast_core::table::{Name, Redirect, Route};
use maud::{Markup, html};

use super::line::{Line, cell, cells};
use super::rows::Listing;
use super::text::exact;
use crate::stats::FrontendStats;

/// A route of a frontend; or the frontend itself, where it has backends.
struct Shown<'s> {
    frontend: &'s FrontendStats,
    /// `None`: the frontend itself.
    route: Option<&'s Route>,
    is_default: bool,
    requests: Option<u64>,
}

impl Listing {
    /// How many routes the frontends of this page have, of those that are searched for.
    pub(super) fn routes_found(&self) -> usize {
        self.shown().count()
    }

    /// The routes of the frontends of this page.
    pub(super) fn routes(&self) -> impl Iterator<Item = Line> {
        let shown = self.shown().take(MOST).enumerate();
        shown.map(|(place, shown)| {
            let name = &*shown.frontend.name;
            let cells = cells! {
                "name" { (what(&shown)) }
                "" { (target(&shown)) }
                "n" { @match shown.requests { Some(requests) => (exact(requests)), None => "–" } }
                "fe" { a href={ "#" (name) "/Frontend" } { (name) } }
            };
            Line::new(format!("r{place}"), "route", cells)
        })
    }

    /// Hashes what decides which lines there are.
    pub(super) fn hash_routes(&self, hasher: &mut impl Hasher) {
        for shown in self.shown().take(MOST) {
            (shown.frontend.iid, shown.is_default).hash(hasher);
            if let Some(route) = shown.route {
                (&route.host, &route.path, &route.name, &route.service).hash(hasher);
            }
        }
    }

    fn shown(&self) -> impl Iterator<Item = Shown<'_>> {
        self.frontends().flat_map(|frontend| {
            // Of a frontend that has what is searched for in a route, these routes; else all.
            let is_found =
                |one: &Shown<'_>| one.route.is_some_and(|route| self.view.finds_route(route));
            let narrows =
                !self.view.search.is_empty() && of_frontend(frontend).any(|one| is_found(&one));
            of_frontend(frontend).filter(move |one| !narrows || is_found(one))
        })
    }
}

fn of_frontend(frontend: &FrontendStats) -> impl Iterator<Item = Shown<'_>> {
    let spec = &frontend.spec;
    let routes = spec
        .all_routes()
        .enumerate()
        .map(move |(place, route)| Shown {
            frontend,
            route: Some(route),
            is_default: place >= spec.routes.len(),
            requests: frontend.routes.requests.get(place).copied(),
        });
    let itself = (!spec.backends.is_empty()).then_some(Shown {
        frontend,
        route: None,
        is_default: false,
        requests: None,
    });
    routes.chain(itself)
}

fn what(shown: &Shown<'_>) -> Markup {
    let Some(route) = shown.route else {
        return html! { "every connection" };
    };
    html! {
        @if shown.is_default {
            "everything else"
        } @else {
            b {
                @match &route.host { Some(host) => (host), None => "*" }
                (route.path())
            }
        }
        @if let Some(name) = &route.name { small { (name) } }
        @if route.when.is_some() { small { "when …" } }
        @if route.passthrough { small { "passthrough" } }
        @if route.source_ranges.is_some() { small { "for some clients" } }
    }
}

/// Where it leads.
fn target(shown: &Shown<'_>) -> Markup {
    let service = |name: &Name| html! { a href={ "#" (**name) } { (**name) } };
    let backends = match shown.route {
        Some(route) => &route.backends,
        None => &shown.frontend.spec.backends,
    };
    html! {
        @if let Some(route) = shown.route {
            @if let Some(name) = &route.service { (service(name)) }
            @if let Some(redirect) = &route.redirect { "redirect to " (place(redirect)) }
            @if let Some(status) = route.status { "answers " (status) }
        }
        @for (place, backend) in backends.iter().enumerate() {
            @if place > 0 { ", " }
            (service(&backend.service)) " (" (backend.weight)
            @if let Some(count) = chosen(shown, &backend.service) { ": " (exact(count)) }
            ")"
        }
    }
}

fn place(redirect: &Redirect) -> String {
    if let Some(location) = &redirect.location {
        return location.to_string();
    }
    let mut place = String::new();
    let is_only_scheme = redirect.host.is_none()
        && redirect.port.is_none()
        && redirect.path.is_none()
        && redirect.prefix.is_none();
    if let Some(scheme) = &redirect.scheme {
        let colon = if is_only_scheme { "" } else { ":" };
        place.push_str(&format!("{scheme}{colon}"));
    }
    match (&redirect.host, redirect.port) {
        (Some(host), Some(port)) => place.push_str(&format!("//{host}:{port}")),
        (Some(host), None) => place.push_str(&format!("//{host}")),
        (None, Some(port)) => place.push_str(&format!("//…:{port}")),
        (None, None) => {}
    }
    if let Some(path) = redirect.path.as_ref().or(redirect.prefix.as_ref()) {
        place.push_str(path);
    }
    place
}

/// How often a backend was chosen. Routes without a name count together.
fn chosen(shown: &Shown<'_>, service: &Name) -> Option<u64> {
    let name = shown.route.and_then(|route| route.name.as_ref());
    let mut choices = shown.frontend.routes.choices.iter();
    let choice = choices.find(|one| one.route.as_ref() == name && one.service == *service);
    choice.map(|choice| choice.count)
}

pub(super) fn heads() -> Markup {
    html! {
        th class="name" { "Host and path" }
        th title="The service; of backends their weights, and how often each was chosen" { "Leads to" }
        th class="n" title="Requests that went where the route says; where TLS passes unopened, connections" { "Requests" }
        th class="fe" { "Frontend" }
    }
}

/// Routes that are shown; a search finds the others.
pub(super) const MOST: usize = 200;
