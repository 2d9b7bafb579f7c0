//! Mistakes of meaning: what is wrong with a table whose every field can be read.
//!
//! Called by [`super::parse()`]. Values that were refused are in doubt: stand-ins hold their places, about which nothing is said.

mod backends;
mod frontend;
mod route;
mod service;
mod when;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display};
use std::hash::Hash;
use std::net::SocketAddr;

use super::address::Bind;
use super::entries::Entries;
use super::fields::OrOff;
use super::problems::{Found, Problem, nearest};
use super::text::{LabelKey, Name, Text};
use super::{Backend, Frontend, RoutingTable, Service, Transport};

/// Every mistake of meaning, but for what is in doubt.
pub(super) fn check(table: &RoutingTable, doubt: &Doubt) -> Found {
    let mut check = Inspection {
        doubt,
        found: Found::default(),
        said: HashSet::new(),
    };
    if doubt.everything {
        return check.found;
    }
    check.version(table.version);
    check.log(table);
    check.sockets(table);
    check.unique(
        "frontends",
        "frontend",
        table.frontends.iter().map(|frontend| &frontend.name),
    );
    check.unique(
        "services",
        "service",
        table.services.iter().map(|service| &service.name),
    );
    check.references(table);
    for (index, frontend) in table.frontends.iter().enumerate() {
        check.frontend(index, frontend);
    }
    for (index, service) in table.services.iter().enumerate() {
        check.service(index, service);
    }
    check.found
}

/// The places of what was refused: nothing is said about the meaning of that.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    places: Vec<String>,
    everything: bool,
}

impl Doubt {
    /// Doubt about these places, or about everything, because they are not all known.
    pub(super) fn new(places: Vec<String>, everything: bool) -> Self {
        Self { places, everything }
    }

    /// Whether what stands at this place is what was written there.
    pub(super) fn is_readable(&self, at: &str) -> bool {
        !self.everything && !self.covers(at)
    }

    /// Whether this place, or one that holds it, was refused.
    fn covers(&self, at: impl Display) -> bool {
        self.any(at, |place, at| lies_in(at, place))
    }

    /// Whether something in this place, or one that holds it, was refused.
    fn within(&self, at: impl Display) -> bool {
        self.any(at, |place, at| lies_in(place, at) || lies_in(at, place))
    }

    /// A good table has no doubt, and then no place is put into words.
    fn any(&self, at: impl Display, test: impl Fn(&str, &str) -> bool) -> bool {
        if self.places.is_empty() {
            return false;
        }
        let at = at.to_string();
        self.places.iter().any(|place| test(place, &at))
    }
}

/// Whether the place `inner` is `outer` or lies in it.
fn lies_in(inner: &str, outer: &str) -> bool {
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The look at one table.
struct Inspection<'a> {
    doubt: &'a Doubt,
    found: Found,
    /// Places of mistakes that need to be said once, however often they are met.
    said: HashSet<String>,
}

