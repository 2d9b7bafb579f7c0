//! The edits of the table: header fields that it removes, sets and adds.

use crate::route::Forward;
use crate::service::Service;
use crate::table::{HeaderEdits, Token, Value};

use super::Sink;

/// The edits of one message, in the order in which they are applied. Each removes fields, sets fields, and adds fields; what an
/// earlier one has set or added is a field like all others for a later one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Edits<'a> {
    steps: [Option<&'a HeaderEdits>; 4],
}

impl<'a> Edits<'a> {
    /// The edits of a request that goes by this route to `service`, the backend at `place`: the route's, the backend's, the
    /// service's.
    pub fn of_request(route: &'a Forward, place: usize, service: &'a Service) -> Self {
        let http = service.spec().http.as_deref();
        Self {
            steps: [
                route.request_headers.as_deref(),
                route.backends.request_headers(place),
                http.map(|http| &http.request_headers),
                None,
            ],
        }
    }

    /// The edits of a response of `service`: the service's, those of the backend at `place` and of its route where they have some,
    /// and the frontend's.
    pub fn of_response(
        service: &'a Service,
        route: Option<(&'a Forward, usize)>,
        frontend: Option<&'a HeaderEdits>,
    ) -> Self {
        let http = service.spec().http.as_deref();
        Self {
            steps: [
                http.map(|http| &http.response_headers),
                route.and_then(|(route, place)| route.backends.response_headers(place)),
                route.and_then(|(route, _)| route.response_headers.as_deref()),
                frontend,
            ],
        }
    }

    /// The edits of an answer of Ballast's own: those of the route that asks for it, and the frontend's.
    pub fn of_answer(route: Option<&'a HeaderEdits>, frontend: Option<&'a HeaderEdits>) -> Self {
        Self {
            steps: [None, None, route, frontend],
        }
    }

    /// These edits of an answer of Ballast's own, after those of its page.
    pub(crate) fn after(self, page: Option<&'a HeaderEdits>) -> Self {
        let [_, _, route, frontend] = self.steps;
        Self {
            steps: [None, page, route, frontend],
        }
    }

    /// The last value that is set for the field of this name.
    pub(super) fn set_value(&self, name: &str) -> Option<&'a Value> {
        let steps = self.steps.into_iter().flatten().rev();
        let mut set = steps.flat_map(|edits| edits.set.iter());
        set.find(|(set, _)| set.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The names of all fields that are edited.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        let steps = self.steps.into_iter().flatten();
        steps.flat_map(HeaderEdits::names)
    }

    /// Whether nothing is edited.
    pub(super) fn is_empty(&self) -> bool {
        let mut steps = self.steps.iter().flatten();
        steps.all(|edits| **edits == HeaderEdits::default())
    }

    /// Whether fields of this name are left out: they are removed, or replaced by those that are set.
    pub(super) fn take_out(&self, name: &str) -> bool {
        take_out(&self.steps, name)
    }

    /// Writes the fields that are set and added, but for those of the name `not`.
    pub(super) fn write(&self, out: &mut impl Sink, not: &str) {
        let mut later = self.steps.as_slice();
        while let Some((edits, rest)) = later.split_first() {
            later = rest;
            let Some(edits) = edits else { continue };
            for (name, value) in edits.set.iter().chain(edits.add.iter()) {
                if !name.eq_ignore_ascii_case(not) && !take_out(later, name) {
                    out.field(name, value.trim_ascii().as_bytes());
                }
            }
        }
    }
}

fn take_out(steps: &[Option<&HeaderEdits>], name: &str) -> bool {
    let is_this = |edited: &Token| edited.eq_ignore_ascii_case(name);
    steps.iter().flatten().any(|edits| {
        let mut set = edits.set.iter().map(|(name, _)| name);
        set.any(is_this) || edits.remove.iter().any(is_this)
    })
}

#[cfg(test)]
impl<'a> From<[Option<&'a HeaderEdits>; 3]> for Edits<'a> {
    fn from([first, second, third]: [Option<&'a HeaderEdits>; 3]) -> Self {
        Self {
            steps: [first, second, third, None],
        }
    }
}
