//! What a process knows that is in no table, for the next one: changes by hand, the results of checks, where clients went, what was
//! counted, the keys of session tickets, certificates that are no longer in their files.
//!
//! It comes in parts, each a message of its own. What a process does not know is skipped, and what is missing is as after a
//! restart. Present numbers (`cur`) and what is under way belong to each process.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::MOST_STATE;
use crate::counters::{Counts, PerWorker, WorkerId};
use crate::endpoint::{EndpointCounts, EndpointState};
use crate::health::{ForcedHealth, Monitor};
use crate::moment::Moment;
use crate::overrides::OverrideChange;
use crate::plan::{Frontend, FrontendCounts, Plan};
use crate::rng::Rng;
use crate::service::{Service, ServiceCounts};
use crate::table::Name;
use crate::udp_counters::UdpCounts;

/// A part of what a process knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct State {
    /// What was changed by hand.
    #[serde(deserialize_with = "known", skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideChange>,
    /// The keys of session tickets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tickets: Option<Tickets>,
    /// The certificates that the next process cannot use as their files are.
    #[serde(deserialize_with = "known", skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<KeptCertificate>,
    #[serde(deserialize_with = "known", skip_serializing_if = "Vec::is_empty")]
    checks: Vec<Checked>,
    #[serde(deserialize_with = "known", skip_serializing_if = "Vec::is_empty")]
    clients: Vec<Clients>,
    #[serde(deserialize_with = "known", skip_serializing_if = "Vec::is_empty")]
    counters: Vec<Counted>,
}

/// Keys of session tickets.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Tickets {
    /// Each in base64.
    pub keys: Vec<String>,
    /// Until the oldest one is replaced; `None`: they come from a file, and none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotates_ms: Option<u64>,
}

/// Shows no secret.
impl std::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

/// The whole paths of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct PairFiles {
    pub cert: String,
    /// `None`: it is in the same file.
    #[serde(default)]
    pub key: Option<String>,
}

/// A certificate that is served whatever its files have become, with its key. All bytes are in base64.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct KeptCertificate {
    #[serde(flatten)]
    pub files: PairFiles,
    /// The certificate and those of its authorities (DER).
    pub chain: Vec<String>,
    /// Its private key (DER).
    pub private: String,
    /// The answer of its authority (OCSP).
    #[serde(default)]
    pub answer: Option<String>,
}

/// Shows no secret.
impl std::fmt::Debug for KeptCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptCertificate")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

/// The health of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Checked {
    service: Name,
    address: SocketAddr,
    health: ForcedHealth,
    /// Both are 0 where there are no checks, and it was set by hand.
    #[serde(default)]
    rise: u8,
    #[serde(default)]
    fall: u8,
    #[serde(default)]
    points: u8,
    /// For how long it has been up or down.
    #[serde(default)]
    since_ms: u64,
    #[serde(default)]
    failed: u64,
    #[serde(default)]
    downs: u64,
    #[serde(default)]
    flaps: u64,
}

/// Clients that have affinity to a service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Clients {
    service: Name,
    /// Each with the hash of its endpoint, and the milliseconds after which it is forgotten.
    clients: Vec<(IpAddr, u64, u64)>,
}

/// What was counted for one thing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Counted {
    of: Of,
    name: Name,
    /// That of an endpoint of the service `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
    /// By the counter's name: one number, or one for each reason. New reasons come last.
    counts: BTreeMap<String, Vec<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Of {
    Frontend,
    Datagrams,
    Service,
    Endpoint,
}

impl State {
    /// The overrides, ticket keys, kept certificates, states of checks, counters and clients with affinity of this plan, in
    /// parts.
    #[must_use]
    pub fn parts(
        plan: &Plan,
        tickets: Option<Tickets>,
        certificates: &[KeptCertificate],
        now: Moment,
    ) -> Vec<Self> {
        let mut parts = vec![Self {
            overrides: plan.overrides().changes(),
            tickets,
            ..Self::default()
        }];
        parts.extend(certificates.chunks(CERTIFICATES).map(|some| Self {
            certificates: some.to_vec(),
            ..Self::default()
        }));
        let checks: Vec<Checked> = endpoints(plan)
            .filter_map(|(service, endpoint)| Checked::of(service, endpoint, now))
            .collect();
        parts.extend(checks.chunks(ITEMS).map(|checks| Self {
            checks: checks.to_vec(),
            ..Self::default()
        }));
        let counters = counted(plan);
        parts.extend(counters.chunks(ITEMS).map(|counters| Self {
            counters: counters.to_vec(),
            ..Self::default()
        }));
        // Last: where there is no room for all, the largest part is cut.
        add_clients(&mut parts, plan, now, MOST_STATE / LEAST_OF_CLIENT);
        parts
    }

