//! What one decision costs, by the number of Services: each change of the cluster costs one, whatever changed.
//!
//! Measured is the time on a processor, not that on the clock: other work on the machine does not count.

use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use ballast_controller::allocation::Allocated;
use ballast_controller::decide::{Allotment, Memo, decide, decide_again};
use ballast_controller::observe::Observed;
use ballast_controller::settings::{Flags, Role, Settings};
use clap::Parser;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn decisions(criterion: &mut Criterion) {
    let settings = settings();
    let mut group = criterion.benchmark_group("decide");
    group.sample_size(10);
    for services in [100, 1_000, 10_000] {
        let mut observed = None;
        group.bench_function(BenchmarkId::from_parameter(services), |bench| {
            let observed = observed.get_or_insert_with(|| cluster(services));
            bench.iter_custom(|times| of_decisions(times, observed, &settings));
        });
    }
    group.finish();
}

/// The publisher's decision about 10,000 Services that a pool is for: all of them new; one new one beside those that have theirs; and
/// that after a decision that knew the others. The same without the pool, for comparison, and with a pool that is too small for most.
fn of_pools(criterion: &mut Criterion) {
    let settings = settings().in_role(Role::Publisher);
    let mut new = cluster(10_000);
    // The publisher watches no endpoints.
    new.slices.clear();
    let mut pooled = new.clone();
    let pool = "kind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: edge}\nspec: {addresses: [10.128.0.0/16]}\n";
    assert_eq!(pooled.take_file("pool.yaml", pool), []);
    let one_more = |observed: &Observed| {
        let mut given = observed.clone();
        for status in decide(observed, &settings).statuses.into_iter().skip(1) {
            let (Some(Allotment::Given(allocation)), Some(service)) =
                (status.allotment, given.services.get_mut(&status.service))
            else {
                continue;
            };
            Arc::make_mut(service).allocated = Some(Allocated {
                allocation,
                since: 0,
            });
        }
        given
    };
    let full = |pool: &str| {
        let mut observed = new.clone();
        assert_eq!(observed.take_file("pool.yaml", pool), []);
        observed
    };
    let small = "kind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: edge}\nspec: {addresses: [10.128.0.0/24]}\n";
    // Another system has as many addresses, of another pool.
    let theirs = "---\nkind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: theirs}\nspec: {addresses: [10.129.0.0/16], autoAssign: false}\n";
    let mut foreign = full(&[small, theirs].concat());
    for index in 0..10_000 {
        let (high, low) = (index / 250, index % 250);
        let text = format!(
            "kind: Service\nmetadata: {{name: s{index}, namespace: theirs}}\nspec: {{type: LoadBalancer, loadBalancerClass: theirs, ports: [{{port: 80}}]}}\nstatus: {{loadBalancer: {{ingress: [{{ip: 10.129.{high}.{low}}}]}}}}\n"
        );
        assert_eq!(foreign.take_file("theirs.yaml", &text), []);
    }
    let cases = [
        ("all, refused", full(small)),
        ("all, refused beside another system", foreign),
        ("all", pooled.clone()),
        ("one more", one_more(&pooled)),
        ("all, no pool", new.clone()),
        ("one more, no pool", one_more(&new)),
    ];
    let mut group = criterion.benchmark_group("pools");
    group.sample_size(10);
    for (name, observed) in &cases {
        group.bench_function(*name, |bench| {
            bench.iter_custom(|times| of_decisions(times, observed, &settings));
        });
    }
    for (name, observed) in [
        ("one more, again", &cases[3].1),
        ("one more, no pool, again", &cases[5].1),
    ] {
        let mut before = observed.clone();
        before.services.pop_first();
        group.bench_function(name, |bench| {
            bench.iter_custom(|times| of_changes(times, [observed, &before], &settings));
        });
    }
    group.finish();
}

/// How long this thread ran for this many decisions, each about one Service more or less than that before.
fn of_changes(times: u64, observed: [&Observed; 2], settings: &Settings) -> Duration {
    let mut memo = Memo::default();
    let mut observed = observed.into_iter().cycle();
    for one in observed.by_ref().take(2) {
        decide_again(&mut memo, one, settings);
    }
    let before = on_processor();
    for (_, one) in (0..times).zip(observed) {
        black_box(decide_again(&mut memo, black_box(one), settings));
    }
    on_processor() - before
}

/// How long this thread ran for this many decisions.
fn of_decisions(times: u64, observed: &Observed, settings: &Settings) -> Duration {
    let before = on_processor();
    for _ in 0..times {
        black_box(decide(black_box(observed), settings));
    }
    on_processor() - before
}

/// How long this thread ran so far.
fn on_processor() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts that");
    let nanos = text.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanos.expect("a number"))
}

fn settings() -> Settings {
    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }
    let cli = Cli::parse_from(["bench", "--node-name=lb1"]);
    Settings::new(cli.flags).expect("good flags")
}

/// Services with a few annotations and 20 endpoints each.
fn cluster(services: usize) -> Observed {
    let mut observed = Observed::default();
    let node = "kind: Node\nmetadata: {name: lb1, labels: {role: loadbalancer}}\nstatus: {addresses: [{type: InternalIP, address: 10.77.1.1}]}\n";
    observed.take_file("node.yaml", node);
    for index in 0..services {
        let (high, low) = (index / 250, index % 250);
        let mut text = format!(
            "kind: Service
metadata:
  name: s{index}
  namespace: shop
  annotations: {{loadbalancer.openstack.org/proxy-protocol: v2, loadbalancer.openstack.org/lb-method: LEAST_CONNECTIONS}}
spec: {{type: LoadBalancer, ports: [{{port: {}}}]}}
---
kind: EndpointSlice
metadata: {{name: s{index}-x, namespace: shop, labels: {{kubernetes.io/service-name: s{index}}}}}
addressType: IPv4
ports: [{{port: 8080}}]
endpoints:
",
            2_000 + index
        );
        for endpoint in 1..=20 {
            writeln!(
                text,
                "- {{addresses: [10.{high}.{low}.{endpoint}], nodeName: w{endpoint}}}"
            )
            .expect("a String takes everything");
        }
        assert_eq!(observed.take_file("services.yaml", &text), []);
    }
    observed
}

criterion_group!(benches, decisions, of_pools);
criterion_main!(benches);
