//! A list of rules and the clients that it lets through: some rules answer for all of them, some take a part away.

use std::collections::HashMap;

use ballast_core::table::HostPattern;

use super::decide::{Action, Step};
use super::pattern::{ByPath, PathPattern};
use super::proxy::Does;
use super::ranges::Ranges;
use super::routes::around;
use super::words::Line;

/// Rules by the hosts and paths that they look for, so that of very many only those are looked at that a request may fit.
#[derive(Default)]
pub(super) struct Index<'s> {
    /// Those that fit any request, as far as is known without looking.
    any: Vec<usize>,
    by_host: HashMap<&'s HostPattern, Vec<usize>>,
    by_path: ByPath<'s>,
}

impl<'s> Index<'s> {
    pub(super) fn of(steps: &'s [Step]) -> Self {
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
    fn fitting(&self, host: Option<&HostPattern>, path: &PathPattern) -> Vec<usize> {
        let mut fitting = self.any.clone();
        for pattern in host.into_iter().flat_map(around) {
            fitting.extend(self.by_host.get(&pattern).into_iter().flatten());
        }
        fitting.extend(self.by_path.containing(path));
        fitting.sort_unstable();
        fitting.dedup();
        fitting
    }
}

/// The clients that rules have let through so far.
pub(super) struct Clients {
    /// Clients about whom no rule has decided.
    pub(super) rest: Ranges,
    /// Clients whom an `allow` or an `accept` let through.
    passed: Ranges,
    /// Clients that a denial answered, where a denial took the last clients of `rest`.
    denied: Option<Ranges>,
    /// What others were answered by the first line that answered some.
    pub(super) said: Option<Action>,
}

impl Clients {
    /// These clients, of whom no rule has been asked.
    pub(super) fn of(rest: Ranges) -> Self {
        Self {
            rest,
            passed: Ranges::none(),
            denied: None,
            said: None,
        }
    }

    /// All who go on to a backend, of whom none of its rules has been asked.
    pub(super) fn of_backend(self) -> Self {
        Self {
            said: self.said,
            rest: self.rest.or(&self.passed),
            ..Self::of(Ranges::none())
        }
    }

    pub(super) fn all(&self) -> Ranges {
        self.rest.or(&self.passed)
    }

    /// Those who get what the last rule says; all others were denied before.
    pub(super) fn answered(&self) -> Ranges {
        self.denied.clone().unwrap_or_else(|| self.all())
    }

    pub(super) fn let_through(&mut self, who: &Ranges) {
        self.passed = self.passed.or(&self.rest.and(who));
        self.rest = self.rest.and_not(who);
    }

    /// Takes these clients out, but for those whom an `allow` spares from the rule.
    pub(super) fn refuse(&mut self, who: &Ranges, step: &Step) {
        self.rest = self.rest.and_not(who);
        if !step.spares_allowed {
            self.passed = self.passed.and_not(who);
        }
    }

    /// The rule that decides about all who are left; `None`: none does.
    pub(super) fn pass<'s>(
        &mut self,
        steps: &'s [Step],
        index: &Index<'_>,
        host: Option<&HostPattern>,
        path: &PathPattern,
        cannot: &mut dyn FnMut(&Line),
        took: &mut dyn FnMut(usize),
    ) -> Option<&'s Step> {
        for index in index.fitting(host, path) {
            let Some(step) = steps.get(index) else {
                continue;
            };
            let alternatives = step.condition.alternatives.iter();
            let fitting = alternatives.filter(|alternative| alternative.covers(host, path));
            let who = fitting.fold(Ranges::none(), |who, alternative| {
                who.or(&alternative.clients)
            });
            if who.is_none() {
                continue;
            }
            if step.does == Does::NextStage {
                self.rest = self.all();
                self.passed = Ranges::none();
                continue;
            }
            if step.does == Does::Allow {
                took(index);
                self.let_through(&who);
                continue;
            }
            if step.does.answers() {
                took(index);
                let before = self.all();
                self.refuse(&who, step);
                let left = self.all();
                if left.is_none() {
                    self.denied = Some(before);
                    return Some(step);
                }
                if left != before {
                    let answer = step.answer();
                    if self.said.is_some() && self.said != answer {
                        cannot(&step.line);
                    }
                    self.said = self.said.take().or(answer);
                }
                continue;
            }
            let concerned = match step.spares_allowed {
                true => self.rest.and(&who),
                false => self.all().and(&who),
            };
            // A route is for everybody or denies: it does not send some clients elsewhere.
            if self.all().and_not(&concerned).is_none() {
                took(index);
                return Some(step);
            }
            if !concerned.is_none() {
                cannot(&step.line);
                // What they would get in place of the service says that it is not for them.
                if !step.does.chooses() {
                    self.rest = self.rest.and_not(&concerned);
                    self.passed = self.passed.and_not(&concerned);
                }
            }
        }
        None
    }
}
