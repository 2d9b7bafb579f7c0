//! What a test does that cannot run here.
use std::fs;
use std::io::{self, Write};
use std::thread;

/// Says that a test cannot run here, and why. The caller returns; libtest counts that as passed. Where CI=true, every test
/// must run, and this panics.
pub fn skip(why: &str) {
    assert!(!is_an_error(), "CI=true, and this cannot run: {why}");
    say("SKIP", why);
}

/// Says that a test has run and could not see what it looks for, because the machine was too busy. Never an error.
pub fn undecided(why: &str) {
    say("UNDECIDED", why);
}

/// How much processor time of this machine other processes take.
pub struct Others {
    begun: Ticks,
}

impl Others {
    pub fn watch() -> Self {
        Self {
            begun: Ticks::now(),
        }
    }

    /// Their part of all there was since then, from 0 to 1.
    pub fn share(&self) -> f64 {
        let now = Ticks::now();
        let all = now.all - self.begun.all;
        let idle = now.idle - self.begun.idle;
        let own = now.own - self.begun.own;
        all.saturating_sub(idle + own) as f64 / all.max(1) as f64
    }
}

/// More of the machine than others may take where a test is to see how fast something is.
pub const MUCH: f64 = 0.25;

/// Processor time since the machine was started, of all processors together, and of this process.
struct Ticks {
    all: u64,
    idle: u64,
    own: u64,
}

impl Ticks {
    fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").expect("the machine's times");
        // user, nice, system, idle, iowait, irq, softirq, steal; what follows is in those.
        let all: Vec<u64> = numbers(stat.lines().next().unwrap_or_default(), 1, 8);
        let stat = fs::read_to_string("/proc/self/stat").expect("this process's times");
        let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
        Self {
            all: all.iter().sum(),
            idle: all[3..5].iter().sum(),
            // utime and stime are the 14th and 15th of all, and the name is the second.
            own: numbers(fields, 11, 2).iter().sum(),
        }
    }
}

fn numbers(line: &str, skipped: usize, count: usize) -> Vec<u64> {
    let words = line.split_whitespace().skip(skipped).take(count);
    words.map(|word| word.parse().expect("a number")).collect()
}

pub fn is_an_error() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// On stderr itself: what macros print there is hidden where a test passes.
fn say(word: &str, why: &str) {
    let test = thread::current();
    let line = format!("{word}: {}: {why}\n", test.name().unwrap_or("a test"));
    io::stderr().write_all(line.as_bytes()).ok();
}
