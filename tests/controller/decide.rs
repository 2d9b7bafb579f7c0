//! `ballast-controller`: decisions, case by case: manifests and arguments go in, the routing table, statuses and events come out.
//!
//! The files of `cases/` have one topic each, and many cases. A case begins with `== its-name`, and the rule that it pins:
//!
//! ```text
//! == algorithm-own-random
//! Our own word for a random choice.
//! -- observed --
//! kind: Service
//! metadata: {annotations: {ballast.dev/algorithm: random}}
//! -- desired --
//! table: {services: [{name: shop.web:80, algorithm: random}]}
//! ```
//!
//! A case shows only what differs from the case `base` (`cases/base.txt`), or from the one named in `== name over other`;
//! `over nothing` stands alone. Its sections, of which `desired` alone must be there:
//!
//! - `settings`: arguments, one a line, beside those of the other case; the same flag replaces the other's value.
//! - `observed`: manifests. One with the kind and name of a manifest of the other case changes it; one without a name changes the
//!   only manifest of its kind; any other is added. `$patch: delete` takes the manifest away.
//! - `before`: the manifests, changed likewise, of the decision before, whose last good values this one remembers.
//! - `desired`: what is decided, as it differs from the other case's decision. [`patch`] says how both are merged.
//!
//! `UPDATE=1 cargo test --test controller decide::` writes the section `desired` of every case that differs; read the difference before you
//! commit it.

mod allocation;
mod cases;
mod flags;
mod folder;
mod leases;
mod pages;
mod patch;
mod properties;
mod seen;
mod valid;
mod words;
mod yaml;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

use ballast_controller::allocation::Allocated;
use ballast_controller::decide::{Allotment, Desired, decide};
use ballast_controller::observe::Observed;
use ballast_controller::settings::{Flags, Settings};
use ballast_core::table::{Format, RoutingTable, parse};
use clap::Parser;
use serde_json::Value;
use similar::TextDiff;

use cases::{Case, Input};
use patch::{merge, patch};

#[test]
fn every_case_comes_out_as_it_is_written() {
    let cases = cases::read();
    assert!(cases.len() >= 515, "only {} cases were found", cases.len());
    let mut outcomes = BTreeMap::new();
    let mut failed = String::new();
    let mut wrong = Vec::new();
    for case in cases.values() {
        let found = outcome(&cases, case, &mut outcomes).found;
        // The difference from what is found for the other case: if that one fails, this one need not.
        let other = case.over.as_ref().map(|over| outcomes[over].found.clone());
        let other = other.unwrap_or_else(|| Value::Object(Default::default()));
        let written = document(case);
        let mut expected = other.clone();
        merge(&mut expected, &written);
        if expected == found {
            continue;
        }
        let change = patch(&other, &found).unwrap_or_else(|| Value::Object(Default::default()));
        let change = yaml::print(&change);
        let written = yaml::print(&written);
        let differences = TextDiff::from_lines(&written, &change);
        let differences = differences.unified_diff();
        writeln!(
            failed,
            "\n{} (- expected, + found):\n{differences}",
            case.place()
        )
        .expect("a String takes everything");
        wrong.push((case, change));
    }
    if env::var_os("UPDATE").is_some() {
        return write(wrong);
    }
    assert!(
        failed.is_empty(),
        "{failed}\nUPDATE=1 writes what was found."
    );
}

/// Gives Services what they are given, as a publisher does that writes to an API server: this version is the one of its write.
fn give(observed: &mut Observed, settings: &Settings, version: u64) {
    for status in decide(observed, settings).statuses {
        let Some(Allotment::Given(allocation)) = status.allotment else {
            continue;
        };
        let service = observed
            .services
            .get_mut(&status.service)
            .expect("it is decided about");
        let service = Arc::make_mut(service);
        service.allocated = Some(Allocated {
            allocation,
            since: 0,
        });
        service.publication.allocated_at = version;
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

/// The input of a case, and what is decided.
#[derive(Clone)]
struct Outcome {
    input: Input,
    found: Value,
}

/// Decides a case, and before it the one that it changes. The data plane must accept every table.
fn outcome(
    cases: &BTreeMap<String, Case>,
    case: &Case,
    known: &mut BTreeMap<String, Outcome>,
) -> Outcome {
    if let Some(outcome) = known.get(&case.name) {
        return outcome.clone();
    }
    let over = case.over.as_ref().map(|over| {
        let other = cases.get(over);
        let other = other.unwrap_or_else(|| panic!("{}: there is no case {over}", case.place()));
        outcome(cases, other, known).input
    });
    let input = case.input(&over.unwrap_or_default());
    let found = decided(case, &input);
    assert_eq!(found, decided(case, &input), "{}: differs", case.place());
    let outcome = Outcome { input, found };
    known.insert(case.name.clone(), outcome.clone());
    outcome
}

fn decided(case: &Case, input: &Input) -> Value {
    let settings =
        settings(&input.settings).unwrap_or_else(|why| panic!("{}: {why}", case.place()));
    let mut observed = Observed::default();
    if let Some(before) = &input.before {
        let mut earlier = Observed::default();
        let bad = earlier.take_file("before.yaml", before);
        assert_eq!(bad, [], "{}", case.place());
        observed.remembered = decide(&earlier, &settings).remembered;
    }
    let bad = observed.take_file("observed.yaml", &input.observed);
    let desired = decide(&observed, &settings);
    check_table(case, &desired);
    let mut found = serde_json::to_value(&desired).expect("a decision is JSON");
    if let Value::Object(map) = &mut found {
        map.retain(|_, value| !value.is_null());
        if !bad.is_empty() {
            let bad: Vec<String> = bad.iter().map(ToString::to_string).collect();
            map.insert("bad documents".to_owned(), bad.into());
        }
    }
    found
}

/// The section `desired`.
fn document(case: &Case) -> Value {
    let text = case.section("desired");
    if text.trim().is_empty() {
        return Value::Object(Default::default());
    }
    serde_saphyr::from_str(text).unwrap_or_else(|why| panic!("{}: {why}", case.place()))
}

/// Writes the sections `desired` of these cases, from the end of each file on, so that lines keep their numbers.
fn write(mut wrong: Vec<(&Case, String)>) {
    wrong.sort_by_key(|(case, _)| std::cmp::Reverse(case.line));
    for (case, text) in wrong {
        let file = fs::read_to_string(&case.file).expect("a file of cases");
        let mut lines: Vec<&str> = file.lines().collect();
        assert!(case.desired.start > 0, "{}: no -- desired --", case.place());
        lines.splice(case.desired.clone(), text.lines());
        fs::write(&case.file, lines.join("\n") + "\n").expect("a file of cases");
    }
}

/// Asserts that the data plane accepts the table in both forms, and reads the same.
fn check_table(case: &Case, desired: &Desired) {
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
            .unwrap_or_else(|problems| panic!("{}: {problems}\n{text}", case.place()));
        assert_eq!(read, **table, "{}", case.place());
    }
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
