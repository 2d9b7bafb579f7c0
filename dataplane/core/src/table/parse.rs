//! From text to a table without a mistake, or to every mistake at once.
//!
//! A good JSON table goes straight into the types. All other texts become a tree first: of YAML the types are read from
//! that, and a mistake is looked for in it, which is slower and finds all the others too.

use std::collections::HashMap;

use serde::Deserialize;
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};

use super::RoutingTable;
use super::check::{Doubt, check};
use super::files::{files, stream_binds};
use super::form::{doubtful, mend};
use super::problems::{Found, Place, Problem, Problems, ReadParts, nearest, plain};
use super::schema::Kind;
use super::strict::Strict;
use super::text::Sharing;
use super::tree::{Entry, Node};

/// What a table is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON, as the controller writes it.
    Json,
    /// YAML 1.2, as people write it.
    Yaml,
}

/// Reads a table. It is returned only if there is no mistake in it; otherwise all mistakes are, in the order of the
/// file.
pub fn parse(text: &[u8], format: Format) -> Result<RoutingTable, Problems> {
    if text.len() > LARGEST {
        let why = "the file has more bytes than a table may have";
        let problem = Problem::new("", why, "expected at most 64MiB");
        return Err(Problems::of_whole_file(vec![problem], None));
    }
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let _sharing = Sharing::begin();
    if format == Format::Json
        && let Some(table) = from_json(text)
        && check(&table, &Doubt::default()).is_empty()
    {
        return Ok(table);
    }
    match tree(text, format) {
        Ok(tree @ Node::Map(_)) => read(tree),
        _ if is_haproxys(text) => {
            let problem = Problem::new("", "this is haproxy's configuration, not a table", IMPORT);
            Err(Problems::of_whole_file(vec![problem], None))
        }
        Ok(tree) => read(tree),
        Err(problem) => Err(Problems::of_half_a_file(problem)),
    }
}

/// Whether the first line that says something begins a section of haproxy's configuration.
fn is_haproxys(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.find(|line| !matches!(line, [] | [b'#' | b'.', ..]));
    let mut words = first.unwrap_or_default().split(u8::is_ascii_whitespace);
    words.next().is_some_and(|word| SECTIONS.contains(&word))
}

fn from_json(text: &[u8]) -> Option<RoutingTable> {
    let mut source = serde_json::Deserializer::from_slice(text);
    let table = RoutingTable::deserialize(Strict(&mut source)).ok()?;
    source.end().ok().map(|()| table)
}

/// What a table that was put together by a program means wrongly: [`parse()`] would refuse it once it is written.
pub fn flaws(table: &RoutingTable) -> Vec<Problem> {
    check(table, &Doubt::default()).sorted(|problem| problem.at.clone())
}

/// What a text hardly means, of which a table could be read.
pub(super) fn doubts(text: &[u8], format: Format) -> Vec<Problem> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    tree(text, format).map(doubtful).unwrap_or_default()
}

/// The table that a tree says, or every mistake in it.
pub(super) fn read(mut tree: Node) -> Result<RoutingTable, Problems> {
    if let Some(problem) = something_else(&tree) {
        return Err(Problems::of_whole_file(vec![problem], None));
    }
    let read = |tree: &Node| RoutingTable::deserialize(Strict(tree));
    let (mut found, mut doubt) = (Found::default(), Doubt::default());
    let table = match read(&tree) {
        Ok(table) => Some(table),
        Err(error) => {
            (found, doubt) = mend(&mut tree);
            if found.is_empty() {
                found.add(|| Problem::new("", plain(&error.to_string()), A_TABLE));
            }
            read(&tree).ok()
        }
    };
    if let Some(table) = &table {
        found.join(check(table, &doubt));
    }
    match table {
        Some(table) if found.is_empty() => Ok(table),
        table => {
            let generation = table.as_ref().and_then(|table| table.generation);
            let read = table.map(|table| parts(&table, &doubt));
            let problems = Problems::of_whole_file(in_order(found, &tree), generation);
            Err(problems.with_parts(read.unwrap_or_default()))
        }
    }
}

