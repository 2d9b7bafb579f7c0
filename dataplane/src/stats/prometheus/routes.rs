//! Requests by route, and choices among the services that share a route or a frontend.

use super::super::selection::Kinds;
use super::super::snapshot::FrontendStats;
use super::{END, Family, Series, Source};

pub(super) fn families(kinds: Kinds) -> [Family; 2] {
    [
        Family::new(
            kinds,
            "ballast_route_requests_total",
            "Requests that went where a route says, by its name, or its host and path; of unopened connections these.",
            Source::Routes,
        ),
        Family::new(
            kinds,
            "ballast_backend_choices_total",
            "Clients or requests for which a service was chosen among backends.",
            Source::Backends,
        ),
    ]
}

/// The requests of each route of a frontend.
pub(super) fn requests(frontend: &FrontendStats, series: &mut Series<'_>) {
    for (route, count) in frontend.requests_by_route() {
        series.begin(&frontend.name);
        series.label("", "route", &route);
        end(frontend, count, series);
    }
}

/// The choices of each service of a frontend that is a backend.
pub(super) fn choices(frontend: &FrontendStats, series: &mut Series<'_>) {
    for choice in &frontend.routes.choices {
        series.begin(&frontend.name);
        series.label("", "route", choice.route.as_deref().unwrap_or_default());
        series.label("", "service", &choice.service);
        end(frontend, choice.count, series);
    }
}

fn end(frontend: &FrontendStats, count: u64, series: &mut Series<'_>) {
    series.table_labels(&frontend.spec.labels);
    series.out.extend_from_slice(END);
    series.number(count);
}
