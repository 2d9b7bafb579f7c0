//! `tcp-request` rules: who may connect, and who sends PROXY headers.

use std::collections::HashSet;

use ballast_core::table::{AcceptProxy, Frontend, List};
use ipnet::IpNet;

use super::acl::Where;
use super::bind::Way;
use super::clients::Clients;
use super::condition::{Acls, Alternative, Condition, Rule};
use super::decide::{Closed, Step};
use super::frontends::Backends;
use super::importer::Importer;
use super::limits::{Before, NoLimit};
use super::pages::Answer;
use super::proxy::{Access, Does, Kind, Proxy, Stage};
use super::ranges::Ranges;
use super::rules::NO_ANSWER;
use super::words::Line;

impl Importer<'_> {
    /// Says who may connect to a frontend, and which peers send a PROXY header, by the rules and the binds of a proxy.
    pub(super) fn connections(
        &mut self,
        frontend: &mut Frontend,
        proxy: &Proxy,
        backends: &Backends<'_>,
        way: &Way,
        place: Where,
    ) -> Result<(), Closed> {
        let counted = Some((backends, &mut *frontend));
        let (clients, mut senders) = self.let_in(proxy, counted, place)?;
        if way.accept_proxy {
            senders = Ranges::all();
        }
        // Such rules see the peer's address, and source-ranges that of the PROXY header.
        let mut of_peers = proxy
            .connections
            .iter()
            .filter(|rule| rule.action == Access::Reject && rule.line.word(1) == "connection");
        if !senders.is_none()
            && let Some(rule) = of_peers.next()
        {
            self.report.left_out(&rule.line, "beside a PROXY header it says which peers may come; name these in accept-proxy.from, or write tcp-request session for clients");
            return Err(Closed(format!(
                "{} says which peers may come, which a table does not beside PROXY headers",
                self.places.shown(rule.line.number)
            )));
        }
        frontend.source_ranges = self.source_ranges(&proxy.head, &clients)?;
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
        Ok(())
    }

    /// The `tcp-request content` rules of a section as rules of routes, where one looks at the name that clients ask for, or at a path.
    /// They take no part in who connects then.
    pub(super) fn by_name(
        &mut self,
        proxy: &Proxy,
        place: Where,
    ) -> Result<Option<Vec<Step>>, Closed> {
        let rules = proxy.connections.iter();
        let rules = rules.filter(|rule| Stage::of(&rule.line) == Stage::Content);
        let rules: Vec<_> = rules.collect();
        let acls = match rules.is_empty() {
            true => return Ok(None),
            false => self.acls(proxy, place),
        };
        let mut steps = Vec::new();
        for rule in rules {
            let does = match rule.action {
                Access::Accept => Does::Allow,
                Access::Reject => Does::Deny(Answer::plain(403)),
                Access::ExpectProxy | Access::Track(..) => continue,
            };
            let Some(condition) = self.condition_of_access(rule, &acls, place)? else {
                continue;
            };
            self.hosts_alike(&rule.line, &does, &condition);
            steps.push(Step {
                line: rule.line.clone(),
                does,
                condition,
                spares_allowed: true,
            });
        }
        if !steps.iter().any(Step::is_about_names) {
            return Ok(None);
        }
        for step in &mut steps {
            if proxy.is_http && step.does.denies() {
                self.report.left_out(&step.line, NO_ANSWER);
            }
            let condition = std::mem::take(&mut step.condition);
            step.condition = self.seen(&step.line, condition, step.does.denies(), false)?;
        }
        // A client that these steps accept may still be denied by the rules about requests.
        steps.extend(proxy.is_http.then(|| Step {
            line: proxy.head.clone(),
            does: Does::NextStage,
            condition: Condition {
                alternatives: vec![Alternative::always()],
            },
            spares_allowed: false,
        }));
        Ok(Some(steps))
    }

    /// The condition of a `tcp-request` rule; `None`: the rule is left out.
    fn condition_of_access(
        &mut self,
        rule: &Rule<Access>,
        acls: &Acls,
        place: Where,
    ) -> Result<Option<Condition>, Closed> {
        match self.condition_of(rule, acls, place) {
            Ok(condition) => {
                if rule.action == Access::Reject {
                    self.clients_alike(&rule.line, &condition, place);
                }
                Ok(Some(condition))
            }
            Err(why) if rule.action == Access::Reject => Err(self.closed(&rule.line, &why)),
            Err(why) => {
                self.report.left_out(&rule.line, why);
                Ok(None)
            }
        }
    }

    /// The clients whom the `tcp-request` rules of a section let in, and the peers that send a PROXY header. Rules that count
    /// clients become limits, where there can be some.
    pub(super) fn let_in(
        &mut self,
        proxy: &Proxy,
        mut counted: Option<(&Backends<'_>, &mut Frontend)>,
        place: Where,
    ) -> Result<(Ranges, Ranges), Closed> {
        let acls = match proxy.connections.is_empty() {
            true => Acls::default(),
            false => self.acls(proxy, place),
        };
        let rejects: HashSet<Stage> = proxy
            .connections
            .iter()
            .filter(|rule| rule.action == Access::Reject)
            .map(|rule| Stage::of(&rule.line))
            .collect();
        let mut senders = Ranges::none();
        let mut passing = Clients::of(Ranges::all());
        let mut stage = Stage::Connection;
        let mut some_accepted = false;
        // Those whom the last rules reject: of very many they are taken out at once.
        let mut rejected: Vec<Ranges> = Vec::new();
        for (rules, rule) in proxy.connections.iter().enumerate() {
            let of_rule = Stage::of(&rule.line);
            if of_rule != stage || rule.action != Access::Reject {
                passing.rest = passing.rest.and_not(&Ranges::any_of(&rejected));
                rejected.clear();
            }
            if of_rule != stage {
                (stage, passing) = (of_rule, Clients::of(passing.all()));
            }
            let is_needless = rule.action == Access::Accept && !rejects.contains(&stage);
            if is_needless || matches!(rule.action, Access::Track(..)) {
                continue;
            }
            let denies = rule.action == Access::Reject;
            let Some(condition) = self.condition_of_access(rule, &acls, place)? else {
                continue;
            };
            // A limit is one for all clients: none has been let in before.
            if denies
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
            let condition = self.seen(&rule.line, condition, denies, false)?;
            for alternative in condition.alternatives {
                if !alternative.is_about_any_request() && denies {
                    return Err(Closed(format!(
                        "{} rejects connections by the name that they ask for, which a table does by the routes of a frontend alone; write it there",
                        self.places.shown(rule.line.number)
                    )));
                }
                if !alternative.is_about_any_request() {
                    self.report.left_out(&rule.line, "a connection is accepted before its host and path are known; write it for requests: http-request allow");
                    continue;
                }
                let who = &alternative.clients;
                match rule.action {
                    Access::Accept => passing.let_through(who),
                    Access::Reject => rejected.push(who.clone()),
                    Access::ExpectProxy => senders = senders.or(&passing.rest.and(who)),
                    Access::Track(..) => {}
                }
                some_accepted |= rule.action == Access::Accept;
            }
        }
        passing.rest = passing.rest.and_not(&Ranges::any_of(&rejected));
        Ok((passing.all(), senders))
    }

    /// The rules by which a backend denies requests that its `tcp-request` rules do not let in. Those that it has from the same
    /// `defaults` as the frontend are the frontend's.
    pub(super) fn denied_by_backend(
        &mut self,
        frontend: &Proxy,
        backend: &Proxy,
        place: Where,
    ) -> Result<Vec<Step>, Closed> {
        let known = |rule: &Rule<Access>| {
            let mut known = frontend.connections.iter();
            known.any(|known| known.line.number == rule.line.number)
        };
        let mut own = backend.clone();
        // Connections to a `listen` itself are no part of it.
        let holds = |rule: &Rule<Access>| {
            backend.kind == Kind::Backend || Stage::of(&rule.line) == Stage::Content
        };
        own.connections.retain(|rule| !known(rule) && holds(rule));
        let mut steps = Vec::new();
        if own.is_http
            && let Some(by_name) = self.by_name(&own, place)?
        {
            let is_other = |rule: &Rule<Access>| Stage::of(&rule.line) != Stage::Content;
            own.connections.retain(is_other);
            steps = by_name;
        }
        let (clients, _) = self.let_in(&own, None, place)?;
        if clients.is_all() {
            return Ok(steps);
        }
        let mut others = Alternative::always();
        others.clients = clients.not();
        let denial = Step {
            line: backend.head.clone(),
            does: Does::Deny(Answer::plain(403)),
            condition: Condition {
                alternatives: vec![others],
            },
            spares_allowed: true,
        };
        steps.insert(0, denial);
        Ok(steps)
    }

    /// Whether a rule rejects by a counter of each client alone. Then it is added to the limits, or left out.
    fn is_limit(
        &mut self,
        rule: &Rule<Access>,
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
                return Err(Closed(format!(
                    "{} rejects everybody: a client that connects is counted already, and its count is 1 then; write gt 1, or a higher number",
                    self.places.shown(rule.line.number)
                )));
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
