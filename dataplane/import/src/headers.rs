//! Header fields that rules set, add or remove: `http-request`, `http-response` and `http-after-response` with `set-header` and its
//! like, and the old `reqadd`, `reqdel`, `rspadd`, `rspdel`.

use super::condition::{Rule, split};
use super::importer::Importer;
use super::proxy::{Change, Does, Edit, Of, Proxy, Stage, What};
use super::words::Line;

impl Importer<'_> {
    /// `http-response …` and `http-after-response …`
    pub(super) fn http_response(&mut self, line: &Line, proxy: &mut Proxy) -> Result<(), String> {
        let (words, condition) = split(line.from(1));
        let Some((action, rest)) = words.split_first() else {
            return Err("says nothing to do; expected set-header or del-header".into());
        };
        match (*action, rest) {
            ("set-header" | "add-header" | "del-header", [name, value @ ..]) => {
                let of = match line.word(0) {
                    "http-after-response" => Of::AllAnswers,
                    _ => Of::Responses,
                };
                let change = change(action, value)?;
                self.edit(line, of, name, change, condition, proxy)
            }
            ("deny" | "silent-drop", _) => Err(format!(
                "`{action}`: Ballast withholds no answers, and those that this line denies are served; deny their requests, or let the endpoint do it"
            )),
            ("return", _) => Err("`return`: Ballast withholds no answers, and those that this line replaces are served; answer their requests, or let the endpoint do it".into()),
            _ => Err(format!("`{action}` has no counterpart; remove it")),
        }
    }

    /// `reqadd`, `rspadd`: `Name:\ value`
    pub(super) fn add_field(
        &mut self,
        line: &Line,
        of: Of,
        proxy: &mut Proxy,
    ) -> Result<(), String> {
        let (words, condition) = split(line.from(1));
        let field = words.join(" ");
        let Some((name, value)) = field.split_once(':') else {
            return Err("is no header field; expected NAME:\\ VALUE".into());
        };
        // It is no format: a percent sign stands for itself.
        let change = Change::Add(value.trim().replace('%', "%%"));
        self.edit(line, of, name, change, condition, proxy)
    }

    /// `reqdel`, `reqidel`, `rspdel`, `rspidel`: `^Name:.*`
    pub(super) fn delete_field(
        &mut self,
        line: &Line,
        of: Of,
        proxy: &mut Proxy,
    ) -> Result<(), String> {
        let (words, condition) = split(line.from(1));
        let expression = words.join(" ");
        let name = expression
            .strip_prefix('^')
            .and_then(|rest| rest.split_once(':'));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        match name {
            Some((name, "" | ".*")) if name.bytes().all(is_plain) => {
                self.edit(line, of, name, Change::Remove, condition, proxy)
            }
            _ => Err("a regular expression over header fields has no counterpart; write http-response del-header NAME".into()),
        }
    }

    pub(super) fn edit(
        &mut self,
        line: &Line,
        of: Of,
        name: &str,
        change: Change,
        condition: &[String],
        proxy: &mut Proxy,
    ) -> Result<(), String> {
        if of == Of::Requests && name.eq_ignore_ascii_case("Host") {
            let rule = Rule::new(line, Does::Changes(What::Host), &[]);
            proxy.rules.push(rule);
        }
        if of == Of::Requests {
            let allows = |rule: &Rule| rule.does == Does::Allow;
            if proxy.rules_of(Stage::REQUESTS).any(allows) {
                self.report.differs(line, "a line before it allows requests, for which haproxy asks no more lines, and Ballast edits them too; write it before that line");
            }
            if name.eq_ignore_ascii_case("X-Forwarded-For") {
                if let Some(result) = Self::forwarded_for(line, &change, condition, proxy) {
                    return result;
                }
            } else if is_our_own(name, &change, condition, proxy) {
                // Ballast writes these fields by itself, where it writes any of them.
                proxy.forwards_all.get_or_insert_with(|| line.clone());
                self.report.differs(line, "Ballast writes X-Forwarded-Proto, -Port and -Host in place of the client's (http.x-forwarded); haproxy passes on what no line sets");
                return Ok(());
            }
        }
        let is_hsts = name.eq_ignore_ascii_case("Strict-Transport-Security");
        let by_tls = of != Of::Requests && is_hsts && asks_for_tls(condition, proxy) == Some(true);
        let condition = if by_tls { &[] } else { condition };
        let fixed = match &change {
            Change::Set(value) => literal(value).map(Change::Set),
            Change::Add(value) => literal(value).map(Change::Add),
            Change::Remove => Some(Change::Remove),
        };
        let fixed = fixed.filter(|_| condition.is_empty());
        let Some(change) = fixed else {
            let why = match condition.is_empty() {
                true => "a header edit of Ballast has a fixed value",
                false => "a header edit of Ballast has no condition",
            };
            let remedy = instead(name);
            if of == Of::Requests && !matches!(change, Change::Add(_)) {
                let lost = Self::withheld(line, name, proxy);
                return Err(format!("{why}, {lost}; {remedy}"));
            }
            return Err(format!("{why}; {remedy}"));
        };
        if let Change::Set(value) | Change::Add(value) = &change
            && of == Of::Responses
            && is_hsts
            && proxy.kind.has_frontend()
            && let Some(seconds) = max_age(value)
        {
            proxy.hsts = Some((line.clone(), seconds));
            return Ok(());
        }
        if by_tls {
            let why = "answers without TLS have the field, too; browsers do not look at it there";
            self.report.differs(line, why);
        }
        proxy.edits.push(Edit::new(line, of, name, change));
        Ok(())
    }

    /// Takes out a field that haproxy overwrites and Ballast cannot, so that endpoints do not believe the client's. Says so.
    pub(super) fn withheld(line: &Line, name: &str, proxy: &mut Proxy) -> &'static str {
        if ballast_core::http::concerns_connection(name) || name.eq_ignore_ascii_case("Host") {
            return "so that what the client sent stays there";
        }
        let mut edits = proxy.edits.iter();
        let is_known = |edit: &Edit| {
            edit.of == Of::Requests
                && edit.name.eq_ignore_ascii_case(name)
                && !matches!(edit.change, Change::Add(_))
        };
        if !edits.any(is_known) {
            let removal = Edit::new(line, Of::Requests, name, Change::Remove);
            proxy.edits.push(removal);
        }
        "so that the field is taken out of requests"
    }

    /// A line about `X-Forwarded-For` of requests; `None`: it is an edit like others, too. A client's own field never gets further
    /// than haproxy lets it.
    fn forwarded_for(
        line: &Line,
        change: &Change,
        condition: &[String],
        proxy: &mut Proxy,
    ) -> Option<Result<(), String>> {
        const OTHERWISE: &str = "the client's address is written, in place of what the client sent";
        let is_client = |value: &str| matches!(value, "%[src]" | "%ci");
        match change {
            Change::Add(value) if !is_client(value) => return None,
            Change::Set(value) if condition.is_empty() && !value.contains('%') => {
                proxy.fixes_forwarded_for = Some(line.clone());
                return None;
            }
            Change::Remove if condition.is_empty() => {
                proxy.drops_forwarded_for = Some(line.clone());
                return None;
            }
            Change::Add(_) => {}
            Change::Set(_) | Change::Remove => proxy.drops_forwarded_for = Some(line.clone()),
        }
        proxy.forwarded_for.get_or_insert_with(|| line.clone());
        let is_exact = condition.is_empty()
            && matches!(change, Change::Set(value) | Change::Add(value) if is_client(value));
        Some(match is_exact {
            true => Ok(()),
            false => Err(format!(
                "X-Forwarded-For has the client's address alone, and no condition: {OTHERWISE}; write option forwardfor"
            )),
        })
    }
}

