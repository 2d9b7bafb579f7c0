use std::collections::BTreeMap;

use super::super::{Announce, Pools, Problem, ProblemKind, Source, read};
use super::{ask, ip, key, object, pool};

#[test]
fn an_address_pool_is_read_with_all_its_fields() {
    let yaml = "
apiVersion: ballast.dev/v1
kind: AddressPool
metadata: {name: edge, creationTimestamp: '2026-01-01T00:00:01Z', labels: {ballast.dev/internal: 'true'}}
spec:
  addresses: ['192.0.2.0/26', '192.0.2.100-192.0.2.120', '2001:db8:0:1::/120']
  autoAssign: false
  priority: 10
  avoidBuggyIPs: true
  namespaces: [shop]
  namespaceSelector: {matchLabels: {team: edge}}
  serviceSelector: {matchExpressions: [{key: tier, operator: In, values: [gold, silver]}]}
  nodeSelector: {matchExpressions: [{key: edge, operator: Exists}]}
  announce: {mode: bgp}
  reserve: ['192.0.2.1', '192.0.2.8/29', '192.0.2.20-192.0.2.22']
";
    let pool = read::pool(&object(yaml)).expect("a pool");
    assert_eq!(pool.problems, []);
    assert_eq!(
        (pool.name.as_str(), pool.source, pool.created),
        ("edge", Source::Ballast, Some(1_767_225_601))
    );
    assert_eq!(
        (
            pool.auto_assign,
            pool.priority,
            pool.avoid_buggy,
            pool.internal
        ),
        (false, Some(10), true, true)
    );
    assert_eq!(pool.announce, Announce::Bgp);
    let ranges: Vec<String> = pool
        .ranges
        .iter()
        .map(|one| format!("{}={}", one.at, one.range))
        .collect();
    assert_eq!(
        ranges.join(" "),
        "spec.addresses[0]=192.0.2.0-192.0.2.63 spec.addresses[1]=192.0.2.100-192.0.2.120 \
         spec.addresses[2]=2001:db8:0:1::-2001:db8:0:1::ff"
    );
    for (line, is_for) in [
        ("shop/web 80 internal label=tier:gold", true),
        ("shop/web 80 internal", false),
        ("shop/web 80 label=tier:gold", false),
        ("other/web 80 internal label=tier:silver", false),
        (
            "other/web 80 internal label=tier:silver ns-label=team:edge",
            true,
        ),
    ] {
        assert_eq!(pool.is_for(&ask(line)).is_ok(), is_for, "{line}");
    }
    let labels = |text: &str| BTreeMap::from([(text.to_owned(), String::new())]);
    assert!(
        pool.node_selectors.all_or_any(&labels("edge"))
            && !pool.node_selectors.all_or_any(&labels("core"))
    );
    // 64 and 21 of IPv4, without .0 and the 12 in reserve; 256 of IPv6.
    let pools = Pools::new(vec![pool]);
    assert_eq!(
        pools.iter().next().map(super::super::Entry::total),
        Some(64 + 21 - 1 - 12 + 256)
    );
}

#[test]
fn the_examples_of_the_documentation_are_read_without_a_problem() {
    let page = include_str!("../../../../docs/pools.md");
    let blocks = page.split("```yaml\n").skip(1);
    let objects: Vec<_> = blocks
        .filter_map(|rest| Some(object(rest.split("```").next()?)))
        .collect();
    let pools: Vec<_> = objects.iter().filter_map(read::pool).collect();
    assert_eq!(
        pools
            .iter()
            .map(|pool| pool.problems.len())
            .collect::<Vec<_>>(),
        [0]
    );
    let reservations = objects.iter().filter_map(read::reservation);
    assert_eq!(
        reservations
            .map(|one| one.addresses.len())
            .collect::<Vec<_>>(),
        [2]
    );
}

