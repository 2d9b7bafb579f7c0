//! Reads and checks a table once: for `ballast check`, and before the process starts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ballast_core::certificate::is_covered;
use ballast_core::compile::{CompileContext, compile};
use ballast_core::loops;
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use ballast_core::rng::Rng;
use ballast_core::table::{
    self, Bind, Format, Frontend, HostPattern, OrOff, Problem, Problems, Protocol, RoutingTable,
    State, Stats, located,
};
use tokio::time::Instant;

use super::{Stamp, is_file, read_once, stamp_of_table};
use crate::net::tls::ServedCertificate;
use crate::net::{listen, tls};
use crate::os::clock::unix_seconds;
use crate::os::files::{self, NamedFiles, folder_of};
use crate::process::config::Admin;
use crate::process::start_error::StartError;

/// What there is to say of a table.
#[derive(Debug)]
pub struct Checked {
    /// What became of it.
    pub verdict: Verdict,
    /// A line that sums it up.
    pub summary: String,
    /// A line for each mistake in it, and in the files that it names.
    pub problems: Vec<String>,
    /// What its author hardly wants, though it would be served.
    pub warnings: Vec<String>,
}

/// What became of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Good,
    /// It cannot be read; or it would be served, but a file that it names cannot be read or used.
    Unreadable,
    /// It has mistakes, and would not be served.
    Refused,
}

/// Checks the table at `path`, and the files that it names, for a process with this admin address.
#[must_use]
pub fn check(path: &Path, admin: &Admin) -> Checked {
    let (bytes, format) = match read_once(path) {
        Ok(read) => read,
        Err(why) => {
            return Checked {
                verdict: Verdict::Unreadable,
                summary: why,
                problems: Vec::new(),
                warnings: Vec::new(),
            };
        }
    };
    let folder = folder_of(path);
    let mut found = Findings::default();
    let parsed = table::parse(&bytes, format);
    match &parsed {
        Ok(table) => {
            found.advice = table::advice(table, (&bytes, format), loops::of_redirects(table));
            found.of_table(table, &folder, admin);
        }
        Err(problems) => {
            let read = problems.read_parts();
            found.own.extend(problems.iter().cloned());
            if let Some(stats) = &read.stats {
                let binds = admin_problems(&read.stream_binds, stats, admin);
                found.own.extend(binds);
            }
            found.files = faults(&folder, read.files.clone());
            found.contents = contents(&folder, problems, &found.files);
        }
    }
    let verdict = found.verdict();
    let summary = match (&parsed, verdict) {
        (Ok(table), Verdict::Good) => table.summary(),
        _ => found.in_words(),
    };
    let mut problems = found.own;
    problems.extend(found.files);
    problems.extend(found.contents);
    let advice = located(&bytes, &found.advice);
    Checked {
        verdict,
        summary: format!("{}: {summary}", path.display()),
        problems: located(&bytes, &problems),
        warnings: advice.into_iter().chain(found.warnings).collect(),
    }
}

/// What was found in a table.
#[derive(Default)]
struct Findings {
    /// Mistakes of the table itself.
    own: Vec<Problem>,
    /// Files that cannot be read.
    files: Vec<Problem>,
    /// Files that can be read, and hold something else than they should.
    contents: Vec<Problem>,
    /// Places of the table that hardly mean what they say.
    advice: Vec<Problem>,
    /// Other warnings, as sentences.
    warnings: Vec<String>,
}

impl Findings {
    /// Looks at a table without mistakes of its own.
    fn of_table(&mut self, table: &RoutingTable, folder: &Path, admin: &Admin) {
        self.own = admin_problems(&table::stream_binds(table), &table.stats, admin);
        self.files = faults(folder, table::files(table));
        let configs = tls_of(folder, table);
        self.contents = tls_faults(&configs, table, &self.files);
        self.warnings = loop_warnings(table);
        let now = unix_seconds();
        for frontend in &table.frontends {
            let dates = configs.warnings(&frontend.name, now);
            self.warnings.extend(dates);
            if let Some(served) = configs.served(&frontend.name) {
                let unused = served.iter().filter_map(|one| unused(frontend, one));
                self.warnings.extend(unused);
            }
        }
    }

    fn verdict(&self) -> Verdict {
        let files_are_good = self.files.is_empty() && self.contents.is_empty();
        match (self.own.is_empty(), files_are_good) {
            (false, _) => Verdict::Refused,
            (true, false) => Verdict::Unreadable,
            (true, true) => Verdict::Good,
        }
    }

