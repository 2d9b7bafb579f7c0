//! What the page shows of one snapshot, line by line. The page and its events are written from these lines.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ballast_core::counters::Counts;
use ballast_core::flow::FlowEnd;
use ballast_core::http::StatusClass;
use maud::{Markup, html};

use super::cells::{certificates, class_of, last_check, not_so, reasons, status, table, trouble};
use super::line::{Cell, Line, cell, cells};
use super::text::{Graph, Lasted, Shown, bad, count, exact, or_dash, size};
use super::view::{View, is_wrong, is_wrong_frontend};
use crate::operator::admin::announced::Announced;
use crate::stats::{
    EndpointStats, FrontendStats, Mode, Of, ServiceStats, Snapshot, Statistics, StatusKind,
};

/// One snapshot, as one reader wants to see it.
pub(super) struct Listing {
    stats: Arc<Statistics>,
    pub(super) snapshot: Arc<Snapshot>,
    /// What the announcer beside this process says. `None`: there is none.
    pub(super) announced: Option<Arc<Announced>>,
    pub(super) view: View,
    pub(super) frontends: Listed,
    pub(super) services: Listed,
}

/// One page of what was found.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) found: usize,
    pub(super) page: usize,
    pub(super) pages: usize,
    places: Vec<usize>,
}

