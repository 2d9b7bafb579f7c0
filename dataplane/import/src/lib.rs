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
mod check;
mod clients;
mod condition;
mod conditional;
mod decide;
mod frontends;
mod global;
mod headers;
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
mod words;
mod world;

#[cfg(test)]
mod tests;

pub use machine::{ImportError, import};
pub use report::{Kind, Remark, Report};
pub use world::World;

use importer::Importer;

/// What became of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The table in YAML. It is always one that `ballast check` takes, but for files that it names.
    pub table: String,
    /// Files to be written beside it, by their relative paths.
    pub files: Vec<(String, Vec<u8>)>,
    /// The remarks for the user.
    pub report: Report,
    /// Whether the text has a section that serves something: otherwise it is no configuration of haproxy.
    pub has_proxies: bool,
}

/// Translates the text of a configuration that is called `name`. `has_folder`: files can be written beside the table.
#[must_use]
pub fn translate(name: &str, text: &[u8], world: &dyn World, has_folder: bool) -> Imported {
    let mut importer = Importer::new(world, has_folder);
    let mut sections = importer.read(text);
    let assembled = importer.assemble(&mut sections);
    let mut report = importer.report;
    report.sort();
    let head = head(name, &report);
    Imported {
        table: ballast_core::table::yaml(&assembled.table, &assembled.comments, &head),
        files: importer.files,
        report,
        has_proxies: !sections.proxies.is_empty(),
    }
}

/// What stands above the table.
fn head(name: &str, report: &Report) -> Vec<String> {
    let mut head = vec![format!("Made by `ballast import` of {name}.")];
    if !report.flags.is_empty() {
        let flags = report.flags.join(" ");
        head.push(format!(
            "Flags of `ballast run` for what a table does not say: {flags}"
        ));
    }
    if !report.names.is_empty() {
        head.push("Names, as they were resolved by the import:".into());
        for (name, addresses) in &report.names {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            head.push(format!("  {name}: {}", addresses.join(", ")));
        }
    }
    if report.count(Kind::LeftOut) > 0 {
        head.push("What this table does not say:".into());
        let left_out = report
            .remarks
            .iter()
            .filter(|remark| remark.kind == Kind::LeftOut);
        head.extend(left_out.map(|remark| match remark.line {
            0 => format!("  {remark}"),
            line => format!("  line {line}: {remark}"),
        }));
    }
    head
}
