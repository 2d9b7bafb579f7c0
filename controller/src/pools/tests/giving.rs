use std::collections::BTreeMap;

use super::super::{Refusal, Taken, give, give_all, read};
use super::{ask, follow, held, ip, key, object, pool, pools};
use crate::allocation::NodePort;
use crate::observe::Family;
use crate::pools::{Families, Pools};

/// Follows the lines from an empty index.
#[track_caller]
fn given(of: &str, lines: &str) {
    follow(&pools(of), &mut Taken::default(), lines);
}

const EDGE: &str = "edge 01 {addresses: [192.0.2.0/30, 2001:db8::/126], reserve: [192.0.2.0]}";

#[test]
fn the_smallest_free_address_is_given_first() {
    given(
        EDGE,
        "
        a/one 80 -> 192.0.2.1 edge
        a/two 80 -> 192.0.2.2 edge
        a/one 80 -> 192.0.2.1 edge
        a/three 80 -> 192.0.2.3 edge
        a/four 80 -> refused: no available IPs: AddressPool edge has no free IPv4 address (3 of 3 used); add addresses to a pool, or delete a Service that has one
        a/five 80 v6 -> 2001:db8:: edge
        ",
    );
}

#[test]
fn a_freed_address_is_given_again() {
    let pools = pools(EDGE);
    let mut taken = Taken::default();
    follow(
        &pools,
        &mut taken,
        "a/one 80 -> 192.0.2.1 edge\n a/two 80 -> 192.0.2.2 edge",
    );
    taken.free(&key("a/one"));
    follow(
        &pools,
        &mut taken,
        "a/three 80 -> 192.0.2.1 edge\n a/one 80 -> 192.0.2.3 edge",
    );
}

#[test]
fn pools_are_tried_by_pins_then_priority_then_age() {
    let of = "
        old 01 {addresses: [192.0.2.1/32]}
        young 05 {addresses: [192.0.2.2/32]}
        late 02 {addresses: [192.0.2.3/32], priority: 20}
        early 04 {addresses: [192.0.2.4/32], priority: 10}
        named 01 {addresses: [192.0.2.5/32], autoAssign: false}
        shop 09 {addresses: [192.0.2.6/32], namespaces: [shop]}
        gold 08 {addresses: [192.0.2.7/32], priority: 5, serviceSelector: {matchLabels: {tier: gold}}}
    ";
    given(
        of,
        "
        shop/a 80 label=tier:gold -> 192.0.2.7 gold
        shop/b 80 label=tier:gold -> 192.0.2.6 shop
        shop/c 80 label=tier:gold -> 192.0.2.4 early
        x/d 80 -> 192.0.2.3 late
        x/e 80 -> 192.0.2.1 old
        x/f 80 -> 192.0.2.2 young
        x/g 80 -> refused: no available IPs: AddressPool early has no free IPv4 address (1 of 1 used), AddressPool late has no free IPv4 address (1 of 1 used), \
AddressPool old has no free IPv4 address (1 of 1 used), AddressPool young has no free IPv4 address (1 of 1 used); add addresses to a pool, or delete a Service that has one
        ",
    );
}

#[test]
fn a_pool_by_name_gives_without_auto_assign_and_nothing_takes_its_place() {
    let of = "
        edge 01 {addresses: [192.0.2.0/30]}
        named 02 {addresses: [198.51.100.1/32], autoAssign: false}
        shop 03 {addresses: [203.0.113.0/30], namespaces: [shop]}
        lan 04 {addresses: [10.0.0.0/30]}
    ";
    given(
        of,
        "
        a/one 80 pool=named -> 198.51.100.1 named
        a/two 80 pool=named -> refused: no available IPs: AddressPool named has no free IPv4 address (1 of 1 used); add addresses to a pool, or delete a Service that has one
        a/two 80 pool=named,edge -> 192.0.2.0 edge
        a/three 80 pool=gone -> refused: unknown pool \"gone\"; name one of \"edge\", \"named\", \"shop\", \"lan\", or change ballast.dev/address-pool
        a/three 80 pool=shop -> refused: AddressPool shop is not for the namespace a; name another pool, or none
        shop/four 80 pool=shop -> 203.0.113.0 shop
        a/five 80 internal -> refused: no available IPs: no pool gives to this Service by itself; name a pool by ballast.dev/address-pool, or create one for it
        a/five 80 internal pool=lan -> refused: AddressPool lan is not for internal Services; label one ballast.dev/internal=true; name another pool, or none
        ",
    );
    given(
        "",
        "a/one 80 pool=edge -> refused: unknown pool \"edge\"; create an AddressPool, or change ballast.dev/address-pool",
    );
}

