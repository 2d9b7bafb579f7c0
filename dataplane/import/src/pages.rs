//! Pages of `errorfile`, `http-errors` and `http-request return`, whose bodies are written beside the table.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use ballast_core::table::{Entries, ErrorPage, ErrorStatus, File, OrMap};

use super::decide::Rules;
use super::importer::Importer;
use super::proxy::Proxy;
use super::services::file;
use super::words::Line;

/// The page of an answer, as a line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// A file with a whole answer, head and body.
    Answer(String),
    /// A file with the body alone, and its type.
    Body { path: String, kind: String },
    /// The body itself, and its type.
    Text { text: String, kind: String },
}

/// Pages by their status, with the line that names each.
pub(super) type Pages = BTreeMap<u16, (Line, Page)>;

/// `http-errors` sections by their names.
#[derive(Default)]
pub(super) struct HttpErrors(HashMap<String, Pages>);

impl HttpErrors {
    /// Reads a line of the section `name`.
    pub(super) fn line(&mut self, name: &str, line: &Line) -> Result<(), String> {
        let (status, page) = errorfile(line)?;
        let pages = self.0.entry(name.into()).or_default();
        pages.insert(status, (line.clone(), page));
        Ok(())
    }

    /// The pages for which a line `errorfiles NAME [STATUS…]` asks.
    fn named(&self, line: &Line) -> Result<Pages, String> {
        let name = line.word(1);
        let Some(pages) = self.0.get(name) else {
            return Err(format!(
                "there is no section http-errors {name}, or nothing in it is understood; add it"
            ));
        };
        let statuses = line.from(2);
        let asked = |status: &u16| statuses.is_empty() || statuses.contains(&status.to_string());
        let pages = pages.iter().filter(|(status, _)| asked(status));
        Ok(pages
            .map(|(status, (_, page))| (*status, (line.clone(), page.clone())))
            .collect())
    }
}

/// `errorfile STATUS FILE`
pub(super) fn errorfile(line: &Line) -> Result<(u16, Page), String> {
    if line.word(0) != "errorfile" {
        return Err(format!(
            "`{}` does not stand here; expected `errorfile STATUS FILE`",
            line.word(0)
        ));
    }
    let status = own_status(line.word(1))?;
    match line.word(2) {
        "" => Err("names no file; expected `errorfile STATUS FILE`".into()),
        path => Ok((status, Page::Answer(path.into()))),
    }
}

/// `http-error status STATUS …`
pub(super) fn http_error(line: &Line) -> Result<(u16, Page), String> {
    let words: Vec<&str> = line.from(1).iter().map(String::as_str).collect();
    let answer = answer(&words);
    if let Some(why) = answer.lost {
        return Err(why);
    }
    let status = own_status(answer.status.unwrap_or_default())?;
    let page = answer
        .page
        .ok_or("names no page; write errorfile, file or string behind the status")?;
    Ok((status, page))
}

/// What the words behind `http-request return` and its like say.
#[derive(Default)]
pub(super) struct Answer<'l> {
    pub(super) status: Option<&'l str>,
    pub(super) page: Option<Page>,
    /// Why a part of it is not in the table.
    pub(super) lost: Option<String>,
}

/// The words behind `http-request return` and `http-error`: a status and a page.
pub(super) fn answer<'l>(words: &[&'l str]) -> Answer<'l> {
    let mut answer = Answer::default();
    let mut kind = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if *word == "default-errorfiles" {
            continue;
        }
        let value = words.next().copied().unwrap_or_default();
        match *word {
            "status" | "deny_status" => answer.status = Some(value),
            "content-type" => kind = Some(value),
            "errorfile" => answer.page = Some(Page::Answer(value.into())),
            "file" => {
                answer.page = Some(Page::Body {
                    path: value.into(),
                    kind: String::new(),
                });
            }
            "string" | "lf-string" if *word == "string" || !value.contains('%') => {
                answer.page = Some(Page::Text {
                    text: value.into(),
                    kind: String::new(),
                });
            }
            "hdr" => {
                words.next();
                answer.lost = Some(
                    "an answer of Ballast has no header of its own; write it without hdr".into(),
                );
            }
            other => {
                answer.lost = Some(format!(
                    "`{other}` has no counterpart in an answer of Ballast; its body is a fixed text or a file"
                ));
            }
        }
    }
    if let Some(Page::Body { kind: of, .. } | Page::Text { kind: of, .. }) = &mut answer.page {
        *of = kind.unwrap_or("text/plain").into();
    }
    answer
}

fn own_status(text: &str) -> Result<u16, String> {
    let status = text.parse::<u16>().ok();
    let status = status.filter(|status| (400..=599).contains(status));
    status.ok_or_else(|| {
        format!(
            "{text:?} is no status of an answer that Ballast gives by itself; expected 400 to 599"
        )
    })
}

