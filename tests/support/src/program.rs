//! The programs of the workspace, found beside the test that starts them.

use std::path::PathBuf;
use std::process::Command;

/// A program of ours, without settings of whoever runs the tests.
pub fn program(name: &str) -> Command {
    let path = folder().join(name);
    assert!(
        path.exists(),
        "{} is not there; build both programs: cargo build",
        path.display()
    );
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let is_setting = ["BALLAST_", "KUBE", "NODE_NAME", "POD_NAMESPACE"]
            .iter()
            .any(|setting| name.starts_with(setting));
        if is_setting {
            command.env_remove(name.as_ref());
        }
    }
    // No kubeconfig of whoever runs the tests either.
    command.env("HOME", "/nonexistent");
    command
}

/// Where Cargo puts the programs: the folder above that of this test.
pub fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    let folder = test.parent().and_then(|deps| deps.parent());
    folder.expect("a folder of Cargo's").to_owned()
}