#[test]
fn of_many_pools_a_refusal_names_the_first() {
    let many =
        (10..20).map(|number| format!("p{number} 01 {{addresses: [192.0.2.{number}/32]}}\n"));
    let refused = give(
        &pools(&many.collect::<String>()),
        &Taken::default(),
        &ask("a/one 80 pool=gone"),
    );
    let text = refused.expect_err("no such pool").to_string();
    assert!(
        text.ends_with("\"p16\", \"p17\" and 2 more, or change ballast.dev/address-pool"),
        "{text}"
    );
}

#[test]
fn of_pools_with_one_name_ours_is_first() {
    let pools = Pools::new(vec![
        pool("IPAddressPool", "edge 01 {addresses: [192.0.2.1/32]}"),
        pool("AddressPool", "edge 02 {addresses: [192.0.2.2/32]}"),
        pool(
            "ExternalIPPool",
            "eip 01 {ipRanges: [{start: 192.0.2.3, end: 192.0.2.3}]}",
        ),
    ]);
    let lines = "
        a/one 80 pool=edge -> 192.0.2.2 edge
        a/two 80 pool=edge -> 192.0.2.1 edge
        a/three 80 -> refused: no available IPs: IPAddressPool edge has no free IPv4 address (1 of 1 used), AddressPool edge has no free IPv4 address (1 of 1 used); \
add addresses to a pool, or delete a Service that has one
        a/three 80 pool=eip -> 192.0.2.3 eip
    ";
    follow(&pools, &mut Taken::default(), lines);
}

#[test]
fn requested_addresses_are_given_or_the_reason_is_told() {
    let of = "
        edge 01 {addresses: [192.0.2.0/28], reserve: [192.0.2.1], avoidBuggyIPs: true}
        named 02 {addresses: [198.51.100.0/30, 2001:db8::/126], autoAssign: false}
        shop 03 {addresses: [203.0.113.0/30], namespaces: [shop]}
    ";
    given(
        of,
        "
        a/one 80 want=192.0.2.7 -> 192.0.2.7 edge
        a/two 80 want=192.0.2.7 -> refused: 192.0.2.7 is in use by a/one: it has no ballast.dev/sharing-key; give both the same, or request another address
        a/two 80 want=192.0.2.1 -> refused: AddressPool edge does not give 192.0.2.1, which is in its reserve; request another address
        a/two 80 want=192.0.2.0 -> refused: AddressPool edge does not give 192.0.2.0, which ends with .0 or .255, which its avoidBuggyIPs leaves out; request another address
        a/two 80 want=192.0.2.99 -> refused: no pool holds 192.0.2.99; add it to one, or request another address
        a/two 80 want=203.0.113.1 -> refused: AddressPool shop is not for the namespace a; name another pool, or none
        a/two 80 want=2001:db8::1 -> refused: 2001:db8::1 does not match the ipFamilies of the Service; request an address of these, or change ipFamilyPolicy
        a/two 80 want=192.0.2.2 pool=named -> refused: 192.0.2.2 is of AddressPool edge, and the Service is to use \"named\"; name that pool, or request another address
        a/two 80 want=198.51.100.1 -> 198.51.100.1 named
        a/three 80 prefer want=192.0.2.3,2001:db8::1 -> refused: 192.0.2.3, 2001:db8::1 are of two pools; request addresses of one
        a/three 80 prefer6 want=198.51.100.2,2001:db8::1 -> 2001:db8::1,198.51.100.2 named
        ",
    );
    let eip = Pools::new(vec![pool(
        "ExternalIPPool",
        "eip 01 {ipRanges: [{cidr: 10.0.0.0/28}]}",
    )]);
    let line = "a/one 80 want=10.0.0.0 -> refused: ExternalIPPool eip does not give 10.0.0.0, which is an end of a CIDR, which an ExternalIPPool does not give; request another address";
    follow(&eip, &mut Taken::default(), line);
}

