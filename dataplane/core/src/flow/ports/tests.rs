//! The ports against a plain list of flows and their ports.

use std::collections::HashSet;

use super::*;

/// What the model knows of a flow.
#[derive(Clone, Copy, Debug)]
struct Known {
    taken: Taken,
    endpoint: SocketAddr,
    local: Local,
}

fn endpoint(n: u64) -> SocketAddr {
    let last = u8::try_from(n).unwrap();
    match n % 4 {
        3 => SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)], 53)),
        _ => SocketAddr::from(([10, 0, 0, last], 53)),
    }
}

fn source(endpoint: SocketAddr, n: u64) -> IpAddr {
    let last = u8::try_from(n).unwrap();
    match (endpoint, n) {
        (_, 0) => unspecified_source(endpoint),
        (SocketAddr::V4(_), _) => IpAddr::from([192, 0, 2, last]),
        (SocketAddr::V6(_), _) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 1, u16::from(last)]),
    }
}

#[test]
fn no_two_flows_ever_have_the_same_two_addresses() {
    for seed in 0..128 {
        let mut rng = Rng::new(seed);
        let count = 1 + usize::try_from(rng.below(90)).unwrap();
        let first = 40_000;
        let list: Vec<u16> = (first..).take(count).collect();
        let mut ports = LocalPorts::new(list.clone());
        let mut known: Vec<Known> = Vec::new();
        let (endpoints, sources) = (1 + rng.below(6), 1 + rng.below(3));
        for turn in 0..1_500 {
            let leaves = rng.below(if turn / 500 % 2 == 0 { 4 } else { 2 }) == 0;
            if leaves && !known.is_empty() {
                let which = usize::try_from(rng.below(known.len() as u64)).unwrap();
                ports.release(known.swap_remove(which).taken);
                continue;
            }
            let endpoint = endpoint(rng.below(endpoints));
            let source = source(endpoint, rng.below(sources));
            let may_meet = |other: &&Known| overlap(other.local.address.ip(), source);
            let used: HashSet<u16> = known
                .iter()
                .filter(|other| other.endpoint == endpoint)
                .filter(may_meet)
                .map(|other| other.local.address.port())
                .collect();
            let own = known
                .iter()
                .filter(|other| (other.endpoint, other.local.address.ip()) == (endpoint, source));
            let is_full = own.count() >= max_flows_per_group(count) || used.len() == count;
            let Some((taken, local)) = ports.take(Moment(0), endpoint, source, &mut rng) else {
                assert!(is_full, "seed {seed}: a port was left");
                continue;
            };
            assert!(!is_full, "seed {seed}");
            assert_eq!(local.address.ip(), source);
            assert!(list.contains(&local.address.port()));
            assert!(
                !used.contains(&local.address.port()),
                "seed {seed}: mixed up"
            );
            let is_held = known
                .iter()
                .filter(may_meet)
                .any(|other| other.local.address.port() == local.address.port());
            assert_eq!(local.is_shared, is_held, "seed {seed}");
            known.push(Known {
                taken,
                endpoint,
                local,
            });
        }
        known.iter().for_each(|flow| ports.release(flow.taken));
        assert!(ports.sources.is_empty() && ports.by_key.is_empty());
        assert!(ports.groups.iter().all(Option::is_none));
        assert_eq!(ports.free_groups.len(), ports.groups.len() - 1);
    }
}

#[test]
fn ports_are_shared_only_when_none_is_left_that_nobody_has() {
    let mut ports = LocalPorts::new((40_000..40_064).collect());
    let mut rng = Rng::new(1);
    let mut take = |endpoint| {
        let source = unspecified_source(endpoint);
        ports.take(Moment(0), endpoint, source, &mut rng)
    };
    for _ in 0..60 {
        assert!(!take(endpoint(0)).unwrap().1.is_shared);
    }
    assert_eq!(take(endpoint(0)), None, "four rest");
    for n in 0..60 {
        assert_eq!(take(endpoint(1)).unwrap().1.is_shared, n >= 4);
    }
    // The other address family has ports of its own.
    assert!(!take(endpoint(3)).unwrap().1.is_shared);
}

#[test]
fn a_port_of_somebody_else_is_left_alone_for_a_second() {
    let mut ports = LocalPorts::new(vec![40_000, 40_001, 40_002]);
    let mut rng = Rng::new(1);
    let (endpoint, source) = (endpoint(0), unspecified_source(endpoint(0)));
    let mut refused = HashSet::new();
    for _ in 0..3 {
        let (taken, local) = ports.take(Moment(5), endpoint, source, &mut rng).unwrap();
        refused.insert(local.address.port());
        ports.release_foreign(Moment(5), taken);
    }
    assert_eq!(refused.len(), 3, "each is tried once");
    assert_eq!(ports.take(Moment(1_004), endpoint, source, &mut rng), None);
    let (taken, local) = ports
        .take(Moment(1_005), endpoint, source, &mut rng)
        .unwrap();
    assert!(!local.is_shared);
    ports.release(taken);
    assert!(ports.sources.is_empty());
}

#[test]
fn without_ports_nobody_gets_one() {
    let mut ports = LocalPorts::new(Vec::new());
    let mut rng = Rng::new(1);
    let endpoint = endpoint(0);
    assert_eq!(
        ports.take(Moment(0), endpoint, unspecified_source(endpoint), &mut rng),
        None
    );
    ports.release(Taken::default());
    ports.release_foreign(Moment(0), Taken::default());
    assert_eq!(ports.groups.len(), 1);
}

#[test]
fn the_ports_of_a_flow_take_about_four_bytes_of_memory_and_never_many() {
    // As many ports as one of two workers has.
    let count = 12_351;
    let bits = count / 8;
    for flows in [1, 10, 100, 700, count / 16, count / 16 + 1, 5_000, 11_000] {
        let mut used = Used::Few(Vec::new());
        (0..flows).for_each(|port| used.insert(u16::try_from(port).unwrap(), count));
        let bytes = match &used {
            Used::Few(list) => 2 * list.capacity(),
            Used::Many { .. } => bits,
        };
        assert_eq!(used.len(), flows);
        assert!(bytes <= 8.max(4 * flows), "{bytes} bytes for {flows}");
    }
}
