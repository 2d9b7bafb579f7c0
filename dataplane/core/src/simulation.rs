//! A process under one virtual clock: clients are admitted, choose an endpoint, wait in the queue, dial, stay and leave; flows come
//! and end; checks run; tables drain and remove endpoints. Meanwhile endpoints die and hang, and the machine sleeps. A simple model
//! says what must hold after each step. `health::simulation` and `flow::simulation` try the verdicts and the flows by themselves.
//!
//! 1,000 seeds in an ordinary run; `SEED=n` replays one.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::admit::Admission;
use crate::compile::{CompileContext, compile};
use crate::counters::WorkerId;
use crate::endpoint::{EndpointState, Lease};
use crate::flow::{self, FlowTable, Listener, Load};
use crate::health::{Checks, Outcome};
use crate::loops::LOOPBACK_ONLY;
use crate::moment::Moment;
use crate::pick::{Key, Tried, Unavailable};
use crate::plan::{Frontend, Plan};
use crate::queue::Ticket;
use crate::rng::Rng;
use crate::service::{Failure, Service};
use crate::table::{Format, State, parse};

/// Does this with each of so many seeds, or with the one of the variable `SEED`. Where it fails, it says how to replay it.
pub(crate) fn try_seeds(usual: u64, run: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let replayed = std::env::var("SEED").ok();
    let seeds = match replayed.map(|seed| seed.parse().unwrap()) {
        Some(seed) => seed..seed + 1,
        None => 0..usual,
    };
    for seed in seeds {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "replay with SEED={seed}");
    }
}

#[test]
fn whatever_fails_nobody_is_lost_and_nothing_is_exceeded() {
    try_seeds(1_000, |seed| World::new(seed).run());
}

/// A client on its way.
struct Client {
    address: SocketAddr,
    tried: Tried,
    arrived: Moment,
    stage: Stage,
    _admission: Admission,
}

enum Stage {
    /// For a moment.
    Chooses,
    Waits(Ticket),
    /// Since a moment, until another one: then it is known whether the endpoint answers.
    Dials(Lease, Moment, Moment),
    /// Until a moment.
    Stays(Lease, Moment),
}

/// What becomes of an endpoint's clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Refuses,
    Hangs,
}

#[derive(Default)]
struct Done {
    served: u64,
    queued: u64,
    refused: u64,
}

