//! Texts that are no tables: half a file, something else, and what would cost too much to read.

use super::super::{Format, Problem, parse};
use super::whole::{FULL, MINIMAL};
use super::{good, hold, problems_of, row};

#[test]
fn half_a_file_is_recognised_and_told_with_line_and_column() {
    let json = serde_json::to_string_pretty(&good(FULL)).unwrap();
    let half: String = json.chars().take(json.len() / 2).collect();
    let problems = parse(half.as_bytes(), Format::Json).unwrap_err();
    assert!(problems.not_whole());
    assert_eq!(problems.len(), 1);
    assert!(problems[0].at.starts_with("line "), "{problems}");
    assert!(problems[0].at.contains("column"), "{problems}");
    for (text, format) in [
        ("", Format::Json),
        (" \n", Format::Yaml),
        ("# soon\n", Format::Yaml),
        ("version: 1\nfrontends: [{name: a, bi", Format::Yaml),
        ("version: 1\n---\nversion: 1\n", Format::Yaml),
        ("{\"version\": 1} x", Format::Json),
    ] {
        let problems = parse(text.as_bytes(), format).unwrap_err();
        assert!(problems.not_whole(), "{text}");
        assert_eq!(problems.len(), 1, "{text}");
    }
    assert!(
        parse(b"version: \xff", Format::Yaml)
            .unwrap_err()
            .not_whole()
    );
    assert!(
        !parse(b"{\"version\": 2}", Format::Json)
            .unwrap_err()
            .not_whole()
    );
}

/// An editor may be writing the file just now: at no byte may that look like anything but half a file.
#[test]
fn json_that_is_cut_anywhere_is_not_whole() {
    let compact = serde_json::to_string(&good(FULL)).unwrap();
    let pretty = serde_json::to_string_pretty(&good(FULL)).unwrap();
    let beyond_ascii =
        r#"{"version": 1, "services": [{"name": "s", "description": "Aufträge ✓"}]}"#;
    let marked = format!("\u{feff}{}", serde_json::to_string(&good(MINIMAL)).unwrap());
    for text in [compact.as_str(), &pretty, beyond_ascii, &marked] {
        assert!(parse(text.as_bytes(), Format::Json).is_ok());
        for end in 0..text.len() {
            let problems = parse(&text.as_bytes()[..end], Format::Json).unwrap_err();
            assert!(problems.not_whole(), "{end}: {problems}");
            assert_eq!(problems.len(), 1, "{end}: {problems}");
            assert_eq!(problems.generation(), None);
        }
    }
}

/// Half of a YAML text is often YAML, and at times a table. What matters is that it is answered.
#[test]
fn yaml_that_is_cut_anywhere_is_answered_in_lines() {
    for (text, step) in [(MINIMAL, 1), (FULL, 11)] {
        for end in (0..text.len()).step_by(step) {
            let Err(problems) = parse(&text.as_bytes()[..end], Format::Yaml) else {
                continue;
            };
            assert!(!problems.is_empty(), "{end}");
            assert!(
                !problems.not_whole() || problems.len() == 1,
                "{end}: {problems}"
            );
            for problem in problems.iter() {
                assert!(
                    !problem.to_string().contains(char::is_control),
                    "{problem:?}"
                );
            }
        }
    }
}

#[test]
fn a_whole_text_that_is_no_table_gets_one_problem() {
    let service = "{apiVersion: v1, kind: Service, metadata: {name: s, labels: {a: b}}, spec: {ports: [{port: 80}]}}";
    let compose = "{networks: {}, volumes: {}, configs: {}, secrets: {}}";
    let table = "expected a table, version: 1 at least";
    hold(vec![
        row(
            "[1, 2, 3]".to_owned(),
            "",
            "this is a list, not a table",
            table,
        ),
        row(
            "[{version: 1}]".to_owned(),
            "",
            "this is a list, not a table",
            table,
        ),
        row("5".to_owned(), "", "5 is a number, not a table", table),
        row(
            "-1.5".to_owned(),
            "",
            "-1.5 is a number, not a table",
            table,
        ),
        row(
            "true".to_owned(),
            "",
            "true is a boolean, not a table",
            table,
        ),
        row(
            "hello".to_owned(),
            "",
            "\"hello\" is a text, not a table",
            table,
        ),
        row(
            service.to_owned(),
            "",
            "this is a Kubernetes manifest (Service), not a table",
            table,
        ),
        row(
            "{kind: List, apiVersion: v1}".to_owned(),
            "",
            "manifest (List)",
            table,
        ),
        row(
            "{kind: [], apiVersion: v1}".to_owned(),
            "",
            "manifest ()",
            table,
        ),
        row(
            compose.to_owned(),
            "",
            "its keys (networks, volumes, configs, …) are none of a table",
            table,
        ),
        row(
            "{a: 1, b: [2]}".to_owned(),
            "",
            "its keys (a, b) are none of a table",
            table,
        ),
        row("{}".to_owned(), "", "version is missing", "add version: 1"),
    ]);
    let nothing: Vec<Problem> = parse(b"null", Format::Json).unwrap_err().into();
    assert_eq!(nothing, [Problem::new("", "nothing stands in it", table)]);
}

