//! From a `frontend` or `listen` section to frontends of the table: one for each way in which its binds begin connections.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use ballast_core::table::{
    Alpn, Bind, ClientTimeouts, Frontend, FrontendTls, List, Name, Protocol, Route,
};

use super::acl::{Where, is_hello};
use super::bind::{BindLine, Tls, Way};
use super::decide::{Action, Closed, Rules, Step};
use super::http::connecting;
use super::importer::Importer;
use super::keywords::did_you_mean;
use super::ports::groups;
use super::proxy::{Does, Kind, Proxy, Stage};
use super::ranges::Ranges;
use super::report::listed;
use super::routes::{Named, Region, Verdict, around};
use super::services::idle;
use super::table::leads;
use super::walk::Found;
use super::words::Line;

/// Backends by their names.
pub(super) type Backends<'p> = BTreeMap<&'p str, &'p Proxy>;

/// A frontend or a service of the table, the line where its section begins, and what is told beside it.
pub(super) struct Made<T> {
    pub(super) part: T,
    pub(super) head: Line,
    pub(super) comments: Vec<String>,
}

/// Addresses that are taken, and names.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) addresses: HashMap<SocketAddr, String>,
    pub(super) names: HashSet<String>,
}

impl Importer<'_> {
    /// The frontends of a section, and the names of the backends that they lead to.
    pub(super) fn frontends(
        &mut self,
        proxy: &Proxy,
        backends: &Backends<'_>,
        taken: &mut Taken,
    ) -> Vec<Made<Frontend>> {
        let led_to = leads(proxy).into_iter();
        let led_to = led_to.filter_map(|name| backends.get(name).copied());
        let led_to: Vec<&Proxy> = led_to.collect();
        let Some(groups) = groups(proxy, &led_to) else {
            let why = "the frontend is not in the table: its rules divide its ports into too many frontends; divide it";
            self.report.left_out(&proxy.head, why);
            return Vec::new();
        };
        if groups.len() > 1 {
            let mut others = groups.iter().zip(groups.iter().skip(1));
            let why = match others.any(|(one, other)| one.way != other.way) {
                true => {
                    "its binds begin connections in different ways, so it becomes several frontends; limits hold for each"
                }
                false => {
                    "its rules look at the port, so it becomes several frontends; limits hold for each"
                }
            };
            self.report.note(&proxy.head, why);
        }
        let mut made = Vec::new();
        let mut is_told = false;
        for (index, group) in groups.iter().enumerate() {
            let binds = self.free(&group.binds, &proxy.name, taken);
            let Some(port) = binds.first().map(Bind::port) else {
                continue;
            };
            let way = group.way;
            let before = groups.get(..index).unwrap_or_default();
            let suffix = match before.iter().any(|other| other.way == way) {
                true => format!("-{port}"),
                false if index > 0 => suffix(way, proxy.is_http).to_owned(),
                false => String::new(),
            };
            let name = name(proxy, &suffix, taken);
            let Ok(name) = name.parse::<Name>() else {
                self.report.left_out(&proxy.head, NO_NAME);
                is_told = true;
                continue;
            };
            let remarks = self.report.remarks.len();
            let shown = listed(&binds);
            match self.frontend(proxy, backends, way, name, binds, &led_to) {
                Ok(frontend) => made.push(Made {
                    comments: all_but(&frontend).into_iter().collect(),
                    part: frontend,
                    head: proxy.head.clone(),
                }),
                Err(Closed(why)) => {
                    is_told = true;
                    self.report.forget_notes(remarks);
                    let which = match groups.len() {
                        1 => String::new(),
                        _ => format!(" for {shown}"),
                    };
                    let why = format!("the frontend{which} is not in the table: {why}");
                    self.report.left_out(&proxy.head, why);
                }
            }
        }
        if made.is_empty() && !is_told && !proxy.binds.is_empty() {
            let why = "the frontend is not in the table: others have all its addresses";
            self.report.left_out(&proxy.head, why);
        }
        for rule in proxy.rules_of(Stage::Choice..=Stage::Choice) {
            if self.reached.get(&rule.line.number) == Some(&false) {
                let why = "no request gets so far: lines before it take them all";
                self.report.note(&rule.line, why);
            }
        }
        made
    }

    /// The binds whose addresses no other frontend has.
    pub(super) fn free(
        &mut self,
        wanted: &[(&BindLine, Bind)],
        name: &str,
        taken: &mut Taken,
    ) -> Vec<Bind> {
        let mut binds: Vec<Bind> = Vec::new();
        for (line, bind) in wanted {
            let known = |address| taken.addresses.get(&address);
            if let Some(other) = bind.addresses().find_map(known) {
                self.report.left_out(&line.line, format!("{bind} is an address of {other} already; give each one an address or a port of its own"));
                continue;
            }
            let theirs = bind.addresses().map(|address| (address, name.to_owned()));
            taken.addresses.extend(theirs);
            binds.push(*bind);
        }
        joined(binds)
    }

    fn frontend(
        &mut self,
        proxy: &Proxy,
        backends: &Backends<'_>,
        way: &Way,
        name: Name,
        binds: Vec<Bind>,
        led_to: &[&Proxy],
    ) -> Result<Frontend, Closed> {
        self.no_request_is_read(proxy, led_to)?;
        let has_alpn = |tls: &Tls| tls.table.alpn.is_some() && !proxy.is_http;
        let bind = proxy.binds.iter().find(|bind| bind.way == *way);
        if let Some(bind) = bind.filter(|_| way.tls.as_ref().is_some_and(has_alpn)) {
            self.report.differs(&bind.line, "clients that offer other protocols than those of `alpn` alone are refused, and haproxy serves them without one; write all that they offer");
        }
        let asks = |section: &Proxy| section.conditions().flatten().any(|word| is_hello(word));
        if proxy.is_http || way.tls.is_some() {
            return self.frontend_of(proxy, backends, way, (name, binds), true);
        }
        // What becomes of connections that begin otherwise than with a hello of TLS.
        let others = led_to.iter().copied().chain([proxy]).any(asks).then(|| {
            let (remarks, reached) = (self.report.remarks.len(), self.reached.clone());
            let begun = (name.clone(), binds.clone());
            let others = self.frontend_of(proxy, backends, way, begun, false);
            self.report.remarks.truncate(remarks);
            self.reached = reached;
            others
        });
        let mut frontend = self.frontend_of(proxy, backends, way, (name, binds), true)?;
        let others = others.unwrap_or_else(|| Ok(frontend.clone())).ok();
        let are_alike = others.as_ref() == Some(&frontend);
        if let Some(service) = frontend.service.take_if(|_| !are_alike) {
            frontend.protocol = Protocol::Tls;
            frontend.timeouts.preamble = proxy.inspect_delay.unwrap_or(frontend.timeouts.preamble);
            frontend.default = Some(Box::new(Route {
                service: Some(service),
                ..Route::default()
            }));
        }
        let leads = |others: Frontend| others.service.is_some() || others.default.is_some();
        if frontend.protocol == Protocol::Tls && others.is_some_and(leads) {
            self.report.differs(&proxy.head, TLS_ALONE);
        }
        Ok(frontend)
    }

    /// A section in mode tcp has no rules about requests. haproxy asks them where it leads to a backend in mode http.
    fn no_request_is_read(&mut self, proxy: &Proxy, led_to: &[&Proxy]) -> Result<(), Closed> {
        let mut of_http = led_to.iter().copied().filter(|section| section.is_http);
        let first = of_http.next();
        if proxy.is_http || first.is_none() && !proxy.switches_mode {
            return Ok(());
        }
        let rules = proxy.rules_of(Stage::REQUESTS);
        if let Some(line) = rules.map(|rule| &rule.line).chain(&proxy.monitor).next() {
            self.report.left_out(line, "haproxy asks it, since requests go on in mode http from here, and in mode tcp Ballast reads none; write mode http in this section");
            let says = "is about requests, of which none is read in mode tcp; write mode http";
            return Err(self.closed_by(line, says));
        }
        let edits = |section: &&Proxy| !section.edits.is_empty() || section.tells_clients();
        if let Some(backend) = [proxy].into_iter().chain(first).chain(of_http).find(edits) {
            let name = &backend.name;
            self.report.left_out(&proxy.head, format!("haproxy reads the requests that go on in mode http, and edits their fields as {name} says; in mode tcp they pass as they are; write mode http in this section"));
        }
        Ok(())
    }

    /// The frontend of some binds, for connections that begin with a hello of TLS, or for those that do not.
    fn frontend_of(
        &mut self,
        proxy: &Proxy,
        backends: &Backends<'_>,
        way: &Way,
        (name, binds): (Name, Vec<Bind>),
        has_hello: bool,
    ) -> Result<Frontend, Closed> {
        let mut rules = proxy.rules.iter();
        let expects_proxy = rules.any(|rule| rule.does == Does::ExpectProxy);
        // Behind a PROXY header `dst_port` is the one that the header names.
        let port = binds.first().map(Bind::port);
        let place = Where {
            tls: way.tls.is_some(),
            port: port.filter(|_| !way.accept_proxy && !expects_proxy),
            takes_ipv6: way.accept_proxy || expects_proxy || binds.iter().any(takes_ipv6),
            has_hello,
            ..Where::of(proxy)
        };
        let mut frontend = Frontend {
            description: proxy.description.clone(),
            max_connections: proxy.max_connections.and_then(NonZeroU32::new),
            max_connection_rate: proxy.max_rate.and_then(NonZeroU32::new),
            timeouts: client_timeouts(proxy),
            tls: way.tls.as_ref().map(|tls| {
                Box::new(FrontendTls {
                    // Of HTTP, http.http2 says whether there is the second version; HTTP/1.0 is only offered by name.
                    alpn: match &tls.table.alpn {
                        Some(alpn) if proxy.is_http => spoken(alpn),
                        alpn => alpn.clone(),
                    },
                    ..tls.table.clone()
                })
            }),
            ..Frontend::new(name, binds, Protocol::Tcp)
        };
        let mut steps = self.connections(&mut frontend, proxy, backends, way, place)?;
        if let Some(keys) = way.tls.as_ref().and_then(|tls| tls.ticket_keys.as_ref()) {
            self.ticket_keys = Some(keys.clone());
        }
        steps.extend(self.monitor(proxy));
        steps.extend(self.steps(proxy, place)?);
        let mut rules = Rules {
            steps,
            default: default_backend(proxy).map(str::to_owned),
            backends: BTreeMap::new(),
        };
        self.add_backends(&mut rules, proxy, backends, place)?;
        self.lost_choices(&rules)?;
        self.names_elsewhere(&rules);
        if proxy.is_http {
            self.http(&mut frontend, proxy, way, rules)?;
        } else {
            self.passed_on(&mut frontend, proxy, way, &rules)?;
        }
        Ok(frontend)
    }

    /// Handles choices of a backend that turns requests away, where a condition of the choice is left out: a remark says that these
    /// requests are served. Clients whose list cannot be read are not served.
    fn lost_choices(&mut self, rules: &Rules<'_>) -> Result<(), Closed> {
        let turns_away =
            |name: &String| rules.backends.contains_key(name) && !rules.takes(Some(name));
        for step in &rules.steps {
            let Does::Backend(name) = &step.does else {
                continue;
            };
            match self.lost_choices.get(&step.line.number) {
                Some(is_unread) if turns_away(name) => match is_unread {
                    true => return Err(self.not_open(step.line.number)),
                    false => self.report.left_out(&step.line, format!("{name} turns away what it gets, and what is left out of this line goes on to other lines, or to the default backend")),
                },
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds the backends that the rules lead to.
    fn add_backends<'p>(
        &mut self,
        rules: &mut Rules<'p>,
        proxy: &'p Proxy,
        backends: &Backends<'p>,
        mut place: Where,
    ) -> Result<(), Closed> {
        for rule in proxy.rules.iter().filter(|_| proxy.is_http) {
            if let Does::Changes(what) = rule.does {
                place.changed.add(what, &rule.line);
            }
        }
        let named = rules.steps.iter().filter_map(|step| match &step.does {
            Does::Backend(name) => Some((step.line.clone(), name.clone())),
            _ => None,
        });
        let mut names: Vec<(Line, String)> = named.collect();
        names.extend(proxy.default_backend.clone());
        if proxy.kind == Kind::Listen {
            let own = (proxy, Vec::new());
            rules.backends.insert(proxy.name.clone(), own);
        }
        for (line, name) in names {
            if rules.backends.contains_key(&name) {
                continue;
            }
            match backends.get(name.as_str()) {
                Some(backend) => {
                    let place = Where {
                        sets_src: place.sets_src || backend.sets_src,
                        sets_port: place.sets_port || backend.sets_port,
                        ..place
                    };
                    let mut steps = self.denied_by_backend(proxy, backend, place)?;
                    steps.extend(self.steps(backend, place)?);
                    rules.backends.insert(name, (*backend, steps));
                }
                None if line.word(1).contains('%') => {
                    self.report.note(&line, format!("there is no backend {name:?}: as in haproxy, the default one takes its requests"));
                    for step in rules.steps.iter_mut().filter(|step| step.line == line) {
                        if matches!(&step.does, Does::Backend(of) if *of == name) {
                            step.does = Does::Default;
                        }
                    }
                }
                None if self.disabled.contains(&name) => {
                    let why = format!("backend {name} is disabled, so its requests are denied");
                    self.report.note(&line, why);
                }
                None => {
                    let near = ballast_core::table::nearest(&name, backends.keys().copied());
                    let remedy = did_you_mean(near, "add it");
                    let why = format!("there is no backend {name:?}; {remedy}");
                    self.report.left_out(&line, why);
                }
            }
        }
        Ok(())
    }

    /// A frontend whose connections are passed on as they are: to one service, or by the names that their hellos ask for.
    fn passed_on(
        &mut self,
        frontend: &mut Frontend,
        proxy: &Proxy,
        way: &Way,
        rules: &Rules<'_>,
    ) -> Result<(), Closed> {
        let mut named = Named::default();
        if way.tls.is_none() {
            rules.alternatives().for_each(|one| named.add_hosts(one));
        } else if rules.steps.iter().any(Step::is_about_names) {
            self.report.left_out(&proxy.head, "behind TLS that ends here, connections are not told apart by their names; use mode http, or let TLS pass");
        }
        let (regions, _) = self.routes_of(proxy, rules, &named)?;
        match regions.as_slice() {
            [region] => self.tcp(frontend, proxy, rules, &region.verdict),
            _ => self.tls_passthrough(frontend, proxy, &regions),
        }
    }

    fn tcp(
        &mut self,
        frontend: &mut Frontend,
        proxy: &Proxy,
        rules: &Rules<'_>,
        verdict: &Verdict<Action>,
    ) -> Result<(), Closed> {
        let Action::Service { name, .. } = &verdict.action else {
            return Err(Closed(match &verdict.action {
                Action::Answer(answer) if answer.status == 403 => "nobody may connect to it".into(),
                _ => "no server gets its connections; name one by default_backend".into(),
            }));
        };
        frontend.service = name.parse().ok();
        let clients = connecting(frontend).and(&verdict.clients);
        frontend.source_ranges = self.source_ranges(&proxy.head, &clients)?;
        // As soon as nothing of a connection is looked at, haproxy has the tunnel's time for both sides.
        let backend = rules.backends.get(name);
        let backend = backend.map_or(proxy, |(backend, _)| backend);
        if let Some(tunnel) = backend.timeouts.idle("tunnel") {
            frontend.timeouts.client = idle(Some(tunnel), false);
        }
        Ok(())
    }

    /// Tells of the lines that routes cannot follow.
    pub(super) fn cannot(&mut self, found: Found) {
        for line in found.otherwise.values() {
            self.report.differs(line, "some of these clients are denied, whatever they ask for, and the backend answers some of their requests otherwise; give them an address of their own");
        }
        for line in found.cannot.values() {
            let why = match (line.word(0), line.word(1)) {
                ("use_backend", _) => {
                    "some clients would go elsewhere than others, which no route does; give them an address of their own, or deny them"
                }
                ("redirect", _) | (_, "redirect") => {
                    "some clients would go elsewhere than others, which no route does, so they are denied; give them an address of their own"
                }
                _ => {
                    "a route answers all alike whom it denies, and these as an earlier line says; give both lines one answer"
                }
            };
            match line.word(0) {
                "use_backend" => self.report.left_out(line, why),
                _ => self.report.differs(line, why),
            }
        }
    }

    fn tls_passthrough(
        &mut self,
        frontend: &mut Frontend,
        proxy: &Proxy,
        regions: &[Region<Action>],
    ) -> Result<(), Closed> {
        let is_service =
            |region: &Region<Action>| matches!(region.verdict.action, Action::Service { .. });
        frontend.protocol = Protocol::Tls;
        if let Some(delay) = proxy.inspect_delay {
            frontend.timeouts.preamble = delay;
        }
        let mut routes = Vec::new();
        for region in regions {
            let Action::Service { name, .. } = &region.verdict.action else {
                // A name without a route is refused, unless a route for more names has it.
                let mut wider = regions.iter().filter(|wider| is_service(wider));
                if let Some(host) = &region.host
                    && wider.any(|wider| {
                        let wider = wider.host.as_ref();
                        wider.is_none_or(|wider| around(host).any(|one| one == *wider))
                    })
                {
                    return Err(Closed(format!(
                        "connections for {host} are rejected and those for other names are not, which no route says; write the names that are served"
                    )));
                }
                continue;
            };
            let route = Route {
                host: region.host.clone(),
                service: name.parse().ok(),
                source_ranges: self.source_ranges(&proxy.head, &region.verdict.clients)?,
                ..Route::default()
            };
            match region.host {
                Some(_) => routes.push(route),
                None => frontend.default = Some(Box::new(route)),
            }
        }
        frontend.routes = List::new(routes);
        Ok(())
    }
}

/// Where connections go that no rule sends elsewhere.
pub(super) fn default_backend(proxy: &Proxy) -> Option<&str> {
    match &proxy.default_backend {
        Some((_, name)) => Some(name),
        None if proxy.kind == Kind::Listen => Some(&proxy.name),
        None => None,
    }
}

/// Why a section with this name is not in the table.
pub(super) const NO_NAME: &str =
    "its name is none that a table has; expected letters, digits and _ . : -";

fn suffix(way: &Way, is_http: bool) -> &'static str {
    match (&way.tls, is_http) {
        (Some(_), true) => "-https",
        (Some(_), false) => "-tls",
        (None, _) if way.accept_proxy => "-proxy",
        (None, true) => "-http",
        (None, false) => "-tcp",
    }
}

