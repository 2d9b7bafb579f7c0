//! docs/troubleshooting.md explains every line of the log that is an error, and no line that nothing writes.

use crate::manual::text::{read, section, sources};

const PAGE: &str = "docs/troubleshooting.md";

#[test]
fn every_error_of_the_log_is_explained() {
    let page = read(PAGE);
    let section = section(&page, "## By a line of the log");
    let mut found = 0;
    for folder in ["dataplane/src", "controller/src", "controller/announce/src"] {
        for message in sources(folder).iter().flat_map(|code| errors(code)) {
            found += 1;
            // What stands between two values.
            let parts = message.split(['{', '}']).step_by(2);
            let said = parts.map(|part| part.trim_matches([' ', ':', ';', ',', '(', ')']));
            let said = said.filter(|part| part.contains(' ') || part.len() > 8);
            let said = said.max_by_key(|part| part.len());
            if let Some(said) = said {
                assert!(section.contains(said), "{PAGE} does not explain {said:?}");
            }
        }
    }
    assert!(found > 15, "only {found} errors");
}

#[test]
fn every_line_that_is_explained_is_written() {
    let mut code = sources("dataplane/src");
    code.extend(sources("dataplane/core/src"));
    code.extend(sources("controller/src"));
    code.extend(sources("controller/announce/src"));
    let page = read(PAGE);
    let mut found = 0;
    for heading in ["## What `ballast check` says", "## By a line of the log"] {
        let rows = section(&page, heading).lines();
        let lines = rows.flat_map(explained);
        for part in lines.flat_map(fixed_parts).filter(|part| part.len() > 8) {
            found += 1;
            let is_written = code.iter().any(|code| code.contains(&part));
            assert!(is_written, "{PAGE}: nothing writes {part:?}");
        }
    }
    assert!(found > 25, "only {found}");
}

/// The lines of the log that a row of a table, or an item of a list, explains: what it begins with.
fn explained(row: &str) -> impl Iterator<Item = &str> {
    let of_table = row
        .strip_prefix("| `")
        .and_then(|row| row.split(" | ").next());
    let of_list = row
        .strip_prefix("- `")
        .and_then(|row| row.split("`:").next());
    let lines = of_table.or(of_list).into_iter();
    lines.flat_map(|lines| lines.split('`').step_by(2))
}

/// What stands between the words in capitals and the dots, which stand for values.
fn fixed_parts(line: &str) -> Vec<String> {
    let is_value = |word: &str| {
        let letters = || word.bytes().filter(u8::is_ascii_alphabetic);
        let is_upper = letters().all(|letter| letter.is_ascii_uppercase());
        word.contains('…') || is_upper
    };
    let words: Vec<&str> = line.split(' ').collect();
    let parts = words.split(|word| is_value(word));
    let parts = parts.map(|words| words.join(" "));
    let parts = parts.map(|part| part.trim_matches([' ', ':', ';', ',']).to_owned());
    parts.collect()
}

/// The messages of `tracing::error!`, with their placeholders: of each call the first text.
fn errors(code: &str) -> Vec<&str> {
    let calls = code.split("tracing::error!(").skip(1);
    let messages = calls.filter_map(|rest| rest.split('"').nth(1));
    messages.collect()
}
