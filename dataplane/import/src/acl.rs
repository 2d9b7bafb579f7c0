//! ACLs: what haproxy looks at, as far as Ballast can look at it too.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::rc::Rc;

use ballast_core::table::HostPattern;
use ipnet::{IpNet, Ipv4Net};

use super::limits::Counter;
use super::pattern::{PathKind, PathPattern};
use super::ports;
use super::proxy::{Changed, Proxy};
use super::ranges::{Ranges, net};
use super::report::Report;
use super::words::Line;
use super::world::World;

/// One thing that an ACL says of a connection or a request.
#[derive(Clone, Debug)]
pub(super) enum Atom {
    Always(bool),
    Clients(Ranges),
    Hosts(Rc<BTreeSet<HostPattern>>, Unlike),
    Paths(Rc<Vec<PathPattern>>),
    /// The client has come so often, or is connected so often.
    Counter(Counter),
    /// Something that Ballast does not look at.
    Unknown(String),
    /// A list that cannot be read.
    Broken(String),
    /// A list of clients that cannot be read.
    NoClients(String),
}

/// How a list of hosts differs from haproxy's.
#[derive(Clone, Debug, Default)]
pub(super) struct Unlike {
    /// Some hosts that haproxy means are not in it.
    pub(super) fewer: Option<String>,
    /// It has hosts that haproxy does not mean.
    pub(super) more: Option<String>,
}

impl Unlike {
    pub(super) fn join(&mut self, fewer: &Option<String>, more: &Option<String>) {
        self.fewer = self.fewer.take().or_else(|| fewer.clone());
        self.more = self.more.take().or_else(|| more.clone());
    }
}

/// Why an ACL on `src` means nothing here.
pub(super) const SET_SRC: &str = "`set-src` gives `src` another address than the one that Ballast sees; write source-ranges by hand";

/// Why an ACL on `dst_port` means nothing here.
const SET_PORT: &str = "`set-dst-port` gives `dst_port` another port than the one that Ballast sees; give these ports frontends of their own";

/// What the ACL is for.
#[derive(Clone, Copy)]
pub(super) struct Where {
    /// Whether the rules are about requests, and not about connections.
    pub(super) is_http: bool,
    /// Whether TLS ended at the bind.
    pub(super) tls: bool,
    /// A port of the binds, where the rules treat all of them as they treat this one.
    pub(super) port: Option<u16>,
    /// Whether a rule gives clients another address than that of their connections.
    pub(super) sets_src: bool,
    /// Whether a rule gives connections another port than that of the bind.
    pub(super) sets_port: bool,
    /// Whether clients may come by IPv6.
    pub(super) takes_ipv6: bool,
    /// Whether the connections that are looked at begin with a hello of TLS.
    pub(super) has_hello: bool,
    /// What rules before it changed of the request.
    pub(super) changed: Changed,
}

impl Where {
    /// The rules of a section, as far as it says itself what they are for.
    pub(super) fn of(proxy: &Proxy) -> Self {
        Self {
            is_http: proxy.is_http,
            tls: false,
            port: None,
            sets_src: proxy.sets_src,
            sets_port: proxy.sets_port,
            takes_ipv6: false,
            has_hello: false,
            changed: Changed::default(),
        }
    }
}