/// Then what is said of each key helps more.
#[test]
fn what_was_meant_to_be_a_table_is_read_as_one() {
    let places = |text: &str| -> Vec<String> {
        problems_of(text)
            .into_iter()
            .map(|problem| problem.at)
            .collect()
    };
    assert_eq!(places("{verson: 1, wat: 2}"), ["", "verson", "wat"]);
    assert_eq!(
        places("{version: 1, apiVersion: v1, kind: Table}"),
        ["apiVersion", "kind"]
    );
    assert_eq!(places("{frontend: []}"), ["", "frontend"]);
}

#[test]
fn a_text_that_explodes_or_is_too_deep_is_refused_at_once() {
    let mut laughs = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..10 {
        let inner = vec![format!("*a{}", level - 1); 10].join(",");
        laughs.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    assert!(parse(laughs.as_bytes(), Format::Yaml).is_err());
    let long = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(1_000_000),
        vec!["*a"; 10_000].join(",")
    );
    assert!(parse(long.as_bytes(), Format::Yaml).is_err());
    for format in [Format::Json, Format::Yaml] {
        assert!(parse("[".repeat(100_000).as_bytes(), format).is_err());
        assert!(parse("{\"a\":".repeat(100_000).as_bytes(), format).is_err());
    }
    let steps: String = (0..3000)
        .map(|level| format!("{}a:\n", " ".repeat(level)))
        .collect();
    assert!(parse(steps.as_bytes(), Format::Yaml).is_err());
}

#[test]
fn a_configuration_of_haproxy_is_named() {
    for text in [
        "# of web\n\n.setenv A b\nglobal\n    maxconn 9\n\nfrontend f\n    bind *:80\n",
        "defaults\n  mode http\n",
        "\n  listen f",
        "backend b from a\r\n\tserver s 10.0.0.1:80 check inter 2s: x\r\n",
    ] {
        for format in [Format::Yaml, Format::Json] {
            let problems = parse(text.as_bytes(), format).unwrap_err();
            let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert_eq!(
                said,
                [
                    "this is haproxy's configuration, not a table; have `ballast import` make a table of it"
                ],
                "{text:?}"
            );
        }
    }
    for text in ["global: [", "# global\n{", "globals\n  x", "frontend: {}\n"] {
        let problems = problems_of(text);
        let said = problems.iter().map(|problem| &problem.why);
        assert!(
            said.clone().all(|why| !why.contains("haproxy")),
            "{text}: {problems:?}"
        );
    }
}

#[test]
fn what_mends_a_text_that_is_no_yaml_is_said() {
    for (text, at, remedy) in [
        (
            "version: 1\nfrontends: [{bind: [*:80]}]",
            "line 2, column 21",
            "put a text that begins with * in quotes, such as \"*:80\"",
        ),
        (
            "version: 1\nfrontends:\n\t- name: x",
            "line 3, column 2",
            "indent with spaces",
        ),
        (
            "version: 1\n\tservices: []",
            "line 1, column 10",
            "indent with spaces",
        ),
        (
            "version: 1\nservices\n- name: x",
            "line 2, column 1",
            "write KEY: VALUE, with a space",
        ),
        (
            "version: 1\nservices:\n  - name: x\n   endpoints: []",
            "line 4, column 4",
            "indent the keys of one map alike",
        ),
        (
            "version: 1\nservices:\n  - name: x: y",
            "line 3, column 12",
            "on a line of its own",
        ),
        (
            "version: 1\nservices: [{name: x",
            "line 2, column 12",
            "] for each [",
        ),
        (
            "version: 1\nservices: [{name: \"x}]\n",
            "line 2, column 19",
            "ends with the quote",
        ),
        (
            "version: 1\nservices: [{name: @x}]",
            "line 2, column 19",
            "this character in quotes",
        ),
    ] {
        let problems = problems_of(text);
        let [problem] = problems.as_slice() else {
            panic!("{text}: {problems:?}");
        };
        assert!(
            problem.why.starts_with("is not YAML: "),
            "{text}: {problem}"
        );
        assert!(problem.remedy.contains(remedy), "{text}: {problem}");
        assert_eq!(problem.at, at, "{text}: {problem}");
    }
}
