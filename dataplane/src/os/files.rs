//! Files that a table names: certificates, keys, pages. Reading takes neither long nor much memory, whatever the path names:
//! only regular files are opened, and only a limited size is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ballast_core::table::Problem;
use rustix::fs::OFlags;

use crate::os::reserve::{self, Opened};
use crate::os::rights;

/// The folder that `path` is, or that the file there is in.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.into();
    }
    parent_of(path)
}

/// The folder that `path` is in.
pub(crate) fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.into(),
        _ => PathBuf::from("."),
    }
}

/// Why a file cannot be used.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It cannot be opened or read.
    Unreadable(io::Error),
    /// It is not a regular file.
    NoFile(&'static str),
    /// It is larger than so many bytes.
    TooLarge(u64),
    /// The table does not name it.
    NotNamed,
}

impl Fault {
    /// The problem of the file that is named so at this place of the table.
    pub(crate) fn problem(&self, at: impl Into<String>, file: &Path) -> Problem {
        let remedy = match self {
            Self::Unreadable(error) if error.kind() == io::ErrorKind::PermissionDenied => allow(),
            Self::Unreadable(_) => {
                "put the file there: a relative path refers to the folder of the table".to_owned()
            }
            Self::NoFile(_) => "name a plain file".to_owned(),
            Self::TooLarge(most) => format!("name one of at most {} MiB", most >> 20),
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
            Self::TooLarge(most) => write!(f, "has more than {} MiB", most >> 20),
            Self::NotNamed => f.write_str("is not named by the table"),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// The remedy where this process may not read a file.
pub(crate) fn allow() -> String {
    let user = rustix::process::geteuid().as_raw();
    let by_user = format!(
        "let user {user} of this process read the file and enter its folders, by chmod, chgrp or setfacl"
    );
    if rights::is_sandboxed() {
        format!(
            "{by_user}; outside of the table's folder, name its folder with --sandbox-read, too"
        )
    } else {
        by_user
    }
}

/// Checks that the file can be used.
pub(crate) fn check(path: &Path) -> Result<(), Fault> {
    open(path, MAX_SIZE).map(drop)
}

/// The files that a table names, by their names in the table. Each is read once.
#[derive(Debug, Default)]
pub(crate) struct NamedFiles(BTreeMap<PathBuf, Result<Box<[u8]>, Fault>>);

impl NamedFiles {
    /// Reads the files that have not been read yet. Relative names refer to `folder`.
    pub(crate) fn read(&mut self, folder: &Path, names: &[PathBuf]) {
        for name in names {
            if !self.0.contains_key(name) {
                let bytes = read(&folder.join(name)).map(Vec::into_boxed_slice);
                self.0.insert(name.clone(), bytes);
            }
        }
    }

    /// Removes files with other names.
    pub(crate) fn retain(&mut self, names: &[PathBuf]) {
        let names: BTreeSet<&PathBuf> = names.iter().collect();
        self.0.retain(|name, _| names.contains(name));
    }

    /// The content of the file, or why it cannot be used.
    pub(crate) fn get(&self, name: &Path) -> Result<&[u8], &Fault> {
        match self.0.get(name) {
            Some(Ok(bytes)) => Ok(bytes),
            Some(Err(fault)) => Err(fault),
            None => Err(&Fault::NotNamed),
        }
    }
}

/// The content of the file.
fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    read_at_most(MAX_SIZE, path)
}

/// Reads a regular file of at most so many bytes.
pub(crate) fn read_at_most(most: u64, path: &Path) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let mut file = open(path, most)?.take(most + 1);
    file.read_to_end(&mut bytes)?;
    match file.limit() {
        // The file has grown since it was opened.
        0 => Err(Fault::TooLarge(most)),
        _ => Ok(bytes),
    }
}

/// Opens a regular file. Merely opening something else may block or have side effects.
fn open(path: &Path, most: u64) -> Result<Opened, Fault> {
    if let Some(what) = other_kind(fs::metadata(path)?.file_type()) {
        return Err(Fault::NoFile(what));
    }
    // The path may name something else by now.
    let file = reserve::open(&at_once(), path)?;
    let entry = file.metadata()?;
    if let Some(what) = other_kind(entry.file_type()) {
        return Err(Fault::NoFile(what));
    }
    if entry.len() > most {
        return Err(Fault::TooLarge(most));
    }
    Ok(file)
}

/// For reading, without a wait whatever the path names: a pipe would wait for who writes to it.
pub(crate) fn at_once() -> OpenOptions {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    options
}

/// The kind of the file, if it is not a regular file.
pub(crate) fn other_kind(kind: FileType) -> Option<&'static str> {
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

/// The largest size of a file: more than the certificates of all public authorities together.
const MAX_SIZE: u64 = 1 << 20;

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
            check(&at(name)).unwrap();
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
                "put the file there: a relative path refers to the folder of the table",
            ),
        ] {
            let problem = read(&file).unwrap_err().problem("x", &file);
            assert_eq!(check(&file).unwrap_err().problem("x", &file), problem);
            assert_eq!(problem.why, format!("{}: {why}", file.display()));
            assert_eq!(problem.remedy, remedy);
        }
    }
}