#[test]
fn two_families_come_from_one_pool() {
    let of = "
        four 01 {addresses: [192.0.2.0/30]}
        both 02 {addresses: [198.51.100.0/31, 2001:db8::/128]}
    ";
    given(
        of,
        "
        a/one 80 -> 192.0.2.0 four
        a/two 80 require -> 198.51.100.0,2001:db8:: both
        a/three 80 require -> refused: no available IPs: AddressPool four has no IPv6 address, AddressPool both has no free IPv6 address (1 of 1 used); \
add addresses to a pool, or delete a Service that has one
        a/four 80 prefer -> 192.0.2.1 four
        a/five 80 v6 -> refused: no available IPs: AddressPool four has no IPv6 address, AddressPool both has no free IPv6 address (1 of 1 used); \
add addresses to a pool, or delete a Service that has one
        a/six 80 any pool=both -> 198.51.100.1 both
        a/seven 80 require want=198.51.100.1 key=x -> refused: 198.51.100.1 is in use by a/six: it has no ballast.dev/sharing-key; give both the same, or request another address
        ",
    );
    given(
        "both 01 {addresses: [198.51.100.0/31, 2001:db8::/126]}",
        "
        a/one 80 require want=198.51.100.1 -> 198.51.100.1,2001:db8:: both
        a/two 80 prefer want=2001:db8::3 -> 198.51.100.0,2001:db8::3 both
        a/three 80 prefer want=2001:db8::1 -> 2001:db8::1 both
        a/four 80 require want=2001:db8::2 -> refused: no available IPs: AddressPool both has no free IPv4 address (2 of 2 used); add addresses to a pool, or delete a Service that has one
        a/five 80 any -> 2001:db8::2 both
        ",
    );
}

/// Whatever becomes of the pool. What is refused beside it is told.
#[test]
fn what_a_service_has_stays() {
    let of = "
        edge 01 {addresses: [192.0.2.0/30, 2001:db8::/128], namespaces: [shop]}
        other 02 {addresses: [198.51.100.0/30, 2001:db8:1::/126], autoAssign: false}
    ";
    given(
        of,
        "
        = a/pinned 80 -> 192.0.2.1 edge
        a/pinned 80 -> 192.0.2.1 edge
        = a/removed 80 -> 203.0.113.1 edge
        a/removed 80 -> 203.0.113.1 edge
        = a/gone 80 -> 203.0.113.2 gone
        a/gone 80 -> 203.0.113.2 gone
        a/gone 80 pool=gone -> 203.0.113.2 gone
        = a/unknown 80 -> 198.51.100.1
        a/unknown 80 -> 198.51.100.1 other
        = a/elsewhere 80 pool=other -> 203.0.113.9
        a/elsewhere 80 pool=other -> 198.51.100.0 other
        = a/in-part 80 prefer -> 198.51.100.2,2001:db8:9::9
        a/in-part 80 prefer -> 198.51.100.2,2001:db8:1:: other
        = a/reserved 80 want=203.0.113.3 -> 203.0.113.3 gone
        a/reserved 80 want=203.0.113.3 -> 203.0.113.3 gone
        ",
    );
    // It ends where the Service itself asks for something else.
    given(
        of,
        "
        = a/one 80 -> 192.0.2.1 edge
        a/one 80 pool=other -> 198.51.100.0 other
        a/one 80 pool=other want=198.51.100.3 -> 198.51.100.3 other
        a/one 80 pool=other want=198.51.100.0 -> 198.51.100.0 other
        a/one 80 v6 pool=other -> 2001:db8:1:: other
        = a/two 80 -> 198.51.100.1 other
        a/two 80 internal -> refused: no available IPs: no pool gives to this Service by itself; name a pool by ballast.dev/address-pool, or create one for it
        ",
    );
}

