//! Routes of an http or https frontend.

use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use ballast_core::table::{
    ErrorPage, Frontend, FrontendHttp, HeaderEdits, HostPattern, List, OrMap, PathMatch, Protocol,
    Route, UnknownName, UrlPath, XForwarded,
};

use super::bind::{Tls, Way};
use super::condition::Alternative;
use super::decide::{Action, Closed, Rules, Step};
use super::importer::Importer;
use super::pattern::{PathKind, PathPattern, crossing};
use super::proxy::{Change, Does, Edit, Of, Proxy};
use super::ranges::Ranges;
use super::report::{and_so_for, listed};
use super::routes::{self, Named, Region, Verdict, any_path};
use super::walk::Walk;
use super::words::Line;

impl Importer<'_> {
    pub(super) fn http(
        &mut self,
        frontend: &mut Frontend,
        proxy: &Proxy,
        way: &Way,
        mut rules: Rules<'_>,
    ) -> Result<(), Closed> {
        frontend.protocol = match way.tls {
            Some(_) => Protocol::Https,
            None => Protocol::Http,
        };
        self.make_folders(&mut rules);
        self.prefixes_elsewhere(proxy, &rules);
        self.crossing(&mut rules)?;
        let named = rules.named();
        let (mut regions, served) = self.routes_of(proxy, &rules, &named)?;
        if served.is_none() {
            self.serves_nobody(proxy, &rules);
        }
        let mut routes = Vec::new();
        // Clients that get another answer than 403 at some path.
        let answered = regions.iter().map(|region| &region.verdict);
        let answered = answered.filter(|verdict| verdict.action != Action::status(403));
        let answered = answered.fold(Ranges::none(), |all, verdict| all.or(&verdict.clients));
        let lists = regions.len().saturating_mul(answered.count());
        if lists > MOST_RANGES && !answered.is_none() {
            self.report.differs(&proxy.head, "clients that are denied on every path are reset as they connect, in place of an answer: a list of them at each route would be too long");
            for clients in regions.iter_mut().map(|region| &mut region.verdict.clients) {
                if answered.and_not(clients).is_none() {
                    *clients = Ranges::all();
                }
            }
            let connecting = connecting(frontend).and(&answered);
            frontend.source_ranges = self.source_ranges(&proxy.head, &connecting)?;
        }
        for region in &regions {
            let route = self.route(proxy, region)?;
            match region.host.is_none() && region.path == any_path() {
                true => frontend.default = Some(Box::new(route)),
                false => routes.push(route),
            }
        }
        routes
            .sort_by(|one: &Route, other| (&one.host, &one.path).cmp(&(&other.host, &other.path)));
        frontend.routes = List::new(routes);
        let mut http = FrontendHttp {
            x_forwarded: self.x_forwarded(proxy, &rules),
            response_headers: self.edits_of_all_answers(proxy, way, &rules),
            // With this status haproxy answers for servers that refuse connections.
            unreachable_status: 503,
            ..FrontendHttp::default()
        };
        if let Some(tls) = &way.tls
            && !tls.table.alpn.iter().flatten().any(|name| **name == *"h2")
        {
            http.http2 = OrMap::Value(false);
        }
        if let (Some((_, seconds)), Some(_)) = (&proxy.hsts, &way.tls) {
            http.hsts = format!("{seconds}s").parse().ok();
        }
        self.strict_names(proxy, way);
        self.ports_of_redirects(frontend, way, &regions);
        self.inner_prefixes(&rules, &regions);
        frontend.errors = self.errors(proxy, &rules);
        self.own_pages(frontend, proxy, &regions);
        frontend.http = (http != FrontendHttp::default()).then(|| Box::new(http));
        Ok(())
    }

    /// The edits of every answer of a frontend.
    fn edits_of_all_answers(
        &mut self,
        proxy: &Proxy,
        way: &Way,
        rules: &Rules<'_>,
    ) -> Option<Box<HeaderEdits>> {
        let edits = proxy.edits.iter();
        let mut edits: Vec<&Edit> = edits.filter(|edit| edit.of == Of::AllAnswers).collect();
        // `hsts` of a table is for https alone.
        let hsts = proxy.hsts.as_ref().map(|(line, seconds)| {
            let age = Change::Set(format!("max-age={seconds}"));
            Edit::new(line, Of::AllAnswers, "Strict-Transport-Security", age)
        });
        edits.extend(hsts.as_ref().filter(|_| way.tls.is_none()));
        let is_hsts = |edit: &Edit| edit.name.eq_ignore_ascii_case("Strict-Transport-Security");
        let twice = rules.backends.values();
        let twice = twice
            .flat_map(|(backend, _)| &backend.edits)
            .find(|edit| edit.of != Of::Requests && is_hsts(edit));
        if let (Some((line, _)), Some(edit)) = (&proxy.hsts, twice) {
            self.report.differs(
                &edit.line,
                format!(
                    "in haproxy {} sets the field last, and here this line does; remove it",
                    self.places.shown(line.number)
                ),
            );
        }
        if let Some((line, _)) = &proxy.hsts {
            let why = "Ballast's own answers (redirects, denials, errors) have the field, too";
            self.report.note(line, why);
        }
        let edits = self.edits(&edits);
        (edits != HeaderEdits::default()).then(|| Box::new(edits))
    }

    /// Tells of requests that haproxy serves and a frontend with strict names refuses.
    fn strict_names(&mut self, proxy: &Proxy, way: &Way) {
        let bind = proxy.binds.iter().find(|bind| {
            let refuses = |tls: &Tls| tls.table.unknown_name == UnknownName::Refuse;
            bind.way == *way && bind.way.tls.as_ref().is_some_and(refuses)
        });
        if let Some(bind) = bind {
            self.report.differs(&bind.line, "strict-sni: a request whose Host has no certificate here is answered 421 (misdirected), and haproxy serves it");
        }
    }

    /// Tells of redirects to another scheme behind a port that clients write into the Host.
    fn ports_of_redirects(&mut self, frontend: &Frontend, way: &Way, regions: &[Region<Action>]) {
        let usual = if way.tls.is_some() { 443 } else { 80 };
        if frontend.bind.iter().all(|bind| bind.port() == usual) {
            return;
        }
        for region in regions {
            if let Action::Redirect(line, target) = &region.verdict.action
                && target.scheme.is_some()
                && target.host.is_none()
            {
                self.report.differs(line, "the redirect leads to the port of its scheme, and that of haproxy to the port that the client wrote behind the host");
            }
        }
    }

    /// A path by which a rule finds the backend whose `reqrep` takes it off again is a folder: `/svc` is not meant to be a part of `/svc-10`.
    fn make_folders(&mut self, rules: &mut Rules<'_>) {
        for step in &mut rules.steps {
            let Does::Backend(name) = &step.does else {
                continue;
            };
            let backend = rules.backends.get(name);
            let strip = backend.and_then(|(proxy, _)| proxy.strip.as_ref());
            let Some((_, prefix)) = strip.filter(|(line, _)| line.word(0) != "http-request") else {
                continue;
            };
            let alternatives = step.condition.alternatives.iter_mut();
            let lists = alternatives.flat_map(|one| one.paths.iter_mut());
            for path in lists.flat_map(Rc::make_mut) {
                if path.kind == PathKind::Begins && path.text == prefix.text {
                    path.kind = PathKind::Segment;
                    let why = format!(
                        "{} and what lies below it are meant, and no other path that begins so",
                        prefix.text
                    );
                    self.report.note(&step.line, why);
                }
            }
        }
    }

    /// Tells of answers whose page no line names.
    fn own_pages(&mut self, frontend: &Frontend, proxy: &Proxy, regions: &[Region<Action>]) {
        let verdicts = regions.iter().map(|region| &region.verdict);
        let answers = verdicts.flat_map(|verdict| [Some(&verdict.action), verdict.denied.as_ref()]);
        let plain = answers.flatten().filter_map(|action| match action {
            Action::Answer(answer) if answer.is_plain() => Some(answer.status),
            _ => None,
        });
        let mut statuses: BTreeSet<u16> = plain.collect();
        for (status, _) in frontend.errors.iter() {
            statuses.remove(&status.code());
        }
        if !statuses.is_empty() {
            let why = format!(
                "answers with status {} have the pages of Ballast, and not those of haproxy; errorfile names others",
                listed(statuses)
            );
            self.report.note(&proxy.head, why);
        }
    }

    /// Tells of a `listen` that takes the beginning off paths, where it sends requests to other backends.
    fn prefixes_elsewhere(&mut self, proxy: &Proxy, rules: &Rules<'_>) {
        let others = rules.backends.keys().any(|name| *name != proxy.name);
        if let Some((line, _)) = proxy.strip.as_ref().filter(|_| others) {
            self.report.differs(line, "requests that this section sends to other backends keep the beginning of their paths; write the line at these, too");
        }
    }

    /// Tells of expressions that take off what stands inside of a path, too.
    fn inner_prefixes(&mut self, rules: &Rules<'_>, regions: &[Region<Action>]) {
        for region in regions {
            if let Action::Service { name, strip: None } = &region.verdict.action
                && let Some((line, _)) = rules.stripping(name)
                && line.word(0) == "http-request"
                && !line.word(2).starts_with('^')
            {
                self.report.differs(line, "the expression fits inside of paths, too, of which Ballast takes nothing off: it does where they begin so; begin it with ^");
            }
        }
    }

    /// Tells at the top of the report where a denial, whose exceptions are not looked at, closes the whole frontend.
    fn serves_nobody(&mut self, proxy: &Proxy, rules: &Rules<'_>) {
        let is_for_all = |step: &&Step| {
            let is_for_all = |one: &Alternative| one.is_about_any_request() && one.clients.is_all();
            let number = step.line.number;
            let is_before = |allow: &usize| (proxy.head.number..number).contains(allow);
            let has_lost =
                self.spared_nobody.contains(&number) || self.lost_allows.iter().any(is_before);
            has_lost && step.does.refuses() && step.condition.has(is_for_all)
        };
        if let Some(step) = rules.all_steps().find(is_for_all) {
            let why = format!(
                "the frontend {} serves nobody: {} denies everybody, because its exceptions cannot be looked at",
                proxy.name,
                self.places.shown(step.line.number)
            );
            self.report.left_out(&Line::default(), why);
        }
    }

    /// What becomes of `X-Forwarded-For`: as the frontend and its backends say it. Where they differ, the strictest one holds for all.
    fn x_forwarded(&mut self, proxy: &Proxy, rules: &Rules<'_>) -> XForwarded {
        let backends = rules.backends.values().map(|(backend, _)| *backend);
        let sections: Vec<&Proxy> = match rules.backends.is_empty() {
            true => vec![proxy],
            false => backends.collect(),
        };
        let kind = |[is_told, all, drops]: [bool; 3]| match (is_told, all, drops) {
            (_, true, true) => XForwarded::Replace,
            (_, true, false) => XForwarded::Append,
            (true, false, true) => XForwarded::ReplaceFor,
            (true, false, false) => XForwarded::AppendFor,
            (false, false, _) => XForwarded::Off,
        };
        let mut of_clients: Vec<&Line> = Vec::new();
        let mut of_others: Vec<&Line> = Vec::new();
        let mut wanted = Vec::new();
        let mut any = [false; 3];
        for section in &sections {
            let of = [proxy, section];
            let told = of.iter().find_map(|of| of.forwarded_for.as_ref());
            let all = of.iter().find_map(|of| of.forwards_all.as_ref());
            let drops = of.iter().find_map(|of| of.drops_forwarded_for.as_ref());
            let fixed = of.iter().find_map(|of| of.fixes_forwarded_for.as_ref());
            if let (Some(_), Some(line)) = (told, fixed) {
                self.report.differs(line, "endpoints get this value alone, and from haproxy the client's address in a second field, too; remove one of the two");
            }
            of_clients.extend(told.into_iter().chain(drops));
            of_others.extend(all);
            let says = [told.is_some(), all.is_some(), drops.is_some()];
            wanted.push(kind(says));
            if wanted.last() != Some(&XForwarded::Off) {
                any = std::array::from_fn(|at| any[at] || says[at]);
            }
        }
        let strictest = kind(any);
        let lines = of_clients.iter().chain(&of_others);
        if wanted.iter().any(|kind| *kind != strictest)
            && let Some(line) = lines.min_by_key(|line| line.number)
        {
            self.report.differs(line, format!("a frontend writes X-Forwarded-For alike for all its backends, and those of {} differ; divide the frontend", proxy.name));
        }
        for line in &of_others {
            if of_clients.is_empty() {
                self.report.differs(line, "with this field Ballast writes the other X-Forwarded- fields, too, and adds the client's address to X-Forwarded-For; set it to a fixed value to have it alone");
            }
        }
        strictest
    }

    /// Leaves out rules whose paths no routes can tell apart.
    fn crossing(&mut self, rules: &mut Rules<'_>) -> Result<(), Closed> {
        let paths = rules.named().paths;
        let crossing = crossing(&paths);
        if crossing.is_empty() {
            return Ok(());
        }
        let crosses = |step: &Step| {
            let is_one = |path: &PathPattern| crossing.contains(path);
            step.condition.has(|one| one.all_paths().any(is_one))
        };
        let backends = rules.backends.iter();
        let serving = backends.filter(|(_, (backend, steps))| {
            !backend.serves_nobody() && !steps.iter().any(|step| step.does.refuses())
        });
        let serving: HashSet<String> = serving.map(|(name, _)| name.clone()).collect();
        let refuses = |does: &Does| match does {
            Does::Backend(name) => !serving.contains(name),
            does => does.refuses(),
        };
        let all = rules.backends.values_mut().map(|(_, steps)| steps);
        for steps in all.chain([&mut rules.steps]) {
            for step in steps.iter().filter(|step| crosses(step)) {
                self.report.left_out(&step.line, "a path in any case lies across one in a certain case; write both with -i, or both without");
                if refuses(&step.does) {
                    let says = "says what is denied, and cannot be followed; correct it";
                    return Err(self.closed_by(&step.line, says));
                }
            }
            steps.retain(|step| !crosses(step));
        }
        Ok(())
    }

    pub(super) fn routes_of(
        &mut self,
        proxy: &Proxy,
        rules: &Rules<'_>,
        named: &Named,
    ) -> Result<(Vec<Region<Action>>, Ranges), Closed> {
        let mut served = Ranges::none();
        let mut walk = Walk::of(rules);
        let mut decide = |host: Option<&_>, path: &_| {
            let (verdict, clients) = walk.decide(host, path);
            served = served.or(&clients);
            verdict
        };
        let regions = if named.fits(0) {
            routes::regions(named, &mut decide)
        } else {
            let (regions, lost) = apart(rules, named, &mut decide)?;
            if let Some((line, others)) = lost.split_first() {
                let others = and_so_for(others.len());
                self.report.differs(line, format!("{} has too many hosts and paths: where a request fits this line by its path and another line by its host, the other one decides, whatever their order{others}; divide the section, or name the hosts here", proxy.name));
            }
            regions
        };
        for (at, step) in rules.steps.iter().enumerate() {
            let number = step.line.number;
            let cannot = walk.found.cannot.contains_key(&number);
            let never = step.condition.alternatives.is_empty() || cannot;
            if step.does.chooses() && !never {
                *self.reached.entry(number).or_insert(false) |= walk.found.took.contains(&at);
            }
        }
        self.cannot(walk.found);
        Ok((regions, served))
    }

    fn route(&mut self, proxy: &Proxy, region: &Region<Action>) -> Result<Route, Closed> {
        let any = region.path == any_path();
        let mut route = Route {
            host: region.host.clone(),
            path: match any {
                true => None,
                false => region.path.text.parse().ok(),
            },
            r#match: match region.path.kind {
                PathKind::Begins if any => PathMatch::Segment,
                // Both are the same where the text ends with a slash.
                PathKind::Begins if region.path.text.ends_with('/') => PathMatch::Segment,
                PathKind::Begins => PathMatch::Begins,
                PathKind::Segment => PathMatch::Segment,
                PathKind::Exact => PathMatch::Exact,
            },
            ignore_case: region.path.ignore_case,
            source_ranges: self.source_ranges(&proxy.head, &region.verdict.clients)?,
            ..Route::default()
        };
        if let Some(Action::Answer(answer)) = &region.verdict.denied
            && route.source_ranges.is_some()
        {
            let mut page = self.page(answer);
            page.status = page.status.filter(|status| *status != 403);
            route.denied = (page != ErrorPage::default()).then(|| Box::new(page));
        }
        match &region.verdict.action {
            Action::Answer(answer) => {
                let page = self.page(answer);
                route.status = page.status;
                route.body_file = page.body_file;
                route.content_type = page.content_type;
                route.response_headers = page.response_headers;
            }
            Action::Redirect(_, target) => {
                route.redirect = Some(Box::new(target.clone()));
            }
            Action::Service { name, strip } => {
                route.service = name.parse().ok();
                route.rewrite = strip.as_ref().and_then(|prefix| {
                    let rest = region.path.text.strip_prefix(prefix.as_str());
                    let rest = rest.unwrap_or_default();
                    let path = format!("/{}", rest.strip_prefix('/').unwrap_or(rest));
                    let path: Option<UrlPath> = path.parse().ok();
                    path.map(OrMap::Value)
                });
                // haproxy does not change what answers say.
                route.map_back = route.rewrite.is_some().then_some(false);
            }
        }
        Ok(route)
    }
}

