//! Names the commit of the source for `--version`, for both programs: that of the variable `BALLAST_COMMIT`, else git's.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=BALLAST_COMMIT");
    println!("cargo:rerun-if-changed=src");
    let is_debug = env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    // A source that is no checkout, such as a tarball, may name its commit by the variable. A debug build says `unknown`: else each
    // commit would compile it again.
    if is_debug || env::var_os("BALLAST_COMMIT").is_some() {
        return;
    }
    // A commit and a checkout write the log of HEAD.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    if let Some(log) = log.filter(|log| Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    }
    let describe = [
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ];
    if let Some(commit) = git(&describe) {
        println!("cargo:rustc-env=BALLAST_COMMIT={commit}");
    }
}

/// What git prints, if it is there and this is a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !printed.trim().is_empty()).then(|| printed.trim().to_owned())
}
