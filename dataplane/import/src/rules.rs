//! `http-request`, `tcp-request`, `redirect`, and the old `reqrep`.

use std::num::NonZeroU16;
use std::str::FromStr;

use ballast_core::table::Redirect;

use super::condition::{Rule, split};
use super::decide::SERVED;
use super::headers::change;
use super::importer::Importer;
use super::pages::{Answer, said};
use super::pattern::{PathKind, PathPattern};
use super::proxy::{Does, Of, Proxy, Track, What};
use super::report::Report;
use super::section::COUNTS;
use super::units::{fitting, port, time};
use super::words::Line;

impl Importer<'_> {
    /// `http-request …`, and `block if …`
    pub(super) fn http_request(
        &mut self,
        line: &Line,
        words: &[String],
        proxy: &mut Proxy,
    ) -> Result<(), String> {
        let (words, condition) = split(words);
        let Some((action, rest)) = words.split_first() else {
            return Err(
                "says nothing to do; expected deny, redirect or set-header, for example".into(),
            );
        };
        let does = match (*action, rest) {
            ("allow", []) => Does::Allow,
            ("deny" | "reject" | "tarpit" | "silent-drop", _) => self.denies(line, action, rest),
            ("auth", _) => {
                self.report.differs(line, "Ballast asks for no password: who must give one is denied; let the endpoint ask");
                Does::Deny(Answer::plain(403))
            }
            ("use-service", _) => {
                self.or_lost(line, Err("`use-service` has no counterpart".into()))
            }
            ("redirect", _) => self.or_lost(line, target(rest).map(Does::Redirect)),
            ("return", _) => {
                let answer = self.answer(line, rest);
                self.or_lost(line, answer)
            }
            ("set-header" | "add-header" | "del-header", [name, value @ ..]) => {
                let change = change(action, value)?;
                return self.edit(line, Of::Requests, name, change, condition, proxy);
            }
            ("replace-path", [from, to]) => {
                changes(line, What::Path, proxy);
                return strip(line, from, to, condition, proxy);
            }
            ("set-uri" | "replace-uri", _) => {
                changes(line, What::Address, proxy);
                return Err(format!("`{action}` has no counterpart; {REWRITE}"));
            }
            ("set-path" | "set-pathq" | "replace-path" | "replace-pathq" | "normalize-uri", _) => {
                changes(line, What::Path, proxy);
                return Err(format!("`{action}` has no counterpart; {REWRITE}"));
            }
            ("replace-header" | "replace-value", [name, from, ..]) => {
                return Err(Self::replaced(line, action, (name, from), proxy));
            }
            _ => return self.no_rule(line, action, proxy),
        };
        proxy.rules.push(Rule::new(line, does, condition));
        Ok(())
    }

    /// An action of `http-request` that changes or counts something, and has no place among the rules.
    fn no_rule(&mut self, line: &Line, action: &str, proxy: &mut Proxy) -> Result<(), String> {
        match action {
            // A line that looks at the variable says what becomes of it.
            _ if SETS_VARIABLES.iter().any(|set| action.starts_with(set)) => {
                let why = format!("`{action}` changes nothing that a client sees by itself");
                self.report.note(line, why);
            }
            _ if action.starts_with("track-sc") => self.report.note(line, COUNTS),
            "set-log-level" | "set-nice" | "capture" | "disable-l7-retry" => {
                let why = format!("`{action}` changes nothing that a client sees");
                self.report.note(line, why);
            }
            "set-src" => {
                proxy.sets_src = true;
                return Err(SET_SRC.into());
            }
            "set-dst-port" => {
                proxy.sets_port = true;
                return Err(SET_PORT.into());
            }
            _ if action.starts_with("lua.") => {
                return Err(format!(
                    "`{action}` has no counterpart, and requests that it turns away go on to the backend; let the endpoint ask, or deny them by host, path or address"
                ));
            }
            _ => return Err(format!("`{action}` has no counterpart; remove it")),
        }
        Ok(())
    }

    /// What becomes of a field that a rule replaces, where it fits an expression.
    fn replaced(
        line: &Line,
        action: &str,
        (name, from): (&str, &str),
        proxy: &mut Proxy,
    ) -> String {
        let mut lost = "";
        if name.eq_ignore_ascii_case("Host") {
            changes(line, What::Host, proxy);
        } else if [".*", "^.*", "^.*$", "(.*)", "^(.*)$"].contains(&from) {
            lost = Self::withheld(line, name, proxy);
        }
        let and = if lost.is_empty() { "" } else { ", " };
        format!("`{action}` has no counterpart{and}{lost}; remove it")
    }

    /// A rule that turns requests away.
    fn denies(&mut self, line: &Line, action: &str, words: &[&str]) -> Does {
        match action {
            "reject" | "silent-drop" => {
                self.report.differs(line, NO_ANSWER);
                Does::Deny(Answer::plain(403))
            }
            "tarpit" => self.denial(line, words, 500),
            _ => self.denial(line, words, 403),
        }
    }

    /// The answer of a denial. What cannot be understood of it is left out, and the denial stays.
    fn denial(&mut self, line: &Line, words: &[&str], usual: u16) -> Does {
        let mut said = said(line, words);
        if let Some(why) = said.lost {
            let why = format!("{why}; these requests are denied all the same");
            self.report.left_out(line, why);
        }
        let status = said.status.and_then(|text| text.parse().ok());
        let status = status.filter(|status| (200..=599).contains(status));
        said.answer.status = status.unwrap_or(usual);
        Does::Deny(said.answer)
    }

    /// `http-request return …`. An answer that refuses stays, whatever else of it is left out.
    fn answer(&mut self, line: &Line, words: &[&str]) -> Result<Does, String> {
        let mut said = said(line, words);
        let status = said.status.unwrap_or("200").parse().ok();
        let status = status.filter(|status| (200..=599).contains(status));
        let status: u16 = status.ok_or("has no status from 200 to 599; write one")?;
        match said.lost {
            Some(why) if status < 400 => return Err(why),
            Some(why) => {
                let why = format!("{why}; these requests are answered {status} all the same");
                self.report.left_out(line, why);
            }
            None => {}
        }
        said.answer.status = status;
        Ok(Does::Answer(said.answer))
    }

    /// `redirect …`
    pub(super) fn redirect(&mut self, line: &Line, proxy: &mut Proxy) -> Result<(), String> {
        let (words, condition) = split(line.from(1));
        let does = self.or_lost(line, target(&words).map(Does::Redirect));
        proxy.rules.push(Rule::new(line, does, condition));
        Ok(())
    }

    /// What a line answers. Where a table cannot have it, the clients whom it keeps out are kept out all the same.
    fn or_lost(&mut self, line: &Line, does: Result<Does, String>) -> Does {
        does.unwrap_or_else(|why| {
            let why = format!(
                "{why}; {SERVED}, and clients whom it keeps out by their addresses are denied"
            );
            self.report.left_out(line, why);
            Does::Lost
        })
    }
}

