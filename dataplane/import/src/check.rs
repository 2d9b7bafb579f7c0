//! Health checks: `option httpchk` and its like, `http-check`, `tcp-check`.

use std::collections::BTreeSet;

use super::importer::Importer;
use super::units::no_port;
use super::words::Line;

/// How the servers of a section are checked: its `option` chooses which rules count.
#[derive(Clone, Debug, Default)]
pub(super) struct Check {
    pub(super) kind: Kind,
    http: Own<HttpRules>,
    tcp: Own<TcpRules>,
}

/// Rules of a section. As in haproxy, its first line of rules takes the place of those that its defaults have.
#[derive(Clone, Debug, Default)]
struct Own<T> {
    /// Whether they are the section's, and not those of its defaults.
    is_own: bool,
    rules: T,
}

impl<T: Default> Own<T> {
    /// The rules of the section: those of its defaults go.
    fn begin(&mut self) -> &mut T {
        if !std::mem::replace(&mut self.is_own, true) {
            self.rules = T::default();
        }
        &mut self.rules
    }
}

/// What `option …` says of checks.
#[derive(Clone, Debug, Default)]
pub(super) enum Kind {
    #[default]
    Connects,
    Http,
    Tcp,
    /// One that speaks a protocol of its own.
    Fixed(Tcp),
}

impl Kind {
    /// One that sends these bytes and looks for those.
    pub(super) fn fixed(send: &[u8], answer: &[u8]) -> Self {
        Self::Fixed(Tcp {
            send: send.into(),
            answer: Some(answer.into()),
        })
    }
}

/// `option httpchk` and `http-check`.
#[derive(Clone, Debug, Default)]
pub(super) struct HttpRules {
    /// Whether a line of the section says that a request is asked.
    asks: bool,
    pub(super) request: Http,
    /// Statuses that pass, as a table writes them.
    pub(super) expect: Option<String>,
    pub(super) body: Option<String>,
    /// It has several steps, of which a table has none.
    has_steps: bool,
    /// How it connects, where it is said; else as the servers say.
    connect: Option<Connect>,
}

/// `tcp-check`.
#[derive(Clone, Debug, Default)]
struct TcpRules {
    bytes: Tcp,
    /// A part of it cannot be asked, so that it only connects.
    only_connects: bool,
    connect: Option<Connect>,
}

impl Check {
    /// The same for a section that begins with what its defaults say.
    pub(super) fn inherited(mut self) -> Self {
        self.http.is_own = false;
        self.tcp.is_own = false;
        self
    }

    /// The check by a request, if there is one.
    pub(super) fn http(&self) -> Option<&HttpRules> {
        let Own { is_own, rules } = &self.http;
        let asks = matches!(self.kind, Kind::Http) && (rules.asks || !is_own);
        Some(rules).filter(|rules| asks && !rules.has_steps)
    }

    /// The bytes of another check; none where it only connects.
    pub(super) fn tcp(&self) -> Tcp {
        match &self.kind {
            Kind::Fixed(tcp) => tcp.clone(),
            Kind::Tcp if !self.tcp.rules.only_connects => self.tcp.rules.bytes.clone(),
            Kind::Connects | Kind::Http | Kind::Tcp => Tcp::default(),
        }
    }

    pub(super) fn connect(&self) -> Option<&Connect> {
        match self.kind {
            Kind::Http => self.http.rules.connect.as_ref(),
            Kind::Tcp => self.tcp.rules.connect.as_ref(),
            Kind::Connects | Kind::Fixed(_) => None,
        }
    }

    /// `option tcp-check`: the rules of defaults count only where these have the option as well.
    pub(super) fn by_tcp(&mut self) {
        if !matches!(self.kind, Kind::Tcp) {
            self.tcp.begin();
        }
        self.kind = Kind::Tcp;
    }
}

/// `connect` of a check.
#[derive(Clone, Debug, Default)]
pub(super) struct Connect {
    pub(super) tls: bool,
    pub(super) port: Option<u16>,
    pub(super) sni: Option<String>,
}

