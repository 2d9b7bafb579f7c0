//! Mistakes of form: everything in a tree that the schema refuses, with the place, the reason and the remedy.
//!
//! The walk is our own. The crate `jsonschema` brings more than fifty others, knows neither the order of the file nor keys
//! that come twice, and says that a text misses a pattern where people need to hear why it is no address. What is
//! refused is taken out of the tree, so that the rest can be read and its meaning checked.

use super::check::Doubt;
use super::leaf::Wrong;
use super::problems::{Found, Place, Problem, STANDS_TWICE, nearest, quoted};
use super::schema::{Field, Kind, Range, Rule};
use super::tree::{Entry, Node};

/// Finds every mistake of form, and mends the tree: a refused value is passed over from then on, or replaced by a
/// stand-in where one has to be there. Nothing is said later about the meaning of what is in [`Doubt`].
pub(super) fn mend(tree: &mut Node) -> (Found, Doubt) {
    let mut walk = Walk::default();
    walk.value(tree, Kind::of_table());
    let doubt = Doubt::new(walk.doubt, walk.found.is_full());
    (walk.found, doubt)
}

/// The texts of a tree without mistakes of form that hardly mean what they say.
pub(super) fn doubtful(mut tree: Node) -> Vec<Problem> {
    let mut walk = Walk::default();
    walk.value(&mut tree, Kind::of_table());
    walk.doubtful
}

/// Where the walk stands, and what it found.
#[derive(Default)]
struct Walk {
    at: Place,
    found: Found,
    /// Places whose values were refused.
    doubt: Vec<String>,
    /// Texts that are good, and hardly mean what they say.
    doubtful: Vec<Problem>,
}

impl Walk {
    /// Whether the value is of this kind. If it is not, that was reported.
    fn value(&mut self, node: &mut Node, kind: &Kind) -> bool {
        match kind {
            Kind::Leaf(rule) => self.leaf(node, rule),
            Kind::Words { what, words } => self.word(node, what, words),
            Kind::Number(range) => self.number(node, *range),
            Kind::Truth => {
                let remedy = "expected true or false, without quotes";
                matches!(node, Node::Truth(_)) || self.refuse_kind(node, "true or false", remedy)
            }
            Kind::List { item, may_be_empty } => self.list(node, item, *may_be_empty),
            Kind::Map(fields) => match node {
                Node::Map(entries) => self.map(entries, fields),
                _ => self.refuse_kind(node, "a map", A_MAP),
            },
            Kind::OneOf {
                what,
                forms,
                fields,
            } => match node {
                Node::Map(entries) => self.one_of(entries, what, forms, fields),
                _ => self.refuse_kind(node, "a map", A_MAP),
            },
            Kind::Free { key, value } => match node {
                Node::Map(entries) => self.free(entries, key, value),
                _ => self.refuse_kind(node, "a map", A_MAP),
            },
            Kind::OrOff(kind) => {
                let is_good = node.text() == Some("off") || self.value(node, kind);
                if !is_good {
                    self.found.amend_last(&self.at, ", or off");
                }
                is_good
            }
            Kind::OrMap { map, .. } if matches!(node, Node::Map(_)) => self.value(node, map),
            Kind::OrMap { value, .. } => {
                let is_good = self.value(node, value);
                if !is_good {
                    self.found.amend_last(&self.at, ", or {KEY: VALUE, …}");
                }
                is_good
            }
        }
    }

    fn leaf(&mut self, node: &Node, rule: &Rule) -> bool {
        let Some(text) = node.text() else {
            return self.refuse_text_kind(node, rule.what, rule.form);
        };
        match (rule.parse)(text) {
            Ok(()) => {
                if let Some(Wrong { why, remedy }) = (rule.doubt)(text) {
                    let why = format!("{} {why}", quoted(text));
                    self.doubtful.push(Problem::new(&*self.at, why, remedy));
                }
                true
            }
            Err(wrong) => self.refuse_text(text, wrong),
        }
    }

