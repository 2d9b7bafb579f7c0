//! What the documentation and the templates promise: examples of tables are good, no field is left out, and metrics exist.

mod autoscaling;
mod links;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use ballast_core::ack::Ack;
use ballast_core::table::{Format, parse};
use support::Ballast;
use support::papers::Papers;

const REFERENCE: &str = "docs/table.md";

#[test]
fn every_table_in_the_documentation_is_good() {
    for (page, at_least) in [(REFERENCE, 15), ("README.md", 1)] {
        let text = read(page);
        let tables: Vec<&str> = blocks(&text, "yaml")
            .into_iter()
            .filter(|block| block.starts_with("version:"))
            .collect();
        assert!(
            tables.len() >= at_least,
            "only {} tables in {page}",
            tables.len()
        );
        for table in tables {
            if let Err(problems) = parse(table.as_bytes(), Format::Yaml) {
                panic!("{page}:\n{table}\n{problems}");
            }
        }
    }
}

/// `templates/table-full.yaml` has every field: a test of the table holds it to that.
#[test]
fn the_reference_has_a_row_for_every_field() {
    let reference = read(REFERENCE);
    let explained: BTreeSet<&str> = reference
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    let full = read("templates/table-full.yaml");
    let keys = keys(&full);
    assert!(keys.len() > 100, "only {} keys", keys.len());
    for key in keys {
        assert!(
            explained.contains(key),
            "{REFERENCE} has no row for `{key}`"
        );
    }
}

/// `templates/announce-full.yaml` has every field: a test of the announcer holds it to that.
#[test]
fn the_page_of_the_announcer_has_a_row_for_every_field() {
    let page = read("docs/announcing.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let explained: BTreeSet<&str> = rows
        .flat_map(|row| row.split('`').skip(1).step_by(2))
        .collect();
    let full = read("templates/announce-full.yaml");
    let keys = keys(&full);
    assert!(keys.len() > 30, "only {} keys", keys.len());
    for key in keys {
        assert!(explained.contains(key), "no row for `{key}`");
    }
}

#[test]
fn the_ack_of_the_reference_is_one() {
    let reference = read(REFERENCE);
    let blocks = blocks(&reference, "json");
    let ack: Ack = serde_json::from_str(blocks.first().expect("an ack")).expect("an ack");
    assert_eq!(ack.version, Ack::VERSION);
    assert!(ack.refused.is_some() && ack.exceptions.len() == 1);
}

/// What the page says of a bad table is what Ballast says.
#[test]
fn the_problems_of_the_reference_are_those_that_are_shown() {
    let table = r#"
version: 1
services:
  - name: s
    retires: 3
    endpoints:
      - {address: "10.0.0.1:80", weight: 300}
      - {address: "db.example.com:80"}
frontends:
  - {name: f, bind: ["*:80"], protocol: tcp}
  - {name: g, bind: ["*:80"], protocol: tcp, service: s}
"#;
    let problems = parse(table.as_bytes(), Format::Yaml).expect_err("problems");
    let reference = read(REFERENCE);
    let shown = blocks(&reference, "text");
    assert_eq!(shown, [format!("{problems}\n")]);
}

#[test]
fn the_image_of_rc_yaml_is_the_one_that_the_containerfile_makes() {
    let manifest = read("rc.yaml");
    let image = concat!("ballast:", env!("CARGO_PKG_VERSION"));
    let images: Vec<&str> = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("image: "))
        .collect();
    assert_eq!(images, [image, image, image]);
    assert!(read("README.md").contains(&format!("`{image}`")));
    let chart = read("templates/helm/Chart.yaml");
    for key in ["version", "appVersion"] {
        let line = format!("\n{key}: {}\n", env!("CARGO_PKG_VERSION"));
        assert!(chart.contains(&line), "{key} of the chart");
    }

    // `templates/build-image` takes the version from the workspace, and the programs from `templates/build-programs`.
    let containerfile = read("templates/Containerfile");
    assert!(read("templates/build-image").contains("templates/build-programs"));
    let script = read("templates/build-programs");
    for line in manifest.lines() {
        let Some(command) = line.trim().strip_prefix("command: [") else {
            continue;
        };
        let program = command.trim_end_matches(']');
        assert!(containerfile.contains(&format!("{program} ")));
        assert!(script.contains(&format!(" -p {program}")));
    }
}

