//! Where in its text a table has a place, for people: `line 12, column 7: services[3] (web).health`.
//!
//! Used where a table is refused: its text is read once more, with the position of each value. JSON is read as the YAML that it
//! is, too.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use super::parse::{LARGEST, yaml_options};
use super::problems::{Place, Problem, STANDS_TWICE, plain};
use super::tree::Key;

/// The problems as lines, each with its position in `text`, and with the names of the frontends, services and other items in its
/// place. A key that stands there again has the position where it does, and the line of the first one.
pub fn located(text: &[u8], problems: &[Problem]) -> Vec<String> {
    let places = problems.iter().filter(|problem| !problem.is_of_others());
    let found = Found::of(text, places.map(|problem| problem.at.as_str()));
    problems
        .iter()
        .map(|problem| {
            let (at, why) = match found.repeated(problem) {
                Some((first, again)) => {
                    let why = format!("{}, first in line {}", problem.why, first.line);
                    (found.describe(&problem.at, Some(again)), why)
                }
                None if problem.is_of_others() => (String::new(), problem.why.clone()),
                None => {
                    let position = found.nearest(&problem.at);
                    (found.describe(&problem.at, position), problem.why.clone())
                }
            };
            Problem::new(at, why, &*problem.remedy).to_string()
        })
        .collect()
}

/// What was found of places.
#[derive(Default)]
struct Found {
    /// Line and column of the places that are looked for. The place of the whole text is that of its first key, item or value.
    positions: HashMap<String, Position>,
    /// Where a key stands in the same map for the last time.
    again: HashMap<String, Position>,
    /// The names of the items of lists on the way to them.
    names: HashMap<String, Box<str>>,
}

#[derive(Clone, Copy)]
struct Position {
    line: u64,
    column: u64,
}

impl Found {
    fn of<'p>(text: &[u8], places: impl Iterator<Item = &'p str>) -> Self {
        let wanted: HashSet<&str> = places.flat_map(steps).collect();
        let mut found = Self::default();
        let Ok(text) = std::str::from_utf8(text) else {
            return found;
        };
        if wanted.is_empty() || text.len() > LARGEST {
            return found;
        }
        let read = serde_saphyr::from_str_with_options::<Spanned<Tree>>(text, yaml_options(text));
        let whole = match read {
            _ if text.trim().is_empty() => Position { line: 1, column: 1 },
            Ok(tree) => {
                found.walk(&tree.value, &mut Place::default(), &wanted);
                Position::from(&tree)
            }
            // A text that cannot be read has no places, but problems that name their line.
            Err(_) => return found,
        };
        found.positions.insert(String::new(), whole);
        found
    }

    fn walk(&mut self, tree: &Tree, at: &mut Place, wanted: &HashSet<&str>) {
        match tree {
            Tree::List(items) => {
                for (index, (position, item)) in items.iter().enumerate() {
                    let before = at.enter_index(index);
                    if wanted.contains(&**at) {
                        self.positions.insert(at.to_owned(), *position);
                        if let Some(name) = item.name() {
                            self.names.insert(at.to_owned(), plain(name).into());
                        }
                        self.walk(item, at, wanted);
                    }
                    at.leave(before);
                }
            }
            Tree::Map(entries) => {
                for (key, position, value) in entries {
                    let before = at.enter_key(key);
                    if wanted.contains(&**at) {
                        // Of a key that stands there again, the first one was read.
                        match self.positions.entry(at.to_owned()) {
                            Entry::Vacant(free) => {
                                free.insert(*position);
                                self.walk(value, at, wanted);
                            }
                            Entry::Occupied(first) => {
                                self.again.insert(first.key().clone(), *position);
                            }
                        }
                    }
                    at.leave(before);
                }
            }
            Tree::Text(_) | Tree::Other => {}
        }
    }

    /// Where a key stands first, and where again, if that is what is wrong.
    fn repeated(&self, problem: &Problem) -> Option<(Position, Position)> {
        let positions = || {
            Some((
                *self.positions.get(&problem.at)?,
                *self.again.get(&problem.at)?,
            ))
        };
        positions().filter(|_| problem.why == STANDS_TWICE)
    }

    /// The position of a place. A key that is missing is looked for where it should be.
    fn nearest(&self, at: &str) -> Option<Position> {
        let found = steps(at).filter_map(|step| self.positions.get(step));
        found.last().copied()
    }

    /// The place with its names, behind this position.
    fn describe(&self, at: &str, position: Option<Position>) -> String {
        let mut words = String::new();
        let mut shown = 0;
        for step in steps(at) {
            if let Some(name) = self.names.get(step) {
                let rest = at.get(shown..step.len()).unwrap_or_default();
                words.push_str(&format!("{rest} ({name})"));
                shown = step.len();
            }
        }
        words.push_str(at.get(shown..).unwrap_or_default());
        match position {
            Some(Position { line, column }) if words.is_empty() => {
                format!("line {line}, column {column}")
            }
            Some(Position { line, column }) => format!("line {line}, column {column}: {words}"),
            None => words,
        }
    }
}

