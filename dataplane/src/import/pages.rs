//! Pages of `errorfile`, whose bodies are written beside the table.

use std::collections::BTreeMap;

use ballast_core::table::{Entries, ErrorStatus, File};

use super::decide::Rules;
use super::importer::Importer;
use super::proxy::Proxy;
use super::services::file;
use super::words::Line;

impl Importer<'_> {
    /// The pages of a frontend: its own, and those of the backends where they agree.
    pub(super) fn errors(
        &mut self,
        proxy: &Proxy,
        rules: &Rules<'_>,
    ) -> Entries<ErrorStatus, File> {
        let mut pages: BTreeMap<u16, (Line, String)> = proxy.errors.clone();
        let mut backends: Vec<_> = rules
            .backends
            .values()
            .map(|(backend, _)| *backend)
            .collect();
        backends.sort_by_key(|backend| backend.head.number);
        for backend in backends {
            for (status, (line, path)) in &backend.errors {
                match pages.get(status) {
                    None => {
                        pages.insert(*status, (line.clone(), path.clone()));
                    }
                    Some((_, known)) if known == path => {}
                    Some((other, _)) => self.report.left_out(line, format!("a frontend has one page for a status, here that of line {}; give this backend a frontend of its own", other.number)),
                }
            }
        }
        let mut errors = Vec::new();
        for (status, (line, path)) in pages {
            match self.page(status, &path) {
                Ok(name) => {
                    if let Ok(status) = status.to_string().parse() {
                        errors.push((status, file(&name)));
                    }
                }
                Err(why) => self.report.left_out(&line, why),
            }
        }
        Entries::new(errors)
    }

    /// Puts the body of an errorfile beside the table, and returns its name there.
    fn page(&mut self, status: u16, path: &str) -> Result<String, String> {
        if !self.has_folder {
            return Err("its page is written beside the table, which goes to standard output; name a file by -o".into());
        }
        let path = self.world.absolute(path);
        let bytes = self
            .world
            .read(&path)
            .map_err(|why| format!("{path} cannot be read: {why}"))?;
        let (head, body) = head_and_body(&bytes);
        if body.is_empty() {
            return Err(
                "the answer without a body has no counterpart; Ballast's own page is shown".into(),
            );
        }
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let kind = head
            .lines()
            .find_map(|line| line.strip_prefix("content-type:"))
            .unwrap_or("text/html");
        let ending = match kind.trim().split(';').next().unwrap_or_default().trim() {
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
                    self.files.push((name.clone(), body.to_vec()));
                    return Ok(name);
                }
                Some((_, known)) if known == body => return Ok(name),
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