    fn in_words(&self) -> String {
        let own = match self.own.len() {
            0 => None,
            own => Some(format!("refused for {}", counted(own))),
        };
        let files = match self.files.len() + self.contents.len() {
            0 => None,
            files => Some(format!("{} with files that it names", counted(files))),
        };
        let words: Vec<String> = own.into_iter().chain(files).collect();
        words.join(", and ")
    }
}

fn counted(count: usize) -> String {
    match count {
        1 => "a problem".to_owned(),
        count => format!("{count} problems"),
    }
}

fn loop_warnings(table: &RoutingTable) -> Vec<String> {
    let host = listen::host_addresses().unwrap_or_default();
    let found = loops::find(&table.frontends, &table.services, &host, |_, endpoint| {
        endpoint.state != State::Disabled
    });
    found.warnings
}

/// The table that a process begins with, if there is one. It is read before anything starts.
#[derive(Debug)]
pub struct FirstTable {
    path: PathBuf,
    /// The stamp of its file, taken before that was read.
    stamp: Option<Stamp>,
    /// `None`: `path` is a folder, which may get a good table later; or the process has begun.
    parsed: Option<ParsedTable>,
}

impl FirstTable {
    /// Reads the table at `path`. An error lists everything that is wrong with the table itself.
    pub fn read(path: &Path) -> Result<Self, StartError> {
        let stamp = stamp_of_table(path);
        let parsed = if path.is_dir() {
            ParsedTable::read(path).ok()
        } else {
            is_file(path).map_err(StartError::Table)?;
            Some(ParsedTable::read(path)?)
        };
        Ok(Self {
            path: path.into(),
            stamp,
            parsed,
        })
    }

    /// Whether the file is still the one that was read.
    pub fn is_current(&self) -> bool {
        stamp_of_table(&self.path) == self.stamp
    }

    /// What it says of the admin side.
    pub(crate) fn stats(&self) -> Option<&Stats> {
        self.parsed.as_ref().map(|parsed| &parsed.table.stats)
    }

    /// The table, for the one that applies it.
    pub(crate) fn take(&mut self) -> Option<ParsedTable> {
        self.parsed.take()
    }
}

/// A table and its text: whoever reads the same bytes need not parse them again.
#[derive(Debug)]
pub(crate) struct ParsedTable {
    bytes: Vec<u8>,
    format: Format,
    table: RoutingTable,
}

impl ParsedTable {
    fn read(path: &Path) -> Result<Self, StartError> {
        let (bytes, format) = read_once(path).map_err(StartError::Table)?;
        match table::parse(&bytes, format) {
            Ok(table) => Ok(Self {
                bytes,
                format,
                table,
            }),
            Err(problems) => {
                let count = counted(problems.len());
                let lines = located(&bytes, &problems).join("\n");
                let words = format!("{}: refused for {count}\n{lines}", path.display());
                Err(StartError::Table(words))
            }
        }
    }

    /// The table, if this is its text.
    pub(crate) fn of(self, bytes: &[u8], format: Format) -> Option<RoutingTable> {
        (self.format == format && self.bytes == bytes).then_some(self.table)
    }
}

/// Frontends that cannot listen, since the process itself answers at one of their addresses: it shares its ports with nobody. (That
/// a frontend has the very address of the table's own `stats` is found when the table is parsed. The rest is no reason to refuse a
/// table: another admin address may be given when it is served, and its other frontends are served in any case.)
fn admin_problems(binds: &[(String, Bind)], stats: &Stats, admin: &Admin) -> Vec<Problem> {
    let (own, is_written) = match admin {
        Admin::At(addresses) => (addresses.iter().copied().map(Bind::Exact).collect(), false),
        Admin::FromTable => (stats.bind().to_vec(), stats.bind.is_some()),
    };
    let healthz = match &stats.healthz {
        OrOff::On(binds) => binds.to_vec(),
        OrOff::Off => Vec::new(),
    };
    let of_admin = overlapping(binds, &own, is_written, "admin address");
    of_admin
        .chain(overlapping(binds, &healthz, true, "address for healthz"))
        .collect()
}

/// A problem for each of these binds that overlaps with one of Ballast's own. `is_written`: the table has these, and a bind with the
/// very same address is a problem of the table already.
fn overlapping(
    binds: &[(String, Bind)],
    own: &[Bind],
    is_written: bool,
    what: &str,
) -> impl Iterator<Item = Problem> {
    let is_known = move |bind: &Bind| is_written && own.iter().any(|own| own.meets(bind));
    let taken = binds
        .iter()
        .filter(move |(_, bind)| own.iter().any(|own| own.overlaps(bind)) && !is_known(bind));
    taken.map(move |(at, bind)| {
        let verb = if own.contains(bind) {
            "is"
        } else {
            "overlaps with"
        };
        Problem::new(
            at,
            format!("{bind} {verb} Ballast's own {what}"),
            "choose another port, or move the admin address: stats.bind in the table, or --admin here and for `ballast run`",
        )
    })
}