/// `tcp-request …`
pub(super) fn tcp_request(
    line: &Line,
    proxy: &mut Proxy,
    report: &mut Report,
) -> Result<(), String> {
    if line.word(1) == "inspect-delay" {
        let delay = time(line.word(2)).ok_or("has no time; write one such as 5s")?;
        proxy.inspect_delay = Some(fitting(delay));
        return Ok(());
    }
    let (words, condition) = split(line.from(2));
    let action = match (line.word(1), words.as_slice()) {
        ("connection" | "session" | "content", ["accept"]) => Does::Allow,
        ("connection" | "session" | "content", ["reject", ..]) => Does::Deny(Answer::plain(403)),
        ("connection" | "session" | "content", ["silent-drop", ..]) => {
            let why = "these clients are closed at once, and not left waiting";
            report.differs(line, why);
            Does::Deny(Answer::plain(403))
        }
        ("connection", ["expect-proxy", "layer4"]) => Does::ExpectProxy,
        ("connection" | "session" | "content", [track, key, table @ ..])
            if track.starts_with("track-sc") =>
        {
            Does::Track(tracked(line, track, key, table, report)?)
        }
        (_, ["set-src", ..]) => {
            proxy.sets_src = true;
            return Err(SET_SRC.into());
        }
        (_, ["set-dst-port", ..]) => {
            proxy.sets_port = true;
            return Err(SET_PORT.into());
        }
        (_, ["switch-mode", ..]) => {
            proxy.switches_mode = true;
            return Err("`switch-mode` has no counterpart: Ballast reads requests in mode http alone; write mode http in this section".into());
        }
        (place, [action, ..])
            if matches!(*action, "use-service" | "set-dst") || action.starts_with("lua.") =>
        {
            return Err(format!(
                "`{place} {action}` has no counterpart, and these connections go on to the backend; reject them if they must not"
            ));
        }
        (place, [action, ..]) => {
            return Err(format!("`{place} {action}` has no counterpart; remove it"));
        }
        (place, []) => {
            return Err(format!(
                "`{place}` says nothing to do; expected accept or reject"
            ));
        }
    };
    proxy.rules.push(Rule::new(line, action, condition));
    Ok(())
}

