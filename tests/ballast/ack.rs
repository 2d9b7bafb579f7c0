//! `ballast`: what the data plane answers about tables, end to end.

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
