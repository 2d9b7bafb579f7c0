//! What may lie where the table is: texts that grow without end when they are read, and things that are no files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{Most, Siege};
use crate::process::{ack, replace};

/// Each text is refused by name, costs little, and the table before it goes on.
#[test]
fn texts_that_grow_without_end_are_refused() {
    let siege = Siege::new();
    for (what, text) in texts() {
        let cpu = siege.process.cpu();
        let said = siege.process.err.times("table refused");
        replace(&siege.folder, &text);
        siege
            .process
            .until(what, || siege.process.err.times("table refused") > said);
        siege.process.until("its refusal in the ack", || {
            ack(siege.folder.path()).is_some_and(|ack| ack["refused"].is_object())
        });
        let took = siege.process.cpu() - cpu;
        println!("{what}: {took:.2} s of a core, {}", last_line(&siege));
        assert!(took < 20.0, "{what}: {took} s of a core");
        siege.serves_others();
        siege.has_cost(
            what,
            &Most {
                mebibytes: 300,
                cpu: 200.0,
            },
        );
    }
}

fn last_line(siege: &Siege) -> String {
    let text = siege.process.err.text();
    let line = text.lines().rfind(|line| line.contains("table refused"));
    line.unwrap_or_default().chars().take(300).collect()
}

fn texts() -> Vec<(&'static str, String)> {
    use std::fmt::Write;

    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..40 {
        let before = format!("*a{}, ", level - 1).repeat(9);
        writeln!(laughs, "a{level}: &a{level} [{before}]").unwrap();
    }
    let long = "y".repeat(1 << 20);
    let repeats = format!("x: &x {long}\nfrontends: [{}]\n", "*x, ".repeat(2_000));
    let merges = (1..30).fold("a0: &a0 {k: v}\n".to_owned(), |text, level| {
        let before = level - 1;
        text + &format!("a{level}: &a{level} {{<<: [*a{before}, *a{before}, *a{before}]}}\n")
    });
    let deep_map = (0..20_000).fold(String::new(), |text, _| text + "{a: ");
    let indented = (0..2_000).fold(String::new(), |text, level| {
        text + &" ".repeat(level) + "a:\n"
    });
    vec![
        (
            "a billion laughs",
            format!("version: 1\n{laughs}frontends: *a39\n"),
        ),
        ("a long text, again and again", repeats),
        ("merges of merges", format!("version: 1\n{merges}")),
        (
            "lists in lists",
            format!("frontends: {}", "[".repeat(100_000)),
        ),
        (
            "lists in lists that end",
            format!("frontends: {}{}", "[".repeat(100_000), "]".repeat(100_000)),
        ),
        ("dashes", format!("frontends:\n{}x", "- ".repeat(100_000))),
        ("maps in maps", format!("frontends: {deep_map}")),
        ("maps below maps", indented),
        ("an anchor of itself", "frontends: &a [*a]\n".to_owned()),
        (
            "anchors",
            (0..200_000).fold(String::new(), |text, number| {
                text + &format!("k{number}: &k{number} x\n")
            }),
        ),
        ("one line without an end", "x".repeat(32 << 20)),
        (
            "quotes",
            format!("frontends: \"{}", "\\u0041".repeat(1 << 20)),
        ),
        ("documents", "---\nversion: 1\n".repeat(50_000)),
        ("tags", format!("frontends: {}x", "!!seq ".repeat(100_000))),
        ("zeros", "\0".repeat(1 << 20)),
        ("large", format!("# {}\n", "x".repeat(65 << 20))),
    ]
}

/// None is opened: a pipe would keep its reader for ever, a device has no end.
#[test]
fn things_that_are_no_files_are_named_and_nothing_waits_for_them() {
    let siege = Siege::new();
    let table = siege.folder.path().join("table.yaml");
    let good = fs::read(&table).unwrap();
    type Make = fn(&Path);
    let things: [(&str, Make, &str); 5] = [
        (
            "a pipe",
            |at| mknodat(CWD, at, FileType::Fifo, Mode::RWXU, 0).unwrap(),
            "is a pipe, not a file",
        ),
        (
            "a folder",
            |at| fs::create_dir(at).unwrap(),
            "is a directory, not a file",
        ),
        (
            "a device",
            |at| symlink("/dev/zero", at).unwrap(),
            "is a device, not a file",
        ),
        (
            "a link to itself",
            |at| symlink(at, at).unwrap(),
            "no table",
        ),
        (
            "a link to nothing",
            |at| symlink("nothing", at).unwrap(),
            "no table",
        ),
    ];
    for (what, put, says) in things {
        let said = siege.process.err.times(says);
        fs::remove_file(&table).unwrap();
        put(&table);
        siege
            .process
            .until(what, || siege.process.err.times(says) > said);
        siege.serves_others();
        if table.is_dir() {
            fs::remove_dir(&table).unwrap();
            fs::write(&table, "x").unwrap();
        }
        // It is followed on: the next table is served, at the latest by looking every few seconds.
        let applied = siege.process.err.times("table applied");
        let changed = [&good, format!("# {what}\n").as_bytes()].concat();
        let draft = siege.folder.path().join("draft");
        fs::write(&draft, changed).unwrap();
        fs::rename(draft, &table).unwrap();
        siege.process.until("the next table", || {
            siege.process.err.times("table applied") > applied
        });
    }
    siege.has_cost(
        "things that are no files",
        &Most {
            mebibytes: 32,
            cpu: 10.0,
        },
    );
}

/// A folder with many files, and changes of others all the time: only the table counts.
#[test]
fn a_folder_in_which_others_write_all_the_time_costs_little() {
    let siege = Siege::new();
    for number in 0..5_000 {
        fs::write(siege.folder.path().join(format!("other-{number}")), "x").unwrap();
    }
    support::pause(Duration::from_secs(1));
    siege.has_cost(
        "a folder of others",
        &Most {
            mebibytes: 32,
            cpu: 5.0,
        },
    );
    siege.serves_others();
}