#[test]
fn a_second_family_comes_later_from_the_same_pool_only() {
    let of = "
        four 01 {addresses: [192.0.2.0/30]}
        both 02 {addresses: [198.51.100.0/30, 2001:db8::/127]}
    ";
    let no_second = "pool \"four\", which the Service has its address of, has no free IPv6 address; add some to that pool, or make the Service anew";
    let lines = format!(
        "
        = a/one 80 -> 198.51.100.2 both
        a/one 80 prefer -> 198.51.100.2,2001:db8:: both
        a/one 80 -> 198.51.100.2 both
        a/one 80 v6 -> 2001:db8:: both
        a/one 80 prefer6 -> 2001:db8::,198.51.100.0 both
        = a/two 80 -> 192.0.2.2 four
        a/two 80 prefer -> 192.0.2.2 four
        a/two 80 require -> 192.0.2.2 four; {no_second}
        a/two 80 prefer want=2001:db8::1 -> 192.0.2.2 four; 192.0.2.2, 2001:db8::1 are of two pools; request addresses of one
        = a/three 80 -> 198.51.100.3 both
        a/three 80 prefer want=2001:db8:: -> 198.51.100.3 both; 2001:db8:: is in use by a/one: it has no ballast.dev/sharing-key; give both the same, or request another address
        a/three 80 prefer want=2001:db8::1 -> 198.51.100.3,2001:db8::1 both
        "
    );
    given(of, &lines);
}

#[test]
fn a_port_that_another_has_is_not_added_and_the_rest_stays() {
    given(
        EDGE,
        "
        a/one 80,443 key=k -> 192.0.2.1 edge
        b/two 53,53/udp key=k -> 192.0.2.1 edge
        b/two 53,53/udp,443,8443 key=k -> 192.0.2.1 edge; port 443/TCP of 192.0.2.1 is in use by a/one; use another port or another address
        a/one 80 key=k -> 192.0.2.1 edge
        b/two 53,53/udp,443,8443 key=k -> 192.0.2.1 edge
        c/three 8443 key=k want=192.0.2.1 -> refused: port 8443/TCP of 192.0.2.1 is in use by b/two; use another port or another address
        c/three 8443 key=k -> 192.0.2.2 edge
        ",
    );
}

#[test]
fn ballasts_own_ports_are_given_to_nobody_who_has_them_not() {
    let own = BTreeMap::from([(NodePort::tcp(1936), "the stats page".to_owned())]);
    let (mut taken, _) = Taken::new(own, []);
    let refused = "port 1936/TCP is Ballast's own (the stats page); use another port";
    let lines = format!(
        "
        a/one 80,1936 -> refused: {refused}
        a/one 80 -> 192.0.2.1 edge
        a/one 80,1936 -> 192.0.2.1 edge; {refused}
        = a/two 1936 -> 192.0.2.2 edge
        a/two 80,1936 -> 192.0.2.2 edge
        a/three 1936/udp -> 192.0.2.3 edge
        "
    );
    follow(&pools(EDGE), &mut taken, &lines);
}

