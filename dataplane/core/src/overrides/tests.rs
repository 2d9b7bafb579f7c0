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

fn moved(plan: &Plan, from: &str, to: Option<&str>) -> Plan {
    let change = OverrideChange::Address(name("s"), at(from), to.map(at));
    assert_eq!(plan.refuses(plan.overrides(), &change), None);
    changed(plan, |overrides| overrides.change(&change))
}

fn addresses(plan: &Plan) -> Vec<String> {
    let endpoints = plan.service("s").unwrap().endpoints().iter();
    endpoints.map(|one| one.address().to_string()).collect()
}

#[test]
fn an_endpoint_with_another_address_is_a_new_one_with_the_same_clients() {
    let before = served(&Plan::default(), TABLE);
    let after = moved(&before, "10.0.0.1:80", Some("10.0.0.9:81"));
    assert_eq!(addresses(&after), ["10.0.0.9:81", "10.0.0.2:80"]);
    let [old, new] = [&before, &after].map(|plan| plan.service("s").unwrap());
    assert!(!Arc::ptr_eq(
        old.endpoints()[0].live(),
        new.endpoints()[0].live()
    ));
    assert!(Arc::ptr_eq(
        old.endpoints()[1].live(),
        new.endpoints()[1].live()
    ));
    assert_eq!(old.endpoints()[0].hash, new.endpoints()[0].hash);
    let called = new.spec().endpoints[0].name.clone();
    assert_eq!(called, Some(Name::of_address(at("10.0.0.1:80"))));

    // It is named by the address that it has; a change that was on its way by the other one still finds it.
    for (address, weight) in [("10.0.0.9:81", 4), ("10.0.0.1:80", 5)] {
        let weight_of = OverrideChange::Weight(name("s"), at(address), Some(weight));
        let light = changed(&after, |overrides| overrides.change(&weight_of));
        assert_eq!(addresses(&light), addresses(&after));
        let endpoint = &light.service("s").unwrap().endpoints()[0];
        assert_eq!(endpoint.weight(), weight);
    }
    let further = moved(&after, "10.0.0.9:81", Some("10.0.0.8:80"));
    assert_eq!(addresses(&further), ["10.0.0.8:80", "10.0.0.2:80"]);
    for end in [None, Some("10.0.0.1:80")] {
        let back = moved(&further, "10.0.0.8:80", end);
        assert_eq!(addresses(&back), ["10.0.0.1:80", "10.0.0.2:80"]);
        assert!(back.overrides().is_empty());
        assert!(!back.service("s").unwrap().has_moved());
    }
}

#[test]
fn another_address_stays_until_the_table_has_it_or_lacks_the_endpoint() {
    let plan = served(&Plan::default(), TABLE);
    let plan = moved(&plan, "10.0.0.1:80", Some("10.0.0.9:80"));
    let other = served(&plan, &TABLE.replace("weight: 7", "weight: 8"));
    assert_eq!(addresses(&other), ["10.0.0.9:80", "10.0.0.2:80"]);
    let live = |plan: &Plan| Arc::clone(plan.service("s").unwrap().endpoints()[0].live());
    assert!(Arc::ptr_eq(&live(&plan), &live(&other)));
    for table in [
        TABLE.replace("10.0.0.2:80", "10.0.0.9:80"),
        TABLE.replace("{address: '10.0.0.1:80'}, ", ""),
        TABLE.replace("{address: '10.0.0.1:80'}, ", "{address: '10.0.0.9:80'}, "),
    ] {
        let next = served(&other, &table);
        assert!(next.overrides().is_empty(), "{table}");
        assert!(!next.service("s").unwrap().has_moved());
    }
}