/// The parts of a refused table that others look at, without those that could not be read.
fn parts(table: &RoutingTable, doubt: &Doubt) -> ReadParts {
    let mut files = files(table);
    files.retain(|(at, _)| doubt.is_readable(at));
    let mut stream_binds = stream_binds(table);
    stream_binds.retain(|(at, _)| doubt.is_readable(at));
    ReadParts {
        files,
        stream_binds,
        stats: doubt.is_readable("stats").then(|| table.stats.clone()),
    }
}

/// What the whole text is instead of a table: one Problem then says more than one for each of its keys.
fn something_else(tree: &Node) -> Option<Problem> {
    let why = match tree {
        Node::Map(entries) => foreign_map(entries)?,
        Node::Null => "nothing stands in it".to_owned(),
        other => format!("{}, not a table", other.kind()),
    };
    Some(Problem::new("", why, A_TABLE))
}

fn foreign_map(entries: &[Entry]) -> Option<String> {
    let value = |key: &str| {
        let entry = entries.iter().find(|(known, _)| **known == *key);
        entry.map(|(_, value)| value)
    };
    if let (Some(_), Some(kind), None) = (value("apiVersion"), value("kind"), value("version")) {
        let kind = kind.text().map(plain).unwrap_or_default();
        return Some(format!(
            "this is a Kubernetes manifest ({kind}), not a table"
        ));
    }
    let Kind::Map(fields) = Kind::of_table() else {
        return None;
    };
    let is_ours = |key: &str| nearest(key, fields.iter().map(|field| &*field.key)).is_some();
    let mut first = entries.iter().take(LOOKED_AT);
    if entries.is_empty() || value("version").is_some() || first.any(|(key, _)| is_ours(key)) {
        return None;
    }
    let mut keys: Vec<_> = entries.iter().take(3).map(|(key, _)| plain(key)).collect();
    if entries.len() > keys.len() {
        keys.push("…".into());
    }
    let keys = keys.join(", ");
    Some(format!("its keys ({keys}) are none of a table"))
}

/// The text as a tree, or why it is none.
pub(super) fn tree(text: &[u8], format: Format) -> Result<Node, Problem> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let before = &text[..error.valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let why = format!("byte {} is not UTF-8", error.valid_up_to());
        Problem::new(format!("line {line}"), why, "expected a text in UTF-8")
    })?;
    if text.trim().is_empty() {
        return Err(Problem::new("", "the file is empty", A_TABLE));
    }
    match format {
        Format::Json => serde_json::from_str(text).map_err(|error| json_problem(&error)),
        Format::Yaml => match serde_saphyr::from_str_with_options(text, yaml_options(text)) {
            Ok(Node::Null) => Err(Problem::new("", "nothing but comments", A_TABLE)),
            Ok(tree) => Ok(tree),
            Err(error) => Err(yaml_problem(&error)),
        },
    }
}

fn json_problem(error: &serde_json::Error) -> Problem {
    let at = format!("line {}, column {}", error.line(), error.column());
    let why = before(&error.to_string(), " at line ").to_owned();
    Problem::new(
        at,
        format!("is not JSON: {why}"),
        "expected one whole JSON object",
    )
}

fn yaml_problem(error: &serde_saphyr::Error) -> Problem {
    let at = error
        .location()
        .map(|place| format!("line {}, column {}", place.line(), place.column()))
        .unwrap_or_default();
    let words = error.without_snippet().to_string();
    let why = before(before(&words, "\n"), " at line ");
    match why
        .strip_prefix("budget breached: ")
        .map(|breach| before(breach, " ("))
    {
        Some(breach) if breach.starts_with("Documents") => Problem::new(
            at,
            "a second document begins here",
            "expected one YAML document",
        ),
        Some(breach) => {
            let why = format!("asks for more than a table may ({})", before(breach, " {"));
            Problem::new(at, why, "expected fewer aliases, or less nesting")
        }
        None if why.starts_with("alias replay limit") => Problem::new(
            at,
            "the aliases stand for more values than a text of this size may have",
            "write the values out, or use fewer aliases",
        ),
        None => Problem::new(at, format!("is not YAML: {why}"), yaml_remedy(why)),
    }
}

/// What mends a text that is not YAML, by what its reader says of it.
fn yaml_remedy(why: &str) -> &'static str {
    let remedies = REMEDIES.iter().find(|(words, _)| why.contains(words));
    remedies.map_or("expected one whole YAML document", |(_, remedy)| remedy)
}

