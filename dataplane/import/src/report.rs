//! What an import has to say beside the table: lines that were left out, differences worth knowing, resolved names.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::words::Line;

/// What an import has to say beside the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order of the lines.
    pub remarks: Vec<Remark>,
    /// Names, and the addresses that they had when they were asked for.
    pub names: BTreeMap<String, Vec<IpAddr>>,
    /// Flags of `ballast run` that say what a table does not.
    pub flags: Vec<String>,
}

/// Something to say about a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remark {
    /// Which file it is about, from 0 in their order.
    pub file: usize,
    /// The number of the line, from 1; 0 for the whole file.
    pub line: usize,
    /// The last line that it is about: of a section or a block that was not read, the end.
    pub last: usize,
    /// What became of it.
    pub kind: Kind,
    /// The line, without passwords.
    pub text: String,
    /// The reason and, behind a semicolon, the remedy.
    pub why: String,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The table does not say what the line said, or a part of it.
    LeftOut,
    /// The table says the line, and what comes of it is not the same for all that it is about.
    Differs,
    /// Nothing is lost, but something is to be known.
    Note,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::LeftOut => "left out",
            Kind::Differs => "differs",
            Kind::Note => "note",
        };
        match self.text.is_empty() {
            true => write!(f, "{kind}: {}", self.why)?,
            false => write!(f, "{kind}: `{}`: {}", self.text, self.why)?,
        }
        match self.last > self.line {
            true => write!(f, " (lines {} to {})", self.line, self.last),
            false => Ok(()),
        }
    }
}

impl Report {
    /// How many remarks of this kind there are.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        let of_kind = |remark: &&Remark| remark.kind == kind;
        self.remarks.iter().filter(of_kind).count()
    }

    /// How many remarks say that the table is not what the configuration is.
    #[must_use]
    pub fn unlike(&self) -> usize {
        self.remarks.len() - self.count(Kind::Note)
    }

    pub(super) fn left_out(&mut self, line: &Line, why: impl Into<String>) {
        self.lines(Kind::LeftOut, line, line.number, why);
    }

    /// What a line says; where it cannot be said, the line is left out for this reason.
    pub(super) fn good<T>(&mut self, line: &Line, said: Result<T, String>) -> Option<T> {
        said.map_err(|why| self.left_out(line, why)).ok()
    }

    pub(super) fn differs(&mut self, line: &Line, why: impl Into<String>) {
        self.lines(Kind::Differs, line, line.number, why);
    }

    pub(super) fn note(&mut self, line: &Line, why: impl Into<String>) {
        self.lines(Kind::Note, line, line.number, why);
    }

    /// A remark about several lines, up to `last`.
    pub(super) fn lines(&mut self, kind: Kind, line: &Line, last: usize, why: impl Into<String>) {
        let remark = Remark {
            file: 0,
            line: line.number,
            last,
            kind,
            text: line.shown.to_string(),
            why: one_line(&why.into()),
        };
        self.remarks.push(remark);
    }

    /// Takes back the notes behind the first remarks: what they are about is not in the table.
    pub(super) fn forget_notes(&mut self, first: usize) {
        let behind = self.remarks.split_off(first.min(self.remarks.len()));
        let others = behind.into_iter();
        self.remarks
            .extend(others.filter(|remark| remark.kind != Kind::Note));
    }

    pub(super) fn flag(&mut self, flag: impl Into<String>) {
        let flag = flag.into();
        if !self.flags.contains(&flag) {
            self.flags.push(flag);
        }
    }

    /// Sorts the remarks, whose lines have been numbered through all files.
    pub(super) fn sort(&mut self, places: &Places) {
        for remark in self.remarks.iter_mut().filter(|remark| remark.line > 0) {
            let (file, before) = places.of(remark.line);
            remark.file = file;
            remark.line -= before;
            remark.last -= before;
        }
        // A line of `defaults` is met once for each section that it is for.
        self.remarks.sort();
        self.remarks.dedup();
    }
}

/// The files whose lines are numbered through while they are read.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The names of the files, and how many lines stand before each.
    files: Vec<(String, usize)>,
    /// The last line that was read.
    pub(super) lines: usize,
}

impl Places {
    /// The next file; returns how many lines stand before it.
    pub(super) fn begin(&mut self, name: &str) -> usize {
        self.files.push((one_line(name), self.lines));
        self.lines
    }

    /// The file of a line, and how many lines stand before that file.
    fn of(&self, number: usize) -> (usize, usize) {
        let files = self.files.iter().enumerate().rev();
        let mut files = files.map(|(file, (_, before))| (file, *before));
        files
            .find(|(_, before)| *before < number)
            .unwrap_or_default()
    }

    /// A line for messages; with the name of its file where there are several.
    pub(super) fn shown(&self, number: usize) -> String {
        let (file, before) = self.of(number);
        let line = number - before;
        match self.files.get(file) {
            Some((name, _)) if self.files.len() > 1 => format!("line {line} of {name}"),
            _ => format!("line {line}"),
        }
    }
}

/// What a remark about one line says of others that it is about, too.
pub(super) fn and_so_for(more: usize) -> String {
    match more {
        0 => String::new(),
        1 => ", and so for 1 more line".into(),
        more => format!(", and so for {more} more lines"),
    }
}

/// Several things in a message.
pub(super) fn listed<T: fmt::Display>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    all.join(", ")
}

/// A text of the configuration for terminals: what would begin a line or steer them is a space.
pub(super) fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
