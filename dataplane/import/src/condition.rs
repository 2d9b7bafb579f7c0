//! Conditions of rules: ACLs by name or in braces, `if` and `unless`, `or`, `!`. They come to alternatives, of which each
//! says something about host, path and client address.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use ballast_core::table::HostPattern;

use super::acl::{Atom, SET_SRC, Unlike, Where};
use super::limits::Counter;
use super::pattern::PathPattern;
use super::proxy::{Does, Stage};
use super::ranges::Ranges;
use super::words::Line;

/// A condition: one of these must hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Condition {
    pub(super) alternatives: Vec<Alternative>,
}

/// What must hold all at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Alternative {
    /// One of each of these.
    pub(super) hosts: Vec<Rc<BTreeSet<HostPattern>>>,
    pub(super) paths: Vec<Rc<Vec<PathPattern>>>,
    /// None of any of these.
    pub(super) no_hosts: Vec<Rc<BTreeSet<HostPattern>>>,
    pub(super) no_paths: Vec<Rc<Vec<PathPattern>>>,
    pub(super) clients: Ranges,
    /// How the requests for which it holds differ from those for which haproxy's does.
    pub(super) unlike: Unlike,
    /// What Ballast cannot look at, and must hold.
    pub(super) unknown: Vec<String>,
    /// What Ballast cannot look at, and must not hold.
    pub(super) unknown_not: Vec<String>,
    /// Counters of clients that must have come so far; they are among `unknown`, too.
    pub(super) counters: Vec<Counter>,
    /// A list could not be read: nothing is known.
    pub(super) broken: Option<String>,
    /// That list has clients.
    pub(super) has_no_clients: bool,
}

impl Alternative {
    pub(super) fn always() -> Self {
        Self::for_clients(Ranges::all())
    }

    pub(super) fn for_clients(clients: Ranges) -> Self {
        Self {
            clients,
            ..Self::default()
        }
    }

    /// Whether it says nothing about hosts and paths.
    pub(super) fn is_about_any_request(&self) -> bool {
        self.hosts.is_empty()
            && self.paths.is_empty()
            && self.no_hosts.is_empty()
            && self.no_paths.is_empty()
    }

    /// The paths that it looks for, and those that it must not find.
    pub(super) fn all_paths(&self) -> impl Iterator<Item = &PathPattern> {
        let lists = self.paths.iter().chain(&self.no_paths);
        lists.flat_map(|list| list.iter())
    }

    pub(super) fn is_about_hosts(&self) -> bool {
        !self.hosts.is_empty() || !self.no_hosts.is_empty()
    }

    /// What Ballast cannot look at.
    pub(super) fn not_seen(&self) -> Option<&str> {
        let all = self.unknown.iter().chain(&self.unknown_not);
        all.chain(&self.broken).next().map(String::as_str)
    }

    /// The counter, where it is all that this looks at.
    pub(super) fn only_counter(&self) -> Option<&Counter> {
        let alone = self.unknown.len() == 1
            && self.unknown_not.is_empty()
            && self.broken.is_none()
            && self.is_about_any_request()
            && self.clients.is_all();
        self.counters.first().filter(|_| alone)
    }

    /// Whether every request of this region fits, as far as host and path say.
    /// `hosts` are the patterns that contain its host.
    pub(super) fn covers(&self, hosts: &[HostPattern], path: &PathPattern) -> bool {
        let has_host =
            |all: &Rc<BTreeSet<HostPattern>>| hosts.iter().any(|host| all.contains(host));
        let has_path =
            |all: &Rc<Vec<PathPattern>>| all.iter().any(|pattern| pattern.contains(path));
        self.hosts.iter().all(has_host)
            && self.paths.iter().all(has_path)
            && !self.no_hosts.iter().any(has_host)
            && !self.no_paths.iter().any(has_path)
    }

    /// Whether it may hold for some request below a path.
    pub(super) fn may_cover(&self, folder: &PathPattern) -> bool {
        let meets = |path: &PathPattern| path.contains(folder) || folder.contains(path);
        let mut no_paths = self.no_paths.iter().flat_map(|list| list.iter());
        self.paths.iter().all(|list| list.iter().any(meets))
            && !no_paths.any(|path| path.contains(folder))
    }

    /// Adds one thing that must hold; `false`: then it never does.
    pub(super) fn add(&mut self, atom: &Atom, negated: bool) -> bool {
        match (atom, negated) {
            (Atom::Always(value), _) => return *value != negated,
            (Atom::Clients(clients), false) => self.clients = self.clients.and(clients),
            (Atom::Clients(clients), true) => self.clients = self.clients.and_not(clients),
            (Atom::Hosts(hosts, unlike), false) => {
                self.hosts.push(Rc::clone(hosts));
                self.unlike.join(&unlike.fewer, &unlike.more);
            }
            (Atom::Hosts(hosts, unlike), true) => {
                self.no_hosts.push(Rc::clone(hosts));
                self.unlike.join(&unlike.more, &unlike.fewer);
            }
            (Atom::Paths(paths), false) => self.paths.push(Rc::clone(paths)),
            (Atom::Paths(paths), true) => self.no_paths.push(Rc::clone(paths)),
            (Atom::Unknown(what), false) => self.unknown.push(what.clone()),
            (Atom::Unknown(what), true) => self.unknown_not.push(what.clone()),
            (Atom::Counter(counter), false) => {
                self.unknown.push(counter.shown.clone());
                self.counters.push(counter.clone());
            }
            (Atom::Counter(counter), true) => self.unknown_not.push(counter.shown.clone()),
            (Atom::Broken(why) | Atom::NoClients(why), _) => {
                self.broken = Some(why.clone());
                self.has_no_clients |= matches!(atom, Atom::NoClients(_));
            }
        }
        let some_host = self.hosts.iter().all(|list| !list.is_empty());
        let some_path = self.paths.iter().all(|list| !list.is_empty());
        some_host && some_path && !self.clients.is_none()
    }
}