#[test]
fn an_address_that_cannot_be_is_refused_with_its_reason() {
    let plan = served(&Plan::default(), TABLE);
    let plan = moved(&plan, "10.0.0.1:80", Some("10.0.0.9:80"));
    let refused = |service, address, wanted| {
        let change = OverrideChange::Address(name(service), at(address), Some(at(wanted)));
        let why = plan.refuses(plan.overrides(), &change);
        why.map(|why| why.to_string()).unwrap_or_default()
    };
    for (service, address, wanted, why) in [
        (
            "s",
            "10.0.0.2:80",
            "10.0.0.9:80",
            "another server of this backend has it",
        ),
        (
            "s",
            "10.0.0.2:80",
            "10.0.0.1:80",
            "another server of this backend has it",
        ),
        (
            "s",
            "10.0.0.2:80",
            "0.0.0.0:80",
            "no address that one can connect to",
        ),
        ("s", "10.0.0.2:80", "[ff02::1]:80", "a multicast address"),
        ("s", "10.0.0.2:80", "10.0.0.3:0", "expected 1 to 65535"),
        ("s", "10.0.0.7:80", "10.0.0.3:80", "No such server."),
        ("x", "10.0.0.1:80", "10.0.0.3:80", "No such server."),
        ("s", "10.0.0.2:80", "10.0.0.3:80", ""),
        ("t", "10.0.0.1:80", "10.0.0.9:80", ""),
    ] {
        let said = refused(service, address, wanted);
        assert!(
            said.contains(why) && said.is_empty() == why.is_empty(),
            "{wanted}: {said}"
        );
    }
    let own = OverrideChange::Address(name("s"), at("10.0.0.2:80"), Some(at("127.0.0.1:80")));
    let looped = changed(&plan, |overrides| overrides.change(&own));
    assert_eq!(
        looped.loop_by(&own),
        Some(OverrideRefusal::Loop(at("127.0.0.1:80")))
    );
}

#[test]
fn the_port_of_checks_is_changed_where_there_are_checks() {
    let checked = TABLE.replace("name: s,", "name: s, health: {mode: tcp, port: 8},");
    let port =
        |port| OverrideChange::CheckPort(name("s"), at("10.0.0.1:80"), NonZeroU16::new(port));
    let unchecked = served(&Plan::default(), TABLE);
    let why = unchecked.refuses(unchecked.overrides(), &port(9));
    assert_eq!(why, Some(OverrideRefusal::NoChecks));
    let plan = served(&unchecked, &checked);
    assert_eq!(plan.refuses(plan.overrides(), &port(9)), None);
    let ports = |plan: &Plan| -> Vec<_> {
        let service = plan.service("s").unwrap();
        let ports = (0..2).map(|index| service.check_port(index));
        ports.map(|port| port.map(NonZeroU16::get)).collect()
    };
    let plan = changed(&plan, |overrides| overrides.change(&port(9)));
    assert_eq!(ports(&plan), [Some(9), None]);
    let plan = served(&plan, &checked.replace("weight: 7", "weight: 8"));
    assert_eq!(ports(&plan), [Some(9), None]);
    for table in [checked.replace("port: 8", "port: 9"), TABLE.to_owned()] {
        assert!(served(&plan, &table).overrides().is_empty(), "{table}");
    }
}

#[test]
fn connections_stay_at_the_former_address_until_the_table_lacks_the_endpoint() {
    use crate::change::change;
    use crate::table::OnGone;

    let table = TABLE.replace("name: s,", "name: s, on-removed: close,");
    let plan = served(&Plan::default(), &table);
    let former = Arc::clone(plan.service("s").unwrap().endpoints()[0].live());
    let _lease = former.lease(9).unwrap();
    let after = moved(&plan, "10.0.0.1:80", Some("10.0.0.9:80"));
    let gone = |old: &Plan, new: &Plan| -> Vec<(String, OnGone)> {
        let gone = change(&BTreeSet::new(), old, new).gone_endpoints;
        let gone = gone.iter();
        gone.map(|gone| (gone.endpoint.address().to_string(), gone.connections))
            .collect()
    };
    assert_eq!(gone(&plan, &after), [("10.0.0.1:80".into(), OnGone::Keep)]);
    let back = moved(&after, "10.0.0.9:80", None);
    assert_eq!(gone(&after, &back), [("10.0.0.9:80".into(), OnGone::Keep)]);
    let live = back.service("s").unwrap().endpoints()[0].live();
    assert!(Arc::ptr_eq(live, &former), "its connections count again");

    let without = served(&after, &table.replace("{address: '10.0.0.1:80'}, ", ""));
    let mut all = gone(&after, &without);
    all.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(
        all,
        [
            ("10.0.0.1:80".to_owned(), OnGone::Close),
            ("10.0.0.9:80".to_owned(), OnGone::Close)
        ]
    );
}