impl Listing {
    pub(super) fn of(
        stats: &Arc<Statistics>,
        snapshot: Arc<Snapshot>,
        announced: Option<Arc<Announced>>,
        view: View,
    ) -> Self {
        let frontends = snapshot.frontends.iter();
        let frontends = frontends.map(|one| view.takes_frontend(one));
        let services = snapshot.services.iter();
        let services = services.map(|one| view.takes_service(one));
        Self {
            stats: Arc::clone(stats),
            frontends: Listed::of(frontends, view.frontends_page),
            services: Listed::of(services, view.page),
            snapshot,
            announced,
            view,
        }
    }

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
            .chain(self.announcer())
            .chain(self.addresses())
            .chain(self.http())
            .chain(self.datagrams())
            .chain(self.routes())
            .chain(self.certificates())
            .chain(
                self.services().flat_map(|service| {
                    std::iter::once(self.head(service)).chain(self.body(service))
                }),
            )
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
        self.hash_addresses(&mut hasher);
        self.hash_routes(&mut hasher);
        self.hash_certificates(&mut hasher);
        for service in self.services() {
            service.iid.hash(&mut hasher);
            let endpoints = self.endpoints(service).map(|endpoint| endpoint.sid);
            endpoints.collect::<Vec<_>>().hash(&mut hasher);
        }
        hasher.finish()
    }

    pub(super) fn facts(&self) -> Line {
        let process = &self.snapshot.process;
        let (class, state) = match (process.is_stopping, process.is_ready) {
            (true, _) => ("bad", "ending"),
            (false, true) => ("good", "serving"),
            (false, false) => ("bad", "no table yet"),
        };
        let cells = cells! {
            "" { b class=(class) { (state) } }
            "" { "up " (Lasted(process.uptime.as_secs())) }
            "" { (table(process)) }
            "" { "pid " (process.pid) }
            "" { "workers: " (process.workers) ", " (process.idle) " % idle" }
        };
        Line::new("facts".into(), "facts", cells)
    }

    pub(super) fn tiles(&self) -> Line {
        let process = &self.snapshot.process;
        let (sessions, bytes) = (process.session_rate, process.byte_rate);
        let graph = |shown| self.graph(Of::All, shown);

        let services = &self.snapshot.services;
        let empty = services
            .iter()
            .filter(|one| one.endpoints.is_empty())
            .count();
        let up = services.iter().filter(|one| one.is_up()).count() - empty;
        let endpoints = || services.iter().flat_map(|service| &service.endpoints);
        let are = |kinds: &[StatusKind]| {
            let endpoints = endpoints();
            let are = endpoints.filter(|one| kinds.contains(&one.status.kind));
            are.count()
        };
        let wrong = services.iter().filter(|one| is_wrong(one)).count();
        let frontends = self.snapshot.frontends.iter();
        let wrong_frontends = frontends.filter(|one| is_wrong_frontend(one)).count();
        let class = if wrong + wrong_frontends > 0 {
            "bad"
        } else {
            "good"
        };
        let others = [
            (are(&[StatusKind::Down]), "down"),
            (
                are(&[StatusKind::Draining, StatusKind::Stopping]),
                "drained",
            ),
            (are(&[StatusKind::Maintenance]), "in maintenance"),
        ];
        let cells = cells! {
            "tile" {
                b { (count(process.current)) }
                span {
                    "connections"
                    @if process.flows == 1 { " and a flow" }
                    @if process.flows > 1 { " and " (count(process.flows)) " flows" }
                }
                small { "of " (count(process.limit)) }
                (graph(Shown::Current))
            }
            "tile" {
                b { (count(sessions.now)) } span { "sessions a second" }
                small { "at most " (count(sessions.max)) } (graph(Shown::Sessions))
            }
            "tile" {
                b { (size(bytes.now)) } span { "a second to clients" }
                small { "at most " (size(bytes.max)) } (graph(Shown::BytesOut))
            }
            "tile" {
                b { (up) i { "/" (services.len()) } } span { "services up" }
                small { (not_so(&[(services.len() - up - empty, "down"), (empty, "without an endpoint")])) }
            }
            "tile" {
                b { (are(&[StatusKind::Up, StatusKind::Unchecked])) i { "/" (endpoints().count()) } } span { "endpoints serve" }
                small { (not_so(&others)) }
            }
            "tile" {
                b { em class=(class) { (wrong + wrong_frontends) } } span { "to look at" }
                small { "services: " (wrong) ", frontends: " (wrong_frontends) }
            }
        };
        Line::new("tiles".into(), "tiles", cells)
    }

    fn graph(&self, of: Of<'_>, shown: Shown) -> Graph {
        let history = self.stats.history(of).unwrap_or_default();
        Graph::of(&history, self.snapshot.process.uptime.as_secs(), shown)
    }

    pub(super) fn frontend(&self, frontend: &FrontendStats) -> Line {
        let (name, spec, counts) = (&*frontend.name, &frontend.spec, &frontend.counts);
        let more_binds = spec.bind.len().saturating_sub(BINDS);
        let class = if frontend.is_open {
            "st open"
        } else {
            "st stop"
        };
        let denied = frontend.all_denied();
        let cells = cells! {
            "name" {
                a name={ (name) "/Frontend" } {}
                a class="px" href={ "#" (name) "/Frontend" } title=[spec.description.as_deref()] { (name) }
                small {
                    (spec.protocol)
                    @for bind in spec.bind.iter().take(BINDS) { " " (bind) }
                    @if more_binds > 0 { " and " (more_binds) " more" }
                }
            }
            "status" { b class=(class) { (frontend.status_word()) } (trouble(frontend)) (self.limit_by_hand(frontend)) (certificates(frontend)) }
            "g w" { (self.graph(Of::Frontend(name), Shown::Sessions)) }
            "n" { (count(frontend.current)) }
            "n y" { (count(frontend.peak)) }
            "n y" { (count(frontend.limit)) }
            "n" { (count(frontend.session_rate.now)) }
            "n x" { (count(frontend.session_rate.max)) }
            "n w" { (exact(counts.sessions)) }
            "n w" { (size(counts.bytes_in)) }
            "n w" { (size(counts.bytes_out)) }
            "n w" { (bad(denied)) }
            "n" { (bad(frontend.errors().saturating_sub(denied))) }
        };
        Line::new(format!("f{}", frontend.iid), "frontend", cells)
    }

    /// A mark where an operator changed how many may come, and a way back.
    fn limit_by_hand(&self, frontend: &FrontendStats) -> Markup {
        let table = frontend.spec.max_connections.map(std::num::NonZero::get);
        html! {
            @if frontend.is_overridden {
                " "
                b class="hand" title={
                    "An operator set the limit to " (count(frontend.limit)) "; the table says " (or_dash(table))
                    ". It stays so until it is undone"
                } { "limit by hand" }
                @if self.view.may_change {
                    form class="undo" method="post" action=(self.view.address(None)) {
                        input type="hidden" name="f" value={ "#" (frontend.iid) };
                        button name="action" value="default" { "As the table says" }
                    }
                }
            }
        }
    }

    /// The frontends of this page that have datagrams: what only they have.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = Line> {
        self.frontends().filter_map(|frontend| {
            let (name, counts) = (&*frontend.name, frontend.datagrams.as_deref()?);
            let ended = FlowEnd::ALL.map(|why| (why.word(), counts.ended[why.index()]));
            let cells = cells! {
                "name" { a class="px" href={ "#" (name) "/Frontend" } { (name) } }
                "n" { (count(frontend.current)) }
                "n w" { (exact(frontend.counts.sessions)) }
                "w" { (reasons(ended.into_iter())) }
                "n" { (exact(counts.datagrams_in)) }
                "n" { (exact(counts.datagrams_out)) }
                "lost" { (reasons(counts.failures())) }
            };
            Some(Line::new(format!("u{}", frontend.iid), "frontend", cells))
        })
    }

    /// The frontends of this page that speak HTTP: what only they have.
    pub(super) fn http(&self) -> impl Iterator<Item = Line> {
        let frontends = self.frontends();
        let frontends = frontends.filter(|frontend| frontend.mode == Mode::Http);
        frontends.map(|frontend| {
            let (name, counts) = (&*frontend.name, &frontend.counts);
            let classes =
                StatusClass::ALL.map(|class| (class.word(), counts.responses[class.index()]));
            let cells = cells! {
                "name" { a class="px" href={ "#" (name) "/Frontend" } { (name) } }
                "n" { (count(frontend.request_rate.now)) }
                "n x" { (count(frontend.request_rate.max)) }
                "n" { (exact(counts.requests)) }
                "w" { (reasons(classes.into_iter())) }
                "n w" { (exact(counts.intercepted)) }
                "n" { (bad(counts.denied_requests + counts.bad_requests)) }
            };
            Line::new(format!("h{}", frontend.iid), "frontend", cells)
        })
    }

    pub(super) fn head(&self, service: &ServiceStats) -> Line {
        let (name, spec) = (&*service.name, &service.spec);
        let (class, status, word) = if service.endpoints.is_empty() {
            ("head", "st", "EMPTY")
        } else if service.is_up() {
            ("head up", "st open", "UP")
        } else {
            ("head down", "st stop", "DOWN")
        };
        let usable = service.usable + service.usable_backups;
        let usable = match service.endpoints.len() {
            0 => "no endpoint".to_owned(),
            all => format!("{usable} of {all} usable"),
        };
        let is_down = |one: &EndpointStats| one.status.kind == StatusKind::Down;
        let is_any_down = service.endpoints.iter().any(is_down);
        let has_answered = service.counts.responses.iter().any(|count| *count > 0);
        let cells = cells! {
            "name" {
                a name=(name) {}
                a class="px" href={ "#" (name) } title=[spec.description.as_deref()] { (name) }
            }
            "status" {
                b class=(status) { (word) }
                @if service.is_panicking {
                    " "
                    b class="st warn" title="Too few endpoints pass their checks: all get clients" { "CHECKS IGNORED" }
                }
            }
            "meta" {
                @if is_any_down { em class="warn" { (usable) } } @else { (usable) }
                @if service.queue > 0 { " · " em class="warn" { (count(service.queue)) " wait" } }
                " · " (spec.algorithm) " · " (service.mode.word()) " · for " (Lasted(service.changed.into()))
                @if service.mode == Mode::Http && has_answered { " · answers after " (count(service.means.response)) " ms" }
                @if let Some(why) = &service.tls_problem { " · " em class="warn" { "TLS: " (why) } }
            }
            "g" { (self.graph(Of::Service(name), Shown::Sessions)) }
            "n" { b { (count(service.session_rate.now)) } "/s" }
        };
        Line::new(format!("s{}", service.iid), class, cells)
    }

    /// The lines of a service's table: its endpoints, and their sum.
    pub(super) fn body<'a>(&'a self, service: &'a ServiceStats) -> impl Iterator<Item = Line> {
        let endpoints = self.endpoints(service);
        let endpoints = endpoints.map(|endpoint| self.endpoint(service, endpoint));
        endpoints.chain(std::iter::once_with(|| self.sum(service)))
    }

    /// Where a reader chooses endpoints, if they may change any. Events leave the choice as it is.
    fn pick(&self, content: impl FnOnce() -> Markup) -> impl Iterator<Item = Cell> {
        let pick = self.view.may_change.then(|| Cell {
            is_live: false,
            ..cell("pick", content())
        });
        pick.into_iter()
    }

    fn endpoint(&self, service: &ServiceStats, endpoint: &EndpointStats) -> Line {
        let (proxy, name, counts) = (&*service.name, &*endpoint.name, &endpoint.counts);
        let address = endpoint.address.to_string();
        let pick = || html! { input type="checkbox" name="s" value=(name) aria-label=(name); };
        let cells = cells! {
            "name" {
                a name={ (proxy) "/" (name) } {}
                (name)
                small {
                    @if name != address { (address) }
                    @if endpoint.is_backup { " backup" }
                    @for place in [&endpoint.node, &endpoint.zone].into_iter().flatten() { " · " (&**place) }
                }
            }
            "status" { (status(endpoint)) }
            "w" { (last_check(endpoint)) }
            // What it has now, and what it was given.
            "n w" { (endpoint.weight) @if endpoint.growth.is_some() { "/" (endpoint.user_weight) } }
            "n" { (count(endpoint.current)) }
            "n y" { (count(endpoint.peak)) }
            "n y" { (or_dash(endpoint.limit)) }
            "n" { (count(endpoint.session_rate.now)) }
            "n x" { (count(endpoint.session_rate.max)) }
            "n w" { (exact(counts.sessions)) }
            "n w" { (size(counts.bytes_in)) }
            "n w" { (size(counts.bytes_out)) }
            "n" { (bad(counts.connect_errors + counts.response_errors)) }
            "n x" { (bad(counts.redispatches)) }
            "n x" { (count(endpoint.means.connect)) " ms" }
        };
        let id = format!("e{}-{}", service.iid, endpoint.sid);
        Line::new(id, class_of(endpoint), self.pick(pick).chain(cells))
    }

    fn sum(&self, service: &ServiceStats) -> Line {
        let (name, counts) = (&*service.name, &service.counts);
        let others = service.endpoints.len() - self.endpoints(service).count();
        let cells = cells! {
            "name" {
                a name={ (name) "/Backend" } {}
                "all together"
                small { @if others > 0 { "with " (others) " that are not shown" } }
            }
            "status" {}
            "w" {}
            "n w" { (service.weight) }
            "n" { (count(service.current)) }
            "n y" { (count(service.peak)) }
            "n y" { (or_dash(None)) }
            "n" { (count(service.session_rate.now)) }
            "n x" { (count(service.session_rate.max)) }
            "n w" { (exact(service.own.sessions)) }
            "n w" { (size(counts.bytes_in)) }
            "n w" { (size(counts.bytes_out)) }
            "n" { (bad(service.errors())) }
            "n x" { (bad(counts.redispatches)) }
            "n x" { (count(service.means.connect)) " ms" }
        };
        let id = format!("b{}", service.iid);
        Line::new(id, "backend", self.pick(|| html! {}).chain(cells))
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

/// Frontends, and services, of one page.
const A_PAGE: usize = 50;
/// Addresses of a frontend that are named.
const BINDS: usize = 3;
