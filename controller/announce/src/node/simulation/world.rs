//! The network and the hosts of the simulation, and what must always hold in it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::super::{Action, Connections, DataPlane, Event, Node, Present, Start, lifetime};
use crate::file::{self, Announce};
use crate::frames::{self, Mac};
use crate::key::{self, Keys};
use crate::network::{Interface, Network, Route};

/// What happens to a host or to the network.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// The host loses its power.
    Kill(usize),
    /// Its announcer starts again, and its kernel still has the addresses.
    Restart(usize),
    /// The host starts.
    Start(usize),
    /// Its announcer is not run for so long.
    Pause(usize, Duration),
    /// It sees nobody, and nobody sees it.
    Cut(usize),
    /// The hosts with lower numbers than this see each other, and so do the others.
    Split(usize),
    /// What one host sends does not reach another.
    OneWay(usize, usize),
    /// All see each other.
    Join,
    /// So many of a hundred packets are lost.
    Loss(u32),
    /// Packets take up to so long, and overtake each other.
    Delay(Duration),
    /// Its data plane is ready, or has ended.
    DataPlane(usize, bool),
    /// Its data plane is about to end.
    Unready(usize),
    /// So many of the addresses it is not ready to serve, as its file has it: the first ones.
    Serves(usize, usize),
    /// It is told to end.
    Leave(usize),
    /// It ends.
    End(usize),
    /// Its interface goes down, or up. Its kernel keeps the addresses; its datagrams take another way.
    Link(usize, bool),
    /// Its interface gets another hardware address, and what others have learned is old.
    Mac(usize),
    /// Something on the host takes all addresses from its interface.
    Flush(usize),
    /// Its system puts no address on an interface, or does again.
    Refuse(usize, bool),
    /// Its system has put no address on an interface so far, and says so of all at once.
    RefuseAll(usize),
    /// Of two hosts neither gets the datagrams of the other, but its frames.
    Block(usize, usize),
    /// Its file has so many of a hundred addresses.
    File(usize, usize),
    /// Its file has so many addresses: the first ones.
    First(usize, usize),
    /// A pod begins on it, with an interface of its own.
    Pod(usize),
    /// A member that keeps no promise speaks to it.
    Hostile(usize),
}

struct Host {
    at: SocketAddr,
    mac: Mac,
    /// `None`: it has no power, or its announcer has ended.
    node: Option<Node>,
    has_power: bool,
    /// The addresses of its interface.
    /// Its addresses, each with when the kernel takes it away.
    holds: BTreeMap<IpAddr, Duration>,
    paused_until: Duration,
    /// What came while it was paused.
    inbox: Vec<Packet>,
    data_plane: DataPlane,
    has_link: bool,
    pods: u32,
    refuses: bool,
    /// So many of the addresses it is not ready to serve, as its file has it.
    unready: usize,
    /// Its file does not have these addresses.
    lacks: BTreeSet<IpAddr>,
}

impl Host {
    /// Whether its kernel answers for the address.
    fn answers_for(&self, address: IpAddr) -> bool {
        self.has_power && self.has_link && self.holds.contains_key(&address)
    }

    fn network(&self) -> Network {
        let interface = Interface {
            index: 2,
            name: "eth0".to_owned(),
            mac: self.mac,
        };
        let routes = ["192.0.0.0/16", "2001:db8::/64"].map(|to| Route {
            interface: 2,
            to: to.parse().unwrap(),
            is_link: true,
        });
        let pods = (0..self.pods).map(|pod| Interface {
            index: 100 + pod,
            name: format!("veth{pod}"),
            mac: [2, 0, 0, 0, 8, 8],
        });
        let interfaces = self.has_link.then_some(interface);
        let interfaces = interfaces.into_iter().chain(pods);
        Network::new(interfaces.collect(), routes.into())
    }

    fn present(&self) -> Vec<Present> {
        let each = self.holds.keys().map(|address| Present {
            interface: 2,
            address: *address,
            is_ours: true,
        });
        each.collect()
    }
}

#[derive(Clone)]
enum Packet {
    Datagram(SocketAddr, Vec<u8>),
    Frame(Vec<u8>),
}

