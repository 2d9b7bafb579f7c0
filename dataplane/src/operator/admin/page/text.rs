//! How things are written for people.

use std::fmt::{self, Display, Formatter};

use ballast_core::text::Append;
use maud::{Markup, Render, html};

use crate::stats::Second;

/// A number that fits in a small place: `9,999`, `12.3 k`, `4.56 M`.
#[derive(Clone, Copy)]
pub(super) struct Count(pub(super) u64);

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            number @ 0..1_000 => write!(f, "{number}"),
            number @ 1_000..10_000 => write!(f, "{},{:03}", number / 1000, number % 1000),
            number => scaled(f, number, &["k", "M", "G", "T", "P", "E"]),
        }
    }
}

/// A size: `512 B`, `1.23 MB`.
#[derive(Clone, Copy)]
pub(super) struct Size(pub(super) u64);

impl Display for Size {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            number @ 0..1_000 => write!(f, "{number} B"),
            number => scaled(f, number, &["kB", "MB", "GB", "TB", "PB", "EB"]),
        }
    }
}

/// To three digits.
fn scaled(f: &mut Formatter<'_>, number: u64, units: &[&str]) -> fmt::Result {
    let (mut unit, mut one) = (0, 1000);
    while number / one >= 1000 && unit + 1 < units.len() {
        unit += 1;
        one *= 1000;
    }
    let (whole, hundredths) = (number / one, number % one / (one / 100).max(1));
    let unit = units[unit];
    match whole {
        0..10 => write!(f, "{whole}.{hundredths:02} {unit}"),
        10..100 => write!(f, "{whole}.{} {unit}", hundredths / 10),
        _ => write!(f, "{whole} {unit}"),
    }
}

/// A time in seconds, coarsely: `41 s`, `3 min`, `2 h 5 min`, `12 d 3 h`.
#[derive(Clone, Copy)]
pub(super) struct Lasted(pub(super) u64);

impl Display for Lasted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (minutes, hours, days) = (self.0 / 60, self.0 / 3600, self.0 / 86_400);
        match self.0 {
            seconds @ 0..60 => write!(f, "{seconds} s"),
            60..3600 => write!(f, "{minutes} min"),
            3600..86_400 => write!(f, "{hours} h {} min", minutes % 60),
            _ => write!(f, "{days} d {} h", hours % 24),
        }
    }
}

/// A number for people, and what it is exactly where that differs.
pub(super) fn exact(number: u64) -> Markup {
    html! {
        @if number < 10_000 { (Count(number)) } @else { span title=(number) { (Count(number)) } }
    }
}

/// A number that should be 0.
pub(super) fn bad(number: u64) -> Markup {
    html! { @if number == 0 { i { "0" } } @else { em class="warn" { (Count(number)) } } }
}

pub(super) fn count(number: impl Into<u64>) -> Markup {
    html! { (Count(number.into())) }
}

pub(super) fn size(bytes: impl Into<u64>) -> Markup {
    html! { (Size(bytes.into())) }
}

pub(super) fn or_dash(number: Option<u32>) -> Markup {
    html! { @if let Some(number) = number { (Count(number.into())) } @else { "–" } }
}

/// What a graph shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Those that began in a second.
    Sessions,
    /// Those that there were at once.
    Current,
    /// Bytes to clients in a second.
    BytesOut,
}

impl Shown {
    fn of(self, second: &Second) -> u64 {
        match self {
            Self::Sessions => second.sessions,
            Self::Current => second.current,
            Self::BytesOut => second.bytes_out,
        }
    }
}

/// The last ten minutes as a small picture, with a mark wherever something failed.
pub(super) struct Graph {
    shown: Shown,
    /// The most in any second of each five.
    steps: Vec<u64>,
    errors: Vec<bool>,
}

impl Graph {
    /// `uptime` decides which seconds are grouped, so that a picture changes only when five are whole.
    pub(super) fn of(history: &[Second], uptime: u64, shown: Shown) -> Self {
        let begun = usize::try_from(uptime % EACH as u64).unwrap_or(0);
        let whole = history.len().saturating_sub(begun);
        // One less than there are: always as many.
        let length = (history.len() / EACH).saturating_sub(1) * EACH;
        let start = whole.saturating_sub(length);
        let seconds = &history[start..whole];
        let each = || seconds.chunks(EACH);
        Self {
            shown,
            steps: each()
                .map(|five| five.iter().map(|one| shown.of(one)).max().unwrap_or(0))
                .collect(),
            errors: each()
                .map(|five| five.iter().any(|one| one.errors > 0))
                .collect(),
        }
    }
}