/// Reads the words of an ACL behind its name: a criterion, flags and patterns. One of the atoms must hold. Reports what differs.
pub(super) fn read(
    line: &Line,
    words: &[String],
    place: Where,
    world: &dyn World,
    report: &mut Report,
) -> Result<Vec<Atom>, String> {
    let Some((criterion, rest)) = words.split_first() else {
        return Err("has no criterion; expected one such as `src 10.0.0.0/8`".into());
    };
    let mut reader = Reader {
        line,
        place,
        report,
        cuts_port: false,
        ignore_case: false,
        method: None,
        patterns: Vec::new(),
    };
    let mut rest = rest.iter();
    let mut at_flags = true;
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-i" if at_flags => reader.ignore_case = true,
            "-n" | "-u" if at_flags => {}
            "-m" if at_flags => reader.method = rest.next().cloned(),
            "-f" if at_flags => {
                let file = rest.next().ok_or("has -f without a file; name one")?;
                match world.read(file) {
                    Ok(bytes) => reader.patterns.extend(lines_of(&bytes)),
                    Err(why) => {
                        let why = format!("{file} cannot be read: {why}");
                        return Ok(vec![match criterion.starts_with("src") {
                            true => Atom::NoClients(why),
                            false => Atom::Broken(why),
                        }]);
                    }
                }
            }
            "--" if at_flags => at_flags = false,
            word if at_flags && word.len() > 1 && word.starts_with('-') => {
                return Ok(vec![Atom::Unknown(format!("the flag {word}"))]);
            }
            _ => {
                at_flags = false;
                reader.patterns.push(word.clone());
            }
        }
    }
    if ports::is_criterion(criterion) {
        let is_plain = words.len() == reader.patterns.len() + 1;
        let ranges = ports::ports(&reader.patterns).filter(|_| is_plain);
        return Ok(vec![match (place.port, ranges) {
            _ if place.sets_port => Atom::Broken(SET_PORT.into()),
            (Some(port), Some(ranges)) => Atom::Always(ports::has(&ranges, port)),
            _ => reader.unknown(criterion),
        }]);
    }
    if let Some(counter) = Counter::read(criterion, &reader.patterns) {
        return Ok(vec![Atom::Counter(counter)]);
    }
    reader.patterns.retain(|pattern| {
        let is_found = !pattern.ends_with([' ', '\t']) || criterion.starts_with("src");
        if !is_found {
            reader.report.note(line, format!("a space stands behind {pattern:?}, so that haproxy never finds it; take the space out"));
        }
        is_found
    });
    Ok(reader.atoms(criterion))
}

struct Reader<'a> {
    line: &'a Line,
    place: Where,
    report: &'a mut Report,
    /// Whether a converter takes the port off the host.
    cuts_port: bool,
    ignore_case: bool,
    method: Option<String>,
    patterns: Vec<String>,
}