impl Importer<'_> {
    /// Gives a section the pages that its `errorfiles` lines name. Of two lines about one status the later one holds.
    pub(super) fn errorfiles(&mut self, proxy: &mut Proxy, sections: &HttpErrors) {
        for line in std::mem::take(&mut proxy.errorfiles) {
            let pages = match sections.named(&line) {
                Ok(pages) => pages,
                Err(why) => {
                    self.report.left_out(&line, why);
                    continue;
                }
            };
            for (status, page) in pages {
                let known = proxy.errors.get(&status);
                if known.is_none_or(|(known, _)| known.number < line.number) {
                    proxy.errors.insert(status, page);
                }
            }
        }
    }

    /// The pages of a frontend: its own, and those of the backends where they agree.
    pub(super) fn errors(
        &mut self,
        proxy: &Proxy,
        rules: &Rules<'_>,
    ) -> Entries<ErrorStatus, OrMap<File, Box<ErrorPage>>> {
        let mut pages = proxy.errors.clone();
        let backends = rules.backends.values().map(|(backend, _)| *backend);
        let mut backends: Vec<&Proxy> = backends.collect();
        backends.sort_by_key(|backend| backend.head.number);
        for backend in backends {
            for (status, (line, page)) in &backend.errors {
                match pages.get(status) {
                    None => {
                        pages.insert(*status, (line.clone(), page.clone()));
                    }
                    Some((_, known)) if known == page => {}
                    Some((other, _)) => self.report.left_out(line, format!("a frontend has one page for a status, here that of {}; give this backend a frontend of its own", self.places.shown(other.number))),
                }
            }
        }
        let mut errors = Vec::new();
        for (status, (line, page)) in pages {
            match self.page(&line, status, &page) {
                Ok((name, _)) => {
                    if let Ok(status) = status.to_string().parse() {
                        errors.push((status, OrMap::Value(file(&name))));
                    }
                }
                Err(why) => self.report.left_out(&line, why),
            }
        }
        Entries::new(errors)
    }

    /// Puts the body of a page beside the table, and returns its name there and its type.
    pub(super) fn page(
        &mut self,
        line: &Line,
        status: u16,
        page: &Page,
    ) -> Result<(String, String), String> {
        if !self.has_folder {
            return Err("its page is written beside the table, which goes to standard output; name a file by -o".into());
        }
        let (bytes, kind) = match page {
            Page::Text { text, kind } => (Cow::Borrowed(text.as_bytes()), kind.clone()),
            Page::Answer(path) | Page::Body { path, .. } => {
                let path = self.world.absolute(path);
                let bytes = self.read_file_named(&path)?;
                match page {
                    Page::Body { kind, .. } => (Cow::Owned(bytes), kind.clone()),
                    _ => {
                        let (head, body) = head_and_body(&bytes);
                        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
                        if let Some(what) = not_kept(&head, status) {
                            self.report.left_out(line, format!("of the file {path} the body and its type are kept, and {what} is not; let the endpoint answer so"));
                        }
                        let kind = head
                            .lines()
                            .find_map(|line| line.strip_prefix("content-type:"))
                            .unwrap_or("text/html");
                        (Cow::Owned(body.to_vec()), kind.trim().to_owned())
                    }
                }
            }
        };
        if bytes.is_empty() {
            return Err(
                "the answer without a body has no counterpart; Ballast's own page is shown".into(),
            );
        }
        let ending = match kind.split(';').next().unwrap_or_default().trim() {
            "application/json" => "json",
            "text/plain" => "txt",
            _ => "html",
        };
        for number in 1..100 {
            let name = match number {
                1 => format!("errors/{status}.{ending}"),
                _ => format!("errors/{status}-{number}.{ending}"),
            };
            match self.files.iter().find(|(known, _)| *known == name) {
                None => {
                    self.files.push((name.clone(), bytes.into_owned()));
                    return Ok((name, kind));
                }
                Some((_, known)) if **known == *bytes => return Ok((name, kind)),
                Some(_) => {}
            }
        }
        Err("there are too many pages for this status; keep fewer".into())
    }
}

/// The first thing in the head of an answer that Ballast's own does not have.
fn not_kept(head: &str, status: u16) -> Option<String> {
    let mut lines = head.lines();
    let other = lines.next()?.split(' ').nth(1)?.parse::<u16>().ok();
    if let Some(other) = other.filter(|other| *other != status && (200..=599).contains(other)) {
        return Some(format!("its status {other}"));
    }
    let kept = [
        "content-type",
        "content-length",
        "connection",
        "cache-control",
        "date",
        "server",
        "pragma",
        "expires",
    ];
    let mut names = lines.filter_map(|line| Some(line.split_once(':')?.0.trim()));
    let name = names.find(|name| !kept.contains(name))?;
    Some(format!("its field {name}"))
}

/// The two parts of an HTTP answer in a file; without a head, all of it is the body.
fn head_and_body(bytes: &[u8]) -> (&[u8], &[u8]) {
    if !bytes.starts_with(b"HTTP/") {
        return (b"", bytes);
    }
    for end in [&b"\r\n\r\n"[..], b"\n\n"] {
        if let Some(at) = bytes.windows(end.len()).position(|window| window == end) {
            let (head, rest) = bytes.split_at_checked(at).unwrap_or((bytes, b""));
            return (head, rest.get(end.len()..).unwrap_or_default());
        }
    }
    (bytes, b"")
}
