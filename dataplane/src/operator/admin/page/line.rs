//! A line of the page, cell by cell, so that an event contains only the cells that have changed.

use ballast_core::text::Append;

use maud::{Markup, PreEscaped};

/// A row of a table, the head of a service, or one of the lines above them.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) id: String,
    pub(super) class: &'static str,
    pub(super) cells: Vec<Cell>,
}

#[derive(Debug)]
pub(super) struct Cell {
    pub(super) class: &'static str,
    pub(super) html: String,
    /// Whether an event replaces it. A cell that a reader may have changed stays as it is.
    pub(super) is_live: bool,
}

impl Line {
    pub(super) fn new(
        id: String,
        class: &'static str,
        cells: impl IntoIterator<Item = Cell>,
    ) -> Self {
        Self {
            id,
            class,
            cells: cells.into_iter().collect(),
        }
    }

    /// The whole line, with each cell in such an element.
    pub(super) fn markup(&self, element: &str, of_cell: &str) -> Markup {
        let Self { id, class, cells } = self;
        let mut out = format!(r#"<{element} id="{id}" class="{class}">"#);
        for Cell { class, html, .. } in cells {
            match *class {
                "" => write!(out, "<{of_cell}>{html}</{of_cell}>"),
                class => write!(out, r#"<{of_cell} class="{class}">{html}</{of_cell}>"#),
            }
        }
        PreEscaped(out + "</" + element + ">\n")
    }
}

/// A cell that events keep up to date.
pub(super) fn cell(class: &'static str, content: Markup) -> Cell {
    Cell {
        class,
        html: content.into_string(),
        is_live: true,
    }
}

/// Cells that events keep up to date: lines of a class and its markup.
macro_rules! cells {
    ($($class:literal $markup:tt)*) => {
        [$(cell($class, html! $markup)),*]
    };
}

pub(super) use cells;