    /// Adds another part.
    pub fn add(&mut self, other: Self) {
        self.overrides.extend(other.overrides);
        self.tickets = self.tickets.take().or(other.tickets);
        self.certificates.extend(other.certificates);
        self.checks.extend(other.checks);
        self.clients.extend(other.clients);
        self.counters.extend(other.counters);
    }

    /// Gives the parts of this plan what is known of them. The plan is not in force yet: no worker counts there.
    pub fn resume(self, plan: &Plan, now: Moment, rng: &mut Rng) {
        let known: FxHashMap<(&str, SocketAddr), &EndpointState> = endpoints(plan)
            .map(|(service, endpoint)| ((&*service.spec().name, endpoint.address()), endpoint))
            .collect();
        for checked in self.checks {
            if let Some(endpoint) = known.get(&(&*checked.service, checked.address)) {
                checked.resume(endpoint, now);
            }
        }
        for of_service in self.clients {
            if let Some(service) = plan.service(&of_service.service) {
                service.resume_clients(&of_service.clients, now, rng);
            }
        }
        let frontends: FxHashMap<&str, &Frontend> = plan
            .frontends()
            .iter()
            .map(|frontend| (&**frontend.state().name(), &**frontend))
            .collect();
        for counted in self.counters {
            let name = &*counted.name;
            let counts = &counted.counts;
            match counted.of {
                Of::Frontend => {
                    if let Some(frontend) = frontends.get(name) {
                        resume::<FrontendCounts>(frontend.state().counters(), counts);
                    }
                }
                Of::Datagrams => {
                    if let Some(frontend) = frontends.get(name) {
                        let cells = frontend.state().udp_counters(FIRST);
                        resume_cells::<UdpCounts>(cells, counts);
                    }
                }
                Of::Service => {
                    if let Some(service) = plan.service(name) {
                        let cells = service.state().counters(FIRST);
                        resume_cells::<ServiceCounts>(cells, counts);
                    }
                }
                Of::Endpoint => {
                    let address = counted.address;
                    if let Some(endpoint) = address.and_then(|at| known.get(&(name, at))) {
                        resume_cells::<EndpointCounts>(endpoint.counters(FIRST), counts);
                    }
                }
            }
        }
    }
}

impl Checked {
    fn of(service: &Service, endpoint: &EndpointState, now: Moment) -> Option<Self> {
        let health = endpoint.health();
        let unchecked = Self {
            service: service.spec().name.clone(),
            address: endpoint.address(),
            health,
            rise: 0,
            fall: 0,
            points: 0,
            since_ms: 0,
            failed: 0,
            downs: 0,
            flaps: 0,
        };
        let Some(monitor) = endpoint.monitor() else {
            // It was set by hand.
            return (health != ForcedHealth::Up).then_some(unchecked);
        };
        Some(Self {
            rise: monitor.rise,
            fall: monitor.fall,
            points: monitor.points,
            since_ms: crate::moment::whole_millis(monitor.age(now)),
            failed: monitor.failed,
            downs: monitor.downs,
            flaps: monitor.flaps,
            ..unchecked
        })
    }

    fn resume(&self, endpoint: &EndpointState, now: Moment) {
        if (self.rise, self.fall) == (0, 0) {
            return endpoint.resume(self.health, None);
        }
        let (rise, fall) = (self.rise.max(1), self.fall.max(1));
        let monitor = Monitor {
            rise,
            fall,
            points: self.points.min(rise.saturating_add(fall).saturating_sub(1)),
            is_running: false,
            last: None,
            since: now,
            earlier: Duration::from_millis(self.since_ms),
            failed: self.failed,
            downs: self.downs,
            flaps: self.flaps,
        };
        endpoint.resume(self.health, Some(monitor));
    }
}

/// Adds clients with affinity, one service after the other, until there are more than `most`, which are too many to go along.
fn add_clients(parts: &mut Vec<State>, plan: &Plan, now: Moment, most: usize) {
    let mut added = 0;
    for service in plan.services() {
        let Some(affinity) = service.state().affinity() else {
            continue;
        };
        let mut listed = affinity.list(usize::MAX, now).into_iter();
        while added <= most && listed.len() > 0 {
            let some = listed.by_ref().take(CLIENTS);
            let clients: Vec<_> = some
                .map(|(client, endpoint, until)| {
                    let left = crate::moment::whole_millis(until.since(now));
                    (client, endpoint, left)
                })
                .collect();
            added += clients.len();
            parts.push(State {
                clients: vec![Clients {
                    service: service.spec().name.clone(),
                    clients,
                }],
                ..State::default()
            });
        }
        if added > most {
            return;
        }
    }
}

