//! What was built.

use std::sync::LazyLock;

/// The commit of the source, which `build.rs` names.
pub const COMMIT: &str = match option_env!("BALLAST_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// The version and the commit, as `--version` prints them.
pub static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} (commit {COMMIT})", env!("CARGO_PKG_VERSION")));
