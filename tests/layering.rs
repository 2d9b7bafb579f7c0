//! The core decides and never acts: what it must not know is looked for in its sources and its manifest.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn the_core_knows_no_socket_clock_task_or_dice_of_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("dataplane/core/src");
    let mut looked_at = 0;
    for file in sources(&root) {
        let text = fs::read_to_string(&file).expect("a source file");
        // Tests may read their vectors from files.
        let text = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        for forbidden in FORBIDDEN {
            assert!(!text.contains(forbidden), "{}: {forbidden}", file.display());
        }
        looked_at += 1;
    }
    assert!(looked_at > 20, "only {looked_at} files were looked at");
}

#[test]
fn the_cores_dependencies_are_these_and_no_more() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("dataplane/core/Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("the core's manifest");
    let dependencies: Vec<&str> = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split(['.', ' ']).next())
        .collect();
    assert_eq!(
        dependencies,
        [
            "ipnet",
            "rustc-hash",
            "serde",
            "serde-saphyr",
            "serde_json",
            "thiserror"
        ]
    );
}

/// All but those that are tests only.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if TESTS_ONLY.contains(&name.to_string_lossy().as_ref()) {
            continue;
        }
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push(path);
        }
    }
    found
}

const FORBIDDEN: [&str; 12] = [
    "tokio",
    "socket2",
    "std::net::Tcp",
    "std::net::Udp",
    "TcpStream",
    "UdpSocket",
    "Instant",
    "SystemTime",
    "std::fs",
    "std::thread",
    "RandomState",
    "thread_rng",
];
const TESTS_ONLY: [&str; 6] = [
    "tests",
    "tests.rs",
    "properties.rs",
    "vectors.rs",
    "oracle.rs",
    "simulation.rs",
];
