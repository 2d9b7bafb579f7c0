//! Answers of `errorfile`, `http-errors`, `http-request return` and `deny`, whose bodies are written beside the table.

use std::collections::{BTreeMap, HashMap};

use ballast_core::answer::content_type;
use ballast_core::http::concerns_connection;
use ballast_core::table::{Entries, ErrorPage, ErrorStatus, File, HeaderEdits, OrMap};

use super::decide::Rules;
use super::headers::literal;
use super::importer::Importer;
use super::proxy::{Change, Does, Edit, Of, Proxy};
use super::words::Line;

/// An answer of Ballast's own, as a line says it. Two lines may say the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) line: Line,
    pub(super) status: u16,
    body: Body,
    /// The type of a body that no whole answer has; else it is empty.
    kind: String,
    fields: Vec<(String, String)>,
}

impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        let of_self = (self.status, &self.body, &self.kind, &self.fields);
        of_self == (other.status, &other.body, &other.kind, &other.fields)
    }
}

impl Eq for Answer {}

impl Answer {
    /// An answer with the usual page.
    pub(super) fn plain(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    /// Whether no line says its body or its fields.
    pub(super) fn is_plain(&self) -> bool {
        self.body == Body::Usual && self.fields.is_empty()
    }
}

/// The body of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Body {
    /// The page for the status.
    #[default]
    Usual,
    /// A file with a whole answer, head and body.
    Whole(String),
    /// The file of a section `http-errors`, until all sections are known.
    OfSection(String),
    /// A file with the body alone.
    File(String),
    Text(String),
}

/// Answers by the status in whose place they are.
pub(super) type Pages = BTreeMap<u16, Answer>;

/// `http-errors` sections by their names.
#[derive(Default)]
pub(super) struct HttpErrors(HashMap<String, Pages>);

impl HttpErrors {
    /// Reads a line of the section `name`.
    pub(super) fn line(&mut self, name: &str, line: &Line) -> Result<(), String> {
        let page = errorfile(line)?;
        let pages = self.0.entry(name.into()).or_default();
        pages.insert(page.status, page);
        Ok(())
    }

    /// The pages for which a line `errorfiles NAME [STATUS…]` asks.
    fn named(&self, line: &Line) -> Result<Pages, String> {
        let pages = self.section(line.word(1))?;
        let statuses = line.from(2);
        let asked = |status: &u16| statuses.is_empty() || statuses.contains(&status.to_string());
        let pages = pages.iter().filter(|(status, _)| asked(status));
        let mut pages: Pages = pages
            .map(|(status, page)| (*status, page.clone()))
            .collect();
        for page in pages.values_mut() {
            page.line = line.clone();
        }
        Ok(pages)
    }

    fn section(&self, name: &str) -> Result<&Pages, String> {
        self.0.get(name).ok_or_else(|| {
            format!(
                "there is no section http-errors {name}, or nothing in it is understood; add it"
            )
        })
    }

    /// Gives an answer the file that its section has for its status.
    fn complete(&self, answer: &mut Answer) -> Result<(), String> {
        let Body::OfSection(name) = &answer.body else {
            return Ok(());
        };
        let status = answer.status;
        let page = self.section(name)?.get(&status);
        let page = page.ok_or_else(|| {
            format!("the section http-errors {name} has no errorfile {status}, so its usual page is shown; add it")
        })?;
        answer.body = page.body.clone();
        Ok(())
    }
}

/// `errorfile STATUS FILE`
pub(super) fn errorfile(line: &Line) -> Result<Answer, String> {
    if line.word(0) != "errorfile" {
        return Err(format!(
            "`{}` does not stand here; expected `errorfile STATUS FILE`",
            line.word(0)
        ));
    }
    let status = own_status(line.word(1))?;
    match line.word(2) {
        "" => Err("names no file; expected `errorfile STATUS FILE`".into()),
        path => Ok(Answer {
            line: line.clone(),
            body: Body::Whole(path.into()),
            ..Answer::plain(status)
        }),
    }
}

/// `http-error status STATUS …`
pub(super) fn http_error(line: &Line) -> Result<Answer, String> {
    let words: Vec<&str> = line.from(1).iter().map(String::as_str).collect();
    let mut said = said(line, &words);
    said.answer.status = own_status(said.status.unwrap_or_default())?;
    match (said.lost, &said.answer.body) {
        (Some(why), _) => Err(why),
        (None, Body::Usual) => {
            Err("names no page; write errorfile, file or string behind the status".into())
        }
        (None, _) => Ok(said.answer),
    }
}

