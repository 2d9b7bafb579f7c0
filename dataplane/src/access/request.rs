//! Renders the access lines of HTTP requests, in haproxy's `httplog` form or as JSON.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_core::moment::whole_millis;
use ballast_core::table::Access;

use super::line::RFC_3339;
use crate::os::clock::{DATE, Micros, utc};

/// The contents of the access line of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestRecord<'a> {
    /// The time when the first byte of the request was read.
    pub(crate) began: Micros,
    pub(crate) client: SocketAddr,
    pub(crate) frontend: &'a str,
    /// The service, if the request has one.
    pub(crate) service: Option<&'a str>,
    /// The endpoint, if one was connected.
    pub(crate) server: Option<&'a str>,
    /// From the first byte to the end of its head; `None`: the head did not arrive whole, or was malformed.
    pub(crate) receiving: Option<Duration>,
    /// Time in the queue; `None`: the client left while it waited, or the request had no service.
    pub(crate) queued: Option<Duration>,
    /// Time to connect; `None`: no endpoint was connected.
    pub(crate) connecting: Option<Duration>,
    /// From the connection to the head of the response; `None`: no response came.
    pub(crate) responding: Option<Duration>,
    /// From the first byte of the request to the end of the response.
    pub(crate) total: Duration,
    /// The status that the client got.
    pub(crate) status: Option<u16>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// haproxy's four letters: what ended the request, in which phase, and what became of the cookie of its affinity.
    pub(crate) termination: [u8; 4],
    /// Numbers of connections when the request ended: of the process, the frontend, the service and the endpoint.
    pub(crate) connections: [u32; 4],
    /// Attempts to connect after the first one.
    pub(crate) retries: u16,
    /// Whether one of these attempts was at another endpoint than the attempt before it.
    pub(crate) is_redispatched: bool,
    /// Clients that were ahead of this one in the service's queue.
    pub(crate) queue: u64,
    /// The request line as it was sent, or its beginning, and the host that was asked for; `None`: the request was malformed.
    pub(crate) request: Option<(&'a str, &'a str)>,
}

/// Appends the line to `line`, without a line feed. `date` is that of the request in the same form.
pub(crate) fn render(record: &RequestRecord<'_>, form: Access, date: &str, line: &mut String) {
    match form {
        Access::Off => {}
        Access::Haproxy => httplog(record, date, line),
        Access::Json => json(record, date, line),
    }
}

fn httplog(record: &RequestRecord<'_>, date: &str, line: &mut String) {
    let mut out = Out(line);
    out.address(record.client, false);
    out.text(" [").text(date).text("] ").text(record.frontend);
    out.text(" ")
        .text(record.service.unwrap_or(record.frontend));
    out.text("/").text(record.server.unwrap_or("<NOSRV>"));
    let times = [
        record.receiving,
        record.queued,
        record.connecting,
        record.responding,
    ];
    let mut before = " ";
    for time in times {
        out.text(before);
        match time {
            Some(time) => out.number(whole_millis(time)),
            None => out.text("-1"),
        };
        before = "/";
    }
    out.text("/").number(whole_millis(record.total));
    match record.status {
        Some(status) => out.text(" ").number(status.into()),
        None => out.text(" -1"),
    };
    out.text(" ").number(record.bytes_out).text(" - - ");
    record.termination.iter().for_each(|letter| {
        out.0.push(char::from(*letter));
    });
    before = " ";
    for connections in record.connections {
        out.text(before).number(connections.into());
        before = "/";
    }
    let retried = if record.is_redispatched { "/+" } else { "/" };
    out.text(retried).number(record.retries.into());
    out.text(" 0/").number(record.queue).text(" \"");
    match record.request {
        Some((request, _)) => escape(request, out.0),
        None => out.0.push_str("<BADREQ>"),
    }
    line.push('"');
}