    /// A word that is only wrong in upper and lower case is reported and then read as what it must mean, so that what depends on
    /// it is checked, too.
    fn word(&mut self, node: &mut Node, what: &str, words: &[String]) -> bool {
        let all = match words {
            [first, second] => format!("{first} or {second}"),
            _ => words.join(", "),
        };
        let Some(text) = node.text() else {
            // Only words such as 1.2 need quotes.
            if words
                .iter()
                .any(|word| word.starts_with(|first: char| first.is_ascii_digit()))
            {
                return self.refuse_text_kind(node, what, &all);
            }
            return self.refuse_kind(node, what, &format!("expected {all}"));
        };
        if words.iter().any(|word| word == text) {
            return true;
        }
        let why = format!("is not {what}");
        if let Some(word) = words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
            self.remark(
                format!("{} {why}", quoted(text)),
                format!("did you mean {word}?"),
            );
            *node = Node::Text(word.as_str().into());
            return true;
        }
        let known = || words.iter().map(String::as_str);
        let near = meant(text, known()).or_else(|| known().find(|known| is_called(known, text)));
        let remedy = match near {
            Some(near) if text.len() > SHORT => format!("did you mean {near}? known: {all}"),
            _ => format!("expected {all}"),
        };
        self.refuse_text(text, Wrong::new(why, remedy))
    }

    fn number(&mut self, node: &Node, range: Range) -> bool {
        let Range {
            least,
            most,
            is_limit,
        } = range;
        let number = match node {
            Node::Number(0) if is_limit => {
                let remedy = format!("expected 1 to {most}, or leave the key out");
                return self.refuse("0 does not mean unlimited", remedy);
            }
            Node::Number(number) if (least..=most).contains(number) => return true,
            Node::Number(number) => number.to_string(),
            Node::Negative(number) => number.to_string(),
            // JSON's and YAML's readers give whole numbers that no integer holds as fractions, which have lost their last digits.
            Node::Fraction(number) if number.fract() == 0.0 && number.abs() >= BEYOND => {
                "this number".to_owned()
            }
            _ => {
                let remedy = "expected a whole number, without quotes";
                return self.refuse_kind(node, "a whole number", remedy);
            }
        };
        self.refuse(
            format!("{number} is out of range"),
            format!("expected {least} to {most}"),
        )
    }

    /// A refused item has a stand-in, so that the others keep their places.
    fn list(&mut self, node: &mut Node, kind: &Kind, may_be_empty: bool) -> bool {
        let Node::List(items) = node else {
            let remedy = match node {
                Node::Text(text) => format!("a list of one is [{}]", quoted(text)),
                _ => "expected [ITEM, …]".to_owned(),
            };
            return self.refuse_kind(node, "a list", &remedy);
        };
        if items.is_empty() && !may_be_empty {
            let remedy = "put something in, or leave the key out";
            return self.refuse("this list is empty", remedy);
        }
        for (index, item) in items.iter_mut().enumerate() {
            let before = self.at.enter_index(index);
            if !self.value(item, kind) {
                *item = kind.stand_in();
            }
            self.at.leave(before);
        }
        true
    }

    fn map(&mut self, entries: &mut Box<[Entry]>, fields: &[Field]) -> bool {
        self.fields(entries, fields);
        for field in fields.iter().filter(|field| field.is_required) {
            let key = &field.key;
            if !entries.iter().any(|(known, _)| **known == **key) {
                // At the top one key is required: version.
                let value = if self.at.is_empty() { ": 1" } else { "" };
                self.remark(format!("{key} is missing"), format!("add {key}{value}"));
                self.below(key, Self::doubt_this);
                let mut more = std::mem::take(entries).into_vec();
                more.push(field.stand_in());
                *entries = more.into();
            }
        }
        true
    }

    fn one_of(
        &mut self,
        entries: &mut [Entry],
        what: &str,
        forms: &[String],
        fields: &[Field],
    ) -> bool {
        self.fields(entries, fields);
        let first_of = |field: &Field| entries.iter().find(|(key, _)| **key == *field.key);
        match fields.iter().filter_map(first_of).collect::<Vec<_>>()[..] {
            [(_, value)] => *value != Node::Refused,
            [] => self.refuse(
                format!("is not {what}"),
                format!("expected {}", forms.join(" or ")),
            ),
            ref several => {
                let keys: Vec<&str> = several.iter().map(|(key, _)| &**key).collect();
                let why = format!("has {} at once, and is not {what}", keys.join(" and "));
                self.refuse(why, format!("expected {}", forms.join(" or ")))
            }
        }
    }

    /// Looks at the values of known keys, and reports all other keys.
    fn fields(&mut self, entries: &mut [Entry], fields: &[Field]) {
        self.refuse_repeated(entries);
        for (key, value) in entries {
            let Some(field) = fields.iter().find(|field| *field.key == **key) else {
                *value = Node::Refused;
                self.below(key, |walk| walk.report_unknown(key, fields));
                continue;
            };
            let is_good =
                *value == Node::Refused || self.below(key, |walk| walk.value(value, &field.kind));
            if !is_good {
                *value = if field.is_required {
                    field.kind.stand_in()
                } else {
                    Node::Refused
                };
            }
        }
    }

    fn free(&mut self, entries: &mut [Entry], rule: &Rule, kind: &Kind) -> bool {
        self.refuse_repeated(entries);
        for (key, value) in entries {
            if *value == Node::Refused {
                continue;
            }
            self.below(key, |walk| {
                if !walk.value(value, kind) {
                    *value = kind.stand_in();
                }
                if let Err(wrong) = (rule.parse)(key) {
                    *value = Node::Refused;
                    walk.refuse_text(key, wrong);
                }
            });
        }
        true
    }

    /// Of a key that stands in one map several times, the first one counts.
    fn refuse_repeated(&mut self, entries: &mut [Entry]) {
        let mut order: Vec<usize> = (0..entries.len()).collect();
        order.sort_by(|one, other| entries[*one].0.cmp(&entries[*other].0));
        for pair in order.windows(2) {
            let (earlier, later) = (&entries[pair[0]], &entries[pair[1]]);
            if earlier.0 == later.0 {
                let remedy = "keep one of them";
                self.below(&later.0, |walk| {
                    walk.remark(STANDS_TWICE, remedy);
                });
                entries[pair[1]].1 = Node::Refused;
            }
        }
    }

    /// Does `work` one step further, below `key`.
    fn below<T>(&mut self, key: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.at.enter_key(key);
        let done = work(self);
        self.at.leave(before);
        done
    }

    /// Reports a mistake here that leaves the rest readable.
    fn remark(&mut self, why: impl Into<String>, remedy: impl Into<String>) {
        self.found.add(|| Problem::new(&*self.at, why, remedy));
    }

    /// Reports that the value here is refused. Always false, for the caller to return.
    fn refuse(&mut self, why: impl Into<String>, remedy: impl Into<String>) -> bool {
        self.remark(why, remedy);
        self.doubt_this();
        false
    }

    fn doubt_this(&mut self) {
        if !self.found.is_full() {
            self.doubt.push(self.at.to_owned());
        }
    }

    fn refuse_text(&mut self, text: &str, wrong: Wrong) -> bool {
        self.refuse(format!("{} {}", quoted(text), wrong.why), wrong.remedy)
    }

    /// Refuses what is no text.
    fn refuse_text_kind(&mut self, node: &Node, what: &str, form: &str) -> bool {
        let quotes = match node {
            Node::List(_) | Node::Map(_) | Node::Null => "",
            _ => ", in quotes",
        };
        self.refuse_kind(node, what, &format!("expected {form}{quotes}"))
    }

    fn refuse_kind(&mut self, node: &Node, what: &str, remedy: &str) -> bool {
        match node {
            Node::Null => self.refuse("no value stands here", format!("{remedy}, or leave it out")),
            other => self.refuse(format!("{}, not {what}", other.kind()), remedy),
        }
    }

    fn report_unknown(&mut self, key: &str, fields: &[Field]) {
        let known = || fields.iter().map(|field| field.key.as_str());
        let near = || meant(key, known()).or_else(|| known().find(|known| is_called(known, key)));
        let remedy = || match (elsewhere(&self.at), near()) {
            (Some(remedy), _) => remedy.to_owned(),
            (None, Some(near)) => format!("did you mean {near}?"),
            (None, None) => format!("known keys are {}", known().collect::<Vec<_>>().join(", ")),
        };
        let at = &*self.at;
        self.found
            .add(|| Problem::new(at, "is not a known key", remedy()));
    }
}

