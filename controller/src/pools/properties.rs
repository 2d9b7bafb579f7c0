//! What holds of every order of Services that come, change and go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::range::{AddressRange, AddressSet};
use super::tests::{ask, pools};
use super::{Ask, Given, Pools, Refusal, Taken, give, give_all};
use crate::allocation::NodePort;
use crate::observe::{Family, Key};

const POOLS: &str = "
    edge 01 {addresses: [192.0.2.0/29, 2001:db8::/126], reserve: [192.0.2.1], avoidBuggyIPs: true}
    shop 02 {addresses: [198.51.100.0/30], namespaces: [b]}
    both 03 {addresses: [203.0.113.0/30, 2001:db8:1::/127, 192.0.2.0/28], autoAssign: false}
";

/// One Service of twelve, as it is now.
fn service() -> impl Strategy<Value = Ask> {
    let words = |words: &'static [&'static str]| prop::sample::select(words);
    (
        words(&[
            "a/0", "a/1", "a/2", "a/3", "b/0", "b/1", "b/2", "b/3", "c/0", "c/1", "c/2", "c/3",
        ]),
        words(&["80", "80,443", "443", "53/udp", "53,53/udp"]),
        words(&["", "v6", "prefer", "prefer6", "require", "any"]),
        words(&["", "", "key=k", "key=k", "key=l"]),
        words(&[
            "",
            "",
            "",
            "pool=edge",
            "pool=both",
            "pool=shop,both",
            "pool=gone",
        ]),
        words(&[
            "",
            "",
            "",
            "",
            "want=192.0.2.2",
            "want=2001:db8::1",
            "want=192.0.2.1",
            "want=203.0.113.1",
        ]),
        words(&["", "", "", "internal", "strict=app:x"]),
    )
        .prop_map(|(name, ports, families, key, pool, want, more)| {
            ask(&format!(
                "{name} {ports} {families} {key} {pool} {want} {more}"
            ))
        })
}

/// Every Service that is there after each step; each has what it is given.
fn histories() -> impl Strategy<Value = Vec<(Ask, bool)>> {
    prop::collection::vec((service(), prop::bool::weighted(0.8)), 1..60)
}