impl Render for Graph {
    fn render(&self) -> Markup {
        let peak = self.steps.iter().copied().max().unwrap_or(0);
        let width = self.steps.len();
        let failed = self.errors.iter().filter(|one| **one).count() * EACH;
        html! {
            svg class="graph" viewBox={ "0 0 " (width) " " (HEIGHT) } preserveAspectRatio="none" role="img" {
                title {
                    "The last ten minutes: at most "
                    @match self.shown {
                        Shown::Sessions => { (Count(peak)) " sessions a second" }
                        Shown::Current => { (Count(peak)) " sessions at once" }
                        Shown::BytesOut => { (Size(peak)) " a second to clients" }
                    }
                    @if failed > 0 { "; errors in " (failed) " seconds" }
                }
                @if peak > 0 { path class="area" d=(self.area(peak)) {} }
                @if failed > 0 { path class="errors" d=(self.marks()) {} }
            }
        }
    }
}

impl Graph {
    /// Steps: what was, until here; then what is.
    fn area(&self, peak: u64) -> String {
        let mut path = format!("M0 {HEIGHT}");
        let mut before = None;
        for (x, step) in self.steps.iter().enumerate() {
            let y = HEIGHT - (step * (HEIGHT - ROOM)).div_ceil(peak);
            if before.replace(y) != Some(y) {
                write!(path, "H{x}V{y}");
            }
        }
        path + &format!("H{}V{HEIGHT}Z", self.steps.len())
    }

    fn marks(&self) -> String {
        let errors = self.errors.iter().enumerate().filter(|(_, one)| **one);
        errors.map(|(x, _)| format!("M{x} 0h1v4h-1z")).collect()
    }
}

/// Seconds in a step of a graph.
const EACH: usize = 5;
const HEIGHT: u64 = 24;
/// Above the highest step, for marks.
const ROOM: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobodys_text_is_markup() {
        let text = "a<script x='1' y=\"2\">&amp;ü</script>";
        assert_eq!(
            html! { (text) i title=(text) {} }.into_string(),
            "a&lt;script x='1' y=&quot;2&quot;&gt;&amp;amp;ü&lt;/script&gt;\
             <i title=\"a&lt;script x='1' y=&quot;2&quot;&gt;&amp;amp;ü&lt;/script&gt;\"></i>"
        );
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (9_999, "9,999"),
            (12_345, "12.3 k"),
            (999_999, "999 k"),
            (4_567_890, "4.56 M"),
            (u64::MAX, "18.4 E"),
        ] {
            assert_eq!(Count(number).to_string(), text);
        }
        for (size, text) in [(0, "0 B"), (1_234, "1.23 kB"), (56_700_000, "56.7 MB")] {
            assert_eq!(Size(size).to_string(), text);
        }
        for (seconds, text) in [
            (0, "0 s"),
            (61, "1 min"),
            (7_500, "2 h 5 min"),
            (1_047_600, "12 d 3 h"),
        ] {
            assert_eq!(Lasted(seconds).to_string(), text);
        }
    }

    #[test]
    fn a_graph_changes_when_five_seconds_are_whole() {
        let drawn_of = |history: &[Second], uptime| {
            Graph::of(history, uptime, Shown::Sessions)
                .render()
                .into_string()
        };
        let mut history = vec![Second::default(); 600];
        history[590].sessions = 10;
        history[591].errors = 1;
        let drawn = drawn_of(&history, 1000);
        assert!(drawn.contains(r#"viewBox="0 0 119 24""#), "{drawn}");
        assert!(drawn.contains("H117V5H118V24H119V24Z"), "{drawn}");
        assert!(drawn.contains("M117 0h1v4h-1z"), "{drawn}");
        for second in 1..=5 {
            history.remove(0);
            history.push(Second::default());
            let later = drawn_of(&history, 1000 + second);
            assert_eq!(later == drawn, second < 5, "{second}: {later}");
        }
        let quiet = drawn_of(&[], 0);
        assert!(!quiet.contains("<path"), "{quiet}");
    }
}