/// What `set-header`, `add-header` or `del-header` does with a field.
pub(super) fn change(action: &str, value: &[&str]) -> Result<Change, String> {
    Ok(match (action, value) {
        ("del-header", [] | ["-m", "str"]) => Change::Remove,
        ("del-header", _) => {
            return Err("a header edit of Ballast takes out a field of one name, and those of a pattern stay; write a line for each name".into());
        }
        ("add-header", _) => Change::Add(value.join(" ")),
        _ => Change::Set(value.join(" ")),
    })
}

/// The text of a format in which nothing is computed: `%%` is a percent sign; `None`: something is.
pub(super) fn literal(format: &str) -> Option<String> {
    let parts: Vec<&str> = format.split("%%").collect();
    let is_text = parts.iter().all(|part| !part.contains('%'));
    is_text.then(|| parts.join("%"))
}

/// What there is in place of a field that a line computes.
fn instead(name: &str) -> &'static str {
    match name.to_ascii_lowercase().as_str() {
        "x-real-ip" | "x-client-ip" => {
            "write option forwardfor, by which X-Forwarded-For has the address"
        }
        "x-request-id" | "x-correlation-id" | "x-unique-id" => {
            "Ballast makes no ids of requests: let endpoints make them; send-proxy-tlvs of the service has `unique-id` for connections"
        }
        _ => "remove it, or give these requests a service of their own",
    }
}

/// Whether a line sets a field of `X-Forwarded-` to what Ballast sets it to by itself.
fn is_our_own(name: &str, change: &Change, condition: &[String], proxy: &Proxy) -> bool {
    let (Change::Set(value) | Change::Add(value)) = change else {
        return false;
    };
    let by_tls = asks_for_tls(condition, proxy);
    let (with_tls, without) = (by_tls == Some(true), by_tls == Some(false));
    match name.to_ascii_lowercase().as_str() {
        "x-forwarded-proto" => match value.as_str() {
            "https" => with_tls,
            "http" => without,
            "%[ssl_fc,iif(https,http)]" => condition.is_empty(),
            _ => false,
        },
        "x-forwarded-port" => value == "%[dst_port]" && (condition.is_empty() || with_tls),
        "x-forwarded-host" => {
            condition.is_empty()
                && matches!(
                    value.to_ascii_lowercase().as_str(),
                    "%[hdr(host)]" | "%[req.hdr(host)]"
                )
        }
        _ => false,
    }
}

/// Whether a condition holds for requests by TLS, or for all others; `None`: it asks for something else.
fn asks_for_tls(condition: &[String], proxy: &Proxy) -> Option<bool> {
    let (word, terms) = condition.split_first()?;
    let terms = terms.join(" ");
    let (is_for_tls, term) = match terms.strip_prefix('!') {
        Some(term) => (word == "unless", term.trim_start()),
        None => (word == "if", &*terms),
    };
    let lines = proxy.acls.iter();
    let mut lines = lines.filter(|acl| acl.number > proxy.head.number && acl.word(1) == term);
    let is_tls = match (lines.next(), lines.next()) {
        (Some(acl), None) => matches!(acl.from(2), [criterion] if criterion == "ssl_fc"),
        _ => term == "{ ssl_fc }",
    };
    is_tls.then_some(is_for_tls)
}

fn max_age(value: &str) -> Option<u64> {
    let age = value.trim().trim_end_matches(';').strip_prefix("max-age=");
    age?.parse().ok()
}
