//! The flow table against a simple model of it, for random sequences of events: datagrams and replies, errors, swaps, failing
//! checks, floods, time. The model states the results, not the implementation.
//!
//! 256 seeds in an ordinary run; `SEED=n` replays one.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::rc::Rc;

use super::*;
use crate::compile::{CompileContext, compile};
use crate::loops::LOOPBACK_ONLY;
use crate::plan::Plan;
use crate::service::Endpoint;
use crate::simulation::try_seeds;
use crate::table::{self, Format, State};

#[test]
fn the_table_does_as_the_model_says() {
    try_seeds(256, |seed| World::new(seed).run());
}

/// Tells when a flow has ended: the table drops the value that it was given for it.
struct Socket {
    flow: FlowId,
    ended: Rc<RefCell<Vec<FlowId>>>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.ended.borrow_mut().push(self.flow);
    }
}

/// What the model knows of a flow.
#[derive(Clone, Debug)]
struct Known {
    key: Key,
    frontend: String,
    endpoint: SocketAddr,
    last: Moment,
    idle: Duration,
    requests: u32,
    responses: u32,
    most_responses: u32,
    failed: bool,
    is_over: bool,
    is_single: bool,
    /// Where its socket is bound.
    local: Option<SocketAddr>,
}

impl Known {
    fn is_answered(&self) -> bool {
        (self.requests, self.responses) == (1, 1)
    }

    fn is_short(&self) -> bool {
        self.requests <= 1 && self.responses <= 1
    }
}