/// What the words behind `http-request return` and its like say.
pub(super) struct Said<'l> {
    pub(super) status: Option<&'l str>,
    /// It has no status yet.
    pub(super) answer: Answer,
    /// Why a part of it is not in the table.
    pub(super) lost: Option<String>,
}

/// The words behind `http-request return`, `http-request deny` and `http-error`.
pub(super) fn said<'l>(line: &Line, words: &[&'l str]) -> Said<'l> {
    let mut said = Said {
        status: None,
        answer: Answer {
            line: line.clone(),
            ..Answer::plain(0)
        },
        lost: None,
    };
    let mut kind = "text/plain";
    let Answer { body, fields, .. } = &mut said.answer;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if *word == "default-errorfiles" {
            continue;
        }
        let value = words.next().copied().unwrap_or_default();
        match *word {
            "status" | "deny_status" => said.status = Some(value),
            "content-type" => kind = value,
            "errorfile" => *body = Body::Whole(value.into()),
            "errorfiles" => *body = Body::OfSection(value.into()),
            "file" => *body = Body::File(value.into()),
            "string" => *body = Body::Text(value.into()),
            "lf-string" => match literal(value) {
                Some(text) => *body = Body::Text(text),
                None => said.lost = Some(no_counterpart(word)),
            },
            "hdr" => match literal(words.next().copied().unwrap_or_default()) {
                None => {
                    said.lost = Some(format!(
                        "the field {value} has a fixed value in an answer of Ballast; write it without a sample"
                    ));
                }
                // haproxy takes the type from content-type alone.
                Some(_) if value.eq_ignore_ascii_case("content-type") => {}
                Some(text) => fields.push((value.to_owned(), text)),
            },
            other => said.lost = Some(no_counterpart(other)),
        }
    }
    match body {
        Body::File(_) | Body::Text(_) => said.answer.kind = kind.into(),
        // haproxy ignores other fields than those of the file.
        Body::Whole(_) | Body::OfSection(_) => fields.clear(),
        Body::Usual => {}
    }
    said
}

