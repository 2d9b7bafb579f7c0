//! Rules that hold for every field, tried on each one of the table that has them all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::super::parse::{read, tree};
use super::super::tree::{Entry, Node};
use super::super::{Format, Problem, parse_duration};
use super::whole::FULL;

/// The problems of the table that has every field, after one change.
fn problems_with(change: impl FnOnce(&mut Node)) -> Vec<Problem> {
    let mut full = full();
    change(&mut full);
    read(full).map_or_else(Vec::from, |_| Vec::new())
}

pub(super) fn full() -> Node {
    static FULL_TREE: LazyLock<Node> =
        LazyLock::new(|| tree(FULL.as_bytes(), Format::Yaml).unwrap());
    FULL_TREE.clone()
}

/// The way to a value: positions in lists and maps.
pub(super) type Way = Vec<usize>;

/// Every value, with the way to it and its place.
pub(super) fn values(node: &Node) -> Vec<(Way, String, Node)> {
    let mut found = vec![(Way::new(), String::new(), node.clone())];
    let below: Vec<(String, &Node)> = match node {
        Node::List(items) => (0..)
            .zip(items)
            .map(|(index, item)| (format!("[{index}]"), item))
            .collect(),
        Node::Map(map) => map
            .iter()
            .map(|(key, value)| (format!(".{}", &**key), value))
            .collect(),
        _ => Vec::new(),
    };
    for (position, (step, value)) in below.into_iter().enumerate() {
        for (mut way, at, value) in values(value) {
            way.insert(0, position);
            found.push((way, format!("{step}{at}"), value));
        }
    }
    found
}

pub(super) fn at_way<'n>(node: &'n mut Node, way: &[usize]) -> &'n mut Node {
    way.iter().fold(node, |node, position| match node {
        Node::List(items) => &mut items[*position],
        Node::Map(map) => &mut map[*position].1,
        _ => panic!("no such way"),
    })
}

/// Changes the entries of a map.
fn edit(full: &mut Node, way: &[usize], change: impl FnOnce(&mut Vec<Entry>)) {
    let Node::Map(map) = at_way(full, way) else {
        panic!("no map")
    };
    let mut entries = std::mem::take(map).into_vec();
    change(&mut entries);
    *map = entries.into();
}

/// Puts `value` into each place that `choose` wants, one after the other, and looks at what is said then.
fn put_everywhere(
    value: &Node,
    choose: impl Fn(&str, &Node) -> bool,
    look: impl Fn(&str, &[Problem]),
) {
    let mut tried = 0;
    for (way, at, before) in values(&full()) {
        if !way.is_empty() && choose(&at, &before) {
            let problems = problems_with(|full| *at_way(full, &way) = value.clone());
            look(at.strip_prefix('.').unwrap_or(&at), &problems);
            tried += 1;
        }
    }
    assert!(tried > 10, "only {tried} places were tried");
}

fn one(at: &str, problems: &[Problem], why: &str) {
    let [problem] = problems else {
        panic!("expected one problem at {at}, found {problems:#?}");
    };
    assert_eq!(problem.at, at, "{problem}");
    assert!(problem.why.contains(why), "{problem}\nexpected why: {why}");
}

fn last_key(at: &str) -> &str {
    at.rsplit('.').next().unwrap_or(at)
}

fn is_text(node: &Node, test: impl Fn(&str) -> bool) -> bool {
    matches!(node, Node::Text(text) if test(text))
}

#[test]
fn no_list_may_be_empty_but_those_of_frontends_services_and_endpoints() {
    let may_be = ["frontends", "services", "endpoints"];
    let is_list = |_: &str, node: &Node| matches!(node, Node::List(_));
    put_everywhere(&Node::List(Box::default()), is_list, |at, problems| {
        if may_be.contains(&last_key(at)) {
            assert!(
                !problems.iter().any(|problem| problem.at == at),
                "{problems:#?}"
            );
        } else {
            one(at, problems, "this list is empty");
        }
    });
}

