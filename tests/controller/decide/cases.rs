//! Reads the cases. [`crate`] says how they are written.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::decide::patch::{deletes, merge};

/// A case as its file has it.
pub(crate) struct Case {
    /// Its name.
    pub(crate) name: String,
    /// The case that it changes; `None`: it stands alone.
    pub(crate) over: Option<String>,
    /// Its file.
    pub(crate) file: PathBuf,
    /// The line of its name, from 1.
    pub(crate) line: usize,
    /// The lines of its section `desired`, from 0.
    pub(crate) desired: Range<usize>,
    sections: BTreeMap<String, String>,
}

/// The input of a case, with all that it takes from other cases.
#[derive(Clone, Default)]
pub(crate) struct Input {
    /// Arguments.
    pub(crate) settings: Vec<String>,
    /// Manifests of the decision before, if there was one.
    pub(crate) before: Option<String>,
    /// Manifests.
    pub(crate) observed: String,
}

impl Case {
    /// A section's text; empty if it has none.
    pub(crate) fn section(&self, name: &str) -> &str {
        self.sections.get(name).map_or("", String::as_str)
    }

    /// The file and line of the case, from the root of the repository, and its name.
    pub(crate) fn place(&self) -> String {
        let file = self.file.file_name().unwrap_or_default();
        let (file, line) = (file.to_string_lossy(), self.line);
        format!("tests/controller/decide/cases/{file}:{line}: {}", self.name)
    }

    /// The input of this case, which changes the input of another one.
    pub(crate) fn input(&self, over: &Input) -> Input {
        let arguments = self.section("settings").lines().map(str::to_owned);
        let arguments = arguments.filter(|argument| !argument.is_empty());
        let mut settings = over.settings.clone();
        for argument in arguments {
            let (flag, _) = argument.split_once('=').unwrap_or((&argument, ""));
            settings.retain(|old| old.split_once('=').map_or(&**old, |(flag, _)| flag) != flag);
            settings.push(argument);
        }
        let before = self.sections.get("before");
        let Some(_) = self.over else {
            return Input {
                settings,
                before: before.cloned(),
                observed: self.section("observed").to_owned(),
            };
        };
        let old = documents(&over.observed);
        let new = documents(self.section("observed"));
        let touched = |manifest: &Value| new.iter().any(|change| is_about(change, manifest, &old));
        for change in new.iter().filter(|change| deletes(change)) {
            let is_there = old.iter().any(|one| is_about(change, one, &old));
            assert!(is_there, "{}: nothing to delete: {change}", self.place());
        }
        let mut observed: Vec<Value> = old.iter().filter(|one| !touched(one)).cloned().collect();
        observed.extend(self.changed(&old, &new));
        Input {
            settings,
            before: match before {
                Some(text) => Some(join(&self.changed(&old, &documents(text)))),
                None => over.before.clone(),
            },
            observed: join(&observed),
        }
    }

    /// The manifests of a section, each merged with its counterpart in `old`.
    fn changed(&self, old: &[Value], changes: &[Value]) -> Vec<Value> {
        let kept = changes.iter().filter(|change| !deletes(change));
        let changed = kept.map(|change| {
            let counterpart = old.iter().find(|one| is_about(change, one, old));
            let is_named = change["metadata"]["name"].is_string();
            assert!(
                counterpart.is_some() || is_named,
                "{}: a name is missing: {change}",
                self.place()
            );
            let mut manifest = counterpart.cloned().unwrap_or_default();
            merge(&mut manifest, change);
            manifest
        });
        changed.collect()
    }
}

/// Whether a change is about a manifest, by kind and name. A change without a name is about the only manifest of its kind.
fn is_about(change: &Value, manifest: &Value, all: &[Value]) -> bool {
    let is_kind = |one: &&Value| one["kind"] == change["kind"];
    let meta = &change["metadata"];
    is_kind(&manifest)
        && if meta["name"].is_null() {
            all.iter().filter(is_kind).count() == 1
        } else {
            ["name", "namespace"]
                .iter()
                .all(|key| meta[key] == manifest["metadata"][key])
        }
}

fn documents(text: &str) -> Vec<Value> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let text = format!("\n{text}");
    let documents = text.split("\n---\n").map(|document| {
        serde_saphyr::from_str_with_options(document, options.clone())
            .unwrap_or_else(|error| panic!("{error}\n{document}"))
    });
    documents
        .filter(|document: &Value| !document.is_null())
        .collect()
}

fn join(manifests: &[Value]) -> String {
    let manifests: Vec<String> = manifests.iter().map(Value::to_string).collect();
    manifests.join("\n---\n")
}

/// Every case of every file, by name.
pub(crate) fn read() -> BTreeMap<String, Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/controller/decide/cases");
    let mut cases = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder of cases") {
        let file = entry.expect("an entry").path();
        let text = fs::read_to_string(&file).expect("a file of cases");
        for case in of_file(&file, &text) {
            let place = case.place();
            let twice = cases.insert(case.name.clone(), case);
            assert!(twice.is_none(), "{place} is there twice");
        }
    }
    cases
}

fn of_file(file: &Path, text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut section = String::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(head) = line.strip_prefix("== ") {
            let (name, over) = head.split_once(" over ").unwrap_or((head, BASE));
            section.clear();
            cases.push(Case {
                name: name.to_owned(),
                over: (over != NOTHING).then(|| over.to_owned()),
                file: file.to_owned(),
                line: index + 1,
                desired: 0..0,
                sections: BTreeMap::new(),
            });
            continue;
        }
        let Some(case) = cases.last_mut() else {
            continue;
        };
        let name = line
            .strip_prefix("-- ")
            .and_then(|rest| rest.strip_suffix(" --"));
        if let Some(name) = name {
            assert!(SECTIONS.contains(&name), "{}: {line}", case.place());
            let twice = case.sections.insert(name.to_owned(), String::new());
            assert!(twice.is_none(), "{}: {line} is there twice", case.place());
            name.clone_into(&mut section);
            if section == "desired" {
                case.desired = index + 1..index + 1;
            }
        } else if let Some(text) = case.sections.get_mut(&section) {
            text.push_str(line);
            text.push('\n');
            if section == "desired" && !line.is_empty() {
                case.desired.end = index + 1;
            }
        }
    }
    cases
}

const SECTIONS: [&str; 4] = ["settings", "before", "observed", "desired"];
/// The case that others change if they name no other one.
const BASE: &str = "base";
/// Instead of the name of a case: the case changes no other one.
const NOTHING: &str = "nothing";