impl Inspection<'_> {
    /// Reports a mistake, unless its place is in doubt.
    fn report(&mut self, at: impl Display, why: impl Into<String>, remedy: impl Into<String>) {
        let at = at.to_string();
        if !self.doubt.covers(&at) {
            self.found.add(|| Problem::new(at, why, remedy));
        }
    }

    /// Reports a mistake, unless one was met at its place already.
    fn report_once(&mut self, at: String, why: impl Into<String>, remedy: impl Into<String>) {
        if self.said.insert(at.clone()) {
            self.report(at, why, remedy);
        }
    }

    /// Reports a field that is not there at its parent, unless it is there and could not be read.
    fn report_missing(&mut self, parent: impl Display, field: &str, remedy: impl Into<String>) {
        let parent = parent.to_string();
        if !self.doubt.covers(format_args!("{parent}.{field}")) {
            self.report(parent, format!("{field} is missing"), remedy);
        }
    }

    fn version(&mut self, version: u32) {
        match version {
            0 => self.report("version", "0 is no version of the table", "expected 1"),
            1 => {}
            _ => self.report(
                "version",
                format!("{version} is newer than this ballast knows"),
                "expected 1, or a newer ballast",
            ),
        }
    }

    fn log(&mut self, table: &RoutingTable) {
        self.stand_once("log.to", &table.log.to);
    }

    /// No item twice in one list.
    fn stand_once<T: Display + Eq + Hash>(&mut self, list: impl Display, items: &[T]) {
        if items.len() < 2 {
            return;
        }
        let list = list.to_string();
        let read = |index| !self.doubt.covers(format_args!("{list}[{index}]"));
        let items_read = items
            .iter()
            .enumerate()
            .map(|(index, item)| read(index).then_some(item));
        for (index, _) in twice(items_read) {
            if let Some(item) = items.get(index) {
                self.report(
                    format_args!("{list}[{index}]"),
                    format!("{item} stands here twice"),
                    "keep one of them",
                );
            }
        }
    }

    /// No two frontends, nor the admin side and a frontend, on one address of one transport. The admin's default
    /// address does not count: a flag may have moved it away.
    fn sockets(&mut self, table: &RoutingTable) {
        let mut held = HashMap::new();
        let healthz = match &table.stats.healthz {
            OrOff::On(binds) => Some(binds),
            OrOff::Off => None,
        };
        for (field, binds) in [("bind", table.stats.bind.as_ref()), ("healthz", healthz)] {
            for (index, bind) in binds.iter().flat_map(|binds| binds.iter()).enumerate() {
                let holder = Holder::Stats(field, index);
                self.socket(&mut held, *bind, Transport::Tcp, holder);
            }
        }
        for (frontend, written) in table.frontends.iter().enumerate() {
            if self
                .doubt
                .within(format_args!("frontends[{frontend}].protocol"))
            {
                continue;
            }
            let transport = written.protocol.transport();
            for (index, bind) in written.bind.iter().enumerate() {
                let holder = Holder::Frontend(written, frontend, index);
                self.socket(&mut held, *bind, transport, holder);
            }
        }
    }

    fn socket<'t>(
        &mut self,
        held: &mut HashMap<(Transport, SocketAddr), Holder<'t>>,
        bind: Bind,
        transport: Transport,
        holder: Holder<'t>,
    ) {
        if bind.port() == 0 || self.doubt.covers(holder) {
            return;
        }
        let mut other = None;
        for address in bind.addresses() {
            match held.entry((transport, address)) {
                Entry::Vacant(free) => _ = free.insert(holder),
                Entry::Occupied(taken) => other = other.or_else(|| Some(*taken.get())),
            }
        }
        if let Some(other) = other {
            let why = format!("{bind} is taken already by {}", other.shown());
            self.report(holder, why, "give each one an address or a port of its own");
        }
    }

    /// No name twice in one list.
    fn unique<'t>(&mut self, list: &str, what: &str, names: impl Iterator<Item = &'t Name>) {
        let mut first: HashMap<&str, usize> = HashMap::new();
        for (index, name) in names.enumerate() {
            if self.doubt.covers(format_args!("{list}[{index}].name")) {
                continue;
            }
            match first.entry(name) {
                Entry::Vacant(free) => _ = free.insert(index),
                Entry::Occupied(taken) => {
                    let why = format!("\"{name}\" is the name of {list}[{}] already", taken.get());
                    let remedy = format!("give each {what} a name of its own");
                    self.report(format_args!("{list}[{index}].name"), why, remedy);
                }
            }
        }
    }

    /// Every service that a frontend names is there, and fits the frontend.
    fn references(&mut self, table: &RoutingTable) {
        let mut known: HashMap<&str, usize> = HashMap::new();
        let mut complete = !self.doubt.covers("services");
        for (index, service) in table.services.iter().enumerate().rev() {
            if self.doubt.covers(format_args!("services[{index}].name")) {
                complete = false;
            } else {
                _ = known.insert(&service.name, index);
            }
        }
        let mut guesses = GUESSES;
        for (index, frontend) in table.frontends.iter().enumerate() {
            for (place, name) in references_of(frontend) {
                if self.doubt.covers(format_args!("frontends[{index}]{place}")) {
                    continue;
                }
                let Some(&service) = known.get(&**name) else {
                    if complete {
                        let remedy = unknown_service(name, &table.services, &mut guesses);
                        self.report(
                            format_args!("frontends[{index}]{place}"),
                            format!("there is no service \"{name}\""),
                            remedy,
                        );
                    }
                    continue;
                };
                if let Some(written) = table.services.get(service) {
                    self.fits(frontend, index, place, written, service);
                }
            }
        }
    }

    fn labels(&mut self, at: impl Display, labels: &Entries<LabelKey, Text>) {
        if labels.len() > LABELS {
            self.report(
                format_args!("{at}.labels"),
                format!("{} labels are too many", labels.len()),
                format!("expected at most {LABELS}"),
            );
        }
    }
}

