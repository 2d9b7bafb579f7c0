//! templates/autoscaling fits together: what each file asks for, the one before it makes.

use std::collections::BTreeSet;

use crate::promises::{exists, names_of_metrics, read, tested_rules};

const FOLDER: &str = "templates/autoscaling";

#[test]
fn each_file_asks_for_what_the_one_before_it_makes() {
    let rules = read(&format!("{FOLDER}/rules.yaml"));
    let metrics = crate::promises::metrics_of_every_kind();
    let asked = names_of_metrics(&rules);
    assert!(asked.len() > 2, "{asked:?}");
    for name in asked {
        assert!(exists(name, &metrics), "rules.yaml: {name}");
    }

    let recorded = words_behind(&rules, "record: ballast:");
    let adapter = read(&format!("{FOLDER}/adapter.yaml"));
    assert_eq!(recorded.len(), 3, "{recorded:?}");
    for name in &recorded {
        let part = name.strip_prefix("service_").unwrap_or(name);
        assert!(adapter.contains(part), "adapter.yaml: {name}");
    }
    for file in ["service.yaml", "ballast.yaml"] {
        let scaler = read(&format!("{FOLDER}/{file}"));
        let asked = words_behind(&scaler, "metric: {name: ballast_");
        assert!(!asked.is_empty(), "{file}");
        assert!(asked.is_subset(&recorded), "{file}: {asked:?}");
    }
}

#[test]
fn the_recorded_sums_are_right() {
    if let Some(tested) = tested_rules("tests/docs/promises/autoscaling.test.yaml") {
        assert!(tested.status.success(), "{tested:?}");
    }
}

/// The words that stand behind this one.
fn words_behind<'t>(text: &'t str, before: &str) -> BTreeSet<&'t str> {
    let rests = text.split(before).skip(1);
    let words = rests.filter_map(|rest| {
        rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
            .next()
    });
    words.collect()
}
