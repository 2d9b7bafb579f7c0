//! docs/troubleshooting.md explains every line of the log that is an error.

use crate::text::{read, section, sources};

const PAGE: &str = "docs/troubleshooting.md";

#[test]
fn every_error_of_the_log_is_explained() {
    let page = read(PAGE);
    let section = section(&page, "## By a line of the log");
    let mut found = 0;
    for folder in ["dataplane/src", "controller/src"] {
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

/// The messages of `tracing::error!`, with their placeholders: of each call the first text.
fn errors(code: &str) -> Vec<&str> {
    let calls = code.split("tracing::error!(").skip(1);
    let messages = calls.filter_map(|rest| rest.split('"').nth(1));
    messages.collect()
}