fn endpoints(plan: &Plan) -> impl Iterator<Item = (&Service, &EndpointState)> {
    plan.services().iter().flat_map(|service| {
        let endpoints = service.endpoints().iter();
        endpoints.map(|endpoint| (&**service, &**endpoint.live()))
    })
}

fn counted(plan: &Plan) -> Vec<Counted> {
    let mut all = Vec::new();
    let mut add = |of, name: &Name, address, counts: BTreeMap<String, Vec<u64>>| {
        if !counts.is_empty() {
            all.push(Counted {
                of,
                name: name.clone(),
                address,
                counts,
            });
        }
    };
    for frontend in plan.frontends() {
        let state = frontend.state();
        let mut counts = numbers(&state.counts());
        if state.all_udp_counters().is_some() {
            let datagrams = state.udp_counts();
            // Flows that go on are counted by the process that has them: their number is that of those begun without those ended.
            let ended = datagrams.ended.iter().sum();
            counts.insert(SESSIONS.into(), vec![ended]);
            add(Of::Datagrams, state.name(), None, numbers(&datagrams));
        }
        add(Of::Frontend, state.name(), None, counts);
    }
    for service in plan.services() {
        let name = &service.spec().name;
        add(Of::Service, name, None, numbers(&service.state().counts()));
        for endpoint in service.endpoints() {
            let live = endpoint.live();
            let counts = numbers(&live.counts());
            add(Of::Endpoint, name, Some(live.address()), counts);
        }
    }
    all
}

/// The numbers that are not 0.
fn numbers<C: Counts>(counts: &C) -> BTreeMap<String, Vec<u64>> {
    let all = C::COUNTERS.iter().map(|counter| {
        let numbers = (counter.read)(counts).counts.to_vec();
        (counter.name.to_owned(), numbers)
    });
    all.filter(|(name, numbers)| {
        numbers.iter().any(|number| *number > 0) && !OF_A_PROCESS.contains(&name.as_str())
    })
    .collect()
}

fn resume<C: Counts>(cells: &PerWorker<C::Cells>, counts: &BTreeMap<String, Vec<u64>>) {
    resume_cells::<C>(cells.of(FIRST), counts);
}

fn resume_cells<C: Counts>(cells: &C::Cells, counts: &BTreeMap<String, Vec<u64>>) {
    for (name, numbers) in counts {
        if !OF_A_PROCESS.contains(&name.as_str()) {
            C::resume(cells, name, numbers);
        }
    }
}

/// The items of a list that this program knows.
fn known<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    let all = Vec::<serde_json::Value>::deserialize(from)?.into_iter();
    Ok(all
        .filter_map(|item| serde_json::from_value(item).ok())
        .collect())
}

impl Service {
    fn resume_clients(&self, clients: &[(IpAddr, u64, u64)], now: Moment, rng: &mut Rng) {
        let Some(crate::service::Affinity::ClientIp(keep)) = &self.affinity else {
            return;
        };
        let places: FxHashMap<u64, u32> = (0..)
            .zip(&*self.endpoints)
            .map(|(place, endpoint)| (endpoint.hash, place))
            .collect();
        let affinity = self.state().affinity_or_new(rng);
        for (client, endpoint, left) in clients {
            if let Some(place) = places.get(endpoint) {
                let left = Duration::from_millis(*left).min(*keep);
                affinity.remember(*client, *endpoint, *place, left, now);
            }
        }
    }
}

