//! What a choice costs: each algorithm at 10, 100 and 10,000 endpoints, picked and given back.

use std::fmt::Write as _;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use ballast_core::moment::Moment;
use ballast_core::overrides::Override;
use ballast_core::pick::{Key, Tried};
use ballast_core::rng::Rng;
use ballast_core::service::{Node, Service, ServiceContext};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

const SIZES: [usize; 3] = [10, 100, 10_000];
const NOW: Moment = Moment(1_000_000);

fn algorithms(criterion: &mut Criterion) {
    let cases = [
        ("round-robin", "", false),
        ("round-robin, weights", "", true),
        (
            "least-connections",
            r#""algorithm": "least-connections","#,
            false,
        ),
        ("source-hash", r#""algorithm": "source-hash","#, false),
        (
            "source-hash, weights",
            r#""algorithm": "source-hash","#,
            true,
        ),
        (
            "source-port-hash",
            r#""algorithm": "source-port-hash","#,
            false,
        ),
        ("random", r#""algorithm": "random","#, false),
        ("first", r#""algorithm": "first","#, false),
        ("affinity", r#""affinity": {"client-ip": "1h"},"#, false),
    ];
    for (name, words, weights) in cases {
        let mut group = criterion.benchmark_group(format!("pick/{name}"));
        for size in SIZES {
            let service = service(words, size, weights);
            pick(&mut group, &service, size, &Tried::default());
        }
        group.finish();
    }
}

/// Nine of ten fail their checks.
fn mostly_down(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pick/round-robin, nine of ten down");
    for size in SIZES {
        let service = service("", size, false);
        for (index, endpoint) in service.endpoints().iter().enumerate() {
            endpoint.live().set_passing(index % 10 == 7, NOW);
        }
        pick(&mut group, &service, size, &Tried::default());
    }
    group.finish();
}

/// A further attempt looks at all endpoints.
fn further_attempt(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pick/round-robin, further attempt");
    for size in SIZES {
        let service = service("", size, false);
        let mut tried = Tried::default();
        tried.note(
            &service.endpoints()[0],
            ballast_core::service::Failure::TimedOut,
        );
        pick(&mut group, &service, size, &tried);
    }
    group.finish();
}

/// 10,000 services with 10 endpoints each, at the start and once more with everything known.
fn compile(criterion: &mut Criterion) {
    let spec: Vec<_> = (0..10_000).map(|n| spec(n, "", 10, false)).collect();
    let mut group = criterion.benchmark_group("compile/10000x10");
    group.sample_size(10);
    group.bench_function("at start", |bencher| {
        bencher.iter(|| {
            spec.iter()
                .map(|spec| compiled(spec, None))
                .collect::<Vec<_>>()
        });
    });
    let old: Vec<_> = spec.iter().map(|spec| compiled(spec, None)).collect();
    group.bench_function("swap", |bencher| {
        bencher.iter(|| {
            let pairs = spec.iter().zip(&old);
            pairs
                .map(|(spec, old)| compiled(spec, Some(old)))
                .collect::<Vec<_>>()
        });
    });
    group.finish();
}

type Group<'a> = criterion::BenchmarkGroup<'a, criterion::measurement::WallTime>;

fn pick(group: &mut Group<'_>, service: &Service, size: usize, tried: &Tried) {
    let mut rng = Rng::new(1);
    let mut client: u32 = 0;
    group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
        bencher.iter(|| {
            client = (client + 0x9e37_79b1) & 0x0000_ffff;
            let key = Key::new(SocketAddr::from((client.to_be_bytes(), 4_000)));
            black_box(service.pick(&key, tried, NOW, &mut rng)).is_ok()
        });
    });
}

fn service(words: &str, size: usize, weights: bool) -> Service {
    compiled(&spec(0, words, size, weights), None)
}

fn spec(n: usize, words: &str, size: usize, weights: bool) -> Arc<ballast_core::table::Service> {
    let mut json = format!(r#"{{"name": "service-{n}", {words} "endpoints": ["#);
    for index in 0..size {
        let comma = if index == 0 { "" } else { "," };
        let weight = if weights { 1 + index % 7 } else { 1 };
        let address = format!("10.{}.{}.{}:80", n % 256, index / 250, 1 + index % 250);
        write!(
            json,
            r#"{comma}{{"address": "{address}", "weight": {weight}}}"#
        )
        .expect("a string takes all");
    }
    json.push_str("]}");
    Arc::new(serde_json::from_str(&json).expect("a service of the table"))
}

fn compiled(spec: &Arc<ballast_core::table::Service>, previous: Option<&Service>) -> Service {
    let mut context = ServiceContext {
        now: NOW,
        workers: 2,
        node: &mut |name| Arc::new(Node::new(name)),
        left: &|_| None,
        gone: &|_, _| None,
        over: &|_, _| Override::default(),
        moved: None,
        closing: &[],
    };
    Service::compile(Arc::clone(spec), previous, &mut context)
}

criterion_group!(benches, algorithms, mostly_down, further_attempt, compile);
criterion_main!(benches);
