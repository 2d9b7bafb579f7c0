//! How many routes one Service may have: the first ones in order are served, and a Warning names the others.

use ballast_core::table::{HostPattern, Route};

use super::annotations::{Reader, quoted};
use super::notice::Reason;
use crate::settings::Settings;

/// The routes of one Service: hosts, paths and ports that its annotations ask for. Routes that every Service has by its name are not
/// counted, since there are two for a port.
pub(super) struct RouteLimit {
    most: usize,
    served: usize,
    others: usize,
    /// Some of the others, for the Warning.
    shown: Vec<String>,
}

impl RouteLimit {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            most: settings.flags.max_routes_per_service.into(),
            served: 0,
            others: 0,
            shown: Vec::new(),
        }
    }

    /// How many routes must be made at most: those that are served, and those that the Warning shows.
    pub(super) fn reach(&self) -> usize {
        self.most + SHOWN
    }

    /// The routes of a Service port for which there is room, each with `ranges` source ranges. `wanted` has the first ones of
    /// `count`, at least as many as [`Self::reach`] says.
    pub(super) fn admit<T: Named>(
        &mut self,
        port: u16,
        ranges: usize,
        mut wanted: Vec<T>,
        count: usize,
    ) -> Vec<T> {
        let most = self.most.min(MOST_RANGES / (1 + ranges));
        let room = most.saturating_sub(self.served);
        let others = wanted.split_off(room.min(wanted.len()));
        self.served += wanted.len();
        self.others += count.saturating_sub(wanted.len());
        let more = SHOWN.saturating_sub(self.shown.len());
        let names = others.iter().take(more);
        let names = names.map(|other| format!("{} of port {port}", quoted(&other.name())));
        self.shown.extend(names);
        wanted
    }

    /// Warns of the routes that are not served, if there are any.
    pub(super) fn warn(self, reader: &mut Reader<'_>) {
        if self.others == 0 {
            return;
        }
        let more = match self.others.saturating_sub(self.shown.len()) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let message = format!(
            "this Service asks for {} routes, and {} of them are served: at most {} of one Service (--max-routes-per-service), with at most {MOST_RANGES} source ranges together; not served: {}{more}",
            self.served.saturating_add(self.others),
            self.served,
            self.most,
            self.shown.join(", "),
        );
        reader.warn(Reason::TooManyRoutes, message);
    }
}

/// What a route is called in the Warning.
pub(super) trait Named {
    fn name(&self) -> String;
}

impl Named for Route {
    fn name(&self) -> String {
        let host = self.host.as_ref().map(HostPattern::to_string);
        format!("{}{}", host.unwrap_or_default(), self.path())
    }
}

impl Named for HostPattern {
    fn name(&self) -> String {
        self.to_string()
    }
}

/// How many routes the Warning shows.
const SHOWN: usize = 3;

/// The most source ranges of all routes of one Service together.
const MOST_RANGES: usize = 100_000;
