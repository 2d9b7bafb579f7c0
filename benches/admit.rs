//! What it costs to let a client in: source ranges at 10, 100 and 10,000 of them, and the limits.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::task::Waker;

use ballast_core::admit::{AdmitState, Limits, PrefixSet};
use ballast_core::moment::Moment;
use ballast_core::rng::Rng;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn source_ranges(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("admit/source-ranges");
    for count in [10_u32, 100, 10_000] {
        let mut rng = Rng::new(1);
        // Single addresses anywhere. Half of the clients are one of them.
        let addresses: Vec<u32> = (0..count).map(|_| low(rng.next_u64())).collect();
        let clients: Vec<u32> = (0..4096)
            .map(|turn| {
                let known = addresses.get(usize::try_from(rng.below(count.into())).unwrap_or(0));
                match turn % 2 {
                    0 => known.copied().unwrap_or_default(),
                    _ => low(rng.next_u64()),
                }
            })
            .collect();
        let v6 = |bits: u32| IpAddr::V6((u128::from(bits) << 80 | 0x2001 << 112).into());
        let v4 = |bits: u32| IpAddr::V4(bits.into());
        for (family, length, address) in [
            ("v4", 32, &v4 as &dyn Fn(u32) -> IpAddr),
            ("v6", 64, &v6 as &dyn Fn(u32) -> IpAddr),
        ] {
            let set = PrefixSet::new(
                addresses
                    .iter()
                    .map(|bits| format!("{}/{length}", address(*bits)))
                    .map(|prefix| prefix.parse().expect("a prefix")),
            );
            let clients: Vec<IpAddr> = clients.iter().map(|bits| address(*bits)).collect();
            let mut next = clients.iter().cycle();
            group.bench_function(BenchmarkId::new(family, count), |bencher| {
                bencher.iter(|| {
                    next.next()
                        .is_some_and(|client| set.contains(black_box(*client)))
                });
            });
        }
    }
    group.finish();
}

fn low(bits: u64) -> u32 {
    u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0)
}

fn limits(criterion: &mut Criterion) {
    let none = Limits::default();
    let own = Limits {
        connections: Some(1_000_000),
        rate: Some(1_000_000),
        ..Limits::default()
    };
    let per_client = Limits {
        connections_per_client: Some(1_000_000),
        rate_per_client: Some(1_000_000),
        ..Limits::default()
    };
    let mut group = criterion.benchmark_group("admit/limits");
    for (name, limits) in [
        ("none", &none),
        ("the frontend's", &own),
        ("per client", &per_client),
    ] {
        let state = Arc::new(AdmitState::new(1));
        let mut moment = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                moment += 1;
                let client = IpAddr::V4(Ipv4Addr::from(moment & 0xffff));
                let now = Moment(u64::from(moment));
                black_box(state.admit(limits, client, now, None)).is_ok()
            });
        });
    }
    let state = Arc::new(AdmitState::new(1));
    group.bench_function("the frontend's, with a permit", |bencher| {
        let mut moment = 0;
        bencher.iter(|| {
            moment += 1;
            black_box(state.may_accept(&own, Moment(moment), Waker::noop()))
        });
    });
    group.finish();
}

criterion_group!(benches, source_ranges, limits);
criterion_main!(benches);