/// What stands before the first `mark`.
fn before<'t>(text: &'t str, mark: &str) -> &'t str {
    text.split(mark).next().unwrap_or(text)
}

/// YAML 1.2, one document, and no more work than a table of the largest size needs: an alias stands for what it
/// repeats, so that is what is limited, by the size of the text.
pub(super) fn yaml_options(text: &str) -> serde_saphyr::Options {
    let repeated = REPEATED.saturating_add(text.len().saturating_mul(REPEATED_PER_BYTE));
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2 * NODES,
            max_nodes: NODES,
            max_total_scalar_bytes: LARGEST,
            max_aliases: 100_000,
            enforce_alias_anchor_ratio: false,
            max_documents: 1,
            max_depth: 64,
            flow_nesting_limit: 64,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: repeated.min(MOST_REPEATED),
            max_replay_stack_depth: 16,
        },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        underscored_numbers_as_strings: true,
        leading_zero_numbers_as_strings: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    }
}

/// The Problems in the order in which their places stand in the file.
fn in_order(found: Found, tree: &Node) -> Vec<Problem> {
    let mut places: HashMap<String, usize> = HashMap::new();
    places.extend(found.places().map(|at| (at.to_owned(), usize::MAX)));
    let mut passed = 0;
    pass(tree, &mut Place::default(), &mut |at| {
        passed += 1;
        if let Some(position) = places.get_mut(at) {
            *position = passed.min(*position);
        }
    });
    found.sorted(|problem| places.get(&problem.at).copied())
}

/// Passes all places of a tree in the order of the file.
fn pass(node: &Node, at: &mut Place, look: &mut impl FnMut(&str)) {
    look(at);
    match node {
        Node::List(items) => {
            for (index, item) in items.iter().enumerate() {
                let before = at.enter_index(index);
                pass(item, at, look);
                at.leave(before);
            }
        }
        Node::Map(entries) => {
            for (key, value) in entries {
                let before = at.enter_key(key);
                pass(value, at, look);
                at.leave(before);
            }
        }
        _ => {}
    }
}

/// The sections with which configurations of haproxy begin.
const SECTIONS: [&[u8]; 10] = [
    b"global",
    b"defaults",
    b"frontend",
    b"backend",
    b"listen",
    b"resolvers",
    b"userlist",
    b"peers",
    b"cache",
    b"http-errors",
];
/// Words of the reader of YAML, and what mends the text.
const REMEDIES: [(&str, &str); 12] = [
    (
        "unknown anchor",
        r#"put a text that begins with * in quotes, such as "*:80""#,
    ),
    ("tabs", "indent with spaces"),
    ("a tab", "indent with spaces"),
    (
        "unexpected character",
        "put a text that begins with this character in quotes",
    ),
    (
        "a key is one word",
        "put a text that begins with { in quotes",
    ),
    (
        "expected ':'",
        "write KEY: VALUE, with a space behind the colon",
    ),
    (
        "mapping values",
        "put each KEY: VALUE on a line of its own, and a text with a colon and a space in quotes",
    ),
    (
        "quote",
        "expected one whole YAML document, in which a text ends with the quote with which it begins",
    ),
    (
        "bracket",
        "expected one whole YAML document, with ] for each [ and } for each {",
    ),
    (
        "flow mapping",
        "close each { with }, and put commas between",
    ),
    (
        "flow sequence",
        "close each [ with ], and put commas between",
    ),
    (
        "did not find expected",
        "indent the keys of one map alike, and the items of one list alike",
    ),
];
const IMPORT: &str = "have `ballast import` make a table of it";
const A_TABLE: &str = "expected a table, version: 1 at least";

/// Keys that are looked at to find out whether a map is a table.
const LOOKED_AT: usize = 100;

/// The bytes that a table may have.
pub const LARGEST: usize = 64 << 20;

/// Values of a YAML table, which bounds the memory that it takes.
const NODES: usize = 8_000_000;

/// What the aliases of a small text may repeat, and what each of its bytes adds to that: a few lines that stand for millions
/// are refused in a fraction of a second.
const REPEATED: usize = 20_000;
const REPEATED_PER_BYTE: usize = 10;
const MOST_REPEATED: usize = 1_000_000;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
