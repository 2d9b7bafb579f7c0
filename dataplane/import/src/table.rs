//! From sections to one table that has no mistake.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ballast_core::table::{
    Access, Bind, Comments, Format, Frontend, HeaderEdits, List, Log, Problem, Route, RoutingTable,
    Service, ServiceTimeouts, Shown, Stats, parse, yaml,
};

use super::access::let_through;
use super::acl::Where;
use super::bind::{BindLine, Way};
use super::condition::Alternative;
use super::decide::Closed;
use super::frontends::{Backends, Made, Taken, default_backend};
use super::importer::Importer;
use super::pages::Answer;
use super::pattern::{PathKind, PathPattern};
use super::proxy::{Does, Edit, Kind, Of, Proxy, Stage};
use super::ranges::Ranges;
use super::read::Sections;
use super::services::{default_idle, file};
use super::words::Line;

/// A table with what is said about it.
pub(super) struct Assembled {
    pub(super) table: RoutingTable,
    pub(super) comments: Comments,
    /// The lines where the frontends and services begin.
    heads: (Vec<Line>, Vec<Line>),
}

/// What a mistake of a table takes out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Service,
    Frontend,
}

impl Assembled {
    /// The part that a mistake is in.
    fn part(&self, problem: &Problem) -> Option<(Part, usize)> {
        let (list, rest) = problem.at.split_once('[')?;
        let index = rest.split(']').next()?.parse::<usize>().ok()?;
        let (part, length) = match list {
            "frontends" => (Part::Frontend, self.table.frontends.len()),
            "services" => (Part::Service, self.table.services.len()),
            _ => return None,
        };
        (index < length).then_some((part, index))
    }
}

