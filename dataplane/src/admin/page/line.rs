//! A line of the page, cell by cell: so that an event needs to tell only what has changed.

use std::fmt::{Display, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A row of a table, the head of a service, or one of the lines above them.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) id: String,
    pub(super) class: &'static str,
    /// Of all cells.
    html: String,
    /// Of each cell: its class, where it begins, and whether it changes.
    cells: Vec<(&'static str, usize, bool)>,
}

impl Line {
    pub(super) fn new(id: String, class: &'static str) -> Self {
        Self {
            id,
            class,
            ..Self::default()
        }
    }

    /// Adds a cell; what is not `Escaped` must be markup of ours.
    pub(super) fn cell(&mut self, class: &'static str, content: impl Display) {
        self.add(class, content, true);
    }

    /// Adds a cell that a reader may have changed. It stays as it is.
    pub(super) fn still(&mut self, class: &'static str, content: impl Display) {
        self.add(class, content, false);
    }

    fn add(&mut self, class: &'static str, content: impl Display, is_live: bool) {
        self.cells.push((class, self.html.len(), is_live));
        // Writing into a string cannot fail.
        write!(self.html, "{content}").unwrap_or_default();
    }

    /// The whole line, each cell in such a tag.
    pub(super) fn write(&self, out: &mut String, tag: &str, cell: &str) {
        let Self { id, class, .. } = self;
        write!(out, r#"<{tag} id="{id}" class="{class}">"#).unwrap_or_default();
        for (class, html, _) in self.cells() {
            if class.is_empty() {
                write!(out, "<{cell}>{html}</{cell}>").unwrap_or_default();
            } else {
                write!(out, r#"<{cell} class="{class}">{html}</{cell}>"#).unwrap_or_default();
            }
        }
        writeln!(out, "</{tag}>").unwrap_or_default();
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = (&'static str, &str, bool)> {
        self.cells
            .iter()
            .enumerate()
            .map(|(place, (class, start, is_live))| {
                let end = self.cells.get(place + 1).map(|(_, start, _)| *start);
                let html = self.html.get(*start..end.unwrap_or(self.html.len()));
                (*class, html.unwrap_or_default(), *is_live)
            })
    }
}

/// A number that stands for a text.
pub(super) fn digest(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
