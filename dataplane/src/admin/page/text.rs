//! How things are written for people.

use std::fmt::{self, Display, Formatter};

use crate::stats::Second;

/// A text of anybody's, made harmless in HTML.
pub(super) struct Escaped<T>(pub(super) T);

impl<T: AsRef<str>> Display for Escaped<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_ref();
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            let (harmless, other) = rest.split_at(at);
            f.write_str(harmless)?;
            let mut letters = other.chars();
            f.write_str(match letters.next() {
                Some('&') => "&amp;",
                Some('<') => "&lt;",
                Some('>') => "&gt;",
                Some('"') => "&quot;",
                _ => "&#39;",
            })?;
            rest = letters.as_str();
        }
        f.write_str(rest)
    }
}

/// A number that fits in a small place: `9,999`, `12.3 k`, `4.56 M`.
#[derive(Clone, Copy)]
pub(super) struct Count(pub(super) u64);

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            number @ 0..1_000 => write!(f, "{number}"),
            number @ 1_000..10_000 => write!(f, "{},{:03}", number / 1000, number % 1000),
            number => scaled(f, number, 1000, &["k", "M", "G", "T", "P", "E"]),
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
            number => scaled(f, number, 1000, &["kB", "MB", "GB", "TB", "PB", "EB"]),
        }
    }
}

/// To three digits.
fn scaled(f: &mut Formatter<'_>, number: u64, by: u64, units: &[&str]) -> fmt::Result {
    let (mut unit, mut one) = (0, by);
    while number / one >= by && unit + 1 < units.len() {
        unit += 1;
        one *= by;
    }
    let (whole, hundredths) = (number / one, number % one / (one / 100).max(1));
    let unit = units.get(unit).copied().unwrap_or_default();
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

/// What was at most, or a dash.
pub(super) struct OrDash<T>(pub(super) Option<T>);

impl<T: Display> Display for OrDash<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("–"),
        }
    }
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
    /// `uptime` decides which seconds stand together, so that a picture changes only when five are whole.
    pub(super) fn of(history: &[Second], uptime: u64, shown: Shown) -> Self {
        let begun = usize::try_from(uptime % EACH as u64).unwrap_or(0);
        let whole = history.len().saturating_sub(begun);
        // One less than there are: always as many.
        let length = (history.len() / EACH).saturating_sub(1) * EACH;
        let start = whole.saturating_sub(length);
        let seconds = history.get(start..whole).unwrap_or_default();
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

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let peak = self.steps.iter().copied().max().unwrap_or(0);
        let (width, failed) = (
            self.steps.len(),
            self.errors.iter().filter(|one| **one).count() * EACH,
        );
        write!(
            f,
            r#"<svg class="graph" viewBox="0 0 {width} {HEIGHT}" preserveAspectRatio="none" role="img"><title>The last ten minutes: at most "#
        )?;
        match self.shown {
            Shown::Sessions => write!(f, "{} sessions a second", Count(peak))?,
            Shown::Current => write!(f, "{} sessions at once", Count(peak))?,
            Shown::BytesOut => write!(f, "{} a second to clients", Size(peak))?,
        }
        if failed > 0 {
            write!(f, "; errors in {failed} seconds")?;
        }
        f.write_str("</title>")?;
        if peak > 0 {
            write!(f, r#"<path class="area" d="M0 {HEIGHT}"#)?;
            let mut before = None;
            for (x, step) in self.steps.iter().enumerate() {
                let y = HEIGHT - (step * (HEIGHT - ROOM)).div_ceil(peak);
                if before != Some(y) {
                    // Steps: what was, until here; then what is.
                    write!(f, "H{x}V{y}")?;
                    before = Some(y);
                }
            }
            write!(f, r#"H{width}V{HEIGHT}Z"/>"#)?;
        }
        if failed > 0 {
            f.write_str(r#"<path class="errors" d=""#)?;
            for (x, _) in self.errors.iter().enumerate().filter(|(_, one)| **one) {
                write!(f, "M{x} 0h1v4h-1z")?;
            }
            f.write_str(r#""/>"#)?;
        }
        f.write_str("</svg>")
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
        let text = Escaped("a<script x='1' y=\"2\">&amp;ü</script>").to_string();
        assert_eq!(
            text,
            "a&lt;script x=&#39;1&#39; y=&quot;2&quot;&gt;&amp;amp;ü&lt;/script&gt;"
        );
        assert_eq!(Escaped("").to_string(), "");
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
        let mut history = vec![Second::default(); 600];
        history[590].sessions = 10;
        history[591].errors = 1;
        let drawn = Graph::of(&history, 1000, Shown::Sessions).to_string();
        assert!(drawn.contains(r#"viewBox="0 0 119 24""#), "{drawn}");
        assert!(drawn.contains("H117V5H118V24H119V24Z"), "{drawn}");
        assert!(drawn.contains("M117 0h1v4h-1z"), "{drawn}");
        for second in 1..=5 {
            history.remove(0);
            history.push(Second::default());
            let later = Graph::of(&history, 1000 + second, Shown::Sessions).to_string();
            assert_eq!(later == drawn, second < 5, "{second}: {later}");
        }
        let quiet = Graph::of(&[], 0, Shown::Sessions).to_string();
        assert!(!quiet.contains("<path"), "{quiet}");
    }
}
