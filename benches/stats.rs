//! What a scrape costs: 2,000 services of 10 endpoints, every one of which has counted something on two workers.

mod common;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use ballast::stats::{self, Observer, Process, Selection, Snapshot};
use ballast_core::counters::WorkerId;
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use common::{compiled, parsed};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn scrape(criterion: &mut Criterion) {
    let plan = plan();
    let mut observer = Observer::default();
    let snapshot = Arc::new(look(&mut observer, &plan, 1_000));
    let mut group = criterion.benchmark_group("stats");
    group.sample_size(20);
    let mut now = 1_000;
    group.bench_function("look", |bencher| {
        bencher.iter(|| {
            now += 1;
            look(&mut observer, &plan, now).services.len()
        });
    });
    group.bench_function("tick", |bencher| {
        bencher.iter(|| {
            now += 1_000;
            observer.tick(&plan, 0, Moment(now));
        });
    });
    let render = |form: fn(Arc<Snapshot>, Selection) -> stats::Chunks| {
        let chunks = form(Arc::clone(&snapshot), Selection::default());
        chunks.map(|chunk| chunk.len() as u64).sum::<u64>()
    };
    for (name, form) in FORMS {
        group.throughput(Throughput::Bytes(render(form)));
        group.bench_function(name, |bencher| bencher.iter(|| black_box(render(form))));
    }
    group.finish();
}

type Form = fn(Arc<Snapshot>, Selection) -> stats::Chunks;

const FORMS: [(&str, Form); 4] = [
    ("csv", stats::csv),
    ("metrics", stats::metrics),
    ("json", stats::json),
    ("api", stats::api),
];

fn look(observer: &mut Observer, plan: &Arc<Plan>, now: u64) -> Snapshot {
    observer.snapshot(plan, Process::default(), &BTreeMap::new(), Moment(now))
}

/// 2,000 frontends, 2,000 services, 20,000 endpoints: 24,000 rows.
fn plan() -> Arc<Plan> {
    let frontends: Vec<String> = (0..SERVICES)
        .map(|at| {
            let (high, low) = (at / 250, at % 250);
            format!(r#"{{"name": "shop-{at}-http", "bind": ["127.1.{high}.{low}:80"], "protocol": "tcp", "service": "shop-{at}-http"}}"#)
        })
        .collect();
    let services: Vec<String> = (0..SERVICES)
        .map(|at| {
            let (high, low) = (at / 250, at % 250);
            let endpoints: Vec<String> = (0..ENDPOINTS)
                .map(|port| format!(r#"{{"address": "10.{high}.{low}.7:{}"}}"#, 8080 + port))
                .collect();
            format!(
                r#"{{"name": "shop-{at}-http", "endpoints": [{}]}}"#,
                endpoints.join(", ")
            )
        })
        .collect();
    let text = format!(
        r#"{{"version": 1, "frontends": [{}], "services": [{}]}}"#,
        frontends.join(", "),
        services.join(", ")
    );
    let plan = Arc::new(compiled(parsed(&text), &Plan::default()));
    for worker in [WorkerId(0), WorkerId(1)] {
        plan.services().iter().for_each(|service| {
            service.state().counters(worker).sessions.add(12_345);
            for endpoint in service.endpoints() {
                let counters = endpoint.live().counters(worker);
                let wait = Duration::from_millis(3);
                counters.session(Moment(77), wait, wait);
                counters.bytes_in.add(123_456_789);
                counters.bytes_out.add(9_876_543_210);
            }
        });
        plan.frontends().iter().for_each(|frontend| {
            let counters = frontend.state().counters().of(worker);
            counters.connections.add(12_345);
        });
    }
    plan
}

const SERVICES: usize = 2_000;
const ENDPOINTS: usize = 10;

criterion_group!(benches, scrape);
criterion_main!(benches);
