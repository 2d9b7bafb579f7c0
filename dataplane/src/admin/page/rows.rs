//! What the page shows of one snapshot, line by line. The page and its events are written from these lines.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ballast_core::breath;
use ballast_core::counters::Counts;
use ballast_core::flow::{FlowEnd, UdpCounts};
use maud::{Markup, html};

use super::line::{Cell, Line, cell};
use super::text::{Count, Graph, Lasted, Shown, Size, bad, count, exact, millis, or_dash, size};
use super::view::{View, is_wrong};
use crate::stats::{
    EndpointStats, FrontendStats, Process, Second, ServiceStats, Snapshot, StatusKind,
};
use crate::worker::Shared;

/// One snapshot, as one reader wants to see it.
pub(super) struct Listing {
    shared: Arc<Shared>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) view: View,
    pub(super) frontends: Listed,
    pub(super) services: Listed,
}

/// One page of what was found.
#[derive(Debug)]
pub(super) struct Listed {
    /// In all.
    pub(super) found: usize,
    pub(super) page: usize,
    pub(super) pages: usize,
    places: Vec<usize>,
}

impl Listing {
    pub(super) fn of(shared: &Arc<Shared>, snapshot: Arc<Snapshot>, view: View) -> Self {
        let frontends = snapshot.frontends.iter();
        let frontends = frontends.map(|one| view.takes_frontend(one));
        let services = snapshot.services.iter();
        let services = services.map(|one| view.takes_service(one));
        Self {
            shared: Arc::clone(shared),
            frontends: Listed::of(frontends, view.frontends_page),
            services: Listed::of(services, view.page),
            snapshot,
            view,
        }
    }

    /// The frontends of this page.
    pub(super) fn frontends(&self) -> impl Iterator<Item = &FrontendStats> {
        let places = self.frontends.places.iter();
        places.filter_map(|place| self.snapshot.frontends.get(*place))
    }

    /// The service at a place of this page.
    pub(super) fn service(&self, place: usize) -> Option<&ServiceStats> {
        self.snapshot
            .services
            .get(*self.services.places.get(place)?)
    }

    /// The services of this page.
    fn services(&self) -> impl Iterator<Item = &ServiceStats> {
        (0..self.services.places.len()).filter_map(|place| self.service(place))
    }

