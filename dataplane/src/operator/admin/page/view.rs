//! Which part of everything a page shows: the words in its address.

use ballast_core::announce_ack::{State, Status};
use ballast_core::table::Route;
use ballast_core::words;

use crate::operator::admin::action::Outcome;
use crate::operator::admin::query;
use crate::stats::{EndpointStats, FrontendStats, Selection, ServiceStats, StatusKind};

/// What is shown.
#[derive(Clone, Debug, Default)]
pub(in crate::operator::admin) struct View {
    /// haproxy's own words.
    selection: Selection,
    scope: String,
    /// Whether a page without a script asks again.
    pub(super) refreshes: bool,
    /// In lower case.
    pub(super) search: String,
    pub(super) show: Show,
    /// Pages are counted from 1.
    pub(super) page: usize,
    pub(super) frontends_page: usize,
    /// What became of a form that was sent before.
    pub(super) outcome: Option<Outcome>,
    /// Whether there is something to press.
    pub(super) may_change: bool,
}

words! {
    /// A filter.
    #[derive(Default)]
    pub(super) enum Show {
        #[default]
        All = "all",
        /// What does not serve as it should.
        Wrong = "wrong",
        /// What an operator changed.
        ByHand = "hand",
    }
}

impl Show {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::All => "Everything",
            Self::Wrong => "Only what is wrong",
            Self::ByHand => "Changed by hand",
        }
    }
}

impl View {
    /// Of an address of the page, or of `/events`.
    pub(in crate::operator::admin) fn of(address: &str, may_change: bool) -> Self {
        let mut view = Self {
            selection: Selection::of_page(address),
            refreshes: true,
            page: 1,
            frontends_page: 1,
            may_change,
            ..Self::default()
        };
        let start = address.find([';', '?']).unwrap_or(address.len());
        for (name, value) in query::pairs(address.get(start..).unwrap_or_default()) {
            let number = || value.parse().unwrap_or(1).max(1);
            match &*name {
                "q" => view.search = value.trim().to_lowercase().chars().take(LONGEST).collect(),
                "p" => view.page = number(),
                "fp" => view.frontends_page = number(),
                "show" => {
                    let known = Show::ALL.into_iter().find(|show| show.word() == value);
                    view.show = known.unwrap_or_default();
                }
                "scope" => view.scope = value.chars().take(LONGEST).collect(),
                "norefresh" => view.refreshes = false,
                "st" => view.outcome = Outcome::ALL.iter().copied().find(|one| one.word() == value),
                _ => {}
            }
        }
        view
    }

    /// Its address, with haproxy's words first.
    pub(in crate::operator::admin) fn address(&self, outcome: Option<Outcome>) -> String {
        let mut address = String::from("/");
        if let Some(outcome) = outcome {
            address.push_str(";st=");
            address.push_str(outcome.word());
        }
        for (is_on, word) in [
            (self.selection.only_up, ";up"),
            (self.selection.no_maintenance, ";no-maint"),
            (!self.refreshes, ";norefresh"),
        ] {
            if is_on {
                address.push_str(word);
            }
        }
        let number = |page: usize| match page {
            ..=1 => String::new(),
            page => page.to_string(),
        };
        let show = match self.show {
            Show::All => "",
            show => show.word(),
        };
        let mut before = '?';
        for (name, value) in [
            ("scope", &*self.scope),
            ("q", &self.search),
            ("show", show),
            ("fp", &number(self.frontends_page)),
            ("p", &number(self.page)),
        ] {
            if !value.is_empty() {
                address.push(before);
                address.push_str(name);
                address.push('=');
                address.push_str(&query::encode(value));
                before = '&';
            }
        }
        address
    }

    pub(super) fn with(&self, change: impl FnOnce(&mut Self)) -> String {
        let mut view = self.clone();
        change(&mut view);
        view.address(None)
    }

    pub(super) fn takes_frontend(&self, frontend: &FrontendStats) -> bool {
        let is_shown = match self.show {
            Show::All => true,
            Show::Wrong => is_wrong_frontend(frontend),
            Show::ByHand => frontend.is_overridden || frontend.is_paused,
        };
        is_shown && self.selection.takes_name(&frontend.name) && self.finds_frontend(frontend)
    }

    pub(super) fn takes_service(&self, service: &ServiceStats) -> bool {
        let is_shown = match self.show {
            Show::All => true,
            Show::Wrong => is_wrong(service),
            Show::ByHand => service.endpoints.iter().any(|one| one.is_overridden),
        };
        is_shown && self.selection.takes_name(&service.name) && self.finds_service(service)
    }