/// `frontends`, `frontends[0]`, `frontends[0].bind` and so on, up to the whole place.
fn steps(at: &str) -> impl Iterator<Item = &str> {
    let ends = at
        .char_indices()
        .filter(|(index, letter)| *index > 0 && ['.', '['].contains(letter));
    let ends = ends.map(|(index, _)| index);
    ends.chain([at.len()]).filter_map(|end| at.get(..end))
}

/// What a text holds, with the position of each key and each item of a list.
enum Tree {
    /// The name of something.
    Text(Box<str>),
    List(Box<[(Position, Self)]>),
    Map(Box<[(Key, Position, Self)]>),
    Other,
}

impl Tree {
    fn name(&self) -> Option<&str> {
        let Self::Map(entries) = self else {
            return None;
        };
        entries.iter().find_map(|(key, _, value)| match value {
            Self::Text(name) if **key == *"name" => Some(&**name),
            _ => None,
        })
    }
}

impl<T> From<&Spanned<T>> for Position {
    fn from(spanned: &Spanned<T>) -> Self {
        Self {
            line: spanned.referenced.line(),
            column: spanned.referenced.column(),
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_none<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Tree>>()? {
            list.push((Position::from(&item), item.value));
        }
        Ok(Tree::List(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<Key>>()? {
            let value = entries.next_value::<Tree>()?;
            // Of the texts, only names are wanted.
            let value = match value {
                Tree::Text(_) if *key.value != *"name" => Tree::Other,
                value => value,
            };
            map.push((key.value.clone(), Position::from(&key), value));
        }
        Ok(Tree::Map(map.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, parse};
    use super::*;

    fn lines(text: &str, places: &[&str]) -> Vec<String> {
        let problems = places.iter().map(|at| Problem::new(*at, "why", "remedy"));
        let lines = located(text.as_bytes(), &problems.collect::<Vec<_>>());
        let place = |line: String| line.strip_suffix(": why; remedy").map(str::to_owned);
        lines.into_iter().map(|line| place(line).unwrap()).collect()
    }

    #[test]
    fn a_place_has_its_line_its_column_and_its_names() {
        let text = "version: 1
services:
  - name: web
    retires: 3
    endpoints:
      - {address: \"x\", name: one}
      - {address: \"x\"}
  - {endpoints: [{weight: 3}], name: \"a b\"}
";
        for (place, line) in [
            ("version", "line 1, column 1: version"),
            ("services[0]", "line 3, column 5: services[0] (web)"),
            (
                "services[0].retires",
                "line 4, column 5: services[0] (web).retires",
            ),
            (
                "services[0].endpoints[0].address",
                "line 6, column 10: services[0] (web).endpoints[0] (one).address",
            ),
            (
                "services[0].endpoints[1].address",
                "line 7, column 10: services[0] (web).endpoints[1].address",
            ),
            (
                "services[1].endpoints[0].weight",
                "line 8, column 19: services[1] (a b).endpoints[0].weight",
            ),
            // A field that the table does not have: the place of the nearest field around it.
            (
                "services[0].health.mode",
                "line 3, column 5: services[0] (web).health.mode",
            ),
            ("frontends", "frontends"),
        ] {
            assert_eq!(lines(text, &[place]), [line]);
        }
    }

    #[test]
    fn json_has_positions_as_well() {
        let text = "{\"services\": [\n\t{\"name\": \"web\",\n\t \"retires\": 3}]}";
        assert_eq!(
            lines(text, &["services[0].retires"]),
            ["line 3, column 3: services[0] (web).retires"]
        );
    }

    #[test]
    fn what_the_whole_text_lacks_or_is_has_the_line_where_that_begins() {
        for (text, format, expected) in [
            (
                "# A comment\n\nservices: []\n",
                Format::Yaml,
                "line 3, column 1: version is missing; add version: 1",
            ),
            (
                "{\"services\": []}",
                Format::Json,
                "line 1, column 1: version is missing; add version: 1",
            ),
            (
                "",
                Format::Yaml,
                "line 1, column 1: the file is empty; expected a table, version: 1 at least",
            ),
            (
                " \n\n",
                Format::Json,
                "line 1, column 1: the file is empty; expected a table, version: 1 at least",
            ),
            (
                "# a\n- x\n- y\n",
                Format::Yaml,
                "line 2, column 1: this is a list, not a table; expected a table, version: 1 at least",
            ),
            (
                "\n[1]",
                Format::Json,
                "line 2, column 1: this is a list, not a table; expected a table, version: 1 at least",
            ),
            (
                "hello",
                Format::Yaml,
                "line 1, column 1: \"hello\" is a text, not a table; expected a table, version: 1 at least",
            ),
            (
                "a: 1",
                Format::Yaml,
                "line 1, column 1: its keys (a) are none of a table; expected a table, version: 1 at least",
            ),
        ] {
            let problems = parse(text.as_bytes(), format).unwrap_err();
            assert_eq!(located(text.as_bytes(), &problems), [expected], "{text}");
        }
        let comments = parse(b"# a\n# b\n", Format::Yaml).unwrap_err();
        let lines = located(b"# a\n# b\n", &comments).join("\n");
        assert!(lines.starts_with("line "), "{lines}");
        assert!(
            lines.ends_with(": nothing but comments; expected a table, version: 1 at least"),
            "{lines}"
        );
        let bytes = b"version: 1\n# \xff\n";
        let lines = located(bytes, &parse(bytes, Format::Yaml).unwrap_err());
        assert_eq!(
            lines,
            ["line 2: byte 13 is not UTF-8; expected a text in UTF-8"]
        );
    }

    #[test]
    fn a_key_that_stands_twice_names_the_line_of_the_first_one() {
        for (text, format, expected) in [
            (
                "version: 1\nservices:\n  - {name: a, retires: 1, endpoints: []}\ngeneration: 2\nservices:\n  - {}\n  - {}\n",
                Format::Yaml,
                &[
                    "line 5, column 1: services: this key stands here twice, first in line 2; keep one of them",
                    "line 3, column 15: services[0] (a).retires: is not a known key; did you mean retries?",
                ][..],
            ),
            (
                "{\"version\": 1,\n\"services\": [{\"name\": \"a\",\n\"name\": \"b\", \"endpoints\": [],\n\"name\": \"c\"}]}",
                Format::Json,
                &[
                    "line 4, column 1: services[0] (a).name: this key stands here twice, first in line 2; keep one of them",
                ],
            ),
        ] {
            let problems = parse(text.as_bytes(), format).unwrap_err();
            assert_eq!(located(text.as_bytes(), &problems), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_found_is_said_without_a_position() {
        assert_eq!(lines("[", &["services[0]"]), ["services[0]"]);
        let whole = Problem::new("", "why", "remedy");
        assert_eq!(located(b"[", &[whole]), ["why; remedy"]);
        let others = Problem::new("", "7 more problems are not shown", "correct these first");
        assert_eq!(
            located(b"a: 1", &[others]),
            ["7 more problems are not shown; correct these first"]
        );
        assert_eq!(located(b"\xff", &[]), Vec::<String>::new());
    }
}