    /// The endpoints of a service that are shown.
    fn endpoints<'a>(
        &'a self,
        service: &'a ServiceStats,
    ) -> impl Iterator<Item = &'a EndpointStats> {
        let endpoints = service.endpoints.iter();
        endpoints.filter(|endpoint| self.view.takes_endpoint(service, endpoint))
    }

    /// All lines, in their order.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line> {
        [self.facts(), self.tiles()]
            .into_iter()
            .chain(self.frontends().map(|frontend| self.frontend(frontend)))
            .chain(self.datagrams())
            .chain(
                self.services().flat_map(|service| {
                    std::iter::once(self.head(service)).chain(self.body(service))
                }),
            )
            .inspect(|_| breath::take())
    }

    /// A number that changes when there are other lines, or other words around them.
    pub(super) fn shape(&self) -> u64 {
        let process = &self.snapshot.process;
        let mut hasher = DefaultHasher::new();
        (
            process.started,
            process.is_stopping,
            process.refusal.as_deref(),
            &process.exceptions,
            (self.services.found, self.frontends.found),
        )
            .hash(&mut hasher);
        for frontend in self.frontends() {
            frontend.iid.hash(&mut hasher);
        }
        for service in self.services() {
            service.iid.hash(&mut hasher);
            let endpoints = self.endpoints(service).map(|endpoint| endpoint.sid);
            endpoints.collect::<Vec<_>>().hash(&mut hasher);
        }
        hasher.finish()
    }

    pub(super) fn facts(&self) -> Line {
        let process = &self.snapshot.process;
        let state = match (process.is_stopping, process.is_ready) {
            (true, _) => html! { b class="bad" { "ending" } },
            (false, true) => html! { b class="good" { "serving" } },
            (false, false) => html! { b class="bad" { "no table yet" } },
        };
        let cells = [
            state,
            html! { "up " (Lasted(process.uptime.as_secs())) },
            table(process),
            html! { "pid " (process.pid) },
            html! { "workers: " (process.workers) ", " (process.idle) " % idle" },
        ];
        Line::new("facts".into(), "facts", cells.map(|fact| cell("", fact)))
    }

    pub(super) fn tiles(&self) -> Line {
        let process = &self.snapshot.process;
        let history = self.shared.stats.total_history(TEN_MINUTES);
        let graph = |shown| Some(self.graph(&history, shown));
        let flows = match process.flows {
            0 => String::new(),
            1 => " and a flow".into(),
            flows => format!(" and {} flows", Count(flows.into())),
        };
        let limit = Count(process.limit.into());
        let (rate, most_sessions) = (process.session_rate.now, process.session_rate.max);
        let (bytes, most_bytes) = (process.byte_rate.now, process.byte_rate.max);

        let services = &self.snapshot.services;
        let up = services.iter().filter(|one| one.is_up()).count();
        let endpoints = || services.iter().flat_map(|service| &service.endpoints);
        let are = |kinds: &[StatusKind]| {
            let endpoints = endpoints().inspect(|_| breath::take_later());
            endpoints
                .filter(|one| kinds.contains(&one.status.kind))
                .count()
        };
        let serving = are(&[StatusKind::Up, StatusKind::Unchecked]);
        let others = [
            (are(&[StatusKind::Down]), "down"),
            (are(&[StatusKind::Draining]), "drained"),
            (are(&[StatusKind::Maintenance]), "in maintenance"),
        ];
        let wrong = services.iter().filter(|one| is_wrong(one)).count();
        let stopped = self.snapshot.frontends.iter().filter(|one| !one.is_open);
        let stopped = stopped.count();
        let class = if wrong + stopped > 0 { "bad" } else { "good" };
        let cells = [
            tile(
                count(process.current),
                html! { "connections" (flows) },
                html! { "of " (limit) },
                graph(Shown::Current),
            ),
            tile(
                count(rate),
                html! { "sessions a second" },
                html! { "at most " (Count(most_sessions.into())) },
                graph(Shown::Sessions),
            ),
            tile(
                size(bytes.into()),
                html! { "a second to clients" },
                html! { "at most " (Size(most_bytes.into())) },
                graph(Shown::BytesOut),
            ),
            tile(
                out_of(up, services.len()),
                html! { "services up" },
                not_so(&[(services.len() - up, "down")]),
                None,
            ),
            tile(
                out_of(serving, endpoints().count()),
                html! { "endpoints serve" },
                not_so(&others),
                None,
            ),
            tile(
                html! { em class=(class) { (wrong + stopped) } },
                html! { "to look at" },
                html! { "services: " (wrong) ", frontends: " (stopped) },
                None,
            ),
        ];
        Line::new("tiles".into(), "tiles", cells)
    }

    fn graph(&self, history: &[Second], shown: Shown) -> Graph {
        Graph::of(history, self.snapshot.process.uptime.as_secs(), shown)
    }

    pub(super) fn frontend(&self, frontend: &FrontendStats) -> Line {
        let (name, spec) = (&*frontend.name, &frontend.spec);
        let more_binds = spec.bind.len().saturating_sub(BINDS);
        let (class, word) = match frontend.is_open {
            true => ("st open", "OPEN"),
            false => ("st stop", "STOP"),
        };
        let stats = &self.shared.stats;
        let history = stats.frontend_history(name, TEN_MINUTES);
        let graph = self.graph(&history.unwrap_or_default(), Shown::Sessions);
        let cells = [
            cell(
                "name",
                html! {
                    a name={ (name) "/Frontend" } {}
                    a class="px" href={ "#" (name) "/Frontend" } title=[spec.description.as_deref()] { (name) }
                    small {
                        (spec.protocol)
                        @for bind in spec.bind.iter().take(BINDS) { " " (bind) }
                        @if more_binds > 0 { " and " (more_binds) " more" }
                    }
                },
            ),
            cell(
                "status",
                html! { b class=(class) { (word) } (self.limit_by_hand(frontend)) },
            ),
            cell("g w", html! { (graph) }),
            cell("n", count(frontend.current)),
            cell("n x", count(frontend.peak)),
            cell("n x", count(frontend.limit)),
            cell("n", count(frontend.session_rate.now)),
            cell("n x", count(frontend.session_rate.max)),
            cell("n w", exact(frontend.counts.sessions)),
            cell("n w", size(frontend.counts.bytes_in)),
            cell("n w", size(frontend.counts.bytes_out)),
            cell("n w", bad(frontend.denied())),
            cell(
                "n",
                bad(frontend.errors().saturating_sub(frontend.denied())),
            ),
        ];
        Line::new(format!("f{}", frontend.iid), "frontend", cells)
    }

    /// A mark where an operator changed how many may come, and a way back.
    fn limit_by_hand(&self, frontend: &FrontendStats) -> Markup {
        let table = frontend.spec.max_connections.map(std::num::NonZero::get);
        let limit = Count(frontend.limit.into());
        html! {
            @if frontend.is_overridden {
                " "
                b class="hand" title={ "An operator set the limit to " (limit) "; the table says " (or_dash(table)) ". It stays so until it is undone" } { "limit by hand" }
                @if self.view.may_change {
                    form class="undo" method="post" action=(self.view.address(None)) {
                        input type="hidden" name="f" value={ "#" (frontend.iid) };
                        button name="action" value="default" { "As the table says" }
                    }
                }
            }
        }
    }

    /// The frontends of this page that have datagrams: what they have beside the rest.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = Line> {
        self.frontends().filter_map(|frontend| {
            let counts = frontend.datagrams.as_deref()?;
            let name = &*frontend.name;
            let cells = [
                cell(
                    "name",
                    html! { a class="px" href={ "#" (name) "/Frontend" } { (name) } },
                ),
                cell("n", count(frontend.current)),
                cell("n w", exact(frontend.counts.sessions)),
                cell("w", reasons(endings(counts))),
                cell("n", exact(counts.datagrams_in)),
                cell("n", exact(counts.datagrams_out)),
                cell("lost", reasons(counts.failures())),
            ];
            Some(Line::new(format!("u{}", frontend.iid), "frontend", cells))
        })
    }

    pub(super) fn head(&self, service: &ServiceStats) -> Line {
        let (name, spec) = (&*service.name, &service.spec);
        let (class, status, word) = match service.is_up() {
            true => ("head up", "st open", "UP"),
            false => ("head down", "st stop", "DOWN"),
        };
        let usable = service.usable + service.usable_backups;
        let usable = format!("{usable} of {} usable", service.endpoints.len());
        let is_down = |one: &EndpointStats| one.status.kind == StatusKind::Down;
        let is_any_down = service.endpoints.iter().any(is_down);
        let history = self.shared.stats.service_history(name, TEN_MINUTES);
        let graph = self.graph(&history.unwrap_or_default(), Shown::Sessions);
        let cells = [
            cell(
                "name",
                html! {
                    a name=(name) {}
                    a class="px" href={ "#" (name) } title=[spec.description.as_deref()] { (name) }
                },
            ),
            cell(
                "status",
                html! {
                    b class=(status) { (word) }
                    @if service.is_panicking {
                        " "
                        b class="st warn" title="Too few endpoints pass their checks: all get clients" { "CHECKS IGNORED" }
                    }
                },
            ),
            cell(
                "meta",
                html! {
                    @if is_any_down { em class="warn" { (usable) } } @else { (usable) }
                    @if service.queue > 0 { " · " em class="warn" { (Count(service.queue.into())) " wait" } }
                    " · " (spec.algorithm) " · " (service.mode.word()) " · for " (Lasted(service.changed.into()))
                },
            ),
            cell("g", html! { (graph) }),
            cell(
                "n",
                html! { b { (Count(service.session_rate.now.into())) } "/s" },
            ),
        ];
        Line::new(format!("s{}", service.iid), class, cells)
    }

    /// The lines of a service's table: its endpoints, and their sum.
    pub(super) fn body<'a>(&'a self, service: &'a ServiceStats) -> impl Iterator<Item = Line> {
        let endpoints = self.endpoints(service);
        let endpoints = endpoints.map(|endpoint| self.endpoint(service, endpoint));
        endpoints.chain(std::iter::once_with(|| self.sum(service)))
    }

    /// Where the reader chooses endpoints, if they may change any.
    fn pick(&self, content: impl FnOnce() -> Markup) -> Option<Cell> {
        self.view.may_change.then(|| Cell {
            is_live: false,
            ..cell("pick", content())
        })
    }

    fn endpoint(&self, service: &ServiceStats, endpoint: &EndpointStats) -> Line {
        let (proxy, name) = (&*service.name, &*endpoint.name);
        let pick = || html! { input type="checkbox" name="s" value=(name) aria-label=(name); };
        let (counts, address) = (&endpoint.counts, endpoint.address.to_string());
        let cells = [
            cell(
                "name",
                html! {
                    a name={ (proxy) "/" (name) } {}
                    (name)
                    small {
                        @if name != address { (address) }
                        @if endpoint.is_backup { " backup" }
                        @for place in [&endpoint.node, &endpoint.zone].into_iter().flatten() { " · " (&**place) }
                    }
                },
            ),
            cell("status", status(endpoint)),
            cell("w", last_check(endpoint)),
            cell(
                "n w",
                html! {
                    (endpoint.weight)
                    // What it has now, and what it was given.
                    @if endpoint.growth.is_some() { "/" (endpoint.user_weight) }
                },
            ),
            cell("n", count(endpoint.current)),
            cell("n x", count(endpoint.peak)),
            cell("n x", or_dash(endpoint.limit)),
            cell("n", count(endpoint.session_rate.now)),
            cell("n x", count(endpoint.session_rate.max)),
            cell("n w", exact(counts.sessions)),
            cell("n w", size(counts.bytes_in)),
            cell("n w", size(counts.bytes_out)),
            cell("n", bad(counts.connect_errors + counts.response_errors)),
            cell("n x", bad(counts.redispatches)),
            cell("n x", millis(endpoint.means.connect)),
        ];
        let id = format!("e{}-{}", service.iid, endpoint.sid);
        Line::new(
            id,
            class_of(endpoint),
            self.pick(pick).into_iter().chain(cells),
        )
    }

    fn sum(&self, service: &ServiceStats) -> Line {
        let others = service.endpoints.len() - self.endpoints(service).count();
        let counts = &service.counts;
        let cells = [
            cell(
                "name",
                html! {
                    a name={ (&*service.name) "/Backend" } {}
                    "all together"
                    small { @if others > 0 { "with " (others) " that are not shown" } }
                },
            ),
            cell("status", html! {}),
            cell("w", html! {}),
            cell("n w", html! { (service.weight) }),
            cell("n", count(service.current)),
            cell("n x", count(service.peak)),
            cell("n x", or_dash(None)),
            cell("n", count(service.session_rate.now)),
            cell("n x", count(service.session_rate.max)),
            cell("n w", exact(service.own.sessions)),
            cell("n w", size(counts.bytes_in)),
            cell("n w", size(counts.bytes_out)),
            cell("n", bad(service.errors())),
            cell("n x", bad(counts.redispatches)),
            cell("n x", millis(service.means.connect)),
        ];
        let pick = self.pick(|| html! {});
        Line::new(
            format!("b{}", service.iid),
            "backend",
            pick.into_iter().chain(cells),
        )
    }
}