    pub(super) fn takes_endpoint(&self, service: &ServiceStats, endpoint: &EndpointStats) -> bool {
        let is_shown = match self.show {
            Show::All => true,
            Show::Wrong => !service.is_up() || is_wrong_endpoint(endpoint),
            Show::ByHand => endpoint.is_overridden,
        };
        is_shown && self.selection.takes_endpoint(endpoint)
    }

    fn finds_frontend(&self, frontend: &FrontendStats) -> bool {
        let spec = &frontend.spec;
        self.search.is_empty()
            || self.finds(&frontend.name)
            || spec.services().any(|service| self.finds(service))
            || spec.bind.iter().any(|bind| self.finds(&bind.to_string()))
            || spec.routes.iter().any(|route| self.finds_route(route))
            || self.finds_certificate(frontend)
            || spec.description.iter().any(|text| self.finds(text))
            || spec.labels.iter().any(|(_, text)| self.finds(text))
    }

    pub(super) fn takes_address(&self, one: &Status) -> bool {
        let is_shown = match self.show {
            Show::All => true,
            Show::Wrong => one.state != State::Held && one.state != State::NotOurs,
            Show::ByHand => false,
        };
        let words = [one.state.word(), &one.detail];
        let mut words = words.into_iter().chain(one.owner.as_deref());
        is_shown
            && (self.search.is_empty()
                || self.finds(&one.address.to_string())
                || words.any(|word| self.finds(word)))
    }

    /// Whether the route is one of those that are searched for, by its name, or by its host and path.
    pub(super) fn finds_route(&self, route: &Route) -> bool {
        let host = route.host.as_ref().map(ToString::to_string);
        self.finds(&format!("{}{}", host.unwrap_or_default(), route.path()))
            || route.name.iter().any(|name| self.finds(name))
            || route.services().any(|service| self.finds(service))
    }

    /// Whether a certificate of the frontend has such a name.
    fn finds_certificate(&self, frontend: &FrontendStats) -> bool {
        let all = frontend.certificates.iter();
        let mut served = all.flat_map(|all| all.served.iter());
        served.any(|one| self.finds(&one.file) || one.names.iter().any(|name| self.finds(name)))
    }

    fn finds_service(&self, service: &ServiceStats) -> bool {
        let spec = &service.spec;
        self.search.is_empty()
            || self.finds(&service.name)
            || spec.description.iter().any(|text| self.finds(text))
            || spec.labels.iter().any(|(_, text)| self.finds(text))
            || service.endpoints.iter().any(|endpoint| {
                self.finds(&endpoint.name)
                    || endpoint.node.iter().any(|node| self.finds(node))
                    || self.finds(&endpoint.address.to_string())
            })
    }

    fn finds(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.search)
    }
}

/// Whether an operator should look at it.
pub(super) fn is_wrong_frontend(frontend: &FrontendStats) -> bool {
    let certificates = frontend.certificates.as_ref();
    let is_whole = frontend.is_open && frontend.trouble() != Some("in part");
    !is_whole || certificates.is_some_and(|all| all.worst().is_some())
}

/// Whether an operator should look at it.
pub(super) fn is_wrong(service: &ServiceStats) -> bool {
    !service.is_up()
        || service.is_panicking
        || service.queue > 0
        || service.endpoints.iter().any(is_wrong_endpoint)
}

pub(super) fn is_wrong_endpoint(endpoint: &EndpointStats) -> bool {
    match endpoint.status.kind {
        StatusKind::Down => true,
        // An endpoint without a first result has not failed.
        StatusKind::Up => endpoint.status.progress.is_some() && has_been_checked(endpoint),
        StatusKind::Unchecked
        | StatusKind::Draining
        | StatusKind::Stopping
        | StatusKind::Maintenance => endpoint.ejected.is_some(),
    }
}

fn has_been_checked(endpoint: &EndpointStats) -> bool {
    let check = endpoint.check.as_deref();
    check.is_some_and(|check| !check.result.is_empty())
}

/// Of what is searched for.
const LONGEST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_written_alike() {
        for address in [
            "/",
            "/?q=web",
            "/;up;no-maint;norefresh?scope=my&q=a%20b&show=wrong&fp=2&p=3",
            "/?show=hand",
        ] {
            assert_eq!(View::of(address, false).address(None), address);
        }
        for (address, written) in [
            ("/haproxy?stats", "/"),
            ("/haproxy?stats;up", "/;up"),
            ("/events?q=A+B&p=0&fp=x", "/?q=a%20b"),
            ("/;st=DONE?q=x&show=nonsense", "/?q=x"),
        ] {
            assert_eq!(View::of(address, false).address(None), written);
        }
        let view = View::of("/;st=PART?q=x", true);
        assert_eq!(view.outcome, Some(Outcome::Part));
        assert_eq!(view.address(Some(Outcome::Done)), "/;st=DONE?q=x");
    }
}
