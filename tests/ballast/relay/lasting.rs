//! Who says nothing for long is asked by the kernel whether it is still there: the list of sockets says when next.

use std::fs;
use std::time::{Duration, Instant};

use support::peers::{Watched, ping};
use support::{echo_server, table};

#[test]
fn both_legs_of_a_silent_connection_are_asked_whether_they_are_there() {
    let endpoint = echo_server();
    let ballast = Watched::serve(&table("", "", &[endpoint]), 1);
    let begun = Instant::now();
    let mut client = ballast.connect();
    ping(&mut client).unwrap();
    let here = client.local_addr().unwrap();

    // The client's leg has it from the listening socket, and so from the first moment.
    let asked_in = await_question(|leg| leg.of == (ballast.address().port(), here.port()));
    assert!(asked_in <= KEEPALIVE_TIME, "{asked_in:?}");
    assert!(asked_in + begun.elapsed() + 10 * TICK >= KEEPALIVE_TIME);

    // The endpoint's gets it when the connection has lasted.
    let asked_in = await_question(|leg| leg.of.1 == endpoint.port());
    assert!(begun.elapsed() >= Duration::from_secs(5));
    assert!(asked_in <= KEEPALIVE_TIME, "{asked_in:?}");
    ping(&mut client).unwrap();
}

/// Waits until the leg that is meant has a timer for the next question, and says when that is.
fn await_question(is_meant: impl Fn(&Leg) -> bool) -> Duration {
    let question = support::found_within(Duration::from_secs(20), || {
        legs().find(&is_meant).and_then(|leg| leg.asked_in)
    });
    question.expect("the leg has no timer for a question")
}

/// One end of a connection that stands.
struct Leg {
    /// Its port, and its peer's.
    of: (u16, u16),
    /// When it is asked whether its peer is there; `None`: that is not planned.
    asked_in: Option<Duration>,
}

fn legs() -> impl Iterator<Item = Leg> {
    let sockets = fs::read_to_string("/proc/thread-self/net/tcp").expect("the list of sockets");
    let legs: Vec<Leg> = sockets.lines().filter_map(leg).collect();
    legs.into_iter()
}

fn leg(line: &str) -> Option<Leg> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, local, remote, ESTABLISHED, _, timer, ..] = fields[..] else {
        return None;
    };
    let port = |address: &str| u16::from_str_radix(address.split_once(':')?.1, 16).ok();
    let (kind, ticks) = timer.split_once(':')?;
    let ticks = u32::from_str_radix(ticks, 16).ok()?;
    Some(Leg {
        of: (port(local)?, port(remote)?),
        asked_in: (kind == KEEPALIVE).then(|| TICK * ticks),
    })
}

const ESTABLISHED: &str = "01";
/// The kind of the timer that is pending.
const KEEPALIVE: &str = "02";
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);
/// What the kernel counts in.
const TICK: Duration = Duration::from_millis(10);
