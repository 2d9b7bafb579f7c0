//! What is wrong with a table, in words: each mistake with its place, the reason and the remedy.
//!
//! Written by the walk and by [`super::check`]; shown by `ballast check`, logged and acknowledged by the data plane.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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
    files: Vec<(String, PathBuf)>,
}

impl Problems {
    /// The text is no table at all: half a file, perhaps.
    pub(crate) fn of_half_a_file(problem: Problem) -> Self {
        Self {
            problems: vec![problem],
            whole: false,
            generation: None,
            files: Vec::new(),
        }
    }

    /// The text is a whole file, with these mistakes.
    pub fn of_whole_file(problems: Vec<Problem>, generation: Option<u64>) -> Self {
        Self {
            problems,
            whole: true,
            generation,
            files: Vec::new(),
        }
    }

    /// The table names these files.
    pub(crate) fn with_files(self, files: Vec<(String, PathBuf)>) -> Self {
        Self { files, ..self }
    }

    /// The files that the refused table names, with their places, as far as they could be read: as [`super::files()`] has
    /// those of a good one.
    #[must_use]
    pub fn files(&self) -> &[(String, PathBuf)] {
        &self.files
    }

    /// The label of the refused table, as far as it could be read.
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        self.generation
    }

    /// Whether the text did not even parse, as when an editor has written only half of it: worth another look soon.
    #[must_use]
    pub fn not_whole(&self) -> bool {
        !self.whole
    }
}

impl std::ops::Deref for Problems {
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
        match self.kept.len() < KEPT {
            true => self.kept.push(problem()),
            false => self.more += 1,
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
                "correct these first",
            ));
        }
        problems
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

/// Problems that are kept at most.
const KEPT: usize = 1000;