/// `track-sc… KEY table NAME`: the lines that look at a counter ask for the first one of its number, whatever its key is.
fn tracked(
    line: &Line,
    track: &str,
    key: &str,
    table: &[&str],
    report: &mut Report,
) -> Result<Track, String> {
    let number = track.trim_start_matches("track-sc").parse();
    let is_by_address = key == "src";
    match is_by_address {
        true => report.note(line, COUNTS),
        false => report.left_out(line, format!("Ballast counts clients by their addresses (src), and not by `{key}`; the lines that look at the counter say what becomes of them")),
    }
    Ok(Track {
        number: number.map_err(|_| "has no counter; write track-sc0")?,
        is_by_address,
        table: match table {
            ["table", name] => Some((*name).to_owned()),
            _ => None,
        },
    })
}

/// What a `tcp-request` line counts that cannot be read: nobody knows by which key.
pub(super) fn unread_track(line: &Line) -> Option<Track> {
    let number = line.word(2).strip_prefix("track-sc")?.parse().ok()?;
    (line.word(0) == "tcp-request").then_some(Track {
        number,
        is_by_address: false,
        table: None,
    })
}

/// `reqrep`, `reqirep`: the form in which service-loadbalancer strips the name of a service.
pub(super) fn replace_request(line: &Line, proxy: &mut Proxy) -> Result<(), String> {
    let (words, condition) = split(line.from(1));
    let [from, to] = *words else {
        return Err("is not understood; expected an expression and a replacement".into());
    };
    let begins = from
        .strip_prefix("^([^ :]*) ")
        .or_else(|| from.strip_prefix("^([^\\ ]*)\\ "));
    let to = to
        .strip_prefix("\\1 ")
        .or_else(|| to.strip_prefix("\\1\\ "));
    match (begins, to) {
        (Some(from), Some(to)) => strip(line, from, to, condition, proxy),
        _ => Err(NO_STRIP.into()),
    }
}

/// `scheme https`, `prefix https://example.com`, `location /path`, and `code N`.
fn target(words: &[&str]) -> Result<Redirect, String> {
    let mut target = Redirect {
        status: Some(302),
        ..Redirect::default()
    };
    let mut leads = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            kind @ ("scheme" | "prefix" | "location") => {
                let value = words.next().copied().unwrap_or_default();
                place(kind, value, &mut target)?;
                leads = true;
            }
            "code" => {
                let status = words.next().and_then(|status| status.parse().ok());
                target.status = status.filter(|code| [301, 302, 303, 307, 308].contains(code));
                let why = "has no code of a redirect; expected 301, 302, 303, 307 or 308";
                target.status.ok_or(why)?;
            }
            "drop-query" => target.drop_query = true,
            "append-slash" => return Err("a redirect of Ballast adds no slash to a path; write it without append-slash, or let the endpoint redirect".into()),
            "ignore-empty" => {}
            other => {
                return Err(format!(
                    "`{other}` has no counterpart at a redirect; remove it"
                ));
            }
        }
    }
    target.drop_query &= target.location.is_none();
    let goes_elsewhere = target.scheme.is_some()
        || target.host.is_some()
        || target.port.is_some()
        || target.path.is_some()
        || target.location.is_some();
    match (leads, goes_elsewhere) {
        (true, true) => Ok(target),
        (true, false) => Err(
            "a redirect of Ballast leads to another place than the one asked for; write where to"
                .into(),
        ),
        (false, _) => Err(LEADS_NOWHERE.into()),
    }
}

/// Where a redirect leads.
fn place(kind: &str, value: &str, target: &mut Redirect) -> Result<(), String> {
    if value.is_empty() {
        return Err(LEADS_NOWHERE.into());
    }
    if kind == "scheme" && !value.contains('%') {
        target.scheme = Some(parsed(value)?);
        return Ok(());
    }
    // The address with all that was asked for behind it is a prefix.
    let asked_for = ["%[capture.req.uri]", "%[url]", "%[pathq]"];
    let before = asked_for.iter().find_map(|uri| value.strip_suffix(uri));
    let (kind, value) = match before {
        Some(before) if kind == "location" => ("prefix", before),
        _ => (kind, value),
    };
    let same_host = value.split_once("://").filter(|(_, host)| {
        let host = host
            .strip_prefix("%[")
            .and_then(|host| host.strip_suffix(']'));
        let host = host.map(|host| host.strip_prefix("req.").unwrap_or(host));
        matches!(host, Some("hdr(host)" | "hdr(Host)"))
    });
    if let (Some((scheme, _)), "prefix") = (same_host, kind) {
        target.scheme = Some(parsed(scheme)?);
        return Ok(());
    }
    if value.contains('%') {
        return Err(
            "a redirect of Ballast leads to a fixed place, or to what was asked for at another; write it without a sample".into(),
        );
    }
    if kind == "location" {
        target.location = Some(parsed(value)?);
        return Ok(());
    }
    match address(value, target)? {
        "" | "/" => Ok(()),
        _ => Err(
            "a redirect of Ballast puts nothing before the path; write one line for each path"
                .into(),
        ),
    }
}

