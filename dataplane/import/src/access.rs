//! `tcp-request` rules: who may connect, and who sends PROXY headers.

use std::collections::HashSet;

use ballast_core::table::{AcceptProxy, Frontend, List};
use ipnet::IpNet;

use super::acl::Where;
use super::bind::Way;
use super::condition::{Alternative, Condition, Rule};
use super::decide::{Closed, Rules, Step, joined};
use super::frontends::Backends;
use super::importer::Importer;
use super::limits::{Before, NoLimit};
use super::pages::Answer;
use super::proxy::{Does, Kind, Proxy, Stage};
use super::ranges::Ranges;
use super::routes::any_path;
use super::rules::NO_ANSWER;
use super::walk::Walk;
use super::words::Line;

/// What the `tcp-request` rules of a section come to.
#[derive(Default)]
pub(super) struct LetIn {
    /// The clients whom they let in.
    pub(super) clients: Ranges,
    /// The peers that send a PROXY header.
    pub(super) senders: Ranges,
    /// Rules that are asked of routes.
    steps: Vec<Step>,
}

/// A rule with its condition, and its place among those of its section.
type Read<'p> = (usize, &'p Rule, Condition);

/// The clients whom rules about any request let through, and those of them who send a PROXY header.
pub(super) fn let_through(steps: Vec<Step>) -> (Ranges, Ranges) {
    let rules = Rules {
        steps: joined(steps),
        ..Rules::default()
    };
    let mut walk = Walk::of(&rules);
    let (_, clients) = walk.decide(None, &any_path());
    (clients, walk.found.senders)
}