/// What users bring.
#[test]
fn the_pools_of_users_are_read() {
    for (yaml, total) in [
        (
            "{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: first-pool, namespace: metallb-system}, spec: {addresses: [10.10.0.2-10.10.0.10]}}",
            9,
        ),
        (
            "{apiVersion: crd.antrea.io/v1beta1, kind: ExternalIPPool, metadata: {name: edge-addresses}, spec: {ipRanges: [{start: 10.10.0.2, end: 10.10.0.10}], nodeSelector: {matchLabels: {network-role: ingress-node}}}}",
            9,
        ),
    ] {
        let pools = Pools::new(vec![read::pool(&object(yaml)).expect("a pool")]);
        let entry = pools.iter().next().expect("a pool");
        assert_eq!(
            (entry.pool.problems.len(), entry.total()),
            (0, total),
            "{yaml}"
        );
    }
}

#[test]
fn an_address_pool_without_more_is_for_everybody() {
    let pool = pool(
        "AddressPool",
        "edge 01 {addresses: [192.0.2.0/31], namespaceSelector: {}, serviceSelector: {}, nodeSelector: {}}",
    );
    assert!(pool.auto_assign && !pool.is_pinned() && !pool.internal);
    assert_eq!((pool.priority, pool.announce), (None, Announce::L2));
    assert!(
        pool.is_for(&ask("any/one 80")).is_ok() && pool.node_selectors.all_or_any(&BTreeMap::new())
    );
}

#[test]
fn an_ip_address_pool_is_counted_and_pinned_as_by_metallb() {
    let spec = "{addresses: [192.0.2.0/24, 192.0.3.0-192.0.3.3], avoidBuggyIPs: true, serviceAllocation: {priority: 50, \
        namespaces: [a], namespaceSelectors: [{matchLabels: {team: red}}, {matchLabels: {team: blue}}], serviceSelectors: [{matchLabels: {app: web}}]}}";
    let pool = pool("IPAddressPool", &format!("first 01 {spec}"));
    assert_eq!(
        (pool.problems.len(), pool.priority, pool.announce),
        (0, Some(50), Announce::Advertised)
    );
    for (line, is_for) in [
        ("a/web 80 label=app:web", true),
        ("a/web 80", false),
        ("b/web 80 label=app:web", false),
        ("b/web 80 label=app:web ns-label=team:blue", true),
    ] {
        assert_eq!(pool.is_for(&ask(line)).is_ok(), is_for, "{line}");
    }
    let pools = Pools::new(vec![pool]);
    assert_eq!(
        pools.iter().map(super::super::Entry::total).sum::<u128>(),
        254 + 3
    );
}

#[test]
fn an_external_ip_pool_gives_no_ends_of_a_cidr_and_only_by_name() {
    for (ranges, total) in [
        ("{cidr: 10.0.0.0/28}", 14),
        ("{cidr: '2001:db8::/124'}", 15),
        ("{cidr: 10.0.0.0/30}", 2),
        ("{cidr: 10.0.0.0/31}", 0),
        ("{cidr: 10.0.0.0/32}", 0),
        ("{cidr: '2001:db8::/128'}", 0),
        ("{start: 10.10.0.2, end: 10.10.0.10}", 9),
        (
            "{start: 10.0.0.0, end: 10.0.0.15}, {cidr: 10.1.0.0/24}",
            16 + 254,
        ),
    ] {
        let pool = pool(
            "ExternalIPPool",
            &format!(
                "eip 01 {{ipRanges: [{ranges}], nodeSelector: {{matchLabels: {{role: edge}}}}}}"
            ),
        );
        assert!(
            !pool.auto_assign && !pool.node_selectors.all_or_any(&BTreeMap::new()),
            "{ranges}"
        );
        assert_eq!(pool.problems, [], "{ranges}");
        let pools = Pools::new(vec![pool]);
        assert_eq!(
            pools.iter().map(super::super::Entry::total).sum::<u128>(),
            total,
            "{ranges}"
        );
    }
}

