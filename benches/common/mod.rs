//! Tables of the benches' own making, compiled for two workers.

use ballast_core::compile::{CompileContext, compile};
use ballast_core::loops::LOOPBACK_ONLY;
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use ballast_core::rng::Rng;
use ballast_core::table::{self, Format, RoutingTable};

pub(crate) fn parsed(text: &str) -> RoutingTable {
    table::parse(text.as_bytes(), Format::Json).expect("a good table")
}

pub(crate) fn compiled(table: RoutingTable, previous: &Plan) -> Plan {
    let mut context = CompileContext {
        now: Moment(1),
        workers: 2,
        ipv6: true,
        host: &LOOPBACK_ONLY,
        rng: &mut Rng::new(1),
    };
    compile(table, previous, &mut context)
}
