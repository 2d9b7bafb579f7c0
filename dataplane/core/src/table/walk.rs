//! The walk through a table as it was written, which finds every mistake of form and says what would be right.
//!
//! Each [`Field`] reads itself with the help of one [`Walk`], which knows the place and keeps the Problems. Called by
//! [`super::parse()`] only. What fields mean together is looked at by [`super::check`].

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::check::Doubt;
use super::problems::{Found, Problem};
use super::record::{Field, Leaf, Ranged, Wrong};
use super::span::Shown;
use super::tree::{Entry, Node};

/// Where the walk stands, and what it found.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    at: Place,
    found: Found,
    /// Places that could not be read.
    doubt: Vec<String>,
    /// The range of the number that is read next, where it is narrower than its type.
    limits: Option<(u64, u64)>,
}

/// A place in the table: `services[0].endpoints[1].weight`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Place(String);

impl Place {
    /// The text of it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn enter_key(&mut self, key: &str) -> usize {
        let before = self.0.len();
        if before > 0 {
            self.0.push('.');
        }
        self.0.push_str(&plain(key));
        before
    }

    fn enter_index(&mut self, index: usize) -> usize {
        let before = self.0.len();
        self.0.push_str(&format!("[{index}]"));
        before
    }

    fn leave(&mut self, before: usize) {
        self.0.truncate(before);
    }
}

impl Walk {
    /// What was found, and what could not be read.
    pub(crate) fn finish(self) -> (Found, Doubt) {
        let doubt = Doubt::new(self.doubt, self.found.is_full());
        (self.found, doubt)
    }

    /// Reports that what stands here cannot be read.
    pub(crate) fn report(&mut self, why: impl Into<String>, remedy: impl Into<String>) {
        self.remark(why, remedy);
        self.doubt_about(self.at.0.clone());
    }

    /// Reports a mistake here that leaves the rest readable.
    fn remark(&mut self, why: impl Into<String>, remedy: impl Into<String>) {
        self.found
            .add(|| Problem::new(self.at.as_str(), why, remedy));
    }

    fn doubt_about(&mut self, place: String) {
        if !self.found.is_full() {
            self.doubt.push(place);
        }
    }

    /// Does `work` one step further, below `key`.
    pub(crate) fn below<T>(&mut self, key: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.at.enter_key(key);
        let done = work(self);
        self.at.leave(before);
        done
    }

