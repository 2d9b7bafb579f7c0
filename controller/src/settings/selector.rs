//! Label selectors in Kubernetes' syntax: `role=loadbalancer, zone in (a, b), !spare`. Used by flags and annotations, and as
//! objects have them.
//!
//! The `kube` crate evaluates and prints selectors, but has no parser for their text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Expression, SelectorExt};

/// Which labels a node must have: every expression must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(kube::core::Selector);

impl Selector {
    /// Whether a node with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.matches(labels)
    }

    /// What both select.
    pub fn and(&self, other: &Self) -> Self {
        let mut both = self.0.clone();
        both.extend(other.0.clone());
        Self(both)
    }

    /// Reads the list that OpenStack's users write: `key=value` or `key`, comma separated. Everything after the first `=` is
    /// the value, further `=` included.
    pub fn from_openstack(text: &str) -> Result<Self, String> {
        let expression = |part: &str| {
            let (key, value) = match part.split_once('=') {
                Some((key, value)) => (key.trim(), Some(value.trim())),
                None => (part.trim(), None),
            };
            is_key(key).then(|| match value {
                Some(value) => Expression::Equal(key.to_owned(), value.to_owned()),
                None => Expression::Exists(key.to_owned()),
            })
        };
        let selector: Option<kube::core::Selector> = text.split(',').map(expression).collect();
        selector.map(Self).ok_or_else(|| {
            "is not a selector of nodes; expected key=value or key, comma separated".to_owned()
        })
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expressions = Tokens { rest: text }.expressions();
        expressions
            .map(|expressions| Self(expressions.into_iter().collect()))
            .ok_or_else(|| {
                "is not a selector of nodes; expected key=value, key==value, key!=value, key in (a, b), key notin (a, b), key or !key, comma separated"
                    .to_owned()
            })
    }
}

/// From an object's `matchLabels` and `matchExpressions`. Without either, everything is selected.
impl TryFrom<LabelSelector> for Selector {
    type Error = String;

    fn try_from(object: LabelSelector) -> Result<Self, String> {
        kube::core::Selector::try_from(object)
            .map(Self)
            .map_err(|error| error.to_string())
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The part of a selector's text that is not parsed yet.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    /// The next operator, bracket, comma or word.
    fn next(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start();
        let mut symbols = ["!=", "==", "=", "!", "(", ")", ","].into_iter();
        let symbol = symbols.find(|symbol| self.rest.starts_with(symbol));
        let ends = |letter: char| letter.is_whitespace() || "!=(),".contains(letter);
        let length = symbol.map(str::len).or_else(|| self.rest.find(ends));
        let length = length.unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }

    fn peek(mut self) -> Option<&'a str> {
        self.next()
    }

    /// All expressions; `None`: the text is no selector.
    fn expressions(mut self) -> Option<Vec<Expression>> {
        let mut expressions = Vec::new();
        loop {
            expressions.push(self.expression()?);
            match self.next() {
                None => return Some(expressions),
                Some(",") => {}
                Some(_) => return None,
            }
        }
    }

    fn expression(&mut self) -> Option<Expression> {
        if self.peek()? == "!" {
            self.next();
            return self.key().map(Expression::DoesNotExist);
        }
        let key = self.key()?;
        if matches!(self.peek(), None | Some(",")) {
            return Some(Expression::Exists(key));
        }
        Some(match self.next()? {
            "=" | "==" => Expression::Equal(key, self.value()?),
            "!=" => Expression::NotEqual(key, self.value()?),
            "in" => Expression::In(key, self.values()?),
            "notin" => Expression::NotIn(key, self.values()?),
            _ => return None,
        })
    }

    fn key(&mut self) -> Option<String> {
        let key = self.next().filter(|word| is_key(word));
        key.map(str::to_owned)
    }

    /// One value; nothing at all is the empty value.
    fn value(&mut self) -> Option<String> {
        if matches!(self.peek(), None | Some("," | ")")) {
            return Some(String::new());
        }
        let value = self.next().filter(|word| is_value(word));
        value.map(str::to_owned)
    }

    /// Values in brackets.
    fn values(&mut self) -> Option<BTreeSet<String>> {
        if self.next()? != "(" {
            return None;
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value()?);
            match self.next()? {
                ")" => return Some(values),
                "," => {}
                _ => return None,
            }
        }
    }
}

/// `name` or `prefix/name`, as Kubernetes takes it for a label's key.
fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        None => is_name(text),
        Some((prefix, name)) => {
            (1..=253).contains(&prefix.len()) && is_word(prefix) && is_name(name)
        }
    }
}

fn is_value(text: &str) -> bool {
    text.len() <= 63 && is_word(text)
}

fn is_name(text: &str) -> bool {
    (1..=63).contains(&text.len()) && is_word(text)
}

fn is_word(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    bytes.iter().all(is_inner) && is_end(bytes.first()) && is_end(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels, each `KEY:VALUE`.
    fn labels(text: &str) -> BTreeMap<String, String> {
        let pairs = text.split(' ').filter_map(|pair| pair.split_once(':'));
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        pairs.collect()
    }

    #[test]
    fn every_operator_of_kubernetes_selects_as_there() {
        let node = labels("role:loadbalancer zone:a node.kubernetes.io/pool:gold empty: in:x");
        let selected = "role=loadbalancer;role==loadbalancer;role == loadbalancer , zone = a;role!=worker;absent!=x;zone in (a, b);\
            zone in(a);zone notin (b, c);absent notin (a);zone;!absent;node.kubernetes.io/pool in (gold), role;empty=;\
            empty in ();empty=,zone;in in (x);in";
        let others = "role=worker;role != loadbalancer;zone in (b,c);absent in (a);zone notin (a);absent;! zone";
        for (texts, is_selected) in [(selected, true), (others, false)] {
            for text in texts.split(';') {
                let selector: Selector = text.parse().expect(text);
                assert_eq!(selector.matches(&node), is_selected, "{text}");
                let printed = selector.to_string();
                assert_eq!(printed.parse(), Ok(selector), "{text}: {printed}");
            }
        }
    }

    #[test]
    fn what_kubernetes_refuses_is_refused() {
        let long = "x".repeat(64);
        let texts = "; ;,;a,,b;a,;=x;!;!a=b;a=b=c;a===b;a=b c;a b;a in b;a in (b;a in b);a in (b c);a notin;a in;(a);a|b;-a;a-;/a;a/;a/b/c;a>1;a=b/c;a=é";
        for text in texts
            .split(';')
            .chain([&*long, &format!("a={long}"), "a;b"])
        {
            assert!(text.parse::<Selector>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_value_of_openstacks_list_may_have_an_equals_sign() {
        let selector = Selector::from_openstack("env, zone=a=b").expect("a list");
        assert!(selector.matches(&labels("env:x zone:a=b")));
        assert!(!selector.matches(&labels("zone:a=b")));
        for text in ["", "a,,b", "=x", "a b"] {
            assert!(Selector::from_openstack(text).is_err(), "{text:?}");
        }
    }
}
