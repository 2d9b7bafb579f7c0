//! Each recipe of docs/recipes.md is followed from its first block to its last, on a host of its own: `recipes/host.sh` makes
//! what the page supposes. Blocks are marked as in `commands`.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;

use crate::manual::commands::{follow, missing, steps};
use crate::manual::text::{read, repository};
use support::netns::Namespace;
use support::skip::skip;

pub(crate) const PAGE: &str = "docs/recipes.md";

#[test]
fn every_recipe_works() {
    if let Some(missing) = missing(&["mount", "nginx", "openssl", "promtool"]) {
        return skip(&format!("{missing} is missing"));
    }
    if let Err(why) = Namespace::make() {
        return skip(&format!("no network namespaces: {why}"));
    }
    let page = read(PAGE);
    let recipes = recipes(&page);
    let stand_ins = repository().join("tests/docs/manual/recipes");
    let before = format!(
        "RECIPES={0}\nexport RECIPES REPOSITORY\n. \"$RECIPES/host.sh\" >/dev/null\n",
        stand_ins.display()
    );
    // Each thread takes the next recipe when it has followed one.
    let next = Mutex::new(recipes.iter());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let recipe = next.lock().expect("no panic with the lock").next();
                    let Some((name, text)) = recipe else { break };
                    let network = Namespace::make().expect("a network namespace");
                    network.within(|| follow(name, &steps(name, text), &before));
                }
            });
        }
    });
}

/// The page has all that it is to have, and nothing in it is left untested.
#[test]
fn every_recipe_has_a_table_and_commands_and_no_block_without_a_mark() {
    let page = read(PAGE);
    let recipes = recipes(&page);
    assert!(recipes.len() >= 11, "only {} recipes", recipes.len());
    let names: BTreeSet<&str> = recipes.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), recipes.len());
    for (name, text) in recipes {
        assert!(
            text.contains("<!-- file: /etc/ballast/table.yaml -->\n"),
            "{name}"
        );
        assert!(text.contains("<!-- run -->\n"), "{name}");
        let fences = text.lines().filter(|line| line.starts_with("```")).count();
        assert_eq!(
            fences,
            2 * steps(name, text).len(),
            "{name}: a block has no mark"
        );
    }
}

/// The recipes of the page: their names and texts.
fn recipes(page: &str) -> Vec<(&str, &str)> {
    let sections = page.split("\n## ").skip(1);
    let recipes = sections.map(|section| section.split_once('\n').expect("a text"));
    recipes.collect()
}

/// The recipes that are followed at once: most of the time each of them waits.
const AT_ONCE: usize = 4;
