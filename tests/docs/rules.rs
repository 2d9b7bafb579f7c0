//! What .github/CONTRIBUTING.md says of how code and tests are written, held against both.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::layering::{root, sources, texts, without_tests};

#[test]
fn tests_wait_by_the_helpers_of_support() {
    for (file, text) in tests() {
        let sleeps = text.lines().position(|line| line.contains("sleep("));
        let line = sleeps.map(|line| line + 1);
        assert_eq!(
            line,
            None,
            "{}: to wait for something, support::until; for time that passes as a part of the test, support::pause",
            file.display()
        );
    }
}

#[test]
fn a_suite_names_the_program_that_it_tests() {
    for (file, text) in tests() {
        let folder = file
            .parent()
            .and_then(|folder| folder.strip_prefix(root()).ok());
        let of_a_suite = file.ends_with("main.rs")
            || SUITES
                .iter()
                .any(|suites| folder == Some(Path::new(suites)));
        let first = text.lines().next().unwrap_or_default();
        let names = ["`ballast`", "`ballast-controller`", "oth programs"];
        assert!(
            !of_a_suite || names.iter().any(|name| first.contains(name)),
            "{}: {first}",
            file.display()
        );
    }
}

/// Else CI would leave it out.
#[test]
fn the_script_that_runs_all_tests_knows_every_suite() {
    let script = fs::read_to_string(root().join("tests/all")).expect("a script");
    for package in [".", "dataplane", "controller", "controller/announce"] {
        let manifest = root().join(package).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("a manifest");
        let suites = manifest.split("[[test]]\nname = \"").skip(1);
        for suite in suites.filter_map(|rest| rest.split('"').next()) {
            let words: BTreeSet<&str> = script.split([' ', '\n', '(', ')']).collect();
            assert!(words.contains(suite), "tests/all does not run {suite}");
        }
    }
}

#[test]
fn functions_of_the_programs_are_under_eighty_lines() {
    let mut long = BTreeSet::new();
    for package in [
        "dataplane",
        "dataplane/core",
        "dataplane/import",
        "controller",
        "controller/announce",
    ] {
        for (file, text) in texts(&format!("{package}/src")) {
            let name = file.strip_prefix(root()).expect("in it").display();
            let long_ones = long_functions(without_tests(&text));
            long.extend(long_ones.map(|function| format!("{name} {function}")));
        }
    }
    let known: BTreeSet<String> = LONG.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(long, known);
}

/// The names of the functions that take more than 80 lines, as rustfmt sets them.
fn long_functions(text: &str) -> impl Iterator<Item = &str> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (begin, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = line.strip_suffix(code).unwrap_or_default();
        let Some((before, after)) = code.split_once("fn ") else {
            continue;
        };
        let words = before.split_whitespace();
        let is_function = words
            .into_iter()
            .all(|word| ["pub", "async", "const"].contains(&word) || word.starts_with("pub("));
        let end = format!("{indent}}}");
        let rest = lines.get(begin..).unwrap_or_default();
        let length = rest.iter().position(|line| *line == end);
        // A method of a trait may have no body.
        let head = rest.iter().find(|line| line.ends_with(['{', ';']));
        let has_body = head.is_some_and(|line| line.ends_with('{'));
        if is_function && has_body && length.is_some_and(|length| length >= 80) {
            found.extend(after.split(['(', '<']).next());
        }
    }
    found.into_iter()
}

/// Every source of the end-to-end tests, without what they share and without the fuzz targets.
fn tests() -> impl Iterator<Item = (PathBuf, String)> {
    let folders = ["ballast", "announce", "controller", "docs"];
    let files = folders
        .into_iter()
        .flat_map(|folder| sources(&root().join("tests").join(folder)));
    files
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
        .filter(|file| !file.ends_with("docs/rules.rs"))
        .map(|file| {
            let text = fs::read_to_string(&file).expect("a source file");
            (file, text)
        })
}

/// The folders in which each file is a suite or a subject of one.
const SUITES: [&str; 3] = ["tests/ballast", "tests/ballast/quiet", "tests/controller"];
/// Those that are longer, each one list, one `match` or one loop. It grows shorter only.
const LONG: [&str; 5] = [
    "controller/src/observe/cluster.rs watch",
    "dataplane/core/src/answer/page.rs explanation",
    "dataplane/core/src/compile.rs plan",
    "dataplane/src/http/exchange.rs attempt",
    "dataplane/src/operator/console/command.rs parse",
];
