//! What is wrong with a table, in words: each mistake with its place, the reason and the remedy.
//!
//! Made by [`super::form`] and [`super::check`]; shown by `ballast check`, logged and acknowledged by the data plane.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Bind, Stats};
use crate::text::Append as _;

/// One mistake in a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct Problem {
    /// Where it is, as in `services[0].endpoints[1].weight`; empty where it is the whole text.
    pub at: String,
    /// What is wrong.
    pub why: String,
    /// What would be right.
    pub remedy: String,
}

impl Problem {
    /// A Problem at a place.
    pub fn new(at: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    /// Whether it only counts the problems that are not shown.
    pub(super) fn is_of_others(&self) -> bool {
        self.at.is_empty() && self.remedy == THESE_FIRST
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        write!(f, "{}; {}", self.why, self.remedy)
    }
}

/// Why a table is refused: at least one Problem, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.problems))]
pub struct Problems {
    problems: Vec<Problem>,
    whole: bool,
    generation: Option<u64>,
    read: Box<ReadParts>,
}

/// What could be read of a refused table, for whoever looks at more than its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadParts {
    /// The files that it names, with their places: as [`super::files()`] has those of a good one.
    pub files: Vec<(String, PathBuf)>,
    /// Where its frontends listen for connections, with the places: as [`super::stream_binds()`] has those of a good one.
    pub stream_binds: Vec<(String, Bind)>,
    pub stats: Option<Stats>,
}

impl Problems {
    /// The text is no table at all: half a file, perhaps.
    pub(crate) fn of_half_a_file(problem: Problem) -> Self {
        Self {
            problems: vec![problem],
            whole: false,
            generation: None,
            read: Box::default(),
        }
    }

    /// The text is a whole file, with these mistakes.
    pub fn of_whole_file(problems: Vec<Problem>, generation: Option<u64>) -> Self {
        Self {
            problems,
            whole: true,
            generation,
            read: Box::default(),
        }
    }

    /// These parts of the table could be read.
    pub(crate) fn with_parts(self, read: ReadParts) -> Self {
        Self {
            read: Box::new(read),
            ..self
        }
    }

    /// What could be read of the refused table.
    pub fn read_parts(&self) -> &ReadParts {
        &self.read
    }

    /// The label of the refused table, as far as it could be read.
    pub fn generation(&self) -> Option<u64> {
        self.generation
    }

    /// Whether the text did not even parse, as when an editor has written only half of it: worth another look soon.
    #[must_use]
    pub fn not_whole(&self) -> bool {
        !self.whole
    }
}

impl Deref for Problems {
    type Target = [Problem];

    fn deref(&self) -> &[Problem] {
        &self.problems
    }
}

impl From<Problems> for Vec<Problem> {
    fn from(problems: Problems) -> Self {
        problems.problems
    }
}

/// Problems while they are being collected: not more of them than anybody reads.
#[derive(Debug, Default)]
pub(crate) struct Found {
    kept: Vec<Problem>,
    more: usize,
}

impl Found {
    /// Keeps a Problem, or only counts it.
    pub(crate) fn add(&mut self, problem: impl FnOnce() -> Problem) {
        if self.kept.len() < KEPT {
            self.kept.push(problem());
        } else {
            self.more += 1;
        }
    }

    /// Whether nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether there was more than could be kept.
    pub(crate) fn is_full(&self) -> bool {
        self.more > 0
    }

    /// The places of what is kept.
    pub(crate) fn places(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(|problem| problem.at.as_str())
    }

    /// Says more in the remedy of the last Problem, if that is one of this place.
    pub(crate) fn amend_last(&mut self, at: &str, words: &str) {
        if let Some(last) = self.kept.last_mut()
            && last.at == at
        {
            last.remedy.push_str(words);
        }
    }

    /// Adds what `other` holds.
    pub(crate) fn join(&mut self, other: Self) {
        for problem in other.kept {
            self.add(|| problem);
        }
        self.more += other.more;
    }

    /// All Problems in the order that `rank` gives their places, with a last line for those that were not kept.
    pub(crate) fn sorted<K: Ord>(self, rank: impl FnMut(&Problem) -> K) -> Vec<Problem> {
        let mut problems = self.kept;
        problems.sort_by_cached_key(rank);
        problems.dedup();
        if self.more > 0 {
            problems.push(Problem::new(
                "",
                format!("{} more problems are not shown", self.more),
                THESE_FIRST,
            ));
        }
        problems
    }
}

/// A place in the table while it is walked through, as in `services[0].endpoints[1].weight`.
#[derive(Default)]
pub(crate) struct Place(String);

impl Place {
    /// Goes one step further. The answer leads back.
    pub(crate) fn enter_key(&mut self, key: &str) -> usize {
        let before = self.0.len();
        if before > 0 {
            self.0.push('.');
        }
        self.0.push_str(&plain(key));
        before
    }

    /// Goes one step further. The answer leads back.
    pub(crate) fn enter_index(&mut self, index: usize) -> usize {
        let before = self.0.len();
        write!(self.0, "[{index}]");
        before
    }

    /// Goes back.
    pub(crate) fn leave(&mut self, before: usize) {
        self.0.truncate(before);
    }
}

impl Deref for Place {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// `text` in quotes, shortened and without control characters, so that it fits a line.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    format!("{short:?}")
}

/// A key as it can stand in a place: on one line, and not too long.
pub(crate) fn plain(key: &str) -> Cow<'_, str> {
    if key.len() <= SHOWN && !key.chars().any(char::is_control) {
        Cow::Borrowed(key)
    } else {
        Cow::Owned(quoted(key))
    }
}

/// The one of `known` that `word` was probably meant to be: a third of its letters may be wrong, but at most three.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word: String = word.chars().take(SHOWN).collect::<String>().to_lowercase();
    let length = word.chars().count();
    let mut best = ((length / 3).clamp(1, 3) + 1, None);
    for candidate in known {
        // No distance is smaller than the difference in length, and that is quickly known.
        if candidate.chars().count().abs_diff(length) < best.0 {
            let distance = strsim::osa_distance(&word, &candidate.to_lowercase());
            if distance < best.0 {
                best = (distance, Some(candidate));
            }
        }
    }
    best.1
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

/// Characters of a text that a Problem shows.
const SHOWN: usize = 60;

/// Problems that are kept at most.
const KEPT: usize = 1000;

/// The remedy where not all Problems are shown.
const THESE_FIRST: &str = "correct these first";

/// The mistake of a key that stands in one map several times.
pub(super) const STANDS_TWICE: &str = "this key stands here twice";
