//! Breaths in long work: a table of 10,000 services keeps a processor busy for tens of milliseconds, which others wait for.
//!
//! This crate knows no scheduler. Whoever calls it from a thread that should give way says by [`between`] what to do now and
//! then; reading a table, compiling it and looking over all endpoints call [`take`] as they go.

use std::cell::Cell;

/// Does this between parts of long work on this thread.
pub fn between(what: fn()) {
    BETWEEN.set(what);
}

/// A part of a few microseconds is done.
pub fn take() {
    done(A_PART);
}

/// So little is done that it takes many to make a part: a look at one endpoint.
pub fn take_later() {
    done(1);
}

fn done(much: u32) {
    let sum = DONE.get() + much;
    if sum < A_BREATH {
        return DONE.set(sum);
    }
    DONE.set(0);
    BETWEEN.get()();
}

thread_local! {
    static BETWEEN: Cell<fn()> = const { Cell::new(|| {}) };
    static DONE: Cell<u32> = const { Cell::new(0) };
}

const A_PART: u32 = 8;
/// 16 parts.
const A_BREATH: u32 = 16 * A_PART;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Format, parse};

    #[test]
    fn a_long_table_is_read_with_breaths() {
        thread_local!(static BREATHS: Cell<u32> = const { Cell::new(0) });
        let services: String = (0..1_000)
            .map(|n| format!("{{\"name\":\"s{n}\"}},"))
            .collect();
        let text = format!(
            "{{\"version\":1,\"services\":[{}]}}",
            services.trim_end_matches(',')
        );
        between(|| BREATHS.set(BREATHS.get() + 1));
        parse(text.as_bytes(), Format::Json).unwrap();
        between(|| {});
        assert!(BREATHS.get() >= 1_000 / 16, "{}", BREATHS.get());
    }

    #[test]
    fn little_parts_make_a_breath_too() {
        thread_local!(static BREATHS: Cell<u32> = const { Cell::new(0) });
        between(|| BREATHS.set(BREATHS.get() + 1));
        for _ in 0..100 {
            (0..8).for_each(|_| take_later());
            take();
        }
        between(|| {});
        assert_eq!(BREATHS.get(), 200 / 16);
    }
}
