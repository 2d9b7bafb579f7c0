//! Renders access lines, in haproxy's `tcplog` and `httplog` forms or as JSON.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_core::moment::whole_millis;
use ballast_core::table::Access;
use ballast_core::text::Append;

use super::Progress;
use crate::net::relay::{Side, Why};
use crate::os::clock::{DATE, Micros, utc};

/// The contents of the access line of one connection, or of one request of HTTP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    /// When the connection was accepted, or the first byte of the request was read.
    pub(crate) began: Micros,
    pub(crate) client: SocketAddr,
    pub(crate) frontend: &'a str,
    /// The service, if the client got that far.
    pub(crate) service: Option<&'a str>,
    /// The endpoint: its name, or its address.
    pub(crate) server: Option<&'a str>,
    /// How far the client came on its way to an endpoint.
    pub(crate) progress: Progress,
    /// From the beginning to the end.
    pub(crate) total: Duration,
    /// Bytes from the client.
    pub(crate) bytes_in: u64,
    /// Bytes to the client.
    pub(crate) bytes_out: u64,
    /// haproxy's letters: what ended it, in which phase, and for a request what became of the cookie of its affinity.
    pub(crate) termination: &'a [u8],
    /// Numbers of connections at the end: of the process, the frontend, the service and the endpoint.
    pub(crate) connections: [u32; 4],
    /// `None`: the line is that of a connection.
    pub(crate) request: Option<Request<'a>>,
}

/// What only requests have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// From the first byte to the end of its head; `None`: the head did not arrive whole, or was malformed.
    pub(crate) receiving: Option<Duration>,
    /// From the connection to the head of the response; `None`: no response came.
    pub(crate) responding: Option<Duration>,
    /// The status that the client got.
    pub(crate) status: Option<u16>,
    /// The request line as it was sent, or its beginning, and the host that was asked for; `None`: the request was malformed.
    pub(crate) line: Option<(&'a str, &'a str)>,
}

/// haproxy's two termination letters for the end of a relay: what ended the session, and in which phase.
pub(crate) fn relay_letters(why: Why, fault: Option<Side>) -> [u8; 2] {
    *match (why, fault) {
        (Why::Finished, _) => b"--",
        (Why::Cut, _) => b"KD",
        (Why::Aborted, Some(Side::Server)) => b"SD",
        (Why::Aborted, _) => b"CD",
        (Why::Idle | Why::HalfClosed, Some(Side::Server)) => b"sD",
        (Why::Idle | Why::HalfClosed, _) => b"cD",
    }
}

/// Appends the line to `line`, without a line feed. `date` is that of the record in the same form.
pub(crate) fn render(record: &Record<'_>, form: Access, date: &str, line: &mut String) {
    match form {
        Access::Off => {}
        Access::Haproxy => haproxy(record, date, line),
        Access::Json => json(record, date, line),
    }
}

fn haproxy(record: &Record<'_>, date: &str, out: &mut String) {
    let (request, progress) = (record.request.as_ref(), &record.progress);
    out.ip(record.client.ip());
    out.text(":");
    out.number(record.client.port().into());
    let service = record.service.unwrap_or(record.frontend);
    let server = record.server.unwrap_or("<NOSRV>");
    for text in [
        " [",
        date,
        "] ",
        record.frontend,
        " ",
        service,
        "/",
        server,
        " ",
    ] {
        out.text(text);
    }
    let millis = |out: &mut String, time: Option<Duration>| {
        number_or(out, time.map(whole_millis), "-1");
        out.text("/");
    };
    if let Some(request) = request {
        millis(out, request.receiving);
    }
    millis(out, progress.queued);
    millis(out, progress.connecting);
    if let Some(request) = request {
        millis(out, request.responding);
    }
    out.number(whole_millis(record.total));
    if let Some(request) = request {
        out.text(" ");
        number_or(out, request.status.map(u64::from), "-1");
    }
    out.text(" ");
    out.number(record.bytes_out);
    out.text(if request.is_some() { " - - " } else { " " });
    letters(out, record.termination);
    let mut before = " ";
    for connections in record.connections {
        out.text(before);
        out.number(connections.into());
        before = "/";
    }
    out.text(if progress.is_redispatched { "/+" } else { "/" });
    out.number(progress.retries.into());
    out.text(" 0/");
    out.number(progress.before as u64);
    if let Some(request) = request {
        out.text(" \"");
        match request.line {
            Some((line, _)) => escape(line, out),
            None => out.text("<BADREQ>"),
        }
        out.text("\"");
    }
}

fn json(record: &Record<'_>, date: &str, out: &mut String) {
    for text in ["{\"time\":\"", date, "\",\"client\":\""] {
        out.text(text);
    }
    let (ip, port) = (record.client.ip(), record.client.port());
    if ip.is_ipv6() {
        write!(out, "[{ip}]:{port}");
    } else {
        out.ip(ip);
        out.text(":");
        out.number(port.into());
    }
    // Names and addresses contain no character that JSON would escape.
    for text in ["\",\"frontend\":\"", record.frontend, "\""] {
        out.text(text);
    }
    for (key, name) in [
        (",\"service\":", record.service),
        (",\"server\":", record.server),
    ] {
        out.text(key);
        string(out, name, "");
    }
    for (key, number) in [
        (",\"bytes_in\":", record.bytes_in),
        (",\"bytes_out\":", record.bytes_out),
        (",\"duration_ms\":", whole_millis(record.total)),
    ] {
        out.text(key);
        out.number(number);
    }
    let progress = &record.progress;
    for (key, time) in [
        (",\"queued_ms\":", progress.queued),
        (",\"connecting_ms\":", progress.connecting),
    ] {
        out.text(key);
        number_or(out, time.map(whole_millis), "null");
    }
    out.text(",\"retries\":");
    out.number(progress.retries.into());
    out.text(",\"termination\":\"");
    letters(out, record.termination);
    out.text("\"");
    if let Some(request) = &record.request {
        request_json(request, out);
    }
    out.text("}");
}

