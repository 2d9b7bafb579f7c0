//! The shell of an import: files, names and variables of this machine.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use ballast_core::table::{Format, files, parse};

use super::report::{Kind, listed};
use super::world::World;
use super::{Imported, MADE_BY, Source, translate};

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The configuration cannot be read, or is none.
    #[error("{}: {why}", path.display())]
    Source {
        /// The configuration.
        path: PathBuf,
        /// The reason and the remedy.
        why: String,
    },
    /// The table cannot be written.
    #[error("{}: cannot be written: {why}", path.display())]
    Output {
        /// What was to be written.
        path: PathBuf,
        /// The reason.
        why: io::Error,
    },
}

/// Imports the configuration of these files and folders, and writes the table to `output` and its pages beside it; without `output`
/// nothing is written. A folder stands for its files `*.cfg`, as for haproxy.
pub fn import(sources: &[PathBuf], output: Option<&Path>) -> Result<Imported, ImportError> {
    let mut read_files = Vec::new();
    for path in files_of(sources) {
        let text = match path == Path::new("-") {
            true => bytes_of(io::stdin()),
            false => read(&path),
        };
        let text = text.map_err(|why| {
            refused(
                &path,
                format!("cannot be read: {why}; name a configuration of haproxy"),
            )
        })?;
        let same = |one: &Path| fs::canonicalize(one).ok();
        if output.is_some_and(|output| same(output).is_some_and(|it| same(&path) == Some(it))) {
            return Err(refused(&path, "is the configuration itself, which an import does not overwrite; name another file by -o".into()));
        }
        read_files.push((path.display().to_string(), text));
    }
    let texts: Vec<Source<'_>> = read_files
        .iter()
        .map(|(name, text)| Source { name, text })
        .collect();
    let machine = Machine {
        output,
        read: RefCell::default(),
    };
    let mut imported = translate(&texts, &machine, output.is_some());
    if !imported.has_proxies {
        let mut remarks = imported.report.remarks.iter();
        let first = remarks.find(|remark| remark.kind == Kind::LeftOut);
        let first = first.map(|remark| format!(" (line {}: {remark})", remark.line));
        let named = sources.first().cloned().unwrap_or_default();
        return Err(refused(
            &named,
            format!(
                "has no section of haproxy's configuration that serves anything{}; expected frontend, listen or backend",
                first.unwrap_or_default()
            ),
        ));
    }
    if let Some(output) = output {
        imported.kept = write(output, &imported)?;
    }
    Ok(imported)
}

fn refused(path: &Path, why: String) -> ImportError {
    ImportError::Source {
        path: path.into(),
        why,
    }
}

/// The files that are meant: of a folder those that end with .cfg, by their names, without hidden ones.
fn files_of(sources: &[PathBuf]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for source in sources {
        let Ok(entries) = fs::read_dir(source) else {
            files.push(source.clone());
            continue;
        };
        let is_meant = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            name.ends_with(b".cfg") && !name.starts_with(b".") && path.is_file()
        };
        let mut found: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(is_meant)
            .collect();
        found.sort();
        files.append(&mut found);
    }
    files
}

impl Imported {
    /// All that is to be said beside the table, for people. `folder` is that of the table.
    #[must_use]
    pub fn in_words(&self, folder: &Path) -> String {
        let all = self.sources.join(", ");
        let mut words = String::new();
        for remark in &self.report.remarks {
            let source = self.source(remark);
            words.push_str(&match remark.line {
                0 => format!("{source}: {remark}\n"),
                line => format!("{source}:{line}: {remark}\n"),
            });
        }
        for (name, addresses) in &self.report.names {
            words.push_str(&format!(
                "{all}: the name {name} is {} now; import again when that changes\n",
                listed(addresses)
            ));
        }
        for path in self.missing_files(folder) {
            words.push_str(&format!(
                "{all}: {} is not on this machine, and must be where the table is served\n",
                path.display()
            ));
        }
        if let Some(kept) = &self.kept {
            let kept = kept.display();
            words.push_str(&format!(
                "{all}: the table that was there is kept as {kept}\n"
            ));
        }
        let table = parse(self.table.as_bytes(), Format::Yaml);
        let summary = table.map(|table| table.summary()).unwrap_or_default();
        let left_out = match self.report.count(Kind::LeftOut) {
            0 => "nothing was left out".to_owned(),
            1 => "1 thing was left out".to_owned(),
            more => format!("{more} things were left out"),
        };
        let differs = match self.report.count(Kind::Differs) {
            0 => String::new(),
            1 => ", 1 line differs".to_owned(),
            more => format!(", {more} lines differ"),
        };
        words.push_str(&format!("{all}: {summary}; {left_out}{differs}\n"));
        words
    }

    /// The files that the table names and this machine does not have, in the order of the table; `folder` is that of the table.
    #[must_use]
    pub fn missing_files(&self, folder: &Path) -> Vec<PathBuf> {
        let Ok(table) = parse(self.table.as_bytes(), Format::Yaml) else {
            return Vec::new();
        };
        let mut seen = HashSet::new();
        let named = files(&table).into_iter().map(|(_, path)| path);
        let written = |path: &PathBuf| self.files.iter().any(|(name, _)| Path::new(name) == path);
        let missing = named.filter(|path| !written(path) && !folder.join(path).is_file());
        missing.filter(|path| seen.insert(path.clone())).collect()
    }
}

