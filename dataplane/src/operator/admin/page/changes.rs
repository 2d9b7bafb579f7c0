//! What has changed on a page since its reader was last sent the changes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::Serialize;

use super::line::Line;
use super::rows::Listing;
use super::view::View;
use crate::operator::admin::announced::Announced;
use crate::stats::{Snapshot, Statistics};

/// One reader, and the state of the page that they were sent.
#[derive(Debug)]
pub(in crate::operator::admin) struct Changes {
    view: View,
    shape: u64,
    /// A digest of the class and of each cell, by a line's name.
    known: HashMap<String, Vec<u64>>,
}

/// An event, as the page's script reads it.
#[derive(Serialize)]
struct Told<'a> {
    /// The script fetches the page again when its own differs.
    shape: String,
    lines: Vec<News<'a>>,
}

/// The name of a line, its class, and the cells that are new.
type News<'a> = (&'a str, &'a str, Vec<(usize, &'a str)>);

impl Changes {
    pub(in crate::operator::admin) fn new(view: View) -> Self {
        Self {
            view,
            shape: 0,
            known: HashMap::new(),
        }
    }

    /// What is new in this snapshot, as JSON.
    pub(in crate::operator::admin) fn since(
        &mut self,
        stats: &Arc<Statistics>,
        snapshot: Arc<Snapshot>,
        announced: Option<Arc<Announced>>,
    ) -> Vec<u8> {
        let listing = Listing::of(stats, snapshot, announced, self.view.clone());
        let lines: Vec<Line> = listing.lines().collect();
        let shape = listing.shape();
        if self.shape != shape {
            self.shape = shape;
            self.known.clear();
        }
        let told = Told {
            shape: format!("{shape:016x}"),
            lines: lines.iter().filter_map(|line| self.news(line)).collect(),
        };
        // A vector takes all, and there is no map with strange keys.
        serde_json::to_vec(&told).unwrap_or_default()
    }

    fn news<'a>(&mut self, line: &'a Line) -> Option<News<'a>> {
        let cells = line.cells.iter().map(|cell| digest(&cell.html));
        let now: Vec<u64> = std::iter::once(digest(line.class)).chain(cells).collect();
        let before = self.known.get(&line.id);
        if before == Some(&now) {
            return None;
        }
        let is_new =
            |place: usize| before.and_then(|before| before.get(place + 1)) != now.get(place + 1);
        let cells = line.cells.iter().enumerate();
        let cells = cells
            .filter(|(place, cell)| cell.is_live && is_new(*place))
            .map(|(place, cell)| (place, &*cell.html))
            .collect();
        self.known.insert(line.id.clone(), now);
        Some((&line.id, line.class, cells))
    }
}

/// A hash of a text.
fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