#[test]
fn a_reserved_address_waits_for_its_service() {
    let reservation = |name: &str, second: u8, addresses: &str| {
        let yaml = format!(
            "{{apiVersion: ballast.dev/v1, kind: AddressReservation, metadata: {{name: {name}, namespace: a, creationTimestamp: '2026-01-01T00:00:0{second}Z'}}, spec: {{addresses: [{addresses}]}}}}"
        );
        read::reservation(&object(&yaml)).expect("a reservation")
    };
    let mut taken = Taken::default();
    taken.reserve(&[
        reservation("late", 2, "192.0.2.2"),
        reservation("web", 1, "192.0.2.2, '2001:db8::3'"),
        reservation("lost", 1, "203.0.113.1"),
    ]);
    let lines = "
        a/one 80 -> 192.0.2.1 edge
        a/two 80 -> 192.0.2.3 edge
        a/three 80 want=192.0.2.2 -> refused: 192.0.2.2 is kept for a/web; delete that AddressReservation, or request another address
        b/web 80 -> refused: no available IPs: AddressPool edge has no free IPv4 address (3 of 3 used); add addresses to a pool, or delete a Service that has one
        a/web 80 prefer -> 192.0.2.2,2001:db8::3 edge
        a/late 80 prefer6 -> 2001:db8:: edge
        a/lost 80 v6 -> 2001:db8::1 edge
    ";
    follow(&pools(EDGE), &mut taken, lines);
    // It stays reserved when the Service goes.
    taken.free(&key("a/web"));
    follow(
        &pools(EDGE),
        &mut taken,
        "a/four 80 v6 -> 2001:db8::2 edge\n a/web 80 -> 192.0.2.2 edge",
    );
}

#[test]
fn what_another_system_gave_is_not_given() {
    let mut taken = Taken::default();
    taken.of_another_system(key("other/web"), ip("192.0.2.1"));
    let lines = "
        a/one 80 -> 192.0.2.2 edge
        a/two 80 want=192.0.2.1 -> refused: 192.0.2.1 was given to other/web by another system; let one system alone give from a pool, or request another address
        a/three 80 -> 192.0.2.3 edge
        a/four 80 -> refused: no available IPs: AddressPool edge has no free IPv4 address (3 of 3 used) and shares its addresses with another system, \
which gave 192.0.2.1 to other/web: let one system alone give from it; add addresses to a pool, or delete a Service that has one
    ";
    follow(&pools(EDGE), &mut taken, lines);
}

/// Requested addresses first, then the oldest; those who have something are served before.
#[test]
fn all_services_are_given_to_in_order() {
    let pools = pools(EDGE);
    let holds = ask("a/holds 80 born=9");
    let (mut taken, displaced) =
        Taken::new(BTreeMap::new(), [(&holds, held(&holds, "192.0.2.3 edge"))]);
    assert_eq!(displaced, []);
    let asks = [
        "a/young 80 born=3",
        "a/old 80 born=1",
        "a/wants 80 born=5 want=192.0.2.1",
        "a/also 80 born=6 want=192.0.2.1",
        "a/holds 80 born=9",
    ];
    let asks = asks.map(ask);
    let answers = give_all(&pools, &mut taken, &asks, 100);
    let words: Vec<String> = answers
        .iter()
        .map(|(service, answer)| match answer {
            Ok(given) => format!(
                "{service} {}",
                super::words(&given.addresses, &given.pool, &[])
            ),
            Err(refusal) => format!(
                "{service} {}",
                refusal
                    .to_string()
                    .split([':', ';'])
                    .next()
                    .unwrap_or_default()
            ),
        })
        .collect();
    assert_eq!(
        words,
        [
            "a/also 192.0.2.1 is in use by a/wants",
            "a/holds 192.0.2.3 edge",
            "a/old 192.0.2.2 edge",
            "a/wants 192.0.2.1 edge",
            "a/young no available IPs",
        ]
    );
    assert_eq!(
        taken.held(&key("a/old")).and_then(|held| held.since),
        Some(100)
    );
    assert_eq!(
        taken.held(&key("a/holds")).and_then(|held| held.since),
        Some(9)
    );
    // Again: the same, at another time.
    assert_eq!(give_all(&pools, &mut taken, &asks, 200), answers);
    assert_eq!(
        taken.held(&key("a/old")).and_then(|held| held.since),
        Some(100)
    );
}

