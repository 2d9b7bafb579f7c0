//! What it costs to find the route of a request, at 10, 100 and 10,000 routes, and to compile them again.

mod common;

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;

use ballast_core::http::{Field, Host, Request, Version};
use ballast_core::plan::{HttpFrontend, Plan, Serves};
use ballast_core::route::Decision;
use common::{compiled, parsed};
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};

fn finding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("route/find");
    for count in [10, 100, 10_000] {
        // The requests take turns among up to 4,096 routes all over the table.
        let asked: Vec<usize> = (0..4096.min(count)).map(|n| n * 7919 % count).collect();
        let by_path = http(&plan(&by_path(count), &Plan::default()));
        let paths: Vec<String> = asked
            .iter()
            .map(|n| format!("/service-{n}/index.html"))
            .collect();
        let mut next = paths.iter().cycle();
        group.bench_function(BenchmarkId::new("by path", count), |bencher| {
            bencher.iter(|| {
                let path = next.next().map_or("", String::as_str);
                let request = get("shop.example.com", black_box(path), &[]);
                black_box(by_path.routes().find(&request)).prefix_length
            });
        });
        let conditional = http(&plan(&conditional(count), &Plan::default()));
        let canary = Field {
            name: "x-canary",
            value: b"1",
        };
        let mut next = paths.iter().cycle();
        group.bench_function(BenchmarkId::new("by path and header", count), |bencher| {
            bencher.iter(|| {
                let path = next.next().map_or("", String::as_str);
                let fields = [canary];
                let request = get("shop.example.com", black_box(path), &fields);
                black_box(conditional.routes().find(&request)).prefix_length
            });
        });
        let guarded = http(&plan(&guarded(count), &Plan::default()));
        let mut next = paths.iter().cycle();
        let client = IpAddr::from([127, 0, 0, 1]);
        group.bench_function(BenchmarkId::new("by path, guarded", count), |bencher| {
            bencher.iter(|| {
                let path = next.next().map_or("", String::as_str);
                let request = get("shop.example.com", black_box(path), &[]);
                match black_box(guarded.routes().decide(&request, client)) {
                    Decision::To(found) => found.prefix_length,
                    Decision::Denied(_) => 0,
                }
            });
        });
        let by_host = http(&plan(&by_host(count), &Plan::default()));
        let hosts: Vec<String> = asked
            .iter()
            .map(|n| format!("Shop-{n}.example.com"))
            .collect();
        let mut next = hosts.iter().cycle();
        group.bench_function(BenchmarkId::new("by host", count), |bencher| {
            bencher.iter(|| {
                let name = next.next().map_or("", String::as_str);
                let request = get(black_box(name), "/index.html", &[]);
                black_box(by_host.routes().find(&request)).prefix_length
            });
        });
    }
    group.finish();
}

fn hostile(criterion: &mut Criterion) {
    let routes = http(&plan(&by_path(10_000), &Plan::default()));
    let (slashes, near) = (
        "/".repeat(65_536),
        format!("/service-1{}", "/x".repeat(32_768)),
    );
    let labels = format!("{}example.com", "a.".repeat(120));
    let mut group = criterion.benchmark_group("route/find among 10,000");
    for (name, path) in [
        ("64 KiB of slashes", &slashes),
        ("64 KiB below a route", &near),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let request = get(&labels, black_box(path), &[]);
                black_box(routes.routes().find(&request)).prefix_length
            });
        });
    }
    group.finish();
}

fn compiling(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("route/compile 10,000");
    group.sample_size(20);
    let before = plan(&by_path(10_000), &Plan::default());
    let nothing = Plan::default();
    for (name, weight, previous) in [
        ("at start", 1, &nothing),
        ("unchanged", 1, &before),
        ("one service changed", 2, &before),
    ] {
        let text = by_path(10_000).replace(r#""weight":1"#, &format!(r#""weight":{weight}"#));
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || parsed(&text),
                |table| compiled(table, previous),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn get<'r>(host: &'r str, path: &'r str, fields: &'r [Field<'r>]) -> Request<'r> {
    Request {
        method: "GET",
        path,
        query: None,
        host: Some(Host {
            name: host,
            port: None,
        }),
        version: Version::Http11,
        fields,
    }
}

/// A frontend with a route to each of `count` services by its path.
fn by_path(count: usize) -> String {
    json(count, |n| format!(r#""path":"/service-{n}","rewrite":"/""#))
}

/// The same, with two more routes for each path.
fn conditional(count: usize) -> String {
    let with = |n: usize, when: &str| {
        format!(r#"{{"path":"/service-{n}","when":{when},"service":"s{n}"}}"#)
    };
    json(count, |n| {
        let header = with(n, r#"{"headers":[{"name":"X-Canary","value":"1"}]}"#);
        let method = with(n, r#"{"method":["PUT"]}"#);
        let behind = format!(r#""path":"/service-{n}""#);
        let header = header.trim_start_matches('{').trim_end_matches('}');
        format!(r#"{header}}},{method},{{{behind}"#)
    })
}

/// The same, with clients that may not use each route.
fn guarded(count: usize) -> String {
    json(count, |n| {
        format!(r#""path":"/service-{n}","source-ranges":["127.0.0.0/8"]"#)
    })
}

/// A frontend with a route to each of `count` services by its host.
fn by_host(count: usize) -> String {
    json(count, |n| format!(r#""host":"shop-{n}.example.com""#))
}

fn json(count: usize, fields: impl Fn(usize) -> String) -> String {
    let routes: Vec<String> = (0..count)
        .map(|n| format!(r#"{{{},"service":"s{n}"}}"#, fields(n)))
        .collect();
    let services: Vec<String> = (0..count)
        .map(|n| {
            let weight = if n == 5 { r#","weight":1"# } else { "" };
            format!(r#"{{"name":"s{n}","endpoints":[{{"address":"10.0.0.1:80"{weight}}}]}}"#)
        })
        .collect();
    format!(
        r#"{{"version":1,"frontends":[{{"name":"web","bind":["127.0.0.1:80"],"protocol":"http","routes":[{}]}}],"services":[{}]}}"#,
        routes.join(","),
        services.join(",")
    )
}

fn plan(text: &str, previous: &Plan) -> Plan {
    compiled(parsed(text), previous)
}

fn http(plan: &Plan) -> Arc<HttpFrontend> {
    match plan.frontends().first().map(|frontend| frontend.serves()) {
        Some(Serves::Http(http)) => Arc::clone(http),
        other => panic!("{other:?}"),
    }
}

criterion_group!(benches, finding, hostile, compiling);
criterion_main!(benches);