fn no_counterpart(word: &str) -> String {
    format!(
        "`{word}` has no counterpart in an answer of Ballast; its body is a fixed text or a file"
    )
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
            let pages = self.report.good(&line, sections.named(&line));
            for (status, page) in pages.into_iter().flatten() {
                let known = proxy.errors.get(&status);
                if known.is_none_or(|known| known.line.number < line.number) {
                    proxy.errors.insert(status, page);
                }
            }
        }
        for rule in &mut proxy.rules {
            if let Does::Deny(answer) | Does::Answer(answer) = &mut rule.does
                && let Err(why) = sections.complete(answer)
            {
                let status = answer.status;
                let why = format!("{why}; these requests are answered {status} all the same");
                self.report.left_out(&rule.line, why);
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
            for (status, page) in &backend.errors {
                match pages.get(status) {
                    None => {
                        pages.insert(*status, page.clone());
                    }
                    Some(known) if known == page => {}
                    Some(known) => self.report.left_out(&page.line, format!("a frontend has one page for a status, here that of {}; give this backend a frontend of its own", self.places.shown(known.line.number))),
                }
            }
        }
        let mut errors = Vec::new();
        for (status, answer) in pages {
            let mut page = self.page(&answer);
            page.status = page.status.filter(|sent| *sent != status);
            let has_file_alone = page.content_type.is_none() && page.response_headers.is_none();
            let page = match page.body_file.take() {
                Some(file) if page.status.is_none() && has_file_alone => OrMap::Value(file),
                file => {
                    page.body_file = file;
                    OrMap::Map(Box::new(page))
                }
            };
            let is_usual = matches!(&page, OrMap::Map(page) if **page == ErrorPage::default());
            if let Ok(status) = status.to_string().parse()
                && !is_usual
            {
                errors.push((status, page));
            }
        }
        Entries::new(errors)
    }

    /// An answer as a table has it, with the body in a file beside the table. A part that cannot be read is left out.
    pub(super) fn page(&mut self, answer: &Answer) -> ErrorPage {
        let mut page = ErrorPage {
            status: Some(answer.status),
            ..ErrorPage::default()
        };
        let mut fields = answer.fields.clone();
        let mut removed = Vec::new();
        let body = self.body(answer, &mut page, &mut fields, &mut removed);
        self.report.good(&answer.line, body);
        let edit = |name: &str, change| Edit::new(&answer.line, Of::AllAnswers, name, change);
        let mut edits: Vec<Edit> = Vec::new();
        for (name, value) in fields {
            let mut known = edits.iter();
            let change = match known.any(|known| known.name.eq_ignore_ascii_case(&name)) {
                true => Change::Add(value),
                false => Change::Set(value),
            };
            edits.push(edit(&name, change));
        }
        edits.extend(removed.into_iter().map(|name| edit(name, Change::Remove)));
        let edits = self.edits(&edits.iter().collect::<Vec<_>>());
        page.response_headers = (edits != HeaderEdits::default()).then(|| Box::new(edits));
        page
    }

    /// Reads what the body of an answer is, and what a whole answer in a file has before it.
    fn body(
        &mut self,
        answer: &Answer,
        page: &mut ErrorPage,
        fields: &mut Vec<(String, String)>,
        removed: &mut Vec<&'static str>,
    ) -> Result<(), String> {
        let (bytes, kind) = match &answer.body {
            Body::Usual | Body::OfSection(_) => return Ok(()),
            Body::Text(text) => (text.as_bytes().to_vec(), Some(answer.kind.clone())),
            Body::File(path) => {
                let bytes = self.read_file_named(&self.world.absolute(path))?;
                (bytes, Some(answer.kind.clone()))
            }
            Body::Whole(path) if path == "/dev/null" => return Err(NO_ANSWER.into()),
            Body::Whole(path) => {
                let bytes = self.read_file_named(&self.world.absolute(path))?;
                if bytes.is_empty() {
                    return Err(NO_ANSWER.into());
                }
                let (head, body) = head_and_body(&bytes);
                let head = String::from_utf8_lossy(head);
                let mut lines = head.lines();
                let line = lines.next().unwrap_or_default();
                let status = line.split(' ').nth(1).and_then(|text| text.parse().ok());
                page.status = status
                    .filter(|text| (200..=599).contains(text))
                    .or(page.status);
                let named = lines.filter_map(|line| line.split_once(':'));
                let named = named.map(|(name, value)| (name.trim(), value.trim()));
                let named = named.filter(|(name, _)| !concerns_connection(name));
                fields.extend(named.map(|(name, value)| (name.to_owned(), value.to_owned())));
                let is = |known: &(String, String), name| known.0.eq_ignore_ascii_case(name);
                if !fields.iter().any(|field| is(field, "cache-control")) {
                    removed.push("Cache-Control");
                }
                let kind = fields.iter().find(|field| is(field, "content-type"));
                let kind = kind.map(|(_, kind)| kind.clone());
                fields.retain(|field| !is(field, "content-type"));
                (body.to_vec(), kind)
            }
        };
        if matches!(page.status, Some(204 | 205 | 304)) {
            return Ok(());
        }
        let name = self.written(answer.status, bytes, kind.as_deref().unwrap_or_default())?;
        let name = std::path::PathBuf::from(name);
        match kind {
            None => removed.push("Content-Type"),
            Some(kind) if kind == content_type(&name) => {}
            Some(kind) => page.content_type = kind.parse().ok(),
        }
        page.body_file = Some(File::from(name));
        Ok(())
    }

    /// Puts the body of a page beside the table, and returns its name there.
    fn written(&mut self, status: u16, bytes: Vec<u8>, kind: &str) -> Result<String, String> {
        if !self.has_folder {
            return Err("its page is written beside the table, which goes to standard output; name a file by -o".into());
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
                None if !self.world.may_write(&name, &bytes) => {}
                None => {
                    self.files.push((name.clone(), bytes));
                    return Ok(name);
                }
                Some((_, known)) if *known == bytes => return Ok(name),
                Some(_) => {}
            }
        }
        Err("there are too many pages for this status; keep fewer".into())
    }
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

const NO_ANSWER: &str = "with an empty file haproxy closes the connection without an answer, and Ballast sends its page for the status; name a file with a page";
