//! Every command of README.md and docs/ that is marked as runnable is run, page by page, in a clean folder and a network of
//! its own. The page of recipes is for `recipes`, which runs each of them on a host of its own.
//!
//! - `<!-- run -->` before a block: bash runs it; the first command that fails fails the test.
//! - `<!-- file: NAME -->` before a block: it becomes that file of the folder.
//! - `<!-- prints -->` before a block: the commands before it have printed each of its lines.
//!
//! A process in the background runs until the end of its page.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::manual::text::{pages, repository};
use support::netns::Namespace;
use support::program::{self, program};
use support::skip::skip;

#[test]
fn what_is_marked_as_runnable_runs() {
    if let Some(missing) = missing(&[]) {
        return skip(&format!("{missing} is missing"));
    }
    let network = match Namespace::make() {
        Ok(network) => network,
        Err(why) => return skip(&format!("no network namespaces: {why}")),
    };
    let mut run = 0;
    for (page, text) in pages() {
        let steps = steps(&page, &text);
        if steps.is_empty() || page == crate::manual::recipes::PAGE {
            continue;
        }
        run += steps.len();
        network.within(|| follow(&page, &steps, ""));
    }
    assert!(run >= 8, "only {run} steps");
}

/// What a reader does.
pub(crate) enum Step<'t> {
    Write { name: &'t str, text: &'t str },
    Run(&'t str),
    Read(&'t str),
}

/// The marked blocks of a page.
pub(crate) fn steps<'t>(page: &str, text: &'t str) -> Vec<Step<'t>> {
    let mut steps = Vec::new();
    for rest in text.split("\n<!-- ").skip(1) {
        let (mark, rest) = rest.split_once(" -->\n").expect("the end of a comment");
        let name = mark.strip_prefix("file: ");
        if !["run", "prints"].contains(&mark) && name.is_none() {
            continue;
        }
        let block = rest.strip_prefix("```").and_then(|rest| {
            let (_, block) = rest.split_once('\n')?;
            block.find("\n```").and_then(|end| block.get(..=end))
        });
        let block = block.unwrap_or_else(|| panic!("{page}: no block behind {mark:?}"));
        steps.push(match name {
            Some(name) => Step::Write { name, text: block },
            None if mark == "run" => Step::Run(block),
            None => Step::Read(block),
        });
    }
    steps
}

/// One shell for all commands of a page, so that the second finds what the first has started. `before` is run first.
pub(crate) fn follow(page: &str, steps: &[Step<'_>], before: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let script = script(steps, before);
    let path = folder.path().join("script");
    fs::write(&path, script).expect("a script");
    let clean = folder.path().join("clean");
    fs::create_dir(&clean).expect("a folder");
    let output = shell(&path, &clean).output().expect("a shell");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{page}:\n{out}\n{err}");

    let (mut printed, mut rest) = ("", &*out);
    for (number, step) in steps.iter().enumerate() {
        let end = format!("{END} {number}\n");
        let (before, after) = rest.split_once(&end).expect("each step's end");
        rest = after;
        match step {
            Step::Run(_) => printed = before,
            Step::Write { .. } => {}
            Step::Read(lines) => {
                for line in lines.lines() {
                    let is_there = printed.lines().any(|said| same(said, line));
                    assert!(is_there, "{page}: no line {line:?} in\n{printed}\n{err}");
                }
            }
        }
    }
}

/// All steps as one script, which says where the output of each ends.
fn script(steps: &[Step<'_>], before: &str) -> String {
    let mut script = format!("set -euo pipefail\n{before}\n");
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Write { name, text } => {
                script += &format!("mkdir -p \"$(dirname {name})\"\n");
                script += &format!("cat >{name} <<'{END}'\n{text}{END}\n");
            }
            Step::Run(commands) => script += commands,
            Step::Read(_) => {}
        }
        script += &format!("echo '{END} {number}'\n");
    }
    script
}

/// A shell that runs a script in a folder and ends with everything that it has started.
fn shell(script: &Path, folder: &Path) -> Command {
    let programs = program::folder();
    let path_variable = std::env::var("PATH").expect("PATH");
    // Without settings of whoever runs the tests.
    let environment: Vec<_> = program("ballast")
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
        .collect();
    // With its own process numbers and mounts: whatever the page starts and mounts ends with the shell.
    let mut shell = Command::new("timeout");
    shell
        .arg(LONGEST.as_secs().to_string())
        .args(["unshare", "--mount", "--pid", "--fork", "--kill-child"])
        .arg("bash")
        .arg(script)
        .current_dir(folder)
        .env("PATH", format!("{}:{path_variable}", programs.display()))
        .env("PROGRAMS", programs)
        .env("REPOSITORY", repository())
        .stdin(Stdio::null());
    for (name, value) in environment {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// A program that is not installed, of those that every page needs and these.
pub(crate) fn missing<'n>(also: &[&'n str]) -> Option<&'n str> {
    let always = ["bash", "curl", "ip", "python3", "timeout", "unshare"];
    let mut needed = always.iter().chain(also);
    needed.find(|name| !is_installed(name)).copied()
}

fn is_installed(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).exists())
}

/// Whether two lines have the same words: columns may be wider for longer values.
fn same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

/// Ends the files and the output of each step.
const END: &str = "END-OF-STEP";
/// For all commands of a page.
const LONGEST: Duration = Duration::from_secs(120);
