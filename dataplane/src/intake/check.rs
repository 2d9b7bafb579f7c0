//! Reads and checks a table once: for `ballast check`, and before the process starts.

use std::path::{Path, PathBuf};

use ballast_core::compile::{CompileContext, compile};
use ballast_core::loops;
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use ballast_core::rng::Rng;
use ballast_core::table::{self, Problem, Problems, RoutingTable, State};
use tokio::time::Instant;

use super::{NamedFiles, folder_of, named, read_once};
use crate::clock::unix_seconds;
use crate::start_error::StartError;
use crate::{listen, tls};

/// A good table, and what its author hardly wants.
#[derive(Debug)]
pub struct Checked {
    /// The table.
    pub table: RoutingTable,
    /// Sentences about endpoints that are frontends of the same table, where the addresses of this host count if `*` is bound; and
    /// about certificates that are not valid, or soon will not be.
    pub warnings: Vec<String>,
}

/// Reads the table at `path`. An error lists everything that is wrong with it and with the files that it names.
pub fn check(path: &Path) -> Result<Checked, StartError> {
    let (bytes, format) = read_once(path).map_err(StartError::Table)?;
    let parsed = table::parse(&bytes, format);
    let mut lines = Vec::new();
    let files = match &parsed {
        Ok(table) => table::files(table),
        Err(problems) => {
            lines.push(refusal(path, problems));
            problems.files().to_vec()
        }
    };
    let folder = folder_of(path);
    lines.extend(faults(&folder, files));
    let mut warnings = Vec::new();
    if let (Ok(table), true) = (&parsed, lines.is_empty()) {
        let configs = tls_of(&folder, table);
        lines.extend(tls_faults(&configs, table));
        warnings = loop_warnings(table);
        let frontends = table.frontends.iter();
        let now = unix_seconds();
        warnings.extend(frontends.flat_map(|frontend| configs.warnings(&frontend.name, now)));
    }
    match parsed {
        Ok(table) if lines.is_empty() => Ok(Checked { table, warnings }),
        _ => Err(StartError::Table(lines.join("\n"))),
    }
}

fn loop_warnings(table: &RoutingTable) -> Vec<String> {
    let host = listen::host_addresses().unwrap_or_default();
    let found = loops::find(&table.frontends, &table.services, &host, |_, endpoint| {
        endpoint.state != State::Disabled
    });
    found.warnings
}

/// Reads the table at `path`. An error lists everything that is wrong with the table itself.
pub(crate) fn table_at(path: &Path) -> Result<RoutingTable, StartError> {
    let (bytes, format) = read_once(path).map_err(StartError::Table)?;
    let refused = |problems| StartError::Table(refusal(path, &problems));
    table::parse(&bytes, format).map_err(refused)
}

fn refusal(path: &Path, problems: &Problems) -> String {
    let count = match problems.len() {
        1 => "a problem".to_owned(),
        count => format!("{count} problems"),
    };
    format!("{}: refused for {count}\n{problems}", path.display())
}

/// One line for each of these files, as named at a place of the table, that cannot be used.
fn faults(folder: &Path, files: Vec<(String, PathBuf)>) -> impl Iterator<Item = String> {
    files.into_iter().filter_map(|(at, file)| {
        let fault = named::check(&folder.join(&file)).err()?;
        Some(fault.problem(at, &file).to_string())
    })
}

/// The TLS of this table, with the files as they are now.
fn tls_of(folder: &Path, table: &RoutingTable) -> tls::Configs {
    let mut files = NamedFiles::default();
    let named = table::files(table).into_iter();
    files.read(folder, &named.map(|(_, file)| file).collect::<Vec<_>>());
    let mut context = CompileContext {
        now: Moment(0),
        workers: 1,
        ipv6: true,
        host: &loops::LOOPBACK_ONLY,
        rng: &mut Rng::new(0),
    };
    let plan = compile(table.clone(), &Plan::default(), &mut context);
    let compiler = tls::Compiler::new(Instant::now());
    compiler.compile(&plan, &files, &tls::Configs::default())
}

/// One line for each certificate, key or authority that cannot be used, though its file can be read.
fn tls_faults(configs: &tls::Configs, table: &RoutingTable) -> Vec<String> {
    let frontends = table.frontends.iter().enumerate();
    frontends
        .flat_map(|(at, frontend)| configs.problems(frontend).map(move |why| (at, why)))
        .map(|(at, why)| {
            Problem::new(format!("frontends[{at}].tls"), why, "put a good file there").to_string()
        })
        .collect()
}
