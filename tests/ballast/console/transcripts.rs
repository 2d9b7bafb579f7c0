//! Golden transcripts: what is said and answered, word for word, in `tests/ballast/console/*.txt`.
//!
//! A line that begins with `> ` is said in a connection of its own; the lines after it are the answer up to its empty
//! line. `*` stands for what differs from run to run.

use std::fs;
use std::path::Path;

use crate::console::say;
use support::Ballast;

#[test]
fn transcripts_are_as_they_were() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ballast/console");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("transcripts")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "txt"))
        .collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        // Each begins anew, so that none depends on another.
        let ballast = Ballast::serve_with_socket(TABLE, 2);
        let text = fs::read_to_string(&file).expect("a transcript");
        for part in text.split("\n> ") {
            let part = part.strip_prefix("> ").unwrap_or(part);
            let (command, expected) = part.split_once('\n').unwrap_or((part, ""));
            let answer = say(&ballast, &format!("{command}\n"));
            let answer = answer.strip_suffix('\n').expect("an end");
            assert!(
                matches(
                    expected.trim_end_matches('\n'),
                    answer.trim_end_matches('\n')
                ),
                "{}: {command}\n--- expected\n{expected}\n--- answered\n{answer}",
                file.display()
            );
        }
    }
}

/// Line by line, where `*` stands for anything.
fn matches(expected: &str, answer: &str) -> bool {
    let line_matches = |expected: &str, line: &str| {
        let mut rest = line;
        let mut parts = expected.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(after) = rest.strip_prefix(first) else {
            return false;
        };
        rest = after;
        let parts: Vec<&str> = parts.collect();
        let Some((last, between)) = parts.split_last() else {
            return rest.is_empty();
        };
        for part in between {
            let Some((_, after)) = rest.split_once(part) else {
                return false;
            };
            rest = after;
        }
        rest.ends_with(last)
    };
    expected.lines().count() == answer.lines().count()
        && expected
            .lines()
            .zip(answer.lines())
            .all(|(expected, line)| line_matches(expected, line))
}

const TABLE: &str = r#"
version: 1
frontends:
  - {name: web, bind: ["127.0.0.1:0"], protocol: tcp, service: pool, max-connections: 50}
services:
  - name: pool
    endpoints:
      - {name: one, address: "192.0.2.1:80", weight: 10}
      - {name: two, address: "[2001:db8::2]:8080", state: draining}
      - {address: "192.0.2.3:80", state: disabled}
      - {name: four, address: "192.0.2.4:80", state: backup}
  - {name: other, endpoints: [{name: one, address: "192.0.2.9:80"}]}
"#;
