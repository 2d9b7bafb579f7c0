//! `ballast check`, and the same words where a running `ballast` refuses a table.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::peers::{echo_server, fresh_address, fresh_ip};
use crate::process::{
    AS_NOBODY, Ended, Process, ack, ballast, command, folder, for_everybody, limited, permitted,
    replace, table, to_its_end,
};
use support::papers::Papers;

#[test]
fn a_good_table_is_summed_up_in_a_line() {
    let folder = folder(MINIMAL);
    let file = folder.path().join("table.yaml");
    for path in [folder.path(), &file] {
        let ended = check(path);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(
            ended.out,
            format!(
                "{}: 1 frontend (1 tcp), 1 service, 2 endpoints\n",
                path.display()
            )
        );
        assert_eq!(ended.err, "");
    }
}

#[test]
fn a_loop_is_a_warning_with_its_path_and_the_remedy() {
    let at = fresh_address();
    let folder = folder(&table(&[(at, at)]));
    let ended = check(folder.path());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.out.lines().count(), 1, "{ended:?}");
    let (path, advice) = ended.err.split_once(": a loop; ").unwrap();
    let expected = format!("warning: frontend f0 -> service s0 -> endpoint {at} -> frontend f0");
    assert_eq!(path, expected);
    assert!(advice.contains("refused with the reason loop"), "{advice}");
    assert!(advice.contains("remove them"), "{advice}");

    let process = Process::run(folder.path(), &[]);
    process.until_answers("/readyz", 200);
    process.until_said(path.strip_prefix("warning: ").unwrap());
}

#[test]
fn the_schema_of_the_table_is_printed() {
    let ended = ballast(["schema"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.out,
        include_str!("../../../templates/table.schema.json")
    );
    assert_eq!(ended.err, "");
}

#[test]
fn every_mistake_is_said_at_once_with_place_reason_and_remedy() {
    let folder = folder(MISTAKES);
    let ended = check(folder.path());
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert_eq!(ended.out, "");
    let (first, problems) = ended.err.split_once('\n').unwrap();
    assert_eq!(
        first,
        format!("{}: refused for 11 problems", folder.path().display())
    );
    let places: Vec<String> = problems.lines().map(|line| parts(line).0).collect();
    assert_eq!(places, PLACES, "{problems}");
    for words in ["did you mean generation?", "did you mean tcp?"] {
        assert!(problems.contains(words), "{words}: {problems}");
    }
}

#[test]
fn a_running_ballast_refuses_a_table_in_the_same_words() {
    let folder = folder(&table(&[(fresh_address(), echo_server())]));
    let process = Process::run(folder.path(), &[]);
    process.until_answers("/readyz", 200);

    replace(&folder, MISTAKES);
    process.until("a refusal in the ack", || {
        ack(folder.path()).is_some_and(|ack| !ack["refused"].is_null())
    });
    let ended = check(folder.path());
    let said: Vec<String> = ended.err.lines().skip(1).map(without_position).collect();
    let ack = ack(folder.path()).unwrap();
    let acknowledged: Vec<String> = ack["refused"]["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| {
            let part = |name: &str| problem[name].as_str().unwrap();
            format!("{}: {}; {}", part("at"), part("why"), part("remedy"))
        })
        .collect();
    assert_eq!(said, acknowledged);
    for problem in said {
        process.until_said(&format!("table refused: {problem}\n"));
    }
    assert!(!ack["served"].is_null(), "the last good one stays");
    process.until_answers("/readyz", 200);
}