impl Reader<'_> {
    fn note(&mut self, why: String) {
        self.report.note(self.line, why);
    }

    fn differs(&mut self, why: String) {
        self.report.differs(self.line, why);
    }

    /// A criterion that Ballast does not look at, or not by this method.
    fn unknown(&self, criterion: &str) -> Atom {
        Atom::Unknown(match &self.method {
            Some(method) => format!("`{criterion} -m {method}`"),
            None => format!("`{criterion}`"),
        })
    }

    fn atoms(mut self, criterion: &str) -> Vec<Atom> {
        let unknown = || Atom::Unknown(format!("`{criterion}`"));
        let parts = parts(criterion);
        let converters = parts.get(1..).unwrap_or_default();
        let name = name_of(criterion);
        if name == "src" && !converters.is_empty() {
            return vec![Atom::NoClients(format!(
                "Ballast compares the client's address as it is, and not `{criterion}`; write the networks that are meant behind src"
            ))];
        }
        for converter in converters {
            match *converter {
                "lower" => self.in_small_letters(),
                converter if is_host_alone(converter) => self.cuts_port = true,
                "path_only" => {}
                _ => return vec![unknown()],
            }
        }
        vec![match name.as_str() {
            "always_true" => self.known(true, criterion),
            "always_false" => self.known(false, criterion),
            "ssl_fc" => self.known(self.place.tls, criterion),
            name if is_hello(name) => match self.patterns.as_slice() {
                _ if self.method.is_some() => self.unknown(criterion),
                _ if self.place.is_http || self.place.tls => {
                    self.note(format!("`{criterion}` finds nothing here, in haproxy neither: TLS does not pass unopened"));
                    Atom::Always(false)
                }
                [one] if one == "1" => Atom::Always(self.place.has_hello),
                _ => unknown(),
            },
            "src" if self.place.sets_src => Atom::NoClients(SET_SRC.into()),
            "src" => self.clients(),
            "src_is_local" => Atom::NoClients("Ballast does not know which addresses are this machine's own; write them: src 127.0.0.0/8, for example".into()),
            "path" => return self.path("str", criterion),
            "path_beg" | "url_beg" => return self.path("beg", criterion),
            // A URL has a query, before which no path ends.
            "url_reg" if self.patterns.iter().any(|pattern| pattern.contains('$')) => unknown(),
            "path_reg" | "url_reg" => return self.path("reg", criterion),
            "path_end" | "path_dir" | "path_sub" | "path_dom" | "path_len" => unknown(),
            name => match host_method(name) {
                Some((of, method)) => return self.name(of, method, criterion),
                None => unknown(),
            },
        }]
    }

    /// A criterion that holds or does not, whatever patterns stand behind it, unless a method compares it with them.
    fn known(&self, value: bool, criterion: &str) -> Atom {
        let number = u8::from(value).to_string();
        let are_numbers = |patterns: &[String]| patterns.iter().all(|one| one == "0" || one == "1");
        match self.method.as_deref() {
            None | Some("bool") => Atom::Always(value),
            Some("int") if are_numbers(&self.patterns) => {
                Atom::Always(self.patterns.contains(&number))
            }
            Some(method) => Atom::Broken(format!(
                "`{criterion} -m {method}` compares what holds or does not with something else; write `{criterion}` alone"
            )),
        }
    }

    /// `lower` makes small letters of all: a pattern with others is never found, unless -i stands before it.
    fn in_small_letters(&mut self) {
        let has_others = |pattern: &String| pattern.bytes().any(|byte| byte.is_ascii_uppercase());
        if !self.ignore_case {
            self.patterns.retain(|pattern| {
                let is_found = !has_others(pattern);
                if !is_found {
                    self.report.note(self.line, format!("behind `lower` haproxy never finds {pattern:?}, and the table does not have it; write it in small letters"));
                }
                is_found
            });
        }
        self.ignore_case = true;
    }

    /// A name that clients say: in the Host field of a request, in the hello of a connection that is passed on, or in the handshake
    /// of TLS that ended here.
    fn name(mut self, of: Says, method: &str, criterion: &str) -> Vec<Atom> {
        let Where { tls, is_http, .. } = self.place;
        match of {
            Says::Host if !is_http => vec![no_request(criterion)],
            Says::Handshake if tls => vec![Atom::Broken(format!(
                "`{criterion}`: Ballast looks at the Host of a request, which may be another name than that of TLS; write hdr(host)"
            ))],
            Says::Handshake | Says::Hello if tls || is_http || of == Says::Handshake => {
                self.note(format!("`{criterion}` finds nothing here, in haproxy neither: write hdr(host) for requests, and req.ssl_sni in mode tcp for TLS that is passed on"));
                vec![Atom::Always(false)]
            }
            _ => self.host(of, method, criterion),
        }
    }

    fn clients(self) -> Atom {
        let mut nets = Vec::new();
        for pattern in &self.patterns {
            match net(pattern.trim()) {
                Some(net) => {
                    nets.extend(by_ipv4(net));
                    nets.push(net);
                }
                None => {
                    return Atom::NoClients(format!(
                        "{pattern:?} is no address and no network; expected one such as 10.0.0.0/8"
                    ));
                }
            }
        }
        match nets.is_empty() {
            true => Atom::NoClients("no address stands behind src; name one".into()),
            false => Atom::Clients(Ranges::of(&nets)),
        }
    }

    fn path(mut self, method: &str, criterion: &str) -> Vec<Atom> {
        if !self.place.is_http {
            return vec![no_request(criterion)];
        }
        if criterion.to_ascii_lowercase().starts_with("url_") {
            self.differs(format!(
                "`{criterion}` is read as path_{method}: a request by HTTP/2, or for a whole address (GET http://HOST/PATH), begins with its scheme for haproxy, and with its path for Ballast; write path_{method}"
            ));
        }
        let own = self.method.take();
        let method = own.as_deref().unwrap_or(method);
        if !["str", "beg", "reg"].contains(&method) {
            return vec![Atom::Unknown(format!("`path -m {method}`"))];
        }
        let (mut paths, mut unknown) = (Vec::new(), Vec::new());
        for pattern in &std::mem::take(&mut self.patterns) {
            let (kind, text) = match method {
                "str" => (PathKind::Exact, pattern.as_str()),
                "beg" => (PathKind::Begins, pattern.as_str()),
                "reg" => match simple_expression(pattern) {
                    Some(simple) => simple,
                    None => {
                        unknown.push(format!("the regular expression {pattern:?}"));
                        continue;
                    }
                },
                _ => continue,
            };
            if !text.starts_with('/') {
                self.note(format!(
                    "a path begins with a slash, so none is {pattern:?}"
                ));
                continue;
            }
            if !text
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#')
            {
                unknown.push(format!("the path {pattern:?}"));
                continue;
            }
            paths.push(PathPattern::new(kind, text, self.ignore_case));
        }
        with_unknown(
            (!paths.is_empty()).then(|| Atom::Paths(Rc::new(paths))),
            unknown,
        )
    }

    /// Without -i haproxy looks for a name in its case alone.
    fn in_one_case(&mut self, name: &str, unlike: &mut Unlike) {
        if self.ignore_case || !name.bytes().any(|byte| byte.is_ascii_alphabetic()) {
            return;
        }
        unlike.more.get_or_insert_with(|| {
            format!("without -i haproxy means {name} in this case alone, and a table in any case")
        });
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            self.differs(format!(
                "clients write names in small letters, which haproxy does not take for {name}, and Ballast does; write -i, or small letters"
            ));
        }
    }

    fn host(mut self, of: Says, method: &str, criterion: &str) -> Vec<Atom> {
        let own = self.method.clone();
        let method = own.as_deref().unwrap_or(method);
        if method == "found" {
            return vec![Atom::Unknown(format!("`{criterion} -m found`"))];
        }
        let (mut hosts, mut unknown) = (BTreeSet::new(), Vec::new());
        let mut unlike = Unlike::default();
        for pattern in &std::mem::take(&mut self.patterns) {
            if pattern.contains('*') && method != "reg" {
                self.note(format!(
                    "haproxy looks for the letter * of {pattern:?}, which no name has, so that it is never found; write hdr_end(host) with a dot at the beginning for all names below one"
                ));
                continue;
            }
            let bare = match pattern.rsplit_once(':') {
                Some((host, port))
                    if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
                {
                    let why = format!(
                        "routes do not look at the port that a client writes behind the host: {host} with any port is meant"
                    );
                    self.differs(why.clone());
                    unlike.more = Some(why);
                    host
                }
                _ => pattern,
            };
            let texts: &[String] = match method {
                "str" => &[bare.to_owned()],
                "end" if bare.starts_with('.') => &[format!("*{bare}")],
                "end" | "dom" => {
                    let not = if method == "end" {
                        "ends so"
                    } else {
                        "has it inside"
                    };
                    let why = format!(
                        "{bare} and the hosts below it are meant, not every name that {not}"
                    );
                    self.differs(why.clone());
                    unlike.fewer = Some(why);
                    let bare = bare.trim_start_matches('.');
                    &[bare.to_owned(), format!("*.{bare}")]
                }
                _ => return vec![self.unknown(criterion)],
            };
            self.in_one_case(bare, &mut unlike);
            if of == Says::Host && method != "dom" {
                let with = if self.cuts_port {
                    "with"
                } else {
                    "with a port, or with"
                };
                unlike.more.get_or_insert_with(|| {
                    format!("haproxy means {bare} as it is written, and a table also {with} a dot behind it")
                });
            }
            for text in texts {
                match text.parse::<HostPattern>() {
                    Ok(host) => drop(hosts.insert(host)),
                    Err(_) => unknown.push(format!("the host {pattern:?}")),
                }
            }
        }
        let hosts = (!hosts.is_empty()).then(|| Atom::Hosts(Rc::new(hosts), unlike));
        with_unknown(hosts, unknown)
    }
}

