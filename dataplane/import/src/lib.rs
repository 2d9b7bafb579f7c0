//! `ballast import`: from haproxy's configuration to a table.
//!
//! [`translate`] decides: it reads the text, section by section, and makes a table of what it says, with a remark for every line
//! that the table does not say. It asks a [`World`] for environment variables, names and files, and does nothing itself.
//! [`import`] is the shell around it: it reads the file, and answers from this machine.
//!
//! A translation means the same as the configuration, or says where it does not. Where a rule about who may not come cannot be
//! read, the table is closed there, not open. A denial for a reason that Ballast does not look at is left out, and told as such.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access;
mod acl;
mod bind;
mod certificate;
mod check;
mod condition;
mod conditional;
mod decide;
mod frontends;
mod global;
mod headers;
mod health;
mod http;
mod importer;
mod keywords;
mod limits;
mod machine;
mod maps;
mod options;
mod pages;
mod pattern;
mod ports;
mod proxy;
mod ranges;
mod read;
mod report;
mod routes;
mod rules;
mod section;
mod server;
mod services;
mod settings;
mod table;
mod units;
mod versions;
mod walk;
mod words;
mod world;

#[cfg(test)]
mod tests;

pub use machine::{ImportError, import};
pub use report::{Kind, Remark, Report};
pub use world::World;

use std::path::PathBuf;

use importer::Importer;
use report::listed;

/// What became of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The table in YAML. It is always one that `ballast check` takes, but for files that it names.
    pub table: String,
    /// The names of the files of the configuration, in their order.
    pub sources: Vec<String>,
    /// Files to be written beside it, by their relative paths.
    pub files: Vec<(String, Vec<u8>)>,
    /// The remarks for the user.
    pub report: Report,
    /// The copy of a table that was there before, and was another one.
    pub kept: Option<PathBuf>,
    /// Whether the text has a section that serves something: otherwise it is no configuration of haproxy.
    pub has_proxies: bool,
}

/// A file of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Source<'s> {
    /// What it is called in messages.
    pub name: &'s str,
    /// What stands in it.
    pub text: &'s [u8],
}

/// Translates a configuration of these files, in their order. `has_folder`: files can be written beside the table.
#[must_use]
pub fn translate(sources: &[Source<'_>], world: &dyn World, has_folder: bool) -> Imported {
    let mut importer = Importer::new(world, has_folder);
    let mut sections = importer.read(sources);
    let assembled = importer.assemble(&mut sections);
    let mut report = importer.report;
    report.sort(&importer.places);
    let names = sources.iter().map(|source| source.name.to_owned());
    let mut imported = Imported {
        table: String::new(),
        sources: names.collect(),
        files: importer.files,
        report,
        kept: None,
        has_proxies: !sections.proxies.is_empty(),
    };
    let head = imported.head();
    imported.table = ballast_core::table::yaml(&assembled.table, &assembled.comments, &head);
    imported
}

impl Imported {
    /// What stands above the table.
    fn head(&self) -> Vec<String> {
        let report = &self.report;
        let mut head = vec![format!("{MADE_BY} of {}.", self.sources.join(", "))];
        if !report.flags.is_empty() {
            let flags = report.flags.join(" ");
            head.push(format!(
                "Flags of `ballast run` for what a table does not say: {flags}"
            ));
        }
        if !report.names.is_empty() {
            head.push("Names, as they were resolved by the import:".into());
            for (name, addresses) in &report.names {
                head.push(format!("  {name}: {}", listed(addresses)));
            }
        }
        if report.unlike() > 0 {
            head.push("What this table does not say, or says otherwise:".into());
            let remarks = report.remarks.iter();
            let remarks = remarks.filter(|remark| remark.kind != Kind::Note);
            head.extend(remarks.map(|remark| match remark.line {
                0 => format!("  {remark}"),
                line if self.sources.len() < 2 => format!("  line {line}: {remark}"),
                line => format!("  line {line} of {}: {remark}", self.source(remark)),
            }));
        }
        head
    }

    /// The name of the file that a remark is about.
    fn source(&self, remark: &Remark) -> &str {
        self.sources.get(remark.file).map_or("", String::as_str)
    }
}

/// How the head of a table begins that an import has made.
const MADE_BY: &str = "Made by `ballast import`";
