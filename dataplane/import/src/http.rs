//! Routes of an http or https frontend.

use std::collections::HashSet;

use ballast_core::table::{
    Frontend, FrontendHttp, HeaderEdits, HostPattern, List, OrMap, PathMatch, Protocol, Route,
    UrlPath, XForwarded,
};

use super::bind::Way;
use super::decide::{Action, Closed, Rules, Step};
use super::importer::Importer;
use super::pattern::{PathKind, PathPattern};
use super::proxy::{Edit, Of, Proxy};
use super::ranges::Ranges;
use super::routes::{self, Named, Region, Verdict, any_path};
use super::services::file;
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
        rules.make_folders();
        self.crossing(&mut rules)?;
        let named = rules.named();
        let (mut regions, served) = self.routes_of(proxy, &rules, &named)?;
        if served.is_none() {
            self.serves_nobody(proxy, &rules);
        }
        let mut routes = Vec::new();
        // Whom some path gives more than a plain denial.
        let answered = regions.iter().map(|region| &region.verdict);
        let answered = answered.filter(|verdict| verdict.action != Action::Status(403));
        let answered = answered.fold(Ranges::none(), |all, verdict| all.or(&verdict.clients));
        if !answered.is_all() && !answered.is_none() {
            self.report.note(&proxy.head, "clients that are denied on every path are reset as they connect, in place of an answer");
            for clients in regions.iter_mut().map(|region| &mut region.verdict.clients) {
                if answered.and_not(clients).is_none() {
                    *clients = Ranges::all();
                }
            }
            let connecting = match &frontend.source_ranges {
                Some(ranges) => Ranges::of(ranges).and(&answered),
                None => answered,
            };
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
            response_headers: self.edits_of_all_answers(proxy),
            ..FrontendHttp::default()
        };
        if let Some(tls) = &way.tls
            && !tls.table.alpn.iter().flatten().any(|name| **name == *"h2")
        {
            http.http2 = OrMap::Value(false);
        }
        match &proxy.hsts {
            Some((_, seconds)) if way.tls.is_some() => {
                http.hsts = format!("{seconds}s").parse().ok();
            }
            Some((line, _)) if proxy.binds.iter().all(|bind| bind.way.tls.is_none()) => {
                self.report.note(line, "browsers ignore it over plain HTTP");
            }
            _ => {}
        }
        frontend.errors = self.errors(proxy, &rules);
        let mut statuses = frontend.errors.iter().map(|(status, _)| status.code());
        if statuses.any(|status| status == 503) {
            // With this status haproxy answers for servers that refuse connections, and shows the page.
            http.unreachable_status = 503;
        }
        frontend.http = (http != FrontendHttp::default()).then(|| Box::new(http));
        Ok(())
    }

    /// The edits of every answer of a frontend.
    fn edits_of_all_answers(&mut self, proxy: &Proxy) -> Option<Box<HeaderEdits>> {
        let edits = proxy.edits.iter();
        let edits: Vec<&Edit> = edits.filter(|edit| edit.of == Of::AllAnswers).collect();
        let edits = self.edits(&edits);
        (edits != HeaderEdits::default()).then(|| Box::new(edits))
    }

    /// Tells at the top of the report where a denial, whose exceptions are not looked at, closes the whole frontend.
    fn serves_nobody(&mut self, proxy: &Proxy, rules: &Rules<'_>) {
        let is_for_all = |step: &&Step| {
            let mut alternatives = step.condition.alternatives.iter();
            self.spared_nobody.contains(&step.line.number)
                && alternatives.any(|one| one.is_about_any_request() && one.clients.is_all())
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
        let mut of_clients: Vec<&Line> = Vec::new();
        let mut of_others: Vec<&Line> = Vec::new();
        let mut wanted: Vec<XForwarded> = Vec::new();
        for section in &sections {
            let of = [proxy, section];
            let told = of.iter().find_map(|of| of.forwarded_for.as_ref());
            let all = of.iter().find_map(|of| of.forwards_all.as_ref());
            let drops = of.iter().find_map(|of| of.drops_forwarded_for.as_ref());
            of_clients.extend(told.into_iter().chain(drops));
            of_others.extend(all);
            // Another frontend may tell this backend of clients, so that the field is not taken out there.
            let is_told =
                told.is_some() || drops.is_some() && self.told_clients.contains(&section.name);
            wanted.push(match (is_told, all.is_some(), drops.is_some()) {
                (_, true, true) => XForwarded::Replace,
                (_, true, false) => XForwarded::Append,
                (true, false, true) => XForwarded::ReplaceFor,
                (true, false, false) => XForwarded::AppendFor,
                (false, false, _) => XForwarded::Off,
            });
        }
        let has = |kinds: [XForwarded; 2]| wanted.iter().any(|kind| kinds.contains(kind));
        let replaces = has([XForwarded::Replace, XForwarded::ReplaceFor]);
        let strictest = match has([XForwarded::Replace, XForwarded::Append]) {
            true if replaces => XForwarded::Replace,
            true => XForwarded::Append,
            false if replaces => XForwarded::ReplaceFor,
            false if wanted.contains(&XForwarded::AppendFor) => XForwarded::AppendFor,
            false => XForwarded::Off,
        };
        let lines = of_clients.iter().chain(&of_others);
        if wanted.iter().any(|kind| *kind != strictest)
            && let Some(line) = lines.min_by_key(|line| line.number)
        {
            self.report.left_out(line, format!("a frontend writes X-Forwarded-For alike for all its backends, and those of {} differ; divide the frontend", proxy.name));
        }
        for line in &of_others {
            if of_clients.is_empty() {
                self.report.left_out(line, "with this field Ballast writes the other X-Forwarded- fields, too, and adds the client's address to X-Forwarded-For; set it to a fixed value to have it alone");
            }
        }
        strictest
    }

    /// Leaves out rules whose paths no routes can tell apart.
    fn crossing(&mut self, rules: &mut Rules<'_>) -> Result<(), Closed> {
        let paths: Vec<_> = rules.named().paths.into_iter().collect();
        let crossing: Vec<_> = paths
            .iter()
            .filter(|path| path.ignore_case && paths.iter().any(|other| path.crosses(other)))
            .collect();
        if crossing.is_empty() {
            return Ok(());
        }
        let crosses = |step: &Step| {
            let alternatives = step.condition.alternatives.iter();
            let mut theirs =
                alternatives.flat_map(|one| one.paths.iter().flatten().chain(&one.no_paths));
            theirs.any(|path| crossing.contains(&path))
        };
        let all = rules.backends.values_mut().map(|(_, steps)| steps);
        for steps in all.chain([&mut rules.steps]) {
            for step in steps.iter().filter(|step| crosses(step)) {
                self.report.left_out(&step.line, "a path in any case lies across one in a certain case; write both with -i, or both without");
                if step.does.denies() {
                    return Err(Closed(format!(
                        "{} says what is denied, and cannot be followed; correct it",
                        self.places.shown(step.line.number)
                    )));
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
        let mut cannot: Vec<Line> = Vec::new();
        let mut served = Ranges::none();
        let mut took = vec![false; rules.steps.len()];
        let mut decide = |host: Option<&_>, path: &_| {
            let mut add = |line: &Line| {
                if !cannot.contains(line) {
                    cannot.push(line.clone());
                }
            };
            let mut tick = |index: usize| {
                if let Some(took) = took.get_mut(index) {
                    *took = true;
                }
            };
            let (verdict, clients) = rules.decide(host, path, &mut add, &mut tick);
            served = served.or(&clients);
            verdict
        };
        let regions = if named.regions() <= routes::MOST {
            routes::regions(named, &mut decide)
        } else {
            self.report.note(&proxy.head, "it has very many hosts and paths: where a request fits one line by its host and another by its path, its host decides, whatever the order of the lines");
            apart(rules, named, &mut decide)?
        };
        for (step, took) in rules.steps.iter().zip(took) {
            let never = step.condition.alternatives.is_empty() || cannot.contains(&step.line);
            if step.does.chooses() && !never {
                *self.reached.entry(step.line.number).or_insert(false) |= took;
            }
        }
        self.cannot(cannot);
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
        match &region.verdict.action {
            Action::Status(status) => route.status = Some(*status),
            Action::Answer(line, status, page) => {
                route.status = Some(*status);
                match self.page(line, *status, page) {
                    Ok((name, kind)) => {
                        route.body_file = Some(file(&name));
                        route.content_type = kind.parse().ok();
                    }
                    Err(why) => self.report.left_out(line, why),
                }
            }
            Action::Redirect(target) => {
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

/// Regions of hosts, and regions of paths, where all of both together would be too many. What is denied, answered or redirected by
/// its path is so for each host.
fn apart(
    rules: &Rules<'_>,
    named: &Named,
    decide: &mut dyn FnMut(Option<&HostPattern>, &PathPattern) -> Verdict<Action>,
) -> Result<Vec<Region<Action>>, Closed> {
    let mut of_hosts = Named {
        hosts: named.hosts.clone(),
        ..Named::default()
    };
    for step in rules.all_steps() {
        for one in &step.condition.alternatives {
            let by_host = !one.hosts.is_empty() || !one.no_hosts.is_empty();
            if by_host || !one.no_paths.is_empty() || !step.does.chooses() {
                let paths = one.paths.iter().flatten().chain(&one.no_paths);
                of_hosts.paths.extend(paths.cloned());
            }
        }
    }
    if of_hosts.regions().max(named.paths.len()) > routes::MOST {
        return Err(Closed(
            "its hosts and paths together are too many; divide it".into(),
        ));
    }
    let mut regions = routes::regions(&of_hosts, decide);
    let by_path = Named {
        paths: named.paths.clone(),
        ..Named::default()
    };
    regions.retain(|region| region.host.is_some());
    let mut all = routes::regions(&by_path, decide);
    for region in regions {
        // A backend that takes a prefix off does so for requests that get there by their host, too.
        let strip = match &region.verdict.action {
            Action::Service { name, strip: None } => rules.strip_of(name),
            _ => None,
        };
        if let Some(path) = strip.cloned().filter(|path| region.path.contains(path)) {
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
    Ok(all)
}