#[test]
fn what_is_no_table_is_named_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    };
    fs::create_dir(folder.path().join("empty")).unwrap();
    put("two/table.json", br#"{"version": 1}"#);
    put("two/table.yaml", b"version: 1");
    let half = MINIMAL.find("3306").unwrap();
    put("half.yaml", &MINIMAL.as_bytes()[..half]);
    put(
        "half.json",
        br#"{"version": 1, "frontends": [{"name": "f", "bi"#,
    );
    put("list.json", b"[1, 2, 3]");
    put(
        "manifest.json",
        br#"{"apiVersion": "v1", "kind": "ConfigMap"}"#,
    );
    put("empty.yaml", b"");
    put("bytes.yaml", b"version: \xff\xfe");
    for (name, reason, remedy) in [
        ("missing.yaml", "there is no such file", "name a table"),
        ("empty", "has no table", "put table.json or table.yaml"),
        ("two", "both table.json and table.yaml", "remove one"),
        ("half.yaml", "is not YAML", "expected one whole"),
        ("half.json", "is not JSON", "expected one whole"),
        ("list.json", "this is a list, not a", "expected "),
        ("manifest.json", "version", "expected a table|add version"),
        ("empty.yaml", "the file is empty", "expected a table"),
        ("bytes.yaml", "byte 9 is not UTF-8", "expected a text"),
    ] {
        let path = folder.path().join(name);
        let checked = check(&path);
        let code = if ["missing.yaml", "empty", "two"].contains(&name) {
            66
        } else {
            64
        };
        assert_eq!(checked.code, Some(code), "{name}: {checked:?}");
        assert_eq!(checked.out, "");
        assert!(
            checked.err.starts_with(&format!("{}: ", path.display())),
            "{name}: {checked:?}"
        );
        assert!(checked.err.contains(reason), "{name}: {checked:?}");
        assert!(
            remedy.split('|').any(|remedy| checked.err.contains(remedy)),
            "{name}: {checked:?}"
        );
        // A folder may become one with a table; a file must be good when the process starts.
        if !path.is_dir() {
            let run = ballast([
                "run",
                "--admin",
                "127.0.0.1:0",
                "--table",
                path.to_str().unwrap(),
            ]);
            assert_eq!(run.code, Some(64), "{name}: {run:?}");
            assert_eq!(run.err, format!("ballast: {}", checked.err));
        }
    }
}

#[test]
fn a_table_that_is_a_link_to_nothing_is_said_with_the_link() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["gone", "chain", "circle"] {
        fs::create_dir(at(name)).unwrap();
    }
    symlink("next.yaml", at("gone/table.yaml")).unwrap();
    symlink("one", at("chain/table.json")).unwrap();
    symlink("two", at("chain/one")).unwrap();
    symlink("one", at("circle/table.yaml")).unwrap();
    symlink("table.yaml", at("circle/one")).unwrap();
    for (name, link, words) in [
        (
            "gone",
            "gone/table.yaml",
            "is a link to next.yaml, where nothing is; put a table there",
        ),
        (
            "gone/table.yaml",
            "gone/table.yaml",
            "is a link to next.yaml, where nothing is",
        ),
        ("chain", "chain/one", "is a link to two, where nothing is"),
        (
            "circle",
            "circle/table.yaml",
            "is a link that leads in a circle",
        ),
    ] {
        let ended = check(&at(name));
        assert_eq!(ended.code, Some(66), "{ended:?}");
        let said = format!("{}: {words}", at(link).display());
        assert!(ended.err.starts_with(&said), "{said}\n{ended:?}");
    }
    let process = Process::run(&at("gone"), &[]);
    process.until_said("is a link to next.yaml, where nothing is");
    fs::write(at("gone/next.yaml"), MINIMAL).unwrap();
    process.until_said("table applied");
}

#[test]
fn what_may_not_be_read_is_said() {
    if !permitted(
        "no right to become nobody",
        &[&AS_NOBODY[..], &["true"]].concat(),
    ) {
        return;
    }
    let (folder, program) = for_everybody();
    let path = folder.path().join("table.yaml");
    fs::write(&path, MINIMAL).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut check = command(AS_NOBODY[0]);
    check.args(&AS_NOBODY[1..]).arg(program).arg("check");
    let ended = to_its_end(check.arg(&path));
    assert_eq!(ended.code, Some(66), "{ended:?}");
    let words = format!("{}: cannot be read: Permission denied", path.display());
    assert!(ended.err.starts_with(&words), "{ended:?}");
    assert!(
        ended
            .err
            .contains("; let user 65534 of this process read the file"),
        "{ended:?}"
    );

    // So it is of a file that the table names.
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    fs::write(&path, "version: 1\nticket-keys: keys\n").unwrap();
    let keys = folder.path().join("keys");
    fs::write(&keys, "").unwrap();
    fs::set_permissions(&keys, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let ended = to_its_end(&mut check);
    assert_eq!(ended.code, Some(66), "{ended:?}");
    assert!(
        ended.err.contains("ticket-keys: keys: Permission denied"),
        "{ended:?}"
    );
    assert!(
        ended
            .err
            .contains("; let user 65534 of this process read the file"),
        "{ended:?}"
    );
}

#[test]
fn several_tables_are_checked_and_the_worst_decides() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let good = at("good.yaml", MINIMAL);
    let bad = at(
        "bad.yaml",
        "version: 1\nservices: [{name: s, retires: 3, endpoints: []}]\n",
    );
    let lacks = at("lacks.yaml", "version: 1\nticket-keys: none\n");
    let missing = folder.path().join("missing.yaml").display().to_string();
    for (paths, code) in [
        (&[&good, &good][..], 0),
        (&[&good, &lacks], 66),
        (&[&missing, &good], 66),
        (&[&bad, &missing, &good], 64),
    ] {
        let args = [
            &["check".to_owned()],
            &paths.iter().map(ToString::to_string).collect::<Vec<_>>()[..],
        ];
        let ended = ballast(args.concat());
        assert_eq!(ended.code, Some(code), "{paths:?}: {ended:?}");
        let said = format!("{}{}", ended.out, ended.err);
        for path in paths {
            let summaries = said
                .lines()
                .filter(|line| line.starts_with(&format!("{path}: ")));
            let of_path = paths.iter().filter(|other| *other == path).count();
            assert_eq!(summaries.count(), of_path, "{path}: {ended:?}");
        }
    }
}