/// Items that stood there before, each with where it stood first. Items that are none do not count.
fn twice<T: Eq + Hash + Clone>(
    items: impl Iterator<Item = Option<T>> + Clone,
) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    if items.clone().nth(FEW).is_none() {
        for (index, item) in items.clone().enumerate() {
            let earlier = items
                .clone()
                .take(index)
                .position(|earlier| earlier == item);
            found.extend(
                earlier
                    .filter(|_| item.is_some())
                    .map(|earlier| (index, earlier)),
            );
        }
        return found;
    }
    let mut first = HashMap::new();
    for (index, item) in items.enumerate() {
        let Some(item) = item else { continue };
        match first.entry(item) {
            Entry::Vacant(free) => _ = free.insert(index),
            Entry::Occupied(taken) => found.push((index, *taken.get())),
        }
    }
    found
}

/// Every mention of a service in a frontend, with its place below the frontend.
fn references_of(frontend: &Frontend) -> impl Iterator<Item = (Mention, &Name)> {
    let direct = mentions(
        Owner::Frontend,
        frontend.service.as_ref(),
        &frontend.backends,
    );
    let routes = frontend.routes.iter().enumerate();
    let routes = routes.flat_map(|(index, route)| {
        mentions(Owner::Route(index), route.service.as_ref(), &route.backends)
    });
    let default = frontend.default.iter();
    let default =
        default.flat_map(|route| mentions(Owner::Default, route.service.as_ref(), &route.backends));
    direct.chain(routes).chain(default)
}

fn mentions<'t>(
    owner: Owner,
    service: Option<&'t Name>,
    backends: &'t [Backend],
) -> impl Iterator<Item = (Mention, &'t Name)> {
    let mention = move |backend| Mention { owner, backend };
    let backends = backends.iter().enumerate();
    let backends = backends.map(move |(index, backend)| (mention(Some(index)), &backend.service));
    let service = service.into_iter();
    service
        .map(move |name| (mention(None), name))
        .chain(backends)
}

/// Where in a frontend a service is named.
#[derive(Clone, Copy)]
struct Mention {
    owner: Owner,
    /// Its place in the list of backends, if it is named there.
    backend: Option<usize>,
}

/// What names a service.
#[derive(Clone, Copy)]
enum Owner {
    Frontend,
    Route(usize),
    Default,
}

impl Display for Mention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner {
            Owner::Frontend => {}
            Owner::Route(index) => write!(f, ".routes[{index}]")?,
            Owner::Default => f.write_str(".default")?,
        }
        match self.backend {
            None => f.write_str(".service"),
            Some(index) => write!(f, ".backends[{index}].service"),
        }
    }
}

fn unknown_service(name: &str, services: &[Service], guesses: &mut usize) -> String {
    let names = services.iter().map(|service| &*service.name);
    let near = match *guesses {
        0 => None,
        _ => nearest(name, names),
    };
    *guesses = guesses.saturating_sub(1);
    match near {
        Some(near) => format!("did you mean {near}?"),
        None => "add a service of that name; endpoints: [] will do".to_owned(),
    }
}

/// The entry of the table that binds an address. Displayed, it is the place of that bind.
#[derive(Clone, Copy)]
enum Holder<'t> {
    Stats(&'static str, usize),
    Frontend(&'t Frontend, usize, usize),
}

impl Holder<'_> {
    fn shown(&self) -> String {
        match self {
            Self::Stats(..) => self.to_string(),
            Self::Frontend(frontend, ..) => format!("{self} of frontend \"{}\"", frontend.name),
        }
    }
}

impl Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stats(field, index) => write!(f, "stats.{field}[{index}]"),
            Self::Frontend(_, frontend, index) => write!(f, "frontends[{frontend}].bind[{index}]"),
        }
    }
}

/// Items of which it is quicker to compare each with each.
const FEW: usize = 16;

/// Labels that a frontend or a service may have.
const LABELS: usize = 8;

/// Unknown services for which the nearest known one is looked for: that takes a look at every name.
const GUESSES: usize = 50;