impl Importer<'_> {
    /// Says who may connect to a frontend, and which peers send a PROXY header, by the rules and the binds of a proxy. Returns the rules
    /// that are asked of routes.
    pub(super) fn connections(
        &mut self,
        frontend: &mut Frontend,
        proxy: &Proxy,
        backends: &Backends<'_>,
        way: &Way,
        place: Where,
    ) -> Result<Vec<Step>, Closed> {
        let counted = Some((backends, &mut *frontend));
        let let_in = self.let_in(proxy, None, counted, place, true)?;
        let senders = match way.accept_proxy {
            true => Ranges::all(),
            false => let_in.senders,
        };
        // Such rules see the peer's address, and source-ranges that of the PROXY header.
        let mut of_peers = proxy.rules_of(Stage::Connection..=Stage::Connection);
        if !senders.is_none()
            && let Some(rule) = of_peers.find(|rule| rule.does.denies())
        {
            self.report.left_out(&rule.line, "at binds with a PROXY header it says which peers may come; name these in accept-proxy.from, or write tcp-request session for clients");
            let says = "says which peers may come, which a table does not beside PROXY headers";
            return Err(self.closed_by(&rule.line, says));
        }
        frontend.source_ranges = self.source_ranges(&proxy.head, &let_in.clients)?;
        let from = senders.nets().filter(|_| !senders.is_none());
        frontend.accept_proxy = from.map(|from| {
            Box::new(AcceptProxy {
                from: List::new(from),
                versions: None,
            })
        });
        if senders.is_all()
            && let Some(bind) = proxy.binds.iter().find(|bind| bind.way.accept_proxy)
        {
            self.report.note(&bind.line, "every client is believed about its address, as in haproxy; name the proxies in front in accept-proxy.from");
        }
        Ok(let_in.steps)
    }

    /// What `tcp-request` rules of a section come to, those that are no rules of `shared`. Rules that count clients become limits,
    /// where there can be some. Rules about the content become rules of routes, where `has_routes` and one looks at the name that
    /// clients ask for, or at a path.
    pub(super) fn let_in(
        &mut self,
        proxy: &Proxy,
        shared: Option<&Proxy>,
        mut counted: Option<(&Backends<'_>, &mut Frontend)>,
        place: Where,
        has_routes: bool,
    ) -> Result<LetIn, Closed> {
        let read = self.read_access(proxy, shared, place)?;
        let is_content = |rule: &Rule| rule.stage == Stage::Content;
        let are_routed = has_routes
            && read.iter().any(|(_, rule, condition)| {
                is_content(rule) && condition.has(|one| !one.is_about_any_request())
            });
        let next = || Step::of(&proxy.head, Does::NextStage, Alternative::always(), false);
        let (mut steps, mut routed) = (Vec::new(), Vec::new());
        let mut stage = Stage::Connection;
        let mut some_accepted = false;
        for (rules, rule, condition) in read {
            if std::mem::replace(&mut stage, rule.stage) != rule.stage {
                steps.push(next());
            }
            // A limit is one for all clients: none has been let in before.
            if rule.does.denies()
                && !some_accepted
                && let Some((backends, frontend)) = &mut counted
            {
                let before = Before {
                    proxy,
                    backends,
                    rules,
                };
                if self.is_limit(rule, &condition, &before, frontend)? {
                    continue;
                }
            }
            let mut step = self.step(rule, condition, place)?;
            if are_routed && is_content(rule) {
                if proxy.is_http && rule.does.denies() {
                    self.report.differs(&rule.line, NO_ANSWER);
                }
                routed.push(step);
                continue;
            }
            if step.is_about_names() && rule.does.denies() {
                return Err(self.closed_by(&rule.line, "rejects connections by the name that they ask for, which a table does by the routes of a frontend alone; write it there"));
            }
            if step.is_about_names() {
                self.report.left_out(&rule.line, "a connection is accepted before its host and path are known; write it for requests: http-request allow");
                let alternatives = &mut step.condition.alternatives;
                alternatives.retain(Alternative::is_about_any_request);
            }
            some_accepted |= step.does == Does::Allow && step.condition.has(|_| true);
            steps.push(step);
        }
        // A client whom these steps accept may still be denied by the rules about requests.
        let is_followed = proxy.is_http && !routed.is_empty();
        routed.extend(is_followed.then(next));
        let (clients, senders) = let_through(steps);
        Ok(LetIn {
            clients,
            senders,
            steps: routed,
        })
    }

    /// The `tcp-request` rules of a section that do something.
    fn read_access<'p>(
        &mut self,
        proxy: &'p Proxy,
        shared: Option<&Proxy>,
        place: Where,
    ) -> Result<Vec<Read<'p>>, Closed> {
        let rules = own_rules(proxy, shared);
        if rules.is_empty() {
            return Ok(Vec::new());
        }
        let rejects = rules.iter().filter(|(_, rule)| rule.does.denies());
        let rejects: HashSet<Stage> = rejects.map(|(_, rule)| rule.stage).collect();
        let acls = self.acls(proxy, place);
        let mut read = Vec::new();
        for (at, rule) in rules {
            let does_something = match rule.does {
                Does::Allow => rejects.contains(&rule.stage),
                Does::Track(_) => false,
                _ => true,
            };
            if does_something && let Some(condition) = self.condition(rule, &acls, place)? {
                read.push((at, rule, condition));
            }
        }
        Ok(read)
    }

    /// The rules by which a backend denies requests that its `tcp-request` rules do not let in. Those that it has from the same
    /// `defaults` as the frontend are the frontend's.
    pub(super) fn denied_by_backend(
        &mut self,
        frontend: &Proxy,
        backend: &Proxy,
        place: Where,
    ) -> Result<Vec<Step>, Closed> {
        let let_in = self.let_in(backend, Some(frontend), None, place, backend.is_http)?;
        let LetIn { clients, steps, .. } = let_in;
        let others = Alternative::for_clients(clients.not());
        let denial = Step::of(&backend.head, Does::Deny(Answer::plain(403)), others, true);
        let denial = Some(denial).filter(|_| !clients.is_all());
        let mut own = own_rules(backend, Some(frontend)).into_iter();
        if backend.is_http
            && denial.is_some()
            && let Some((_, rule)) = own.find(|(_, rule)| rule.does.denies())
        {
            self.report.note(&rule.line, NO_ANSWER);
        }
        Ok(denial.into_iter().chain(steps).collect())
    }

    /// Whether a rule rejects by a counter of each client alone. Then it is added to the limits, or left out.
    fn is_limit(
        &mut self,
        rule: &Rule,
        condition: &Condition,
        before: &Before<'_>,
        frontend: &mut Frontend,
    ) -> Result<bool, Closed> {
        let [alternative] = condition.alternatives.as_slice() else {
            return Ok(false);
        };
        let Some(counter) = alternative.only_counter() else {
            return Ok(false);
        };
        match before.limit(counter, frontend) {
            Ok(note) => self.report.note(&rule.line, note),
            Err(NoLimit::LeftOut(why)) => self.report.left_out(&rule.line, why),
            Err(NoLimit::Everybody) => {
                return Err(self.closed_by(&rule.line, "rejects everybody: a client that connects is counted already, and its count is 1 then; write gt 1, or a higher number"));
            }
        }
        Ok(true)
    }

    /// The ranges of a table; `None`: everybody.
    pub(super) fn source_ranges(
        &mut self,
        line: &Line,
        clients: &Ranges,
    ) -> Result<Option<List<IpNet>>, Closed> {
        if clients.is_all() {
            return Ok(None);
        }
        if clients.is_none() {
            return Err(Closed("nobody may connect to it".into()));
        }
        match clients.nets() {
            Some(nets) => Ok(Some(List::new(nets))),
            None => {
                self.report.left_out(line, "its lists of addresses come to more ranges than a table should have; write source-ranges by hand");
                Err(Closed(
                    "its lists of addresses are too long; shorten them".into(),
                ))
            }
        }
    }
}

/// The `tcp-request` rules of a section, with their places: without those that `shared` has from the same `defaults`, and without those
/// about connections to a `listen` itself, where it is a backend of that section.
fn own_rules<'p>(proxy: &'p Proxy, shared: Option<&Proxy>) -> Vec<(usize, &'p Rule)> {
    // Very many backends of a frontend with very many rules: only a line of `defaults` is looked for among these.
    let is_known = |rule: &Rule| {
        let shared = shared.filter(|_| rule.line.number < proxy.head.number);
        let theirs = shared.map(|shared| shared.rules_of(Stage::CONNECTIONS));
        let mut theirs = theirs.into_iter().flatten();
        theirs.any(|known| known.line.number == rule.line.number)
    };
    let is_backend = shared.is_none() || proxy.kind == Kind::Backend;
    let rules = proxy.rules.iter().enumerate();
    let own = rules.filter(|(_, rule)| {
        Stage::CONNECTIONS.contains(&rule.stage)
            && (is_backend || rule.stage == Stage::Content)
            && !is_known(rule)
    });
    own.collect()
}
