//! Clients whom their backend does not serve: no route leads some clients elsewhere than others, and the backend of the others must
//! not serve them.

use super::clients::{Clients, Index};
use super::decide::{Action, Rules, Step};
use super::importer::Importer;
use super::pages::Answer;
use super::proxy::{Does, Proxy};
use super::ranges::Ranges;
use super::routes::any_path;
use super::words::Line;

impl Importer<'_> {
    /// Clients who are sent to a backend that serves nobody are not to be served by another one.
    pub(super) fn deny_unserved(&mut self, rules: &mut Rules<'_>, is_http: bool) {
        for step in std::mem::take(&mut rules.steps) {
            let Does::Backend(name) = &step.does else {
                rules.steps.push(step);
                continue;
            };
            let mut alternatives = step.condition.alternatives.iter();
            if alternatives.all(|one| one.clients.is_all()) {
                rules.steps.push(step);
                continue;
            }
            let backend = rules.backends.get(name);
            let (denied, served, answer) = self.unserved(&step, backend);
            if !denied.is_none() {
                if !is_http {
                    let why = "the backend does not serve these clients, so they are denied";
                    self.report.note(&step.line, why);
                }
                let mut denial = step.clone();
                denial.does = Does::Deny(answer);
                denial.condition.alternatives.retain_mut(|one| {
                    one.clients = one.clients.and(&denied);
                    !one.clients.is_none()
                });
                rules.steps.push(denial);
            }
            rules.steps.extend((!served.is_none()).then_some(step));
        }
    }

    /// The clients of a `use_backend` rule whom the backend does not serve, whatever they ask for, and the others; and what it
    /// answers the first ones. `None`: it is no backend of the table.
    fn unserved(
        &mut self,
        step: &Step,
        backend: Option<&(&Proxy, Vec<Step>)>,
    ) -> (Ranges, Ranges, Answer) {
        let alternatives = step.condition.alternatives.iter();
        let chosen = alternatives.fold(Ranges::none(), |all, one| all.or(&one.clients));
        let Some((backend, steps)) = backend else {
            return (chosen, Ranges::none(), Answer::plain(503));
        };
        let mut clients = Clients::of(chosen.clone());
        let mut cannot = Vec::new();
        let mut add = |line: &Line| cannot.push(line.clone());
        let index = Index::of(steps);
        let last = clients.pass(steps, &index, None, &any_path(), &mut add, &mut |_| {});
        let (served, usual) = match last {
            _ if backend.serves_nobody() => (Ranges::none(), 503),
            Some(step) if step.does.refuses() => (Ranges::none(), 403),
            Some(_) => (clients.answered(), 403),
            None => (clients.all(), 403),
        };
        let said = clients.said.or_else(|| last.and_then(Step::answer));
        let answer = match said {
            Some(Action::Answer(answer)) if answer.status >= 400 => answer,
            _ => Answer::plain(usual),
        };
        let denied = chosen.and_not(&served);
        let says_more = |step: &Step| {
            !step.does.refuses() && (step.is_about_names() || step.answer().is_some())
        };
        if !denied.is_none() && steps.iter().any(says_more) {
            let why = "some of these clients are denied, whatever they ask for, and the backend answers some of their requests otherwise; give them an address of their own";
            self.report.left_out(&step.line, why);
        }
        let denies_some = |step: &Step| step.does.refuses() && step.is_about_names();
        if !served.is_none() && steps.iter().any(denies_some) {
            self.denies_some.insert(step.line.number);
        }
        self.cannot(cannot);
        (denied, served, answer)
    }
}
