//! Every link of a page within the repository leads to a file that is there, and to a heading that is there. No line is too long.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

#[test]
fn every_link_within_the_repository_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut broken = Vec::new();
    let mut found = 0;
    for page in pages(root) {
        let text = fs::read_to_string(root.join(&page)).expect("a page");
        for link in links(&text) {
            found += 1;
            if let Err(why) = follow(root, &page, link) {
                broken.push(format!("{}: {link}: {why}", page.display()));
            }
        }
    }
    assert_eq!(broken, [""; 0]);
    assert!(found > 150, "only {found} links");
}

/// In commands, too.
#[test]
fn every_file_that_a_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["benches/", "docs/", "templates/", "tests/"];
    let mut named = 0;
    for page in pages(root) {
        let text = fs::read_to_string(root.join(&page)).expect("a page");
        let is_of_a_path = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
        let words = text.split(|letter| !is_of_a_path(letter));
        let words = words.map(|word| word.trim_end_matches(['.', '-']));
        for path in words.filter(|word| folders.iter().any(|folder| word.starts_with(folder))) {
            named += 1;
            assert!(root.join(path).exists(), "{}: {path}", page.display());
        }
    }
    assert!(named > 50, "only {named}");
}

/// Longer ones are hard to read in a terminal and in a difference. Blocks of code count as well.
#[test]
fn no_line_of_a_page_is_too_long() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut long = Vec::new();
    for page in pages(root) {
        let text = fs::read_to_string(root.join(&page)).expect("a page");
        for (number, line) in (1..).zip(text.lines()) {
            let length = line.chars().count();
            if length > LONGEST_LINE {
                long.push(format!("{}:{number}: {length}", page.display()));
            }
        }
    }
    assert_eq!(long, [""; 0], "more than {LONGEST_LINE} characters");
}

#[test]
fn the_readme_is_short() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let lines = fs::read_to_string(readme).expect("a page").lines().count();
    assert!(lines <= 160, "{lines} lines");
}

#[test]
fn a_heading_is_named_as_in_links() {
    let page = "# One\n```sh\n# no heading\n```\n## `a.b/C` and *d*, e-f\n## One\n";
    let expected = ["abc-and-d-e-f", "one", "one-1"];
    assert_eq!(anchors(page), expected.map(str::to_owned).into());
    assert_eq!(links("[a](b) `[no](c)` <img src=\"d\">\n"), ["b", "d"]);
    assert_eq!(links("[a][b]\n\n[b]: c\n"), ["c"]);
}

/// Where a link leads, or why it leads nowhere.
fn follow(root: &Path, page: &Path, link: &str) -> Result<(), &'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        path => normal(&page.with_file_name("").join(path)),
    };
    let target = root.join(target);
    if !target.exists() {
        return Err("there is no such file");
    }
    if anchor.is_empty() {
        return Ok(());
    }
    let text = fs::read_to_string(&target).map_err(|_| "it has no headings")?;
    if anchors(&text).contains(anchor) {
        Ok(())
    } else {
        Err("there is no such heading")
    }
}

/// README.md, CHANGELOG.md, and those of docs/ and .github/.
fn pages(root: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for folder in ["", "docs", ".github"] {
        for entry in fs::read_dir(root.join(folder)).expect("a folder") {
            let name = PathBuf::from(entry.expect("an entry").file_name());
            if name.extension().is_some_and(|extension| extension == "md") {
                pages.push(Path::new(folder).join(name));
            }
        }
    }
    assert!(pages.len() > 8, "{pages:?}");
    pages
}

/// The targets of the links and pictures of a page. What is code is none.
fn links(text: &str) -> Vec<&str> {
    let mut links = Vec::new();
    for line in prose(text) {
        let words = line.split('`').step_by(2);
        for words in words {
            let of_links = words.split("](").skip(1);
            links.extend(of_links.filter_map(|rest| rest.split(')').next()));
            for attribute in ["src=\"", "srcset=\"", "href=\""] {
                let rests = words.split(attribute).skip(1);
                links.extend(rests.filter_map(|rest| rest.split('"').next()));
            }
        }
        // What the second half of [a][b] stands for.
        let definition = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "));
        links.extend(definition.map(|(_, link)| link));
        // The words of a link may be code: [`NAME`](#name).
        let of_code = line.split("`](").skip(1);
        let of_code = of_code.filter_map(|rest| rest.split(')').next());
        let new: Vec<&str> = of_code.filter(|link| !links.contains(link)).collect();
        links.extend(new);
    }
    links
}

/// The names of the headings of a page in links.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).filter_map(|line| line.strip_prefix('#'));
    let named = headings.map(|heading| {
        let name = anchor(heading.trim_start_matches('#').trim());
        let before = times.entry(name.clone()).or_default();
        *before += 1;
        match *before {
            1 => name,
            times => format!("{name}-{}", times - 1),
        }
    });
    named.collect()
}

/// A heading as it is named in links.
fn anchor(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower
        .chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// The lines that are not in a block of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// The most characters of a line.
const LONGEST_LINE: usize = 160;
