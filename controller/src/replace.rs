//! Writes files by a rename: who reads one sees the whole old one or the whole new one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file that is written before it is renamed to this one.
pub(crate) fn draft(path: &Path) -> PathBuf {
    let mut draft = OsString::from(path);
    draft.push(".draft");
    draft.into()
}

/// A new file: it follows no link, and does not inherit the permissions of an old one.
pub(crate) fn create(path: &Path, mode: u32) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode).open(path)
}

/// Replaces a file by what `write` writes.
pub(crate) fn replace(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<File> {
    let draft = draft(path);
    let mut file = create(&draft, mode)?;
    let written = write(&mut file)
        .and_then(|()| file.sync_data())
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // A full disk keeps no part of a key.
        fs::remove_file(&draft).ok();
    }
    written.map(|()| file)
}