#[test]
fn a_frontend_at_the_admin_address_is_a_problem() {
    let text = |bind: &str, rest: &str| {
        format!(
            "version: 1\n{rest}frontends: [{{name: f, bind: [\"{bind}\"], protocol: tcp, service: s}}]\nservices: [{{name: s, endpoints: []}}]\n"
        )
    };
    let other = "stats: {bind: [\"127.0.0.1:1937\"]}\n";
    for (bind, rest, admin, is_good) in [
        ("127.0.0.1:1936", "", None, false),
        ("127.0.0.2:1936", "", None, true),
        ("*:1936", "", None, false),
        ("[::1]:1936", "", None, true),
        ("*:1936", other, None, true),
        ("*:1937", other, None, false),
        ("*:1936", "", Some("none"), true),
        ("127.0.0.1:1936", other, None, true),
        ("127.0.0.1:1937", other, None, false),
        ("127.0.0.1:1936", "", Some("127.0.0.1:1938"), true),
        ("127.0.0.1:1936", "", Some("none"), true),
        ("127.0.0.1:1938", "", Some("127.0.0.1:1938"), false),
        ("*:1938", "", Some("*:1938"), false),
    ] {
        let folder = folder(&text(bind, rest));
        let path = folder.path().display().to_string();
        let mut args = vec!["check", &path];
        args.extend(admin.iter().flat_map(|admin| ["--admin", admin]));
        let ended = ballast(&args);
        let code = if is_good { 0 } else { 64 };
        assert_eq!(ended.code, Some(code), "{args:?} {bind}: {ended:?}");
        assert!(
            is_good || ended.err.contains("frontends[0] (f).bind[0]: "),
            "{ended:?}"
        );
    }
}

