//! The difference between the running table and a new one, as one unified diff for each frontend and service.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ballast_core::table::RoutingTable;
use serde_saphyr::{SerializeError, to_string as yaml};
use similar::TextDiff;

/// One diff for every part that differs: the head, then the frontends, then the services, by name.
pub(super) fn changes(
    running: &RoutingTable,
    next: &RoutingTable,
) -> Result<String, SerializeError> {
    let (before, after) = (parts(running)?, parts(next)?);
    let parts: BTreeSet<&Part> = before.keys().chain(after.keys()).collect();
    let diffs = parts.into_iter().map(|part| {
        let (old, new) = (before.get(part), after.get(part));
        if old == new {
            return String::new();
        }
        let head = |text: Option<&String>| text.map_or("/dev/null", |_| &part.1).to_owned();
        let lines = |text: Option<&String>| text.cloned().unwrap_or_default();
        TextDiff::configure()
            .timeout(AT_MOST)
            .diff_lines(&*lines(old), &*lines(new))
            .unified_diff()
            .header(&head(old), &head(new))
            .to_string()
    });
    Ok(diffs.collect())
}

/// The place of a part among the others, and its name.
type Part = (u8, String);

/// Every part of a table as YAML. The generation is left out, since it changes with every table.
fn parts(table: &RoutingTable) -> Result<BTreeMap<Part, String>, SerializeError> {
    let head = RoutingTable {
        generation: None,
        frontends: Vec::new(),
        services: Vec::new(),
        ..table.clone()
    };
    let name = "the settings of the table".to_owned();
    let mut parts = BTreeMap::from([((0, name), yaml(&head)?)]);
    for frontend in &table.frontends {
        parts.insert((1, format!("frontend {}", frontend.name)), yaml(frontend)?);
    }
    for service in &table.services {
        parts.insert((2, format!("service {}", service.name)), yaml(service)?);
    }
    Ok(parts)
}

/// A part that takes longer to compare is shown with more lines than have changed.
const AT_MOST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use ballast_core::table::{Format, parse};

    use super::*;

    #[test]
    fn parts_that_are_large_and_wholly_different_are_compared_in_limited_time() {
        let table = |step: usize| {
            let endpoints = (0..20_000).map(|n| {
                let (n, weight) = (n * step % 65_536, (n * step) % 251);
                format!(
                    "{{address: \"10.0.{}.{}:80\", weight: {weight}}}",
                    n / 256,
                    n % 256
                )
            });
            let endpoints: BTreeSet<String> = endpoints.collect();
            let endpoints = Vec::from_iter(endpoints).join(", ");
            let text = format!("version: 1\nservices: [{{name: s, endpoints: [{endpoints}]}}]");
            parse(text.as_bytes(), Format::Yaml).unwrap()
        };
        let (old, new) = (table(3), table(7));
        let begun = std::time::Instant::now();
        let found = changes(&old, &new).unwrap();
        assert!(found.starts_with("--- service s\n+++ service s\n@@ "));
        assert!(begun.elapsed() < 20 * AT_MOST, "{:?}", begun.elapsed());
    }
}
