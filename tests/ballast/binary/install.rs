//! `templates/install`: what a package has, and that all of it goes again.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::process::{BALLAST, Ended, command, to_its_end};

/// All files below a folder, by their paths in it.
fn files(folder: &Path) -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, &mut found);
    let name = |path: &PathBuf| path.strip_prefix(folder).unwrap().display().to_string();
    let mut names: Vec<String> = found.iter().map(name).collect();
    names.sort();
    names
}

/// Runs the script with these variables and arguments.
fn install(variables: &[(&str, &Path)], args: &[&str]) -> Ended {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../templates/install");
    let mut shell = command("sh");
    shell.arg(script).args(args);
    for name in ["PREFIX", "DESTDIR", "BUILT"] {
        shell.env_remove(name);
    }
    to_its_end(shell.envs(variables.iter().copied()))
}

#[test]
fn a_package_has_programs_pages_completions_and_units_and_leaves_nothing() {
    let (built, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    symlink(BALLAST, built.path().join("ballast")).unwrap();
    let controller = built.path().join("ballast-controller");
    fs::write(&controller, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&controller, fs::Permissions::from_mode(0o755)).unwrap();
    let place = [("BUILT", built.path()), ("DESTDIR", root.path())];
    let ended = install(&place, &[]);
    assert_eq!((ended.code, &*ended.err), (Some(0), ""), "{ended:?}");

    let names = files(root.path());
    for name in [
        "usr/bin/ballast",
        "usr/bin/ballast-controller",
        "usr/lib/systemd/system/ballast.service",
        "usr/lib/systemd/system/ballast-announce.service",
        "usr/lib/systemd/system/ballast-controller.service",
        "usr/share/bash-completion/completions/ballast",
        "usr/share/fish/vendor_completions.d/ballast.fish",
        "usr/share/man/man1/ballast.1",
        "usr/share/man/man1/ballast-run.1",
        "usr/share/zsh/site-functions/_ballast",
    ] {
        let path = root.path().join(name);
        assert!(names.iter().any(|one| one == name), "{name}: {names:?}");
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let wanted = if name.starts_with("usr/bin") {
            0o755
        } else {
            0o644
        };
        assert_eq!(mode, wanted, "{name}");
    }
    let program = root.path().join("usr/bin/ballast");
    let ended = to_its_end(command(program.to_str().unwrap()).arg("version"));
    assert_eq!(ended.code, Some(0), "{ended:?}");

    // A second time is an update.
    assert_eq!(install(&place, &[]).code, Some(0));
    assert_eq!(files(root.path()), names);
    let ended = install(&place, &["--uninstall"]);
    assert_eq!((ended.code, &*ended.err), (Some(0), ""), "{ended:?}");
    assert_eq!(files(root.path()), Vec::<String>::new());
}

#[test]
fn units_name_the_programs_where_they_were_installed() {
    let (built, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    symlink(BALLAST, built.path().join("ballast")).unwrap();
    let prefix = Path::new("/usr/local");
    let place = [
        ("BUILT", built.path()),
        ("DESTDIR", root.path()),
        ("PREFIX", prefix),
    ];
    assert_eq!(install(&place, &[]).code, Some(0));
    let names = files(root.path());
    assert!(
        names.iter().all(|name| name.starts_with("usr/local/")),
        "{names:?}"
    );
    assert!(!names.contains(&"usr/local/bin/ballast-controller".to_owned()));
    let unit = root
        .path()
        .join("usr/local/lib/systemd/system/ballast.service");
    let text = fs::read_to_string(unit).unwrap();
    assert!(
        text.contains("ExecStart=/usr/local/bin/ballast run "),
        "{text}"
    );
    assert!(!text.contains("/usr/bin/"), "{text}");
}

#[test]
fn what_cannot_be_installed_is_said() {
    let (built, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = [("BUILT", built.path()), ("DESTDIR", root.path())];
    let relative = [("DESTDIR", root.path()), ("PREFIX", Path::new("usr"))];
    for (variables, args, why) in [
        (&place[..], &[][..], "ballast is not there; build it"),
        (
            &relative,
            &[],
            "PREFIX is usr, which does not begin with a slash",
        ),
        (&place, &["--help"], "--help is no option"),
    ] {
        let ended = install(variables, args);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains(why), "{why}: {ended:?}");
    }
    assert_eq!(files(root.path()), Vec::<String>::new());
}
