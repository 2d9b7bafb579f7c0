//! docs/metrics.md has every metric of Ballast's own, and no other.

use std::collections::BTreeSet;

use crate::text::{quoted, read, sources};

const PAGE: &str = "docs/metrics.md";

#[test]
fn the_page_has_every_metric_and_no_other() {
    let page = read(PAGE);
    let is_metric = |word: &&str| word.starts_with("ballast_");
    let documented: BTreeSet<&str> = quoted(&page).into_iter().filter(is_metric).collect();

    let mut code = sources("dataplane/src");
    code.extend(sources("dataplane/core/src"));
    let words = code.iter().flat_map(|code| code.split('"'));
    let is_name = |word: &&str| {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        is_metric(word) && word.bytes().all(is_letter)
    };
    let mut real: BTreeSet<&str> = words.filter(is_name).collect();
    // Of the controller each name stands before its kind.
    let code = read("controller/src/metrics.rs");
    let (code, _) = code.split_once("#[cfg(test)]").expect("its tests");
    let words: Vec<&str> = code.split('"').skip(1).step_by(2).collect();
    let of_the_controller: Vec<String> = words
        .windows(2)
        .filter(|pair| ["counter", "gauge", "histogram"].contains(&pair[1]))
        .map(|pair| format!("ballast_controller_{}", pair[0]))
        .collect();
    assert!(real.len() > 20 && of_the_controller.len() > 15);
    real.extend(of_the_controller.iter().map(String::as_str));
    assert_eq!(documented, real);
}