/// Hosts on one network.
pub(super) struct World {
    now: Duration,
    random: SmallRng,
    hosts: Vec<Host>,
    wire: BTreeMap<(Duration, u64), (usize, usize, Packet)>,
    sent: u64,
    datagrams: u64,
    /// Those that were sent before this moment.
    counted: u64,
    counted_from: Duration,
    cut: BTreeSet<(usize, usize)>,
    /// As `cut`, for datagrams only.
    blocked: BTreeSet<(usize, usize)>,
    loss: u32,
    delay: Duration,
    keys: Keys,
    /// This host has another key when it starts.
    pub(super) stranger: Option<usize>,
    pub(super) addresses: Vec<IpAddr>,
    /// An address that a host has which is no member.
    pub(super) foreign: Option<IpAddr>,
    /// When a host took an address.
    pub(super) moves: Vec<(Duration, IpAddr, usize)>,
    /// The hosts that removed an address, and what became of its connections.
    pub(super) removals: Vec<(usize, Connections)>,
    /// So many addresses a system refused when it was asked.
    pub(super) refusals: usize,
    pub(super) told: Vec<String>,
    /// Since when two hosts that see each other both have an address.
    doubled: BTreeMap<(IpAddr, usize, usize), Duration>,
    /// The pairs of hosts that saw each other when `doubled` and `nowhere` were computed last.
    saw: BTreeSet<(usize, usize)>,
    /// Whether a host has taken or lost an address since then.
    has_changed: bool,
    next_check: Duration,
    /// The last time at which the network was bad.
    troubled: Duration,
    /// The host that announced an address last, which is where other hosts on the network look for it.
    pub(super) learned: BTreeMap<IpAddr, usize>,
    /// Since when nobody has an address, and the longest such time of any.
    nowhere: BTreeMap<IpAddr, Duration>,
    pub(super) longest_nowhere: Duration,
    /// What an enemy wrote down, if there is one: who sent which datagram.
    pub(super) recorded: Option<Vec<(SocketAddr, Vec<u8>)>>,
}

/// The address that a probe asks for.
fn asked(frame: &[u8]) -> Option<IpAddr> {
    let claim = frames::claim(frame).filter(|claim| claim.is_question);
    claim.map(|claim| claim.address)
}

const fn known(is_ready: bool) -> DataPlane {
    match is_ready {
        true => DataPlane::Ready,
        false => DataPlane::Gone,
    }
}

/// A number below `most` that depends on the seed.
pub(super) fn below(seed: u64, most: usize) -> usize {
    SmallRng::seed_from_u64(seed).random_range(0..most)
}