/// What a list comes to of which some patterns are not looked at. A list without any pattern never holds.
fn with_unknown(known: Option<Atom>, unknown: Vec<String>) -> Vec<Atom> {
    let mut atoms = Vec::from_iter(known);
    if let Some((first, others)) = unknown.split_first() {
        atoms.push(Atom::Unknown(match others.len() {
            0 => first.clone(),
            more => format!("{first}, and {more} more"),
        }));
    }
    if atoms.is_empty() {
        atoms.push(Atom::Always(false));
    }
    atoms
}

/// Why a criterion of requests means nothing in mode tcp: haproxy may find something there by the bytes that have come so far.
fn no_request(criterion: &str) -> Atom {
    Atom::Broken(format!(
        "`{criterion}`: in mode tcp no request is looked at; write req.ssl_sni, or mode http"
    ))
}

/// The sample of a criterion in small letters, without converters and empty parentheses.
fn name_of(criterion: &str) -> String {
    let sample = parts(criterion).first().copied().unwrap_or(criterion);
    let bare = sample.strip_suffix("()").unwrap_or(sample);
    bare.to_ascii_lowercase()
}

/// Whether a criterion asks how TLS begins.
pub(super) fn is_hello(criterion: &str) -> bool {
    ["req.ssl_hello_type", "req_ssl_hello_type"].contains(&&*name_of(criterion))
}