/// A part of the place to which a redirect leads.
fn parsed<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| {
        format!("it leads to {text:?}, where no redirect of a table does; expected a scheme, a host or a path")
    })
}

/// Takes scheme, host and port of an address apart; what is left is the path.
fn address<'t>(text: &'t str, target: &mut Redirect) -> Result<&'t str, String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return match text.starts_with('/') {
            true => Ok(text),
            false => Err(format!(
                "{text:?} is no place to lead to; expected a path, or https://HOST/PATH"
            )),
        };
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let (host, port) = match host.rsplit_once(':') {
        Some((host, text)) => (host, Some(port(text)?)),
        None => (host, None),
    };
    target.scheme = Some(parsed(scheme)?);
    target.host = Some(parsed(host)?);
    target.port = port.and_then(NonZeroU16::new);
    Ok(path)
}

/// Remembers that rules behind this line look at something else than what the client sent.
fn changes(line: &Line, what: What, proxy: &mut Proxy) {
    let rule = Rule::new(line, Does::Changes(what), &[]);
    proxy.rules.push(rule);
}

/// Remembers a prefix of the path that endpoints do not see.
fn strip(
    line: &Line,
    from: &str,
    to: &str,
    condition: &[String],
    proxy: &mut Proxy,
) -> Result<(), String> {
    let from = from.strip_prefix('^').unwrap_or(from);
    let from = from.strip_suffix('$').unwrap_or(from);
    // Without a slash in the expression `/svcx` becomes `/x`; the old keyword was written for folders.
    let begins = match line.word(0) {
        "http-request" => PathKind::Begins,
        _ => PathKind::Segment,
    };
    let endings = [
        ("[/]?(.*)", 1, begins),
        ("(/)?(.*)", 2, begins),
        ("/?(.*)", 1, begins),
        ("(/|$)(.*)", 2, PathKind::Segment),
        ("/(.*)", 1, PathKind::Begins),
    ];
    // The old keyword has the method in a group of its own.
    let before = usize::from(line.word(0) != "http-request");
    let found = endings.iter().find_map(|(ending, group, kind)| {
        let prefix = from.strip_suffix(ending)?;
        let is_rest = to == format!("/\\{}", before + group);
        is_rest.then_some((prefix, *kind, *ending))
    });
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-.:~".contains(&byte);
    if proxy.strip.is_some() {
        return Err("a service takes one beginning off paths, and a line before this one names it; write the others at backends of their own".into());
    }
    match found {
        Some((prefix, kind, ending))
            if condition.is_empty()
                && proxy.kind.has_service()
                && prefix.len() > 1
                && prefix.starts_with('/')
                && !prefix.ends_with('/')
                && prefix.bytes().all(plain) =>
        {
            // Where the slash must be there, the path that ends before it stays.
            let slash = if ending == "/(.*)" { "/" } else { "" };
            let path = PathPattern::new(kind, &format!("{prefix}{slash}"), false);
            proxy.strip = Some((line.clone(), path));
            Ok(())
        }
        _ => Err(NO_STRIP.into()),
    }
}

/// What differs where haproxy ends a connection for a request.
pub(super) const NO_ANSWER: &str =
    "these clients are answered 403, and haproxy gives them no answer; write http-request deny";

/// What `http-request` begins with where it writes a variable.
const SETS_VARIABLES: [&str; 3] = ["set-var(", "set-var-fmt(", "unset-var("];

const SET_SRC: &str = "`set-src` has no counterpart: Ballast takes a client's address from its connection, or from a PROXY header (accept-proxy)";

const SET_PORT: &str = "`set-dst-port` has no counterpart: rules of a table look at the port that the client connected to; remove it";

const LEADS_NOWHERE: &str = "leads nowhere; expected `redirect scheme https`, for example";

const REWRITE: &str = "a route has `rewrite`, which replaces the part of the path that it matched";

const NO_STRIP: &str = "rewriting by a regular expression has no counterpart; a route has `rewrite`, which replaces the part of the path that it matched";