impl World {
    pub(super) fn new(seed: u64, hosts: usize, addresses: u32) -> Self {
        let line = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let address = |last| match last % 4 {
            0 => Ipv6Addr::from((0x2001_0db8 << 96) + u128::from(last)).into(),
            _ => Ipv4Addr::from(0xc000_0200 + last).into(),
        };
        let mut world = Self {
            now: Duration::from_secs(1000),
            random: SmallRng::seed_from_u64(seed),
            hosts: Vec::new(),
            wire: BTreeMap::new(),
            sent: 0,
            datagrams: 0,
            counted: 0,
            counted_from: Duration::ZERO,
            cut: BTreeSet::new(),
            blocked: BTreeSet::new(),
            loss: 0,
            delay: LEAST_DELAY,
            keys: key::parse(line.as_bytes()).unwrap(),
            stranger: None,
            addresses: (1..=addresses).map(address).collect(),
            foreign: None,
            moves: Vec::new(),
            removals: Vec::new(),
            refusals: 0,
            told: Vec::new(),
            doubled: BTreeMap::new(),
            saw: BTreeSet::new(),
            has_changed: true,
            next_check: Duration::ZERO,
            troubled: Duration::ZERO,
            learned: BTreeMap::new(),
            nowhere: BTreeMap::new(),
            longest_nowhere: Duration::ZERO,
            recorded: None,
        };
        for number in 0..hosts {
            let last = u8::try_from(number + 1).unwrap();
            world.hosts.push(Host {
                at: ([10, 0, 0, last], 7956).into(),
                mac: [2, 0, 0, 0, 0, last],
                node: None,
                has_power: true,
                holds: BTreeMap::new(),
                paused_until: Duration::ZERO,
                inbox: Vec::new(),
                data_plane: DataPlane::Ready,
                has_link: true,
                pods: 0,
                refuses: false,
                unready: 0,
                lacks: BTreeSet::new(),
            });
        }
        (0..hosts).for_each(|number| world.begin(number));
        world
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    pub(super) fn count(&self) -> usize {
        self.hosts.len()
    }

    /// So many datagrams were sent.
    pub(super) fn datagrams(&self) -> u64 {
        self.datagrams
    }

    pub(super) fn random(&mut self, most: usize) -> usize {
        self.random.random_range(0..most)
    }

    /// Lets so much time pass.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let wire = self.wire.keys().next().map(|(at, _)| *at);
            let hosts = self.hosts.iter().filter_map(|host| {
                let node = host.node.as_ref()?;
                let deadline = match host.inbox.is_empty() {
                    true => node.deadline()?,
                    false => self.now,
                };
                Some(deadline.max(host.paused_until))
            });
            let Some(next) = hosts.chain(wire).min().filter(|next| *next <= end) else {
                break;
            };
            self.now = next.max(self.now);
            self.step();
            if self.now >= self.next_check || self.has_changed {
                self.next_check = self.now + Duration::from_millis(10);
                self.check();
            }
        }
        self.now = end;
    }

    fn step(&mut self) {
        while let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= self.now
        {
            let (from, to, packet) = entry.remove();
            self.deliver(from, to, packet);
        }
        for number in 0..self.hosts.len() {
            let now = self.now;
            let Some(host) = self
                .hosts
                .get_mut(number)
                .filter(|host| host.paused_until <= now)
            else {
                continue;
            };
            let before = host.holds.len();
            host.holds.retain(|_, until| *until > now);
            self.has_changed |= host.holds.len() != before;
            let inbox = std::mem::take(&mut host.inbox);
            let Some(node) = &mut host.node else {
                continue;
            };
            let is_due = node.deadline().is_some_and(|due| due <= now);
            if inbox.is_empty() && !is_due {
                continue;
            }
            for packet in inbox {
                match packet {
                    Packet::Datagram(from, bytes) => node.datagram(now, from, &bytes),
                    Packet::Frame(bytes) => node.frame(now, 2, &bytes),
                }
            }
            node.settle(now);
            node.tick(now);
            self.act(number);
        }
    }

    fn deliver(&mut self, from: usize, to: usize, packet: Packet) {
        if self.cut.contains(&(from, to)) || !self.hosts[to].has_power {
            return;
        }
        match &packet {
            Packet::Frame(bytes) => {
                // The kernel answers whether the announcer runs or not.
                if let Some(address) = asked(bytes).filter(|one| self.hosts[to].answers_for(*one)) {
                    let answer = frames::announcement(self.hosts[to].mac, address).pop();
                    self.send(to, from, Packet::Frame(answer.unwrap()));
                }
                if !self.hosts[to].has_link {
                    return;
                }
            }
            Packet::Datagram(..) if self.blocked.contains(&(from, to)) => return,
            Packet::Datagram(..) => {}
        }
        if self.hosts[to].node.is_some() {
            self.hosts[to].inbox.push(packet);
        }
    }

    /// A host without the key says to the host `to` that `of` has every address.
    pub(super) fn forge(&mut self, of: usize, to: usize) {
        for address in self.addresses.clone() {
            let frame = frames::announcement(self.hosts[of].mac, address).pop();
            self.hosts[to].inbox.push(Packet::Frame(frame.unwrap()));
        }
    }

    /// An enemy sends what it wrote down, in any order, to everybody.
    pub(super) fn replay(&mut self) {
        let recorded = self.recorded.take().unwrap();
        for (from, bytes) in &recorded {
            let to = self.random(self.count());
            let packet = Packet::Datagram(*from, bytes.clone());
            self.hosts[to].inbox.push(packet);
            self.run(Duration::from_millis(20));
        }
    }

    fn send(&mut self, from: usize, to: usize, packet: Packet) {
        if self.random.random_range(0..100) < self.loss {
            return;
        }
        let most = self.delay.max(LEAST_DELAY).as_micros();
        let least = LEAST_DELAY.as_micros() / 2;
        let micros = self.random.random_range(least..=most);
        let at = self.now + Duration::from_micros(u64::try_from(micros).unwrap());
        self.sent += 1;
        let is_datagram = matches!(packet, Packet::Datagram(..));
        self.datagrams += u64::from(is_datagram);
        if self.now - self.counted_from >= Duration::from_secs(1) {
            self.counted_from = self.now;
            self.counted = self.datagrams;
        }
        let storm = self.datagrams - self.counted > 300 * self.hosts.len() as u64;
        assert!(!storm, "a storm of datagrams\n{}", self.told.join("\n"));
        self.wire.insert((at, self.sent), (from, to, packet));
    }

    fn act(&mut self, number: usize) {
        let Some(node) = &mut self.hosts[number].node else {
            return;
        };
        let mut refused = Vec::new();
        for action in node.take_actions(self.now) {
            match action {
                Action::Send(to, bytes) => {
                    let from = self.hosts[number].at;
                    if let Some(recorded) = &mut self.recorded {
                        recorded.push((from, bytes.clone()));
                    }
                    if let Some(to) = self.hosts.iter().position(|host| host.at == to) {
                        self.send(number, to, Packet::Datagram(from, bytes));
                    }
                }
                Action::Probe { address, bytes, .. } => {
                    self.spread(number, &bytes);
                    if self.foreign == Some(address) {
                        let answer = frames::announcement([2, 0, 0, 0, 9, 9], address).pop();
                        let answer = Packet::Frame(answer.unwrap());
                        self.hosts[number].inbox.push(answer);
                    }
                }
                Action::Frame { bytes, .. } => {
                    let claim = frames::claim(&bytes).unwrap();
                    // What the system refused is not announced.
                    if self.hosts[number].holds.contains_key(&claim.address) {
                        self.learned.insert(claim.address, number);
                        self.spread(number, &bytes);
                    }
                }
                Action::Add { interface, address } if self.hosts[number].refuses => {
                    refused.push((interface, address));
                }
                Action::Add { address, .. } => {
                    self.has_changed = true;
                    let until = self.now + lifetime();
                    assert_eq!(self.hosts[number].holds.insert(address, until), None);
                    self.moves.push((self.now, address, number));
                }
                Action::Remove {
                    address,
                    connections,
                    ..
                } => {
                    self.has_changed = true;
                    self.removals.push((number, connections));
                    self.hosts[number].holds.remove(&address);
                }
                Action::Tell(Event::Address(status)) if status.detail.len() < 40 => {}
                Action::Renew { address, .. } => {
                    self.has_changed = true;
                    let until = self.now + lifetime();
                    self.hosts[number].holds.insert(address, until);
                }
                Action::Locate(_) => unreachable!("each knows where it is"),
                Action::Tell(event) => {
                    let line = format!("{:?} edge{}: {event:?}", self.now, number + 1);
                    self.told.push(line);
                }
            }
        }
        if !refused.is_empty() {
            self.refusals += refused.len();
            let now = self.now;
            self.with_node(number, |node| {
                for (interface, address) in refused {
                    node.refused(now, interface, address, "not permitted".to_owned());
                }
                node.settle(now);
            });
        }
    }

    /// A frame goes to every other host.
    fn spread(&mut self, from: usize, bytes: &[u8]) {
        for to in (0..self.hosts.len()).filter(|to| *to != from) {
            self.send(from, to, Packet::Frame(bytes.to_vec()));
        }
    }

    /// Of an address that two hosts have which see each other, one is given up within a round trip.
    fn check(&mut self) {
        let is_bad = self.loss > 0 || !self.cut.is_empty();
        if is_bad {
            self.troubled = self.now;
        }
        let limit = match self.now - self.troubled < Duration::from_secs(3) {
            // What a member says comes again each second.
            true => Duration::from_millis(2_500),
            false => ROUND_TRIP + 4 * self.delay,
        };
        // Also those that end now.
        let longest = self.nowhere.values().map(|since| self.now - *since).max();
        self.longest_nowhere = self.longest_nowhere.max(longest.unwrap_or_default());
        let sees = self.sight();
        if std::mem::take(&mut self.has_changed) || sees != self.saw {
            self.doubled = self.doubled(&sees);
            self.saw = sees;
            let nowhere = self.addresses.iter().filter(|address| {
                let mut hosts = self.hosts.iter();
                !hosts.any(|host| host.answers_for(**address))
            });
            let since = |address| self.nowhere.get(address).copied().unwrap_or(self.now);
            self.nowhere = nowhere.map(|one| (*one, since(one))).collect();
        }
        for (key, since) in &self.doubled {
            let time = self.now - *since;
            assert!(
                time <= limit,
                "{key:?} for {time:?}\n{}",
                self.told.join("\n")
            );
        }
    }

    /// Since when two hosts that see each other both have an address, of those that have one now.
    fn doubled(
        &self,
        sees: &BTreeSet<(usize, usize)>,
    ) -> BTreeMap<(IpAddr, usize, usize), Duration> {
        let mut doubled = BTreeMap::new();
        for (one, other) in sees {
            if one < other && sees.contains(&(*other, *one)) {
                let (host, other_host) = (&self.hosts[*one], &self.hosts[*other]);
                let others = &other_host.holds;
                let both = host.holds.keys().filter(|one| others.contains_key(one));
                let answers = |at: &&IpAddr| host.answers_for(**at) && other_host.answers_for(**at);
                for address in both.filter(answers) {
                    let key = (*address, *one, *other);
                    let since = self.doubled.get(&key).copied().unwrap_or(self.now);
                    doubled.insert(key, since);
                }
            }
        }
        doubled
    }

    /// The pairs of hosts with running announcers of which the first receives datagrams of the second.
    fn sight(&self) -> BTreeSet<(usize, usize)> {
        let runs = |host: &Host| host.node.is_some() && host.paused_until <= self.now;
        let mut sees = BTreeSet::new();
        for (number, host) in self.hosts.iter().enumerate().filter(|(_, host)| runs(host)) {
            let Some(node) = &host.node else {
                continue;
            };
            for (name, _) in &node.others {
                let other: usize = name.strip_prefix("edge").unwrap().parse().unwrap();
                if self.hosts.get(other - 1).is_some_and(runs) {
                    sees.insert((number, other - 1));
                }
            }
        }
        sees
    }

    /// Each address is held, by one host.
    pub(super) fn all_are_held(&self) {
        for address in &self.addresses {
            let hosts = self.hosts.iter().enumerate();
            let holders = hosts.filter(|(_, host)| host.answers_for(*address));
            let holders: Vec<usize> = holders.map(|(number, _)| number + 1).collect();
            let mut hosts = self.hosts.iter();
            let has_file = |host: &Host| host.node.is_some() && !host.lacks.contains(address);
            let expected = usize::from(hosts.any(has_file));
            let learned = self.learned.get(address).map(|host| host + 1);
            let is_learned = expected == 0 || learned == holders.first().copied();
            assert!(
                holders.len() == expected && is_learned,
                "{address}: held by {holders:?}, announced last by {learned:?}, at {:?}\n{}\n{}",
                self.now,
                self.told.join("\n"),
                self.seen(*address)
            );
        }
    }

    /// What each node thinks of the address.
    fn seen(&self, address: IpAddr) -> String {
        let hosts = self.hosts.iter().filter_map(|host| host.node.as_ref());
        let lines = hosts.map(|node| {
            let statuses = node.statuses();
            let status = statuses.iter().find(|one| one.address == address);
            let own = node.own_standing();
            format!("{status:?}\n  {own:?} of {:?}\n", node.others)
        });
        lines.collect()
    }

    pub(super) fn owners(&self) -> BTreeMap<IpAddr, usize> {
        let hosts = self
            .hosts
            .iter()
            .enumerate()
            .filter(|(_, host)| host.has_power);
        hosts
            .flat_map(|(number, host)| host.holds.keys().map(move |one| (*one, number)))
            .collect()
    }

    pub(super) fn shares(&self) -> BTreeMap<usize, usize> {
        let mut shares = BTreeMap::new();
        for owner in self.owners().into_values() {
            *shares.entry(owner).or_default() += 1;
        }
        shares
    }

    /// Everything is well from now on.
    pub(super) fn heal(&mut self) {
        self.fault(Fault::Join);
        self.fault(Fault::Loss(0));
        self.fault(Fault::Delay(LEAST_DELAY));
        for number in 0..self.hosts.len() {
            self.hosts[number].paused_until = self.hosts[number].paused_until.min(self.now);
            self.fault(Fault::DataPlane(number, true));
            self.fault(Fault::Refuse(number, false));
            self.fault(Fault::Link(number, true));
            self.hosts[number].unready = 0;
            self.fault(Fault::File(number, 100));
            if self.hosts[number].node.is_none() {
                self.fault(Fault::Start(number));
            }
        }
    }

    pub(super) fn any_fault(&mut self) -> Fault {
        let one = self.random(self.count());
        let other = self.random(self.count());
        match self.random(21) {
            0 => Fault::Kill(one),
            1 => Fault::Restart(one),
            2 => Fault::Start(one),
            3 => Fault::Pause(one, Duration::from_millis(100 + self.random(6_000) as u64)),
            4 => Fault::Cut(one),
            5 => Fault::Split(one),
            6 => Fault::OneWay(one, other),
            7 | 8 => Fault::Join,
            9 => Fault::Loss(self.random.random_range(0..20)),
            10 => Fault::Delay(Duration::from_millis(self.random(20) as u64)),
            11 | 12 => Fault::Link(one, !self.hosts[one].has_link),
            13 => Fault::Flush(one),
            14 => Fault::Refuse(one, !self.hosts[one].refuses),
            15 | 16 => Fault::File(one, [0, 30, 80, 100][self.random(4)]),
            17 => Fault::Serves(one, [0, 10, 20, 30][self.random(4)]),
            18 => Fault::Unready(one),
            19 => Fault::Hostile(one),
            _ => Fault::DataPlane(one, self.hosts[one].data_plane != DataPlane::Ready),
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        self.told.push(format!("{:?} {fault:?}", self.now));
        self.has_changed = true;
        let now = self.now;
        match fault {
            Fault::Kill(number) => {
                let host = &mut self.hosts[number];
                host.node = None;
                host.has_power = false;
                host.holds.clear();
                host.inbox.clear();
            }
            Fault::Restart(number) if self.hosts[number].has_power => self.begin(number),
            Fault::Restart(_) => {}
            Fault::Start(number) if self.hosts[number].node.is_none() => self.begin(number),
            Fault::Start(_) => {}
            Fault::Pause(number, time) => self.hosts[number].paused_until = now + time,
            Fault::Cut(number) => {
                let others = (0..self.hosts.len()).filter(|other| *other != number);
                self.cut
                    .extend(others.flat_map(|other| [(number, other), (other, number)]));
            }
            Fault::Split(at) => {
                let all = 0..self.hosts.len();
                let pairs = all
                    .clone()
                    .flat_map(|one| all.clone().map(move |other| (one, other)));
                self.cut
                    .extend(pairs.filter(|(one, other)| (*one < at) != (*other < at)));
            }
            Fault::OneWay(from, to) => {
                self.cut.insert((from, to));
            }
            Fault::Join => {
                self.cut.clear();
                self.blocked.clear();
            }
            Fault::Loss(percent) => self.loss = percent,
            Fault::Delay(most) => self.delay = most,
            Fault::DataPlane(number, is_ready) => self.set_data_plane(number, known(is_ready)),
            Fault::Unready(number) => self.set_data_plane(number, DataPlane::Unready),
            Fault::Serves(number, unready) => {
                self.hosts[number].unready = unready;
                let file = self.file_of(number);
                self.with_node(number, |node| node.set_file(now, file));
            }
            Fault::Leave(number) => self.with_node(number, |node| node.leave(now)),
            Fault::End(number) => {
                self.with_node(number, |node| node.end(now));
                self.hosts[number].node = None;
            }
            Fault::Link(number, has_link) => {
                self.hosts[number].has_link = has_link;
                self.look(number);
            }
            Fault::Mac(number) => {
                self.hosts[number].mac[0] ^= 4;
                self.learned.retain(|_, host| *host != number);
                self.look(number);
            }
            Fault::Flush(number) => {
                self.hosts[number].holds.clear();
                self.look(number);
            }
            Fault::Refuse(number, refuses) => self.hosts[number].refuses = refuses,
            Fault::RefuseAll(number) => {
                self.hosts[number].holds.clear();
                self.with_node(number, |node| {
                    for (interface, address) in node.held() {
                        node.refused(now, interface, address, "not permitted".to_owned());
                    }
                    node.settle(now);
                });
            }
            Fault::File(number, percent) => {
                let addresses = self.addresses.clone();
                let lacks = addresses
                    .into_iter()
                    .filter(|_| self.random(100) >= percent);
                let lacks = lacks.collect();
                self.lack(number, lacks);
            }
            Fault::First(number, count) => {
                let lacks = self.addresses.iter().skip(count).copied().collect();
                self.lack(number, lacks);
            }
            Fault::Pod(number) => {
                self.hosts[number].pods += 1;
                self.look(number);
            }
            Fault::Hostile(number) => self.with_node(number, |node| {
                if let Some(group) = &mut node.members {
                    for content in group.membership.hostile() {
                        group.membership.take(now, &content);
                    }
                }
                node.settle(now);
            }),
            Fault::Block(one, other) => {
                self.blocked.extend([(one, other), (other, one)]);
            }
        }
    }

    fn set_data_plane(&mut self, number: usize, data_plane: DataPlane) {
        let now = self.now;
        self.hosts[number].data_plane = data_plane;
        self.with_node(number, |node| node.set_data_plane(now, data_plane));
    }

    /// The host gets a file without these addresses.
    fn lack(&mut self, number: usize, lacks: BTreeSet<IpAddr>) {
        let now = self.now;
        self.hosts[number].lacks = lacks;
        let file = self.file_of(number);
        self.with_node(number, |node| node.set_file(now, file));
    }

    /// The announcer of the host looks at what its kernel has.
    fn look(&mut self, number: usize) {
        let now = self.now;
        let host = &self.hosts[number];
        let (network, present) = (host.network(), host.present());
        self.with_node(number, |node| {
            node.set_network(now, network);
            node.set_addresses(now, &present);
        });
    }

    /// So many addresses stand in the file of the host with `ready: false`, when it starts.
    pub(super) fn cannot(&mut self, number: usize, unready: usize) {
        self.hosts[number].unready = unready;
        self.begin(number);
    }

    fn with_node(&mut self, number: usize, work: impl FnOnce(&mut Node)) {
        if let Some(node) = &mut self.hosts[number].node {
            work(node);
        }
        self.act(number);
    }

    fn file_of(&self, number: usize) -> Announce {
        let names: Vec<String> = (1..=self.hosts.len())
            .map(|one| format!("edge{one}"))
            .collect();
        let host = &self.hosts[number];
        let addresses = self.addresses.iter().enumerate();
        let addresses = addresses.filter(|(_, address)| !host.lacks.contains(*address));
        let each = addresses.map(|(index, address)| {
            format!(
                "  - {{address: \"{address}\", mode: l2, nodes: [{}], ready: {}}}\n",
                names.join(", "),
                index >= host.unready
            )
        });
        let text = format!(
            "version: 1
node: edge{}
members: {{bind: \"0.0.0.0:7956\", peers: [\"10.0.0.1:7956\", \"10.0.0.2:7956\"], key-file: k}}
data-plane: {{socket: s}}
{}{}",
            number + 1,
            if host.lacks.len() < self.addresses.len() {
                "addresses:\n"
            } else {
                ""
            },
            each.collect::<String>()
        );
        file::parse(text.as_bytes()).unwrap()
    }

    /// Starts an announcer. Its kernel still has what an earlier one left.
    fn begin(&mut self, number: usize) {
        let file = self.file_of(number);
        let mut boot = [0; 7];
        self.random.fill(&mut boot);
        let start = Start {
            at: self.hosts[number].at,
            // The clock of a host may go back.
            generation: self.random.random_range(1..1000),
            boot,
            seed: self.random.random(),
        };
        let other = key::parse(b"Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=").unwrap();
        let keys = match self.stranger == Some(number) {
            true => &other,
            false => &self.keys,
        };
        let mut node = Node::new(self.now, 0, file, Some((keys, start)));
        self.has_changed = true;
        let host = &mut self.hosts[number];
        host.has_power = true;
        host.inbox.clear();
        node.set_data_plane(self.now, host.data_plane);
        host.node = Some(node);
        self.look(number);
    }
}

/// The round trip of what members say: they gossip every 50 ms.
const ROUND_TRIP: Duration = Duration::from_millis(150);
const LEAST_DELAY: Duration = Duration::from_millis(1);
