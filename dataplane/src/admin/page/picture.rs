//! What the page shows of one snapshot, line by line; the page and its events are written from it.

use std::fmt::Display;
use std::sync::Arc;

use super::cells::{
    AndFlows, Bad, Binds, Exact, LastCheck, Millis, Others, OutOf, Status, Table, Tally, Tooltip,
    Usable, Waiting, Weight, Whereabouts,
};
use super::datagrams;
use super::line::{Line, digest};
use super::text::{Count, Escaped, Graph, Lasted, OrDash, Shown, Size};
use super::view::{View, is_wrong};
use crate::stats::{EndpointStats, FrontendStats, ServiceStats, Snapshot, StatusKind};
use crate::worker::Shared;

/// One snapshot, as one reader wants to see it.
pub(super) struct Picture {
    pub(super) shared: Arc<Shared>,
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
    pub(super) places: Vec<usize>,
}

/// Which line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Facts,
    Tiles,
    Frontend(usize),
    Datagrams(usize),
    Head(usize),
    Endpoint(usize, usize),
    Sum(usize),
}

impl Picture {
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

    /// All lines, in their order.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part> {
        let frontends = self.frontends.places.iter();
        let services = self.services.places.iter();
        [Part::Facts, Part::Tiles]
            .into_iter()
            .chain(frontends.map(|place| Part::Frontend(*place)))
            .chain(self.datagrams())
            .chain(services.flat_map(|place| self.parts_of(*place)))
    }

    /// Those of the frontends that are shown and have datagrams.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = Part> {
        let places = self.frontends.places.iter();
        places
            .filter(|place| {
                let frontend = self.snapshot.frontends.get(**place);
                frontend.is_some_and(|frontend| frontend.datagrams.is_some())
            })
            .map(|place| Part::Datagrams(*place))
    }

    /// The lines of one service.
    pub(super) fn parts_of(&self, place: usize) -> impl Iterator<Item = Part> {
        std::iter::once(Part::Head(place))
            .chain(self.endpoints(place))
            .chain(std::iter::once(Part::Sum(place)))
    }

    pub(super) fn endpoints(&self, place: usize) -> impl Iterator<Item = Part> {
        let service = self.snapshot.services.get(place);
        let endpoints = service.map(|service| (service, service.endpoints.iter().enumerate()));
        endpoints.into_iter().flat_map(move |(service, endpoints)| {
            endpoints
                .filter(|(_, endpoint)| self.view.takes_endpoint(service, endpoint))
                .map(move |(number, _)| Part::Endpoint(place, number))
        })
    }

    /// A number that changes when there are other lines, or other words around them.
    pub(super) fn shape(&self, lines: &[Line]) -> u64 {
        let process = &self.snapshot.process;
        let ids: Vec<&str> = lines.iter().map(|line| &*line.id).collect();
        digest((
            ids,
            process.started,
            process.is_stopping,
            process.refusal.as_deref(),
            &process.exceptions,
            (self.services.found, self.frontends.found),
        ))
    }

    pub(super) fn line(&self, part: Part) -> Line {
        let snapshot = &self.snapshot;
        let line = match part {
            Part::Facts => Some(self.facts()),
            Part::Tiles => Some(self.tiles()),
            Part::Frontend(place) => snapshot.frontends.get(place).map(|one| self.frontend(one)),
            Part::Datagrams(place) => snapshot.frontends.get(place).and_then(|one| {
                let datagrams = one.datagrams.as_deref()?;
                Some(datagrams::line(one, datagrams))
            }),
            Part::Head(place) => snapshot.services.get(place).map(|one| self.head(one)),
            Part::Sum(place) => snapshot.services.get(place).map(|one| self.sum(one)),
            Part::Endpoint(place, number) => snapshot.services.get(place).and_then(|service| {
                let endpoint = service.endpoints.get(number)?;
                Some(self.endpoint(service, endpoint))
            }),
        };
        line.unwrap_or_default()
    }

    fn facts(&self) -> Line {
        let process = &self.snapshot.process;
        let mut line = Line::new("facts".into(), "facts");
        let state = match (process.is_stopping, process.is_ready) {
            (true, _) => r#"<b class="bad">ending</b>"#,
            (false, true) => r#"<b class="good">serving</b>"#,
            (false, false) => r#"<b class="bad">no table yet</b>"#,
        };
        line.cell("", state);
        line.cell("", format_args!("up {}", Lasted(process.uptime.as_secs())));
        line.cell("", Table(process.generation, process.applied));
        line.cell("", format_args!("pid {}", process.pid));
        line.cell(
            "",
            format_args!("workers: {}, {} % idle", process.workers, process.idle),
        );
        line
    }

    fn tiles(&self) -> Line {
        let services = &self.snapshot.services;
        let mut line = Line::new("tiles".into(), "tiles");
        let tile = |line: &mut Line, number: &dyn Display, what: &str, more: &dyn Display| {
            line.cell(
                "tile",
                format_args!("<b>{number}</b><span>{what}</span><small>{more}</small>"),
            );
        };
        self.traffic(&mut line);
        let up = services.iter().filter(|one| one.is_up()).count();
        tile(
            &mut line,
            &format_args!("{up}<i>/{}</i>", services.len()),
            "services up",
            &OutOf(services.len() - up, "down"),
        );
        let endpoints = Tally::of(services);
        tile(
            &mut line,
            &format_args!("{}<i>/{}</i>", endpoints.serving, endpoints.all),
            "endpoints serve",
            &endpoints,
        );
        let wrong = services.iter().filter(|one| is_wrong(one)).count();
        let stopped = self.snapshot.frontends.iter().filter(|one| !one.is_open);
        let stopped = stopped.count();
        let number = wrong + stopped;
        let class = if number > 0 { "bad" } else { "good" };
        tile(
            &mut line,
            &format_args!(r#"<em class="{class}">{number}</em>"#),
            "to look at",
            &format_args!("services: {wrong}, frontends: {stopped}"),
        );
        line
    }

    /// Now, and in the last ten minutes.
    fn traffic(&self, line: &mut Line) {
        let process = &self.snapshot.process;
        let history = self.shared.stats.total_history(TEN_MINUTES);
        let mut tile = |number: &dyn Display, what: &dyn Display, more: &dyn Display, of| {
            let graph = Graph::of(&history, process.uptime.as_secs(), of);
            line.cell(
                "tile",
                format_args!("<b>{number}</b><span>{what}</span><small>{more}</small>{graph}"),
            );
        };
        tile(
            &Count(process.current.into()),
            &format_args!("connections{}", AndFlows(process.flows)),
            &format_args!("of {}", Count(process.limit.into())),
            Shown::Current,
        );
        let (rate, most) = (process.session_rate.now, process.session_rate.max);
        tile(
            &Count(rate.into()),
            &"sessions a second",
            &format_args!("at most {}", Count(most.into())),
            Shown::Sessions,
        );
        let (rate, most) = (process.byte_rate.now, process.byte_rate.max);
        tile(
            &Size(rate.into()),
            &"a second to clients",
            &format_args!("at most {}", Size(most.into())),
            Shown::BytesOut,
        );
    }

    fn frontend(&self, frontend: &FrontendStats) -> Line {
        let (name, spec) = (Escaped(&*frontend.name), &frontend.spec);
        let mut line = Line::new(format!("f{}", frontend.iid), "frontend");
        line.cell(
            "name",
            format_args!(
                r##"<a name="{name}/Frontend"></a><a class="px" href="#{name}/Frontend"{}>{name}</a><small>{}</small>"##,
                Tooltip(spec.description.as_deref()),
                Binds(frontend)
            ),
        );
        let (class, word) = match frontend.is_open {
            true => ("open", "OPEN"),
            false => ("stop", "STOP"),
        };
        line.cell(
            "status",
            format_args!(
                r#"<b class="st {class}">{word}</b>{}"#,
                self.limit_by_hand(frontend)
            ),
        );
        let history = self
            .shared
            .stats
            .frontend_history(&frontend.name, TEN_MINUTES);
        let uptime = self.snapshot.process.uptime.as_secs();
        line.cell(
            "g w",
            Graph::of(&history.unwrap_or_default(), uptime, Shown::Sessions),
        );
        line.cell("n", Count(frontend.current.into()));
        line.cell("n x", Count(frontend.peak.into()));
        line.cell("n x", Count(frontend.limit.into()));
        line.cell("n", Count(frontend.session_rate.now.into()));
        line.cell("n x", Count(frontend.session_rate.max.into()));
        line.cell("n w", Exact(frontend.sessions));
        line.cell("n w", Size(frontend.bytes_in));
        line.cell("n w", Size(frontend.bytes_out));
        line.cell("n w", Bad(frontend.denied()));
        line.cell(
            "n",
            Bad(frontend.errors().saturating_sub(frontend.denied())),
        );
        line
    }

    /// A mark where an operator changed how many may come, and a way back.
    fn limit_by_hand(&self, frontend: &FrontendStats) -> String {
        if !frontend.is_overridden {
            return String::new();
        }
        let table = frontend
            .spec
            .max_connections
            .map(|limit| limit.get().into());
        let mark = format!(
            r#" <b class="hand" title="An operator set the limit to {}; the table says {}. It stays so until it is undone">limit by hand</b>"#,
            Count(frontend.limit.into()),
            OrDash(table.map(Count))
        );
        if !self.view.may_change {
            return mark;
        }
        let address = self.view.address(None);
        format!(
            r##"{mark}<form class="undo" method="post" action="{}"><input type="hidden" name="f" value="#{}"><button name="action" value="default">As the table says</button></form>"##,
            Escaped(address),
            frontend.iid
        )
    }

    fn head(&self, service: &ServiceStats) -> Line {
        let (name, spec) = (Escaped(&*service.name), &service.spec);
        let class = if service.is_up() {
            "head up"
        } else {
            "head down"
        };
        let mut line = Line::new(format!("s{}", service.iid), class);
        line.cell(
            "name",
            format_args!(
                r##"<a name="{name}"></a><a class="px" href="#{name}"{}>{name}</a>"##,
                Tooltip(spec.description.as_deref())
            ),
        );
        let (class, word) = match service.is_up() {
            true => ("open", "UP"),
            false => ("stop", "DOWN"),
        };
        let panic = match service.is_panicking {
            true => {
                r#" <b class="st warn" title="Too few endpoints pass their checks: all get clients">CHECKS IGNORED</b>"#
            }
            false => "",
        };
        line.cell(
            "status",
            format_args!(r#"<b class="st {class}">{word}</b>{panic}"#),
        );
        line.cell(
            "meta",
            format_args!(
                "{}{} · {} · {} · for {}",
                Usable(service),
                Waiting(service.queue),
                spec.algorithm,
                service.mode.word(),
                Lasted(service.changed.into())
            ),
        );
        let history = self
            .shared
            .stats
            .service_history(&service.name, TEN_MINUTES);
        let uptime = self.snapshot.process.uptime.as_secs();
        line.cell(
            "g",
            Graph::of(&history.unwrap_or_default(), uptime, Shown::Sessions),
        );
        line.cell(
            "n",
            format_args!("<b>{}</b>/s", Count(service.session_rate.now.into())),
        );
        line
    }

    fn endpoint(&self, service: &ServiceStats, endpoint: &EndpointStats) -> Line {
        let (px, name) = (Escaped(&*service.name), Escaped(&*endpoint.name));
        let id = format!("e{}-{}", service.iid, endpoint.sid);
        let mut line = Line::new(id, row_class(endpoint));
        if self.view.may_change {
            line.still(
                "pick",
                format_args!(
                    r#"<input type="checkbox" name="s" value="{name}" aria-label="{name}">"#
                ),
            );
        }
        line.cell(
            "name",
            format_args!(
                r#"<a name="{px}/{name}"></a>{name}<small>{}</small>"#,
                Whereabouts(endpoint)
            ),
        );
        line.cell("status", Status(endpoint));
        line.cell("w", LastCheck(endpoint));
        line.cell("n w", Weight(endpoint));
        line.cell("n", Count(endpoint.current.into()));
        line.cell("n x", Count(endpoint.peak.into()));
        line.cell(
            "n x",
            OrDash(endpoint.limit.map(|limit| Count(limit.into()))),
        );
        line.cell("n", Count(endpoint.session_rate.now.into()));
        line.cell("n x", Count(endpoint.session_rate.max.into()));
        line.cell("n w", Exact(endpoint.counts.sessions));
        line.cell("n w", Size(endpoint.counts.bytes_in));
        line.cell("n w", Size(endpoint.counts.bytes_out));
        line.cell(
            "n",
            Bad(endpoint.counts.connect_errors + endpoint.counts.response_errors),
        );
        line.cell("n x", Bad(endpoint.counts.redispatches));
        line.cell("n x", Millis(endpoint.means.connect));
        line
    }

    fn sum(&self, service: &ServiceStats) -> Line {
        let px = Escaped(&*service.name);
        let mut line = Line::new(format!("b{}", service.iid), "backend");
        if self.view.may_change {
            line.still("pick", "");
        }
        let others = service.endpoints.len() - self.endpoints_shown(service);
        line.cell(
            "name",
            format_args!(
                r#"<a name="{px}/Backend"></a>all together<small>{}</small>"#,
                Others(others)
            ),
        );
        line.cell("status", "");
        line.cell("w", "");
        line.cell("n w", service.weight);
        line.cell("n", Count(service.current.into()));
        line.cell("n x", Count(service.peak.into()));
        line.cell("n x", OrDash(None::<u8>));
        line.cell("n", Count(service.session_rate.now.into()));
        line.cell("n x", Count(service.session_rate.max.into()));
        line.cell("n w", Exact(service.sessions));
        line.cell("n w", Size(service.counts.bytes_in));
        line.cell("n w", Size(service.counts.bytes_out));
        line.cell("n", Bad(service.errors()));
        line.cell("n x", Bad(service.counts.redispatches));
        line.cell("n x", Millis(service.means.connect));
        line
    }

    fn endpoints_shown(&self, service: &ServiceStats) -> usize {
        let endpoints = service.endpoints.iter();
        endpoints
            .filter(|endpoint| self.view.takes_endpoint(service, endpoint))
            .count()
    }
}

impl Listed {
    fn of(taken: impl Iterator<Item = bool>, page: usize) -> Self {
        let places: Vec<usize> = taken
            .enumerate()
            .filter_map(|(place, taken)| taken.then_some(place))
            .collect();
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

/// The class that haproxy's page gives such a row: style sheets and scripts know them.
fn row_class(endpoint: &EndpointStats) -> &'static str {
    let is_changing = endpoint.status.progress.is_some();
    let is_light = endpoint.user_weight == 0;
    match (endpoint.is_backup, endpoint.status.kind) {
        (_, StatusKind::Maintenance) => "maintain",
        (false, StatusKind::Down) if is_changing => "active_going_up",
        (true, StatusKind::Down) if is_changing => "backup_going_up",
        (false, StatusKind::Down) => "active_down",
        (true, StatusKind::Down) => "backup_down",
        (false, StatusKind::Draining) => "active_draining",
        (true, StatusKind::Draining) => "backup_draining",
        (false, StatusKind::Up | StatusKind::Unchecked) if is_light => "active_draining",
        (true, StatusKind::Up | StatusKind::Unchecked) if is_light => "backup_draining",
        (false, StatusKind::Up) if is_changing => "active_going_down",
        (true, StatusKind::Up) if is_changing => "backup_going_down",
        (false, StatusKind::Up) => "active_up",
        (true, StatusKind::Up) => "backup_up",
        (false, StatusKind::Unchecked) => "active_no_check",
        (true, StatusKind::Unchecked) => "backup_no_check",
    }
}

/// Frontends, and services, of one page.
const A_PAGE: usize = 50;
const TEN_MINUTES: usize = 600;