fn check(
    pools: &Pools,
    asks: &BTreeMap<Key, Ask>,
    answers: &BTreeMap<Key, Result<Given, Refusal>>,
) {
    let mut ports: BTreeMap<(IpAddr, NodePort), &Key> = BTreeMap::new();
    for (service, answer) in answers {
        let Ok(given) = answer else { continue };
        let ask = &asks[service];
        let families: BTreeSet<Family> = given.addresses.iter().copied().map(Family::of).collect();
        assert!(
            !given.addresses.is_empty() && families.len() == given.addresses.len(),
            "{given:?}"
        );
        assert!(given.ports.is_subset(&ask.ports), "{given:?}");
        assert!(
            given.ports == ask.ports || !given.refused.is_empty(),
            "{given:?}"
        );
        assert!(
            ask.pools.is_empty() || ask.pools.contains(&given.pool),
            "{ask:?} {given:?}"
        );
        for address in &given.addresses {
            let entry = pools.of(*address).expect("a pool");
            assert_eq!(
                entry.pool.name, given.pool,
                "both addresses are of one pool"
            );
            assert!(entry.gives(*address).is_ok(), "{given:?}");
            let of_family = |one: &&IpAddr| Family::of(**one) == Family::of(*address);
            let wanted = ask.requested.iter().find(of_family);
            assert!(
                wanted.is_none_or(|wanted| wanted == address),
                "{ask:?} {given:?}"
            );
            for port in &given.ports {
                let other = ports.insert((*address, *port), service);
                assert_eq!(
                    other, None,
                    "{service}: {port:?} of {address} is given twice"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn no_port_of_an_address_is_given_twice_and_what_is_given_stays(history in histories()) {
        let pools = pools(POOLS);
        let mut taken = Taken::default();
        let mut asks: BTreeMap<Key, Ask> = BTreeMap::new();
        let mut before: BTreeMap<Key, Result<Given, Refusal>> = BTreeMap::new();
        for (ask, stays) in history {
            let changed = ask.service.clone();
            match stays {
                true => {
                    asks.insert(changed.clone(), ask);
                }
                false => {
                    asks.remove(&changed);
                    taken.free(&changed);
                }
            }
            let all: Vec<Ask> = asks.values().cloned().collect();
            let answers = give_all(&pools, &mut taken, &all, 0);
            check(&pools, &asks, &answers);
            for (service, answer) in &before {
                // No other Service loses an address or a port by this step.
                if let (Ok(had), Some(Ok(has))) = (answer, answers.get(service).filter(|_| *service != changed)) {
                    assert!(had.addresses.iter().all(|one| has.addresses.contains(one)), "{had:?} {has:?}");
                    assert!(had.ports.is_subset(&has.ports), "{had:?} {has:?}");
                } else if answer.is_ok() && *service != changed {
                    panic!("{service} lost {answer:?} to {changed}");
                }
            }
            // The index says the same when it is made anew, as by the next leader.
            let held = taken.iter().map(|(service, held)| (&asks[service], held.clone()));
            let (mut anew, displaced) = Taken::new(BTreeMap::new(), held);
            assert_eq!(displaced, []);
            assert_eq!(format!("{anew:?}"), format!("{taken:?}"));
            // And deciding again changes nothing; the reason of a refusal may be another one of several.
            let had = |answer: &Result<Given, Refusal>| {
                answer.as_ref().ok().map(|given| (given.addresses.clone(), given.ports.clone()))
            };
            for (service, again) in give_all(&pools, &mut anew, &all, 1) {
                assert_eq!(had(&again), had(&answers[&service]), "{service}");
            }
            before = answers;
        }
    }

    #[test]
    fn a_set_of_addresses_is_what_a_set_of_numbers_is(steps in prop::collection::vec((any::<bool>(), 0u8..64, 0u8..12), 1..40)) {
        let address = |host: u8| IpAddr::from([192, 0, 2, host]);
        let (mut set, mut plain) = (AddressSet::default(), BTreeSet::new());
        for (add, first, length) in steps {
            let hosts = first..=first + length;
            let range = AddressRange::new(address(first), address(first + length)).expect("a range");
            match add {
                true => {
                    set.add(range);
                    plain.extend(hosts);
                }
                false => {
                    set.remove(range);
                    plain.retain(|host| !hosts.contains(host));
                }
            }
            let ranges: Vec<AddressRange> = set.ranges().collect();
            assert!(ranges.windows(2).all(|pair| pair[0].last() < pair[1].first()), "{ranges:?}");
            let all: Vec<bool> = (0..100).map(|host| set.contains(address(host))).collect();
            assert_eq!(all, (0..100).map(|host| plain.contains(&host)).collect::<Vec<_>>());
            let outside = set.first_outside(AddressRange::new(address(first), address(99)).expect("a range"));
            let wanted = (first..100).find(|host| !plain.contains(host)).map(address);
            assert_eq!(outside.map(AddressRange::first), wanted);
            let count: u128 = ranges.iter().map(|range| range.count()).sum();
            assert_eq!(count, plain.len() as u128);
        }
    }
}

/// Ten thousand addresses that are taken are one range, so that the next one is found in one step.
#[test]
fn ten_thousand_services_and_one_more() {
    let pools = pools(
        "
        full 01 {addresses: [192.0.2.0/30], priority: 1}
        edge 02 {addresses: [10.0.0.0/12, 2001:db8::/64]}
    ",
    );
    let asks: Vec<Ask> = (0..10_000)
        .map(|number| {
            ask(&format!(
                "n{}/s{number} 80 prefer born={number}",
                number % 100
            ))
        })
        .collect();
    let mut taken = Taken::default();
    let begun = Instant::now();
    let answers = give_all(&pools, &mut taken, &asks, 0);
    let all = begun.elapsed();
    assert!(answers.values().all(Result::is_ok));
    let ranges: Vec<String> = taken
        .addresses()
        .ranges()
        .map(|one| one.to_string())
        .collect();
    assert_eq!(ranges, ["10.0.0.0-10.0.39.15", "2001:db8::-2001:db8::270f"]);
    let begun = Instant::now();
    let one = give(&pools, &taken, &ask("a/one 80 prefer"));
    let one_more = begun.elapsed();
    assert!(one.is_ok());
    println!("10,000 Services: {all:?}; one more: {one_more:?}");
    // A busy machine, and without optimization.
    assert!(one_more < Duration::from_secs(1), "{one_more:?}");
}
