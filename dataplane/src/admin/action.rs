//! What operators change on the page: haproxy's form, and its answers. `f=`, a frontend, is our own.

use std::net::SocketAddr;

use ballast_core::overrides::OverrideChange;
use ballast_core::table::State;

use super::gate::Visitor;
use super::query;
use crate::operator::{self, Target};
use crate::override_request::OverrideError;
use crate::stats::{EndpointStats, ServiceStats, Snapshot};
use crate::worker::Shared;

/// What became of a form, in haproxy's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All of it.
    Done,
    /// No endpoint was named.
    Nothing,
    /// Some of it: not every endpoint is there.
    Part,
    /// What is asked for is not there.
    Wrong,
    /// More than a form can hold.
    TooMuch,
    /// Not sent by the page.
    Denied,
    /// No form.
    Invalid,
    /// The process is ending.
    Unknown,
    /// A bug prevents it.
    Fault,
}

impl From<OverrideError> for Outcome {
    fn from(why: OverrideError) -> Self {
        match why {
            OverrideError::Ending => Self::Unknown,
            OverrideError::Panicked => Self::Fault,
        }
    }
}

impl Outcome {
    pub(super) const ALL: [Self; 9] = [
        Self::Done,
        Self::Nothing,
        Self::Part,
        Self::Wrong,
        Self::TooMuch,
        Self::Denied,
        Self::Invalid,
        Self::Unknown,
        Self::Fault,
    ];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Done => "DONE",
            Self::Nothing => "NONE",
            Self::Part => "PART",
            Self::Wrong => "ERRP",
            Self::TooMuch => "EXCD",
            Self::Denied => "DENY",
            Self::Invalid => "IVAL",
            Self::Unknown => "UNKN",
            Self::Fault => "FAIL",
        }
    }

    /// For people.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Done => "Done.",
            Self::Nothing => "Nothing was changed: no endpoint was chosen.",
            Self::Part => "Partly done: some of these endpoints are no longer here.",
            Self::Wrong => {
                "Nothing was changed: such a service, endpoint or action does not exist here."
            }
            Self::TooMuch => "Nothing was changed: too many endpoints at once; choose fewer.",
            Self::Denied => "Denied, nothing was changed: this page did not send that.",
            Self::Invalid => "Nothing was changed: that was not a form.",
            Self::Unknown => "Nothing was changed: the process is ending.",
            Self::Fault => {
                "Nothing was changed: a bug in Ballast prevents this change. The log has the details; please report them."
            }
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

    fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Disable => "disable",
            Self::AsTheTable => "as the table says",
            Self::Shutdown => "shutdown sessions",
        }
    }

    fn change(self, service: &ServiceStats, endpoint: &EndpointStats) -> Option<OverrideChange> {
        let (name, address) = (service.name.clone(), endpoint.address);
        let state = |state| Some(OverrideChange::State(name.clone(), address, state));
        match self {
            Self::Ready => state(Some(operator::ready(service, endpoint))),
            Self::Drain => state(Some(State::Draining)),
            Self::Disable => state(Some(State::Disabled)),
            Self::AsTheTable => Some(OverrideChange::Reset(name, address)),
            Self::Shutdown => None,
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

/// Does what a form asks for, and says in the log who asked.
pub(super) async fn perform(
    shared: &Shared,
    snapshot: &Snapshot,
    body: &str,
    visitor: &Visitor,
    from: SocketAddr,
) -> Outcome {
    let form = Form::parse(body);
    if !form.frontend.is_empty() {
        return limit_as_the_table(shared, snapshot, &form, visitor, from).await;
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
        operator::cut(shared, &service.name, &addresses);
    } else {
        let changes = endpoints
            .iter()
            .filter_map(|endpoint| action.change(service, endpoint));
        if let Err(why) = shared.change(changes.collect()).await {
            return why.into();
        }
    }
    for endpoint in &endpoints {
        tracing::info!(
            service = &*service.name,
            endpoint = &*endpoint.name,
            action = action.word(),
            by = visitor.name.as_deref(),
            %from,
            "changed by hand"
        );
    }
    match endpoints.len() == form.endpoints.len() {
        true => Outcome::Done,
        false => Outcome::Part,
    }
}

/// Undoes what was said on the runtime socket: that is all that the page changes about a frontend.
async fn limit_as_the_table(
    shared: &Shared,
    snapshot: &Snapshot,
    form: &Form,
    visitor: &Visitor,
    from: SocketAddr,
) -> Outcome {
    let frontend = Target::of(&form.frontend).and_then(|meant| meant.frontend(snapshot));
    let (Some(frontend), Some(Action::AsTheTable)) = (frontend, Action::of(&form.action)) else {
        return Outcome::Wrong;
    };
    let change = OverrideChange::MaxConnections(frontend.name.clone(), None);
    if let Err(why) = shared.change(vec![change]).await {
        return why.into();
    }
    tracing::info!(
        frontend = &*frontend.name,
        action = Action::AsTheTable.word(),
        by = visitor.name.as_deref(),
        %from,
        "changed by hand"
    );
    Outcome::Done
}
