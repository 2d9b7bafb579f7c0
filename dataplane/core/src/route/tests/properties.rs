//! Random routes and requests, and the corpus of the fuzz target, against a search that looks at every route.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::oracle;

fn name() -> impl Strategy<Value = String> {
    let label = prop::sample::select(vec!["a", "b", "ab"]);
    prop::collection::vec(label, 1..5).prop_map(|labels| labels.join("."))
}

fn path() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec!["/", "a", "A", "b", "/a", "/ab", "//", ":"]);
    prop::collection::vec(piece, 0..6).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// The host, the path, the match, and whether case is ignored.
fn route() -> impl Strategy<Value = (String, String, &'static str, bool)> {
    let host = prop_oneof![
        Just("-".to_owned()),
        name(),
        name().prop_map(|name| format!("*.{name}")),
    ];
    let kind = prop::sample::select(vec!["segment", "exact", "begins"]);
    (host, path(), kind, any::<bool>()).prop_map(|(host, path, kind, ignores_case)| {
        // The root is the same route in another word, which would be a problem of the table.
        let is_root = path == "/";
        let kind = if is_root && kind == "begins" {
            "segment"
        } else {
            kind
        };
        let path = if ignores_case {
            path.to_lowercase()
        } else {
            path
        };
        (host, path, kind, ignores_case && !is_root)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_route_is_the_best_of_all_that_match(
        routes in prop::collection::btree_set(route(), 1..40),
        asked in prop::collection::vec((name(), any::<bool>(), path()), 1..8),
    ) {
        let mut lines = BTreeSet::new();
        for (host, path, kind, ignores_case) in routes {
            let case = if ignores_case { "i" } else { "" };
            lines.insert(format!("\n{host} {path} {case}{kind}"));
        }
        let lines = Vec::from_iter(lines).concat();
        for (mut host, is_loud, path) in asked {
            if is_loud {
                host = format!("{}.", host.to_uppercase());
            }
            let text = format!("{host} {path}{lines}");
            prop_assert!(oracle::check(&text), "{}", text);
        }
    }
}

#[test]
fn the_corpus_of_the_fuzz_target_keeps_every_promise() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus/route");
    let mut seeds = 0;
    for seed in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(seed.unwrap().path()).unwrap();
        assert!(oracle::check(&text), "{text}");
        seeds += 1;
    }
    assert!(seeds > 5, "only {seeds} seeds in {folder}");
}
