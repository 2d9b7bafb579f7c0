//! Every annotation that is read is on the page about annotations.

use std::fs;
use std::path::Path;

#[test]
fn every_key_that_is_read_is_on_the_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../docs/annotations.md")).expect("the page");
    let words: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
    let mut sections = Vec::new();
    for (name, prefix) in FAMILIES {
        let (_, after) = page.split_once(name).expect("a family");
        let section = after.split("\n**").next().unwrap_or_default();
        let section = section.split("\n## ").next().unwrap_or_default();
        sections.push((*prefix, section));
    }
    let mut missing = Vec::new();
    for file in [
        "annotations/keys.rs",
        "annotations/knobs.rs",
        "health.rs",
        "placement.rs",
    ] {
        let path = root.join("src/decide").join(file);
        let text = fs::read_to_string(path).expect("a source file");
        for word in text.split('"').filter(|word| is_key(word)) {
            let of_family = sections.iter().find_map(|(prefix, section)| {
                let rest = word.strip_prefix(prefix)?;
                Some(section.contains(&format!("`{rest}`")))
            });
            let is_there = words.contains(&word) || of_family == Some(true);
            if !is_there {
                missing.push(format!("{file}: {word}"));
            }
        }
    }
    let known = include_str!("../../../controller/src/decide/annotations/knobs.rs");
    let (_, known) = known.split_once("\nknobs! {").expect("our own keys");
    let known = known.split('"').skip(1).step_by(2);
    let known = known.filter(|word| !word.is_empty() && !word.contains('/'));
    let known: Vec<&str> = known.chain(["last-good"]).collect();
    assert!(known.len() > 40, "only {} own keys", known.len());
    for key in known {
        let own = format!("ballast.dev/{key}");
        if !words.contains(&key) && !words.contains(&own.as_str()) {
            missing.push(own);
        }
    }
    assert_eq!(missing, [""; 0]);
}

/// Whether a word is a whole key of another system.
fn is_key(word: &str) -> bool {
    let is_whole = !word.ends_with(['/', '-', '.']) && !word.contains(char::is_whitespace);
    is_whole
        && [
            "loadbalancer.openstack.org/",
            "service.beta.kubernetes.io/",
            "service.antrea.io/",
            "metallb.",
            "kube-vip.io/",
            "lbipam.cilium.io/",
            "purelb.io/",
            "serviceloadbalancer/",
            "svccontroller.k3s.cattle.io/",
        ]
        .iter()
        .any(|prefix| word.starts_with(prefix) && word.len() > prefix.len())
}

/// The headings of the families on the page, and the prefixes of their keys.
const FAMILIES: &[(&str, &str)] = &[
    ("\n**openstack**", "loadbalancer.openstack.org/"),
    (
        "\n**exoscale**",
        "service.beta.kubernetes.io/exoscale-loadbalancer-",
    ),
    ("\n**antrea**", "service.antrea.io/"),
    ("\n**metallb**", "metallb.io/"),
    ("\n**metallb**", "metallb.universe.tf/"),
    ("\n**contrib**", "serviceloadbalancer/lb."),
];
