//! docs/troubleshooting.md explains the reason of every event and condition that the controller can write, and no other.

use std::collections::BTreeSet;

use crate::manual::text::{quoted, read, section, sources};

const PAGE: &str = "docs/troubleshooting.md";

#[test]
fn every_reason_of_an_event_is_explained_and_no_other() {
    let page = read(PAGE);
    let explained: BTreeSet<&str> = section(&page, "## By the reason of an event")
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'))
        .collect();
    let mut written = notices();
    // Those that act say some reasons themselves.
    let mut code = sources("controller/src/cluster");
    code.extend(sources("controller/src/node"));
    let words = code.iter().flat_map(|code| names(code));
    written.extend(words.filter(|word| !NO_REASONS.contains(&word.as_str())));
    assert!(written.len() >= 30, "{written:?}");
    let explained: BTreeSet<String> = explained.iter().map(|&word| word.to_owned()).collect();
    assert_eq!(explained, written);
}

#[test]
fn every_state_of_the_condition_is_explained() {
    let code = part("controller/src/cluster", "fn programmed(", "\n    }\n");
    let page = read(PAGE);
    let section = section(&page, "## The condition `ballast.dev/Programmed`");
    let explained = quoted(section);
    let states: BTreeSet<String> = names(&code).collect();
    assert!(states.len() >= 3, "{states:?}");
    for state in states {
        assert!(explained.contains(&*state), "{PAGE}: {state}");
    }
}

/// The variants of `Reason`. A variant that is shown in another way has an arm in its `Display`.
fn notices() -> BTreeSet<String> {
    let variants = part("controller/src/decide", "pub enum Reason {\n", "\n}");
    let code = part("controller/src/decide", "fmt::Display for Reason {", "\n}");
    let variants = variants.lines().map(str::trim);
    let variants = variants.filter_map(|line| line.strip_suffix(','));
    let shown = |variant: &str| {
        let arm = format!("Self::{variant} => f.write_str(\"");
        match code.split_once(&arm) {
            Some((_, rest)) => rest.split('"').next().unwrap_or_default().to_owned(),
            None => variant.to_owned(),
        }
    };
    variants.map(shown).collect()
}

/// The code between two texts, of which the first one is in one file alone.
fn part(folder: &str, begin: &str, end: &str) -> String {
    let files = sources(folder);
    let mut parts = files.iter().filter_map(|code| {
        let (_, rest) = code.split_once(begin)?;
        Some(rest.split_once(end)?.0)
    });
    let (Some(part), None) = (parts.next(), parts.next()) else {
        panic!("{folder}: {begin:?} is not in one file");
    };
    part.to_owned()
}

/// The string literals of this code that look like a reason: `EnsuredLoadBalancer`, `nodeAssigned`.
fn names(code: &str) -> impl Iterator<Item = String> {
    let is_name = |word: &&str| {
        let letters = word.len() > 3 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
        let is_lower = |byte: u8| byte.is_ascii_lowercase();
        let humps = word.bytes().filter(u8::is_ascii_uppercase).count();
        letters && humps > 0 && word.bytes().any(is_lower)
    };
    let lines = code.lines().filter(|line| !line.trim().starts_with("//"));
    let words = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    let words: BTreeSet<String> = words.filter(is_name).map(str::to_owned).collect();
    words.into_iter()
}

/// Names of Kubernetes' API, and states of the condition. A new name that is no reason of an event belongs here, a new reason
/// into the page.
const NO_REASONS: &[&str] = &[
    "AddressPool",
    "AddressReservation",
    "Allocated",
    "Apply",
    "Balance",
    "False",
    "Flag",
    "Lease",
    "LoadBalancer",
    "Node",
    "Pending",
    "Proxy",
    "Published",
    "NotHeard",
    "Service",
    "True",
    "Waiting",
    "apiVersion",
    "holderIdentity",
    "lastObservedTime",
    "lastTransitionTime",
    "leaseDurationSeconds",
    "loadBalancer",
    "managedFields",
    "ownerReferences",
    "renewTime",
    "resourceVersion",
];
