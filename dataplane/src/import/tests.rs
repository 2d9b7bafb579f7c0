//! Translations, without a machine.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ballast_core::table::{Format, parse};

use super::{Imported, Kind, World, translate};

mod equivalence;
mod lines;
mod noise;

/// A machine of the test's making.
struct Made {
    variables: HashMap<&'static str, &'static str>,
}

impl Made {
    fn new() -> Self {
        let variables = [("PG_HOST", "10.0.1.1"), ("PG_HOST_2", "10.0.1.2")];
        Self {
            variables: variables.into(),
        }
    }
}

impl World for Made {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).map(|value| (*value).to_owned())
    }

    fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let texts: &[&str] = match name {
            "db.example.com" => &["10.9.0.1", "2001:db8::9", "10.9.0.2"],
            "localhost" => &["127.0.0.1"],
            _ => return Err("there is no such name".into()),
        };
        Ok(texts
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect())
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        match path {
            "lists/office.lst" => {
                Ok(b"# the office\n192.0.2.0/24\n\n10.7.0.0/255.255.0.0\n".into())
            }
            _ if path.starts_with("/etc/haproxy/errors/") => {
                let page =
                    format!("HTTP/1.0 000 x\r\nContent-Type: text/html\r\n\r\n<p>{path}</p>");
                Ok(page.into_bytes())
            }
            _ => Err("no such file".into()),
        }
    }

    fn folder(&self, path: &str) -> Option<Vec<String>> {
        let names = ["a.pem", "a.pem.key", "b.pem"].map(str::to_owned);
        (path == "/etc/ssl/folder").then(|| names.to_vec())
    }

    fn absolute(&self, path: &str) -> String {
        match path.starts_with('/') {
            true => path.into(),
            false => format!("/etc/haproxy/{path}"),
        }
    }
}

/// Translates a text, and holds the result to be a good table.
fn import(text: &str) -> Imported {
    let imported = translate("haproxy.cfg", text.as_bytes(), &Made::new(), true);
    if let Err(problems) = parse(imported.table.as_bytes(), Format::Yaml) {
        panic!("{text}\n{}\n{problems}", imported.table);
    }
    imported
}

fn sample(name: &str) -> String {
    let path = folder().join(format!("{name}.cfg"));
    fs::read_to_string(path).expect("a sample")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/import")
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
    for name in ["service-loadbalancer", "web", "tcp", "trouble"] {
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
    assert_eq!(
        imported.report.count(Kind::LeftOut),
        0,
        "{:#?}",
        imported.report
    );
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
