//! Properties that hold for any text. The tests of this crate and the fuzz target `table` include this file.

use super::{Format, files, parse};

/// Panics where reading `text` as a table breaks a promise.
pub(super) fn check(text: &[u8]) {
    for format in [Format::Json, Format::Yaml] {
        match parse(text, format) {
            Ok(table) => {
                let json = serde_json::to_vec(&table).expect("a table can be written");
                let again = parse(&json, Format::Json).expect("what was written can be read");
                assert!(table == again, "another table was read than was written");
                assert!(files(&table).iter().all(|(at, _)| !at.is_empty()));
                assert!(!table.summary().is_empty());
            }
            Err(problems) => {
                assert!(!problems.is_empty(), "refused without a reason");
                assert!(!problems.not_whole() || problems.len() == 1);
                for problem in problems.iter() {
                    let line = problem.to_string();
                    assert!(!line.contains(char::is_control), "not one line: {line:?}");
                    assert!(!problem.why.is_empty() && !problem.remedy.is_empty());
                }
            }
        }
    }
}