impl Listed {
    fn of(taken: impl Iterator<Item = bool>, page: usize) -> Self {
        let taken = taken.enumerate().filter(|(_, taken)| *taken);
        let places: Vec<usize> = taken.map(|(place, _)| place).collect();
        let pages = places.len().div_ceil(A_PAGE).max(1);
        let page = page.clamp(1, pages);
        Self {
            found: places.len(),
            page,
            pages,
            places: places
                .into_iter()
                .skip((page - 1) * A_PAGE)
                .take(A_PAGE)
                .collect(),
        }
    }
}

/// The table in force, and how old it is.
fn table(process: &Process) -> Markup {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let age = now
        .unwrap_or_default()
        .as_secs()
        .saturating_sub(process.applied);
    html! {
        @if process.applied == 0 {
            "no table"
        } @else {
            "table "
            @if let Some(generation) = process.generation { (generation) ", " }
            "applied " (Lasted(age)) " ago"
        }
    }
}

fn tile(number: Markup, what: Markup, more: Markup, graph: Option<Graph>) -> Cell {
    cell(
        "tile",
        html! {
            b { (number) } span { (what) } small { (more) }
            @if let Some(graph) = graph { (graph) }
        },
    )
}

fn out_of(number: usize, all: usize) -> Markup {
    html! { (number) i { "/" (all) } }
}