fn json(record: &RequestRecord<'_>, date: &str, line: &mut String) {
    let mut out = Out(line);
    out.text("{\"time\":\"").text(date).text("\",\"client\":\"");
    out.address(record.client, true);
    // Names and addresses contain no character that JSON would escape.
    out.text("\",\"frontend\":\"").text(record.frontend);
    out.text("\",\"service\":").name(record.service);
    out.text(",\"server\":").name(record.server);
    out.text(",\"bytes_in\":").number(record.bytes_in);
    out.text(",\"bytes_out\":").number(record.bytes_out);
    let total = whole_millis(record.total);
    out.text(",\"duration_ms\":").number(total);
    out.text(",\"termination\":\"");
    record.termination.iter().for_each(|letter| {
        out.0.push(char::from(*letter));
    });
    let request = record.request.map(|(request, host)| {
        let (method, path) = method_and_path(request);
        (method, path, (!host.is_empty()).then_some(host))
    });
    out.text("\",\"method\":")
        .string(request.map(|(method, ..)| method), "");
    let path = request.map(|(_, path, _)| path);
    let slash = match path {
        Some(path) if !path.starts_with(['/', '*']) => "/",
        _ => "",
    };
    out.text(",\"path\":").string(path, slash);
    out.text(",\"host\":")
        .string(request.and_then(|(.., host)| host), "");
    out.text(",\"status\":");
    match record.status {
        Some(status) => out.number(status.into()),
        None => out.text("null"),
    };
    line.push('}');
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

/// Appends what a client sent, so that it can neither end the line nor the quotes: like haproxy, `#` and two digits stand for a
/// special byte.
fn escape(text: &str, out: &mut String) {
    let is_special = |byte: &u8| !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'#');
    each_special(text, out, is_special, |byte, out| {
        write!(out, "#{byte:02X}").unwrap_or_default();
    });
}

/// Appends a text as it stands within a string of JSON.
fn escape_json(text: &str, out: &mut String) {
    let is_special = |byte: &u8| matches!(byte, 0..=31 | 127 | b'"' | b'\\');
    each_special(text, out, is_special, |byte, out| match byte {
        b'"' => out.push_str("\\\""),
        b'\\' => out.push_str("\\\\"),
        byte => write!(out, "\\u{byte:04x}").unwrap_or_default(),
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

/// Appends pieces of a line.
struct Out<'a>(&'a mut String);

impl Out<'_> {
    fn text(&mut self, text: &str) -> &mut Self {
        self.0.push_str(text);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.push_str(itoa::Buffer::new().format(number));
        self
    }

    fn address(&mut self, address: SocketAddr, has_brackets: bool) {
        match address {
            SocketAddr::V4(address) => {
                let mut before = "";
                for octet in address.ip().octets() {
                    self.text(before).number(octet.into());
                    before = ".";
                }
            }
            // Writing to a String cannot fail.
            SocketAddr::V6(address) if has_brackets => {
                write!(self.0, "[{}]", address.ip()).unwrap_or_default();
            }
            SocketAddr::V6(address) => write!(self.0, "{}", address.ip()).unwrap_or_default(),
        }
        self.text(":").number(address.port().into());
    }

    /// A name in quotes.
    fn name(&mut self, name: Option<&str>) -> &mut Self {
        match name {
            Some(name) => self.text("\"").text(name).text("\""),
            None => self.text("null"),
        }
    }

    /// A text of a client in quotes, behind `prefix`.
    fn string(&mut self, text: Option<&str>, prefix: &str) -> &mut Self {
        let Some(text) = text else {
            return self.text("null");
        };
        self.text("\"").text(prefix);
        escape_json(text, self.0);
        self.text("\"")
    }
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
        self.text
            .truncate(self.text.len().saturating_sub(3 + end.len()));
        let millis = since.subsec_millis();
        let mut digits = itoa::Buffer::new();
        // The first digit keeps the zeros behind it.
        let digits = digits.format(1000 + millis);
        self.text.push_str(digits.get(1..).unwrap_or_default());
        self.text.push_str(end);
        &self.text
    }
}

#[cfg(test)]
mod tests;
