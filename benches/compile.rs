//! A table of 10,000 services with 10 endpoints each: read, compiled at start, and compiled again with one change.

mod common;

use std::fmt::Write as _;
use std::hint::black_box;

use ballast_core::plan::Plan;
use common::{compiled, parsed};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

fn large_table(criterion: &mut Criterion) {
    let (text, changed) = (json(1), json(2));
    let mut group = criterion.benchmark_group("table of 10,000 x 10");
    group.sample_size(20);
    group.bench_function("parse", |bencher| {
        bencher.iter_with_large_drop(|| parsed(black_box(&text)));
    });
    group.bench_function("compile at start", |bencher| {
        bencher.iter_batched(
            || parsed(&text),
            |table| compiled(table, &Plan::default()),
            BatchSize::PerIteration,
        );
    });
    let first = compiled(parsed(&text), &Plan::default());
    group.bench_function("compile with one change", |bencher| {
        bencher.iter_batched(
            || parsed(&changed),
            |table| compiled(table, &first),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// 100 frontends; the last endpoint of all has this weight.
fn json(last_weight: u32) -> String {
    let mut json = String::from(r#"{"version":1,"frontends":["#);
    for frontend in 0..100 {
        let comma = if frontend > 0 { "," } else { "" };
        let port = 20_000 + frontend;
        push(
            &mut json,
            format_args!(
                r#"{comma}{{"name":"f{frontend}","bind":["127.0.0.1:{port}"],"protocol":"tcp","service":"s{frontend}"}}"#
            ),
        );
    }
    json.push_str(r#"],"services":["#);
    for service in 0..10_000 {
        let comma = if service > 0 { "," } else { "" };
        push(
            &mut json,
            format_args!(r#"{comma}{{"name":"s{service}","endpoints":["#),
        );
        for endpoint in 1..=10 {
            let comma = if endpoint > 1 { "," } else { "" };
            let (high, low) = (service / 250, service % 250);
            let is_last = service == 9_999 && endpoint == 10;
            let weight = if is_last { last_weight } else { 1 };
            push(
                &mut json,
                format_args!(
                    r#"{comma}{{"address":"10.{high}.{low}.{endpoint}:8080","weight":{weight},"node":"w{endpoint}"}}"#
                ),
            );
        }
        json.push_str("]}");
    }
    json.push_str("]}");
    json
}

fn push(json: &mut String, text: std::fmt::Arguments<'_>) {
    json.write_fmt(text).expect("a string takes all");
}

criterion_group!(benches, large_table);
criterion_main!(benches);