struct World {
    rng: Rng,
    now: Moment,
    plan: Plan,
    table: FlowTable<Socket>,
    most: usize,
    ended: Rc<RefCell<Vec<FlowId>>>,
    known: HashMap<FlowId, Known>,
    states: HashMap<String, Arc<FrontendState>>,
    endpoints: HashMap<SocketAddr, Arc<EndpointState>>,
    gone: Vec<FlowId>,
    /// Datagrams of clients that left, by frontend.
    sent: HashMap<String, u64>,
    dice: Rng,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let most = 4 + usize::try_from(rng.below(40)).unwrap();
        let ports = 2 + usize::try_from(rng.below(20)).unwrap();
        let mut world = Self {
            now: Moment(1_000),
            plan: Plan::default(),
            table: FlowTable::new(WorkerId(0), most, seed)
                .with_ports((40_000..).take(ports).collect()),
            most,
            ended: Rc::default(),
            known: HashMap::new(),
            states: HashMap::new(),
            endpoints: HashMap::new(),
            gone: Vec::new(),
            sent: HashMap::new(),
            dice: Rng::new(mix(seed)),
            rng,
        };
        world.swap();
        world
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            match self.rng.below(40) {
                0 => self.swap(),
                1 if self.chance(2) => self.follow(),
                1 => self.check(),
                2 => self.close(),
                3 => self.cut(),
                4..7 => self.fail(),
                7..13 => self.wait(),
                13..22 => self.answer(),
                22..26 => self.flood(),
                _ => {
                    let key = self.some_key(12);
                    self.ask(key);
                }
            }
            self.hold();
        }
        self.now = self.now.after(Duration::from_secs(100_000));
        self.expire();
        assert!(self.table.is_empty() && self.table.next_deadline().is_none());
        self.hold();
    }

    fn chance(&mut self, of: u64) -> bool {
        self.rng.below(of) == 0
    }

    fn some_key(&mut self, clients: u64) -> Key {
        let client = u8::try_from(self.rng.below(clients)).unwrap();
        let peer = match client % 3 {
            0 => SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(client)], 7_000)),
            _ => SocketAddr::from(([192, 0, 2, client], 7_000)),
        };
        let told = self.chance(8);
        Key {
            listener: Listener(u32::try_from(self.rng.below(2)).unwrap()),
            peer,
            local: match (peer, 1 + u8::try_from(self.rng.below(2)).unwrap()) {
                (SocketAddr::V4(_), host) => IpAddr::from([127, 0, 0, host]),
                (_, host) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 1, u16::from(host)]),
            },
            client: if told {
                SocketAddr::from(([198, 51, 100, client], 8_000))
            } else {
                peer
            },
        }
    }

    /// A random table that differs little from the previous one.
    fn swap(&mut self) {
        let mut yaml = String::from("version: 1\nfrontends:\n");
        for (listener, names) in [["f", "f2"], ["g", "g2"]].iter().enumerate() {
            let name = names[usize::from(self.chance(12))];
            let service = ["s", "t"][usize::from(self.chance(8))];
            let idle = [50, 1_000, 30_000][usize::try_from(self.rng.below(3)).unwrap()];
            let port = 53 + listener;
            write!(yaml, "- {{name: {name}, protocol: udp, bind: ['127.0.0.1:{port}'], service: {service}, timeouts: {{idle: {idle}ms}}").unwrap();
            if self.chance(3) {
                yaml += ", udp: {";
                if self.chance(2) {
                    write!(yaml, "requests: {}, ", 1 + self.rng.below(3)).unwrap();
                }
                if self.chance(2) {
                    write!(yaml, "responses: {}, ", 1 + self.rng.below(3)).unwrap();
                }
                write!(yaml, "per-datagram: {}}}", self.chance(3)).unwrap();
            }
            if self.chance(4) {
                yaml += ", source-ranges: ['192.0.2.0/25', '198.51.100.0/24']";
            }
            if self.chance(4) {
                write!(yaml, ", max-connections: {}", 1 + self.rng.below(12)).unwrap();
            }
            if self.chance(6) {
                yaml += ", max-connections-per-client: 1";
            }
            yaml += "}\n";
        }
        yaml += "services:\n";
        for (name, net) in [("s", 1), ("t", 2)] {
            let algorithms = [
                "round-robin",
                "least-connections",
                "source-hash",
                "source-port-hash",
                "random",
            ];
            let algorithm = algorithms[usize::try_from(self.rng.below(5)).unwrap()];
            let down = ["try-all", "refuse"][usize::from(self.chance(3))];
            let affinity = ["", ", affinity: {client-ip: 1h}"][usize::from(self.chance(4))];
            write!(
                yaml,
                "- {{name: {name}, algorithm: {algorithm}, all-down: {down}{affinity}, endpoints: ["
            )
            .unwrap();
            for host in 1..6 {
                if self.chance(4) {
                    continue;
                }
                let state = match self.rng.below(10) {
                    0 => "disabled",
                    1 => "draining",
                    2 => "backup",
                    _ => "ready",
                };
                write!(
                    yaml,
                    "{{address: '10.0.{net}.{host}:53', state: {state}}}, "
                )
                .unwrap();
            }
            yaml += "]}\n";
        }
        let table = table::parse(yaml.as_bytes(), Format::Yaml).unwrap();
        let mut context = CompileContext {
            now: self.now,
            workers: 1,
            ipv6: true,
            host: &LOOPBACK_ONLY,
            rng: &mut self.dice,
        };
        self.plan = compile(table, &self.plan, &mut context);
        for frontend in self.plan.frontends() {
            let before = self
                .states
                .insert(frontend.name().to_string(), Arc::clone(frontend.state()));
            if let Some(before) = before.filter(|before| !Arc::ptr_eq(before, frontend.state())) {
                assert_eq!(before.admit().current(), 0, "it was forgotten with flows");
                self.sent.remove(&**frontend.name());
            }
        }
        for service in self.plan.services() {
            for endpoint in service.endpoints() {
                self.endpoints
                    .insert(endpoint.address(), Arc::clone(endpoint.live()));
            }
        }
    }

    /// All flows take over the idle timeouts of the table in force.
    fn follow(&mut self) {
        let frontends = [0, 1].map(|listener| self.frontend(Listener(listener)));
        let of = |listener: Listener| frontends.get(listener.0 as usize);
        assert_eq!(self.table.revise(0, of, |_, _, _, _| {}), None);
        for known in self.known.values_mut() {
            let frontend = &frontends[known.key.listener.0 as usize];
            if known.frontend == **frontend.name() {
                known.idle = frontend.spec().timeouts.idle;
            }
        }
        // The caller wakes for a deadline that has become earlier.
        self.expire();
    }

    fn check(&mut self) {
        let endpoints: Vec<_> = self.endpoints.values().cloned().collect();
        let passes = !self.chance(3);
        let which = usize::try_from(self.rng.below(endpoints.len() as u64)).unwrap_or(0);
        if let Some(endpoint) = endpoints.get(which) {
            endpoint.set_passing(passes, self.now);
        }
    }

    fn frontend(&self, listener: Listener) -> Arc<Frontend> {
        Arc::clone(&self.plan.frontends()[listener.0 as usize])
    }

    /// The endpoint in the plan of this frontend.
    fn endpoint<'a>(&self, frontend: &'a Frontend, address: SocketAddr) -> Option<&'a Endpoint> {
        let service = only_service(frontend);
        service
            .endpoints()
            .iter()
            .find(|endpoint| endpoint.address() == address)
    }

    /// Whether a flow to this endpoint has no reason to move.
    fn is_well(&self, frontend: &Frontend, address: SocketAddr) -> bool {
        let service = only_service(frontend);
        self.endpoint(frontend, address).is_some_and(|endpoint| {
            endpoint.state() != State::Disabled
                && (endpoint.live().is_passing()
                    || (endpoint.is_eligible() && service.is_panicking()))
        })
    }

    fn flood(&mut self) {
        for _ in 0..self.rng.below(20) {
            let key = self.some_key(200);
            self.ask(key);
        }
    }

    fn ask(&mut self, key: Key) {
        let frontend = self.frontend(key.listener);
        let udp = frontend.spec().udp();
        let most_responses = udp.responses.map_or(u32::MAX, |most| most.get());
        let before = self
            .known
            .iter()
            .find(|(_, known)| known.key == key && !known.is_over && !known.is_single)
            .map(|(id, known)| (*id, known.clone()))
            .filter(|_| !udp.per_datagram);
        let (full, current) = (self.table.len(), frontend.state().admit().current());
        let snapshot = self.known.clone();
        let verdict =
            self.table
                .from_client(self.now, key, Load::one(10), &frontend, &mut self.dice);
        let ended = self.ended.take();
        let is_allowed = frontend.limits().check_source(key.client.ip()).is_ok();
        assert_eq!(is_allowed, verdict != Verdict::Drop(Dropped::SourceRange));
        if !is_allowed {
            assert!(ended.is_empty(), "who is denied changes nothing");
            return;
        }
        let must_stay = before.as_ref().is_some_and(|(_, before)| {
            before.frontend == **frontend.name()
                && !before.failed
                && before.responses < most_responses
                && self.is_well(&frontend, before.endpoint)
        });
        if must_stay {
            let id = before.as_ref().unwrap().0;
            assert_eq!(verdict, Verdict::Forward(id), "a healthy flow moved");
            assert!(ended.is_empty());
        }
        for id in &ended {
            let known = self.known.remove(id).expect("a flow that was there");
            self.gone.push(*id);
            let was_moved = before.as_ref().is_some_and(|(before, _)| before == id);
            let was_single = udp.per_datagram && known.key == key && known.is_single;
            if !was_moved && !was_single {
                assert!(full >= self.most, "nobody had to make room");
                self.is_next(&snapshot, &known);
            }
        }
        match verdict {
            Verdict::Forward(id) => {
                let known = self.known.get(&id).expect("a flow that is there");
                assert_eq!((known.key, known.failed), (key, false));
                assert_eq!(known.is_single, udp.per_datagram);
                assert!(
                    known.responses < most_responses,
                    "no answer could come back"
                );
            }
            Verdict::Open { flow, endpoint } => {
                assert!(!must_stay);
                let picked = self
                    .endpoint(&frontend, endpoint)
                    .expect("an endpoint of the table");
                let has_affinity = only_service(&frontend).spec().affinity.is_some();
                assert!(
                    picked.is_eligible() || (has_affinity && picked.state() == State::Draining)
                );
                // A flow whose endpoint refused tries all others, as any further attempt does.
                let is_further =
                    udp.per_datagram || before.as_ref().is_some_and(|(_, before)| before.failed);
                assert!(
                    is_further || self.is_well(&frontend, endpoint),
                    "it fails its checks"
                );
                if let Some((_, before)) = before.as_ref().filter(|(_, before)| before.failed) {
                    let others = only_service(&frontend).endpoints().iter().any(|other| {
                        other.is_eligible()
                            && other.live().is_passing()
                            && other.address() != before.endpoint
                    });
                    assert!(!others || endpoint != before.endpoint, "the same one again");
                }
                self.opened(flow, key, endpoint, &frontend);
                if self.chance(20) {
                    // No descriptor was free for it.
                    self.table.unsent(flow, Load::one(10));
                    self.table.end(self.now, flow, FlowEnd::Evicted);
                    return self.forget_ended(|_| true);
                }
            }
            Verdict::Drop(Dropped::NoEndpoint) => {
                let service = only_service(&frontend);
                let anybody = service.endpoints().iter().any(|endpoint| {
                    endpoint.is_eligible()
                        && (endpoint.live().is_passing() || service.is_panicking())
                });
                assert!(!anybody, "there was somebody");
            }
            Verdict::Drop(Dropped::MaxConnections) => {
                let limits = frontend.limits();
                let is_full = limits.connections.is_some_and(|most| current >= most);
                assert!(is_full || limits.connections_per_client.is_some());
                assert!(before.is_none_or(|(_, before)| before.frontend != **frontend.name()));
            }
            Verdict::Drop(other) => panic!("{other}"),
        }
        if let Verdict::Forward(id) | Verdict::Open { flow: id, .. } = verdict {
            let now = self.now;
            if self.chance(10) {
                // The kernel did not send it.
                self.table.unsent(id, Load::one(10));
            } else {
                *self.sent.entry(frontend.name().to_string()).or_default() += 1;
            }
            let known = self.known.get_mut(&id).unwrap();
            known.requests += 1;
            known.last = now;
            known.idle = frontend.spec().timeouts.idle;
            known.most_responses = most_responses;
            known.is_over |= udp
                .requests
                .is_some_and(|most| known.requests >= most.get())
                && !udp.per_datagram;
        }
    }

    fn opened(&mut self, flow: FlowId, key: Key, endpoint: SocketAddr, frontend: &Frontend) {
        assert!(!self.gone.contains(&flow), "a number was used again");
        let ended = Rc::clone(&self.ended);
        self.table.attach(flow, Socket { flow, ended });
        let known = Known {
            key,
            frontend: frontend.name().to_string(),
            endpoint,
            last: self.now,
            idle: frontend.spec().timeouts.idle,
            requests: 0,
            responses: 0,
            most_responses: u32::MAX,
            failed: false,
            is_over: false,
            is_single: frontend.spec().udp().per_datagram,
            local: None,
        };
        assert!(self.known.insert(flow, known).is_none());
        self.bind(flow, endpoint);
    }

    /// Finds a port for a new flow, as the data plane does.
    fn bind(&mut self, flow: FlowId, endpoint: SocketAddr) {
        let source = [None, Some(IpAddr::from([10, 0, 0, 9]))][usize::from(self.chance(5))];
        let now = self.now;
        let mut local = self.table.take_port(now, flow, source, &mut self.dice);
        if local.is_some() && self.chance(10) {
            // Another process has that port.
            self.table.port_is_foreign(now, flow);
            local = self.table.take_port(now, flow, source, &mut self.dice);
        }
        if local.is_none() {
            let before = self.known.clone();
            let sources = [source].into_iter();
            let made_room = self.table.evict_for_port(now, flow, sources);
            let ended = self.ended.take();
            assert_eq!(ended.len(), usize::from(made_room));
            if let Some(id) = ended.into_iter().next() {
                let victim = self.known.remove(&id).expect("a flow that was there");
                self.gone.push(id);
                assert_eq!(victim.endpoint, endpoint);
                let from = source.unwrap_or_else(|| Ipv4Addr::UNSPECIFIED.into());
                assert_eq!(victim.local.map(|local| local.ip()), Some(from));
                let of_group = |known: &Known| {
                    (known.endpoint, known.local.map(|local| local.ip())) == (endpoint, Some(from))
                };
                let group = before.into_iter().filter(|(_, known)| of_group(known));
                self.is_next(&group.collect(), &victim);
            }
            local = self.table.take_port(now, flow, source, &mut self.dice);
        }
        let known = self.known.get_mut(&flow).expect("the new flow");
        known.local = local.map(|local| local.address);
    }

    /// Whether `victim` was the right flow to evict.
    fn is_next(&self, before: &HashMap<FlowId, Known>, victim: &Known) {
        let still = before.iter().filter(|(id, _)| self.known.contains_key(*id));
        for (_, other) in still.filter(|(_, other)| other.key != victim.key) {
            if victim.is_short() == other.is_short() {
                let longer = victim.last.0.saturating_sub(other.last.0);
                assert!(
                    longer <= 100,
                    "{other:?} was idle for longer than {victim:?}"
                );
            } else {
                assert!(victim.is_short(), "{other:?} goes before {victim:?}");
            }
        }
    }

    fn some_flow(&mut self) -> Option<FlowId> {
        let mut ids: Vec<FlowId> = self.known.keys().copied().collect();
        ids.extend(self.gone.iter().rev().take(3));
        ids.sort_by_key(|id| id.bits());
        let which = self.rng.below(ids.len() as u64);
        ids.get(usize::try_from(which).unwrap()).copied()
    }

    fn answer(&mut self) {
        let Some(id) = self.some_flow() else {
            return;
        };
        let datagrams = 1 + u32::try_from(self.rng.below(3)).unwrap() / 2 * 4;
        let load = Load {
            datagrams,
            bytes: u64::from(datagrams) * 100,
        };
        let answer = self.table.from_endpoint(self.now, id, load);
        let Some(known) = self.known.get_mut(&id) else {
            assert_eq!(answer, None, "a flow that is over");
            return;
        };
        let fit = datagrams.min(known.most_responses.saturating_sub(known.responses));
        let expected = ReplyRoute {
            key: known.key,
            datagrams: fit,
        };
        assert_eq!(answer, Some(expected));
        known.responses += fit;
        known.last = self.now;
        let is_last = known.responses >= known.most_responses;
        assert_eq!(self.ended.borrow().contains(&id), is_last);
        self.forget_ended(|_| true);
    }

    fn fail(&mut self) {
        let Some(id) = self.some_flow() else {
            return;
        };
        let failure = [Failure::Refused, Failure::Unreachable][usize::from(self.chance(2))];
        let listener = self.known.get(&id).map(|known| known.key.listener);
        let frontend = listener.map(|listener| self.frontend(listener));
        let _news = self
            .table
            .failed(self.now, id, failure, frontend.as_deref());
        if let Some(known) = self.known.get_mut(&id) {
            known.failed |= !known.is_over;
        }
        assert!(
            self.ended.borrow().is_empty(),
            "a failure ends nothing by itself"
        );
    }

    fn close(&mut self) {
        let listener = Listener(u32::try_from(self.rng.below(2)).unwrap());
        self.table.close(self.now, listener);
        self.forget_ended(|known| known.key.listener == listener);
        assert!(
            self.known
                .values()
                .all(|known| known.key.listener != listener)
        );
    }

    fn cut(&mut self) {
        let Some(endpoint) = self
            .endpoints
            .values()
            .min_by_key(|endpoint| endpoint.address())
        else {
            return;
        };
        let endpoint = Arc::clone(endpoint);
        self.table.cut(self.now, std::slice::from_ref(&endpoint));
        self.forget_ended(|known| known.endpoint == endpoint.address());
    }

    /// Sleeps as the data plane does: until the next deadline, or until the next event.
    fn wait(&mut self) {
        let length = self.rng.below(1 << (1 + self.rng.clone().below(16)));
        let until = Moment(self.now.0 + length);
        while let Some(next) = self.table.next_deadline()
            && next <= until
        {
            // A new flow may have filled the table above its half, which shortens the life of flows answered earlier.
            self.now = self.now.max(next);
            self.expire();
            let now = self.now;
            assert!(self.table.next_deadline().is_none_or(|after| after > now));
        }
        self.now = until;
    }

    fn expire(&mut self) {
        let is_tight = self.known.len() > self.most / 2;
        self.table.expire(self.now);
        let now = self.now;
        self.forget_ended(|known| {
            let is_idle = known.last.after(known.idle) <= now;
            let has_had_its_answer =
                known.is_answered() && known.last.after(Duration::from_secs(2)) <= now;
            is_idle || (is_tight && has_had_its_answer)
        });
        let is_tight = self.known.len() > self.most / 2;
        for known in self.known.values() {
            assert!(known.last.after(known.idle) > now, "{known:?} is idle");
            let has_had_its_answer =
                known.is_answered() && known.last.after(Duration::from_secs(2)) <= now;
            assert!(!(is_tight && has_had_its_answer), "{known:?} was answered");
        }
    }

    fn forget_ended(&mut self, may: impl Fn(&Known) -> bool) {
        for id in self.ended.take() {
            let known = self.known.remove(&id).expect("a flow that was there");
            assert!(may(&known), "{known:?} ended");
            self.gone.push(id);
        }
    }

    /// Checks what holds after every step.
    fn hold(&mut self) {
        assert!(self.ended.borrow().is_empty());
        assert_eq!(self.table.len(), self.known.len());
        assert!(self.table.len() <= self.most);
        for (id, known) in &self.known {
            assert_eq!(
                self.table.attached(*id).expect("its socket").flow,
                *id,
                "{known:?}"
            );
        }
        let keys: Vec<Key> = self
            .known
            .values()
            .filter(|known| !known.is_over && !known.is_single)
            .map(|known| known.key)
            .collect();
        let distinct: HashSet<&Key> = keys.iter().collect();
        assert_eq!(keys.len(), distinct.len(), "two flows of one client");
        let bound = self.known.values().filter_map(|known| {
            // Without a given source address, a socket may have any.
            Some((known.endpoint, known.local?.port()))
        });
        let bound: Vec<(SocketAddr, u16)> = bound.collect();
        let distinct: HashSet<&(SocketAddr, u16)> = bound.iter().collect();
        assert_eq!(bound.len(), distinct.len(), "two flows with one socket");
        for (name, state) in &self.states {
            let flows = self
                .known
                .values()
                .filter(|known| known.frontend == *name)
                .count();
            let udp = state.udp_counters(WorkerId(0));
            let ended: u64 = udp.ended.iter().map(crate::counters::Cell::value).sum();
            let created = state.counters().of(WorkerId(0)).sessions.value();
            assert_eq!(state.admit().current() as usize, flows, "{name}");
            assert!(flows == 0 || created - ended == flows as u64, "{name}");
            let sent = self.sent.get(name).copied().unwrap_or(0);
            assert_eq!(udp.datagrams_in.value(), sent, "{name}");
        }
        for (address, endpoint) in &self.endpoints {
            let flows = self
                .known
                .values()
                .filter(|known| known.endpoint == *address)
                .count();
            assert_eq!(endpoint.in_flight() as usize, flows, "{address}");
        }
    }
}

const STEPS: usize = 200;

/// The service of a frontend that has one.
fn only_service(frontend: &Frontend) -> &crate::service::Service {
    backends_of(frontend).unwrap().services().next().unwrap()
}