/// Whether a converter of a host takes its port off.
fn is_host_alone(converter: &str) -> bool {
    matches!(converter, "field(1,:)" | "word(1,:)" | "host_only")
}

/// Whether Ballast looks at what a sample gives: host, path or server name, with converters that it follows.
pub(super) fn looks_at(sample: &str) -> bool {
    let parts = parts(sample);
    let (first, converters) = parts.split_first().unwrap_or((&sample, &[]));
    let first = first.to_ascii_lowercase();
    let is_known = matches!(first.as_str(), "path" | "src") || host_method(&first).is_some();
    let mut converters = converters.iter();
    is_known && converters.all(|one| matches!(*one, "lower" | "path_only") || is_host_alone(one))
}

/// Where clients say a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    Host,
    Hello,
    Handshake,
}

/// Which name a criterion looks at, and how; `None`: it does not.
fn host_method(name: &str) -> Option<(Says, &'static str)> {
    let hosts = ["(host)", "(host,-1)", "(host,1)"];
    let of_header = hosts.iter().find_map(|host| name.strip_suffix(host));
    let names = match of_header {
        Some(_) => ["hdr", "req.hdr", "req.fhdr", "hdr_req"].as_slice(),
        None => &["req_ssl_sni", "req.ssl_sni", "ssl_fc_sni"],
    };
    let name = of_header.unwrap_or(name);
    let of = match name {
        _ if of_header.is_some() => Says::Host,
        name if name.starts_with("ssl_fc_sni") => Says::Handshake,
        _ => Says::Hello,
    };
    if names.contains(&name) {
        return Some((of, "str"));
    }
    let methods = ["beg", "end", "dom", "reg", "sub", "dir"];
    let (_, method) = name
        .rsplit_once('_')
        .filter(|(sample, _)| names.contains(sample))?;
    let method = methods.into_iter().find(|known| *known == method)?;
    Some((of, method))
}

/// A sample and its converters: the words between commas that stand outside of parentheses.
pub(super) fn parts(expression: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut begin, mut depth) = (0, 0_u32);
    for (at, letter) in expression.char_indices() {
        match letter {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.extend(expression.get(begin..at));
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(expression.get(begin..));
    parts
}

/// The clients of a network of IPv6 that come by IPv4: haproxy compares them as ::ffff:IPV4.
fn by_ipv4(net: IpNet) -> Option<IpNet> {
    let IpNet::V6(net) = net else {
        return None;
    };
    let prefix = net.prefix_len().saturating_sub(96);
    let first = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped();
    let address = match net.network().to_ipv4_mapped() {
        Some(address) if net.prefix_len() >= 96 => address,
        _ if net.contains(&first) => Ipv4Addr::UNSPECIFIED,
        _ => return None,
    };
    let net = Ipv4Net::new(address, prefix).ok()?;
    Some(IpNet::V4(net))
}

/// A regular expression that is no more than a beginning, a whole path or a folder.
fn simple_expression(pattern: &str) -> Option<(PathKind, &str)> {
    let rest = pattern.strip_prefix('^')?;
    let (kind, text) = if let Some(text) = ["(/|$)", "(/.*)?$", "(/.*|$)", "($|/)"]
        .iter()
        .find_map(|end| rest.strip_suffix(end))
    {
        (PathKind::Segment, text)
    } else if let Some(text) = rest.strip_suffix('$') {
        (PathKind::Exact, text)
    } else {
        (PathKind::Begins, rest.strip_suffix(".*").unwrap_or(rest))
    };
    if text.is_empty() && kind != PathKind::Exact {
        // Every path.
        return Some((PathKind::Begins, "/"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-~%".contains(&byte);
    let fits = text.bytes().all(plain) && !(kind == PathKind::Segment && text.ends_with('/'));
    fits.then_some((kind, text))
}

/// What stands in a file: one thing a line, with comments. A space behind it belongs to it.
pub(super) fn lines_of(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().map(str::trim_start);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}
