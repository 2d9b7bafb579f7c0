//! What haproxy does with the requests of a region: its rules in their order, first those of the frontend, then those of the
//! backend.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use ballast_core::table::{HostPattern, Redirect, UrlPath};

use super::acl::{self, Atom, Where};
use super::clients::{Clients, Index};
use super::condition::{self, Acls, Alternative, Condition, Rule};
use super::importer::Importer;
use super::limits;
use super::pages::Answer;
use super::pattern::{PathKind, PathPattern};
use super::proxy::{Changed, Does, Proxy};
use super::ranges::Ranges;
use super::routes::{Named, Verdict};
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

impl Step {
    /// Whether it looks at hosts or paths.
    pub(super) fn is_about_names(&self) -> bool {
        let mut alternatives = self.condition.alternatives.iter();
        alternatives.any(|one| !one.is_about_any_request())
    }

    /// What it answers; `None`: it answers nothing.
    pub(super) fn answer(&self) -> Option<Action> {
        match &self.does {
            Does::Deny(answer) | Does::Answer(answer) => Some(Action::Answer(answer.clone())),
            Does::Redirect(target) => Some(Action::Redirect(self.line.clone(), target.clone())),
            Does::Allow | Does::NextStage | Does::Backend(_) | Does::Default | Does::Changes(_) => {
                None
            }
        }
    }
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
                    Atom::Broken(why) => self.report.left_out(line, why.clone()),
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
            acls.add(line, vec![Atom::Broken(why)]);
        }
        acls
    }

    fn atoms(&mut self, line: &Line, words: &[String], place: Where) -> Result<Vec<Atom>, String> {
        let report = &mut self.report;
        acl::read(words, place, self.world, &mut |kind, why| {
            report.lines(kind, line, line.number, why);
        })
    }

    pub(super) fn condition_of<A>(
        &mut self,
        rule: &Rule<A>,
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
        for rule in proxy.requests.iter().chain(&proxy.redirects) {
            if proxy.is_http {
                match rule.action {
                    Does::Changes(what) => place.changed.add(what, &rule.line),
                    _ => steps.extend(self.step(rule, &acls, place)?),
                }
            } else {
                self.report.note(&rule.line, NOT_IN_TCP);
            }
        }
        for rule in &proxy.use_backends {
            steps.extend(self.step(rule, &acls, place)?);
        }
        Ok(steps)
    }

    fn step(
        &mut self,
        rule: &Rule<Does>,
        acls: &Acls,
        place: Where,
    ) -> Result<Option<Step>, Closed> {
        let (line, does) = (&rule.line, &rule.action);
        let mut condition = match self.condition_of(rule, acls, place) {
            Ok(condition) => condition,
            Err(why) if does.refuses() => return Err(self.closed(line, &why)),
            Err(why) => {
                self.report.left_out(line, why);
                return Ok(None);
            }
        };
        for one in &mut condition.alternatives {
            self.changed_before(one, place.changed);
        }
        let is_part = !rule.entry.is_empty();
        let condition = self.seen(line, condition, does.refuses(), is_part)?;
        self.hosts_alike(line, does, &condition);
        if does.refuses() {
            self.clients_alike(line, &condition, place);
        }
        Ok(Some(Step {
            line: line.clone(),
            does: does.clone(),
            condition,
            spares_allowed: line.word(0) != "redirect" && !does.chooses(),
        }))
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
    pub(super) fn clients_alike(&mut self, line: &Line, condition: &Condition, place: Where) {
        let is_wider = |one: &Alternative| {
            let around = one.clients.around_ipv4();
            !around.and_not(&one.clients).is_none()
        };
        if place.takes_ipv6 && condition.alternatives.iter().any(is_wider) {
            self.report.left_out(line, IPV4_INSIDE);
        }
    }

    /// Where a rule says who may come, hosts that haproxy compares otherwise are told.
    pub(super) fn hosts_alike(&mut self, line: &Line, does: &Does, condition: &Condition) {
        for one in &condition.alternatives {
            let (why, what_then) = match does {
                Does::Deny(..) => (&one.unlike.fewer, "what haproxy denies of these is served"),
                Does::Allow => (
                    &one.unlike.more,
                    "what haproxy does not allow of these is allowed",
                ),
                _ => return,
            };
            if let Some(why) = why {
                self.report.left_out(line, format!("{why}; {what_then}"));
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
        Some(Step {
            line: line.clone(),
            does: Does::Answer(Answer::plain(200)),
            condition: Condition {
                alternatives: vec![condition],
            },
            spares_allowed: false,
        })
    }

    /// The alternatives that Ballast can look at. A denial to which it knows no exception holds without the exception. `is_part`: it
    /// is the condition of a part of the line alone.
    pub(super) fn seen(
        &mut self,
        line: &Line,
        condition: Condition,
        denies: bool,
        is_part: bool,
    ) -> Result<Condition, Closed> {
        let mut alternatives = Vec::new();
        let mut followed = condition.alternatives.iter();
        let in_part = is_part
            || followed.any(|one| {
                one.not_seen().is_none() || denies && one.unknown.is_empty() && one.broken.is_none()
            });
        for mut alternative in condition.alternatives {
            let Some(what) = alternative.not_seen().map(str::to_owned) else {
                alternatives.push(alternative);
                continue;
            };
            if denies && let Some(why) = &alternative.broken {
                return Err(self.closed(line, why));
            }
            if denies && alternative.unknown.is_empty() {
                self.report.left_out(line, format!("Ballast does not look at {what}, by which some are excepted: it denies them too"));
                alternative.unknown_not.clear();
                self.spared_nobody.insert(line.number);
                alternatives.push(alternative);
                continue;
            }
            let what_then = match (denies, in_part) {
                (true, true) => {
                    "what this part of the line denies is served, and the rest is denied"
                }
                (false, false) => "this line has no effect",
                (true, false) => "what this line denies is served",
                (false, true) => "this part of the line is left out, and the rest is in the table",
            };
            let what_then = match denies && limits::is_counter(&what) {
                true => format!("{what_then}: {}", limits::REMEDY),
                false => what_then.to_owned(),
            };
            let why = match &alternative.broken {
                Some(why) => format!("{why}; {what_then}"),
                None => format!("Ballast does not look at {what}; {what_then}"),
            };
            self.report.left_out(line, why);
        }
        Ok(Condition { alternatives })
    }

    pub(super) fn closed(&mut self, line: &Line, why: &str) -> Closed {
        self.report.left_out(line, why);
        self.not_open(line.number)
    }

    fn not_open(&self, number: usize) -> Closed {
        Closed(format!(
            "{} says who may not come, and cannot be read; correct it, so that this is not open to everybody",
            self.places.shown(number)
        ))
    }
}

/// The rules of a frontend and of its backends by what they look for.
pub(super) struct Indexes<'r> {
    own: Index<'r>,
    of_backends: HashMap<&'r str, Index<'r>>,
    none: Index<'r>,
}

/// All that decides about the requests of one frontend.
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
        for alternative in self.alternatives() {
            let hosts = alternative.hosts.iter().chain(&alternative.no_hosts);
            named
                .hosts
                .extend(hosts.flat_map(|list| list.iter().cloned()));
            named.paths.extend(alternative.all_paths().cloned());
        }
        for (proxy, _) in self.backends.values() {
            if let Some((_, path)) = &proxy.strip {
                named.paths.insert(path.clone());
            }
        }
        named
    }

    /// All rules, those of the backends too.
    pub(super) fn all_steps(&self) -> impl Iterator<Item = &Step> {
        let theirs = self.backends.values().flat_map(|(_, steps)| steps);
        self.steps.iter().chain(theirs)
    }

    fn alternatives(&self) -> impl Iterator<Item = &Alternative> {
        self.all_steps()
            .flat_map(|step| &step.condition.alternatives)
    }

    /// The line by which a backend takes the beginning off paths, and which paths these are.
    pub(super) fn stripping(&self, name: &str) -> Option<&(Line, PathPattern)> {
        self.backends.get(name)?.0.strip.as_ref()
    }

    pub(super) fn indexes(&self) -> Indexes<'_> {
        let backends = self.backends.iter();
        Indexes {
            own: Index::of(&self.steps),
            of_backends: backends
                .map(|(name, (_, steps))| (&**name, Index::of(steps)))
                .collect(),
            none: Index::default(),
        }
    }

    /// Where the requests of a region go, and whose are not denied. `cannot` is told of lines that routes cannot follow, and `took`
    /// of those that decided.
    pub(super) fn decide(
        &self,
        host: Option<&HostPattern>,
        path: &PathPattern,
        indexes: &Indexes<'_>,
        cannot: &mut dyn FnMut(&Line),
        took: &mut dyn FnMut(usize),
    ) -> (Verdict<Action>, Ranges) {
        let mut clients = Clients::of(Ranges::all());
        let step = clients.pass(&self.steps, &indexes.own, host, path, cannot, took);
        let backend = match step.map(|step| &step.does) {
            None | Some(Does::Default) => self.default.as_ref(),
            Some(Does::Backend(name)) => Some(name),
            Some(_) => None,
        };
        let action = match (backend, step) {
            (Some(name), _) => match self.backends.get(name) {
                Some((_, steps)) => {
                    // The rules of a backend hold for those, too, whom an `allow` of the frontend let through.
                    clients = clients.of_backend();
                    let index = indexes.of_backends.get(&**name).unwrap_or(&indexes.none);
                    let step = clients.pass(steps, index, host, path, cannot, &mut |_| {});
                    step.and_then(Step::answer)
                        .unwrap_or_else(|| self.service(name, path))
                }
                _ => self.service(name, path),
            },
            (None, step) => step
                .and_then(Step::answer)
                .unwrap_or_else(|| Action::status(503)),
        };
        let (answered, all) = (clients.answered(), clients.all());
        let said = clients.said.unwrap_or_else(|| Action::status(403));
        let verdict = match answered.is_all() || !answered.is_none() && action != said {
            true => Verdict {
                action,
                denied: (!answered.is_all() && said != Action::status(403)).then_some(said),
                clients: answered,
            },
            // The route and its denial give the same answer, so that it needs no ranges.
            false => Verdict {
                action: said,
                clients: Ranges::all(),
                denied: None,
            },
        };
        (verdict, all)
    }

    fn service(&self, name: &str, path: &PathPattern) -> Action {
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

const IPV4_INSIDE: &str = "by this line haproxy also denies clients of IPv6 who have such an address inside of theirs, as 2002:V4::/48 (6to4) or ::V4, and Ballast does not; write these networks too, if such clients can come";

const NOT_IN_TCP: &str = "in mode tcp it has no effect, as in haproxy";
