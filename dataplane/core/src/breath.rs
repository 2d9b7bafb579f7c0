//! Breaths in long work: a table of 10,000 services keeps a processor busy for tens of milliseconds, which others wait for.
//!
//! This crate knows no scheduler. Whoever calls it from a thread that should give way says by [`between`] what to do now and
//! then; reading a table, compiling it and looking over all endpoints call [`take`] as they go.

use std::cell::Cell;

/// Does this between parts of long work on this thread.
pub fn between(what: fn()) {
    BETWEEN.set(what);
}

/// A small part is done.
pub fn take() {
    let parts = PARTS.get().wrapping_add(1);
    PARTS.set(parts);
    if parts.is_multiple_of(A_BREATH) {
        BETWEEN.get()();
    }
}

thread_local! {
    static BETWEEN: Cell<fn()> = const { Cell::new(|| {}) };
    static PARTS: Cell<u32> = const { Cell::new(0) };
}

/// Parts of a few microseconds each, between two breaths.
const A_BREATH: u32 = 16;

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
        assert!(BREATHS.get() >= 1_000 / A_BREATH, "{}", BREATHS.get());
    }
}
