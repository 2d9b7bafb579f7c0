//! Translations, without a machine.

use std::fs;
use std::path::{Path, PathBuf};

use ballast_core::compile::{CompileContext, compile};
use ballast_core::loops::HostAddresses;
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use ballast_core::rng::Rng;
use ballast_core::table::{Format, parse};

use super::{Imported, Kind, Source, World, translate};

mod attacked;
mod equivalence;
mod exactness;
mod files;
mod lines;
mod meant;
mod noise;
mod opened;
mod oracle;
mod restrictions;
mod shared;
mod strangers;
mod told;
mod tried;

use oracle::Made;

/// Translates a text, and holds the result to be a good table.
fn import(text: &str) -> Imported {
    let imported = translate(
        &[Source {
            name: "haproxy.cfg",
            text: text.as_bytes(),
        }],
        &Made::new(),
        true,
    );
    if let Err(problems) = parse(imported.table.as_bytes(), Format::Yaml) {
        panic!("{text}\n{}\n{problems}", imported.table);
    }
    imported
}

fn sample(name: &str) -> String {
    let path = folder().join(format!("{name}.cfg"));
    fs::read_to_string(path).expect("a sample")
}

const SAMPLES: [&str; 9] = [
    "service-loadbalancer",
    "web",
    "tcp",
    "trouble",
    "database",
    "tls-frontend",
    "kube-apiserver",
    "mail",
    "openshift",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ballast/binary/import")
}

/// Compares with a file; with UPDATE_GOLDEN=1 it is written instead.
fn compare(name: &str, text: &str) {
    let path = folder().join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).expect("a golden file");
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{name}: UPDATE_GOLDEN=1 writes it");
}

#[test]
fn samples_become_these_tables_with_these_remarks() {
    for name in SAMPLES {
        let imported = import(&sample(name));
        compare(&format!("{name}.yaml"), &imported.table);
        let remarks = &imported.report.remarks;
        let remarks: Vec<String> = remarks
            .iter()
            .map(|remark| format!("{}: {remark}\n", remark.line))
            .collect();
        compare(&format!("{name}.remarks"), &remarks.concat());
    }
}

#[test]
fn what_service_loadbalancer_generates_comes_over_whole() {
    let imported = import(&sample("service-loadbalancer"));
    assert_eq!(imported.report.unlike(), 0, "{:#?}", imported.report);
    let mut names: Vec<&str> = imported
        .files
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    names.sort_unstable();
    let pages = [400, 403, 408, 500, 502, 503, 504].map(|status| format!("errors/{status}.html"));
    assert_eq!(names, pages);
    assert!(
        imported
            .files
            .iter()
            .all(|(_, body)| body.starts_with(b"<p>"))
    );
}

#[test]
fn no_password_is_repeated() {
    let imported = import(&sample("trouble"));
    let said = format!("{}{:?}", imported.table, imported.report);
    assert!(!said.contains("hidden"), "{said}");
}
