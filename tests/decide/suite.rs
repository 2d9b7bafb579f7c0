//! The controller's decisions, case by case: what is seen and what was told go in, what must be comes out.
//!
//! A case is a folder: `observed.yaml` (manifests; its first lines say the rule), `settings.yaml` (arguments), `desired.yaml`
//! and, where what was before matters, `before.yaml`. `UPDATE=1 cargo test --test decide` writes every `desired.yaml` anew;
//! read the difference before it is committed.

mod diff;
mod flags;
mod folder;
mod leases;
mod pages;
mod properties;
mod seen;
mod valid;
mod words;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use ballast_controller::decide::{Desired, decide};
use ballast_controller::observe::Observed;
use ballast_controller::settings::{Flags, Settings};
use ballast_core::table::{Format, RoutingTable, parse};
use clap::Parser;

#[test]
fn every_case_comes_out_as_it_is_written() {
    let update = env::var_os("UPDATE").is_some();
    let cases = cases();
    assert!(cases.len() >= 100, "only {} cases were found", cases.len());
    let mut failed = String::new();
    for case in &cases {
        let name = case.file_name().unwrap_or_default().to_string_lossy();
        let found = outcome(case);
        let path = case.join("desired.yaml");
        if update {
            fs::write(&path, &found).expect("a test that is set up");
            continue;
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if expected != found {
            writeln!(
                failed,
                "\n{name} (- expected, + found):\n{}",
                diff::lines(&expected, &found)
            )
            .expect("a String takes everything");
        }
    }
    assert!(
        failed.is_empty(),
        "{failed}\nUPDATE=1 writes what was found."
    );
}

#[test]
fn a_decision_is_the_same_every_time() {
    for case in cases() {
        assert_eq!(outcome(&case), outcome(&case), "{}", case.display());
    }
}

#[test]
fn deciding_knows_no_file_socket_clock_or_cluster() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![root.join("decide.rs")];
    let mut folders = vec![root.join("decide")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    assert!(
        files.len() > 10,
        "only {} files were looked at",
        files.len()
    );
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        for forbidden in [
            "std::fs",
            "std::env",
            "tokio",
            "kube::",
            "k8s_openapi",
            "SystemTime",
            "Instant",
            "TcpStream",
            "UdpSocket",
            "HashMap",
            "HashSet",
        ] {
            assert!(!text.contains(forbidden), "{}: {forbidden}", file.display());
        }
    }
}

/// What a case leads to, as its file has it. Every table on the way must be one that the data plane takes.
fn outcome(case: &Path) -> String {
    let settings = settings_of(case);
    let mut remembered = Default::default();
    if let Ok(before) = fs::read_to_string(case.join("before.yaml")) {
        let mut observed = Observed::default();
        assert_eq!(
            observed.take_file("before.yaml", &before),
            [],
            "{}",
            case.display()
        );
        remembered = decide(&observed, &settings).remembered;
    }
    let mut observed = Observed::default();
    let text = fs::read_to_string(case.join("observed.yaml")).expect("a test that is set up");
    let bad = observed.take_file("observed.yaml", &text);
    observed.remembered = remembered;
    let desired = decide(&observed, &settings);
    check_table(case, &desired);
    let mut found = String::new();
    for document in bad {
        writeln!(found, "# Warning {document}").expect("a String takes everything");
    }
    found + &serde_saphyr::to_string(&desired).expect("a test that is set up")
}

/// The data plane takes it, in both forms, and reads what was meant.
fn check_table(case: &Path, desired: &Desired) {
    let Some(table) = &desired.table else { return };
    let forms = [
        (
            Format::Json,
            serde_json::to_string(table).expect("a test that is set up"),
        ),
        (
            Format::Yaml,
            serde_saphyr::to_string(table).expect("a test that is set up"),
        ),
    ];
    for (format, text) in forms {
        let read: RoutingTable = parse(text.as_bytes(), format)
            .unwrap_or_else(|problems| panic!("{}: {problems}\n{text}", case.display()));
        assert_eq!(read, **table, "{}", case.display());
    }
}

fn settings_of(case: &Path) -> Settings {
    let text = fs::read_to_string(case.join("settings.yaml")).expect("a test that is set up");
    let arguments: Vec<String> = serde_saphyr::from_str(&text).expect("a test that is set up");
    settings(&arguments).unwrap_or_else(|why| panic!("{}: {why}", case.display()))
}

/// Settings from arguments, or the words of the refusal.
fn settings(arguments: &[String]) -> Result<Settings, String> {
    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }
    let cli = Cli::try_parse_from(arguments).map_err(|error| error.to_string())?;
    Settings::new(cli.flags).map_err(|error| error.to_string())
}

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/decide");
    let entries = fs::read_dir(root)
        .expect("a test that is set up")
        .map(|entry| entry.expect("a test that is set up").path());
    let mut cases: Vec<PathBuf> = entries
        .filter(|path| path.join("observed.yaml").exists())
        .collect();
    cases.sort();
    cases
}