fn name(proxy: &Proxy, suffix: &str, taken: &mut Taken) -> String {
    let base = format!("{}{suffix}", proxy.name);
    let mut name = base.clone();
    let mut number = 2;
    while !taken.names.insert(name.clone()) {
        name = format!("{base}-{number}");
        number += 1;
    }
    name
}

/// What https offers in place of these protocols, where it is not what it offers anyway. A client that offers none of them is served by
/// haproxy all the same.
fn spoken(alpn: &List<Alpn>) -> Option<List<Alpn>> {
    let has = |name: &str| alpn.iter().any(|one| **one == *name);
    let names = ["h2", "http/1.1", "http/1.0"].into_iter();
    let names = names.filter(|name| *name == "http/1.1" || has(name));
    has("http/1.0").then(|| List::new(names.filter_map(|name| name.parse().ok()).collect()))
}

fn takes_ipv6(bind: &Bind) -> bool {
    match bind {
        Bind::Any { .. } => true,
        Bind::Exact(address) => address.is_ipv6(),
    }
}

/// A comment on ranges that are all but a few.
fn all_but(frontend: &Frontend) -> Option<String> {
    let default = frontend.default.as_ref();
    let of_default = default.and_then(|route| route.source_ranges.as_ref());
    let ranges = frontend.source_ranges.as_ref().or(of_default)?;
    let others = Ranges::of(ranges).not().nets()?;
    let few = others.len() * 2 < ranges.len();
    few.then(|| format!("source-ranges: all but {}", listed(others)))
}