#[test]
fn pools_are_for_services_that_they_may_give_to() {
    let of = pools(
        "
        shop 01 {addresses: [192.0.2.0/30], namespaces: [shop]}
        named 02 {addresses: [198.51.100.0/30], autoAssign: false}
    ",
    );
    for (line, are) in [
        ("shop/web 80", true),
        ("a/web 80", false),
        ("a/web 80 pool=named", true),
        ("a/web 80 pool=gone", true),
        ("a/web 80 want=198.51.100.1", true),
        ("a/web 80 want=10.0.0.1", false),
    ] {
        assert_eq!(of.are_for(&ask(line)), are, "{line}");
        assert!(!pools("").are_for(&ask(line)), "{line}");
    }
}

#[test]
fn the_families_of_a_service_are_those_that_the_api_server_lists() {
    let both = [Family::V6, Family::V4];
    for (listed, required, wanted) in [
        (&[][..], false, Families::Any),
        (&[], true, Families::Require(Family::V4)),
        (&[Family::V6], false, Families::Single(Family::V6)),
        (&both, false, Families::Prefer(Family::V6)),
        (&both, true, Families::Require(Family::V6)),
    ] {
        assert_eq!(Families::of(listed, required), wanted, "{listed:?}");
    }
}

#[test]
fn a_refusal_does_not_depend_on_what_the_service_had() {
    // The address that it had is free again for others.
    let pools = pools(EDGE);
    let mut taken = Taken::default();
    follow(&pools, &mut taken, "= a/one 80 -> 192.0.2.1 edge");
    let moves = ask("a/one 80 born=1 want=192.0.2.9");
    let waits = ask("a/two 80 born=2 want=192.0.2.1");
    let answers = give_all(&pools, &mut taken, &[moves.clone(), waits], 7);
    assert_eq!(
        answers.get(&key("a/one")),
        Some(&Err(Refusal::NoPoolHolds(ip("192.0.2.9"))))
    );
    assert!(answers.get(&key("a/two")).is_some_and(Result::is_ok));
    assert_eq!(
        give(&pools, &taken, &moves),
        Err(Refusal::NoPoolHolds(ip("192.0.2.9")))
    );
}

#[test]
fn a_pool_that_is_renamed_hands_its_addresses_on() {
    let mut taken = Taken::default();
    let old = pools("old 01 {addresses: [192.0.2.0/30, 2001:db8::/126]}");
    let lines = "
        a/one 80 -> 192.0.2.0 old
        a/two 80 -> 192.0.2.1 old
        a/three 80 -> 192.0.2.2 old
        a/four 80 prefer -> 192.0.2.3,2001:db8:: old
    ";
    follow(&old, &mut taken, lines);
    taken.free(&key("a/one"));
    // Another pool has one family alone.
    let renamed =
        pools("new 02 {addresses: [192.0.2.0/30]}\n six 03 {addresses: ['2001:db8::/126']}");
    let lines = "
        a/two 80 pool=old -> 192.0.2.1 old
        a/two 80 pool=new -> 192.0.2.1 new
        a/three 80 -> 192.0.2.2 new
        a/four 80 prefer -> 192.0.2.3,2001:db8:: old
    ";
    follow(&renamed, &mut taken, lines);
}

#[test]
fn a_reserved_address_that_no_pool_gives_any_more_is_told() {
    let mut taken = Taken::default();
    let yaml = "{apiVersion: ballast.dev/v1, kind: AddressReservation, metadata: {name: web, namespace: a}, spec: {addresses: [192.0.2.0]}}";
    taken.reserve(&[read::reservation(&object(yaml)).expect("a reservation")]);
    let given = give(&pools(EDGE), &taken, &ask("a/web 80")).expect("an address");
    assert_eq!(given.addresses, [ip("192.0.2.1")]);
    let refused: Vec<String> = given.refused.iter().map(ToString::to_string).collect();
    assert_eq!(
        refused,
        [
            "AddressPool edge does not give 192.0.2.0, which is in its reserve; request another address"
        ]
    );
}
