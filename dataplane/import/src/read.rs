//! From the text to sections.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use ballast_core::table::nearest;

use super::Source;
use super::condition::Rule;
use super::conditional::Blocks;
use super::importer::Importer;
use super::keywords::{Becomes, Place, did_you_mean, is_known, meant, row};
use super::pages::HttpErrors;
use super::proxy::{Does, Kind, Proxy, What};
use super::report;
use super::rules::unread_track;
use super::words::{Line, cut};

/// What the whole file says.
#[derive(Default)]
pub(super) struct Sections {
    pub(super) proxies: Vec<Proxy>,
    pub(super) pages: HttpErrors,
}

/// Where the reader is.
enum At {
    Nowhere,
    Global,
    Proxy(Box<Proxy>),
    /// `http-errors` of this name.
    Pages(String),
    /// A section that is not read: what its remark is, where it begins, why, and its last line.
    Unread(report::Kind, Line, String, usize),
}

impl At {
    fn left_out(head: Line, why: String) -> Self {
        let last = head.number;
        Self::Unread(report::Kind::LeftOut, head, why, last)
    }
}

impl Importer<'_> {
    /// Reads all sections of all files. Defaults and variables of one file hold in the next ones; a section and a block end with
    /// their file.
    pub(super) fn read(&mut self, sources: &[Source<'_>]) -> Sections {
        let mut reader = Reader {
            at: At::Nowhere,
            defaults: Proxy::default(),
            named: BTreeMap::new(),
            sections: Sections::default(),
            blocks: Blocks::default(),
            inherited: 0,
            has_left: false,
        };
        // What `setenv` says goes before the environment.
        let set: RefCell<HashMap<String, String>> = RefCell::default();
        for source in sources {
            self.read_file(&mut reader, source, &set);
            reader.end(self);
            std::mem::take(&mut reader.blocks).end(self);
            reader.has_left = false;
        }
        reader.sections
    }

    fn read_file(
        &mut self,
        reader: &mut Reader,
        source: &Source<'_>,
        set: &RefCell<HashMap<String, String>>,
    ) {
        let world = self.world;
        let variable = |name: &str| {
            let known = set.borrow().get(name).cloned();
            known.or_else(|| world.variable(name))
        };
        let text = source.text;
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        let before = self.places.begin(source.name);
        for (index, raw) in text.split(|byte| *byte == b'\n').enumerate() {
            let number = before + index + 1;
            self.places.lines = number;
            let Some(cut) = cut(number, raw, &variable) else {
                continue;
            };
            let line = cut.line;
            if line.word(0).starts_with('.') && cut.wrong.is_none() {
                // The branch that began another section ends.
                reader.has_left &= line.word(0) == ".if";
                reader.blocks.directive(self, line, &variable);
                continue;
            }
            if !reader.blocks.are_read(line.number) {
                if reader.blocks.are_unsure() {
                    reader.pass_over(&line);
                }
                continue;
            }
            if let Some(wrong) = cut.wrong {
                reader.pass_over(&line);
                self.report.left_out(&line, wrong);
                continue;
            }
            for name in cut.unset {
                self.report.note(&line, format!("the variable {name} is not set here and stands for nothing; set it as haproxy has it, and import again"));
            }
            if let At::Global = reader.at
                && let ("setenv" | "presetenv", name) = (line.word(0), line.word(1))
            {
                let keeps = line.word(0) == "presetenv" && variable(name).is_some();
                if !keeps {
                    set.borrow_mut().insert(name.into(), line.word(2).into());
                }
            }
            self.read_line(reader, line);
        }
    }

    fn read_line(&mut self, reader: &mut Reader, line: Line) {
        let first = line.word(0);
        if is_known(Place::Section, first) && !(first == "cache" && line.words.len() == 1) {
            reader.end(self);
            reader.begin(self, line);
            return;
        }
        if let (At::Proxy(_), Some(section)) = (&reader.at, misspelt_section(&line)) {
            let why =
                format!("is no section, so its lines are left out, too; did you mean {section}?");
            reader.end(self);
            reader.at = At::left_out(line, why);
            return;
        }
        let result = match &mut reader.at {
            At::Nowhere => {
                let near = meant(Place::Section, first);
                let remedy = did_you_mean(near, "begin with one, such as frontend NAME");
                Err(format!("stands in no section; {remedy}"))
            }
            At::Global => self.global(&line),
            At::Proxy(proxy) => self.line(&line, proxy),
            At::Pages(name) => reader.sections.pages.line(name, &line),
            At::Unread(.., last) => {
                *last = line.number;
                Ok(())
            }
        };
        self.report.good(&line, result);
    }
}

/// A line of two words that looks like the beginning of a section.
fn misspelt_section(line: &Line) -> Option<&'static str> {
    let first = line.word(0);
    let is_unknown = line.words.len() == 2 && !is_known(Place::Proxy, first);
    let sections = ["frontend", "backend", "listen", "defaults"];
    is_unknown.then(|| nearest(first, sections)).flatten()
}

/// Actions that change the path of a request.
const CHANGES: [&str; 7] = [
    "set-path",
    "set-pathq",
    "set-uri",
    "replace-path",
    "replace-pathq",
    "replace-uri",
    "normalize-uri",
];

struct Reader {
    at: At,
    defaults: Proxy,
    named: BTreeMap<String, Proxy>,
    sections: Sections,
    blocks: Blocks,
    /// How many lines all sections have from defaults.
    inherited: usize,
    /// Whether another section began among the lines that were passed over.
    has_left: bool,
}

