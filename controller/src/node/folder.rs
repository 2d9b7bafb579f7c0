//! The table's folder on disk: the table, the files that it names, and the record of the files that this program wrote.
//!
//! Called by [`super::table`]. Every file is written by a rename, so that no reader ever sees half of one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ballast_core::ack::Ack;
use ballast_core::table::{Format, RoutingTable, parse};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::fetch::Pages;
use crate::decide::{Source, WantedFile, owner_by_labels, served};
use crate::observe::{Key, Secret};
use crate::replace::replace;

/// The folder, and its known content.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The written table, without its generation.
    table: Option<Arc<RoutingTable>>,
    /// The file of that table, as it was written.
    written: Option<FileState>,
    generation: u64,
    /// The digests of the written files, by name.
    files: BTreeMap<String, [u8; 32]>,
    /// Written files that the newest table does not name, each with the generation after which it can be removed.
    leaving: BTreeMap<String, u64>,
    /// The record of the written files, as it is on disk.
    recorded: Vec<u8>,
    /// The files that cannot be read or written, with the reason, as it was logged.
    failing: BTreeMap<String, String>,
}

/// What tells whether somebody has changed a file: its inode, its bytes, and the time of its last change.
type FileState = (u64, u64, (i64, i64));

/// A table as it is written.
#[derive(Serialize)]
struct Numbered<'a> {
    generation: u64,
    #[serde(flatten)]
    table: &'a RoutingTable,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    Nothing,
    Files,
    Table { bytes: u64 },
}

