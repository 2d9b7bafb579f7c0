use std::cell::Cell;

use ballast_core::compile::{CompileContext, compile};
use ballast_core::loops::LOOPBACK_ONLY;
use ballast_core::rng::Rng;
use ballast_core::table::Format;

use super::*;
use crate::stats::{self, Chunks, Selection};

#[test]
fn all_that_grows_with_the_table_takes_breaths() {
    for (services, endpoints) in [(1_000, 2), (1, 2_000)] {
        let parts = u32::max(services, endpoints);
        let [plan, next] = [0, 1].map(|more| plan(services, endpoints + more));
        let mut observer = Observer::default();
        let took = |what: &str, breaths: u32| {
            assert!(
                breaths >= parts / 128,
                "{what} of {services} services with {endpoints} endpoints: {breaths} breaths"
            );
        };
        took("a tick", breaths(|| observer.tick(&plan, 0, Moment(1_000))));
        took(
            "the next",
            breaths(|| observer.tick(&plan, 0, Moment(2_000))),
        );
        took("a swap", breaths(|| observer.follow(&next, Moment(2_100))));
        let mut seen = None;
        took(
            "a look",
            breaths(|| {
                let open = BTreeMap::new();
                seen = Some(observer.snapshot(&next, Process::default(), &open, Moment(2_200)));
            }),
        );
        let snapshot = Arc::new(seen.unwrap());
        for form in [stats::csv, stats::json, stats::metrics, stats::api] {
            let form: fn(Arc<Snapshot>, Selection) -> Chunks = form;
            let pieces = || form(Arc::clone(&snapshot), Selection::default()).for_each(drop);
            took("a rendering", breaths(pieces));
        }
        took("the end of a look", breaths(|| drop(snapshot)));
        took(
            "clearing",
            breaths(|| drop(observer.clear(&next, true, Moment(2_300)))),
        );
    }
}

/// How many are taken on the way.
fn breaths(work: impl FnOnce()) -> u32 {
    thread_local!(static BREATHS: Cell<u32> = const { Cell::new(0) });
    BREATHS.set(0);
    breath::between(|| BREATHS.set(BREATHS.get() + 1));
    work();
    breath::between(|| {});
    BREATHS.get()
}

fn plan(services: u32, endpoints: u32) -> Arc<Plan> {
    let endpoints: Vec<String> = (0..endpoints)
        .map(|n| format!("{{\"address\":\"10.{}.{}.1:80\"}}", n / 256, n % 256))
        .collect();
    let endpoints = endpoints.join(",");
    let services: Vec<String> = (0..services)
        .map(|n| format!("{{\"name\":\"s{n}\",\"endpoints\":[{endpoints}]}}"))
        .collect();
    let text = format!("{{\"version\":1,\"services\":[{}]}}", services.join(","));
    let table = table::parse(text.as_bytes(), Format::Json).unwrap();
    let mut context = CompileContext {
        now: Moment(1),
        workers: 1,
        ipv6: true,
        host: &LOOPBACK_ONLY,
        rng: &mut Rng::new(1),
    };
    Arc::new(compile(table, &Plan::default(), &mut context))
}
