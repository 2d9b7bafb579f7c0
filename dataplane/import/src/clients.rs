//! A list of rules and the clients that it lets through: some rules answer for all of them, some take a part away.

use ballast_core::table::HostPattern;

use super::decide::{Action, Does, Step};
use super::pages::Page;
use super::pattern::PathPattern;
use super::proxy::Request;
use super::ranges::Ranges;
use super::words::Line;

/// Where a list of rules leads.
pub(super) enum Outcome {
    Action(Action),
    Backend(String),
    Default,
}

/// The clients that rules have let through so far.
pub(super) struct Clients {
    /// No rule has decided about these.
    rest: Ranges,
    /// An `allow` has.
    passed: Ranges,
}

impl Clients {
    pub(super) fn everybody() -> Self {
        Self {
            rest: Ranges::all(),
            passed: Ranges::none(),
        }
    }

    pub(super) fn all(&self) -> Ranges {
        self.rest.or(&self.passed)
    }

    /// The rules of a backend hold for those, too, whom an `allow` of the frontend let through.
    pub(super) fn again(&mut self) {
        *self = Self {
            rest: self.all(),
            passed: Ranges::none(),
        };
    }

    pub(super) fn pass(
        &mut self,
        steps: &[Step],
        host: Option<&HostPattern>,
        path: &PathPattern,
        cannot: &mut dyn FnMut(&Line),
        took: &mut dyn FnMut(usize),
    ) -> Option<Outcome> {
        for (index, step) in steps.iter().enumerate() {
            let alternatives = step.condition.alternatives.iter();
            let fitting = alternatives.filter(|alternative| alternative.covers(host, path));
            let who = fitting.fold(Ranges::none(), |who, alternative| {
                who.or(&alternative.clients)
            });
            if who.is_none() {
                continue;
            }
            let outcome = match &step.does {
                Does::Request(Request::Allow) => {
                    self.passed = self.passed.or(&self.rest.and(&who));
                    self.rest = self.rest.and_not(&who);
                    None
                }
                Does::Request(Request::Deny(..) | Request::Auth) => {
                    self.rest = self.rest.and_not(&who);
                    let action = match &step.does {
                        Does::Request(Request::Deny(status, page)) => answer(step, *status, page),
                        _ => Action::Status(403),
                    };
                    self.all().is_none().then_some(Outcome::Action(action))
                }
                Does::Request(Request::Answer(status, page)) => {
                    Some(Outcome::Action(answer(step, *status, page)))
                }
                Does::Request(Request::Redirect(target)) => {
                    Some(Outcome::Action(Action::Redirect(target.clone())))
                }
                Does::Backend(name) => Some(Outcome::Backend(name.clone())),
                Does::Default => Some(Outcome::Default),
            };
            let Some(outcome) = outcome else {
                took(index);
                continue;
            };
            let concerned = match step.spares_allowed {
                true => self.rest.clone(),
                false => self.all(),
            };
            // A route is for everybody or denies: it does not send some clients elsewhere.
            if self.all().and_not(&concerned.and(&who)).is_none() {
                took(index);
                return Some(outcome);
            }
            if !concerned.and(&who).is_none() {
                cannot(&step.line);
                // What they would get in place of the service says that it is not for them.
                if matches!(outcome, Outcome::Action(_)) {
                    self.rest = self.rest.and_not(&who);
                    if !step.spares_allowed {
                        self.passed = self.passed.and_not(&who);
                    }
                }
            }
        }
        None
    }
}

fn answer(step: &Step, status: u16, page: &Option<Page>) -> Action {
    match page {
        Some(page) => Action::Answer(step.line.clone(), status, page.clone()),
        None => Action::Status(status),
    }
}