#[test]
fn a_plain_text_is_no_list() {
    let is_list = |_: &str, node: &Node| matches!(node, Node::List(_));
    put_everywhere(&Node::Text("x".into()), is_list, |at, problems| {
        one(at, problems, "\"x\" is a text, not a list");
    });
}

#[test]
fn a_list_is_nothing_else() {
    let is_no_list = |_: &str, node: &Node| !matches!(node, Node::List(_));
    let list = Node::List(Box::from([Node::Number(1)]));
    put_everywhere(&list, is_no_list, |at, problems| {
        one(at, problems, "this is a list, not");
    });
}

#[test]
fn a_map_is_nothing_else() {
    // What is off or short here could be {} as well.
    let may_be_map = ["ejection", "rewrite", "503"];
    let is_no_map = |at: &str, node: &Node| {
        !matches!(node, Node::Map(_)) && !may_be_map.contains(&last_key(at))
    };
    put_everywhere(&Node::Map(Box::default()), is_no_map, |at, problems| {
        one(at, problems, "this is a map, not");
    });
}

#[test]
fn nothing_is_no_value() {
    put_everywhere(
        &Node::Null,
        |_, _| true,
        |at, problems| {
            one(at, problems, "no value stands here");
            assert!(
                problems[0].remedy.contains("or leave it out"),
                "{}",
                problems[0]
            );
        },
    );
}

#[test]
fn durations_lie_between_a_millisecond_and_24_days() {
    let is_duration =
        |_: &str, node: &Node| is_text(node, |text| parse_duration(text).is_ok() || text == "180d");
    for (text, is_long) in [("0s", false), ("25d", true), ("600h", true)] {
        put_everywhere(
            &Node::Text(text.into()),
            is_duration,
            |at, problems| match (last_key(at), is_long) {
                ("hsts", true) => assert_eq!(problems, []),
                _ => one(at, problems, "is out of range"),
            },
        );
    }
    put_everywhere(&Node::Text("soon".into()), is_duration, |at, problems| {
        one(at, problems, "\"soon\" is not a duration");
    });
}

#[test]
fn off_stands_only_where_it_means_something() {
    let may_be_off = [
        "stats.healthz",
        "log.access",
        "frontends[0].timeouts.client",
        "frontends[2].http.x-forwarded",
        "services[0].send-proxy",
        "services[0].max-queue",
        "services[0].timeouts.server",
        "services[0].health.mode",
        "services[0].ejection",
        "services[2].ejection",
        "services[1].health.mode",
        "services[2].health.mode",
        "services[2].health.tls.verified-name",
        "services[2].tls.verified-name",
    ];
    // What takes any text, takes this one.
    let takes_texts = |at: &str| {
        let key = last_key(at);
        at.contains("labels.")
            || at.contains(".set.")
            || at.contains(".add.")
            || at.contains(".when.headers[")
            || at.contains(".when.method[")
            || at.contains(".when.query[")
            || at.ends_with(']') && at.contains("remove")
            || [
                "name",
                "description",
                "service",
                "cookie",
                "node",
                "zone",
                "host",
                "sni",
                "method",
                "body",
                "send",
                "answer",
                "answer-contains",
                "location",
                "content-type",
                "header",
                "ticket-keys",
                "cert",
                "key",
                "ocsp",
                "ca",
                "body-file",
            ]
            .contains(&key)
            || at.contains("alpn[")
            || at.contains("hosts[")
            || at.contains("errors.")
    };
    put_everywhere(
        &Node::Text("off".into()),
        |_, _| true,
        |at, problems| {
            if may_be_off.contains(&at) {
                assert_eq!(problems, [], "{at}");
            } else if !takes_texts(at) {
                one(at, problems, "\"off\" is ");
            }
        },
    );
}

