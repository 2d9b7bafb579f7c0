//! What haproxy does with the requests of a region: its rules in their order, first those of the frontend, then those of the
//! backend.

use std::collections::BTreeMap;
use std::rc::Rc;

use ballast_core::table::{HostPattern, Redirect, UrlPath};

use super::acl::{self, Atom, Where};
use super::condition::{self, Acls, Alternative, Condition, Rule};
use super::importer::Importer;
use super::limits;
use super::pages::Answer;
use super::pattern::{PathKind, PathPattern};
use super::proxy::{Changed, Does, Proxy, Stage};
use super::ranges::Ranges;
use super::report::and_so_for;
use super::routes::Named;
use super::words::Line;

/// What a request comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Service {
        name: String,
        /// The beginning of the path that the endpoint does not see.
        strip: Option<String>,
    },
    /// A redirect, and the line that says it.
    Redirect(Line, Redirect),
    Answer(Answer),
}

impl Action {
    /// An answer with the usual page.
    pub(super) fn status(status: u16) -> Self {
        Self::Answer(Answer::plain(status))
    }
}

/// A rule whose condition was read.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) line: Line,
    pub(super) does: Does,
    pub(super) condition: Condition,
    /// Whether an `allow` before it spares clients from it.
    pub(super) spares_allowed: bool,
}

impl Condition {
    pub(super) fn has(&self, kind: impl Fn(&Alternative) -> bool) -> bool {
        self.alternatives.iter().any(kind)
    }
}

impl Step {
    /// A step that no line says as it is.
    pub(super) fn of(line: &Line, does: Does, one: Alternative, spares_allowed: bool) -> Self {
        Self {
            line: line.clone(),
            does,
            condition: Condition {
                alternatives: vec![one],
            },
            spares_allowed,
        }
    }

    /// Whether it looks at hosts or paths.
    pub(super) fn is_about_names(&self) -> bool {
        self.condition.has(|one| !one.is_about_any_request())
    }

    /// The clients that it denies, where it denies some and looks at nothing else.
    fn denied(&mut self) -> Option<&mut Ranges> {
        match self.condition.alternatives.as_mut_slice() {
            [one] if one.is_about_any_request() && !one.clients.is_all() => {
                Some(&mut one.clients).filter(|_| self.does.denies())
            }
            _ => None,
        }
    }

    /// The clients for whom it holds in a region.
    pub(super) fn clients(&self, hosts: &[HostPattern], path: &PathPattern) -> Ranges {
        let alternatives = self.condition.alternatives.iter();
        let fitting = alternatives.filter(|one| one.covers(hosts, path));
        fitting.fold(Ranges::none(), |who, one| who.or(&one.clients))
    }

    /// What it answers; `None`: it answers nothing.
    pub(super) fn answer(&self) -> Option<Action> {
        match &self.does {
            Does::Deny(answer) | Does::Answer(answer) => Some(Action::Answer(answer.clone())),
            Does::Redirect(target) => Some(Action::Redirect(self.line.clone(), target.clone())),
            _ => None,
        }
    }
}

/// Denials of clients behind one another are one step, where they give one answer. Very many are put together at once.
pub(super) fn joined(steps: Vec<Step>) -> Vec<Step> {
    let mut joined: Vec<(Step, Vec<Ranges>)> = Vec::new();
    for mut step in steps {
        match (joined.last_mut(), step.denied().cloned()) {
            (Some((last, denied)), Some(more))
                if !denied.is_empty()
                    && last.does == step.does
                    && last.spares_allowed == step.spares_allowed =>
            {
                denied.push(more);
            }
            (_, denied) => joined.push((step, Vec::from_iter(denied))),
        }
    }
    let together = joined.into_iter().map(|(mut step, all)| {
        if let Some(denied) = step.denied() {
            *denied = Ranges::any_of(&all);
        }
        step
    });
    together.collect()
}

