//! How the requests of a region walk through the rules: those of the frontend, then those of a backend.

use std::collections::{BTreeMap, HashMap, HashSet};

use ballast_core::table::HostPattern;

use super::decide::{Action, Rules, Step};
use super::pattern::{ByPath, PathPattern};
use super::proxy::Does;
use super::ranges::Ranges;
use super::routes::{Verdict, any_path, around};
use super::words::Line;

/// Rules by the hosts and paths that they look for, so that of very many only those are looked at that a request may fit.
#[derive(Default)]
struct Index<'s> {
    /// Those that fit any request, as far as is known without looking.
    any: Vec<usize>,
    by_host: HashMap<&'s HostPattern, Vec<usize>>,
    by_path: ByPath<'s>,
}

impl<'s> Index<'s> {
    fn of(steps: &'s [Step]) -> Self {
        let mut index = Self::default();
        let mut by_path = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            for one in &step.condition.alternatives {
                match (one.hosts.first(), one.paths.first()) {
                    (Some(hosts), _) => {
                        for host in hosts.iter() {
                            index.by_host.entry(host).or_default().push(at);
                        }
                    }
                    (None, Some(paths)) => by_path.extend(paths.iter().map(|path| (path, at))),
                    (None, None) => index.any.push(at),
                }
            }
        }
        index.by_path = ByPath::of(by_path.into_iter());
        index
    }

    /// The numbers of the rules that a request may fit, in their order.
    fn fitting(&self, hosts: &[HostPattern], path: &PathPattern) -> Vec<usize> {
        let mut fitting = self.any.clone();
        for pattern in hosts {
            fitting.extend(self.by_host.get(pattern).into_iter().flatten());
        }
        fitting.extend(self.by_path.containing(path));
        fitting.sort_unstable();
        fitting.dedup();
        fitting
    }
}

/// What walks have found out about lines.
#[derive(Default)]
pub(super) struct Found {
    /// Those that routes cannot follow.
    pub(super) cannot: BTreeMap<usize, Line>,
    /// Those whose clients are denied where haproxy answers them otherwise.
    pub(super) otherwise: BTreeMap<usize, Line>,
    /// The peers that send a PROXY header.
    pub(super) senders: Ranges,
    /// The rules of the frontend that decided, by their places.
    pub(super) took: HashSet<usize>,
}

/// The rules of a frontend and of its backends, with what they look for.
pub(super) struct Walk<'r> {
    rules: &'r Rules<'r>,
    own: Index<'r>,
    of_backends: HashMap<&'r str, Index<'r>>,
    /// The clients whom each backend refuses what no rule names.
    closed: HashMap<&'r str, Ranges>,
    pub(super) found: Found,
    /// Rules that would send some clients to these backends, in the region that is decided about.
    elsewhere: Vec<(&'r Step, Option<&'r String>, Ranges)>,
}

/// The clients that rules have let through so far.
struct Clients {
    /// Clients about whom no rule has decided.
    rest: Ranges,
    /// Clients whom an `allow` or an `accept` let through.
    passed: Ranges,
    /// Clients that a denial answered, where a denial took the last clients of `rest`.
    denied: Option<Ranges>,
    /// What others were answered by the first line that answered some.
    said: Option<Action>,
}

impl Clients {
    /// These clients, of whom no rule has been asked.
    fn of(rest: Ranges) -> Self {
        Self {
            rest,
            passed: Ranges::none(),
            denied: None,
            said: None,
        }
    }

    /// All who go on to a backend, of whom none of its rules has been asked.
    fn of_backend(self) -> Self {
        Self {
            said: self.said,
            rest: self.rest.or(&self.passed),
            ..Self::of(Ranges::none())
        }
    }

    fn all(&self) -> Ranges {
        self.rest.or(&self.passed)
    }

    /// Those who get what the last rule says; all others were denied before.
    fn answered(&self) -> Ranges {
        self.denied.clone().unwrap_or_else(|| self.all())
    }

    fn let_through(&mut self, who: &Ranges) {
        self.passed = self.passed.or(&self.rest.and(who));
        self.rest = self.rest.and_not(who);
    }

    /// The rules behind it are asked about all whom those before it let through.
    fn begin_stage(&mut self) {
        self.rest = self.all();
        self.passed = Ranges::none();
    }