/// A request of a check.
#[derive(Clone, Debug)]
pub(super) struct Http {
    /// The line that says it; none where it is not said.
    pub(super) line: Option<Line>,
    pub(super) method: Option<String>,
    pub(super) path: Option<String>,
    pub(super) host: Option<String>,
}

impl Default for Http {
    /// What haproxy asks where nothing else is said.
    fn default() -> Self {
        Self {
            line: None,
            method: Some("OPTIONS".into()),
            path: None,
            host: None,
        }
    }
}

/// A check by bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Tcp {
    pub(super) send: Vec<u8>,
    /// What the answer contains.
    pub(super) answer: Option<Vec<u8>>,
}

impl Importer<'_> {
    /// `option httpchk [METHOD] [URI] [VERSION]`
    pub(super) fn option_httpchk(&mut self, line: &Line, check: &mut Check) {
        check.kind = Kind::Http;
        let rules = check.http.begin();
        rules.asks = true;
        let request = &mut rules.request;
        let is_sent = |line: &Line| line.word(0) == "http-check";
        let is_sent = request.line.as_ref().is_some_and(is_sent);
        let (method, path) = match line.from(2) {
            // A `send` of the section stays; another `option httpchk` does not.
            [] if is_sent => return,
            [] => {
                *request = Http::default();
                return;
            }
            // So does the method of a `send`.
            [path] if is_sent => (None, path),
            [path] => (Some("OPTIONS"), path),
            [method, path, ..] => (Some(method.as_str()), path),
        };
        request.line.get_or_insert_with(|| line.clone());
        if let Some(method) = method {
            request.method = Some(method)
                .filter(|method| *method != "GET")
                .map(str::to_owned);
        }
        request.path = Some(path.clone());
        // Old configurations write header fields behind the version.
        let version = line.from(4).join(" ");
        for field in version.split("\r\n").skip(1) {
            if let Some((name, value)) = field.split_once(':') {
                self.check_header(line, name, value.trim(), request);
            }
        }
    }

    fn check_header(&mut self, line: &Line, name: &str, value: &str, http: &mut Http) {
        match name.to_ascii_lowercase().as_str() {
            "host" if !value.is_empty() => http.host = Some(value.into()),
            "connection" | "user-agent" | "accept" => {}
            _ => self.report.left_out(
                line,
                format!("a check of Ballast has no header {name}, and an endpoint that does not pass without it is down; remove it"),
            ),
        }
    }

    /// `http-check …`
    pub(super) fn http_check(&mut self, line: &Line, check: &mut Check) -> Result<(), String> {
        let word = line.word(1);
        let inherited = (!check.http.is_own).then(|| check.http.rules.request.clone());
        let rules = match word {
            // In haproxy these are no rules: those of the defaults stay.
            "comment" | "disable-on-404" | "send-state" => &mut check.http.rules,
            _ => check.http.begin(),
        };
        match word {
            "send" => {
                let before = rules.request.line.as_ref();
                rules.has_steps |= before.is_some_and(|line| line.word(0) == "http-check");
                if rules.has_steps {
                    return Err("a check of Ballast asks once, so that this one connects and asks nothing; keep one send".into());
                }
                rules.asks = true;
                rules.request.line = Some(line.clone());
                self.check_send(line, &mut rules.request);
                Ok(())
            }
            "expect" => {
                if let Some(asked) = inherited.filter(|asked| asked.line.is_some()) {
                    rules.asks = true;
                    // A `send` of this section takes its place.
                    rules.request = Http {
                        line: None,
                        ..asked
                    };
                    self.report.differs(line, "the request of the defaults is asked here, and by haproxy none since version 2.2, so that its check fails; write http-check send");
                }
                http_expect(line, rules)
            }
            "connect" => connect(line, &mut rules.connect),
            "comment" | "send-state" => Ok(()),
            "disable-on-404" => {
                Err("has no counterpart: an answer with 404 is a failed check here".into())
            }
            other => Err(format!(
                "`http-check {other}` has no counterpart; remove it"
            )),
        }
    }

    fn check_send(&mut self, line: &Line, http: &mut Http) {
        let mut words = line.from(2).iter();
        while let Some(word) = words.next() {
            let value = words.next().map(String::as_str).unwrap_or_default();
            match word.as_str() {
                "meth" => http.method = Some(value.into()).filter(|method| method != "GET"),
                "uri" => http.path = Some(value.into()),
                "ver" => {}
                "hdr" => {
                    let field = words.next().map(String::as_str).unwrap_or_default();
                    self.check_header(line, value, field, http);
                }
                other => self.report.left_out(
                    line,
                    format!("a check of Ballast has no `{other}`, and an endpoint that does not pass without it is down; remove it"),
                ),
            }
        }
    }

    /// `tcp-check …`
    pub(super) fn tcp_check(&self, line: &Line, check: &mut Check) -> Result<(), String> {
        let kind = line.word(1);
        let rules = check.tcp.begin();
        if kind == "connect" {
            if line.from(2).iter().any(|word| word == "ssl") {
                rules.only_connects = true;
                return Err("a check by bytes speaks no TLS in Ballast; the check connects, and looks no further".into());
            }
            return connect(line, &mut rules.connect);
        }
        let tcp = &mut rules.bytes;
        match kind {
            "comment" => Ok(()),
            "send" | "send-binary" => {
                if tcp.answer.is_some() {
                    return Err("a check of Ballast sends once, and then reads: what is asked here is not asked, and endpoints pass without it; write one send and one expect".into());
                }
                tcp.send.extend(bytes(kind, line.word(2))?);
                Ok(())
            }
            "expect" => {
                let (form, text) = match line.word(2) {
                    "comment" => (line.word(4), line.word(5)),
                    form => (form, line.word(3)),
                };
                if !matches!(form, "string" | "binary") {
                    return Err(format!(
                        "`expect {form}` has no counterpart; a check of Ballast looks for a text, as `expect string` does"
                    ));
                }
                let answer = bytes(form, text)?;
                if tcp.answer.is_some() {
                    return Err("a check of Ballast expects one answer: endpoints pass without this one; keep one".into());
                }
                if answer.is_empty() {
                    return Err("expects nothing; name what the answer contains".into());
                }
                tcp.answer = Some(answer);
                Ok(())
            }
            "send-lf" | "send-binary-lf" => {
                rules.only_connects = true;
                Err("a check of Ballast sends the same bytes each time; this one connects, and looks no further. Write send".into())
            }
            other => Err(format!(
                "`tcp-check {other}` with these words has no counterpart; remove it"
            )),
        }
    }
}