    /// The entries of a map, after a report of unknown keys and of keys that come twice. `fields` are names of struct
    /// fields.
    pub(crate) fn map<'n>(&mut self, node: &'n Node, fields: &[&str]) -> Option<&'n [Entry]> {
        let map = self.entries(node)?;
        for (key, _) in map {
            if !fields.iter().any(|field| is_key_of(key, field)) {
                self.below(key, |walk| walk.report_unknown(key, fields));
            }
        }
        Some(map)
    }

    /// The entries of a map whose keys are free, after a report of keys that come twice.
    pub(crate) fn entries<'n>(&mut self, node: &'n Node) -> Option<&'n [Entry]> {
        let Node::Map(map) = node else {
            self.report_kind(
                node,
                "a map",
                "expected KEY: VALUE lines, or {KEY: VALUE, …}",
            );
            return None;
        };
        let mut keys: Vec<&str> = map.iter().map(|(key, _)| &**key).collect();
        keys.sort_unstable();
        let mut twice: Vec<&str> = keys
            .windows(2)
            .filter(|pair| pair[0] == pair[1])
            .map(|pair| pair[0])
            .collect();
        twice.dedup();
        for key in twice {
            self.below(key, |walk| {
                walk.remark("this key stands here twice", "keep one of them");
            });
        }
        Some(map)
    }

    /// The value of one field of a map.
    pub(crate) fn field<T: Field>(
        &mut self,
        map: &[Entry],
        field: &str,
        required: bool,
    ) -> Option<T> {
        let Some((key, node)) = map.iter().find(|(key, _)| is_key_of(key, field)) else {
            if required {
                let key = key_of(field);
                self.remark(format!("{key} is missing"), format!("add {key}"));
                let place = self.below(&key, |walk| walk.at.0.clone());
                self.doubt_about(place);
            }
            return None;
        };
        self.below(key, |walk| T::read(node, walk))
    }

    /// The value of one field of a map, which has to lie in a range.
    pub(crate) fn field_in<T: Field + Ranged<B>, B: Bound>(
        &mut self,
        map: &[Entry],
        field: &str,
        required: bool,
        range: &RangeInclusive<B>,
    ) -> Option<T> {
        self.limits = B::numbers(range);
        let value = self.field::<T>(map, field, required);
        self.limits = None;
        if let Some(bounded) = value.as_ref().and_then(Ranged::bounded)
            && !range.contains(bounded)
        {
            let why = format!("{} is out of range", bounded.shown());
            let remedy = format!(
                "expected {} to {}",
                range.start().shown(),
                range.end().shown()
            );
            self.below(&key_of(field), |walk| walk.report(why, remedy));
            return None;
        }
        value
    }

    /// A piece of text of the form that `T` has.
    pub(crate) fn leaf<T: Leaf>(&mut self, node: &Node) -> Option<T> {
        let Some(text) = node.text() else {
            let remedy = match node {
                Node::Number(_) | Node::Negative(_) | Node::Fraction(_) | Node::Truth(_) => {
                    format!("expected {}, in quotes", T::FORM)
                }
                _ => format!("expected {}", T::FORM),
            };
            self.report_kind(node, T::WHAT, remedy);
            return None;
        };
        match T::parse(text) {
            Ok(value) => Some(value),
            Err(wrong) => {
                self.report(format!("{} {}", quoted(text), wrong.why), wrong.remedy);
                None
            }
        }
    }

    /// A whole number up to `most`, or in the range that its field has.
    pub(crate) fn number(&mut self, node: &Node, most: u64) -> Option<u64> {
        let (least, most) = self.limits.take().unwrap_or((0, most));
        match node {
            Node::Number(number) if (least..=most).contains(number) => return Some(*number),
            Node::Number(number) => self.report_range(number, least, most),
            Node::Negative(number) => self.report_range(number, least, most),
            // JSON's and YAML's readers give whole numbers that no integer holds as fractions.
            Node::Fraction(number) if number.fract() == 0.0 && number.abs() >= BEYOND => {
                self.report_range(number, least, most);
            }
            _ => self.report_kind(
                node,
                "a whole number",
                "expected a whole number, without quotes",
            ),
        }
        None
    }

    /// A whole number from 1 up to `most`.
    pub(crate) fn positive(&mut self, node: &Node, most: u64) -> Option<u64> {
        self.limits = Some((1, most));
        self.number(node, most)
    }

    /// [`Walk::positive`], for what is unlimited where it is absent.
    pub(crate) fn limit(&mut self, node: &Node, most: u64) -> Option<u64> {
        if matches!(node, Node::Number(0)) {
            let remedy = format!("expected 1 to {most}, or leave the key out");
            self.report("0 does not mean unlimited", remedy);
            return None;
        }
        self.positive(node, most)
    }

    /// true or false.
    pub(crate) fn truth(&mut self, node: &Node) -> Option<bool> {
        if let Node::Truth(truth) = node {
            return Some(*truth);
        }
        self.report_kind(
            node,
            "true or false",
            "expected true or false, without quotes",
        );
        None
    }

    /// The items of a list; what cannot be read is reported and stood in for, so that the others keep their places.
    pub(crate) fn list<T: Field>(&mut self, node: &Node) -> Option<Vec<T>> {
        let Node::List(items) = node else {
            self.report_kind(node, "a list", "expected [ITEM, …]");
            return None;
        };
        let mut list = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let before = self.at.enter_index(index);
            list.push(T::read(item, self).unwrap_or_else(T::stand_in));
            self.at.leave(before);
        }
        Some(list)
    }

    /// A list must say something.
    pub(crate) fn report_empty_list(&mut self) {
        self.report(
            "this list is empty",
            "put something in, or leave the key out",
        );
    }

    /// A `T` where `off` would do as well.
    pub(crate) fn or_off<T: Field>(&mut self, node: &Node) -> Option<T> {
        let value = T::read(node, self);
        if value.is_none() {
            self.found.amend_last(self.at.as_str(), ", or off");
        }
        value
    }

    fn report_range(&mut self, number: impl Display, least: u64, most: u64) {
        self.report(
            format!("{number} is out of range"),
            format!("expected {least} to {most}"),
        );
    }

    fn report_kind(&mut self, node: &Node, what: &str, remedy: impl Into<String>) {
        let why = match node {
            Node::Null => "no value stands here".to_owned(),
            other => format!("{}, not {what}", other.kind()),
        };
        let remedy: String = remedy.into();
        match node {
            Node::Null => self.report(why, format!("{remedy}, or leave it out")),
            _ => self.report(why, remedy),
        }
    }

    fn report_unknown(&mut self, key: &str, fields: &[&str]) {
        if self.found.is_full() {
            return self.remark("", "");
        }
        let remedy = match nearest_key(key, fields) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("known keys are {}", keys_of(fields).join(", ")),
        };
        self.remark("is not a known key", remedy);
    }
}