#[test]
fn what_is_wrong_in_a_pool_is_told_and_takes_no_other_range_away() {
    for (kind, spec, total, wanted) in [
        (
            "AddressPool",
            "{addresses: [192.0.2.0/33, 192.0.2.0/30]}",
            4,
            "spec.addresses[0]: \"192.0.2.0/33\" is not a CIDR; write one such as 192.0.2.0/26 or 2001:db8::/120",
        ),
        (
            "AddressPool",
            "{addresses: [192.0.2.9-192.0.2.1, 192.0.2.0/30]}",
            4,
            "spec.addresses[0]: \"192.0.2.9-192.0.2.1\" ends before it starts; write the lower address first: 192.0.2.1-192.0.2.9",
        ),
        (
            "AddressPool",
            "{addresses: [192.0.2.7]}",
            0,
            "spec.addresses[0]: \"192.0.2.7\" is no range; write a CIDR or IP-IP, for one address IP/32 or IP/128",
        ),
        (
            "AddressPool",
            "{addresses: [7, 192.0.2.0/30]}",
            4,
            "spec.addresses[0]: is no text; put it into quotes",
        ),
        (
            "AddressPool",
            "{addresses: []}",
            0,
            "spec.addresses: pool has no prefixes defined; add a range such as 192.0.2.0/26",
        ),
        (
            "IPAddressPool",
            "{}",
            0,
            "spec.addresses: pool has no prefixes defined; add a range such as 192.0.2.0/26",
        ),
        (
            "ExternalIPPool",
            "{ipRanges: []}",
            0,
            "spec.ipRanges: pool has no prefixes defined; add a range such as 192.0.2.0/26",
        ),
        (
            "ExternalIPPool",
            "{ipRanges: [{start: 10.0.0.1}, {start: 10.0.0.1, end: 10.0.0.2}]}",
            2,
            "spec.ipRanges[0]: has neither cidr nor start and end; write one of the two",
        ),
        (
            "AddressPool",
            "{addresses: ['::/0', 0.0.0.0/0, 224.0.0.1/32]}",
            0,
            "spec.addresses[0]: \"::/0\" has addresses that no host can hold (unspecified, link-local or multicast); leave them out",
        ),
        (
            "AddressPool",
            "{addresses: [192.0.2.0/30], reserve: [gateway]}",
            4,
            "spec.reserve[0]: \"gateway\" contains \"gateway\", which is not an address; write one such as 192.0.2.10 or 2001:db8::10",
        ),
        (
            "AddressPool",
            "{addresses: [192.0.2.0/30], autoAssign: maybe}",
            4,
            "spec.autoAssign: is neither true nor false, so true is used; write one of the two",
        ),
        (
            "AddressPool",
            "{addresses: [192.0.2.0/30], priority: -1}",
            4,
            "spec.priority: is no priority, so the pool comes last; write a number from 1",
        ),
        (
            "AddressPool",
            "{addresses: [192.0.2.0/30], announce: {mode: arp}}",
            4,
            "spec.announce.mode: is no mode, so l2 is used; write l2, bgp or none",
        ),
        (
            "AddressPool",
            "{addresses: [192.0.2.0/30, 192.0.2.2/31]}",
            4,
            "spec.addresses[1]: \"192.0.2.2/31\" overlaps with already defined CIDR 192.0.2.0-192.0.2.3 of this pool, and counts once; take one of the two away",
        ),
    ] {
        let pools = Pools::new(vec![pool(kind, &format!("edge 01 {spec}"))]);
        let entry = pools.iter().next().expect("a pool");
        assert_eq!(
            entry
                .pool
                .problems
                .first()
                .map(Problem::to_string)
                .as_deref(),
            Some(wanted),
            "{spec}"
        );
        assert_eq!(entry.total(), total, "{spec}");
    }
}

/// A pool whose restrictions cannot be read is for nobody, rather than for everybody.
#[test]
fn a_selector_that_cannot_be_read_selects_nothing() {
    for spec in [
        "serviceSelector: {matchExpressions: [{key: a, operator: Like}]}",
        "namespaceSelector: {matchExpressions: [{key: a, operator: In}]}",
        "namespaceSelector: all",
        "namespaces: [7]",
    ] {
        let pool = pool(
            "AddressPool",
            &format!("edge 01 {{addresses: [192.0.2.0/30], {spec}}}"),
        );
        assert!(pool.is_for(&ask("any/one 80")).is_err(), "{spec}");
        assert_eq!(pool.problems.len(), 1, "{spec}");
    }
    let pool = pool(
        "AddressPool",
        "edge 01 {addresses: [192.0.2.0/30], nodeSelector: {matchLabels: 7}}",
    );
    assert!(!pool.node_selectors.all_or_any(&BTreeMap::new()));
    assert_eq!(
        pool.problems.first().map(|one| one.kind),
        Some(ProblemKind::BadSelector)
    );
}