impl Importer<'_> {
    /// Makes the table of all sections.
    pub(super) fn assemble(&mut self, sections: &mut Sections) -> Assembled {
        for proxy in &mut sections.proxies {
            self.errorfiles(proxy, &sections.pages);
        }
        let proxies = self.distinct(sections);
        let backends: Backends<'_> = proxies
            .iter()
            .filter(|proxy| proxy.kind.has_service())
            .map(|proxy| (proxy.name.as_str(), *proxy))
            .collect();
        self.find_told_clients(&proxies, &backends);
        let mut taken = Taken::default();
        let mut stats = Stats::default();
        let (pages, served): (Vec<&Proxy>, Vec<&Proxy>) =
            proxies.iter().partition(|proxy| is_page(proxy));
        for proxy in &served {
            if let Some(line) = &proxy.stats {
                let uri = proxy.stats_uri.as_deref().unwrap_or("/haproxy?stats");
                self.report.left_out(line, format!("the page has an address of its own: stats.bind of the table, by default 127.0.0.1:1936; requests for {uri:?}, which haproxy answers, go on to the backend"));
            }
        }
        for page in &pages {
            self.page_of_stats(page, &mut stats, &mut taken);
        }
        let mut frontends: Vec<Made<Frontend>> = Vec::new();
        for proxy in served.iter().filter(|proxy| proxy.kind.has_frontend()) {
            if proxy.binds.is_empty() && proxy.kind == Kind::Frontend {
                let why = "no bind of it can be served; add one such as `bind *:80`";
                self.report.left_out(&proxy.head, why);
            }
            frontends.extend(self.frontends(proxy, &backends, &mut taken));
        }
        let mut services = self.services(&served, &mut frontends);
        let of_frontends: HashSet<usize> = frontends.iter().map(|made| made.head.number).collect();
        let of_services: HashSet<usize> = services.iter().map(|made| made.head.number).collect();
        for proxy in &served {
            let number = proxy.head.number;
            let has_frontend = of_frontends.contains(&number);
            let has_service = of_services.contains(&number);
            self.missing_timeouts(proxy, has_frontend, has_service);
        }
        frontends.sort_by(|one, other| one.part.name.cmp(&other.part.name));
        services.sort_by(|one, other| one.part.name.cmp(&other.part.name));
        let mut with_log = served
            .iter()
            .filter(|proxy| proxy.kind.has_frontend() && proxy.logs);
        let logs = with_log.next().is_some() && !self.log_targets.is_empty();
        let heads = (
            frontends.iter().map(|made| made.head.clone()).collect(),
            services.iter().map(|made| made.head.clone()).collect(),
        );
        let mut comments = Comments::default();
        comments.frontends.extend(self.comments(&frontends));
        comments.services.extend(self.comments(&services));
        let table = RoutingTable {
            version: 1,
            generation: None,
            stats,
            log: match logs {
                true => Log {
                    access: Access::Haproxy,
                    to: List::new(self.log_targets.clone()),
                },
                false => Log::default(),
            },
            ticket_keys: self.ticket_keys.as_deref().map(file),
            frontends: frontends.into_iter().map(|made| made.part).collect(),
            services: services.into_iter().map(|made| made.part).collect(),
        };
        self.without_mistakes(Assembled {
            table,
            comments,
            heads,
        })
    }

    /// Finds the backends whose endpoints are told of clients by `X-Forwarded-For`.
    fn find_told_clients(&mut self, proxies: &[&Proxy], backends: &Backends<'_>) {
        let users = users(proxies);
        for backend in backends.values() {
            let users = users.get(&*backend.name).into_iter().flatten();
            if users.copied().chain([*backend]).any(Proxy::tells_clients) {
                self.told_clients.insert(backend.name.clone());
            }
        }
    }

    /// The services that clients get to, and those that have servers.
    fn services(
        &mut self,
        served: &[&Proxy],
        frontends: &mut [Made<Frontend>],
    ) -> Vec<Made<Service>> {
        let mut services = Vec::new();
        let all_users = users(served);
        let leading: HashSet<(usize, &str)> = frontends
            .iter()
            .flat_map(|Made { part, head, .. }| part.services().map(|name| (head.number, &**name)))
            .collect();
        let used: HashSet<&str> = leading.iter().map(|(_, name)| *name).collect();
        let mut of_routes = EditsOfRoutes::new();
        for proxy in served.iter().filter(|proxy| proxy.kind.has_service()) {
            let users = all_users.get(&*proxy.name).map_or(&[][..], Vec::as_slice);
            let mut proxy = (*proxy).clone();
            self.edits_of_frontends(&mut proxy, users, &leading, &mut of_routes);
            if proxy.is_disabled || proxy.name.is_empty() {
                continue;
            }
            let lines = users.iter().flat_map(|user| &user.binds);
            let ports = lines.flat_map(|line| line.binds.iter().map(Bind::port));
            let ports: HashSet<u16> = ports.collect();
            let port = ports.iter().next().copied().filter(|_| ports.len() == 1);
            let is_used = used.contains(&*proxy.name);
            if proxy.servers.is_empty() && !is_used {
                let why = match (proxy.kind, users.is_empty()) {
                    (Kind::Listen, _) if proxy.binds.is_empty() => {
                        "it has no bind and no server, and is not in the table"
                    }
                    (Kind::Backend, true) => {
                        "it has no server, and no frontend leads to it: it is not in the table"
                    }
                    _ => continue,
                };
                self.report.note(&proxy.head, why);
                continue;
            }
            services.extend(self.service(&proxy, port));
        }
        for made in frontends {
            edit_in_routes(made, &of_routes);
        }
        services
    }

    /// Where each frontend or service begins in the configuration.
    fn comments<T>(&self, all: &[Made<T>]) -> impl Iterator<Item = Vec<String>> {
        all.iter().map(|Made { head, comments, .. }| {
            let begin = format!("{}: {}", self.places.shown(head.number), head.shown);
            [&[begin], comments.as_slice()].concat()
        })
    }

    /// Tells which timeouts a section does not have: haproxy waits for ever then.
    fn missing_timeouts(&mut self, proxy: &Proxy, has_frontend: bool, has_service: bool) {
        let timeouts = &proxy.timeouts;
        // As soon as nothing of a connection is looked at, haproxy has the tunnel's time for both sides.
        let is_tunnel = !proxy.is_http && timeouts.idle("tunnel").is_some();
        let (connect, idle) = (
            Shown(ServiceTimeouts::ABSENT.connect),
            Shown(default_idle(proxy.is_http)),
        );
        let mut missing = Vec::new();
        if has_frontend && timeouts.idle("client").is_none() && !is_tunnel {
            missing.push(format!("timeout client {idle}"));
        }
        if has_service && timeouts.get("connect").is_none() {
            missing.push(format!("timeout connect {connect}"));
        }
        if has_service && timeouts.idle("server").is_none() && !is_tunnel {
            missing.push(format!("timeout server {idle}"));
        }
        if !missing.is_empty() {
            let missing = missing.join(", ");
            self.report.note(&proxy.head, format!("without a timeout haproxy waits for ever, and Ballast for its default, as if these lines were here: {missing}"));
        }
    }

    /// Sections with names of their own that are not switched off.
    fn distinct<'s>(&mut self, sections: &'s Sections) -> Vec<&'s Proxy> {
        let mut known: HashMap<(usize, &str), usize> = HashMap::new();
        let mut distinct = Vec::new();
        for proxy in &sections.proxies {
            if proxy.name.is_empty() {
                continue;
            }
            if proxy.is_disabled {
                let why = "it is disabled, and not in the table";
                self.report.note(&proxy.head, why);
                self.disabled.insert(proxy.name.clone());
                continue;
            }
            let sides = [proxy.kind.has_frontend(), proxy.kind.has_service()];
            let sides = sides.iter().enumerate().filter(|(_, there)| **there);
            let keys: Vec<(usize, &str)> = sides.map(|(side, _)| (side, &*proxy.name)).collect();
            if let Some(line) = keys.iter().find_map(|key| known.get(key)) {
                let other = self.places.shown(*line);
                let why =
                    format!("{other} has this name already; give each section a name of its own");
                self.report.left_out(&proxy.head, why);
                continue;
            }
            known.extend(keys.into_iter().map(|key| (key, proxy.head.number)));
            distinct.push(proxy);
        }
        distinct
    }

    /// A section that shows the page, and nothing else.
    fn page_of_stats(&mut self, proxy: &Proxy, stats: &mut Stats, taken: &mut Taken) {
        if !proxy.is_http {
            self.report.left_out(&proxy.head, "in mode tcp haproxy shows no page; write mode http, or take stats.bind of the table, by default 127.0.0.1:1936");
            return;
        }
        let mut plain: Vec<(&BindLine, Bind)> = Vec::new();
        for line in &proxy.binds {
            match &line.way {
                Way { tls: Some(_), .. } => self.report.left_out(&line.line, "the page is not shown over TLS; give it an address of its own, and a frontend in front of that"),
                Way { accept_proxy: true, .. } => self.report.left_out(&line.line, "the page reads no PROXY header; give it an address of its own, without accept-proxy"),
                _ => plain.extend(line.binds.iter().map(|bind| (line, *bind))),
            }
        }
        let binds = self.free(&plain, "stats", taken);
        if binds.is_empty() {
            let why =
                "no bind of it can be served; the page has stats.bind, by default 127.0.0.1:1936";
            self.report.left_out(&proxy.head, why);
            return;
        }
        let is_first = stats.bind.is_none();
        let of_others = stats.source_ranges.as_deref();
        let others = of_others.map_or_else(Ranges::all, Ranges::of);
        let clients = self.who_sees(proxy).map(|clients| {
            if !is_first && others != clients {
                self.report.differs(&proxy.head, "one list of clients is for all addresses of the page: it has those who may come to each of them");
            }
            clients.and(&others)
        });
        let ranges = clients.and_then(|clients| self.source_ranges(&proxy.head, &clients));
        let ranges = match ranges {
            Ok(ranges) => ranges,
            Err(Closed(why)) => {
                let why = format!("the page is not in the table: {why}");
                return self.report.left_out(&proxy.head, why);
            }
        };
        let mut all: Vec<Bind> = stats.bind.take().into_iter().flatten().collect();
        all.extend(binds);
        stats.bind = Some(List::new(all));
        if ranges.is_some() {
            stats.source_ranges = ranges;
        }
    }

    /// The clients that may see the page: all, but for what rules say; with passwords, which a table does not have, this host.
    fn who_sees(&mut self, proxy: &Proxy) -> Result<Ranges, Closed> {
        let place = Where::of(proxy);
        let let_in = self.let_in(proxy, None, None, place, false)?;
        if !let_in.senders.is_none() {
            return Err(Closed("the page reads no PROXY header".into()));
        }
        let uri = proxy.stats_uri.as_deref().unwrap_or("/haproxy");
        let path = uri.split('?').next().filter(|path| path.starts_with('/'));
        let page = PathPattern::new(PathKind::Begins, path.unwrap_or("/"), false);
        let monitor = self.monitor(proxy).into_iter();
        let steps = monitor.chain(self.steps(proxy, place)?).map(|mut step| {
            if !step.does.refuses() && step.answer().is_some() {
                self.report.left_out(&step.line, "the page answers every path of its address by itself, /healthz and /readyz too; give other answers a frontend of their own");
            }
            // A client that haproxy denies a part of the page is denied the whole page.
            let allows = step.does == Does::Allow;
            let denies = step.does.refuses();
            step.condition.alternatives.retain_mut(|one| {
                let is_for_any = one.is_about_any_request();
                let is_denied = (denies || !one.clients.is_all()) && one.may_cover(&page);
                let is_asked = is_for_any || !allows && is_denied;
                *one = Alternative::for_clients(std::mem::take(&mut one.clients));
                is_asked
            });
            if !allows {
                step.does = Does::Deny(Answer::plain(403));
            }
            step
        });
        let (clients, _) = let_through(steps.collect());
        let clients = clients.and(&let_in.clients);
        Ok(match proxy.stats_users {
            Some(_) => clients.and(&Ranges::this_host()),
            None => clients,
        })
    }

    /// What frontends edit in the heads of the requests that a backend gets, and in its answers. Where all of them do the same, the
    /// service does it. Else the routes of each do, which edit requests before the service does, and answers behind it, as in haproxy.
    fn edits_of_frontends(
        &mut self,
        backend: &mut Proxy,
        users: &[&Proxy],
        leading: &HashSet<(usize, &str)>,
        of_routes: &mut EditsOfRoutes,
    ) {
        self.edits_of_all_answers_behind(backend, users);
        let of_http = users.iter().copied().filter(|user| user.is_http);
        let (mut users, others): (Vec<&Proxy>, Vec<&Proxy>) =
            of_http.partition(|user| leading.contains(&(user.head.number, &*backend.name)));
        if users.is_empty() {
            users = others;
        }
        let own = users.iter().map(|user| self.own_edits(user, backend));
        let mut own: Vec<Vec<Edit>> = own.collect();
        let made: Vec<Both> = own.iter().map(|edits| self.both(edits)).collect();
        if made
            .windows(2)
            .any(|two| matches!(two, [one, other] if one != other))
        {
            let of_users = users.iter().map(|user| user.head.number).zip(made);
            of_routes.extend(of_users.map(|(head, edits)| ((head, backend.name.clone()), edits)));
            return;
        }
        // Requests pass the frontend first, and answers pass it last.
        if let Some(own) = own.pop() {
            let is_of_answers = |edit: &Edit| edit.of == Of::Responses;
            let (answers, mut edits): (Vec<Edit>, Vec<Edit>) =
                own.into_iter().partition(is_of_answers);
            edits.append(&mut backend.edits);
            edits.extend(answers);
            backend.edits = edits;
        }
    }

    /// What a frontend edits of the requests and answers of a backend, beside what the backend edits.
    fn own_edits(&self, user: &Proxy, backend: &Proxy) -> Vec<Edit> {
        // Both may have an edit from the same `defaults`.
        let known: HashSet<usize> = backend.edits.iter().map(|edit| edit.line.number).collect();
        // Where the frontend writes the client's address, it drops what the client sent.
        let is_told = user.tells_clients() || backend.tells_clients();
        let own = user.edits.iter().filter(|edit| {
            edit.of != Of::AllAnswers
                && !known.contains(&edit.line.number)
                && !(is_told && edit.drops_forwarded_for())
        });
        // A service whose endpoints other frontends tell of clients does not take the field out.
        let is_told_by_others = !is_told && self.told_clients.contains(&backend.name);
        let theirs = backend.edits.iter();
        let theirs = theirs.filter(|edit| is_told_by_others && edit.drops_forwarded_for());
        own.chain(theirs).cloned().collect()
    }

    /// The edits of requests and those of answers.
    fn both(&mut self, edits: &[Edit]) -> Both {
        [Of::Requests, Of::Responses].map(|of| {
            let edits: Vec<&Edit> = edits.iter().filter(|edit| edit.of == of).collect();
            let edits = self.edits(&edits);
            (edits != HeaderEdits::default()).then(|| Box::new(edits))
        })
    }

    /// What a section edits in all answers: a frontend does that, and a service edits those of its endpoints.
    fn edits_of_all_answers_behind(&mut self, backend: &mut Proxy, users: &[&Proxy]) {
        let is_done = |edit: &Edit| {
            let mut users = users.iter();
            users.all(|user| {
                let mut edits = user.edits.iter();
                edits.any(|known| known.line.number == edit.line.number)
            })
        };
        backend
            .edits
            .retain(|edit| edit.of != Of::AllAnswers || !is_done(edit));
        for edit in &mut backend.edits {
            if edit.of == Of::AllAnswers {
                self.report.differs(&edit.line, "Ballast's own answers (redirects, denials, errors) go without it; those of endpoints have it. Write it in the frontend to have it in all");
                edit.of = Of::Responses;
            }
        }
    }

    /// Takes out what a table may not have, however it came in: the emitted table is always good.
    fn without_mistakes(&mut self, mut assembled: Assembled) -> Assembled {
        loop {
            let text = yaml(&assembled.table, &assembled.comments, &[]);
            let Err(problems) = parse(text.as_bytes(), Format::Yaml) else {
                return assembled;
            };
            // Of each part the first mistake, from the last part on; those of no part once there are no others.
            let mut parts: BTreeMap<Option<(Part, usize)>, &Problem> = BTreeMap::new();
            for problem in problems.iter().rev() {
                parts.insert(assembled.part(problem), problem);
            }
            if parts.is_empty() {
                return assembled;
            }
            if parts.len() > 1 {
                parts.remove(&None);
            }
            for (part, problem) in parts.into_iter().rev() {
                self.take_out(&mut assembled, part, problem);
            }
        }
    }

    fn take_out(
        &mut self,
        assembled: &mut Assembled,
        part: Option<(Part, usize)>,
        problem: &Problem,
    ) {
        let why = format!("{}; {}", problem.why, problem.remedy);
        // Of `frontends[0].routes[1]` a reader who has no table understands `routes[1]`.
        let why_of_one = match problem.at.split_once("].") {
            Some((_, field)) => format!("its {field}: {why}"),
            None => why.clone(),
        };
        let Assembled {
            table,
            comments,
            heads,
        } = assembled;
        let has_others = table.stats != Stats::default()
            || table.log != Log::default()
            || table.ticket_keys.is_some();
        let mut head = Line::default();
        let what = if let Some((Part::Frontend, index)) = part {
            comments.frontends.remove(index);
            head = heads.0.remove(index);
            let name = table.frontends.remove(index).name;
            format!("the frontend {name} is not in the table: {why_of_one}")
        } else if let Some((Part::Service, index)) = part {
            comments.services.remove(index);
            head = heads.1.remove(index);
            let name = table.services.remove(index).name;
            format!("the service {name} is not in the table: {why_of_one}")
        } else if has_others {
            table.stats = Stats::default();
            table.log = Log::default();
            table.ticket_keys = None;
            let at = &problem.at;
            format!("stats and log are not in the table, because of {at}: {why}")
        } else {
            table.frontends.clear();
            table.services.clear();
            *comments = Comments::default();
            let at = &problem.at;
            format!("nothing is in the table, because of {at}: {why}")
        };
        self.report.left_out(&head, what);
    }
}