/// `0.0.0.0` and `[::]` of one port are `*`.
fn joined(binds: Vec<Bind>) -> Vec<Bind> {
    let mut joined = Vec::new();
    for bind in &binds {
        let port = bind.port();
        let exact = |ip: IpAddr| Bind::Exact(SocketAddr::new(ip, port));
        let both = [
            exact(Ipv4Addr::UNSPECIFIED.into()),
            exact(Ipv6Addr::UNSPECIFIED.into()),
        ];
        let is_one = both.contains(bind) && both.iter().all(|one| binds.contains(one));
        let bind = if is_one { Bind::Any { port } } else { *bind };
        if !joined.contains(&bind) {
            joined.push(bind);
        }
    }
    joined
}

fn client_timeouts(proxy: &Proxy) -> ClientTimeouts {
    let absent = ClientTimeouts::ABSENT;
    let get = |name: &str, usual: Duration| proxy.timeouts.get(name).unwrap_or(usual);
    let of_http = |name: &str, usual: Duration| match proxy.is_http {
        true => get(name, usual),
        false => usual,
    };
    ClientTimeouts {
        client: idle(proxy.timeouts.idle("client"), proxy.is_http),
        client_fin: get("client-fin", absent.client_fin),
        preamble: get("client-hs", absent.preamble),
        // Without a time of its own a request has that of the client.
        request: of_http(
            "http-request",
            absent.request.min(get("client", absent.request)),
        ),
        keep_alive: of_http("http-keep-alive", absent.keep_alive),
        idle: absent.idle,
    }
}

const TLS_ALONE: &str = "connections that do not begin with TLS are refused, and haproxy leads them to a backend; give them an address of their own";
