//! docs/metrics.md has every metric of Ballast's own, and no other.

use std::collections::BTreeSet;

use crate::manual::text::{quoted, read, sources};

const PAGE: &str = "docs/metrics.md";

#[test]
fn the_page_has_every_metric_and_no_other() {
    let page = read(PAGE);
    let prefixes = ["ballast_", "metallb_"];
    let is_metric = |word: &&str| prefixes.iter().any(|prefix| word.starts_with(prefix));
    let documented: BTreeSet<&str> = quoted(&page).into_iter().filter(is_metric).collect();

    let mut code = sources("dataplane/src");
    code.extend(sources("dataplane/core/src"));
    code.extend(sources("controller/announce/src"));
    let words = code.iter().flat_map(|code| code.split('"'));
    let is_name = |word: &&str| {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        is_metric(word) && word.bytes().all(is_letter)
    };
    let mut real: BTreeSet<&str> = words.filter(is_name).collect();
    let code = read("controller/src/metrics.rs");
    let (code, _) = code.split_once("#[cfg(test)]").unwrap_or((&code, ""));
    let words = code.split('"').skip(1).step_by(2);
    let is_name = |word: &&str| {
        let letters = word.bytes();
        let mut letters = letters.filter(|byte| !byte.is_ascii_lowercase() && *byte != b'_');
        letters.next().is_none() && !NO_METRICS.contains(word)
    };
    let of_the_controller: BTreeSet<String> = words
        .filter(is_name)
        .map(|name| {
            if name.starts_with("ballast_") {
                name.to_owned()
            } else {
                format!("ballast_controller_{name}")
            }
        })
        .collect();
    assert!(real.len() > 20 && of_the_controller.len() > 15);
    real.extend(of_the_controller.iter().map(String::as_str));
    assert_eq!(documented, real);
}

/// Kinds of metrics, labels and their values in the controller's code.
const NO_METRICS: &[&str] = &[
    "",
    "ballast_controller",
    "counter",
    "free",
    "gauge",
    "kind",
    "pending",
    "pool",
    "released",
    "routed",
    "served",
    "state",
    "unreachable",
    "used",
    "verdict",
];
