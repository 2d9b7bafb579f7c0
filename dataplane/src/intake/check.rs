//! A table at a place, read once and judged: by `ballast check`, and before the process begins.

use std::path::Path;

use ballast_core::table::{self, RoutingTable};

use super::{folder_of, named, read_once};
use crate::start_error::StartError;

/// Reads the table at `path`, and looks for whatever is wrong with it or with the files that it names.
pub fn check(path: &Path) -> Result<RoutingTable, StartError> {
    let table = table_at(path)?;
    let folder = folder_of(path);
    let missing: Vec<String> = table::files(&table)
        .into_iter()
        .filter_map(|(at, file)| {
            let fault = named::look(&folder.join(&file)).err()?;
            Some(fault.problem(at, &file).to_string())
        })
        .collect();
    if missing.is_empty() {
        Ok(table)
    } else {
        Err(StartError::Table(missing.join("\n")))
    }
}

/// Reads the table at `path`, and looks for whatever is wrong with it alone.
pub(crate) fn table_at(path: &Path) -> Result<RoutingTable, StartError> {
    let (bytes, format) = read_once(path).map_err(StartError::Table)?;
    table::parse(&bytes, format).map_err(|problems| {
        let count = match problems.len() {
            1 => "a problem".to_owned(),
            count => format!("{count} problems"),
        };
        StartError::Table(format!(
            "{}: refused for {count}\n{problems}",
            path.display()
        ))
    })
}
