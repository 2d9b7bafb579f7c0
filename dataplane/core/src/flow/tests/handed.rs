//! Flows that go over to another table.

use super::*;
use crate::flow::{Adopting, HandedFlow, Phase};

impl World {
    /// Gives away all flows.
    fn give(&mut self, at: u64) -> Vec<HandedFlow> {
        let given = self.table.give(Moment(at), 2, |_| Some(5));
        given.into_iter().map(|(flow, ())| flow).collect()
    }

    /// Takes a flow, as one of `workers` workers.
    fn adopt(&mut self, at: u64, handed: &HandedFlow, workers: usize) -> Option<FlowId> {
        let frontend = Arc::clone(&self.plan.frontends()[0]);
        let flow = self.table.adopt(
            Moment(at),
            Listener(1),
            workers,
            handed,
            &Adopting::by(&frontend),
        )?;
        self.table.attach(flow, ());
        Some(flow)
    }

    fn open_and_attach(&mut self, at: u64, client: u32) -> FlowId {
        let (flow, _) = self.opened(at, client);
        self.table.attach(flow, ());
        flow
    }

    /// Sessions begun, and flows ended.
    fn counted(&self) -> (u64, u64) {
        let state = self.plan.frontends()[0].state();
        let ended = state.udp_counts().ended.iter().sum();
        (state.counts().sessions, ended)
    }

    fn with_ports(self) -> Self {
        Self {
            table: FlowTable::new(WorkerId(0), 100, 7).with_ports((40_000..40_016).collect()),
            ..self
        }
    }
}

#[test]
fn a_flow_that_goes_over_keeps_its_endpoint_its_numbers_and_its_idle_time() {
    let settings = ", timeouts: {idle: 10s}, udp: {responses: 3}";
    let mut old = World::new(settings, TWO).with_ports();
    let flow = old.open_and_attach(1_000, 1);
    let local = old.port(1_000, flow).unwrap().address;
    assert!(old.answer(4_000, flow).is_some());
    let endpoint = old.table.endpoint(flow).unwrap().address();
    let given = old.give(5_000);
    assert_eq!((old.table.len(), old.counted()), (0, (0, 0)));
    let [handed] = &given[..] else {
        panic!("{given:?}");
    };
    assert_eq!((handed.began_ms, handed.last_ms), (4_000, 1_000));
    assert_eq!((handed.requests, handed.responses), (1, 1));
    assert_eq!((handed.bound, handed.is_alone), (Some(local), false));

    let mut next = World::new(settings, TWO).with_ports();
    let flow = next.adopt(2_000, handed, 2).unwrap();
    assert_eq!(next.adopt(2_000, handed, 2), None, "it is there");
    assert_eq!(next.table.endpoint(flow).unwrap().address(), endpoint);
    assert_eq!(next.table.endpoint(flow).unwrap().in_flight(), 1);
    assert_eq!(next.counted(), (1, 0));
    assert_eq!(next.plan.frontends()[0].state().admit().current(), 1);
    next.table.expire(Moment(10_999));
    assert_eq!(next.table.len(), 1);
    assert_eq!(next.ask(10_999, 1), Verdict::Forward(flow));
    assert!(next.answer(11_000, flow).is_some() && next.answer(11_000, flow).is_some());
    assert_eq!((next.table.len(), next.ended(FlowEnd::Responses)), (0, 1));
    // Another one goes over once more.
    let again = World::new(settings, TWO)
        .with_ports()
        .adopt(0, handed, 2)
        .is_some();
    assert!(again);
}

#[test]
fn what_the_next_plan_does_not_have_is_not_adopted() {
    let mut old = World::new("", ONE);
    old.open_and_attach(0, 1);
    let handed = old.give(1).remove(0);
    for (most, endpoints, is_adopted) in [
        (100, TWO, true),
        (100, "{address: '10.0.0.1:2'}", false),
        (1, ONE, false),
    ] {
        let mut next = World::of(most, ", max-connections: 1", endpoints);
        if most == 1 {
            next.opened(0, 9);
        }
        let adopted = next.adopt(0, &handed, 2);
        assert_eq!(adopted.is_some(), is_adopted, "{endpoints}");
    }
    let other = HandedFlow {
        service: "t".into(),
        ..handed
    };
    assert_eq!(World::new("", ONE).adopt(0, &other, 2), None);
}