struct World {
    dice: Rng,
    rng: Rng,
    now: Moment,
    plan: Plan,
    checks: Checks,
    flows: FlowTable<()>,
    clients: Vec<Client>,
    faults: BTreeMap<SocketAddr, Fault>,
    /// Every endpoint that ever was.
    endpoints: Vec<Arc<EndpointState>>,
    done: Done,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let checks = Checks::new(1_000, &mut rng);
        let mut world = Self {
            dice: Rng::new(seed ^ 0x5eed),
            rng,
            now: Moment(1_000),
            plan: Plan::default(),
            checks,
            flows: FlowTable::new(WorkerId(0), 50, seed),
            clients: Vec::new(),
            faults: BTreeMap::new(),
            endpoints: Vec::new(),
            done: Done::default(),
        };
        world.swap();
        world
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            self.pass(true);
            if self.one_in(40) {
                self.swap();
            }
            for _ in 0..self.dice.below(4) {
                self.arrive();
            }
            for _ in 0..self.dice.below(4) {
                self.ask();
            }
            self.settle();
            self.hold();
        }
        self.end();
    }

    /// Time passes, and with it comes what was due.
    fn pass(&mut self, with_faults: bool) {
        let returns = self.tcp().next_return(self.now);
        let long = if !with_faults {
            3_000
        } else if self.one_in(60) {
            120_000
        } else {
            300
        };
        self.now = self.now.after(Duration::from_millis(self.dice.below(long)));
        let addresses: Vec<_> = self.faults.keys().copied().collect();
        for address in addresses {
            let fault = match (with_faults, self.dice.below(40)) {
                (false, _) | (true, 0 | 1) => Fault::None,
                (true, 2) => Fault::Refuses,
                (true, 3) => Fault::Hangs,
                _ => continue,
            };
            self.faults.insert(address, fault);
        }
        self.check();
        self.flows.expire(self.now);
        // As the data plane does: time alone wakes nobody.
        if returns.is_some_and(|when| when <= self.now) {
            self.tcp().state().queue().wake_head();
        }
    }

    fn check(&mut self) {
        while let Some(check) = self.checks.next(self.now) {
            let outcome = match self.faults.get(&check.address) {
                Some(Fault::None) => Outcome::Connected,
                _ => Outcome::Unreached("Connection refused"),
            };
            let took = Duration::from_millis(1);
            let _change = self
                .checks
                .ended(check.id, outcome, took, self.now, &mut self.rng);
        }
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.dice.below(n) == 0
    }

    fn tcp(&self) -> Arc<Service> {
        Arc::clone(self.plan.service("s").unwrap())
    }

    fn frontend(&self, at: usize) -> Arc<Frontend> {
        Arc::clone(&self.plan.frontends()[at])
    }

    /// Another table: other limits, another algorithm, endpoints that drain, are disabled, go and come back.
    fn swap(&mut self) {
        let pick = |dice: &mut Rng, words: &[&'static str]| {
            words[usize::try_from(dice.below(words.len() as u64)).unwrap()]
        };
        let limits = pick(
            &mut self.dice,
            &[
                "",
                ", max-connections: 6",
                ", max-connections-per-client: 2, max-connections: 12",
            ],
        );
        let algorithm = pick(
            &mut self.dice,
            &[
                "round-robin",
                "least-connections",
                "source-hash",
                "random",
                "first",
            ],
        );
        let affinity = pick(&mut self.dice, &["", ", affinity: {client-ip: 1h}"]);
        let queue = pick(&mut self.dice, &["off", "3", "20"]);
        let down = pick(&mut self.dice, &["try-all", "refuse"]);
        let mut text = format!(
            "version: 1\nfrontends:\n- {{name: f, protocol: tcp, bind: ['127.0.0.1:80'], service: s, on-limit: reject{limits}}}\n- {{name: g, protocol: udp, bind: ['127.0.0.1:53'], service: t, timeouts: {{idle: 5s}}}}\nservices:\n"
        );
        for (name, net) in [("s", 1), ("t", 2)] {
            let knobs = format!(
                "algorithm: {algorithm}, all-down: {down}, health: {{mode: tcp, interval: 1s}}, ejection: {{failures: 2, first: 1s, longest: 30s}}{affinity}"
            );
            let max_queue = if name == "s" {
                format!(", max-queue: {queue}")
            } else {
                String::new()
            };
            write!(text, "- {{name: {name}, {knobs}{max_queue}, endpoints: [").unwrap();
            for host in 1..6 {
                if self.one_in(4) {
                    continue;
                }
                let state = pick(
                    &mut self.dice,
                    &["ready", "ready", "ready", "backup", "draining", "disabled"],
                );
                let most = 1 + self.dice.below(4);
                let address = SocketAddr::from(([10, 0, net, host], 80));
                write!(
                    text,
                    "{{address: '{address}', state: {state}, max-connections: {most}}}, "
                )
                .unwrap();
                self.faults.entry(address).or_insert(Fault::None);
            }
            text += "]}\n";
        }
        self.serve(&text);
    }

    fn serve(&mut self, text: &str) {
        let table = parse(text.as_bytes(), Format::Yaml).unwrap();
        let mut context = CompileContext {
            now: self.now,
            workers: 1,
            ipv6: false,
            host: &LOOPBACK_ONLY,
            rng: &mut self.rng,
        };
        self.plan = compile(table, &self.plan, &mut context);
        self.checks.follow(&self.plan, self.now);
        let services = self.plan.services().iter();
        let all = services.flat_map(|service| service.endpoints());
        for endpoint in all.map(|endpoint| endpoint.live()) {
            if !self
                .endpoints
                .iter()
                .any(|known| Arc::ptr_eq(known, endpoint))
            {
                self.endpoints.push(Arc::clone(endpoint));
            }
        }
        self.tcp().state().queue().wake_head();
    }

    /// A client of the tcp frontend.
    fn arrive(&mut self) {
        let host = u8::try_from(self.dice.below(12)).unwrap();
        let address = SocketAddr::from(([192, 0, 2, host], 7_000));
        let frontend = self.frontend(0);
        let limits = frontend.limits();
        let state = frontend.state().admit();
        let before = state.current();
        match state.admit(limits, address.ip(), self.now, None) {
            Ok(admission) => {
                assert!(
                    limits.connections.is_none_or(|most| before < most),
                    "above the limit"
                );
                self.choose(Client {
                    address,
                    tried: Tried::default(),
                    arrived: self.now,
                    stage: Stage::Chooses,
                    _admission: admission,
                });
            }
            Err(_) => self.done.refused += 1,
        }
    }

    /// A client that is new, or whose dial failed, picks an endpoint, waits or is refused.
    fn choose(&mut self, mut client: Client) {
        let service = self.tcp();
        let key = Key::new(client.address);
        match service.pick(&key, &client.tried, self.now, &mut self.rng) {
            Ok(picked) => {
                client.stage = self.dial(&service, picked.lease, picked.index, &client.tried);
                self.clients.push(client);
            }
            Err(Unavailable::Full) => {
                let ticket = Ticket::take(service.state(), service.max_queue(), &client.tried);
                match ticket {
                    Some(ticket) => {
                        client.arrived = self.now;
                        client.stage = Stage::Waits(ticket);
                        self.clients.push(client);
                        self.done.queued += 1;
                    }
                    None => self.done.refused += 1,
                }
            }
            Err(_) => {
                let has_one = service.endpoints().iter().any(|endpoint| {
                    endpoint.state() == State::Ready
                        && endpoint.live().takes_newcomers()
                        && !endpoint.live().is_ejected(self.now)
                });
                assert!(
                    !has_one || !client.tried.is_empty(),
                    "there is an endpoint for it"
                );
                self.done.refused += 1;
            }
        }
    }

    fn dial(&mut self, service: &Service, lease: Lease, index: usize, tried: &Tried) -> Stage {
        let endpoint = &service.endpoints()[index];
        assert!(Arc::ptr_eq(endpoint.live(), lease.endpoint()));
        let in_flight = endpoint.live().in_flight();
        assert!(
            endpoint
                .max_connections()
                .is_none_or(|most| in_flight <= most),
            "it is full"
        );
        assert_ne!(endpoint.state(), State::Disabled);
        let is_draining = endpoint.state() == State::Draining;
        assert!(
            !is_draining || service.spec().affinity.is_some(),
            "a newcomer at one that drains"
        );
        let is_well = endpoint.live().is_passing() || service.is_panicking();
        assert!(is_well || !tried.is_empty(), "it fails its checks");
        let fault = self.faults.get(&lease.address());
        let takes = if fault == Some(&Fault::Hangs) {
            2_000
        } else {
            self.dice.below(20)
        };
        Stage::Dials(
            lease,
            self.now,
            self.now.after(Duration::from_millis(takes)),
        )
    }

    /// Whatever can happen at this moment happens: dials and stays end, waiting clients have their turns, in any order.
    fn settle(&mut self) {
        loop {
            let due = |client: &Client, now: Moment| match &client.stage {
                Stage::Dials(_, _, at) | Stage::Stays(_, at) => *at <= now,
                Stage::Chooses => unreachable!("a choice takes no time"),
                Stage::Waits(_) => client.arrived.after(QUEUE_TIMEOUT) <= now,
            };
            let now = self.now;
            if let Some(at) = self.clients.iter().position(|client| due(client, now)) {
                let client = self.clients.remove(at);
                self.over(client);
            } else if !self.turn() && !self.turn() {
                // A client that has its turn and finds no room passes the turn on at the second call.
                return;
            }
        }
    }

    fn over(&mut self, mut client: Client) {
        match client.stage {
            Stage::Chooses | Stage::Waits(_) => self.done.refused += 1,
            Stage::Stays(..) => self.done.served += 1,
            Stage::Dials(lease, began, _) => {
                let endpoint = Arc::clone(lease.endpoint());
                let failure = match self.faults.get(&lease.address()) {
                    Some(Fault::Refuses) => Failure::Refused,
                    Some(Fault::Hangs) => Failure::TimedOut,
                    _ => {
                        endpoint.connected(self.now);
                        let stays = Duration::from_millis(self.dice.below(3_000));
                        client.stage = Stage::Stays(lease, self.now.after(stays));
                        return self.clients.push(client);
                    }
                };
                client.stage = Stage::Chooses;
                let service = self.tcp();
                let mut all = service.endpoints().iter().enumerate();
                if let Some((index, known)) =
                    all.find(|(_, one)| Arc::ptr_eq(one.live(), &endpoint))
                {
                    let _news = service.failed(index, failure, began, self.now);
                    client.tried.note(known, failure);
                }
                drop(lease);
                if client.tried.len() >= 3 {
                    self.done.refused += 1;
                } else {
                    self.choose(client);
                }
            }
        }
    }

    /// A waiting client has its turn, if any has one. Of those that have tried nothing yet the first is served first.
    fn turn(&mut self) -> bool {
        let service = self.tcp();
        let start = usize::try_from(self.dice.below(self.clients.len() as u64 + 1)).unwrap();
        let places: Vec<usize> = (start..self.clients.len()).chain(0..start).collect();
        for at in places {
            let client = &self.clients[at];
            let Stage::Waits(ticket) = &client.stage else {
                continue;
            };
            if ticket
                .poll_turn(&Context::from_waker(Waker::noop()))
                .is_pending()
            {
                continue;
            }
            let key = Key::new(client.address);
            if let Ok(picked) = service.pick_in_turn(&key, &client.tried, self.now, &mut self.rng) {
                let is_new =
                    |one: &Client| matches!(one.stage, Stage::Waits(_)) && one.tried.is_empty();
                if client.tried.is_empty() {
                    let arrived = client.arrived;
                    let mut ahead = self.clients.iter().filter(|one| is_new(one));
                    assert!(ahead.all(|one| one.arrived >= arrived), "it overtakes");
                }
                let mut client = self.clients.remove(at);
                client.stage = self.dial(&service, picked.lease, picked.index, &client.tried);
                self.clients.push(client);
            }
            return true;
        }
        false
    }

    /// A datagram of a client of the udp frontend.
    fn ask(&mut self) {
        let client = SocketAddr::from((
            [192, 0, 2, u8::try_from(self.dice.below(80)).unwrap()],
            7_000,
        ));
        let key = flow::Key {
            listener: Listener(0),
            peer: client,
            local: IpAddr::from([127, 0, 0, 1]),
            client,
        };
        let frontend = self.frontend(1);
        let verdict =
            self.flows
                .from_client(self.now, key, Load::one(10), &frontend, &mut self.rng);
        if let flow::Verdict::Open { flow, endpoint } = verdict {
            self.flows.attach(flow, ());
            if self.faults.get(&endpoint) == Some(&Fault::Refuses) {
                let _news = self
                    .flows
                    .failed(self.now, flow, Failure::Refused, Some(&frontend));
            }
        }
    }

    /// What holds after every step.
    fn hold(&self) {
        let waiting = |client: &&Client| matches!(client.stage, Stage::Waits(_));
        let queue = self.tcp().state().queue().len();
        assert_eq!(queue, self.clients.iter().filter(waiting).count());
        let admitted = self.frontend(0).state().admit().current();
        assert_eq!(admitted as usize, self.clients.len());
        let mut flows = 0;
        for endpoint in &self.endpoints {
            let is_its = |client: &&Client| match &client.stage {
                Stage::Dials(lease, ..) | Stage::Stays(lease, _) => {
                    Arc::ptr_eq(lease.endpoint(), endpoint)
                }
                Stage::Chooses | Stage::Waits(_) => false,
            };
            let held = self.clients.iter().filter(is_its).count();
            if endpoint.service().name() == "s" {
                assert_eq!(
                    endpoint.in_flight() as usize,
                    held,
                    "{}",
                    endpoint.address()
                );
            } else {
                flows += endpoint.in_flight() as usize;
            }
        }
        assert_eq!(flows, self.flows.len());
        // A wake-up that was lost would leave a client waiting beside an endpoint with room.
        let has_room = self.tcp().endpoints().iter().any(|endpoint| {
            let has_place = endpoint
                .max_connections()
                .is_none_or(|most| endpoint.live().in_flight() < most);
            endpoint.state() == State::Ready
                && endpoint.live().takes_newcomers()
                && !endpoint.live().is_ejected(self.now)
                && has_place
        });
        let is_new =
            |client: &Client| matches!(client.stage, Stage::Waits(_)) && client.tried.is_empty();
        assert!(
            !has_room || !self.clients.iter().any(is_new),
            "a client waits beside room"
        );
    }

    /// Nothing fails any more, and nobody comes: all that is under way ends, and every endpoint is taken back.
    fn end(mut self) {
        for _ in 0..100 {
            self.pass(false);
            self.settle();
            self.hold();
        }
        assert!(self.clients.is_empty() && self.flows.is_empty());
        for endpoint in &self.endpoints {
            assert_eq!(endpoint.in_flight(), 0);
        }
        for service in self.plan.services() {
            assert_eq!(service.state().current(), 0);
            for endpoint in service.endpoints().iter().filter(|one| one.is_eligible()) {
                assert!(endpoint.live().is_passing(), "{}", endpoint.address());
                assert!(
                    !endpoint.live().is_ejected(self.now),
                    "{}",
                    endpoint.address()
                );
            }
        }
        assert!(self.done.served > 0, "nobody was served");
    }
}

const STEPS: usize = 200;
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
