//! What operators change on the page: haproxy's form, and its answers. `f=`, a frontend, is our own.

use std::net::SocketAddr;

use ballast_core::overrides::OverrideChange;
use ballast_core::table::State;

use super::query;
use crate::operator::target::{self, By, Target};
use crate::stats::{EndpointStats, ServiceStats, Snapshot};
use crate::worker::Shared;
use crate::worker::override_request::OverrideError;

/// Lines of a name, haproxy's word and a sentence.
macro_rules! outcomes {
    ($($name:ident $word:literal $text:literal;)*) => {
        /// What became of a form, in haproxy's words.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Outcome {
            $($name,)*
        }

        impl Outcome {
            pub(super) const ALL: &'static [Self] = &[$(Self::$name),*];

            pub(super) const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// For people.
            pub(super) const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

outcomes! {
    Done "DONE" "Done.";
    Nothing "NONE" "Nothing was changed: no endpoint was chosen.";
    Part "PART" "Partly done: some of these endpoints are no longer here.";
    Wrong "ERRP" "Nothing was changed: such a service, endpoint or action does not exist here.";
    TooMuch "EXCD" "Nothing was changed: too many endpoints at once; choose fewer.";
    Denied "DENY" "Denied, nothing was changed: this page did not send that.";
    Invalid "IVAL" "Nothing was changed: that was not a form.";
    Ending "UNKN" "Nothing was changed: the process is ending.";
    Fault "FAIL" "Nothing was changed: a bug in Ballast prevents this change. The log has the details; please report them.";
}

impl From<OverrideError> for Outcome {
    fn from(why: OverrideError) -> Self {
        match why {
            OverrideError::Ending => Self::Ending,
            OverrideError::Panicked => Self::Fault,
            OverrideError::Refused(_) => Self::Wrong,
        }
    }
}

/// What is to be done with endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Ready,
    Drain,
    Disable,
    AsTheTable,
    /// Its connections are reset.
    Shutdown,
}

impl Action {
    fn of(word: &str) -> Option<Self> {
        match word {
            "ready" | "enable" | "start" => Some(Self::Ready),
            "drain" => Some(Self::Drain),
            "maint" | "disable" | "stop" => Some(Self::Disable),
            "default" => Some(Self::AsTheTable),
            "shutdown" => Some(Self::Shutdown),
            _ => None,
        }
    }

    fn change(self, service: &ServiceStats, endpoint: &EndpointStats) -> Option<OverrideChange> {
        let (name, address) = (service.name.clone(), endpoint.in_table());
        let state = |state| Some(OverrideChange::State(name.clone(), address, state));
        match self {
            Self::Ready => state(Some(target::ready(service, endpoint))),
            Self::Drain => state(Some(State::Draining)),
            Self::Disable => state(Some(State::Disabled)),
            Self::AsTheTable => Some(OverrideChange::Reset(name, address)),
            Self::Shutdown => None,
        }
    }

    /// The change, as the log words it.
    fn in_words(self, service: &ServiceStats, endpoint: &EndpointStats) -> String {
        let state = |state| target::state_in_words(service, endpoint, Some(state));
        let other = |what| format!("{} {what}", target::full_name(service, endpoint));
        match self {
            Self::Ready => state(target::ready(service, endpoint)),
            Self::Drain => state(State::Draining),
            Self::Disable => state(State::Disabled),
            Self::AsTheTable => other(target::DEFAULT),
            Self::Shutdown => other(target::CUT),
        }
    }
}

/// A form, taken apart.
#[derive(Debug, Default)]
struct Form {
    service: String,
    frontend: String,
    action: String,
    endpoints: Vec<String>,
}

impl Form {
    fn parse(body: &str) -> Self {
        let mut form = Self::default();
        for (name, value) in query::pairs(body) {
            match &*name {
                "b" => form.service = value,
                "f" => form.frontend = value,
                "action" => form.action = value,
                "s" if !form.endpoints.contains(&value) => form.endpoints.push(value),
                _ => {}
            }
        }
        form
    }
}

/// Executes a form, and logs who sent it.
pub(super) async fn perform(
    shared: &Shared,
    snapshot: &Snapshot,
    body: &str,
    by: By<'_>,
) -> Outcome {
    let form = Form::parse(body);
    if !form.frontend.is_empty() {
        return limit_as_the_table(shared, snapshot, &form, by).await;
    }
    if form.endpoints.is_empty() {
        return Outcome::Nothing;
    }
    let service = Target::of(&form.service).and_then(|meant| meant.service(snapshot));
    let (Some(action), Some(service)) = (Action::of(&form.action), service) else {
        return Outcome::Wrong;
    };
    let endpoints: Vec<&EndpointStats> = form
        .endpoints
        .iter()
        .filter_map(|word| Target::of(word)?.endpoint(service))
        .collect();
    if endpoints.is_empty() {
        return Outcome::Wrong;
    }
    if action == Action::Shutdown {
        let addresses: Vec<SocketAddr> = endpoints.iter().map(|one| one.address).collect();
        target::cut(shared, &service.name, &addresses);
    } else {
        let changes = endpoints
            .iter()
            .filter_map(|endpoint| action.change(service, endpoint));
        if let Err(why) = shared.change(changes.collect()).await {
            return why.into();
        }
    }
    for endpoint in &endpoints {
        by.changed(&action.in_words(service, endpoint));
    }
    if endpoints.len() == form.endpoints.len() {
        Outcome::Done
    } else {
        Outcome::Part
    }
}

/// Removes a limit that was set on the runtime socket: the page changes nothing else about a frontend.
async fn limit_as_the_table(
    shared: &Shared,
    snapshot: &Snapshot,
    form: &Form,
    by: By<'_>,
) -> Outcome {
    let frontend = Target::of(&form.frontend).and_then(|meant| meant.frontend(snapshot));
    let (Some(frontend), Some(Action::AsTheTable)) = (frontend, Action::of(&form.action)) else {
        return Outcome::Wrong;
    };
    let change = OverrideChange::MaxConnections(frontend.name.clone(), None);
    if let Err(why) = shared.change(vec![change]).await {
        return why.into();
    }
    by.changed(&target::limit_in_words(frontend, None));
    Outcome::Done
}