#[test]
fn flows_that_go_over_are_evicted_in_the_order_that_their_process_says() {
    let mut old = World::new("", ONE);
    for (at, client) in [(0, 1), (10, 2), (20, 3)] {
        old.open_and_attach(at, client);
    }
    let mut handed = old.give(30);
    handed.sort_by_key(|flow| flow.last_ms);
    let mut next = World::of(3, "", ONE);
    let adopted: Vec<FlowId> = handed
        .iter()
        .map(|flow| next.adopt(0, flow, 2).unwrap())
        .collect();
    for flow in adopted.iter().rev() {
        next.table.queue_last(Moment(0), *flow);
    }
    for left in [2, 1, 0] {
        assert!(next.table.evict(Moment(1)));
        let rest = adopted.iter().take(left);
        assert!(
            rest.clone()
                .all(|flow| next.table.endpoint(*flow).is_some())
        );
        assert_eq!(next.table.len(), left);
    }
}

#[test]
fn what_happens_to_the_next_datagram_goes_along() {
    for (settings, phase) in [
        ("", Phase::Open),
        ("", Phase::Refused),
        (", udp: {requests: 1}", Phase::LastRequest),
        (", udp: {per-datagram: true}", Phase::PerDatagram),
    ] {
        let mut old = World::new(settings, TWO);
        let flow = old.open_and_attach(0, 1);
        if phase == Phase::Refused {
            old.refuse(0, flow);
        }
        let handed = old.give(1).remove(0);
        assert_eq!(handed.phase, phase);
        let mut next = World::new(settings, TWO);
        let flow = next.adopt(1, &handed, 2).unwrap();
        assert!(next.answer(2, flow).is_some(), "{phase:?}");
        let asked = next.ask(3, 1);
        let goes_on = asked == Verdict::Forward(flow);
        match phase {
            Phase::Open => assert!(goes_on),
            // It is that endpoint's turn, or the other one's.
            Phase::PerDatagram => assert!(goes_on || next.ask(4, 1) == Verdict::Forward(flow)),
            _ => assert!(!goes_on, "{phase:?}"),
        }
    }
}

#[test]
fn a_port_is_shared_only_where_all_its_flows_are_in_one_worker() {
    let mut old = World::new("", ONE).with_ports();
    let flow = old.open_and_attach(0, 1);
    let port = old.port(0, flow).unwrap().address.port();
    let handed = old.give(0).remove(0);
    for (workers, is_alone, may_share) in [(2, false, true), (3, false, false), (2, true, false)] {
        let handed = HandedFlow {
            is_alone,
            ..handed.clone()
        };
        let mut next = World::new("", "{address: '10.0.0.1:2'}, {address: '10.0.0.1:1'}");
        next.table = FlowTable::new(WorkerId(0), 100, 7).with_ports(vec![port]);
        let flow = next.adopt(0, &handed, workers).unwrap();
        next.swap(
            "",
            "{address: '10.0.0.1:1', state: disabled}, {address: '10.0.0.1:2'}",
        );
        let (other, endpoint) = next.opened(1, 2);
        assert_eq!(endpoint, 2);
        let local = next.port(1, other);
        assert_eq!(
            local.map(|local| local.is_shared),
            may_share.then_some(true)
        );
        // Once the flow has ended, the port is as any other.
        next.table.end(Moment(2), flow, FlowEnd::Idle);
        if !may_share {
            assert!(!next.port(2, other).unwrap().is_shared);
        }
        // A port of another worker is not noted, and none here is taken for it.
        let mut other = World::new("", ONE).with_ports();
        let elsewhere = HandedFlow {
            bound: Some(SocketAddr::from(([0, 0, 0, 0], 50_000))),
            ..handed
        };
        other.adopt(0, &elsewhere, workers).unwrap();
        assert_eq!(other.give(0)[0].bound, None);
    }
}
