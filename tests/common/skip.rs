//! What a test does that cannot run here.
#![allow(dead_code, reason = "each test file uses its part of this")]

use std::io::{self, Write};
use std::thread;

/// Says that a test cannot run here, and why. The caller returns; libtest counts that as passed. Where CI=true, every test
/// must run, and this panics.
pub(crate) fn skip(why: &str) {
    assert!(!is_an_error(), "CI=true, and this cannot run: {why}");
    say("SKIP", why);
}

/// Says that a test has run and could not see what it looks for, because the machine was too busy. Never an error.
pub(crate) fn undecided(why: &str) {
    say("UNDECIDED", why);
}

pub(crate) fn is_an_error() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// On stderr itself: what macros print there is hidden where a test passes.
fn say(word: &str, why: &str) {
    let test = thread::current();
    let line = format!("{word}: {}: {why}\n", test.name().unwrap_or("a test"));
    io::stderr().write_all(line.as_bytes()).ok();
}
