//! What a table of 10,000 services with 10 endpoints each costs. Run by hand, alone in its process:
//! `cargo test --release -p ballast-core -- --ignored --exact --nocapture compile::tests::large::a_large_table`.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use super::*;

#[test]
#[ignore = "a measurement"]
fn a_large_table() {
    let mut text = large_table();
    println!("{} bytes of JSON", text.len());
    let began = resident();
    let mut process = Process {
        plan: Plan::default(),
        bound: BTreeSet::new(),
        rng: Rng::new(7),
    };
    for round in 0..6 {
        // One endpoint changes from round to round.
        let at = text.rfind(".10:8080").unwrap();
        let weight = format!(".10:8080\",\"weight\":{},\"", round + 2);
        text.replace_range(at..at + ".10:8080\",\"".len(), &weight);
        if round > 0 {
            let old = text.find(&format!("\"weight\":{},", round + 1));
            if let Some(old) = old {
                text.replace_range(old..old + "\"weight\":0,".len(), "");
            }
        }
        let start = on_cpu();
        let table = table::parse(text.as_bytes(), Format::Json).unwrap();
        let parsed = on_cpu() - start;
        let with_table = resident();
        let start = on_cpu();
        let mut context = CompileContext {
            now: Moment(1000),
            workers: 2,
            ipv6: true,
            host: &LOOPBACK_ONLY,
            rng: &mut process.rng,
        };
        let plan = compile(table, &process.plan, &mut context);
        let compiled = on_cpu() - start;
        let start = on_cpu();
        let change = change(&process.bound, &process.plan, &plan);
        let compared = on_cpu() - start;
        process.bound.extend(change.open);
        let with_both = resident();
        let start = on_cpu();
        process.plan = plan;
        let freed = on_cpu() - start;
        println!(
            "round {round}: parse {parsed:?}, compile {compiled:?}, change {compared:?}, free the plan before {freed:?}; \
             resident beside the text: {} KiB with the table, {} KiB with both plans, {} KiB after",
            with_table - began,
            with_both - began,
            resident() - began
        );
    }
}

/// In the order that a controller writes.
fn large_table() -> String {
    let mut json = String::from(r#"{"version":1,"generation":1,"frontends":["#);
    for frontend in 0..100 {
        let comma = if frontend > 0 { "," } else { "" };
        write!(json, r#"{comma}{{"name":"f{frontend}","bind":["127.0.0.1:{}"],"protocol":"tcp","service":"shop.service-{frontend}:80"}}"#, 20_000 + frontend).unwrap();
    }
    json.push_str(r#"],"services":["#);
    for service in 0..10_000 {
        let comma = if service > 0 { "," } else { "" };
        write!(
            json,
            r#"{comma}{{"name":"shop.service-{service}:80","endpoints":["#
        )
        .unwrap();
        for index in 1..=10 {
            let comma = if index > 1 { "," } else { "" };
            let (high, low) = (service / 256, service % 256);
            let node = (service + index) % 200;
            write!(json, r#"{comma}{{"address":"10.{high}.{low}.{index}:8080","name":"pod-{service}-{index}","node":"worker-{node}","zone":"a"}}"#).unwrap();
        }
        json.push_str("]}");
    }
    json.push_str("]}");
    json
}

/// The CPU time of this thread, because elapsed time is misleading on a busy machine.
fn on_cpu() -> Duration {
    let spent = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos = spent.split_whitespace().next().unwrap();
    Duration::from_nanos(nanos.parse().unwrap())
}

/// A refused table is parsed to a tree, and so is all YAML.
#[test]
#[ignore = "a measurement"]
fn a_large_table_with_a_mistake() {
    let text = large_table();
    let mistake = text.replacen("\"zone\":\"a\"", "\"zonne\":\"a\"", 1);
    for (what, text, format) in [
        ("JSON with a mistake", &mistake, Format::Json),
        ("JSON as YAML", &text, Format::Yaml),
        ("JSON as YAML with a mistake", &mistake, Format::Yaml),
    ] {
        let before = resident();
        let start = on_cpu();
        let parsed = table::parse(text.as_bytes(), format);
        let took = on_cpu() - start;
        let problems = parsed.as_ref().err().map_or(0, |problems| problems.len());
        drop(parsed);
        println!(
            "{what}: {problems} problems, {took:?}, peak {} KiB, {before} KiB before, {} KiB after",
            peak(),
            resident()
        );
    }
}

fn peak() -> u64 {
    field("VmHWM:")
}

/// In KiB.
fn resident() -> u64 {
    field("VmRSS:")
}

/// A line of this process's status.
fn field(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
