//! `ballast`: what the data plane answers about tables, end to end.

use std::fs;

use ballast_core::ack::Refused;
use support::Ballast;

const GOOD: &str = "{version: 1, generation: 42}";

fn refused(ballast: &Ballast, table: &str) -> Refused {
    ballast.swap(table);
    let ack = ballast.ack().expect("an ack");
    let served = ack.served.expect("the last good table");
    assert_eq!(served.generation, Some(42), "what is served stays");
    ack.refused.expect("a refused table")
}

#[test]
fn a_refused_table_is_named_by_its_generation_if_it_could_be_read() {
    let ballast = Ballast::serve(GOOD, 1);
    let unknown = refused(&ballast, "{version: 1, generation: 43, frontend: []}");
    assert_eq!(unknown.generation, Some(43));
    assert_eq!(unknown.problems.len(), 1);
    assert_eq!(unknown.problems[0].at, "frontend");
    let half = refused(&ballast, "{version: 1, generation: 44, frontends: [");
    assert_eq!(half.generation, None, "the text did not parse");
    let manifest = refused(
        &ballast,
        "{apiVersion: v1, kind: Service, metadata: {generation: 45}}",
    );
    assert_eq!(manifest.generation, None);
    assert_eq!(manifest.problems.len(), 1);
    let newer = refused(&ballast, "{version: 2, generation: 46}");
    assert_eq!(newer.generation, Some(46));
}

/// The last table is served on, and nothing but the log once said that it is gone.
#[test]
fn a_table_that_is_gone_for_longer_than_an_editor_takes_is_a_refusal() {
    let ballast = Ballast::serve(GOOD, 1);
    let aside = ballast.table_path().with_file_name("aside");
    fs::rename(ballast.table_path(), &aside).unwrap();
    ballast.until(|ballast| ballast.ack().unwrap().refused.is_some());
    let refused = ballast.ack().unwrap().refused.unwrap();
    assert_eq!((refused.generation, &*refused.digest), (None, ""));
    let why = &refused.problems[0].why;
    assert!(why.contains("table.yaml"), "{why}");
    let counted = "ballast_table_refused_total 1\n";
    assert!(ballast.metrics().contains(counted), "{}", ballast.metrics());
    fs::rename(&aside, ballast.table_path()).unwrap();
    ballast.until(|ballast| ballast.ack().unwrap().refused.is_none());
    assert!(ballast.metrics().contains(counted));
}
