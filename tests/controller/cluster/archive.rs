//! Images as files: that of Ballast, which `templates/build-image` made, and one of tools for the pods that it serves.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Unable;

/// The archive that BALLAST_IMAGE names.
pub(crate) fn of_ballast() -> Result<PathBuf, Unable> {
    let Some(archive) = env::var_os(IMAGE) else {
        return Err(Unable::Missing(format!(
            "{IMAGE} is not set; templates/build-image --archive FILE makes one"
        )));
    };
    fs::canonicalize(&archive)
        .map_err(|error| Unable::Missing(format!("{IMAGE}={}: {error}", archive.display())))
}

/// buildah with a store of its own, which ends with this.
pub(crate) struct Buildah {
    store: tempfile::TempDir,
}

impl Buildah {
    pub(crate) fn here() -> Result<Self, Unable> {
        let missing =
            |_| Unable::Missing("there is no buildah; on Debian: apt-get install buildah".into());
        Command::new("buildah")
            .arg("--version")
            .output()
            .map_err(missing)?;
        let store = tempfile::tempdir().expect("a folder");
        Ok(Self { store })
    }

    /// What it says, or its complaint.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String, String> {
        let output = self.command(words).output().expect("buildah");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(format!("buildah {words:?}: {}", text(&output.stderr)))
        }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let at = |name: &str| self.store.path().join(name);
        let mut command = Command::new("buildah");
        command
            .args(["--storage-driver", "vfs", "--root"])
            .arg(at("store"))
            .arg("--runroot")
            .arg(at("run"))
            .args(words);
        command
    }

    /// Makes the archive of an image that has busybox alone, and sleeps unless it is told otherwise.
    pub(crate) fn tools(&self, archive: &Path) -> Result<(), Unable> {
        let missing = |why: String| {
            let remedy = "on Debian: apt-get install busybox-static";
            Unable::Missing(format!("there is no static busybox ({why}); {remedy}"))
        };
        let target = format!(
            "docker-archive:{}:docker.io/library/tools:1",
            archive.display()
        );
        let container = self.run(&["from", "scratch"]).map_err(Unable::Refused)?;
        self.run(&["copy", &container, BUSYBOX, BUSYBOX])
            .map_err(missing)?;
        // Nothing else is in the image: no library either.
        let words = ["run", "--isolation", "chroot", &container, BUSYBOX, "true"];
        self.run(&words).map_err(missing)?;
        let sleep = format!("[\"{BUSYBOX}\", \"sleep\", \"1000000\"]");
        let made = self.run(&["config", "--cmd", &sleep, &container]);
        let made = made.and_then(|_| self.run(&["commit", &container, &target]));
        made.map(drop).map_err(Unable::Refused)
    }
}

const IMAGE: &str = "BALLAST_IMAGE";
const BUSYBOX: &str = "/bin/busybox";