/// A rule of access could not be read, so that the frontend must not be open.
pub(super) struct Closed(pub(super) String);

impl Importer<'_> {
    /// The ACLs of a section.
    pub(super) fn acls(&mut self, proxy: &Proxy, place: Where) -> Acls {
        let mut acls = Acls::of(&proxy.head);
        for line in &proxy.acls {
            let atoms = self
                .atoms(line, line.from(2), place)
                .unwrap_or_else(|why| vec![Atom::Broken(why)]);
            for atom in &atoms {
                match atom {
                    Atom::Unknown(what) => self.report.left_out(line, format!("Ballast does not look at {what}; the lines that use it say what becomes of them")),
                    Atom::Broken(why) | Atom::NoClients(why) => {
                        self.report.left_out(line, why.clone());
                    }
                    _ => {}
                }
            }
            acls.add(line, atoms);
        }
        for line in &proxy.unread_acls {
            let why = format!(
                "a line of this acl cannot be read: {}",
                self.places.shown(line.number)
            );
            acls.add(line, vec![Atom::NoClients(why)]);
        }
        acls
    }

    fn atoms(&mut self, line: &Line, words: &[String], place: Where) -> Result<Vec<Atom>, String> {
        acl::read(line, words, place, self.world, &mut self.report)
    }

    fn condition_of(
        &mut self,
        rule: &Rule,
        acls: &Acls,
        place: Where,
    ) -> Result<Condition, String> {
        let line = &rule.line;
        let mut read = |words: &[String]| self.atoms(line, words, place);
        let acls = acls.seen_by(line);
        let mut condition = condition::read(&rule.condition, acls, place, &mut read)?;
        if !rule.entry.is_empty() {
            // One key has one atom.
            for atom in self.atoms(line, &rule.entry, place)? {
                let alternatives = &mut condition.alternatives;
                alternatives.retain_mut(|alternative| alternative.add(&atom, false));
            }
        }
        Ok(condition)
    }

    /// The rules of a section in haproxy's order, with what can be decided by them; `use_backend` ones only of a frontend.
    pub(super) fn steps(&mut self, proxy: &Proxy, place: Where) -> Result<Vec<Step>, Closed> {
        if let Some(number) = proxy.unread {
            return Err(self.not_open(number));
        }
        let acls = self.acls(proxy, place);
        let mut place = place;
        let mut steps = Vec::new();
        for rule in proxy.rules_of(Stage::Request..=Stage::Choice) {
            match rule.does {
                _ if !proxy.is_http && rule.stage != Stage::Choice => {
                    self.report.note(&rule.line, NOT_IN_TCP);
                }
                Does::Changes(what) => place.changed.add(what, &rule.line),
                _ => {
                    if let Some(condition) = self.condition(rule, &acls, place)? {
                        steps.push(self.step(rule, condition, place)?);
                    }
                }
            }
        }
        Ok(joined(steps))
    }

    /// Where a rule or the default turns away what it gets, hosts that haproxy leads there and Ballast elsewhere are told.
    pub(super) fn names_elsewhere(&mut self, rules: &Rules<'_>) {
        let mut closes = !rules.takes(rules.default.as_ref());
        let mut more: Vec<&Line> = Vec::new();
        for step in rules.steps.iter().rev() {
            let to = match &step.does {
                Does::Backend(name) => Some(name),
                Does::Default => rules.default.as_ref(),
                _ => continue,
            };
            let takes = rules.takes(to);
            for one in &step.condition.alternatives {
                if one.is_about_any_request() && one.clients.is_all() {
                    closes = false;
                }
                if let (Some(why), false) = (&one.unlike.fewer, takes) {
                    self.report.differs(
                        &step.line,
                        format!("{why}; what haproxy turns away there of these is served"),
                    );
                }
            }
            if closes && step.condition.has(|one| one.unlike.more.is_some()) {
                more.push(&step.line);
            }
            closes |= !takes && step.condition.has(|one| one.paths.is_empty());
        }
        more.reverse();
        more.dedup_by_key(|line| line.number);
        if let Some((line, others)) = more.split_first() {
            let and_so = and_so_for(others.len());
            self.report.differs(line, format!("{OTHER_NAMES}{and_so}"));
        }
    }

    /// The condition of a rule; `None`: it cannot be read, and nobody gets in without the rule.
    pub(super) fn condition(
        &mut self,
        rule: &Rule,
        acls: &Acls,
        place: Where,
    ) -> Result<Option<Condition>, Closed> {
        match self.condition_of(rule, acls, place) {
            Ok(condition) => Ok(Some(condition)),
            Err(why) if rule.does.refuses() => Err(self.closed(&rule.line, &why)),
            Err(why) => {
                let what_then = match rule.does.turns_away() {
                    true => format!("; {SERVED}"),
                    false => String::new(),
                };
                self.report.left_out(&rule.line, why + &what_then);
                Ok(None)
            }
        }
    }

    /// A rule with what Ballast can look at of its condition.
    pub(super) fn step(
        &mut self,
        rule: &Rule,
        mut condition: Condition,
        place: Where,
    ) -> Result<Step, Closed> {
        let (line, does) = (&rule.line, &rule.does);
        for one in &mut condition.alternatives {
            self.changed_before(one, place.changed);
        }
        let is_part = !rule.entry.is_empty();
        let condition = self.seen(line, condition, does, is_part)?;
        self.hosts_alike(line, does, &condition);
        if line.word(1) == "tarpit" && condition.has(|_| true) {
            let why = "these clients are answered at once, and not left waiting";
            self.report.note(line, why);
        }
        if does.refuses() {
            self.clients_alike(line, &condition, place);
        }
        Ok(Step {
            line: line.clone(),
            does: does.clone(),
            condition,
            spares_allowed: rule.stage < Stage::Redirect,
        })
    }

    /// What a rule before this one changed of the request, this one would look at as it was.
    fn changed_before(&self, one: &mut Alternative, changed: Changed) {
        let by_path = !one.paths.is_empty() || !one.no_paths.is_empty();
        let host = changed
            .host
            .filter(|_| one.is_about_hosts())
            .map(|line| ("host", line));
        let path = changed.path.filter(|_| by_path).map(|line| ("path", line));
        if let Some((what, line)) = host.or(path) {
            one.broken = Some(format!(
                "it looks at the {what} that {} has changed, and Ballast at that of the client; write it before that line",
                self.places.shown(line)
            ));
        }
    }

    /// haproxy looks into addresses of IPv6 for those of IPv4, and Ballast does not.
    fn clients_alike(&mut self, line: &Line, condition: &Condition, place: Where) {
        let is_wider = |one: &Alternative| {
            let around = one.clients.around_ipv4();
            !around.and_not(&one.clients).is_none()
        };
        if place.takes_ipv6 && condition.has(is_wider) {
            self.report.differs(line, IPV4_INSIDE);
        }
    }

    /// Where a rule says who may come, hosts that haproxy compares otherwise are told.
    fn hosts_alike(&mut self, line: &Line, does: &Does, condition: &Condition) {
        let turns_away = matches!(does, Does::Deny(_) | Does::Answer(_) | Does::Redirect(_));
        for one in &condition.alternatives {
            let mut not_paths = one.no_paths.iter().flat_map(|paths| paths.iter());
            if turns_away && not_paths.any(PathPattern::is_any) {
                self.report.differs(line, NO_PATH);
            }
            let (why, what_then) = match does {
                Does::Allow => (
                    &one.unlike.more,
                    "what haproxy does not allow of these is allowed",
                ),
                Does::Deny(_) => (&one.unlike.fewer, "what haproxy denies of these is served"),
                _ if turns_away => (
                    &one.unlike.fewer,
                    "what haproxy answers so of these is served",
                ),
                _ => return,
            };
            if let Some(why) = why {
                self.report.differs(line, format!("{why}; {what_then}"));
            }
        }
    }

    /// The path of `monitor-uri`, which is answered before any rule.
    pub(super) fn monitor(&mut self, proxy: &Proxy) -> Option<Step> {
        let line = proxy.monitor.as_ref()?;
        if !proxy.is_http {
            self.report.note(line, NOT_IN_TCP);
            return None;
        }
        let path = line.word(1);
        if path.parse::<UrlPath>().is_err() {
            let why = format!("{path:?} is no path of a route; expected one such as /healthz");
            self.report.left_out(line, why);
            return None;
        }
        let mut condition = Alternative::always();
        let path = PathPattern::new(PathKind::Exact, path, false);
        condition.paths.push(Rc::new(vec![path]));
        let does = Does::Answer(Answer::plain(200));
        Some(Step::of(line, does, condition, false))
    }

    /// The alternatives that Ballast can look at: the one place where it is decided what becomes of the others. A denial, and what keeps
    /// some clients out, holds without an exception that it does not know. `is_part`: it is the condition of a part of the line alone.
    fn seen(
        &mut self,
        line: &Line,
        condition: Condition,
        does: &Does,
        is_part: bool,
    ) -> Result<Condition, Closed> {
        let mut alternatives = Vec::new();
        let (denies, turns_away) = (does.refuses(), does.turns_away());
        let holds_for_all = |one: &Alternative| {
            let keeps_out = denies || turns_away && !one.clients.is_all();
            keeps_out && one.unknown.is_empty() && one.broken.is_none()
        };
        let in_part =
            is_part || condition.has(|one| one.not_seen().is_none() || holds_for_all(one));
        for mut alternative in condition.alternatives {
            let Some(what) = alternative.not_seen().map(str::to_owned) else {
                alternatives.push(alternative);
                continue;
            };
            if let Some(why) = &alternative.broken
                && (denies || turns_away && alternative.has_no_clients)
            {
                return Err(self.closed(line, why));
            }
            if matches!(does, Does::Allow) {
                self.lost_allows.insert(line.number);
            }
            if does.chooses() {
                let is_unread = self.lost_choices.entry(line.number).or_default();
                *is_unread |= alternative.has_no_clients;
            }
            if holds_for_all(&alternative) {
                let too = if denies {
                    "denies them too"
                } else {
                    "is for them too"
                };
                let why = match is_for_when(&what) {
                    true => format!(
                        "the import does not look at {what}, by which some are excepted, and a route does by `when`: it {too}"
                    ),
                    false => format!(
                        "Ballast does not look at {what}, by which some are excepted: it {too}"
                    ),
                };
                self.report.differs(line, why);
                alternative.unknown_not.clear();
                self.spared_nobody.insert(line.number);
                alternatives.push(alternative);
                continue;
            }
            let part = if in_part {
                "this part of the line"
            } else {
                "this line"
            };
            let what_then = match denies {
                true if in_part => format!("what {part} denies is served, and the rest is denied"),
                true => format!("what {part} denies is served"),
                false if turns_away => format!("{part} has no effect: {SERVED}"),
                false if in_part => format!("{part} is left out, and the rest is in the table"),
                false => format!("{part} has no effect"),
            };
            let what_then = match denies && limits::is_counter(&what) {
                true => format!("{what_then}: {}", limits::REMEDY),
                false => what_then,
            };
            let why = match &alternative.broken {
                Some(why) => format!("{why}; {what_then}"),
                None if is_for_when(&what) => format!(
                    "the import does not look at {what}, and a route does by `when`; {what_then}"
                ),
                None => format!("Ballast does not look at {what}; {what_then}"),
            };
            self.report.left_out(line, why);
        }
        Ok(Condition { alternatives })
    }

    /// The frontend of a line must not be open, since this line `says` what cannot be followed.
    pub(super) fn closed_by(&self, line: &Line, says: &str) -> Closed {
        Closed(format!("{} {says}", self.places.shown(line.number)))
    }

    fn closed(&mut self, line: &Line, why: &str) -> Closed {
        self.report.left_out(line, why);
        self.not_open(line.number)
    }

    pub(super) fn not_open(&self, number: usize) -> Closed {
        Closed(format!(
            "{} says who may not come, and cannot be read; correct it, so that this is not open to everybody",
            self.places.shown(number)
        ))
    }
}

