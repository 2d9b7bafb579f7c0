//! Single cases of flows.

use super::*;
use crate::compile::{CompileContext, compile};
use crate::loops::LOOPBACK_ONLY;
use crate::plan::Plan;
use crate::table::{self, Format};

mod handed;

struct World {
    plan: Plan,
    table: FlowTable<()>,
    rng: Rng,
}

impl World {
    fn new(frontend: &str, endpoints: &str) -> Self {
        Self::of(100, frontend, endpoints)
    }

    fn of(most: usize, frontend: &str, endpoints: &str) -> Self {
        let mut world = Self {
            plan: Plan::default(),
            table: FlowTable::new(WorkerId(0), most, 7),
            rng: Rng::new(7),
        };
        world.swap(frontend, endpoints);
        world
    }

    fn swap(&mut self, frontend: &str, endpoints: &str) {
        let yaml = format!(
            "{{version: 1, frontends: [{{name: f, protocol: udp, bind: ['127.0.0.1:53'], service: s{frontend}}}], services: [{{name: s, endpoints: [{endpoints}]}}]}}"
        );
        let mut context = CompileContext {
            now: Moment(0),
            workers: 1,
            ipv6: true,
            host: &LOOPBACK_ONLY,
            rng: &mut self.rng,
        };
        let table = table::parse(yaml.as_bytes(), Format::Yaml).unwrap();
        self.plan = compile(table, &self.plan, &mut context);
    }

    fn ask(&mut self, at: u64, client: u32) -> Verdict {
        let frontend = Arc::clone(&self.plan.frontends()[0]);
        self.table.from_client(
            Moment(at),
            key(client),
            Load::one(10),
            &frontend,
            &mut self.rng,
        )
    }

