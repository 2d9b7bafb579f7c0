//! Overrides in compiled plans: what they change, what they leave alone, and when they end.

use super::*;
use crate::compile::{CompileContext, compile, revise};
use crate::loops::LOOPBACK_ONLY;
use crate::moment::Moment;
use crate::plan::{Listens, Plan};
use crate::rng::Rng;
use crate::service::Endpoint;
use crate::table::Format;

fn surroundings(rng: &mut Rng) -> CompileContext<'_> {
    CompileContext {
        now: Moment(1000),
        workers: 1,
        ipv6: true,
        host: &LOOPBACK_ONLY,
        rng,
    }
}

fn served(previous: &Plan, yaml: &str) -> Plan {
    let text = format!("version: 1\n{yaml}");
    let table = table::parse(text.as_bytes(), Format::Yaml).unwrap();
    compile(table, previous, &mut surroundings(&mut Rng::new(7)))
}

fn changed(previous: &Plan, change: impl FnOnce(&mut Overrides)) -> Plan {
    let mut overrides = previous.overrides().clone();
    change(&mut overrides);
    revise(previous, overrides, &mut surroundings(&mut Rng::new(7)))
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

const TABLE: &str = "
frontends: [{name: f, bind: ['*:80'], protocol: tcp, service: s, max-connections: 5}]
services:
  - {name: s, endpoints: [{address: '10.0.0.1:80'}, {address: '10.0.0.2:80', weight: 7}]}
  - {name: t, endpoints: [{address: '10.0.0.1:80'}]}
";

#[test]
fn a_change_touches_its_endpoint_alone_and_closes_no_socket() {
    let before = served(&Plan::default(), TABLE);
    let after = changed(&before, |overrides| {
        for address in ["10.0.0.1:80", "10.0.0.2:80"] {
            overrides.change(&OverrideChange::State(
                name("s"),
                at(address),
                Some(State::Disabled),
            ));
        }
        overrides.change(&OverrideChange::Weight(
            name("s"),
            at("10.0.0.2:80"),
            Some(3),
        ));
    });
    let [s, t] =
        ["s", "t"].map(|name| (before.service(name).unwrap(), after.service(name).unwrap()));
    assert!(Arc::ptr_eq(t.0, t.1), "what is not concerned is shared");
    let seen: Vec<_> =
        s.1.endpoints()
            .iter()
            .map(|endpoint| (endpoint.state(), endpoint.weight()))
            .collect();
    assert_eq!(seen, [(State::Disabled, 1), (State::Disabled, 3)]);
    for (old, new) in s.0.endpoints().iter().zip(s.1.endpoints()) {
        assert!(Arc::ptr_eq(old.live(), new.live()));
    }
    assert_eq!(after.frontends()[0].listens(), Listens::Yes);
}

#[test]
fn a_swap_keeps_changes_until_the_table_says_the_same_or_has_no_such_endpoint() {
    let plan = served(&Plan::default(), TABLE);
    let plan = changed(&plan, |overrides| {
        overrides.change(&OverrideChange::Weight(
            name("s"),
            at("10.0.0.1:80"),
            Some(9),
        ));
        overrides.change(&OverrideChange::Weight(
            name("s"),
            at("10.0.0.2:80"),
            Some(9),
        ));
        overrides.change(&OverrideChange::MaxConnections(
            name("f"),
            NonZeroU32::new(50),
        ));
    });
    let plan = served(
        &plan,
        &TABLE.replace("name: f,", "name: f, description: other,"),
    );
    let weights = |plan: &Plan| -> Vec<u16> {
        let service = plan.service("s").unwrap();
        service
            .endpoints()
            .iter()
            .map(|endpoint| endpoint.weight())
            .collect()
    };
    assert_eq!(weights(&plan), [9, 9]);
    assert_eq!(plan.frontends()[0].limits().connections, Some(50));

    let agreeing = TABLE
        .replace("weight: 7", "weight: 9")
        .replace("max-connections: 5", "max-connections: 50");
    let plan = served(&plan, &agreeing);
    let plan = served(&plan, TABLE);
    assert_eq!(
        weights(&plan),
        [9, 7],
        "what the table came to say was none any more"
    );
    assert_eq!(plan.frontends()[0].limits().connections, Some(5));

    let without = TABLE.replace("{address: '10.0.0.1:80'}, ", "");
    let plan = served(&served(&plan, &without), TABLE);
    assert_eq!(
        weights(&plan),
        [1, 7],
        "another one may come with that address"
    );
    assert!(plan.overrides().is_empty());
}

#[test]
fn what_the_table_says_anyway_is_no_change() {
    let plan = served(&Plan::default(), TABLE);
    let plan = changed(&plan, |overrides| {
        overrides.change(&OverrideChange::State(
            name("s"),
            at("10.0.0.1:80"),
            Some(State::Ready),
        ));
        overrides.change(&OverrideChange::Weight(
            name("s"),
            at("10.0.0.2:80"),
            Some(7),
        ));
        overrides.change(&OverrideChange::State(
            name("nobody"),
            at("10.0.0.1:80"),
            Some(State::Disabled),
        ));
        overrides.change(&OverrideChange::MaxConnections(
            name("f"),
            NonZeroU32::new(5),
        ));
    });
    assert!(plan.overrides().is_empty());

    let plan = changed(&plan, |overrides| {
        overrides.change(&OverrideChange::State(
            name("s"),
            at("10.0.0.1:80"),
            Some(State::Draining),
        ));
    });
    assert!(!plan.overrides().is_empty());
    let plan = changed(&plan, |overrides| {
        overrides.change(&OverrideChange::State(name("s"), at("10.0.0.1:80"), None));
    });
    assert!(plan.overrides().is_empty());
}

/// Unchanged services are shared between plans, unless another service's change made a loop of them.
#[test]
fn an_endpoint_enabled_by_hand_may_close_a_loop_over_a_service_that_did_not_change() {
    let chain = served(
        &Plan::default(),
        "
frontends:
  - {name: a, bind: ['*:80'], protocol: tcp, service: x}
  - {name: b, bind: ['*:81'], protocol: tcp, service: y}
services:
  - {name: x, endpoints: [{address: '127.0.0.1:81'}]}
  - {name: y, endpoints: [{address: '127.0.0.1:80', state: disabled}, {address: '10.0.0.1:80'}]}
",
    );
    let closing = |plan: &Plan| -> Vec<bool> {
        let endpoints = plan.services().iter().flat_map(|one| one.endpoints());
        endpoints.map(|endpoint| endpoint.closes_loop()).collect()
    };
    assert_eq!(closing(&chain), [false; 3]);
    let ready = |over: &mut Overrides| {
        over.change(&OverrideChange::State(
            name("y"),
            at("127.0.0.1:80"),
            Some(State::Ready),
        ));
    };
    let context = changed(&chain, ready);
    assert_eq!(closing(&context), [true, true, false]);
    let again = changed(&context, |over| *over = Overrides::default());
    assert_eq!(closing(&again), [false; 3]);
    assert_eq!(again.loops(), chain.loops());
}

#[test]
fn the_limit_of_an_endpoint_is_changed_and_undone() {
    let table = "
frontends: [{name: f, bind: ['*:80'], protocol: tcp, service: s}]
services: [{name: s, endpoints: [{address: '10.0.0.1:80', max-connections: 5}, {address: '10.0.0.2:80'}]}]
";
    let before = served(&Plan::default(), table);
    let limits = |plan: &Plan| -> Vec<Option<u32>> {
        let endpoints = plan.services()[0].endpoints().iter();
        endpoints.map(Endpoint::max_connections).collect()
    };
    let limit = |address, max| {
        OverrideChange::EndpointMaxConnections(name("s"), at(address), NonZeroU32::new(max))
    };
    let after = changed(&before, |overrides| {
        overrides.change(&limit("10.0.0.1:80", 9));
        overrides.change(&limit("10.0.0.2:80", 2));
    });
    assert_eq!(limits(&after), [Some(9), Some(2)]);
    let kept = served(&after, table);
    assert_eq!(limits(&kept), [Some(9), Some(2)]);
    let undone = changed(&kept, |overrides| {
        overrides.change(&limit("10.0.0.1:80", 5));
        overrides.change(&limit("10.0.0.2:80", 0));
    });
    assert_eq!(limits(&undone), [Some(5), None]);
    assert!(undone.overrides().is_empty());
}

#[test]
fn a_frontend_that_is_closed_by_hand_does_not_listen_until_it_is_opened() {
    let before = served(&Plan::default(), TABLE);
    let close = |is_closed| OverrideChange::Closed(name("f"), is_closed);
    let closed = changed(&before, |overrides| overrides.change(&close(true)));
    assert_eq!(closed.frontends()[0].listens(), Listens::Closed);
    let kept = served(&closed, TABLE);
    assert_eq!(kept.frontends()[0].listens(), Listens::Closed);
    let open = changed(&kept, |overrides| overrides.change(&close(false)));
    assert_eq!(open.frontends()[0].listens(), Listens::Yes);
    let gone = served(&kept, "services: []");
    assert!(gone.overrides().is_empty());
}
