//! `ballast man`: a manual page for the program, and one for each of its commands.

use std::fs;
use std::io;
use std::iter;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::Cli;

/// Writes the pages into a folder.
pub(crate) fn write(folder: &Path) -> io::Result<()> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    for command in iter::once(&program).chain(program.get_subcommands()) {
        // The short help leaves some flags out, and the pages would have them without a description.
        let command = command.clone().mut_args(|arg| arg.hide_short_help(false));
        let man = Man::new(command.clone());
        fs::write(folder.join(man.get_filename()), page(&man, command)?)?;
    }
    Ok(())
}

/// The library would call what is below the flags EXTRA, and write brackets around flags that are required.
fn page(man: &Man, mut command: Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    page.extend(section("SYNOPSIS", usage).bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let help = command.get_after_long_help();
    let help = help.or_else(|| command.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let (notes, codes) = help.split_once("Exit codes:").unwrap_or((&help, ""));
    let (notes, signals) = notes.split_once("Signals:").unwrap_or((notes, ""));
    for (heading, text) in [("NOTES", notes), ("SIGNALS", signals)] {
        page.extend(section(heading, text).bytes());
    }
    page.extend(exit_status(codes).bytes());
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

/// A section of one paragraph; nothing, if it would be empty.
fn section(heading: &str, text: &str) -> String {
    let text = in_roff(text);
    match &*text {
        "" => text,
        text => format!(".SH \"{heading}\"\n{text}\n"),
    }
}

/// A paragraph for each exit code. `codes` is as the help has it: `0 words; 1 words.`
fn exit_status(codes: &str) -> String {
    let codes = in_roff(codes);
    if codes.is_empty() {
        return codes;
    }
    let mut text = String::from(".SH \"EXIT STATUS\"\n");
    for line in codes.split("; ") {
        let (code, words) = line.split_once(' ').unwrap_or((line, ""));
        text.push_str(&format!(".TP\n\\fB{code}\\fR\n{words}\n"));
    }
    text
}

/// The words of a text in one line, with what roff takes for commands written so that it is printed.
fn in_roff(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ").replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) {
        format!("\\&{line}")
    } else {
        line
    }
}