    fn opened(&mut self, at: u64, client: u32) -> (FlowId, u16) {
        match self.ask(at, client) {
            Verdict::Open { flow, endpoint } => (flow, endpoint.port()),
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, at: u64, flow: FlowId) -> Option<ReplyRoute> {
        self.table.from_endpoint(Moment(at), flow, Load::one(20))
    }

    fn refuse(&mut self, at: u64, flow: FlowId) {
        let frontend = Arc::clone(&self.plan.frontends()[0]);
        let _news = self
            .table
            .failed(Moment(at), flow, Failure::Refused, Some(&frontend));
    }

    fn port(&mut self, at: u64, flow: FlowId) -> Option<Local> {
        self.table.take_port(Moment(at), flow, None, &mut self.rng)
    }

    /// All flows take over the idle timeouts of their frontends.
    fn follow(&mut self) {
        let frontend = Arc::clone(&self.plan.frontends()[0]);
        let mut next = Some(0);
        while let Some(from) = next {
            next = self
                .table
                .revise(from, |_| Some(&frontend), |_, _, _, _| {});
        }
    }

    fn active(&self, at: u64) -> usize {
        let (mut all, mut next) = (0, Some(0));
        while let Some(from) = next {
            let (active, then) = self.table.count_active(Moment(at), from);
            (all, next) = (all + active, then);
        }
        all
    }

    fn ended(&self, why: FlowEnd) -> u64 {
        let state = self.plan.frontends()[0].state();
        state.udp_counters(WorkerId(0)).ended[why.index()].value()
    }
}

fn key(client: u32) -> Key {
    let peer = SocketAddr::new(IpAddr::from(client.to_be_bytes()), 7_000);
    Key {
        listener: Listener(1),
        peer,
        local: IpAddr::from([127, 0, 0, 1]),
        client: peer,
    }
}

const ONE: &str = "{address: '10.0.0.1:1'}";
const TWO: &str = "{address: '10.0.0.1:1'}, {address: '10.0.0.1:2'}";

#[test]
fn a_flow_ends_by_its_idle_time_after_the_last_datagram_of_either_side() {
    let mut world = World::new(", timeouts: {idle: 10s}", ONE);
    let (flow, _) = world.opened(0, 1);
    assert_eq!(world.ask(8_000, 1), Verdict::Forward(flow));
    assert!(world.answer(12_000, flow).is_some());
    world.table.expire(Moment(21_999));
    assert_eq!(world.table.len(), 1);
    world.table.expire(Moment(22_000));
    assert_eq!((world.table.len(), world.ended(FlowEnd::Idle)), (0, 1));
    assert_eq!(world.answer(22_001, flow), None);
}

#[test]
fn one_answer_ends_a_dns_flow() {
    let mut world = World::new(", udp: {requests: 1, responses: 1}", ONE);
    let (flow, _) = world.opened(0, 1);
    assert_eq!(world.answer(5, flow).map(|answer| answer.key), Some(key(1)));
    assert_eq!((world.table.len(), world.ended(FlowEnd::Requests)), (0, 1));
}

#[test]
fn after_the_last_request_answers_still_come_and_the_next_datagram_begins_anew() {
    let mut world = World::new(", udp: {requests: 2}", ONE);
    let (first, _) = world.opened(0, 1);
    assert_eq!(world.ask(1, 1), Verdict::Forward(first));
    let (second, _) = world.opened(2, 1);
    assert!(world.answer(3, first).is_some() && world.answer(3, second).is_some());
    world.table.expire(Moment(60_003));
    assert_eq!(world.ended(FlowEnd::Requests), 1);
    assert_eq!(world.ended(FlowEnd::Idle), 1);
}

#[test]
fn answers_beyond_the_last_are_not_sent() {
    let mut world = World::new(", udp: {responses: 3}", ONE);
    let (flow, _) = world.opened(0, 1);
    let load = Load {
        datagrams: 5,
        bytes: 500,
    };
    let answer = world.table.from_endpoint(Moment(1), flow, load).unwrap();
    assert_eq!(answer.datagrams, 3);
    assert_eq!((world.table.len(), world.ended(FlowEnd::Responses)), (0, 1));
    let counters = world.plan.frontends()[0].state().counters().of(WorkerId(0));
    assert_eq!(counters.bytes_out.value(), 300);
}

#[test]
fn a_flow_that_has_had_more_answers_than_a_new_table_allows_ends_with_the_next_question() {
    for udp in ["requests: 1, responses: 1", "responses: 2", "responses: 3"] {
        let mut world = World::new("", ONE);
        let (old, _) = world.opened(0, 1);
        for _ in 0..3 {
            assert!(world.answer(1, old).is_some());
        }
        world.swap(&format!(", udp: {{{udp}}}"), ONE);
        let (new, _) = world.opened(2, 1);
        assert_eq!(world.answer(3, new).map(|answer| answer.datagrams), Some(1));
        assert_eq!(world.answer(3, old), None, "{udp}");
        assert_eq!(world.ended(FlowEnd::Endpoint), 0, "{udp}");
    }
    // Below its limit a flow goes on.
    let mut world = World::new("", ONE);
    let (flow, _) = world.opened(0, 1);
    assert!(world.answer(1, flow).is_some());
    world.swap(", udp: {responses: 2}", ONE);
    assert_eq!(world.ask(2, 1), Verdict::Forward(flow));
    assert!(world.answer(3, flow).is_some());
    assert_eq!(world.ended(FlowEnd::Responses), 1);
}

#[test]
fn a_socket_for_single_datagrams_that_has_had_more_answers_than_a_new_table_allows_is_replaced() {
    let mut world = World::new(", udp: {per-datagram: true}", ONE);
    let (old, _) = world.opened(0, 1);
    for _ in 0..3 {
        assert!(world.answer(1, old).is_some());
    }
    world.swap(", udp: {per-datagram: true, responses: 2}", ONE);
    let (new, _) = world.opened(2, 1);
    assert_eq!(world.answer(3, new).map(|answer| answer.datagrams), Some(1));
}

#[test]
fn datagrams_by_themselves_take_turns_and_their_answers_return() {
    let mut world = World::new(", udp: {per-datagram: true}", TWO);
    let (one, port) = world.opened(0, 1);
    let (other, other_port) = world.opened(1, 1);
    assert_ne!(port, other_port);
    assert_eq!(world.ask(2, 1), Verdict::Forward(one));
    assert_eq!(world.ask(3, 1), Verdict::Forward(other));
    assert!(world.answer(4, one).is_some());
    world.table.expire(Moment(70_000));
    assert_eq!(world.ended(FlowEnd::PerDatagram), 2);
}

#[test]
fn a_fixed_source_port_follows_a_replaced_endpoint_with_the_next_datagram() {
    let mut world = World::new("", ONE);
    let (_, port) = world.opened(0, 1);
    world.swap("", "{address: '10.0.0.1:2'}");
    let (flow, next) = world.opened(1, 1);
    assert_eq!((port, next), (1, 2));
    assert_eq!(world.ended(FlowEnd::Endpoint), 1);
    world.swap("", TWO);
    assert_eq!(world.ask(2, 1), Verdict::Forward(flow));
    world.swap(
        "",
        "{address: '10.0.0.1:1'}, {address: '10.0.0.1:2', state: draining}",
    );
    assert_eq!(
        world.ask(3, 1),
        Verdict::Forward(flow),
        "draining keeps its flows"
    );
    world.swap(
        "",
        "{address: '10.0.0.1:1'}, {address: '10.0.0.1:2', state: disabled}",
    );
    assert_eq!(world.opened(4, 1).1, 1);
}

#[test]
fn who_is_refused_goes_elsewhere_and_where_there_is_nobody_else_tries_again() {
    let mut world = World::new("", TWO);
    let (flow, port) = world.opened(0, 1);
    world.refuse(1, flow);
    let (flow, next) = world.opened(2, 1);
    assert_ne!(port, next);
    assert_eq!(world.ended(FlowEnd::Refused), 1);
    world.swap("", &format!("{{address: '10.0.0.1:{next}'}}"));
    world.refuse(3, flow);
    assert_eq!(world.opened(4, 1).1, next);
}

#[test]
fn a_move_takes_no_new_place_in_the_limits() {
    let mut world = World::new(", max-connections: 1", ONE);
    world.opened(0, 1);
    assert_eq!(world.ask(1, 2), Verdict::Drop(Dropped::MaxConnections));
    world.swap(", max-connections: 1", "{address: '10.0.0.1:2'}");
    assert_eq!(world.opened(2, 1).1, 2);
    assert_eq!(world.ask(3, 2), Verdict::Drop(Dropped::MaxConnections));
    world.table.expire(Moment(60_002));
    world.opened(60_003, 2);
}

#[test]
fn source_ranges_hold_for_flows_that_are_there_already() {
    let mut world = World::new("", ONE);
    let (flow, _) = world.opened(0, 1);
    world.swap(", source-ranges: ['9.0.0.0/8']", ONE);
    assert_eq!(world.ask(1, 1), Verdict::Drop(Dropped::SourceRange));
    world.swap("", ONE);
    assert_eq!(world.ask(2, 1), Verdict::Forward(flow));
}

#[test]
fn questions_with_an_answer_end_after_two_seconds_where_there_is_little_room() {
    let mut world = World::of(10, "", ONE);
    for client in 0..6 {
        let (flow, _) = world.opened(0, client);
        world.answer(u64::from(client), flow);
    }
    assert_eq!(world.table.next_deadline(), Some(Moment(2_000)));
    world.table.expire(Moment(2_000));
    assert_eq!((world.table.len(), world.ended(FlowEnd::Evicted)), (5, 1));
    assert!(
        world.table.next_deadline() > Some(Moment(2_005)),
        "half is enough"
    );
}

#[test]
fn a_flood_keeps_the_number_of_flows_bounded_and_the_established_ones_served() {
    let mut world = World::of(1_000, "", TWO);
    let flows: Vec<FlowId> = (0..100)
        .map(|client| {
            let (flow, _) = world.opened(0, client);
            world.answer(1, flow);
            assert_eq!(world.ask(2, client), Verdict::Forward(flow));
            flow
        })
        .collect();
    for n in 0..300_000_u32 {
        world.opened(3 + u64::from(n) / 30, 1_000 + n);
        assert!(world.table.len() <= 1_000);
    }
    for (client, flow) in (0..).zip(flows) {
        assert_eq!(world.ask(20_000, client), Verdict::Forward(flow));
    }
}

#[test]
fn when_the_process_ends_flows_go_on_and_new_ones_do_not_begin() {
    let mut world = World::new("", ONE);
    let (flow, _) = world.opened(0, 1);
    world.table.refuse_new();
    assert_eq!(world.ask(1, 1), Verdict::Forward(flow));
    assert_eq!(world.ask(1, 2), Verdict::Drop(Dropped::Ending));
    assert!(world.answer(2, flow).is_some());
}

#[test]
fn a_datagram_that_would_come_back_is_dropped_and_a_flow_leaves_who_would_send_it_back() {
    let mut world = World::new("", "{address: '127.0.0.1:53'}");
    assert_eq!(world.ask(0, 1), Verdict::Drop(Dropped::Loop));
    assert!(world.table.is_empty());

    world.swap("", "{address: '127.0.0.1:54'}");
    world.opened(0, 1);
    // Another frontend of the same service now has that index.
    let another = "}, {name: g, protocol: udp, bind: ['127.0.0.1:54'], service: s";
    world.swap(another, "{address: '127.0.0.1:54'}");
    assert_eq!(world.ask(1, 1), Verdict::Drop(Dropped::Loop));
    assert_eq!(world.ended(FlowEnd::Endpoint), 1);

    world.swap(
        another,
        "{address: '127.0.0.1:54'}, {address: '127.0.0.1:55'}",
    );
    let (_, port) = world.opened(2, 1);
    assert_eq!(port, 55);
}

#[test]
fn a_peer_that_was_introduced_is_known_until_its_flow_ends() {
    let mut world = World::new("", ONE);
    let key = Key {
        client: "198.51.100.7:99".parse().unwrap(),
        ..key(1)
    };
    let ask = |world: &World| {
        world
            .table
            .client_of_peer(key.listener, key.peer, key.local)
    };
    assert_eq!(ask(&world), None);
    let frontend = Arc::clone(&world.plan.frontends()[0]);
    let load = Load::one(1);
    let opened = world
        .table
        .from_client(Moment(0), key, load, &frontend, &mut world.rng);
    assert!(matches!(opened, Verdict::Open { .. }));
    assert_eq!(ask(&world), Some(key.client));
    world.table.expire(Moment(60_000));
    assert_eq!(ask(&world), None);
}

#[test]
fn a_datagram_touches_two_lines_of_memory_of_its_flow_and_a_flow_three() {
    type Legged = Flow<[u64; 2]>;
    assert!(std::mem::offset_of!(Legged, began) <= 128);
    assert_eq!(size_of::<crate::slots::Slot<Legged>>(), 192);
    assert_eq!(size_of::<Compact>(), 48);
}

#[test]
fn a_flow_takes_less_than_half_a_kilobyte() {
    // The index is at least a third full; while it grows, the old one exists next to it.
    let index = 3 * 2 * size_of::<u32>() * 3 / 2;
    let links = 2 * 3 * size_of::<u32>() + size_of::<u64>();
    let flow = size_of::<crate::slots::Slot<Flow<[u64; 2]>>>() + index + 2 * links;
    assert!(flow < 512, "{flow}");
}

#[test]
fn keys_come_back_as_they_were() {
    for (peer, local, client) in [
        ("192.0.2.1:7", "198.51.100.1", "192.0.2.1:7"),
        ("192.0.2.1:7", "198.51.100.1", "203.0.113.1:9"),
        ("[2001:db8::1]:7", "2001:db8::2", "[2001:db8::1]:7"),
        ("[fe80::1%3]:7", "fe80::2", "[fe80::1]:7"),
        ("[::ffff:192.0.2.1]:7", "::ffff:198.51.100.1", "192.0.2.1:7"),
        ("[2001:db8::1]:7", "192.0.2.1", "[2001:db8::1]:7"),
    ] {
        let key = Key {
            listener: Listener(5),
            peer: peer.parse().unwrap(),
            local: local.parse().unwrap(),
            client: client.parse().unwrap(),
        };
        let alone = Compact::new(&key, None);
        let to_one = Compact::new(&key, Some("192.0.2.9:53".parse().unwrap()));
        assert_eq!((alone.key(), to_one.key()), (key, key), "{peer}");
        assert_ne!(alone, to_one);
    }
}

#[test]
fn a_flow_too_many_for_the_ports_of_an_endpoint_ends_its_longest_idle_one() {
    let mut world = World::new("", ONE);
    world.table = FlowTable::new(WorkerId(0), 100, 7).with_ports((40_000..40_016).collect());
    let ports: Vec<u16> = (0..15)
        .map(|client| {
            let at = u64::from(client);
            let (flow, _) = world.opened(at, client);
            assert!(world.answer(at, flow).is_some());
            assert_eq!(world.ask(at, client), Verdict::Forward(flow));
            world.port(at, flow).expect("a port").address.port()
        })
        .collect();
    // A deadline that became earlier is checked late.
    assert!(matches!(world.ask(200, 0), Verdict::Forward(_)));
    let (flow, _) = world.opened(300, 100);
    assert_eq!(world.port(300, flow), None, "one of sixteen rests");
    assert!(
        world
            .table
            .evict_for_port(Moment(300), flow, [None].into_iter())
    );
    let local = world.port(300, flow).expect("a port");
    assert!(!local.is_shared);
    assert!(!ports[2..].contains(&local.address.port()) && local.address.port() != ports[0]);
    assert!(matches!(world.ask(301, 0), Verdict::Forward(_)));
    assert!(
        matches!(world.ask(301, 1), Verdict::Open { .. }),
        "it ended"
    );
    assert_eq!(world.ended(FlowEnd::Evicted), 1);
    // No flow has that source address.
    let source = Some(IpAddr::from([192, 0, 2, 1]));
    assert!(
        !world
            .table
            .evict_for_port(Moment(302), flow, [source].into_iter())
    );
}

#[test]
fn who_finds_no_descriptor_takes_that_of_another_flow() {
    let mut world = World::new("", ONE);
    let (old, _) = world.opened(0, 1);
    assert!(world.answer(0, old).is_some());
    assert_eq!(world.ask(0, 1), Verdict::Forward(old));
    let (new, _) = world.opened(1, 2);
    assert!(world.table.evict_for(Moment(1), new));
    assert_eq!(world.answer(2, old), None);
    assert_eq!(world.ask(2, 2), Verdict::Forward(new));
    assert!(
        !world.table.evict_for(Moment(3), new),
        "nobody else is there"
    );
    assert_eq!(world.ask(4, 2), Verdict::Forward(new));
}

#[test]
fn flows_that_are_there_follow_a_new_idle_time() {
    let mut world = World::of(10_000, "", ONE);
    let count = 3_000;
    for client in 0..count {
        world.opened(u64::from(client), client);
    }
    world.swap(", timeouts: {idle: 1s}", ONE);
    world.follow();
    world.table.expire(Moment(1_999));
    assert_eq!(world.table.len(), 2_000, "those from 1,000 on are younger");
    world.swap(", timeouts: {idle: 10s}", ONE);
    world.follow();
    world.table.expire(Moment(10_999));
    assert_eq!(world.table.len(), 2_000);
    world.table.expire(Moment(12_999));
    assert!(world.table.is_empty());
}

#[test]
fn a_flow_is_active_for_two_seconds_after_a_datagram() {
    let mut world = World::of(10_000, "", ONE);
    let flows: Vec<FlowId> = (0..3_000)
        .map(|client| world.opened(u64::from(client), client).0)
        .collect();
    assert_eq!(world.active(2_999), 2_000);
    assert!(world.answer(4_000, flows[7]).is_some());
    assert_eq!(world.active(5_999), 1);
    assert_eq!(world.active(6_000), 0);
    assert_eq!(world.table.len(), 3_000, "they are served all the same");
}
