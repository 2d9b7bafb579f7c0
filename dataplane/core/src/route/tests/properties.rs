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

/// What routes ask for, as the oracle writes it.
const WANTS: [&str; 9] = [
    "m=GET", "m=PUT", "h=X-A:1", "h^x-a:1", "h+x-b", "h-X-B", "h-x-a", "q=v=1", "q=w=",
];

/// Some of it. A request that asks for nothing of the kind is the most common one.
fn wants() -> impl Strategy<Value = Vec<&'static str>> {
    prop_oneof![
        Just(Vec::new()),
        prop::sample::subsequence(WANTS.to_vec(), 1..4),
    ]
}

/// The rest of the line of a request: its method, its fields and its query.
fn rest() -> impl Strategy<Value = String> {
    let method = prop::sample::select(vec!["GET", "PUT", "POST"]);
    let fields = vec![
        "X-A:1", "x-a:12", "X-a:2", "X-B:", "?v=1&v=2", "?v=2&w", "?w&v=1",
    ];
    let fields = prop::sample::subsequence(fields, 0..4);
    (method, fields).prop_map(|(method, fields)| [vec![method], fields].concat().join(" "))
}

/// A line of a route: its host, its path, its match, whether case is ignored, and what it asks for.
type Line = (String, String, &'static str, bool, Vec<&'static str>);

fn route() -> impl Strategy<Value = Line> {
    let host = prop_oneof![
        Just("-".to_owned()),
        name(),
        name().prop_map(|name| format!("*.{name}")),
    ];
    let kind = prop::sample::select(vec!["segment", "exact", "begins"]);
    let parts = (host, path(), kind, any::<bool>(), wants());
    parts.prop_map(|(host, path, kind, ignores_case, wants)| {
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
        (host, path, kind, ignores_case && !is_root, wants)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_route_is_the_best_of_all_that_match(
        routes in prop::collection::btree_set(route(), 1..40),
        asked in prop::collection::vec((name(), any::<bool>(), path(), rest()), 1..8),
    ) {
        let mut lines = BTreeSet::new();
        for (host, path, kind, ignores_case, wants) in routes {
            let case = if ignores_case { "i" } else { "" };
            let wants: Vec<String> = wants.iter().map(|want| format!(" {want}")).collect();
            lines.insert(format!("\n{host} {path} {case}{kind}{}", wants.concat()));
        }
        let lines = Vec::from_iter(lines).concat();
        for (mut host, is_loud, path, rest) in asked {
            if is_loud {
                host = format!("{}.", host.to_uppercase());
            }
            let text = format!("{host} {path} {rest}{lines}");
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