/// What a range is made of.
pub(crate) trait Bound: PartialOrd {
    /// The range in numbers, where it is one of numbers.
    fn numbers(range: &RangeInclusive<Self>) -> Option<(u64, u64)>
    where
        Self: Sized;

    /// The value for people.
    fn shown(&self) -> String;
}

impl Bound for Duration {
    fn numbers(_: &RangeInclusive<Self>) -> Option<(u64, u64)> {
        None
    }

    fn shown(&self) -> String {
        Shown(*self).to_string()
    }
}

/// The Problem of a word that is none of `words`.
pub(crate) fn not_a_word(what: &str, text: &str, words: &[&str]) -> Wrong {
    let all = match words {
        [first, second] => format!("{first} or {second}"),
        _ => words.join(", "),
    };
    let remedy = match nearest(text, words.iter().copied()) {
        Some(near) => format!("did you mean {near}? known: {all}"),
        None => format!("expected {all}"),
    };
    Wrong::new(format!("is not {what}"), remedy)
}

/// `text` in quotes, shortened and without control characters, so that it fits a line.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    format!("{short:?}")
}

/// The one of `known` that `word` was probably meant to be.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word: Vec<char> = word.chars().take(SHOWN).collect();
    let far = (word.len() / 3).clamp(1, 3) + 1;
    let mut best = (far, None);
    for candidate in known {
        let length = candidate.chars().count();
        if length.abs_diff(word.len()) >= best.0 {
            continue;
        }
        let distance = distance(&word, candidate);
        if distance < best.0 {
            best = (distance, Some(candidate));
        }
    }
    best.1
}

/// The key of one of these fields that `key` is or was probably meant to be.
pub(crate) fn nearest_key(key: &str, fields: &[&str]) -> Option<String> {
    let known = keys_of(fields);
    nearest(key, known.iter().map(String::as_str)).map(str::to_owned)
}

/// How many letters must be changed, added, left out or swapped with their neighbour.
fn distance(word: &[char], other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, &a) in word.iter().enumerate() {
        let mut row = vec![i + 1; other.len() + 1];
        for (j, &b) in other.iter().enumerate() {
            let change = last[j] + usize::from(!a.eq_ignore_ascii_case(&b));
            row[j + 1] = change.min(last[j + 1] + 1).min(row[j] + 1);
            let swapped = i > 0 && j > 0 && word[i - 1] == b && other[j - 1] == a;
            if swapped {
                row[j + 1] = row[j + 1].min(before_last[j - 1] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

/// A key as it can stand in a place: on one line, and not too long.
pub(crate) fn plain(key: &str) -> Cow<'_, str> {
    match key.len() <= SHOWN && !key.chars().any(char::is_control) {
        true => Cow::Borrowed(key),
        false => Cow::Owned(quoted(key)),
    }
}

/// Whether `key` is the key in the table of a field of a struct.
fn is_key_of(key: &str, field: &str) -> bool {
    let field = field.trim_start_matches("r#").as_bytes();
    let key = key.as_bytes();
    key.len() == field.len()
        && key
            .iter()
            .zip(field)
            .all(|(in_key, in_field)| match in_field {
                b'_' => *in_key == b'-',
                letter => in_key == letter,
            })
}

fn keys_of(fields: &[&str]) -> Vec<String> {
    fields.iter().map(|field| key_of(field)).collect()
}

/// The key in the table of a field of a struct.
fn key_of(field: &str) -> String {
    field.trim_start_matches("r#").replace('_', "-")
}

/// Characters of a text that a Problem shows.
const SHOWN: usize = 60;

/// Every whole number below this is one that an integer holds.
const BEYOND: f64 = 9.2e18;
