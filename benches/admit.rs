//! What it costs to let a client in: source ranges at 10 and 10,000 of them, and the limits.

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
    for count in [10_u32, 10_000] {
        // /24s with gaps between them, so that none merge; half of the clients are in one.
        let set = PrefixSet::new((0..count).map(|n| {
            let prefix = format!("{}/24", Ipv4Addr::from(n << 9));
            prefix.parse().expect("a prefix")
        }));
        let mut rng = Rng::new(1);
        let clients: Vec<IpAddr> = (0..4096)
            .map(|_| {
                let bits = u32::try_from(rng.below(u64::from(count) << 9)).expect("below 2³²");
                IpAddr::V4(bits.into())
            })
            .collect();
        let mut next = clients.iter().cycle();
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                next.next()
                    .is_some_and(|client| set.contains(black_box(*client)))
            });
        });
    }
    group.finish();
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