impl Reader {
    /// A line of haproxy's that cannot be read. Where it says who may not come, the section must not be open without it.
    fn pass_over(&mut self, line: &Line) {
        self.has_left |= is_known(Place::Section, line.word(0));
        let At::Proxy(proxy) = &mut self.at else {
            return;
        };
        if self.has_left {
            return;
        }
        match (line.word(0), line.word(1)) {
            ("acl", _) => proxy.unread_acls.push(line.clone()),
            ("block" | "disabled", _) => proxy.unread = Some(line.number),
            ("stats", "auth" | "http-request" | "scope") => proxy.stats_users = Some(line.clone()),
            ("http-request", "deny" | "reject" | "return" | "tarpit" | "silent-drop" | "auth") => {
                proxy.unread = Some(line.number);
            }
            ("http-request" | "tcp-request", _) => {
                let has = |words: &[&str]| line.words.iter().any(|word| words.contains(&&**word));
                if has(&["reject", "silent-drop", "expect-proxy"]) {
                    proxy.unread = Some(line.number);
                }
                if let Some(track) = unread_track(line) {
                    proxy.rules.push(Rule::new(line, Does::Track(track), &[]));
                }
                proxy.sets_src |= has(&["set-src"]);
                proxy.sets_port |= has(&["set-dst-port"]);
                proxy.switches_mode |= has(&["switch-mode"]);
                if has(&CHANGES)
                    || line
                        .from(2)
                        .iter()
                        .any(|word| word.eq_ignore_ascii_case("host"))
                {
                    let changes = Does::Changes(What::Address);
                    proxy.rules.push(Rule::new(line, changes, &[]));
                }
            }
            _ => {}
        }
    }

    /// Puts away the section that ends.
    fn end(&mut self, importer: &mut Importer<'_>) {
        match std::mem::replace(&mut self.at, At::Nowhere) {
            At::Nowhere | At::Global | At::Pages(_) => {}
            At::Unread(kind, head, why, last) => importer.report.lines(kind, &head, last, why),
            At::Proxy(proxy) if proxy.kind == Kind::Defaults => {
                if !proxy.name.is_empty() {
                    self.named.insert(proxy.name.clone(), (*proxy).clone());
                }
                self.defaults = *proxy;
            }
            At::Proxy(mut proxy) => {
                proxy.sort_rules();
                self.sections.proxies.push(*proxy);
            }
        }
    }

    fn begin(&mut self, importer: &mut Importer<'_>, line: Line) {
        self.has_left = false;
        let kind = match line.word(0) {
            "global" => {
                self.at = At::Global;
                return;
            }
            "defaults" => Kind::Defaults,
            "frontend" => Kind::Frontend,
            "listen" => Kind::Listen,
            "backend" => Kind::Backend,
            "http-errors" if !line.word(1).is_empty() => {
                self.at = At::Pages(line.word(1).into());
                return;
            }
            first => {
                self.at = match row(Place::Section, first).map(|row| row.becomes) {
                    Some(Becomes::Noted(why)) => {
                        let last = line.number;
                        At::Unread(report::Kind::Note, line, why.into(), last)
                    }
                    Some(Becomes::LeftOut(why)) => At::left_out(line, why.into()),
                    _ => At::left_out(line, "such a section has no counterpart; remove it".into()),
                };
                return;
            }
        };
        let from = line.words.iter().position(|word| word == "from");
        let base = match from {
            Some(at) => self.named(importer, &line, line.word(at + 1)),
            // A section of defaults begins anew.
            None if kind == Kind::Defaults => Proxy::default(),
            None => self.defaults.clone(),
        };
        self.inherited += base.weight();
        if self.inherited > MOST_INHERITED {
            let why = format!(
                "the sections up to it have more than {MOST_INHERITED} lines from defaults, so that it is left out with its lines; write fewer rules into defaults"
            );
            self.at = At::left_out(line, why);
            return;
        }
        let mut proxy = Proxy {
            kind,
            name: match line.word(1) {
                "from" => String::new(),
                name => name.into(),
            },
            head: line.clone(),
            check: base.check.inherited(),
            ..base
        };
        if kind == Kind::Defaults {
            // They are for the rules of their own section.
            proxy.acls.clear();
            proxy.unread_acls.clear();
        } else if proxy.name.is_empty() {
            importer.report.left_out(&line, "has no name; give it one");
        }
        // Until version 1.6 an address could stand behind the name.
        if kind.has_frontend() && line.word(2).contains(':') && from.is_none() {
            let mut words = vec!["bind".to_owned()];
            words.extend_from_slice(line.from(2));
            let bind = importer.bind(&Line {
                words: words.into(),
                ..line.clone()
            });
            proxy.binds.extend(importer.report.good(&line, bind));
        }
        self.at = At::Proxy(Box::new(proxy));
    }

    /// The defaults of this name, or those before the line.
    fn named(&self, importer: &mut Importer<'_>, line: &Line, name: &str) -> Proxy {
        self.named.get(name).cloned().unwrap_or_else(|| {
            let near = nearest(name, self.named.keys().map(String::as_str));
            let remedy = did_you_mean(near, "the ones before are taken");
            let why = format!("there are no defaults {name:?}; {remedy}");
            importer.report.left_out(line, why);
            self.defaults.clone()
        })
    }
}

/// Lines of rules that sections have from their defaults, all together.
const MOST_INHERITED: usize = 500_000;