/// ACLs by name: one holds if one of its atoms does.
pub(super) type Named = HashMap<String, Vec<Atom>>;

/// The ACLs of a section. Those of its `defaults` are for rules of the `defaults`, and its own are for its own rules.
#[derive(Default)]
pub(super) struct Acls {
    /// Where the section begins.
    head: usize,
    of_defaults: Named,
    own: Named,
}

impl Acls {
    pub(super) fn of(head: &Line) -> Self {
        Self {
            head: head.number,
            ..Self::default()
        }
    }

    /// Adds the atoms that a line says.
    pub(super) fn add(&mut self, line: &Line, atoms: Vec<Atom>) {
        let named = match line.number < self.head {
            true => &mut self.of_defaults,
            false => &mut self.own,
        };
        let known = named.entry(line.word(1).to_owned()).or_default();
        for atom in atoms {
            join(known, atom);
        }
    }

    /// Those that a rule of this line can name.
    pub(super) fn seen_by(&self, line: &Line) -> &Named {
        match line.number < self.head {
            true => &self.of_defaults,
            false => &self.own,
        }
    }
}

/// A condition in which `!` stands at atoms only: alternatives of what must hold all at once.
type Normal = Vec<Vec<(bool, Atom)>>;

/// Reads the words of an ACL.
pub(super) type ReadAtoms<'a> = dyn FnMut(&[String]) -> Result<Vec<Atom>, String> + 'a;

/// Reads what stands behind `if` or `unless`; an error has the reason.
pub(super) fn read(
    words: &[String],
    acls: &Named,
    place: Where,
    atom: &mut ReadAtoms<'_>,
) -> Result<Condition, String> {
    let (negated, words) = match words.split_first() {
        None => {
            return Ok(Condition {
                alternatives: vec![Alternative::always()],
            });
        }
        Some((first, rest)) if first == "if" => (false, rest),
        Some((first, rest)) if first == "unless" => (true, rest),
        Some((first, _)) => {
            return Err(format!(
                "{first:?} is not understood here; expected `if` or `unless`"
            ));
        }
    };
    let mut normal: Normal = Vec::new();
    let mut current: Normal = vec![Vec::new()];
    let mut rest = words;
    // An `or` with nothing before it, or nothing behind it, says nothing.
    let (mut said_something, mut has_term) = (false, false);
    // What one alternative names twice, it says once, and so does the whole condition.
    let mut named: HashSet<(&str, bool)> = HashSet::new();
    let mut known: HashSet<&[String]> = HashSet::new();
    let mut begin = words;
    while let Some((word, after)) = rest.split_first() {
        if word.eq_ignore_ascii_case("or") || word == "||" {
            let said = begin.len().saturating_sub(rest.len());
            let said = begin.get(..said).unwrap_or_default();
            if has_term && known.insert(said) {
                normal.append(&mut current);
                few(&normal)?;
            }
            named.clear();
            (current, has_term) = (vec![Vec::new()], false);
            (begin, rest) = (after, after);
            continue;
        }
        let (not, name, after) = signed(word, after)?;
        rest = after;
        (said_something, has_term) = (true, true);
        if name != "{" && !named.insert((name, not)) {
            continue;
        }
        let atoms = match name {
            "{" => {
                let (inner, after) = in_braces(rest)?;
                rest = after;
                atom(inner)?
            }
            _ => match acls.get(name) {
                Some(atoms) => atoms.clone(),
                None => {
                    let why = || format!("there is no acl {name:?} in this section; declare it");
                    vec![predefined(name, place).ok_or_else(why)?]
                }
            },
        };
        current = with(current, &atoms, not)?;
    }
    if has_term {
        normal.append(&mut current);
    }
    if !said_something {
        return Err("has no condition; name an acl, or write one in braces".into());
    }
    if negated {
        normal = not(normal)?;
    }
    Ok(Condition {
        alternatives: normal.iter().filter_map(|all| alternative(all)).collect(),
    })
}

/// A term without its signs, whether it is negated, and the words behind it. The sign may stand apart.
fn signed<'w>(word: &'w str, rest: &'w [String]) -> Result<(bool, &'w str, &'w [String]), String> {
    let name = word.trim_start_matches('!');
    let not = (word.len() - name.len()) % 2 == 1;
    match (name, rest.split_first()) {
        ("", None) if not => Err("ends with `!`; name what must not hold".into()),
        ("", Some((next, after))) if not => Ok((not, next, after)),
        _ => Ok((not, name, rest)),
    }
}