#[test]
fn the_parts_list_has_each_crate_that_is_linked_with_its_checksum_and_license() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = || {
        let output = Command::new(root.join("templates/sbom")).output();
        let output = output.expect("the script");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        output.stdout
    };
    let text = list();
    assert_eq!(text, list(), "the same source, the same bytes");
    let parts: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(parts["bomFormat"], "CycloneDX");
    let parts = parts["components"].as_array().expect("components");
    let lock = read("Cargo.lock");
    for part in parts {
        let name = part["name"].as_str().expect("a name");
        assert!(part["licenses"][0]["expression"].is_string(), "{part}");
        if name.starts_with("ballast") {
            continue;
        }
        let checksum = part["hashes"][0]["content"].as_str().expect("a checksum");
        let line = format!(
            "name = \"{name}\"\nversion = {}\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"{checksum}\"\n",
            part["version"]
        );
        assert!(lock.contains(&line), "{part}");
    }
    let has = |name: &str| parts.iter().any(|part| part["name"] == name);
    assert!(has("ballast") && has("ballast-controller") && has("rustls") && has("kube"));
    assert!(
        !has("criterion") && !has("proptest"),
        "what tests alone use"
    );
}

#[test]
fn the_first_command_of_the_readme_builds_both_programs() {
    assert!(read("README.md").contains("\ncargo build --release\n"));
    let workspace = read("Cargo.toml");
    let built = workspace
        .lines()
        .find_map(|line| line.strip_prefix("default-members = "))
        .expect("a line: the root package alone has nothing to build");
    assert!(built.contains("\"dataplane\"") && built.contains("\"controller\""));
}

/// That `ballast demo` does what it says is tested with the binary itself.
#[test]
fn one_command_of_the_readme_shows_ballast() {
    let readme = read("README.md");
    let (_, section) = readme.split_once("## One command\n").expect("a section");
    let shown = blocks(section, "sh");
    assert_eq!(
        shown.first(),
        Some(&"cargo run --release --bin ballast -- demo\n")
    );
    // `cargo run` looks for the program in the default members.
    let package = read("dataplane/Cargo.toml");
    assert!(package.contains("\nname = \"ballast\"\n"));
}

#[test]
fn alerts_and_the_dashboard_ask_for_metrics_that_exist() {
    let metrics = metrics_of_every_kind();
    for page in [
        "templates/prometheus/rules.yaml",
        "templates/prometheus/dashboard.json",
    ] {
        let text = read(page);
        let names = names_of_metrics(&text);
        assert!(names.len() > 10, "{page}: {names:?}");
        for name in names {
            assert!(exists(name, &metrics), "{page}: {name}");
        }
    }
}

/// Every annotation that the page about moving names is one that the controller knows, or says to be without effect.
#[test]
fn annotations_of_the_page_about_moving_exist() {
    let page = read("docs/migrating.md");
    let reference = read("docs/annotations.md");
    let files =
        ["knobs", "keys"].map(|name| format!("controller/src/decide/annotations/{name}.rs"));
    let own = files.map(|file| read(&file)).concat();
    let mut named = BTreeSet::new();
    for span in page.split('`').skip(1).step_by(2) {
        let key = span.split([':', '=']).next().unwrap_or_default();
        for prefix in PREFIXES {
            let Some(name) = key.strip_prefix(prefix) else {
                continue;
            };
            let ends_with_a_port = name
                .rsplit_once('.')
                .filter(|(_, port)| port.starts_with(|first: char| first.is_ascii_digit()));
            let name = ends_with_a_port.map_or(name, |(name, _)| name);
            let is_known = reference.contains(&format!("`{name}`"))
                || reference.contains(&format!("`{prefix}{name}`"));
            assert!(is_known, "docs/annotations.md has no {key}");
            if *prefix == "ballast.dev/" {
                assert!(own.contains(&format!("\"{name}\"")), "{key}");
            }
            named.insert(key);
            break;
        }
    }
    for prefix in PREFIXES {
        let is_there = named.iter().any(|key| key.starts_with(prefix));
        assert!(is_there, "nothing is said of {prefix}");
    }
    assert!(named.len() > 40, "{named:?}");
}

#[test]
fn flags_of_the_page_about_moving_exist() {
    let page = read("docs/migrating.md");
    let flags = read("docs/flags.md");
    let mut named = 0;
    for span in page.split('`').skip(1).step_by(2) {
        let words = span.split_whitespace();
        for flag in words.filter_map(|word| word.strip_prefix("--")) {
            let flag = flag.split('=').next().unwrap_or_default();
            // kubectl's, and k3s's.
            if !["replicas", "disable"].contains(&flag) {
                assert!(flags.contains(&format!("`--{flag}")), "--{flag}");
                named += 1;
            }
        }
    }
    assert!(named > 20, "{named}");
}

