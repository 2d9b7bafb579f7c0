//! What one decision costs, by the number of Services: each change of the cluster costs one, whatever changed.
//!
//! Measured is the time on a processor, not that on the clock: other work on the machine does not count.

use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::time::Duration;

use ballast_controller::decide::decide;
use ballast_controller::observe::Observed;
use ballast_controller::settings::{Flags, Settings};
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
            bench.iter_custom(|times| {
                let before = on_processor();
                for _ in 0..times {
                    black_box(decide(black_box(observed), &settings));
                }
                on_processor() - before
            });
        });
    }
    group.finish();
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

criterion_group!(benches, decisions);
criterion_main!(benches);