/// All that decides about the requests of one frontend.
#[derive(Default)]
pub(super) struct Rules<'p> {
    pub(super) steps: Vec<Step>,
    pub(super) default: Option<String>,
    /// The sections that requests can go on to, with their own rules.
    pub(super) backends: BTreeMap<String, (&'p Proxy, Vec<Step>)>,
}

impl Rules<'_> {
    /// Everything that the rules name.
    pub(super) fn named(&self) -> Named {
        let mut named = Named::default();
        self.alternatives().for_each(|one| named.add(one));
        let strips = self.backends.values();
        let strips = strips.filter_map(|(proxy, _)| proxy.strip.as_ref());
        named.add_paths(strips.map(|(_, path)| path.clone()));
        named
    }

    /// All rules, those of the backends too.
    pub(super) fn all_steps(&self) -> impl Iterator<Item = &Step> {
        let theirs = self.backends.values().flat_map(|(_, steps)| steps);
        self.steps.iter().chain(theirs)
    }

    pub(super) fn alternatives(&self) -> impl Iterator<Item = &Alternative> {
        self.all_steps()
            .flat_map(|step| &step.condition.alternatives)
    }

    /// Whether a backend serves all whom no rule about hosts or paths turns away.
    pub(super) fn takes(&self, name: Option<&String>) -> bool {
        let turns_away = |step: &Step| {
            let is_for_any = |one: &Alternative| one.is_about_any_request();
            step.answer().is_some() && step.condition.has(is_for_any)
        };
        let backend = name.and_then(|name| self.backends.get(name));
        backend.is_some_and(|(backend, steps)| {
            !backend.serves_nobody() && !steps.iter().any(turns_away)
        })
    }

    /// The line by which a backend takes the beginning off paths, and which paths these are.
    pub(super) fn stripping(&self, name: &str) -> Option<&(Line, PathPattern)> {
        self.backends.get(name)?.0.strip.as_ref()
    }

    pub(super) fn service(&self, name: &str, path: &PathPattern) -> Action {
        let Some((proxy, _)) = self.backends.get(name) else {
            return Action::status(503);
        };
        let strip = proxy.strip.as_ref().map(|(_, strip)| strip);
        let strip = strip.filter(|strip| strip.contains(path));
        Action::Service {
            name: name.into(),
            strip: strip.map(|strip| strip.text.clone()),
        }
    }
}

/// Whether a condition is about what `when` of a route looks at.
fn is_for_when(what: &str) -> bool {
    let samples = [
        "METH_",
        "`method",
        "`hdr(",
        "`req.hdr(",
        "`url_param(",
        "`urlp(",
    ];
    samples.iter().any(|sample| what.starts_with(sample))
}

/// The remark on a line that is left out, and that keeps requests from the backend.
pub(super) const SERVED: &str = "the requests that it keeps from the backend are served";

const IPV4_INSIDE: &str = "by this line haproxy also denies clients of IPv6 who have such an address inside of theirs, as 2002:V4::/48 (6to4) or ::V4, and Ballast does not; write these networks too, if such clients can come";

const OTHER_NAMES: &str = "haproxy means names as they are written, and a table also with a port or a dot behind them and, as with -i, in any case; haproxy leads these to no backend, or to one that turns them away, and Ballast to this one";

const NO_PATH: &str =
    "`OPTIONS *` has no path, so that this line is for it in haproxy, and is not here";

const NOT_IN_TCP: &str = "in mode tcp it has no effect, as in haproxy";