#[test]
fn messages_name_what_was_given_and_what_may_be() {
    let folder = folder(
        "version: 1
frontends:
  - name: web
    bind: [\"127.0.0.1:80\"]
    protocol: http
    http: {max-header-bytes: 1MB}
    routes: [{service: s, status: 200}]
services:
  - {name: s, http: {version: h3}, affinity: {client-ip: 3h, cookie: x}, endpoints: []}
",
    );
    let ended = check(folder.path());
    for words in [
        "\"1MB\" is not a size; expected a number with its unit: B, KiB (1024 bytes) or MiB",
        "has service and status at once; expected exactly one of",
        "\"h3\" is not a version of HTTP; expected h1 or h2\n",
        "has client-ip and cookie at once, and is not one way",
    ] {
        assert!(ended.err.contains(words), "{words}: {ended:?}");
    }
    assert_eq!(ended.err.lines().count(), 5, "{ended:?}");
}

#[test]
fn a_certificate_without_a_key_names_the_field() {
    let folder = folder(
        "version: 1
frontends:
  - {name: web, bind: [\"127.0.0.1:443\"], protocol: https, tls: {certificates: [{cert: web.crt}]}, default: {status: 404}}
",
    );
    let papers = Papers::new();
    papers.issue_for("web", &["web.test"], (0, 4_102_444_800));
    fs::copy(papers.named("web.crt"), folder.path().join("web.crt")).unwrap();
    let ended = check(folder.path());
    assert_eq!(ended.code, Some(66), "{ended:?}");
    let words = "web.crt: has no unencrypted key in PEM form, and the table names no other file with the key; add key: FILE beside cert";
    assert!(ended.err.contains(words), "{ended:?}");
}

#[test]
fn a_key_of_another_certificate_is_named_beside_mistakes_of_the_table() {
    let folder = folder(
        "version: 2
frontends:
  - name: web
    bind: [\"127.0.0.1:443\"]
    protocol: HTTPS
    tls: {certificates: [{cert: a.crt, key: b.key}, {cert: b.crt, key: b.key}, {cert: a.crt}], client-auth: {ca: a.key}}
    default: {status: 404}
",
    );
    let papers = Papers::new();
    for name in ["a", "b"] {
        papers.issue(name, &["web.test"]);
        for file in [format!("{name}.crt"), format!("{name}.key")] {
            fs::copy(papers.path(&file), folder.path().join(&file)).unwrap();
        }
    }
    let ended = check(folder.path());
    assert_eq!(ended.code, Some(64), "{ended:?}");
    let lines: Vec<String> = ended.err.lines().map(without_position).collect();
    let words = [
        "refused for 2 problems, and 3 problems with files that it names",
        "version: ",
        "protocol: ",
        "certificates[0]: b.key: is not the key of the certificate in a.crt; put a good file there",
        "certificates[2]: a.crt: has no unencrypted key in PEM form, and the table names no other file with the key; add key: FILE",
        "client-auth: a.key: has no certificate in PEM form; put a good file there",
    ];
    assert_eq!(lines.len(), words.len(), "{ended:?}");
    for (line, words) in lines.iter().zip(words) {
        assert!(line.contains(words), "{line}");
    }
}

#[test]
fn a_range_that_does_not_begin_at_its_address_is_a_warning() {
    let folder = folder(
        "version: 1
frontends:
  - {name: web, bind: [\"127.0.0.1:80\"], protocol: tcp, service: s, source-ranges: [10.0.0.1/8]}
services: [{name: s, endpoints: []}]
",
    );
    let ended = check(folder.path());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.err,
        "warning: line 3, column 84: frontends[0] (web).source-ranges[0]: \"10.0.0.1/8\" means all of 10.0.0.0/8: 10.0.0.1 is not its \
         first address; write 10.0.0.0/8, or 10.0.0.1/32 for this address alone\n"
    );
}

#[test]
fn a_pipe_is_no_table() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let ended = check(&pipe);
    assert_eq!(ended.code, Some(66), "{ended:?}");
    assert!(ended.err.contains("is a pipe, not a file"), "{ended:?}");
}

#[test]
fn a_name_of_a_file_does_nothing_to_the_terminal() {
    let ended = check(Path::new("/nonexistent/\x1b[31mred"));
    assert_eq!(ended.code, Some(66), "{ended:?}");
    assert!(ended.err.contains("\\u{1b}[31mred"), "{ended:?}");
}

#[test]
fn what_is_hardly_meant_is_a_warning_with_its_place() {
    let folder = folder(
        "version: 1
frontends:
  - name: web
    bind: [\"127.0.0.1:80\"]
    protocol: http
    routes:
      - {path: /a, redirect: {scheme: http}}
      - {path: /b, service: s, when: {method: [get]}, request-headers: {}}
services: [{name: s, endpoints: []}]
",
    );
    let ended = check(folder.path());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let warnings: Vec<&str> = ended.err.lines().collect();
    let places = [
        "warning: line 7, column 20: frontends[0] (web).routes[0].redirect: leads to this route again",
        "warning: line 8, column 48: frontends[0] (web).routes[1].when.method[0]: \"get\" is not \"GET\"",
        "warning: line 8, column 55: frontends[0] (web).routes[1].request-headers: changes nothing",
    ];
    assert_eq!(warnings.len(), places.len(), "{ended:?}");
    for (warning, place) in warnings.iter().zip(places) {
        assert!(warning.starts_with(place), "{warning}");
    }
}

#[test]
fn more_than_a_table_may_have_is_refused_without_being_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.json");
    for size in [(64 << 20) + 1, 8 << 30] {
        // Nothing but holes.
        File::create(&path).unwrap().set_len(size).unwrap();
        let memory_of_512_mib = "ulimit -v 524288";
        let mut check = limited(memory_of_512_mib, &["check", path.to_str().unwrap()]);
        let ended = to_its_end(&mut check);
        assert_eq!(ended.code, Some(64), "{ended:?}");
        let words = "more bytes than a table may have; expected at most 64MiB\n";
        assert!(ended.err.ends_with(words), "{ended:?}");
    }
}

#[test]
fn check_names_a_missing_file() {
    let address = fresh_ip();
    let folder = folder(&format!(
        "version: 1
frontends:
  - name: web
    bind: [\"{address}:443\"]
    protocol: https
    tls: {{certificates: [{{cert: tls/shop.crt, key: shop.key}}]}}
    routes: [{{path: /robots.txt, status: 200, body-file: robots.txt}}]
    default: {{status: 404}}
"
    ));
    fs::write(folder.path().join("robots.txt"), "").unwrap();
    let ended = check(folder.path());
    for (place, file) in [
        ("frontends[0].tls.certificates[0].cert", "tls/shop.crt"),
        ("frontends[0].tls.certificates[0].key", "shop.key"),
    ] {
        let mut lines = ended.err.lines().map(without_position);
        let line = lines.find(|line| line.starts_with(place));
        let line = line.unwrap_or_else(|| panic!("{place} is not named: {ended:?}"));
        assert!(line.contains(file), "{line}");
    }
    assert!(!ended.err.contains("robots.txt"), "{ended:?}");
    let summary = format!(
        "{}: 2 problems with files that it names",
        folder.path().display()
    );
    assert_eq!(ended.err.lines().next(), Some(&*summary), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 3, "{ended:?}");
    assert_eq!(ended.code, Some(66), "{ended:?}");
}

#[test]
fn check_names_a_frontend_at_the_admin_address_beside_other_mistakes() {
    let folder = folder(
        "version: 1
frontends:
  - {name: web, bind: [\"127.0.0.1:80\", \"*:1936\"], protocol: tcp, service: pool}
  - {name: other, bind: [\"127.0.0.1:1936\"], protocol: sctp, service: pool}
services: [{name: pool, wight: 3}]
",
    );
    let ended = check(folder.path());
    assert_eq!(ended.code, Some(64), "{ended:?}");
    for taken in [
        "frontends[0] (web).bind[1]: *:1936 overlaps with Ballast's own admin address",
        "frontends[1] (other).bind[0]: 127.0.0.1:1936 is Ballast's own admin address",
    ] {
        assert!(ended.err.contains(taken), "{ended:?}");
    }
    assert!(ended.err.contains("wight: is not a known key"), "{ended:?}");
}

#[test]
fn check_names_a_missing_file_beside_other_mistakes() {
    let folder = folder(
        "version: 1
ticket-keys: tickets
frontends:
  - {name: web, bind: [\"127.0.0.1:443\"], protocol: https, tls: {certificates: [{cert: web.crt}]}, retires: 3}
",
    );
    fs::write(folder.path().join("tickets"), "").unwrap();
    let ended = check(folder.path());
    assert_eq!(ended.code, Some(64), "{ended:?}");
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines.len(), 3, "{ended:?}");
    let summary = ": refused for a problem, and a problem with files that it names";
    assert!(lines[0].ends_with(summary), "{ended:?}");
    let retires = "line 4, column 99: frontends[0] (web).retires: ";
    assert!(lines[1].starts_with(retires), "{ended:?}");
    let missing =
        "line 4, column 81: frontends[0] (web).tls.certificates[0].cert: web.crt: No such file";
    assert!(lines[2].starts_with(missing), "{ended:?}");
}

#[test]
fn check_names_certificates_that_cannot_be_used_beside_a_missing_file() {
    let folder = folder(
        "version: 1
frontends:
  - {name: a, bind: [\"127.0.0.1:443\"], protocol: https, tls: {certificates: [{cert: a.crt}]}, default: {status: 404}}
  - {name: b, bind: [\"127.0.0.1:444\"], protocol: https, tls: {certificates: [{cert: b.crt}]}, default: {status: 404}}
",
    );
    fs::write(folder.path().join("b.crt"), "garbage").unwrap();
    let ended = check(folder.path());
    assert_eq!(ended.code, Some(66), "{ended:?}");
    let lines: Vec<String> = ended.err.lines().skip(1).map(without_position).collect();
    assert_eq!(lines.len(), 2, "{ended:?}");
    assert!(
        lines[0].starts_with("frontends[0].tls.certificates[0].cert: a.crt: No such file"),
        "{ended:?}"
    );
    assert!(
        lines[1].starts_with("frontends[1].tls.certificates[0]: b.crt: has no "),
        "{ended:?}"
    );
}

#[test]
fn check_names_a_file_that_is_none_or_too_large() {
    let folder = folder(
        "version: 1
frontends:
  - name: web
    bind: [\"127.0.0.1:443\"]
    protocol: https
    tls: {certificates: [{cert: tls, key: /dev/zero, ocsp: large}]}
    routes: [{path: /, status: 200}]
",
    );
    fs::create_dir(folder.path().join("tls")).unwrap();
    let large = File::create(folder.path().join("large")).unwrap();
    large.set_len((1 << 20) + 1).unwrap();
    let ended = check(folder.path());
    let (summary, problems) = ended.err.split_once('\n').unwrap();
    assert!(
        summary.ends_with(": 3 problems with files that it names"),
        "{ended:?}"
    );
    let problems: Vec<String> = problems.lines().map(without_position).collect();
    assert_eq!(
        problems.join("\n"),
        "frontends[0].tls.certificates[0].cert: tls: is a directory, not a file; name a plain file
frontends[0].tls.certificates[0].key: /dev/zero: is a device, not a file; name a plain file
frontends[0].tls.certificates[0].ocsp: large: has more than 1 MiB; name one of at most 1 MiB"
    );
    assert_eq!(ended.code, Some(66), "{ended:?}");
}

#[test]
fn check_says_which_certificate_cannot_be_used() {
    let folder = folder(
        "version: 1
frontends:
  - {name: plain, bind: [\"127.0.0.1:80\"], protocol: http, default: {status: 404}}
  - name: web
    bind: [\"127.0.0.1:443\"]
    protocol: https
    tls: {certificates: [{cert: web.crt}]}
    default: {status: 404}
",
    );
    fs::write(folder.path().join("web.crt"), "garbage").unwrap();
    let ended = check(folder.path());
    assert_eq!(ended.code, Some(66), "{ended:?}");
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines.len(), 2, "{ended:?}");
    assert!(
        lines[1].starts_with(
            "line 7, column 26: frontends[1] (web).tls.certificates[0]: web.crt: has no "
        ),
        "{ended:?}"
    );
}

fn check(path: &Path) -> Ended {
    ballast([Path::new("check"), path])
}

/// Place, reason and remedy of a line.
fn parts(line: &str) -> (String, String, String) {
    assert!(
        line.starts_with("line ") && line.contains(", column "),
        "{line}"
    );
    let line = without_position(line);
    let (place, rest) = line.split_once(": ").unwrap();
    let (reason, remedy) = rest.split_once("; ").unwrap();
    assert!(!reason.is_empty() && !remedy.is_empty(), "{line}");
    (place.to_owned(), reason.to_owned(), remedy.to_owned())
}

/// The line as the log has it: without the position in the file and the names in the place.
fn without_position(line: &str) -> String {
    let line = match line.strip_prefix("line ") {
        Some(rest) => rest.split_once(": ").unwrap().1,
        None => line,
    };
    let (place, rest) = line.split_once(": ").unwrap();
    let place = place
        .split(" (")
        .map(|part| part.split_once(')').map_or(part, |(_, rest)| rest));
    format!("{}: {rest}", place.collect::<String>())
}

const MINIMAL: &str = include_str!("../../../templates/table-minimal.yaml");

const MISTAKES: &str = r#"
version: 1
generatoin: 3
frontends:
  - {name: a, bind: ["127.0.0.1:70000"], protocol: tcp, service: s}
  - {name: b, bind: ["127.0.0.1:17081"], protocol: tpc, service: s}
  - {name: c, bind: ["127.0.0.1:17082"], protocol: tcp, service: nobody}
  - {name: c, bind: ["127.0.0.1:17083"], protocol: tcp, service: s}
  - {name: d, bind: ["127.0.0.1:17083"], protocol: tcp, service: s}
  - {name: e, bind: [], protocol: tcp, service: s}
services:
  - name: s
    algorithm: round-robbing
    health: {mode: tcp, interval: 1s, timeout: 2s}
    endpoints:
      - {address: "10.0.0.1:80", weight: 300}
      - {address: "db.example.com:80"}
"#;

const PLACES: [&str; 11] = [
    "generatoin",
    "frontends[0].bind[0]",
    "frontends[1].protocol",
    "frontends[2].service",
    "frontends[3].name",
    "frontends[4].bind[0]",
    "frontends[5].bind",
    "services[0].algorithm",
    "services[0].health.timeout",
    "services[0].endpoints[0].weight",
    "services[0].endpoints[1].address",
];
