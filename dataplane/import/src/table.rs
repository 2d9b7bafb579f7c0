//! From sections to one table that has no mistake.

use std::collections::{BTreeSet, HashMap, HashSet};

use ballast_core::table::{
    Access, Bind, Comments, Format, Frontend, List, Log, Problem, RoutingTable, Service,
    ServiceTimeouts, Shown, Stats, parse, yaml,
};

use super::acl::Where;
use super::bind::{BindLine, Way};
use super::clients::Clients;
use super::decide::Closed;
use super::frontends::{Backends, Made, Taken, default_backend};
use super::importer::Importer;
use super::proxy::{Changed, Does, Edit, Kind, Of, Proxy};
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
        for line in served.iter().filter_map(|proxy| proxy.stats.as_ref()) {
            self.report.left_out(line, "the page has an address of its own: stats.bind of the table, by default 127.0.0.1:1936");
        }
        for page in &pages {
            self.page_of_stats(page, &mut stats, &mut taken);
        }
        let mut frontends: Vec<Made<Frontend>> = Vec::new();
        for proxy in served.iter().filter(|proxy| proxy.kind.has_frontend()) {
            if proxy.binds.is_empty() && proxy.kind == Kind::Frontend {
                self.report.left_out(
                    &proxy.head,
                    "no bind of it can be served; add one such as `bind *:80`",
                );
            }
            frontends.extend(self.frontends(proxy, &backends, &mut taken));
        }
        let mut services = self.services(&served, &frontends);
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
    fn services(&mut self, served: &[&Proxy], frontends: &[Made<Frontend>]) -> Vec<Made<Service>> {
        let mut services = Vec::new();
        let all_users = users(served);
        let used = frontends.iter().flat_map(|made| made.part.services());
        let used: HashSet<&str> = used.map(|name| &**name).collect();
        for proxy in served.iter().filter(|proxy| proxy.kind.has_service()) {
            let users = all_users.get(&*proxy.name).map_or(&[][..], Vec::as_slice);
            let mut proxy = (*proxy).clone();
            self.edits_of_frontends(&mut proxy, users);
            if proxy.is_disabled || proxy.name.is_empty() {
                continue;
            }
            let lines = users.iter().flat_map(|user| &user.binds);
            let ports = lines.flat_map(|line| line.binds.iter().map(Bind::port));
            let ports: HashSet<u16> = ports.collect();
            let port = ports.iter().next().copied().filter(|_| ports.len() == 1);
            let is_used = used.contains(&*proxy.name);
            if proxy.servers.is_empty() && !is_used {
                if proxy.kind == Kind::Listen && proxy.binds.is_empty() {
                    self.report.note(
                        &proxy.head,
                        "it has no bind and no server, and is not in the table",
                    );
                }
                continue;
            }
            services.extend(self.service(&proxy, port));
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
                self.report
                    .note(&proxy.head, "it is disabled, and not in the table");
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
            self.report.left_out(
                &proxy.head,
                "no bind of it can be served; the page has stats.bind, by default 127.0.0.1:1936",
            );
            return;
        }
        let is_first = stats.bind.is_none();
        let of_others = stats.source_ranges.as_deref();
        let others = of_others.map_or_else(Ranges::all, Ranges::of);
        let clients = self.who_sees(proxy).map(|clients| {
            if !is_first && others != clients {
                self.report.left_out(&proxy.head, "one list of clients is for all addresses of the page: it has those who may come to each of them");
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
        let place = Where {
            is_http: proxy.is_http,
            tls: false,
            port: None,
            sets_src: proxy.sets_src,
            sets_port: proxy.sets_port,
            takes_ipv6: false,
            has_hello: false,
            changed: Changed::default(),
        };
        let (clients, senders) = self.let_in(proxy, None, place)?;
        if !senders.is_none() {
            return Err(Closed("the page reads no PROXY header".into()));
        }
        let mut clients = Clients::of(clients);
        let monitor = self.monitor(proxy).into_iter();
        for step in monitor.chain(self.steps(proxy, place)?) {
            if !step.does.refuses() && step.answer().is_some() {
                self.report.left_out(&step.line, "the page answers every path of its address by itself, /healthz and /readyz too; give other answers a frontend of their own");
            }
            for one in &step.condition.alternatives {
                let for_some = one.is_about_any_request() || !one.clients.is_all();
                match step.does {
                    Does::Allow if one.is_about_any_request() => clients.let_through(&one.clients),
                    Does::Allow => {}
                    _ if step.does.refuses() || for_some => clients.refuse(&one.clients, &step),
                    _ => {}
                }
            }
        }
        let clients = clients.all();
        Ok(match proxy.stats_users {
            Some(_) => clients.and(&Ranges::this_host()),
            None => clients,
        })
    }

    /// Header edits of a frontend are those of its service in a table, where the service is no other frontend's.
    fn edits_of_frontends(&mut self, backend: &mut Proxy, users: &[&Proxy]) {
        self.edits_of_all_answers_behind(backend, users);
        for user in users
            .iter()
            .filter(|user| user.name != backend.name || user.kind == Kind::Frontend)
            .filter(|user| user.is_http)
        {
            let known: HashSet<usize> = backend.edits.iter().map(|edit| edit.line.number).collect();
            let own = user.edits.iter().filter(|edit| edit.of != Of::AllAnswers);
            if users.len() > 1 {
                for edit in own {
                    self.report.left_out(&edit.line, format!("header edits are a service's, and backend {} is used by other frontends too; write it there, or divide the backend", backend.name));
                }
                continue;
            }
            // Requests pass the frontend first, and answers pass it last. Both may have an edit from the same `defaults`.
            let own = own.filter(|edit| !known.contains(&edit.line.number));
            let (answers, mut edits): (Vec<Edit>, Vec<Edit>) =
                own.cloned().partition(|edit| edit.of == Of::Responses);
            edits.append(&mut backend.edits);
            edits.extend(answers);
            backend.edits = edits;
        }
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
                self.report.left_out(&edit.line, "Ballast's own answers (redirects, denials, errors) go without it; those of endpoints have it. Write it in the frontend to have it in all");
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
            let Some(problem) = problems.first() else {
                return assembled;
            };
            self.take_out(&mut assembled, problem);
        }
    }

    fn take_out(&mut self, assembled: &mut Assembled, problem: &Problem) {
        let why = format!("{}; {}", problem.why, problem.remedy);
        // Of `frontends[0].routes[1]` a reader who has no table understands `routes[1]`.
        let why_of_one = match problem.at.split_once("].") {
            Some((_, field)) => format!("its {field}: {why}"),
            None => why.clone(),
        };
        let index_of = |list: &str| {
            let rest = problem.at.strip_prefix(list)?.strip_prefix('[')?;
            rest.split(']').next()?.parse::<usize>().ok()
        };
        let Assembled {
            table,
            comments,
            heads,
        } = assembled;
        let frontend = index_of("frontends").filter(|index| *index < table.frontends.len());
        let service = index_of("services").filter(|index| *index < table.services.len());
        let has_others = table.stats != Stats::default()
            || table.log != Log::default()
            || table.ticket_keys.is_some();
        let (head, what) = if let Some(index) = frontend {
            comments.frontends.remove(index);
            let name = table.frontends.remove(index).name;
            (
                heads.0.remove(index),
                format!("the frontend {name} is not in the table: {why_of_one}"),
            )
        } else if let Some(index) = service {
            comments.services.remove(index);
            let name = table.services.remove(index).name;
            (
                heads.1.remove(index),
                format!("the service {name} is not in the table: {why_of_one}"),
            )
        } else if has_others {
            table.stats = Stats::default();
            table.log = Log::default();
            table.ticket_keys = None;
            (
                Line::default(),
                format!(
                    "stats and log are not in the table, because of {}: {why}",
                    problem.at
                ),
            )
        } else {
            table.frontends.clear();
            table.services.clear();
            *comments = Comments::default();
            (
                Line::default(),
                format!("nothing is in the table, because of {}: {why}", problem.at),
            )
        };
        self.report.left_out(&head, what);
    }
}

/// Whether the section shows the page, and nothing else.
fn is_page(proxy: &Proxy) -> bool {
    // A default backend of `defaults` gets nothing where the page takes all paths, as it does in a section of its own.
    let default = proxy.default_backend.as_ref();
    let has_default = default.is_some_and(|(line, _)| line.number > proxy.head.number);
    let leads_nowhere = proxy.servers.is_empty() && proxy.use_backends.is_empty() && !has_default;
    let stats = proxy.stats.as_ref();
    let is_own = stats.is_some_and(|line| line.number > proxy.head.number);
    proxy.kind.has_frontend() && is_own && leads_nowhere
}

/// The names of the backends that requests or connections of a section can go on to.
pub(super) fn leads(user: &Proxy) -> BTreeSet<&str> {
    let rules = user.use_backends.iter();
    let by_rule = rules.filter_map(|rule| match &rule.action {
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
