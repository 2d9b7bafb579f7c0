//! Other forms of paths: single cases, and random paths against a plainer way to the same.

use std::cell::RefCell;

use proptest::prelude::*;

use super::*;

fn forms(path: &str) -> Vec<String> {
    let found = RefCell::new(Vec::new());
    let is_it = |form: &str| {
        found.borrow_mut().push(form.to_owned());
        false
    };
    assert!(!other_forms(path, is_it));
    found.into_inner()
}

#[test]
fn a_path_has_the_forms_of_what_it_means() {
    for (path, expected) in [
        ("/", &[][..]),
        ("/a/b", &[]),
        ("/a/", &[]),
        ("/.a/..b/c./d../...", &[]),
        ("/%2f%00%C3%a9%25%2B", &[]),
        ("*", &[]),
        ("", &[]),
        ("//", &["/"]),
        ("/a//b///c/", &["/a/b/c/"]),
        ("/.", &["/"]),
        ("/..", &["/"]),
        ("/./", &["/"]),
        ("/a/.", &["/a/"]),
        ("/a/..", &["/"]),
        ("/a/b/..", &["/a/"]),
        ("/a/b/../", &["/a/"]),
        ("/a/./b/../c", &["/a/c"]),
        ("/../../a", &["/a"]),
        ("/%41%7a%30%2D%5f%7E%2e", &["/Az0-_~."]),
        ("/%2e%2E/a%2Fb", &["/a%2Fb"]),
        ("/a%2f%2e%2e%2fb", &["/a%2f..%2fb"]),
        ("/%252e%252e/a", &[]),
        ("/a//../b", &["/b", "/a/b"]),
        ("/a///../../b", &["/b", "/a/b"]),
        ("//..//a", &["/a"]),
    ] {
        assert_eq!(forms(path), expected, "{path}");
    }
}

#[test]
fn the_search_ends_with_the_first_form_that_is_it() {
    let asked = RefCell::new(0);
    let is_it = |_: &str| {
        *asked.borrow_mut() += 1;
        true
    };
    assert!(other_forms("/a//../b", is_it));
    assert_eq!(asked.into_inner(), 1);
}

fn path() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "/", "//", ".", "..", "/.", "/..", "a", "b", "%", "%2e", "%2f", "%61", "%zz", "\u{e4}",
    ]);
    prop::collection::vec(piece, 0..10).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// Replaces a part until it is not there any more, as one would by hand.
fn replaced(path: String, from: &str, to: &str) -> String {
    if path.contains(from) {
        replaced(path.replacen(from, to, 1), from, to)
    } else {
        path
    }
}

fn by_hand(path: &str) -> String {
    let decoded = path.replace("%2e", ".").replace("%61", "a");
    let mut path = replaced(format!("{decoded}/"), "//", "/");
    while let Some(at) = ["/./", "/../"]
        .iter()
        .filter_map(|dots| path.find(dots))
        .min()
    {
        let (before, rest) = path.split_at(at);
        path = match rest.strip_prefix("/.") {
            Some(rest) if rest.starts_with('/') => before.to_owned() + rest,
            _ => {
                let parent = before.rfind('/').unwrap_or(0);
                before.split_at(parent).0.to_owned() + rest.strip_prefix("/..").unwrap()
            }
        };
    }
    path
}

proptest! {
    #[test]
    fn forms_are_normal_and_found_by_hand_as_well(path in path()) {
        let slash_at_the_end = |path: &str| replaced(format!("{path}/"), "//", "/");
        let forms = forms(&path);
        prop_assert_eq!(forms.is_empty(), is_normal(path.as_bytes()));
        for form in &forms {
            prop_assert!(is_normal(form.as_bytes()), "{}", form);
            prop_assert!(form.len() <= path.len() && form.starts_with('/'));
            prop_assert!(form != &path);
        }
        let first = forms.first().map_or(&*path, String::as_str);
        prop_assert_eq!(slash_at_the_end(first), by_hand(&path));
    }
}
