//! Files that a table names: certificates, keys, pages. Whatever stands at such a path, reading it takes neither long nor
//! much memory: only plain files are opened, and only so much of them is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ballast_core::table::Problem;
use rustix::fs::OFlags;

use crate::reserve::{self, Opened};

/// What is wrong with a file.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It cannot be opened or read.
    Unreadable(io::Error),
    /// It is something else.
    NoFile(&'static str),
    /// It has more than [`MOST`] bytes.
    TooLarge,
    /// The table does not name it.
    NotNamed,
}

impl Fault {
    /// What to tell people of the file that is named so at this place of the table.
    pub(crate) fn problem(&self, at: impl Into<String>, file: &Path) -> Problem {
        let remedy = match self {
            Self::Unreadable(_) => {
                "put the file there: relative names are meant from the table's folder".to_owned()
            }
            Self::NoFile(_) => "name a plain file".to_owned(),
            Self::TooLarge => format!("name one of at most {} MiB", MOST >> 20),
            Self::NotNamed => "name it in the table".to_owned(),
        };
        Problem::new(at, format!("{}: {self}", file.display()), remedy)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => error.fmt(f),
            Self::NoFile(what) => write!(f, "is {what}, not a file"),
            Self::TooLarge => write!(f, "has more than {} MiB", MOST >> 20),
            Self::NotNamed => f.write_str("is not named by the table"),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// Whether there is a file that can be used.
pub(super) fn look(path: &Path) -> Result<(), Fault> {
    open(path).map(drop)
}

/// The files that a table names, each read once; by the name that the table has for it.
#[derive(Debug, Default)]
pub(crate) struct NamedFiles(BTreeMap<PathBuf, Result<Box<[u8]>, Fault>>);

impl NamedFiles {
    /// Reads those that have not been read yet. Relative names are meant from `folder`.
    pub(super) fn read(&mut self, folder: &Path, names: &[PathBuf]) {
        for name in names {
            if !self.0.contains_key(name) {
                let bytes = read(&folder.join(name)).map(Vec::into_boxed_slice);
                self.0.insert(name.clone(), bytes);
            }
        }
    }

    /// Forgets those with other names.
    pub(super) fn retain(&mut self, names: &[PathBuf]) {
        let names: BTreeSet<&PathBuf> = names.iter().collect();
        self.0.retain(|name, _| names.contains(name));
    }

    /// What is in the file, or why it cannot be used.
    pub(crate) fn get(&self, name: &Path) -> Result<&[u8], &Fault> {
        match self.0.get(name) {
            Some(Ok(bytes)) => Ok(bytes),
            Some(Err(fault)) => Err(fault),
            None => Err(&Fault::NotNamed),
        }
    }
}

/// What is in the file.
fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let mut file = open(path)?.take(MOST + 1);
    file.read_to_end(&mut bytes)?;
    match file.limit() {
        // It has grown since it was opened.
        0 => Err(Fault::TooLarge),
        _ => Ok(bytes),
    }
}

/// Opens a plain file. Merely to open something else may wait for somebody, or set something going.
fn open(path: &Path) -> Result<Opened, Fault> {
    if let Some(what) = what_else(fs::metadata(path)?.file_type()) {
        return Err(Fault::NoFile(what));
    }
    // It may be another one by now.
    let at_once = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(at_once.bits().cast_signed());
    let file = reserve::open(&options, path)?;
    let entry = file.metadata()?;
    if let Some(what) = what_else(entry.file_type()) {
        return Err(Fault::NoFile(what));
    }
    if entry.len() > MOST {
        return Err(Fault::TooLarge);
    }
    Ok(file)
}

/// What it is, if it is no plain file.
pub(super) fn what_else(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a directory")
    } else if kind.is_fifo() {
        Some("a pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}

/// Bytes that one file may have: more than the certificates of all public authorities together.
const MOST: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType as Kind, Mode, mknodat};

    use super::*;

    #[test]
    fn only_plain_files_of_bounded_size_are_read_and_nothing_makes_the_reader_wait() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("good"), "good").unwrap();
        fs::write(at("most"), vec![0; 1 << 20]).unwrap();
        fs::write(at("large"), vec![0; (1 << 20) + 1]).unwrap();
        mknodat(CWD, at("pipe"), Kind::Fifo, Mode::RWXU, 0).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        std::os::unix::fs::symlink(at("good"), at("link")).unwrap();
        for name in ["good", "most", "link"] {
            look(&at(name)).unwrap();
            read(&at(name)).unwrap();
        }
        assert_eq!(read(&at("good")).unwrap(), read(&at("link")).unwrap());
        for (file, why, remedy) in [
            (
                at("large"),
                "has more than 1 MiB",
                "name one of at most 1 MiB",
            ),
            (at("pipe"), "is a pipe, not a file", "name a plain file"),
            (at("socket"), "is a socket, not a file", "name a plain file"),
            (at(""), "is a directory, not a file", "name a plain file"),
            (
                "/dev/zero".into(),
                "is a device, not a file",
                "name a plain file",
            ),
            (
                at("none"),
                "No such file or directory (os error 2)",
                "put the file there: relative names are meant from the table's folder",
            ),
        ] {
            let problem = read(&file).unwrap_err().problem("x", &file);
            assert_eq!(look(&file).unwrap_err().problem("x", &file), problem);
            assert_eq!(problem.why, format!("{}: {why}", file.display()));
            assert_eq!(problem.remedy, remedy);
        }
    }
}
