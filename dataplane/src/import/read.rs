//! From the text to sections.

use std::cell::RefCell;
use std::collections::HashMap;

use ballast_core::table::nearest;

use super::importer::Importer;
use super::keywords::SECTIONS;
use super::proxy::{Kind, Proxy};
use super::words::{Line, cut};

/// What the whole file says.
#[derive(Default)]
pub(super) struct Sections {
    pub(super) proxies: Vec<Proxy>,
}

/// Where the reader is.
enum At {
    Nowhere,
    Global,
    Proxy(Box<Proxy>),
    /// A section without a counterpart, and its last line.
    Unknown(Line, usize),
}

impl Importer<'_> {
    /// Reads all sections.
    pub(super) fn read(&mut self, text: &[u8]) -> Sections {
        let mut reader = Reader {
            at: At::Nowhere,
            defaults: Proxy::default(),
            named: HashMap::new(),
            sections: Sections::default(),
            skipped: None,
        };
        // What `setenv` of the same file says goes before the environment.
        let set: RefCell<HashMap<String, String>> = RefCell::default();
        let world = self.world;
        let variable = |name: &str| {
            set.borrow()
                .get(name)
                .cloned()
                .or_else(|| world.variable(name))
        };
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        for (index, raw) in text.split(|byte| *byte == b'\n').enumerate() {
            let Some(cut) = cut(index + 1, raw, &variable) else {
                continue;
            };
            if let Some(wrong) = cut.wrong {
                self.report.left_out(&cut.line, wrong);
                continue;
            }
            let line = cut.line;
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
            self.read_line(&mut reader, line);
        }
        reader.end(self);
        if let Some((line, _)) = reader.skipped {
            self.report
                .left_out(&line, "the block has no .endif; close it");
        }
        reader.sections
    }

    fn read_line(&mut self, reader: &mut Reader, line: Line) {
        let first = line.word(0);
        if first.starts_with('.') {
            reader.directive(self, line);
            return;
        }
        if reader.skipped.is_some() {
            return;
        }
        if SECTIONS.contains(&first) && !(first == "cache" && line.words.len() == 1) {
            reader.end(self);
            reader.begin(self, line);
            return;
        }
        let result = match &mut reader.at {
            At::Nowhere => {
                let near = nearest(first, SECTIONS.iter().copied());
                let remedy = near.map_or_else(
                    || "begin with one, such as frontend NAME".into(),
                    |near| format!("did you mean {near}?"),
                );
                Err(format!("stands in no section; {remedy}"))
            }
            At::Global => self.global(&line),
            At::Proxy(proxy) => match misspelt_section(&line) {
                Some(section) => Err(format!("is no keyword; did you mean {section}?")),
                None => self.line(&line, proxy),
            },
            At::Unknown(_, last) => {
                *last = line.number;
                Ok(())
            }
        };
        if let Err(why) = result {
            self.report.left_out(&line, why);
        }
    }
}

/// A line of two words that looks like the beginning of a section.
fn misspelt_section(line: &Line) -> Option<&'static str> {
    let near = nearest(line.word(0), ["frontend", "backend"])?;
    (line.words.len() == 2).then_some(near)
}

struct Reader {
    at: At,
    defaults: Proxy,
    named: HashMap<String, Proxy>,
    sections: Sections,
    /// The `.if` whose block is left out, and how deep it is nested.
    skipped: Option<(Line, usize)>,
}

impl Reader {
    /// Puts away the section that ends.
    fn end(&mut self, importer: &mut Importer<'_>) {
        match std::mem::replace(&mut self.at, At::Nowhere) {
            At::Nowhere | At::Global => {}
            At::Proxy(proxy) if proxy.kind == Kind::Defaults => {
                if !proxy.name.is_empty() {
                    self.named.insert(proxy.name.clone(), (*proxy).clone());
                }
                self.defaults = *proxy;
            }
            At::Proxy(proxy) => self.sections.proxies.push(*proxy),
            At::Unknown(head, last) => {
                let reason = match head.word(0) {
                    "peers" => {
                        "no peers are needed: a client's first choice is the same on all nodes"
                    }
                    "resolvers" => "names are resolved once, by the import",
                    "userlist" => {
                        "passwords do not stand in a table; those of the page are in --stats-auth-file"
                    }
                    "cache" => "Ballast stores no answers",
                    "mailers" => "alerts are Prometheus's; see templates/prometheus",
                    _ => "such a section has no counterpart",
                };
                let range = match last == head.number {
                    true => String::new(),
                    false => format!(" (the section ends at line {last})"),
                };
                match head.word(0) {
                    "peers" | "resolvers" => {
                        importer.report.note(&head, format!("{reason}{range}"));
                    }
                    _ => importer
                        .report
                        .left_out(&head, format!("{reason}; remove it{range}")),
                }
            }
        }
    }

    fn begin(&mut self, importer: &mut Importer<'_>, line: Line) {
        let kind = match line.word(0) {
            "global" => {
                self.at = At::Global;
                return;
            }
            "defaults" => Kind::Defaults,
            "frontend" => Kind::Frontend,
            "listen" => Kind::Listen,
            "backend" => Kind::Backend,
            _ => {
                let last = line.number;
                self.at = At::Unknown(line, last);
                return;
            }
        };
        let from = line.words.iter().position(|word| word == "from");
        let base = match from.map(|at| line.word(at + 1)) {
            Some(name) => match self.named.get(name) {
                Some(base) => base.clone(),
                None => {
                    let near = nearest(name, self.named.keys().map(String::as_str));
                    let remedy = near.map_or_else(
                        || "the ones before are taken".into(),
                        |near| format!("did you mean {near}?"),
                    );
                    importer
                        .report
                        .left_out(&line, format!("there are no defaults {name:?}; {remedy}"));
                    self.defaults.clone()
                }
            },
            // A section of defaults begins anew.
            None if kind == Kind::Defaults => Proxy::default(),
            None => self.defaults.clone(),
        };
        let mut proxy = Proxy {
            kind,
            name: match line.word(1) {
                "from" => String::new(),
                name => name.into(),
            },
            head: line.clone(),
            ..base
        };
        if kind != Kind::Defaults && proxy.name.is_empty() {
            importer.report.left_out(&line, "has no name; give it one");
        }
        // Until version 1.6 an address could stand behind the name.
        if kind.has_frontend() && line.word(2).contains(':') && from.is_none() {
            let mut words = vec!["bind".to_owned()];
            words.extend_from_slice(line.from(2));
            match importer.bind(&Line {
                words,
                ..line.clone()
            }) {
                Ok(bind) => proxy.binds.push(bind),
                Err(why) => importer.report.left_out(&line, why),
            }
        }
        self.at = At::Proxy(Box::new(proxy));
    }

    /// Lines that begin with a dot: conditional blocks are left out, messages have no effect.
    fn directive(&mut self, importer: &mut Importer<'_>, line: Line) {
        let word = line.word(0).to_owned();
        match (word.as_str(), &mut self.skipped) {
            (".if", None) => {
                importer.report.left_out(
                    &line,
                    "conditional blocks are not read, up to their .endif; write down what holds",
                );
                self.skipped = Some((line, 1));
            }
            (".if", Some((_, depth))) => *depth += 1,
            (".endif", Some((_, depth))) if *depth > 1 => *depth -= 1,
            (".endif", skipped @ Some(_)) => *skipped = None,
            (".elif" | ".else", Some(_)) | (".notice" | ".warning" | ".alert" | ".diag", _) => {}
            _ => importer
                .report
                .left_out(&line, "is no directive that stands here; remove it"),
        }
    }
}
