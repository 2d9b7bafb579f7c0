//! What the page shows of routes that have names, and of services that share a route or a frontend.

use std::collections::BTreeMap;
use std::hash::Hash;

use maud::{Markup, html};

use super::line::{Line, cell, cells};
use super::rows::Listing;
use super::text::exact;
use crate::stats::FrontendStats;

/// A route of a frontend, or the frontend itself where it has backends.
#[derive(Debug, Default)]
struct Shown<'s> {
    /// `None`: the route has no name.
    requests: Option<u64>,
    /// Each backend, and how often it was chosen.
    choices: Vec<(&'s str, u64)>,
}

impl Listing {
    /// The routes of the frontends of this page.
    pub(super) fn routes(&self) -> impl Iterator<Item = Line> {
        let routes = self
            .frontends()
            .flat_map(|frontend| shown(frontend).into_iter().zip(0..))
            .take(MOST);
        routes.map(
            |(((frontend, route), Shown { requests, choices }), place)| {
                let name = &*frontend.name;
                let cells = cells! {
                    "name" { a class="px" href={ "#" (name) "/Frontend" } { (name) } }
                    "" { @match route { Some(route) => (route), None => "–" } }
                    "n" { @match requests { Some(requests) => (exact(requests)), None => "–" } }
                    "" { (shares(&choices)) }
                };
                Line::new(format!("r{}-{place}", frontend.iid), "frontend", cells)
            },
        )
    }

    /// Hashes what decides which lines there are.
    pub(super) fn hash_routes(&self, hasher: &mut impl std::hash::Hasher) {
        for frontend in self.frontends() {
            for (route, _) in &frontend.routes.requests {
                route.hash(hasher);
            }
            for choice in &frontend.routes.choices {
                (&choice.route, &choice.service).hash(hasher);
            }
        }
    }
}

type Routes<'s> = Vec<((&'s FrontendStats, Option<&'s str>), Shown<'s>)>;

fn shown(frontend: &FrontendStats) -> Routes<'_> {
    let mut routes: BTreeMap<Option<&str>, Shown<'_>> = BTreeMap::new();
    for (route, count) in &frontend.routes.requests {
        routes.entry(Some(route)).or_default().requests = Some(*count);
    }
    for choice in &frontend.routes.choices {
        let route = routes.entry(choice.route.as_deref()).or_default();
        route.choices.push((&choice.service, choice.count));
    }
    let routes = routes.into_iter();
    routes
        .map(|(route, shown)| ((frontend, route), shown))
        .collect()
}

fn shares(choices: &[(&str, u64)]) -> Markup {
    html! {
        @if choices.is_empty() { "–" }
        @for (place, (service, count)) in choices.iter().enumerate() {
            @if place > 0 { ", " }
            (exact(*count)) " " a href={ "#" (service) } { (service) }
        }
    }
}

pub(super) fn heads() -> Markup {
    html! {
        th class="name" { "Frontend" }
        th { "Route" }
        th class="n" title="Requests that went where the route says" { "Requests" }
        th title="How often each service was chosen" { "Backends" }
    }
}

/// Routes that are shown; the metrics have all of them.
const MOST: usize = 200;