/// The worker whose cells continue what was counted.
const FIRST: WorkerId = WorkerId(0);
const SESSIONS: &str = "sessions";
/// Counters that do not go along: two count connections that exist now, and one is a moment by the clock of one process.
const OF_A_PROCESS: [&str; 3] = ["idle_shared", "idle_private", "last_session"];
/// Checks or counters of a part: a megabyte or two.
const ITEMS: usize = 2_000;
/// Certificates of a part: each of their three files may have a megabyte.
const CERTIFICATES: usize = 5;
/// Clients of a part.
const CLIENTS: usize = 20_000;
/// A client takes more bytes than this in a message, of which the hash of its endpoint, a number of 64 bits, takes 19 or 20.
const LEAST_OF_CLIENT: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{CompileContext, compile};
    use crate::health::Outcome;
    use crate::loops::HostAddresses;
    use crate::table::{self, Format};

    fn plan(overrides: &[OverrideChange], rng: &mut Rng) -> Plan {
        let text = br#"{"version": 1,
            "frontends": [{"name": "f", "bind": ["127.0.0.1:80"], "protocol": "tcp", "service": "s"}],
            "services": [{"name": "s", "health": {"mode": "tcp", "rise": 2, "fall": 3}, "affinity": {"client-ip": "10m"},
                "endpoints": [{"address": "10.0.0.1:80"}, {"address": "10.0.0.2:80"}]}]}"#;
        let table = table::parse(text, Format::Json).unwrap();
        let mut context = CompileContext {
            now: Moment(0),
            workers: 2,
            ipv6: false,
            host: &HostAddresses::default(),
            rng,
        };
        let plan = compile(table, &Plan::default(), &mut context);
        let mut changed = plan.overrides().clone();
        overrides.iter().for_each(|change| changed.change(change));
        crate::compile::revise(&plan, changed, &mut context)
    }

    fn sent(parts: Vec<State>) -> State {
        let mut all = State::default();
        for part in parts {
            let text = serde_json::to_vec(&part).unwrap();
            all.add(serde_json::from_slice(&text).unwrap());
        }
        all
    }

    #[test]
    fn what_one_process_knows_the_next_one_knows() {
        let mut rng = Rng::new(1);
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let changes = [
            OverrideChange::Weight("s".parse().unwrap(), address("10.0.0.1:80"), Some(7)),
            OverrideChange::State(
                "s".parse().unwrap(),
                address("10.0.0.2:80"),
                Some(table::State::Draining),
            ),
            OverrideChange::Closed("f".parse().unwrap(), true),
        ];
        let old = plan(&changes, &mut rng);
        let now = Moment(100_000);
        let service = &old.services()[0];
        let down = service.endpoints()[1].live();
        let mut monitor = Monitor::unproven(service.spec().checks().unwrap(), true, Moment(0));
        monitor.observe(Moment(90_000), Outcome::ConnectTimeout, Duration::ZERO);
        down.resume(ForcedHealth::Down, Some(monitor));
        down.counters(WorkerId(1)).sessions.add(5);
        down.counters(WorkerId(0)).sessions.add(1);
        down.counters(WorkerId(0)).idle_shared.add(1);
        down.counters(WorkerId(1)).total_ms_max.add(9);
        let frontend = old.frontends()[0].state();
        frontend.counters().of(WorkerId(1)).refused[2].add(3);
        let hash = service.endpoints()[1].hash;
        let client: IpAddr = "192.0.2.7".parse().unwrap();
        let keep = Duration::from_secs(60);
        let affinity = service.state().affinity_or_new(&mut rng);
        affinity.remember(client, hash, 1, keep, now);

        let state = sent(State::parts(&old, None, &[], now));
        assert_eq!(state.overrides.len(), 3);
        let next = plan(&state.overrides, &mut rng);
        assert_eq!(next.overrides(), old.overrides());
        let later = Moment(2_000);
        state.resume(&next, later, &mut rng);
        let service = &next.services()[0];
        let endpoint = service.endpoints()[1].live();
        assert!(!endpoint.is_passing() && service.endpoints()[0].live().is_passing());
        let known = endpoint.monitor().unwrap();
        assert_eq!((known.points, known.downs, known.last), (0, 1, None));
        assert_eq!(known.renewed(service.spec().checks().unwrap()), known);
        let counts = endpoint.counts();
        assert_eq!((counts.sessions, counts.idle_shared), (6, 0));
        assert_eq!(counts.total_ms_max, 9);
        assert_eq!(next.frontends()[0].state().counts().refused[2], 3);
        let found = service.state().affinity().unwrap().find(client, later);
        assert_eq!(found, Some((hash, later.after(keep))));
    }

    #[test]
    fn what_is_not_known_is_skipped() {
        let text = r#"{"later": 1, "overrides": [{"weight": ["s", "10.0.0.1:80", 7]}, {"colour": ["s", "red"]}, 4],
            "checks": [{"service": "s", "address": "10.0.0.1:80", "health": "down", "mood": "low"}, {"service": 7}],
            "counters": [{"of": "endpoint", "name": "s", "address": "10.0.0.1:80", "counts": {"sessions": [4, 4], "songs": [2], "responses": [1]}},
                {"of": "planet", "name": "s", "counts": {}}]}"#;
        let state: State = serde_json::from_str(text).unwrap();
        assert_eq!(state.overrides.len(), 1);
        let mut rng = Rng::new(1);
        let plan = plan(&state.overrides, &mut rng);
        state.resume(&plan, Moment(5), &mut rng);
        let endpoint = &plan.services()[0].endpoints()[0];
        assert_eq!(
            (endpoint.weight(), endpoint.live().is_passing()),
            (7, false)
        );
        assert_eq!(endpoint.live().counts().sessions, 4);
    }

    #[test]
    fn health_that_was_set_by_hand_without_checks_goes_along() {
        let mut rng = Rng::new(1);
        for health in [ForcedHealth::Down, ForcedHealth::Stopping, ForcedHealth::Up] {
            let old = plan(&[], &mut rng);
            let forced = old.services()[0].endpoints()[0].live();
            forced.force(health, Moment(5));
            let next = plan(&[], &mut rng);
            sent(State::parts(&old, None, &[], Moment(9))).resume(&next, Moment(1), &mut rng);
            let [first, other] = [0, 1].map(|index| next.services()[0].endpoints()[index].live());
            assert_eq!((first.health(), other.health()), (health, ForcedHealth::Up));
            assert_eq!(first.monitor(), None);
        }
    }

    #[test]
    fn how_long_an_endpoint_is_up_goes_along_to_a_process_that_has_just_begun() {
        let mut rng = Rng::new(1);
        let old = plan(&[], &mut rng);
        let service = &old.services()[0];
        let mut monitor = Monitor::unproven(service.spec().checks().unwrap(), true, Moment(0));
        monitor.downs = 1;
        let live = service.endpoints()[0].live();
        live.resume(ForcedHealth::Up, Some(monitor));
        let next = plan(&[], &mut rng);
        let hour = Moment(3_600_000);
        sent(State::parts(&old, None, &[], hour)).resume(&next, Moment(3), &mut rng);
        let mut monitor = next.services()[0].endpoints()[0].live().monitor().unwrap();
        assert_eq!(monitor.age(Moment(4)), Duration::from_millis(3_600_001));
        // It was up for an hour: this is no flap.
        while monitor.is_up() {
            monitor.observe(Moment(4), Outcome::ConnectTimeout, Duration::ZERO);
        }
        assert_eq!((monitor.downs, monitor.flaps), (2, 0));
        assert_eq!(monitor.age(Moment(5)), Duration::from_millis(1));
    }

    #[test]
    fn clients_are_listed_until_there_are_too_many() {
        let mut rng = Rng::new(1);
        let plan = plan(&[], &mut rng);
        let service = &plan.services()[0];
        let affinity = service.state().affinity_or_new(&mut rng);
        for client in 0..50_000 {
            let client = IpAddr::from(std::net::Ipv4Addr::from_bits(client));
            affinity.remember(client, u64::MAX / 7, 0, Duration::from_secs(60), Moment(0));
        }
        for (most, expected) in [
            (0, 20_000),
            (19_999, 20_000),
            (20_000, 40_000),
            (60_000, 50_000),
        ] {
            let mut parts = Vec::new();
            add_clients(&mut parts, &plan, Moment(0), most);
            let all = parts.iter().flat_map(|part| &part.clients);
            let count: usize = all.map(|some| some.clients.len()).sum();
            assert_eq!(count, expected, "{most}");
            let bytes: usize = parts
                .iter()
                .map(|part| serde_json::to_vec(part).unwrap().len())
                .sum();
            assert!(bytes > count * LEAST_OF_CLIENT, "{bytes}");
        }
    }

    #[test]
    fn keys_are_not_shown() {
        let tickets = Tickets {
            keys: vec!["c2VjcmV0".into()],
            rotates_ms: Some(1),
        };
        assert!(!format!("{tickets:?}").contains("c2VjcmV0"));
        assert!(!format!("{:?}", kept("c2VjcmV0")).contains("c2VjcmV0"));
    }

    #[test]
    fn kept_certificates_go_along_some_at_a_time() {
        let mut rng = Rng::new(1);
        let all: Vec<_> = (0..250).map(|index| kept(&index.to_string())).collect();
        let parts = State::parts(&plan(&[], &mut rng), None, &all, Moment(0));
        assert_eq!(
            parts
                .iter()
                .filter(|part| !part.certificates.is_empty())
                .count(),
            50
        );
        assert_eq!(sent(parts).certificates, all);
    }

    fn kept(private: &str) -> KeptCertificate {
        KeptCertificate {
            files: PairFiles {
                cert: "web.crt".into(),
                key: Some("web.key".into()),
            },
            chain: vec!["MIIB".into()],
            private: private.into(),
            answer: None,
        }
    }
}