#[test]
fn numbers_have_their_ranges() {
    let is_number = |_: &str, node: &Node| matches!(node, Node::Number(_));
    for odd in [
        Node::Negative(-1),
        Node::Fraction(1e30),
        Node::Fraction(-1e30),
    ] {
        put_everywhere(&odd, is_number, |at, problems| {
            one(at, problems, "is out of range");
            assert!(
                problems[0].remedy.starts_with("expected "),
                "{}",
                problems[0]
            );
        });
    }
    put_everywhere(&Node::Fraction(1.5), is_number, |at, problems| {
        one(at, problems, "1.5 is a number, not a whole number");
    });
    put_everywhere(&Node::Fraction(1.0), is_number, |at, problems| {
        one(at, problems, "1.0 is a number, not a whole number");
    });
    put_everywhere(&Node::Text("1".into()), is_number, |at, problems| {
        one(at, problems, "\"1\" is a text, not a whole number");
    });
    put_everywhere(
        &Node::Number(u64::MAX),
        is_number,
        |at, problems| match at {
            "generation" => assert_eq!(problems, []),
            "version" => one(at, problems, "is out of range"),
            _ => one(at, problems, "is out of range"),
        },
    );
}

#[test]
fn only_what_cannot_be_guessed_is_required() {
    let mut missed = BTreeSet::new();
    for (way, at, node) in values(&full()) {
        let Node::Map(map) = &node else { continue };
        for (position, (key, _)) in map.iter().enumerate() {
            let key = &**key;
            let problems = problems_with(|full| {
                edit(full, &way, |map| drop(map.remove(position)));
            });
            let missing = format!("{key} is missing");
            if let Some(problem) = problems.iter().find(|problem| problem.why == missing) {
                assert_eq!(problem.at, at.strip_prefix('.').unwrap_or(&at));
                assert!(
                    problem.remedy.starts_with(&format!("add {key}")),
                    "{problem}"
                );
                missed.insert(key.to_string());
            }
        }
    }
    let missed: Vec<&str> = missed.iter().map(String::as_str).collect();
    let of_all = [
        "address",
        "bind",
        "cert",
        "certificates",
        "mode",
        "name",
        "protocol",
        "value",
        "version",
    ];
    // Of those who are trusted there is no default, and two fields belong to a protocol.
    let of_some = ["ca", "from", "service", "tls"];
    let mut expected = [of_all.as_slice(), of_some.as_slice()].concat();
    expected.sort_unstable();
    assert_eq!(missed, expected);
}

#[test]
fn a_key_that_nobody_knows_is_reported_in_every_map_and_the_example_has_every_known_one() {
    let mut known_and_there: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (way, at, node) in values(&full()) {
        let Node::Map(map) = &node else { continue };
        let free = ["labels", "set", "add", "errors"].contains(&last_key(&at));
        if free {
            continue;
        }
        let problems = problems_with(|full| {
            edit(full, &way, |map| {
                map.push(("nobodyknowsthisone".into(), Node::Number(1)));
            });
        });
        let place = format!("{at}.nobodyknowsthisone");
        one(
            place.trim_start_matches('.'),
            &problems,
            "is not a known key",
        );
        let known = problems[0].remedy.strip_prefix("known keys are ").unwrap();
        let there = known_and_there.entry(known.to_owned()).or_default();
        there.extend(map.iter().map(|(key, _)| key.to_string()));
    }
    assert!(known_and_there.len() > 15);
    for (known, there) in &known_and_there {
        for key in known.split(", ") {
            assert!(
                there.contains(key),
                "the example has no {key} beside {there:?}"
            );
        }
    }
}

#[test]
fn a_key_with_a_slip_of_the_pen_has_the_right_one_as_remedy() {
    for (way, at, node) in values(&full()) {
        let Node::Map(map) = &node else { continue };
        if ["labels", "set", "add", "errors"].contains(&last_key(&at)) {
            continue;
        }
        for (position, (key, _)) in map.iter().enumerate() {
            let key = &**key;
            if key.len() < 4 {
                continue;
            }
            let slip = format!("{key}x");
            let problems = problems_with(|full| {
                edit(full, &way, |map| map[position].0 = slip.as_str().into());
            });
            let place = format!("{at}.{slip}");
            let place = place.trim_start_matches('.');
            let problem = problems
                .iter()
                .find(|problem| problem.at == place)
                .unwrap_or_else(|| panic!("{place}: {problems:#?}"));
            assert_eq!(problem.remedy, format!("did you mean {key}?"));
        }
    }
}