/// `http-check connect …` and `tcp-check connect …`
fn connect(line: &Line, known: &mut Option<Connect>) -> Result<(), String> {
    let mut connect = Connect::default();
    let mut as_server = line.words.len() == 2;
    let mut words = line.from(2).iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_default();
        match word {
            "default" => as_server = true,
            "linger" => {}
            "ssl" => connect.tls = true,
            "comment" | "alpn" | "proto" => _ = value(),
            "sni" => connect.sni = Some(value().into()),
            "port" => {
                let text = value();
                let port = text.parse().ok().filter(|port| *port > 0);
                connect.port = Some(port.ok_or_else(|| no_port(text))?);
            }
            other => {
                return Err(format!(
                    "`connect {other}` has no counterpart in a check of Ballast; remove it"
                ));
            }
        }
    }
    if known.is_some() {
        return Err("a check of Ballast connects once; keep one connect".into());
    }
    // The words that say nothing else connect as the server's line says.
    let says = connect.tls || connect.port.is_some() || connect.sni.is_some();
    if says || !as_server {
        *known = Some(connect);
    }
    Ok(())
}

/// The bytes behind `send`, `send-binary`, `expect string` or `expect binary`.
fn bytes(kind: &str, text: &str) -> Result<Vec<u8>, String> {
    match kind {
        "send-binary" | "binary" => {
            let bytes = hexadecimal(text);
            bytes.ok_or_else(|| "has no hexadecimal bytes; write them in pairs".into())
        }
        _ => Ok(text.into()),
    }
}