/// Pages first, so that the table names nothing that is not there. Returns where a table is kept that this one replaced.
fn write(output: &Path, imported: &Imported) -> Result<Option<PathBuf>, ImportError> {
    let folder = output.parent().unwrap_or_else(|| Path::new(""));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |why| ImportError::Output { path, why }
    };
    if !folder.as_os_str().is_empty() && !folder.is_dir() {
        let why = format!("there is no folder {}; make it", folder.display());
        return Err(failed(output)(io::Error::other(why)));
    }
    for (name, bytes) in &imported.files {
        let path = folder.join(name);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| replace(&path, bytes))
            .map_err(failed(&path))?;
    }
    let kept = keep(output, imported.table.as_bytes()).map_err(failed(output))?;
    replace(output, imported.table.as_bytes()).map_err(failed(output))?;
    Ok(kept)
}

/// Copies a table that another one is to replace, for it may have been completed by hand. Returns where the copy is.
fn keep(output: &Path, table: &[u8]) -> io::Result<Option<PathBuf>> {
    if !output.is_file() || fs::read(output)? == table {
        return Ok(None);
    }
    let free = (1_u32..).map(|number| {
        let mut name = output.file_name().unwrap_or_default().to_owned();
        name.push(match number {
            1 => ".old".to_owned(),
            more => format!(".old-{more}"),
        });
        output.with_file_name(name)
    });
    let Some(copy) = free.take(MOST_COPIES).find(|copy| !copy.exists()) else {
        return Err(io::Error::other(format!(
            "there are {MOST_COPIES} copies of tables that were there before; remove some"
        )));
    };
    fs::copy(output, &copy)?;
    Ok(Some(copy))
}

/// The files that the table there names, where an import has made it: this one may replace them.
fn made_before(output: &Path) -> Vec<PathBuf> {
    let Ok(bytes) = read(output) else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&bytes);
    let mut head = text.lines().take_while(|line| line.starts_with('#'));
    if !head.any(|line| line.contains(MADE_BY)) {
        return Vec::new();
    }
    let table = parse(&bytes, Format::Yaml);
    let named = table.map(|table| files(&table)).unwrap_or_default();
    named.into_iter().map(|(_, path)| path).collect()
}

/// Replaces a file as a whole; what is no plain file, such as a pipe, is written to.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if path.exists() && !path.is_file() {
        return fs::write(path, bytes);
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let draft = path.with_file_name(name);
    let mut file = fs::File::create(&draft)?;
    file.write_all(bytes)?;
    drop(file);
    fs::rename(draft, path)
}

/// This machine.
struct Machine<'o> {
    /// Where the table is written.
    output: Option<&'o Path>,
    /// The files that were read, which no page takes the place of.
    read: RefCell<HashSet<PathBuf>>,
}

impl World for Machine<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let found = (name, 0)
            .to_socket_addrs()
            .map_err(|error| error.to_string())?;
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in found {
            if !addresses.contains(&address.ip()) {
                addresses.push(address.ip());
            }
        }
        match addresses.is_empty() {
            true => Err("it has no address".into()),
            false => Ok(addresses),
        }
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        self.read.borrow_mut().extend(fs::canonicalize(path));
        let path = Path::new(path);
        // A pipe might never say anything.
        if path.exists() && !path.is_file() {
            return Err("it is no regular file; name one".into());
        }
        read(path).map_err(|error| error.to_string())
    }

    /// A file that is there stays, unless the table before this one names it as a page.
    fn may_write(&self, name: &str, bytes: &[u8]) -> bool {
        let Some(output) = self.output else {
            return true;
        };
        let path = output.with_file_name(name);
        let is_source = || {
            let path = fs::canonicalize(&path);
            path.is_ok_and(|path| self.read.borrow().contains(&path))
        };
        if !path.is_file() {
            return !path.exists();
        }
        let is_ours = || made_before(output).contains(&PathBuf::from(name)) && !is_source();
        read(&path).is_ok_and(|there| there == bytes) || is_ours()
    }

    fn folder(&self, path: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(path).ok()?.flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        Some(names)
    }

    fn absolute(&self, path: &str) -> String {
        let absolute = std::path::absolute(path).ok();
        absolute
            .and_then(|path| path.into_os_string().into_string().ok())
            .unwrap_or_else(|| path.into())
    }
}

/// The bytes of a file, up to what a configuration can have.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    bytes_of(fs::File::open(path)?)
}

fn bytes_of(source: impl io::Read) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    source.take(LARGEST + 1).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()).unwrap_or(u64::MAX) > LARGEST {
        true => Err(io::Error::other("it has more than 16 MiB")),
        false => Ok(bytes),
    }
}

/// Copies of tables that were replaced.
const MOST_COPIES: usize = 1000;

/// Bytes of a file that is read.
const LARGEST: u64 = 16 << 20;