/// How many are not as they should be. Those that are down stand out.
fn not_so(others: &[(usize, &str)]) -> Markup {
    let others = others.iter().filter(|(count, _)| *count > 0);
    let mut others = others.enumerate().peekable();
    html! {
        @if others.peek().is_none() { "all of them" }
        @for (place, (count, what)) in others {
            @if place > 0 { ", " }
            @if *what == "down" { em class="bad" { (count) " down" } } @else { (count) " " (what) }
        }
    }
}

/// How many for which reason; the most frequent one first.
fn reasons(counts: impl Iterator<Item = (&'static str, u64)>) -> Markup {
    let mut counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    html! {
        @if counts.is_empty() { "–" }
        @for (place, (reason, count)) in counts.into_iter().enumerate() {
            @if place > 0 { ", " }
            (Count(count)) " " (reason)
        }
    }
}

fn endings(counts: &UdpCounts) -> impl Iterator<Item = (&'static str, u64)> {
    let ended = FlowEnd::ALL.map(|why| (why.word(), counts.ended[why.index()]));
    ended.into_iter()
}

fn status(endpoint: &EndpointStats) -> Markup {
    let status = endpoint.status;
    let arrow = match (status.progress, status.kind) {
        (None, _) => "",
        (Some(_), StatusKind::Down) => " ↑",
        (Some(_), _) => " ↓",
    };
    html! {
        b class="st" { (status) (arrow) }
        @if endpoint.is_overridden {
            " "
            b class="hand" title="An operator changed this; it stays so until it is undone" { "by hand" }
        }
        small { "for " (Lasted(endpoint.changed.into())) }
        // Where there is no room for a column of its own.
        @if let Some(check) = endpoint.check.as_deref().filter(|check| !check.result.is_empty()) {
            small class="narrow" { (check.result) " in " (check.took) " ms" }
        }
    }
}

fn last_check(endpoint: &EndpointStats) -> Markup {
    if endpoint.closes_loop {
        return html! {
            "a loop"
            small { "this address is a frontend of the same table, so no client is sent to it" }
        };
    }
    if let Some(rest) = endpoint.ejected {
        return html! { "not reached" small { "tried again in " (Lasted(rest.as_secs())) } };
    }
    let check = endpoint.check.as_deref();
    let Some(check) = check.filter(|check| !check.result.is_empty()) else {
        return html! { "–" };
    };
    let failures = endpoint.counts.check_failures;
    html! {
        span title={ (check.meaning) @if !check.said.is_empty() { ": " (check.said) } } {
            (check.result)
            @if let Some(code) = check.code { "/" (code) }
            " in " (check.took) " ms"
        }
        @if failures > 0 { small { (Count(failures)) " failed" } }
    }
}

/// The class that haproxy's page gives such a row: style sheets and scripts know them.
fn class_of(endpoint: &EndpointStats) -> &'static str {
    let is_changing = endpoint.status.progress.is_some();
    let is_light = endpoint.user_weight == 0;
    let [active, backup] = match endpoint.status.kind {
        StatusKind::Maintenance => return "maintain",
        StatusKind::Down if is_changing => ["active_going_up", "backup_going_up"],
        StatusKind::Down => ["active_down", "backup_down"],
        StatusKind::Draining => ["active_draining", "backup_draining"],
        StatusKind::Up | StatusKind::Unchecked if is_light => {
            ["active_draining", "backup_draining"]
        }
        StatusKind::Up if is_changing => ["active_going_down", "backup_going_down"],
        StatusKind::Up => ["active_up", "backup_up"],
        StatusKind::Unchecked => ["active_no_check", "backup_no_check"],
    };
    if endpoint.is_backup { backup } else { active }
}

/// Frontends, and services, of one page.
const A_PAGE: usize = 50;
/// Addresses of a frontend that are named.
const BINDS: usize = 3;
const TEN_MINUTES: usize = 600;