/// The one of these that a word was probably meant to be: one that is nearly the same, or the only one that begins so.
fn meant<'k>(word: &str, known: impl Iterator<Item = &'k str> + Clone) -> Option<&'k str> {
    let begins = |known: &&str| word.len() >= BEGINNING && known.starts_with(word);
    nearest(word, known.clone()).or_else(|| {
        let mut all = known.filter(begins);
        all.next().filter(|_| all.next().is_none())
    })
}

/// Whether haproxy, or another load balancer, calls this key so.
fn is_called(known: &str, word: &str) -> bool {
    let word = word.to_lowercase().replace('_', "-");
    CALLED
        .iter()
        .any(|(key, words)| *key == known && words.contains(&&*word))
}

/// The remedy for a key that is known, but not at this place.
fn elsewhere(at: &str) -> Option<&'static str> {
    let (parent, key) = at.rsplit_once('.')?;
    let parent = parent.replace(|letter: char| letter.is_ascii_digit(), "");
    let found = ELSEWHERE
        .iter()
        .find(|(place, keys, _)| *place == parent && keys.contains(&key));
    found.map(|(_, _, remedy)| *remedy)
}

/// Letters of a beginning that say enough.
const BEGINNING: usize = 3;
/// Places without their numbers, keys that stand elsewhere, and what to do.
const ELSEWHERE: [(&str, &[&str], &str); 3] = [
    (
        "frontends[].timeouts",
        &["connect", "queue", "server", "server-fin", "tunnel"],
        "it belongs to services[].timeouts",
    ),
    (
        "services[].timeouts",
        &[
            "client",
            "client-fin",
            "preamble",
            "request",
            "keep-alive",
            "idle",
        ],
        "it belongs to frontends[].timeouts",
    ),
    ("services[].endpoints[]", &["backup"], "write state: backup"),
];
/// Keys and words, and what others call them.
const CALLED: [(&str, &[&str]); 14] = [
    (
        "services",
        &["backends", "backend", "upstreams", "upstream", "clusters"],
    ),
    (
        "frontends",
        &["listeners", "listener", "listen", "servers", "entrypoints"],
    ),
    (
        "endpoints",
        &[
            "servers",
            "server",
            "targets",
            "members",
            "backends",
            "addresses",
        ],
    ),
    ("default", &["default-backend", "use-backend"]),
    (
        "service",
        &["backend", "upstream", "use-backend", "default-backend"],
    ),
    ("algorithm", &["balance", "strategy", "lb-policy"]),
    ("max-connections", &["maxconn", "fullconn"]),
    (
        "health",
        &["check", "healthcheck", "health-check", "option"],
    ),
    ("protocol", &["mode"]),
    ("path", &["uri", "url"]),
    ("request", &["http-request"]),
    ("keep-alive", &["http-keep-alive"]),
    ("least-connections", &["leastconn", "least-conn"]),
    (
        "source-hash",
        &["source", "ip-hash", "maglev", "maglev-hash"],
    ),
];

/// Letters of words between which there is no likeness.
const SHORT: usize = 2;

const A_MAP: &str = "expected KEY: VALUE lines, or {KEY: VALUE, …}";

/// Every whole number below this is one that an integer holds.
const BEYOND: f64 = 9.2e18;