/// The clients that may connect to a frontend.
pub(super) fn connecting(frontend: &Frontend) -> Ranges {
    let ranges = frontend.source_ranges.as_deref();
    ranges.map_or_else(Ranges::all, Ranges::of)
}

/// Ranges of clients at all routes of a frontend together.
const MOST_RANGES: usize = 20_000;

/// Regions of hosts, and regions of paths, where all of both together would be too many, with the lines that lose thereby. What is
/// denied, answered or redirected by its path is so for each host.
fn apart(
    rules: &Rules<'_>,
    named: &Named,
    decide: &mut dyn FnMut(Option<&HostPattern>, &PathPattern) -> Verdict<Action>,
) -> Result<(Vec<Region<Action>>, Vec<Line>), Closed> {
    let mut of_hosts = Named::default();
    for step in rules.all_steps() {
        for one in &step.condition.alternatives {
            match one.is_about_hosts() || !one.no_paths.is_empty() || !step.does.chooses() {
                true => of_hosts.add(one),
                false => of_hosts.add_hosts(one),
            }
        }
    }
    let mut lost = Vec::new();
    for step in before_hosts(&rules.steps) {
        let alternatives = step.condition.alternatives.iter();
        let paths = alternatives.flat_map(|one| one.paths.iter().flat_map(|list| list.iter()));
        let paths: Vec<_> = paths.cloned().collect();
        match of_hosts.fits(paths.len()) {
            true => of_hosts.add_paths(paths.into_iter()),
            false => lost.push(step.line.clone()),
        }
    }
    if !of_hosts.fits(0) || named.paths.len() > routes::MOST {
        return Err(Closed(
            "its hosts and paths together are too many; divide it".into(),
        ));
    }
    let mut regions = routes::regions(&of_hosts, decide);
    let mut by_path = Named::default();
    by_path.add_paths(named.paths.iter().cloned());
    regions.retain(|region| region.host.is_some());
    let mut all = routes::regions(&by_path, decide);
    for region in regions {
        // A backend that takes a prefix off does so for requests that get there by their host, too.
        let strip = match &region.verdict.action {
            Action::Service { name, strip: None } => rules.stripping(name),
            _ => None,
        };
        let strip = strip.map(|(_, path)| path.clone());
        if let Some(path) = strip.filter(|path| region.path.contains(path)) {
            all.push(Region {
                host: region.host.clone(),
                verdict: decide(region.host.as_ref(), &path),
                path,
            });
        }
        all.push(region);
    }
    let mut seen = HashSet::new();
    all.retain(|region| seen.insert((region.host.clone(), region.path.clone())));
    Ok((all, lost))
}

/// The lines that choose by the path alone, and stand before one that looks at hosts, or behind one that looks at both.
fn before_hosts(steps: &[Step]) -> impl Iterator<Item = &Step> {
    let with_paths = |one: &Alternative| one.is_about_hosts() && !one.paths.is_empty();
    let by_path = |one: &Alternative| !one.is_about_hosts() && !one.paths.is_empty();
    let looks = |step: &Step| step.condition.has(Alternative::is_about_hosts);
    let last = steps.iter().rposition(looks).unwrap_or_default();
    let first = steps.iter().position(|step| step.condition.has(with_paths));
    let first = first.unwrap_or(steps.len());
    let steps = steps.iter().enumerate();
    let by_path = steps.filter(move |(at, step)| {
        (*at < last || *at > first) && step.does.chooses() && step.condition.has(by_path)
    });
    by_path.map(|(_, step)| step)
}