    /// Those of these clients whom a rule is about: an `allow` may spare some from it.
    fn concerned(&self, who: &Ranges, spares_allowed: bool) -> Ranges {
        match spares_allowed {
            true => self.rest.and(who),
            false => self.all().and(who),
        }
    }

    /// Takes these clients out, but for those whom an `allow` spares from the rule.
    fn refuse(&mut self, who: &Ranges, spares_allowed: bool) {
        self.rest = self.rest.and_not(who);
        if !spares_allowed {
            self.passed = self.passed.and_not(who);
        }
    }
}

/// The requests of a region: the patterns that contain its host, and its path.
struct Region<'p> {
    hosts: Vec<HostPattern>,
    path: &'p PathPattern,
}

/// Where the clients go that are left.
enum Goes {
    /// A rule answers them.
    Answered(Action),
    To(Option<String>),
}

impl<'r> Walk<'r> {
    pub(super) fn of(rules: &'r Rules<'r>) -> Self {
        let backends = rules.backends.iter();
        let backends = backends.map(|(name, (_, steps))| (&**name, Index::of(steps)));
        let mut walk = Self {
            rules,
            own: Index::of(&rules.steps),
            of_backends: backends.collect(),
            closed: HashMap::new(),
            found: Found::default(),
            elsewhere: Vec::new(),
        };
        let any = Region {
            hosts: Vec::new(),
            path: &any_path(),
        };
        for (name, (_, steps)) in &rules.backends {
            if steps.iter().any(|step| step.does.refuses()) {
                let (refused, ..) = walk.refused_by(Some(name), &Ranges::all(), &any);
                walk.closed.insert(name, refused);
            }
        }
        walk.found = Found::default();
        walk
    }

