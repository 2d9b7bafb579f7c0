//! The pages and the source files, as texts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of the repository.
pub(crate) fn read(path: &str) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// README.md and every page of docs/, with their names.
pub(crate) fn pages() -> Vec<(String, String)> {
    let folder = fs::read_dir(repository().join("docs")).expect("docs/");
    let names = folder.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.into_string().expect("a plain name"));
    let pages = names.filter(|name| name.ends_with(".md"));
    let mut paths: Vec<String> = pages.map(|name| format!("docs/{name}")).collect();
    paths.push("README.md".to_owned());
    paths.sort();
    let text = |path: String| {
        let text = read(&path);
        (path, text)
    };
    paths.into_iter().map(text).collect()
}

/// The code of a source folder without its tests, file by file.
pub(crate) fn sources(folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    collect(&repository().join(folder), &mut files);
    let is_test = |path: &&PathBuf| {
        let mut parts = path.iter();
        parts.any(|part| part == "tests" || part == "tests.rs")
    };
    let code = files.iter().filter(|path| !is_test(path)).map(|path| {
        let text = fs::read_to_string(path).expect("a source file");
        let tests = text.find("#[cfg(test)]\nmod tests {");
        let (code, _) = text.split_at(tests.unwrap_or(text.len()));
        code.to_owned()
    });
    let code: Vec<String> = code.collect();
    assert!(code.len() > 5, "{folder}: only {} files", code.len());
    code
}

/// The words in backticks.
pub(crate) fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The part of a page below a heading, up to the next heading of the same or a higher level.
pub(crate) fn section<'t>(page: &'t str, heading: &str) -> &'t str {
    let (_, rest) = page
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("there is no heading {heading:?}"));
    let level = heading.bytes().take_while(|byte| *byte == b'#').count();
    let ends = (1..=level).filter_map(|level| rest.find(&format!("\n{} ", "#".repeat(level))));
    let end = ends.min().unwrap_or(rest.len());
    rest.get(..end).expect("a boundary")
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a source folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

pub(crate) fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