/// The words up to a closing brace, and those behind it.
fn in_braces(words: &[String]) -> Result<(&[String], &[String]), String> {
    let Some(end) = words.iter().position(|word| word == "}") else {
        return Err("has `{` without `}`; close it, with spaces around".into());
    };
    let (inner, after) = words.split_at_checked(end).unwrap_or_default();
    Ok((inner, after.get(1..).unwrap_or_default()))
}

fn alternative(all: &[(bool, Atom)]) -> Option<Alternative> {
    let mut alternative = Alternative::always();
    let holds = all.iter().all(|(not, atom)| alternative.add(atom, *not));
    holds.then_some(alternative)
}

/// `all` of before, and one of the atoms; or, with `not`, none of them.
fn with(before: Normal, atoms: &[Atom], not: bool) -> Result<Normal, String> {
    let mut after = Normal::new();
    for all in before {
        if not {
            let mut all = all;
            all.extend(atoms.iter().map(|atom| (true, atom.clone())));
            after.push(all);
            continue;
        }
        for atom in atoms {
            let mut all = all.clone();
            all.push((false, atom.clone()));
            after.push(all);
        }
        few(&after)?;
    }
    few(&after)?;
    Ok(after)
}

/// Adds an atom to those of which one must hold. Those of one kind are one: a list of many hosts is one thing to look at.
fn join(joined: &mut Vec<Atom>, atom: Atom) {
    match (joined.last_mut(), atom) {
        (Some(Atom::Hosts(all, of_all)), Atom::Hosts(more, unlike)) => {
            Rc::make_mut(all).extend(more.iter().cloned());
            of_all.join(&unlike.fewer, &unlike.more);
        }
        (Some(Atom::Paths(all)), Atom::Paths(more)) => {
            Rc::make_mut(all).extend(more.iter().cloned());
        }
        (Some(Atom::Clients(all)), Atom::Clients(more)) => *all = all.or(&more),
        (_, atom) => joined.push(atom),
    }
}

fn not(normal: Normal) -> Result<Normal, String> {
    let mut result: Normal = vec![Vec::new()];
    for all in normal {
        let mut next = Normal::new();
        for before in &result {
            for (not, atom) in &all {
                let mut extended = before.clone();
                extended.push((!not, atom.clone()));
                next.push(extended);
            }
            few(&next)?;
        }
        result = next;
    }
    Ok(result)
}

fn few(normal: &Normal) -> Result<(), String> {
    let terms: usize = normal.iter().map(Vec::len).sum();
    match normal.len() > MOST || terms > MOST_TERMS {
        true => Err("has too many alternatives; write it as several lines".into()),
        false => Ok(()),
    }
}

/// The ACLs that haproxy knows without a declaration.
fn predefined(name: &str, place: Where) -> Option<Atom> {
    Some(match name {
        "TRUE" | "WAIT_END" | "REQ_CONTENT" => Atom::Always(true),
        "HTTP" if place.is_http => Atom::Always(true),
        "FALSE" => Atom::Always(false),
        "LOCALHOST" if place.sets_src => Atom::NoClients(SET_SRC.into()),
        "LOCALHOST" => Atom::Clients(Ranges::this_host()),
        "HTTP" => Atom::Unknown(name.into()),
        "HTTP_1.0" | "HTTP_1.1" | "HTTP_2.0" | "HTTP_URL_ABS" | "HTTP_URL_SLASH"
        | "HTTP_URL_STAR" | "HTTP_CONTENT" | "METH_CONNECT" | "METH_DELETE" | "METH_GET"
        | "METH_HEAD" | "METH_OPTIONS" | "METH_POST" | "METH_PUT" | "METH_TRACE" | "RDP_COOKIE" => {
            Atom::Unknown(name.into())
        }
        _ => return None,
    })
}

/// The words of a rule before its condition, and the condition, which begins with `if` or `unless`.
pub(super) fn split(words: &[String]) -> (Vec<&str>, &[String]) {
    let at = words
        .iter()
        .position(|word| word == "if" || word == "unless");
    let (before, condition) = words.split_at(at.unwrap_or(words.len()));
    (before.iter().map(String::as_str).collect(), condition)
}

/// A rule with the words of its condition, which is read once all ACLs of its proxy are known.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) line: Line,
    pub(super) stage: Stage,
    pub(super) does: Does,
    pub(super) condition: Vec<String>,
    /// The words of an ACL that must hold, too: one entry of a map.
    pub(super) entry: Vec<String>,
}

impl Rule {
    pub(super) fn new(line: &Line, does: Does, condition: &[String]) -> Self {
        Self {
            line: line.clone(),
            stage: Stage::of(line, &does),
            does,
            condition: condition.to_vec(),
            entry: Vec::new(),
        }
    }
}

/// Alternatives of one condition.
const MOST: usize = 2000;
/// Terms of all alternatives of one condition.
const MOST_TERMS: usize = 20_000;