fn request_json(request: &Request<'_>, out: &mut String) {
    let target = request.line.map(|(line, _)| method_and_path(line));
    let path = target.map(|(_, path)| path);
    let slash = match path {
        Some(path) if !path.starts_with(['/', '*']) => "/",
        _ => "",
    };
    let host = request.line.map(|(_, host)| host);
    let host = host.filter(|host| !host.is_empty());
    for (key, text, prefix) in [
        (",\"method\":", target.map(|(method, _)| method), ""),
        (",\"path\":", path, slash),
        (",\"host\":", host, ""),
    ] {
        out.text(key);
        string(out, text, prefix);
    }
    let version = request.line.and_then(|(line, _)| version(line));
    out.text(",\"version\":");
    string(out, version, "");
    for (key, number) in [
        (",\"status\":", request.status.map(u64::from)),
        (",\"receiving_ms\":", request.receiving.map(whole_millis)),
        (",\"responding_ms\":", request.responding.map(whole_millis)),
    ] {
        out.text(key);
        number_or(out, number, "null");
    }
}

fn number_or(out: &mut String, number: Option<u64>, none: &str) {
    match number {
        Some(number) => out.number(number),
        None => out.text(none),
    }
}

fn letters(out: &mut String, letters: &[u8]) {
    out.extend(letters.iter().copied().map(char::from));
}

/// Appends a text in quotes, behind `prefix`.
fn string(out: &mut String, text: Option<&str>, prefix: &str) {
    let Some(text) = text else {
        return out.text("null");
    };
    out.text("\"");
    out.text(prefix);
    escape_json(text, out);
    out.text("\"");
}

/// The method and the path with its query of a request line, whose target may be a whole URL.
fn method_and_path(request: &str) -> (&str, &str) {
    let (method, rest) = request.split_once(' ').unwrap_or((request, ""));
    let target = rest.split_once(' ').map_or(rest, |(target, _)| target);
    let Some((_, after)) = target
        .split_once("://")
        .filter(|_| !target.starts_with('/'))
    else {
        return (method, target);
    };
    let path = after.find(['/', '?']).and_then(|at| after.get(at..));
    (method, path.unwrap_or_default())
}

/// The version of a request line, such as `HTTP/1.1`. A line whose end was cut off has none.
fn version(request: &str) -> Option<&str> {
    let (_, version) = request.rsplit_once(' ')?;
    version.starts_with("HTTP/").then_some(version)
}

/// Appends what a client sent, so that it can neither end the line nor the quotes: like haproxy, `#` and two digits mean a
/// special byte.
fn escape(text: &str, out: &mut String) {
    let is_special = |byte: &u8| !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'#');
    each_special(text, out, is_special, |byte, out| {
        write!(out, "#{byte:02X}");
    });
}

/// Appends a text as it is written within a string of JSON.
fn escape_json(text: &str, out: &mut String) {
    let is_special = |byte: &u8| matches!(byte, 0..=31 | 127 | b'"' | b'\\');
    each_special(text, out, is_special, |byte, out| match byte {
        b'"' => out.push_str("\\\""),
        b'\\' => out.push_str("\\\\"),
        byte => write!(out, "\\u{byte:04x}"),
    });
}

/// Appends the text. `write` writes its special bytes.
fn each_special(
    text: &str,
    out: &mut String,
    is_special: impl Fn(&u8) -> bool,
    write: impl Fn(u8, &mut String),
) {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(length) = bytes.iter().skip(from).position(&is_special) {
        out.push_str(text.get(from..from + length).unwrap_or_default());
        let at = from + length;
        bytes.get(at).into_iter().for_each(|byte| write(*byte, out));
        from = at + 1;
    }
    out.push_str(text.get(from..).unwrap_or_default());
}

/// Writes dates. Most lines of a batch are of the same second.
#[derive(Debug, Default)]
pub(crate) struct Dates {
    second: u64,
    form: Access,
    text: String,
}

impl Dates {
    /// The date of `time` in the form of such lines.
    pub(crate) fn at(&mut self, time: SystemTime, form: Access) -> &str {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.text.is_empty() || self.second != since.as_secs() || self.form != form {
            (self.second, self.form) = (since.as_secs(), form);
            self.text = match form {
                Access::Json => utc(time, RFC_3339).to_string(),
                Access::Haproxy | Access::Off => utc(time, DATE).to_string(),
            };
        }
        // Everything but the milliseconds is that of an earlier line.
        let end = if form == Access::Json { "Z" } else { "" };
        let before = self.text.len().saturating_sub(3 + end.len());
        self.text.truncate(before);
        let millis = since.subsec_millis();
        let digits = [100, 10, 1].map(|place| char::from_digit(millis / place % 10, 10));
        self.text.extend(digits.into_iter().flatten());
        self.text.push_str(end);
        &self.text
    }
}

/// RFC 3339: `2026-11-21T15:04:05.678Z`.
const RFC_3339: &str = "%Y-%m-%dT%H:%M:%S.%3fZ";

#[cfg(test)]
mod tests;