/// A problem for each of these files, as named at a place of the table, that cannot be used.
fn faults(folder: &Path, files: Vec<(String, PathBuf)>) -> Vec<Problem> {
    let problem = |(at, file): (String, PathBuf)| {
        let fault = files::check(&folder.join(&file)).err()?;
        Some(fault.problem(at, &file))
    };
    files.into_iter().filter_map(problem).collect()
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

/// A problem for each certificate, key or authority that cannot be used, though its file can be read. Files that cannot be
/// read are `known`.
fn tls_faults(configs: &tls::Configs, table: &RoutingTable, known: &[Problem]) -> Vec<Problem> {
    let is_known = |why: &str| known.iter().any(|known| why.contains(&known.why));
    let mut found: Vec<Problem> = Vec::new();
    for (index, frontend) in table.frontends.iter().enumerate() {
        let problems = configs.problems(frontend).into_iter();
        for tls::Problem { part, why, .. } in problems.filter(|one| !is_known(&one.why)) {
            let at = match part {
                tls::Part::Certificate(place) => {
                    format!("frontends[{index}].tls.certificates[{place}]")
                }
                tls::Part::ClientAuth => format!("frontends[{index}].tls.client-auth"),
                tls::Part::Settings => format!("frontends[{index}].tls"),
                tls::Part::Service(name) => {
                    let mut services = table.services.iter();
                    let place = services.position(|service| service.name == name);
                    format!("services[{}].tls", place.unwrap_or_default())
                }
            };
            let problem = content(at, why);
            // Several frontends may have the service.
            if !found.contains(&problem) {
                found.push(problem);
            }
        }
    }
    found
}

/// The same for a refused table, of which some places could not be read.
fn contents(folder: &Path, refused: &Problems, known: &[Problem]) -> Vec<Problem> {
    let files = &refused.read_parts().files;
    let mut named = NamedFiles::default();
    let paths: Vec<PathBuf> = files.iter().map(|(_, file)| file.clone()).collect();
    named.read(folder, &paths);
    let by_place: HashMap<&str, &Path> = files
        .iter()
        .map(|(at, file)| (&**at, file.as_path()))
        .collect();
    let problem = |(at, file): &(String, PathBuf)| {
        let (at, why) = if let Some(at) = at.strip_suffix(".ca") {
            (at, tls::authorities(&named, file).err()?)
        } else {
            let at = at.strip_suffix(".cert")?;
            let key = by_place.get(format!("{at}.key").as_str()).copied();
            (at, tls::pair_problem(file, key, &named)?)
        };
        let is_known = known.iter().any(|known| why.contains(&known.why))
            || refused.iter().any(|own| own.at.starts_with(at));
        (!is_known).then(|| content(at.to_owned(), why))
    };
    files.iter().filter_map(problem).collect()
}

/// A file with something else in it than there should be.
fn content(at: String, why: String) -> Problem {
    let remedy = if why.contains("no other file with the key") {
        "add key: FILE beside cert, or put the key in this file, too"
    } else {
        "put a good file there"
    };
    Problem::new(at, why, remedy)
}

/// Why a certificate of this frontend is of no use, as a sentence. The first one is offered to clients that name no host.
fn unused(frontend: &Frontend, certificate: &ServedCertificate) -> Option<String> {
    let first = frontend.tls.as_ref()?.certificates.first()?;
    if first.cert.display().to_string() == *certificate.file {
        return None;
    }
    let names = || certificate.names.iter().map(|name| &**name);
    let why = match &frontend.routes {
        _ if certificate.names.is_empty() => "names no host",
        routes
            if routes.is_empty()
                || frontend.default.is_some()
                || frontend.protocol != Protocol::Https =>
        {
            return None;
        }
        routes => {
            let is_meant = |host: &Option<HostPattern>| match host {
                None => true,
                Some(host @ HostPattern::Exact(_)) => is_covered(host, names()),
                Some(host @ HostPattern::Under(parent)) => {
                    let below = |name: &str| {
                        name.strip_suffix(&**parent)
                            .is_some_and(|name| name.ends_with('.'))
                    };
                    is_covered(host, names()) || names().any(below)
                }
            };
            let mut hosts = routes.iter().map(|route| &route.host);
            if hosts.any(is_meant) {
                return None;
            }
            "is for no host of a route"
        }
    };
    Some(format!(
        "frontend {}: certificate {certificate} {why}, so that no client has a use for it",
        frontend.name
    ))
}
