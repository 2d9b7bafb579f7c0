//! The Ballast that a bench runs: as it is released, and built from what is here.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where Ballast is: where `BALLAST_BIN` says, or beside the folder of the bench.
pub(crate) fn path() -> PathBuf {
    if let Some(path) = std::env::var_os("BALLAST_BIN") {
        return path.into();
    }
    // The bench is target/release/deps/NAME-HASH.
    let folder = std::env::current_exe()
        .ok()
        .and_then(|bench| Some(bench.parent()?.parent()?.to_owned()));
    folder.unwrap_or_default().join("ballast")
}

/// Builds Ballast as it is released, so that nobody measures yesterday's. Not where BALLAST_BIN names one, or where the bench was not
/// started by cargo.
pub(crate) fn build() -> Result<(), String> {
    let Some(cargo) = std::env::var_os("CARGO") else {
        return Ok(());
    };
    if std::env::var_os("BALLAST_BIN").is_some() {
        return Ok(());
    }
    eprintln!("building target/release/ballast, if it is not up to date");
    let built = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--package", "ballast"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .status();
    match built {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo build --release -p ballast: {status}")),
        Err(error) => Err(format!("cargo: {error}")),
    }
}