/// Edits of requests and of answers.
type Both = [Option<Box<HeaderEdits>>; 2];

/// The edits of routes, by the line where the section of their frontend begins and by the service.
type EditsOfRoutes = HashMap<(usize, String), Both>;

/// Gives the routes of a frontend the edits that its services do not have.
fn edit_in_routes(made: &mut Made<Frontend>, of_routes: &EditsOfRoutes) {
    let with_edits = |mut route: Route| {
        let name = route.service.as_deref().map(|name| name.to_owned());
        let edits = name.and_then(|name| of_routes.get(&(made.head.number, name)));
        if let Some([requests, responses]) = edits {
            route.request_headers.clone_from(requests);
            route.response_headers.clone_from(responses);
        }
        route
    };
    let frontend = &mut made.part;
    let routes = std::mem::take(&mut frontend.routes).into_iter();
    frontend.routes = routes.map(with_edits).collect();
    frontend.default = frontend
        .default
        .take()
        .map(|route| Box::new(with_edits(*route)));
}

/// Whether the section shows the page, and nothing else.
fn is_page(proxy: &Proxy) -> bool {
    // A default backend of `defaults` gets nothing where the page takes all paths, as it does in a section of its own.
    let default = proxy.default_backend.as_ref();
    let has_default = default.is_some_and(|(line, _)| line.number > proxy.head.number);
    let mut choices = proxy.rules_of(Stage::Choice..=Stage::Choice);
    let leads_nowhere = proxy.servers.is_empty() && choices.next().is_none() && !has_default;
    let stats = proxy.stats.as_ref();
    let is_own = stats.is_some_and(|line| line.number > proxy.head.number);
    proxy.kind.has_frontend() && is_own && leads_nowhere
}

/// The names of the backends that requests or connections of a section can go on to.
pub(super) fn leads(user: &Proxy) -> BTreeSet<&str> {
    let rules = user.rules.iter();
    let by_rule = rules.filter_map(|rule| match &rule.does {
        Does::Backend(name) => Some(name.as_str()),
        _ => None,
    });
    let led_to = by_rule.chain(default_backend(user));
    led_to.filter(|_| user.kind.has_frontend()).collect()
}

/// The sections that lead to each backend, by its name.
fn users<'p>(proxies: &[&'p Proxy]) -> HashMap<&'p str, Vec<&'p Proxy>> {
    let mut users: HashMap<&str, Vec<&Proxy>> = HashMap::new();
    for user in proxies {
        for name in leads(user) {
            users.entry(name).or_default().push(user);
        }
    }
    users
}