    /// Where the requests of a region go, and whose are not denied.
    pub(super) fn decide(
        &mut self,
        host: Option<&HostPattern>,
        path: &PathPattern,
    ) -> (Verdict<Action>, Ranges) {
        let region = Region {
            hosts: host.into_iter().flat_map(around).collect(),
            path,
        };
        let mut clients = Clients::of(Ranges::all());
        let goes = self.pass(&mut clients, None, &region);
        for (step, name, served) in std::mem::take(&mut self.elsewhere) {
            // Where they go to that backend with all others, they go nowhere else.
            let all_go = served.and_not(&clients.all()).is_none();
            if !(all_go && matches!(&goes, Goes::To(to) if to.as_ref() == name)) {
                self.cannot(step);
            }
        }
        let action = match goes {
            Goes::Answered(action) => action,
            Goes::To(None) => Action::status(503),
            Goes::To(Some(name)) => {
                // The rules of a backend hold for those, too, whom an `allow` of the frontend let through.
                clients = clients.of_backend();
                match self.pass(&mut clients, Some(&name), &region) {
                    Goes::Answered(action) => action,
                    Goes::To(_) => self.rules.service(&name, path),
                }
            }
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

    /// Asks the rules of the frontend, or those of a backend, until one decides about all who are left.
    fn pass(&mut self, clients: &mut Clients, of: Option<&str>, region: &Region<'_>) -> Goes {
        let rules = self.rules;
        let (steps, index) = match of {
            None => (rules.steps.as_slice(), Some(&self.own)),
            Some(name) => {
                let backend = rules.backends.get(name);
                let steps = backend.map_or(&[][..], |(_, steps)| steps);
                (steps, self.of_backends.get(name))
            }
        };
        let fitting = index.map(|index| index.fitting(&region.hosts, region.path));
        for at in fitting.into_iter().flatten() {
            let Some(step) = steps.get(at) else {
                continue;
            };
            let who = step.clients(&region.hosts, region.path);
            let concerned = clients.concerned(&who, step.spares_allowed);
            match &step.does {
                _ if who.is_none() => continue,
                Does::NextStage => clients.begin_stage(),
                Does::ExpectProxy => self.found.senders = self.found.senders.or(&concerned),
                Does::Allow => clients.let_through(&who),
                Does::Deny(answer) | Does::Answer(answer) => {
                    let answer = Action::Answer(answer.clone());
                    if self.refuse(clients, step, &who, &answer) {
                        self.took(of, at);
                        return Goes::Answered(answer);
                    }
                }
                Does::Redirect(_) | Does::Lost => {
                    // A route is for everybody or denies: it does not send some clients elsewhere.
                    let are_all = clients.all().and_not(&concerned).is_none();
                    if let (true, Some(action)) = (are_all, step.answer()) {
                        self.took(of, at);
                        return Goes::Answered(action);
                    }
                    if !are_all && !concerned.is_none() {
                        self.cannot(step);
                        // What they would get in place of the service says that it is not for them.
                        clients.refuse(&concerned, false);
                    }
                    continue;
                }
                Does::Backend(_) | Does::Default if of.is_none() => {
                    if let Some(goes) = self.choose(clients, step, &concerned, region) {
                        self.took(of, at);
                        return goes;
                    }
                    if concerned.is_none() {
                        continue;
                    }
                }
                Does::Backend(_) | Does::Default | Does::Track(_) | Does::Changes(_) => continue,
            }
            self.took(of, at);
        }
        Goes::To(rules.default.clone())
    }

    /// Sends clients to a backend, which may refuse some of them; `None`: some are left for the next rules.
    fn choose(
        &mut self,
        clients: &mut Clients,
        step: &'r Step,
        concerned: &Ranges,
        region: &Region<'_>,
    ) -> Option<Goes> {
        let rules = self.rules;
        let name = match &step.does {
            Does::Backend(name) => Some(name),
            _ => rules.default.as_ref(),
        };
        if clients.all().and_not(concerned).is_none() {
            return Some(Goes::To(name.cloned()));
        }
        // No route leads some clients elsewhere than others, and the backend of the others must not serve whom this one does not.
        let (here, answer, is_given) = self.refused_by(name.map(String::as_str), concerned, region);
        let closed = name.and_then(|name| self.closed.get(name.as_str()));
        let refused = closed.map_or_else(|| here.clone(), |closed| here.or(&closed.and(concerned)));
        if !is_given || refused != here {
            let line = step.line.clone();
            self.found.otherwise.insert(line.number, line);
        }
        if !refused.is_none() && self.refuse(clients, step, &refused, &answer) {
            return Some(Goes::Answered(answer));
        }
        let served = concerned.and_not(&refused);
        if !served.is_none() && clients.all().and_not(&served).is_none() {
            return Some(Goes::To(name.cloned()));
        }
        if !served.is_none() {
            self.elsewhere.push((step, name, served));
        }
        None
    }

    /// The clients, of those given, that a backend refuses in a region; the answer; and whether haproxy gives the same answer.
    fn refused_by(
        &mut self,
        name: Option<&str>,
        clients: &Ranges,
        region: &Region<'_>,
    ) -> (Ranges, Action, bool) {
        let backend = name.and_then(|name| self.rules.backends.get(name));
        let Some((backend, _)) = backend else {
            return (clients.clone(), Action::status(503), true);
        };
        let serves = !backend.serves_nobody();
        let usual = Action::status(if serves { 403 } else { 503 });
        let mut left = Clients::of(clients.clone());
        let goes = self.pass(&mut left, name, region);
        let (refused, last) = match goes {
            Goes::Answered(action) => (clients.clone(), Some(action)),
            Goes::To(_) if serves => (clients.and_not(&left.all()), None),
            Goes::To(_) => (clients.clone(), Some(usual.clone())),
        };
        // A denial gives one answer, and leads nowhere.
        let are_two = left.said.is_some() && last.is_some() && left.said != last;
        let said = left.said.or(last);
        let is_given = !are_two && !matches!(said, Some(Action::Redirect(..)));
        let said = said.filter(|said| matches!(said, Action::Answer(_)));
        (refused, said.unwrap_or(usual), is_given)
    }

    /// Answers these clients; `true`: nobody is left.
    fn refuse(
        &mut self,
        clients: &mut Clients,
        step: &Step,
        who: &Ranges,
        answer: &Action,
    ) -> bool {
        let before = clients.all();
        clients.refuse(who, step.spares_allowed);
        let left = clients.all();
        if left.is_none() {
            clients.denied = Some(before);
            return true;
        }
        if left != before {
            let said = clients.said.get_or_insert_with(|| answer.clone());
            if said != answer {
                self.cannot(step);
            }
        }
        false
    }

    fn took(&mut self, of: Option<&str>, at: usize) {
        if of.is_none() {
            self.found.took.insert(at);
        }
    }

    fn cannot(&mut self, step: &Step) {
        self.found
            .cannot
            .entry(step.line.number)
            .or_insert_with(|| step.line.clone());
    }
}