#[test]
fn prometheus_takes_the_rules() {
    for rules in ["prometheus", "autoscaling"] {
        let rules = format!("templates/{rules}/rules.yaml");
        let checked = Command::new("promtool")
            .arg("check")
            .arg("rules")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(rules))
            .output();
        let Ok(checked) = checked else {
            return no_promtool();
        };
        assert!(checked.status.success(), "{checked:?}");
    }
}

#[test]
fn a_closed_port_and_a_certificate_are_the_alerts_that_fit_their_causes() {
    if let Some(tested) = tested_rules("tests/docs/promises/alerts.test.yaml") {
        assert!(tested.status.success(), "{tested:?}");
    }
}

/// What promtool says of a file of tests, if there is a promtool.
fn tested_rules(file: &str) -> Option<Output> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let tested = Command::new("promtool")
        .args(["test", "rules"])
        .arg(file)
        .output();
    if tested.is_err() {
        no_promtool();
    }
    tested.ok()
}

fn no_promtool() {
    assert!(std::env::var_os("CI").is_none(), "promtool is missing");
    println!("SKIP: promtool is missing");
}

/// What `/metrics` says where there is something of each kind.
fn metrics_of_every_kind() -> String {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let table = "version: 1
frontends:
- {name: f, bind: ['127.0.0.1:0'], protocol: http, routes: [{path: /, name: r, backends: [{service: s}]}]}
- {name: t, bind: ['127.0.0.1:0'], protocol: https, tls: {certificates: [CERTIFICATE]}, default: {service: s}}
- {name: u, bind: ['127.0.0.1:0'], protocol: udp, service: s}
services:
- {name: s, health: {mode: tcp}, endpoints: [{address: '127.0.0.1:9'}]}
";
    let table = table.replace("CERTIFICATE", &papers.entry("shop"));
    Ballast::serve(&table, 1).metrics()
}

/// The names of metrics in a text.
fn names_of_metrics(text: &str) -> BTreeSet<&str> {
    let is_of_a_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter| !is_of_a_name(letter));
    let families = ["ballast_", "haproxy_", "process_"];
    let names = words.filter(|word| families.iter().any(|family| word.starts_with(family)));
    names.collect()
}

/// Whether the data plane, the controller or the announcer has a metric. Those of the last two are compared with their page by
/// another test.
fn exists(name: &str, metrics: &str) -> bool {
    let page = read("docs/metrics.md");
    let (_, of_others) = page
        .split_once("\n## Of the controller\n")
        .expect("a heading");
    let families = ["_bucket", "_count", "_sum"].map(|part| name.strip_suffix(part));
    let mut families = families.into_iter().flatten().chain([name]);
    families.any(|family| {
        metrics.contains(&format!("# TYPE {family} ")) || of_others.contains(&format!("`{family}`"))
    })
}

/// What stands before the keys of each system; longer ones first.
const PREFIXES: &[&str] = &[
    "service.beta.kubernetes.io/exoscale-loadbalancer-",
    "service.beta.kubernetes.io/",
    "loadbalancer.openstack.org/",
    "serviceloadbalancer/lb.",
    "service.antrea.io/",
    "metallb.universe.tf/",
    "metallb.io/",
    "ballast.dev/",
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The fenced blocks of a language.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let opening = format!("\n```{language}\n");
    text.split(opening.as_str())
        .skip(1)
        .filter_map(|rest| {
            rest.split_inclusive('\n')
                .scan(0, |end, line| {
                    let before = *end;
                    *end += line.len();
                    Some((before, line))
                })
                .find(|(_, line)| line.trim_end() == "```")
                .and_then(|(end, _)| rest.get(..end))
        })
        .collect()
}

/// The keys of a YAML text, but for those of the user's making.
fn keys(yaml: &str) -> BTreeSet<&str> {
    let mut keys = BTreeSet::new();
    for line in yaml.lines() {
        let written = line.split(" #").next().unwrap_or_default();
        if written.trim_start().starts_with('#') {
            continue;
        }
        let free = ["labels:", "set:", "add:", "errors:"]
            .iter()
            .find_map(|free| written.split_once(free));
        let (ours, _) = free.unwrap_or((written, ""));
        if free.is_some() {
            keys.extend(
                ["labels", "set", "add", "errors"]
                    .iter()
                    .filter(|free| written.contains(&format!("{free}:"))),
            );
        }
        for part in ours.split([',', '{', '}', '[', ']']) {
            let part = part.trim().trim_start_matches("- ");
            if let Some((key, rest)) = part.split_once(':')
                && (rest.is_empty() || rest.starts_with(' '))
                && key
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            {
                keys.insert(key);
            }
        }
    }
    keys
}
