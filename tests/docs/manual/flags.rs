//! docs/flags.md has a row for every flag of both programs, with its variable and its default, and for no other.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::manual::text::{quoted, read};
use support::program::program;

const PAGE: &str = "docs/flags.md";

#[test]
fn the_page_has_every_command_and_flag_as_the_programs_have_them() {
    let documented = documented(&read(PAGE));
    let mut real = BTreeMap::new();
    for name in ["ballast", "ballast-controller"] {
        for command in commands(&help(name, &[])) {
            let flags = flags(&help(name, &[&command]));
            real.insert(format!("{name} {command}"), flags);
        }
    }
    let names = |all: &BTreeMap<String, _>| all.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&documented.commands), real.keys().cloned().collect());
    for (command, flags) in &real {
        let rows = &documented.commands[command];
        let there: BTreeSet<&String> = rows.keys().collect();
        let expected: BTreeSet<&String> = flags.keys().collect();
        assert_eq!(there, expected, "{command}");
        for (flag, Flag { variable, default }) in flags {
            let row = &rows[flag];
            let words = quoted(row);
            for word in [variable, default].into_iter().flatten() {
                assert!(row.contains(&**word), "{command} {flag}: {word}");
            }
            let said = words.iter().find(|word| word.starts_with("BALLAST_"));
            assert!(said.is_none() || variable.is_some(), "{command}: {row}");
        }
    }
}

#[test]
fn the_page_has_the_exit_codes_that_each_command_promises() {
    let page = read(PAGE);
    let mut promises = 0;
    for name in ["ballast", "ballast-controller"] {
        for command in commands(&help(name, &[])) {
            let help = help(name, &[&command]);
            let Some((_, promise)) = help.split_once("Exit codes: ") else {
                continue;
            };
            let promise: Vec<&str> = promise.split_whitespace().collect();
            let promise = promise.join(" ");
            let of_command = format!("`{name} {command}`");
            let mut sections = page.split("\n## ");
            let section = sections.find(|section| {
                let heading = section.lines().next().unwrap_or_default();
                heading.contains(&of_command) && section.contains("Exit codes: ")
            });
            let section = section.unwrap_or_else(|| panic!("{of_command}: no exit codes"));
            let said: Vec<&str> = section.split_whitespace().collect();
            assert!(said.join(" ").contains(&promise), "{of_command}: {promise}");
            promises += 1;
        }
    }
    assert!(promises >= 5, "only {promises}");
}

/// A flag as `--help` has it.
struct Flag {
    variable: Option<String>,
    /// A default that is a value, not words.
    default: Option<String>,
}

/// The rows of the page by command and flag. A heading names the commands that the rows below it belong to.
struct Documented {
    commands: BTreeMap<String, BTreeMap<String, String>>,
}

fn documented(page: &str) -> Documented {
    let mut commands: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut current: Vec<String> = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            current = quoted(heading).into_iter().map(str::to_owned).collect();
            for command in &current {
                commands.entry(command.clone()).or_default();
            }
        } else if let Some(rest) = line.strip_prefix("| `--") {
            let flag = format!("--{}", name(rest));
            for command in &current {
                let rows = commands.entry(command.clone()).or_default();
                let before = rows.insert(flag.clone(), line.to_owned());
                assert_eq!(before, None, "{command}: two rows for {flag}");
            }
        }
    }
    Documented { commands }
}

/// The commands of a program, by its `--help`.
fn commands(help: &str) -> Vec<String> {
    let (_, list) = help.split_once("Commands:\n").expect("commands");
    let lines = list.lines().take_while(|line| !line.trim().is_empty());
    let names = lines.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    let names: Vec<String> = names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 2, "{names:?}");
    names
}

/// The flags of a command, by its `--help`, in which each begins a line.
fn flags(help: &str) -> BTreeMap<String, Flag> {
    let mut flags = BTreeMap::new();
    // A flag begins a line that is indented by less than its text.
    let mut texts: Vec<String> = Vec::new();
    for line in help.lines() {
        let (indentation, line) = (line.len() - line.trim_start().len(), line.trim());
        let long = line
            .split_once(", ")
            .filter(|(short, _)| short.len() == 2 && *short != "-h");
        match long.map_or(line, |(_, long)| long) {
            line if line.starts_with("--") && indentation < 8 => texts.push(line.to_owned()),
            line => {
                if let Some(text) = texts.last_mut() {
                    text.push(' ');
                    text.push_str(line);
                }
            }
        }
    }
    for text in texts {
        let flag = name(&text).to_owned();
        let bracket = |name: &str| {
            let (_, rest) = text.split_once(&format!("[{name}: "))?;
            Some(rest.split(']').next()?.to_owned())
        };
        let variable = bracket("env").map(|word| word.trim_end_matches('=').to_owned());
        let default = bracket("default").filter(|word| !word.contains(' ') && word != "\"\"");
        flags.insert(flag, Flag { variable, default });
    }
    flags
}

/// The letters and dashes at the beginning.
fn name(text: &str) -> &str {
    let is_over = |letter: char| !letter.is_ascii_lowercase() && letter != '-';
    text.split(is_over).next().unwrap_or_default()
}

fn help(name: &str, command: &[&str]) -> String {
    let mut ask: Command = program(name);
    let output = ask.args(command).arg("--help").output().expect("a start");
    assert!(output.status.success(), "{name} {command:?}: {output:?}");
    String::from_utf8(output.stdout).expect("a text")
}
