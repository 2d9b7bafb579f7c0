//! The last good content of each manifest, on disk, so that a file that is broken when the process begins loses nothing that was served.
//! Used by [`super::following`].

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::replace::replace;

/// A folder with a copy of each manifest, under the name of it. Manifests may hold keys: nobody else can read the copies.
#[derive(Debug)]
pub struct Kept {
    folder: PathBuf,
}

impl Kept {
    /// The copies beside a table: in its folder.
    pub fn beside(table: &Path) -> Self {
        Self {
            folder: table.join(FOLDER),
        }
    }

    /// The last good content of a manifest. Its copy says of which manifest it is.
    pub(super) fn read(&self, manifest: &Path) -> Option<String> {
        let copy = self.copy(manifest).filter(|_| self.is_ours())?;
        let copy = fs::read_to_string(copy).ok()?;
        let (of, text) = copy.split_once('\n')?;
        (of == of_manifest(manifest)).then(|| text.to_owned())
    }

    /// Keeps the content of a manifest that can be read. Returns whether that was possible; if not, a warning says so unless it
    /// `was_told`.
    pub(super) fn write(&self, manifest: &Path, text: &str, was_told: bool) -> bool {
        let written = self.keep(manifest, text);
        if let Err(error) = &written
            && !was_told
        {
            tracing::warn!(
                manifest = %manifest.display(),
                folder = %self.folder.display(),
                %error,
                "cannot keep a copy of a manifest, and tries again: if it is broken when a controller begins, its Services are lost"
            );
        }
        written.is_ok()
    }

    fn keep(&self, manifest: &Path, text: &str) -> io::Result<()> {
        let copy = self.copy(manifest).ok_or(io::ErrorKind::InvalidFilename)?;
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.folder)?;
        if !self.is_ours() {
            let why = "it is not a folder of this user alone; remove it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        // As each time that the process begins.
        if self.read(manifest).as_deref() == Some(text) {
            return Ok(());
        }
        // Manifests may hold keys.
        let written = replace(&copy, 0o600, |file| {
            writeln!(file, "{}", of_manifest(manifest))?;
            file.write_all(text.as_bytes())
        });
        written.map(drop)
    }

    /// Whether nobody else can have put the folder, or what is in it, there: a link may lead to a folder of somebody else.
    fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.folder).is_ok_and(|about| {
            let user = rustix::process::geteuid().as_raw();
            about.is_dir() && about.uid() == user && about.mode() & 0o077 == 0
        })
    }

    /// Forgets a manifest that is gone.
    pub(super) fn forget(&self, manifest: &Path) {
        if let Some(copy) = self.copy(manifest).filter(|_| self.is_ours()) {
            fs::remove_file(copy).ok();
        }
    }

    /// Forgets the manifests that are not among these.
    pub(super) fn forget_others<'a>(&self, manifests: impl Iterator<Item = &'a PathBuf>) {
        if !self.is_ours() {
            return;
        }
        let names: HashSet<&OsStr> = manifests.filter_map(|path| path.file_name()).collect();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if !names.contains(&*entry.file_name()) {
                fs::remove_file(entry.path()).ok();
            }
        }
    }

    fn copy(&self, manifest: &Path) -> Option<PathBuf> {
        Some(self.folder.join(manifest.file_name()?))
    }
}

/// The first line of a copy.
fn of_manifest(manifest: &Path) -> String {
    format!("# The last good content of {:?}.", manifest.as_os_str())
}

const FOLDER: &str = ".manifests";