fn http_expect(line: &Line, check: &mut HttpRules) -> Result<(), String> {
    let mut words = line.from(2).iter().map(String::as_str);
    let mut negated = false;
    loop {
        match words.next().unwrap_or_default() {
            "!" => negated = !negated,
            "min-recv" | "comment" | "ok-status" | "error-status" | "tout-status"
            | "on-success" | "on-error" | "status-code" => _ = words.next(),
            "status" => {
                let list = words.next().unwrap_or_default();
                check.expect = Some(statuses(list, negated).ok_or_else(|| {
                    format!("{list:?} is no list of statuses; expected one such as 200,300-399")
                })?);
                return Ok(());
            }
            "rstatus" => {
                let pattern = words.next().unwrap_or_default();
                let found = by_expression(pattern, negated);
                check.expect = Some(found.ok_or_else(|| format!("the regular expression {pattern:?} is not understood; write the statuses: http-check expect status 200-399"))?);
                return Ok(());
            }
            "string" if !negated => {
                let text: Vec<&str> = words.collect();
                check.body = Some(text.join(" "));
                return Ok(());
            }
            "" => return Err("expects nothing; name statuses or a string".into()),
            other => {
                let not = if negated { "! " } else { "" };
                return Err(format!(
                    "`expect {not}{other}` has no counterpart; a check of Ballast looks for statuses, and for a text in the body"
                ));
            }
        }
    }
}

/// `200`, `200-299,301`, without spaces; or all others.
fn statuses(list: &str, negated: bool) -> Option<String> {
    let mut set = BTreeSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if !(100..=999).contains(&first) || first > last || last > 999 {
            return None;
        }
        set.extend(first..=last.min(599));
    }
    in_words(&set, negated)
}

/// The statuses that a regular expression of digits, dots, classes and groups matches.
fn by_expression(pattern: &str, negated: bool) -> Option<String> {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let group = pattern.strip_prefix('(');
    let alternatives: Vec<String> = match group.and_then(|rest| rest.split_once(')')) {
        Some((inner, rest)) => inner.split('|').map(|one| format!("{one}{rest}")).collect(),
        None => vec![pattern.to_owned()],
    };
    let mut set = BTreeSet::new();
    for status in 100..600_u16 {
        for alternative in &alternatives {
            if matches(alternative, &status.to_string())? {
                set.insert(status);
            }
        }
    }
    (!set.is_empty()).then(|| in_words(&set, negated)).flatten()
}

/// Whether an anchored expression matches a status; `None`: it is not understood.
fn matches(pattern: &str, status: &str) -> Option<bool> {
    let mut digits = status.chars();
    let mut rest = pattern.strip_prefix('^').unwrap_or(pattern).chars();
    while let Some(letter) = rest.next() {
        let class: Vec<char> = match letter {
            '$' if rest.next().is_none() => return Some(digits.next().is_none()),
            '.' => ('0'..='9').collect(),
            '[' => match &*rest
                .by_ref()
                .take_while(|letter| *letter != ']')
                .collect::<Vec<char>>()
            {
                [first, '-', last] => (*first..=*last).collect(),
                all => all.to_vec(),
            },
            digit => vec![digit],
        };
        if class.is_empty() || !class.iter().all(char::is_ascii_digit) {
            return None;
        }
        if !class.contains(&digits.next()?) {
            return Some(false);
        }
    }
    Some(true)
}

fn in_words(set: &BTreeSet<u16>, negated: bool) -> Option<String> {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for status in (100..600).filter(|status| set.contains(status) != negated) {
        match runs.last_mut() {
            Some(run) if run.1 + 1 == status => run.1 = status,
            _ => runs.push((status, status)),
        }
    }
    let words: Vec<String> = runs
        .iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    (!words.is_empty()).then(|| words.join(","))
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().map(|digit| digit.to_digit(16));
    let digits: Vec<u32> = digits.collect::<Option<_>>()?;
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    });
    pairs.collect()
}