#[test]
fn of_two_pools_that_overlap_the_older_one_has_the_addresses() {
    let pools = Pools::new(vec![
        pool(
            "AddressPool",
            "young 03 {addresses: [192.0.2.0/24, 198.51.100.0/30]}",
        ),
        pool(
            "IPAddressPool",
            "old 01 {addresses: [192.0.2.64-192.0.2.127]}",
        ),
        pool(
            "AddressPool",
            "middle 02 {addresses: [192.0.2.0/25], reserve: [192.0.2.1]}",
        ),
    ]);
    let seen: Vec<String> = pools
        .iter()
        .map(|one| format!("{} {}", one.pool, one.total()))
        .collect();
    assert_eq!(
        seen,
        [
            "IPAddressPool old 64",
            "AddressPool middle 63",
            "AddressPool young 132"
        ]
    );
    for (address, name) in [
        ("192.0.2.64", "old"),
        ("192.0.2.1", "middle"),
        ("192.0.2.128", "young"),
        ("198.51.100.3", "young"),
    ] {
        assert_eq!(
            pools.of(ip(address)).map(|one| one.pool.name.as_str()),
            Some(name),
            "{address}"
        );
    }
    assert!(
        pools.of(ip("192.0.3.0")).is_none()
            && pools.of(ip("192.0.1.255")).is_none()
            && pools.of(ip("::1")).is_none()
    );
    let problems: Vec<(ProblemKind, String)> = pools
        .iter()
        .flat_map(|one| &one.pool.problems)
        .map(|one| (one.kind, one.to_string()))
        .collect();
    let text = |text: &str| format!("spec.addresses[0]: {text}; take them out of one of the two");
    assert_eq!(
        problems,
        [
            (
                ProblemKind::TwoSystems,
                text(
                    "\"192.0.2.0/25\" overlaps with already defined CIDR 192.0.2.64-192.0.2.127 of IPAddressPool old, which belongs to another system, is older and has these addresses"
                )
            ),
            (
                ProblemKind::Overlap,
                text(
                    "\"192.0.2.0/24\" overlaps with already defined CIDR 192.0.2.0-192.0.2.63 of AddressPool middle, which is older and has these addresses"
                )
            ),
            (
                ProblemKind::TwoSystems,
                text(
                    "\"192.0.2.0/24\" overlaps with already defined CIDR 192.0.2.64-192.0.2.127 of IPAddressPool old, which belongs to another system, is older and has these addresses"
                )
            ),
        ]
    );
}

#[test]
fn objects_of_other_kinds_are_no_pools() {
    for yaml in [
        "{apiVersion: v1, kind: Service, metadata: {name: edge}}",
        "{apiVersion: ballast.dev/v2, kind: AddressPool, metadata: {name: edge}}",
        "{apiVersion: metallb.io/v1beta1, kind: L2Advertisement, metadata: {name: edge}}",
        "{apiVersion: ballast.dev/v1, kind: AddressPool, metadata: {}}",
        "[]",
    ] {
        assert!(
            read::pool(&object(yaml)).is_none() && read::reservation(&object(yaml)).is_none(),
            "{yaml}"
        );
    }
}

#[test]
fn a_reservation_is_read() {
    let yaml = "{apiVersion: ballast.dev/v1, kind: AddressReservation, metadata: {name: web, namespace: shop}, spec: {addresses: [192.0.2.7, '2001:db8::7', x]}}";
    let read = read::reservation(&object(yaml)).expect("a reservation");
    assert_eq!((read.service, read.created), (key("shop/web"), None));
    assert_eq!(read.addresses, [ip("192.0.2.7"), ip("2001:db8::7")]);
}
