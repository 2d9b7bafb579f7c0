//! The programs of the workspace, as tests of the controller start them.

use std::path::Path;
use std::process::Command;

/// A program of ours, without settings of whoever runs the tests.
pub(crate) fn program(name: &str) -> Command {
    let controller = Path::new(env!("CARGO_BIN_EXE_ballast-controller"));
    let path = controller.with_file_name(name);
    assert!(
        path.exists(),
        "{} is not there; build it: cargo build -p ballast",
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