impl Folder {
    /// Creates the folder if it does not exist, and reads the files of an earlier process.
    ///
    /// # Errors
    /// The folder cannot be created or written to, or has a table of another program.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&path)?;
        if path.join("table.yaml").exists() {
            return Err(io::Error::other(
                "has a table.yaml; the controller writes table.json, and there can be only one table",
            ));
        }
        let mut folder = Self {
            path,
            table: None,
            written: None,
            generation: 0,
            files: BTreeMap::new(),
            leaving: BTreeMap::new(),
            recorded: Vec::new(),
            failing: BTreeMap::new(),
        };
        folder.read_table()?;
        folder.read_record();
        // A folder that cannot be written to is an error now, and not with the first table.
        let record = record(folder.files.keys().map(String::as_str));
        folder.replace(RECORD, &record)?;
        folder.recorded = record;
        Ok(folder)
    }

    /// The generation of the last table.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The last table, with its generation.
    pub(crate) fn table(&self) -> Option<(u64, Arc<RoutingTable>)> {
        let table = self.table.as_ref()?;
        Some((self.generation, Arc::clone(table)))
    }

    /// The Services that the last table serves.
    pub(crate) fn served(&self) -> BTreeSet<Key> {
        self.table.as_deref().map(served).unwrap_or_default()
    }

    /// The addresses that the last table has for each Service.
    pub(crate) fn addresses(&self) -> BTreeMap<Key, Vec<IpAddr>> {
        let mut all: BTreeMap<Key, BTreeSet<IpAddr>> = BTreeMap::new();
        let services = self.table.iter().flat_map(|table| &table.services);
        for service in services {
            if let Some(owner) = owner_by_labels(&service.labels) {
                let addresses = service.endpoints.iter().map(|one| one.address.ip());
                all.entry(owner).or_default().extend(addresses);
            }
        }
        let sorted = all.into_iter();
        let sorted = sorted.map(|(key, addresses)| (key, addresses.into_iter().collect()));
        sorted.collect()
    }

    /// The path of the data plane's acks.
    pub(crate) fn ack(&self) -> PathBuf {
        self.path.join("ack.json")
    }

    /// The number of files of the table that cannot be read or written.
    pub(crate) fn failing(&self) -> usize {
        self.failing.len()
    }

    /// Writes the files, and then the table. A file that cannot be written delays nothing: the frontends that need it are closed, or
    /// keep its last version.
    ///
    /// # Errors
    /// The table cannot be written. The next call tries again.
    pub(crate) fn write(
        &mut self,
        table: &Arc<RoutingTable>,
        wanted: &BTreeSet<WantedFile>,
        secrets: &BTreeMap<Key, Secret>,
        pages: &Pages,
    ) -> io::Result<Wrote> {
        let mut wrote = Wrote::Nothing;
        let names: BTreeSet<&str> = wanted.iter().map(|file| &*file.path).collect();
        // The record is written first, so that it lists all files even if the process ends in between.
        let known = self.files.keys().map(String::as_str);
        let ours = record(known.chain(names.iter().copied()));
        let recorded = self.write_record(ours);
        let mut failing = BTreeMap::new();
        for file in wanted {
            self.leaving.remove(&file.path);
            let written = match &recorded {
                Err(why) if !self.files.contains_key(&file.path) => Err(why.clone()),
                _ => self
                    .write_file(file, secrets, pages)
                    .map_err(|error| error.to_string()),
            };
            match written {
                Ok(true) => wrote = Wrote::Files,
                Ok(false) => {}
                Err(why) => {
                    failing.insert(file.path.clone(), why);
                }
            }
        }
        self.log_failing(failing);
        if self.table.is_some() && self.written != self.file_state() {
            tracing::warn!(
                "table.json was changed or removed by somebody else; it is written again"
            );
            self.table = None;
        }
        if self.table.as_ref() != Some(table) {
            let bytes = self.write_table(table)?;
            wrote = Wrote::Table { bytes };
        }
        let gone = self.files.keys().filter(|path| !names.contains(&***path));
        for path in gone {
            self.leaving.entry(path.clone()).or_insert(self.generation);
        }
        Ok(wrote)
    }

    /// Removes the files that only older tables named, now that the data plane serves this generation.
    pub(crate) fn acknowledged(&mut self, served: Option<u64>) {
        let Some(served) = served else { return };
        let gone: Vec<String> = self
            .leaving
            .iter()
            .filter(|(_, since)| **since <= served)
            .map(|(path, _)| path.clone())
            .collect();
        if gone.is_empty() {
            return;
        }
        for path in gone {
            match fs::remove_file(self.path.join(&path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, path, "cannot remove a file that no table names");
                    continue;
                }
                _ => tracing::info!(path, "removed a file that no table names"),
            }
            self.leaving.remove(&path);
            self.files.remove(&path);
        }
        let ours = record(self.files.keys().map(String::as_str));
        if let Err(why) = self.write_record(ours) {
            tracing::warn!(why, "cannot write down which files are ours");
        }
    }

    /// Logs the files that cannot be written, once, and again when they can.
    fn log_failing(&mut self, failing: BTreeMap<String, String>) {
        let is_new = |(path, why): &(&String, &String)| self.failing.get(*path) != Some(*why);
        for (path, why) in failing.iter().filter(is_new) {
            tracing::error!(
                path,
                why,
                "cannot write a file that the table names; what was there stays, and without it the ports that need it are closed"
            );
        }
        for path in self.failing.keys() {
            if !failing.contains_key(path) {
                tracing::info!(path, "nothing is wrong with this file any more");
            }
        }
        self.failing = failing;
    }

    fn write_record(&mut self, record: Vec<u8>) -> Result<(), String> {
        if self.recorded == record {
            return Ok(());
        }
        let written = self.replace(RECORD, &record);
        written.map_err(|error| error.to_string())?;
        self.recorded = record;
        Ok(())
    }

    fn write_table(&mut self, table: &Arc<RoutingTable>) -> io::Result<u64> {
        let numbered = Numbered {
            generation: self.generation + 1,
            table,
        };
        // The text of a large table is never in memory as a whole.
        let bytes = self.replace_with(TABLE, |file| {
            let mut file = BufWriter::with_capacity(BUFFER, file);
            serde_json::to_writer(&mut file, &numbered)?;
            file.flush()
        })?;
        self.generation += 1;
        self.table = Some(Arc::clone(table));
        self.written = self.file_state();
        Ok(bytes)
    }

    fn file_state(&self) -> Option<FileState> {
        let found = fs::metadata(self.path.join(TABLE)).ok()?;
        Some((
            found.ino(),
            found.len(),
            (found.mtime(), found.mtime_nsec()),
        ))
    }

    /// Writes a file if it changed; returns whether it did. A file whose source does not exist is removed: the frontends that need it are
    /// closed then.
    fn write_file(
        &mut self,
        wanted: &WantedFile,
        secrets: &BTreeMap<Key, Secret>,
        pages: &Pages,
    ) -> io::Result<bool> {
        let bytes = match &wanted.from {
            Source::Secret(key, entry) => match secrets.get(key) {
                Some(Secret::Readable(material)) => material.entry(entry).map(<[u8]>::to_vec),
                _ => None,
            },
            Source::File(path) => {
                let named = |error| io::Error::other(format!("{}: {error}", path.display()));
                Some(fs::read(path).map_err(named)?)
            }
            Source::Text(text) => Some(text.as_bytes().to_vec()),
            Source::Url(url) => match pages.page(url) {
                Some(bytes) => Some(bytes.to_vec()),
                // The page of an earlier process stays. Without one, a default page is written until the download.
                None if self.path.join(&wanted.path).exists() => return Ok(false),
                None => Some(STAND_IN.to_vec()),
            },
        };
        let Some(bytes) = bytes else {
            let was_there = self.files.remove(&wanted.path).is_some();
            if was_there {
                fs::remove_file(self.path.join(&wanted.path)).ok();
            }
            return Ok(was_there);
        };
        let digest = digest(&bytes);
        if self.files.get(&wanted.path) == Some(&digest) {
            return Ok(false);
        }
        self.replace(&wanted.path, &bytes)?;
        self.files.insert(wanted.path.clone(), digest);
        Ok(true)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.replace_with(name, |file| file.write_all(bytes))
            .map(drop)
    }

    /// Replaces a file atomically by what `write` writes. Returns the number of its bytes.
    fn replace_with(
        &self,
        name: &str,
        write: impl FnOnce(&mut fs::File) -> io::Result<()>,
    ) -> io::Result<u64> {
        let path = inside(&self.path, name)?;
        if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)?;
        }
        let mode = match name {
            TABLE | RECORD => 0o644,
            _ => 0o600,
        };
        Ok(replace(&path, mode, write)?.metadata()?.len())
    }

    fn read_table(&mut self) -> io::Result<()> {
        let acked = fs::read(self.ack()).ok();
        let acked = acked.and_then(|bytes| serde_json::from_slice::<Ack>(&bytes).ok());
        let generations = acked.into_iter().flat_map(|ack| {
            let served = ack.served.and_then(|served| served.generation);
            let refused = ack.refused.and_then(|refused| refused.generation);
            served.into_iter().chain(refused)
        });
        // No generation is used twice.
        self.generation = generations.max().unwrap_or(0);
        self.written = self.file_state();
        let bytes = match fs::read(self.path.join(TABLE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        match parse(&bytes, Format::Json) {
            Ok(mut table) => {
                let generation = table.generation.take();
                let is_newest = generation.is_some_and(|one| one >= self.generation);
                self.generation = self.generation.max(generation.unwrap_or(0));
                // With an older generation the data plane would take it for that older table.
                self.table = is_newest.then(|| Arc::new(table));
            }
            Err(problems) => {
                tracing::warn!(
                    "the table of an earlier process cannot be used, and is replaced: {problems}"
                );
            }
        }
        Ok(())
    }

    /// Reads the record of an earlier process, and the digests of its files.
    fn read_record(&mut self) {
        let record = fs::read_to_string(self.path.join(RECORD)).unwrap_or_default();
        for name in record.lines() {
            let bytes = inside(&self.path, name).and_then(fs::read);
            if let Ok(bytes) = bytes {
                self.files.insert(name.to_owned(), digest(&bytes));
            }
        }
    }
}

fn record<'a>(names: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let names: BTreeSet<&str> = names.collect();
    let lines = names.into_iter().map(|name| format!("{name}\n"));
    lines.collect::<String>().into_bytes()
}

/// The path of a file in the folder. A name that leads outside is an error.
fn inside(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    match !name.is_empty() && Path::new(name).components().all(is_plain) {
        true => Ok(folder.join(name)),
        false => Err(io::Error::other(format!(
            "{name:?} is no file of the table's folder"
        ))),
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

const TABLE: &str = "table.json";
/// Bytes of the table that are written at once.
const BUFFER: usize = 64 << 10;

/// The names of the written files, one in each line. No other file is ever removed.
const RECORD: &str = ".written";

/// The page that is served until the wanted one was downloaded.
const STAND_IN: &[u8] =
    b"<!doctype html>\n<title>Not found</title>\n<p>Nothing is served here.</p>\n";

#[cfg(test)]
mod tests;
