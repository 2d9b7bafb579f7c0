//! Configurations of several files.

use super::{Imported, Made, Source, translate};

fn of(files: &[(&str, &str)]) -> Imported {
    let sources: Vec<Source<'_>> = files
        .iter()
        .map(|(name, text)| Source {
            name,
            text: text.as_bytes(),
        })
        .collect();
    translate(&sources, &Made::new(), true)
}

fn told(imported: &Imported) -> Vec<String> {
    let remarks = imported.report.remarks.iter();
    remarks
        .map(|remark| format!("{} {}: {remark}", remark.file, remark.line))
        .collect()
}

const BACKEND: &str = "backend b\n server s 10.0.0.1:80\n";

#[test]
fn defaults_and_variables_hold_in_the_files_behind() {
    let imported = of(&[
        (
            "a.cfg",
            "global\n setenv AT 127.0.0.1:81\ndefaults\n mode http\n retries 7\n",
        ),
        ("b.cfg", "frontend f\n bind \"$AT\"\n default_backend b\n"),
        ("c.cfg", BACKEND),
    ]);
    for expected in [
        "# Made by `ballast import` of a.cfg, b.cfg, c.cfg.\n",
        "  # line 1 of b.cfg: frontend f\n",
        "protocol: http",
        "127.0.0.1:81",
        "retries: 7",
        "  # line 1 of c.cfg: backend b\n",
    ] {
        assert!(
            imported.table.contains(expected),
            "{expected}\n{}",
            imported.table
        );
    }
}

#[test]
fn a_section_and_a_block_end_with_their_file() {
    let imported = of(&[
        (
            "a.cfg",
            "frontend f\n bind 127.0.0.1:80\n default_backend b",
        ),
        ("b.cfg", "\n bind 127.0.0.1:81\n"),
        ("c.cfg", ".if 0\n"),
        ("d.cfg", BACKEND),
    ]);
    let told = told(&imported);
    let has = |begin: &str| told.iter().any(|remark| remark.starts_with(begin));
    assert!(
        has("1 2: left out: `bind 127.0.0.1:81`: stands in no section"),
        "{told:?}"
    );
    assert!(
        has("2 1: left out: `.if 0`: the block has no .endif"),
        "{told:?}"
    );
    assert!(imported.table.contains("service: b"), "{}", imported.table);
    assert!(
        !imported.table.contains("\"127.0.0.1:81\""),
        "{}",
        imported.table
    );
}

#[test]
fn a_line_of_another_file_is_named_with_it() {
    let imported = of(&[("a.cfg", BACKEND), ("b.cfg", BACKEND)]);
    let told = told(&imported);
    let named = |remark: &String| remark.contains("line 1 of a.cfg has this name already");
    assert!(
        told.iter()
            .any(|remark| remark.starts_with("1 1: left out") && named(remark)),
        "{told:?}"
    );
    assert!(
        imported.table.contains("#   line 1 of b.cfg: left out"),
        "{}",
        imported.table
    );
}
