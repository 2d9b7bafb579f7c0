//! From a `backend` or `listen` section to a service of the table.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use ballast_core::table::{
    Affinity, Algorithm, AllDown, Endpoint, EndpointTls, Entries, File, HeaderEdits, HttpVersion,
    List, Name, OnGone, OrOff, Reuse, SendProxy, Service, ServiceHttp, ServiceTimeouts, State, Tlv,
    Token, Value,
};

use super::frontends::{Made, NO_NAME};
use super::health::verified_name;
use super::importer::Importer;
use super::proxy::{Change, Edit, Of, Proxy};
use super::server::{Link, Server};
use super::words::Line;

impl Importer<'_> {
    /// The service of a section; `port_of_bind` is for servers without a port.
    pub(super) fn service(
        &mut self,
        proxy: &Proxy,
        port_of_bind: Option<u16>,
    ) -> Option<Made<Service>> {
        let Ok(name) = proxy.name.parse() else {
            self.report.left_out(&proxy.head, NO_NAME);
            return None;
        };
        let first = proxy.servers.first();
        let link = first.map(|server| server.settings.link.clone());
        let link = link.unwrap_or_default();
        let (mut endpoints, mut used, mut comments) = self.endpoints(proxy, &link, port_of_bind);
        let affinity = self.affinity(proxy);
        let algorithm = match self.one_backup(proxy, affinity.is_some(), &mut endpoints, &mut used)
        {
            true => Algorithm::First,
            false => proxy.algorithm,
        };
        self.bound_of_hash(proxy, algorithm);
        if let Some((server, tls)) = proxy.servers.first().zip(link.tls.as_ref())
            && tls.verified
        {
            let name = tls.sni.as_deref().or(tls.verify_host.as_deref());
            self.common_name(&server.line, tls.ca.as_deref(), name);
        }
        let (health, checked_alike) = self.health(proxy, &used);
        let (slow_start, on_down) = self.ups_and_downs(&used);
        comments.extend(checked_alike);
        let source = proxy.source.as_ref();
        let source = source.and_then(|line| self.source(line));
        self.other_endpoints(proxy, &endpoints, &used, health.is_some());
        let service = Service {
            description: proxy.description.clone(),
            algorithm,
            affinity,
            send_proxy: match link.proxy {
                0 => SendProxy::Off,
                1 => SendProxy::V1,
                _ => SendProxy::V2,
            },
            send_proxy_tlvs: link
                .proxy_ssl
                .then(|| List::new(vec![Tlv::Authority, Tlv::Ssl])),
            retries: proxy
                .retries
                .as_ref()
                .map_or(Service::RETRIES, |(_, retries)| *retries),
            source: source.into_iter().collect(),
            timeouts: timeouts(proxy),
            all_down: match health {
                Some(_) => AllDown::Refuse,
                None => AllDown::TryAll,
            },
            slow_start,
            on_down,
            health: health.map(Box::new),
            tls: Self::endpoint_tls(&link).map(Box::new),
            http: proxy
                .is_http
                .then(|| self.service_http(proxy, &link))
                .filter(|http| *http != ServiceHttp::default())
                .map(Box::new),
            endpoints,
            ..Service::new(name)
        };
        Some(Made {
            part: service,
            head: proxy.head.clone(),
            comments,
        })
    }

    /// Tells of a bound of each server's load, which haproxy has where its hash is consistent.
    fn bound_of_hash(&mut self, proxy: &Proxy, algorithm: Algorithm) {
        if let Some(line) = &proxy.hash_balance
            && proxy.hashes_consistently
            && algorithm == Algorithm::SourceHash
        {
            self.report.differs(line, "an endpoint with many clients takes all of them, and none is sent on to the next one; maxconn of the servers is a limit that does");
        }
    }

    /// What becomes of connections to endpoints that go down, and of new clients of those that come up. Both are of all endpoints of
    /// a service: what not all servers have, but for backups, none has.
    fn ups_and_downs(&mut self, used: &[&Server]) -> (Option<Duration>, OnGone) {
        let others = used.iter().filter(|server| !server.settings.is_backup);
        let mut deciding: Vec<&Server> = others.copied().collect();
        if deciding.is_empty() {
            deciding = used.to_vec();
        }
        let of_all: Option<Vec<Duration>> = deciding
            .iter()
            .map(|server| server.settings.slow_start)
            .collect();
        let slow_start = of_all.and_then(|all| all.into_iter().max());
        let closes = !deciding.is_empty()
            && deciding
                .iter()
                .all(|server| server.settings.closes_when_down);
        for server in used {
            if server.settings.closes_when_down != closes {
                let what = match closes {
                    true => "its connections are closed, too, when it is down",
                    false => {
                        "its connections are not closed when it is down: not all servers of the backend have on-marked-down"
                    }
                };
                self.report.differs(&server.line, format!("{what}, since on-down is of all endpoints of a service; give it a backend of its own, or write the same for all"));
            }
            if server.settings.slow_start != slow_start {
                let what = match slow_start {
                    Some(_) => "slow start takes as long as that of the slowest server",
                    None => "it has no slow start: not all servers of the backend have slowstart",
                };
                self.report.differs(&server.line, format!("{what}, since slow-start is of all endpoints of a service; give it a backend of its own, or write the same for all"));
            }
        }
        let on_down = match closes {
            true => OnGone::Close,
            false => OnGone::Keep,
        };
        (slow_start, on_down)
    }

    /// Tells of attempts that go to another endpoint, where haproxy repeats them at the same one. `used` are the servers of
    /// `endpoints`.
    fn other_endpoints(
        &mut self,
        proxy: &Proxy,
        endpoints: &[Endpoint],
        used: &[&Server],
        are_checked: bool,
    ) {
        // Without a line all services are told at once.
        let (line, retries) = proxy
            .retries
            .clone()
            .unwrap_or_else(|| (Line::default(), 3));
        if retries == 0 || endpoints.len() < 2 {
            return;
        }
        if !proxy.redispatches {
            self.report.note(&line, "an attempt is repeated at another endpoint, as with option redispatch; without it haproxy repeats it at the same one");
        }
        let is_ready = |one: &Endpoint| one.state == State::Ready && one.weight > 0;
        let mut all = endpoints.iter().zip(used);
        let backup = all.find(|(endpoint, _)| endpoint.state == State::Backup);
        // Without checks, haproxy counts a server that refuses as usable for ever, with option redispatch, too.
        if let Some((_, server)) = backup
            && endpoints.iter().any(is_ready)
            && !(are_checked && proxy.redispatches)
        {
            let when = if are_checked {
                "only when their checks have failed"
            } else {
                "never, since nothing checks them"
            };
            self.report.differs(&server.line, format!("a client that other servers refuse gets to a backup at once, and with haproxy {when}; retries: 0 with ejection: off of the service keeps clients away from backups until then"));
        }
    }

    /// The endpoints of a section, their servers, and comments on addresses.
    fn endpoints<'p>(
        &mut self,
        proxy: &'p Proxy,
        link: &Link,
        port_of_bind: Option<u16>,
    ) -> (Vec<Endpoint>, Vec<&'p Server>, Vec<String>) {
        let mut comments = Vec::new();
        let mut endpoints = Vec::new();
        let mut used: Vec<&'p Server> = Vec::new();
        let mut names = HashSet::new();
        let kept = kept(proxy, link, port_of_bind);
        for server in &proxy.servers {
            let endpoint = self.endpoint(server, link, &kept, port_of_bind);
            let Some(mut endpoint) = self.report.good(&server.line, endpoint) else {
                continue;
            };
            if let Some(name) = &server.resolved {
                comments.push(format!(
                    "{}: {name} is {}",
                    server.name,
                    endpoint.address.ip()
                ));
            }
            endpoint.name = self.endpoint_name(server, &endpoint.address.to_string(), &mut names);
            used.push(server);
            endpoints.push(endpoint);
        }
        (endpoints, used, comments)
    }

    /// The endpoint of a server, without its name; an error is why it is not in the table.
    fn endpoint(
        &self,
        server: &Server,
        link: &Link,
        kept: &HashMap<SocketAddr, &Server>,
        port_of_bind: Option<u16>,
    ) -> Result<Endpoint, String> {
        if server.settings.link != *link {
            return Err("all endpoints of a service are spoken to alike (PROXY header, TLS, HTTP/2), and this one is not as the first; give it a backend of its own".into());
        }
        let address = server.address(port_of_bind).ok_or(
            "has no port, and there is not one port of a bind to take; write ADDRESS:PORT",
        )?;
        let ip = address.ip();
        if ballast_core::table::no_single_host(ip).is_some() {
            return Err(format!(
                "{ip} is not the address of one host; write another"
            ));
        }
        let known = kept.get(&address);
        if let Some(other) = known.filter(|kept| !std::ptr::eq(**kept, server)) {
            let other = self.places.shown(other.line.number);
            return Err(format!(
                "{address} is an endpoint of this service by {other} already, and serves as that line alone says: where it is disabled there, or its check fails, nobody gets to it; weight gives one more clients"
            ));
        }
        Ok(Endpoint {
            address,
            name: None,
            weight: server.settings.weight.unwrap_or(1),
            state: state(server),
            max_connections: server.settings.max_connections.and_then(NonZeroU32::new),
            node: None,
            zone: None,
        })
    }

    /// Of several backup servers haproxy uses the first one that is up, and a table all. Where there is one other server at most,
    /// `first` does the same, and this is true; else the further ones are left out. `used` are the servers of `endpoints`.
    fn one_backup(
        &mut self,
        proxy: &Proxy,
        has_affinity: bool,
        endpoints: &mut Vec<Endpoint>,
        used: &mut Vec<&Server>,
    ) -> bool {
        let is_backup = |endpoint: &Endpoint| endpoint.state == State::Backup;
        let backups = endpoints.iter().filter(|one| is_backup(one)).count();
        if backups < 2 || proxy.all_backups {
            return false;
        }
        let is_plain = |one: &Endpoint| one.max_connections.is_none() && one.weight > 0;
        let others = endpoints.iter().filter(|one| one.state == State::Ready);
        if others.count() < 2 && !has_affinity && endpoints.iter().all(is_plain) {
            return true;
        }
        let mut is_first = true;
        let all = std::mem::take(endpoints)
            .into_iter()
            .zip(std::mem::take(used));
        for (endpoint, server) in all {
            if !is_backup(&endpoint) || std::mem::take(&mut is_first) {
                endpoints.push(endpoint);
                used.push(server);
            } else {
                self.report.left_out(&server.line, "Ballast would send clients to all backup endpoints at once, and haproxy does to the first; write option allbackups if that is right, or add this one when it is needed");
            }
        }
        false
    }

    /// The name of an endpoint; `None`: it is shown by its address.
    fn endpoint_name(
        &mut self,
        server: &Server,
        address: &str,
        taken: &mut HashSet<String>,
    ) -> Option<Name> {
        if server.name == address {
            return None;
        }
        let Ok(name) = server.name.parse() else {
            let why = "its name is none that a table has, so it is shown by its address";
            self.report.note(&server.line, why);
            return None;
        };
        if !taken.insert(server.name.clone()) {
            let why = "another server has its name, so it is shown by its address";
            self.report.note(&server.line, why);
            return None;
        }
        Some(name)
    }

    fn source(&mut self, line: &Line) -> Option<IpAddr> {
        let text = line.word(1);
        let bare = text
            .rsplit_once(':')
            .filter(|_| text.parse::<IpAddr>().is_err());
        let (host, port) = bare.unwrap_or((text, "0"));
        if port != "0" {
            self.report.left_out(line, format!("connections to endpoints do not come from port {port}: a table has their address alone"));
        }
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) if ballast_core::table::no_single_host(address).is_none() => {
                Some(address.to_canonical())
            }
            Ok(_) => None,
            Err(_) if matches!(host, "" | "*") => None,
            Err(_) => {
                let why = format!("source {text:?} is no address; write one");
                self.report.left_out(line, why);
                None
            }
        }
    }

    fn affinity(&mut self, proxy: &Proxy) -> Option<Affinity> {
        // haproxy makes the values of all servers then.
        let has_word = |(line, _): &(Line, _)| line.from(2).iter().any(|word| word == "dynamic");
        let is_dynamic = proxy.cookie.as_ref().is_some_and(has_word);
        if let Some((line, name)) = &proxy.cookie
            && proxy.is_http
            && (is_dynamic || proxy.servers.iter().any(|server| server.settings.cookie))
        {
            if !is_dynamic && !proxy.servers.iter().all(|server| server.settings.cookie) {
                self.report.differs(line, "clients of servers without `cookie` get a cookie, too, and stay with them; give these servers a backend of their own");
            }
            match name.parse() {
                Ok(name) => return Some(Affinity::Cookie(name)),
                Err(_) => self.report.left_out(
                    line,
                    format!("{name:?} is no name of a cookie; write another"),
                ),
            }
        }
        let stick = &proxy.stick;
        let table = stick.table.as_ref()?;
        match (&stick.matches, &stick.stores) {
            (Some(_), Some(_)) => {}
            (None, Some(line)) => {
                self.report.note(line, "without `stick match` nobody goes where the table says, so that there is no affinity");
                return None;
            }
            (Some(line), None) if stick.has_peers => {
                self.report.left_out(line, "clients go where peers have stored that they went, and Ballast takes no entries from peers; write `stick on src`, by which all nodes send a client to the same endpoint first");
                return None;
            }
            (Some(line), None) => {
                self.report.note(line, "without `stick store-request` nothing is in the table, so that there is no affinity");
                return None;
            }
            (None, None) => return None,
        }
        let expire = proxy.stick.expire.unwrap_or_else(|| {
            let why = "without `expire` a client is remembered for 24d";
            self.report.note(table, why);
            super::units::LONGEST
        });
        let all = proxy.servers.iter();
        for server in all.filter(|server| server.settings.keeps_no_clients) {
            self.report.differs(&server.line, "`non-stick`: a client that it has served is remembered as that of any other, and stays here after an outage of the others, until `expire` of the stick-table; make that short, or leave the stick-table out");
        }
        Some(Affinity::ClientIp(expire))
    }

    fn endpoint_tls(link: &Link) -> Option<EndpointTls> {
        let tls = link.tls.as_ref()?;
        let file = |path: &Option<String>| path.as_ref().map(|path| file(path));
        let verified = tls.verified;
        Some(EndpointTls {
            sni: tls.sni.as_ref().and_then(|name| name.parse().ok()),
            verified_name: match verified {
                true => verified_name(tls.sni.as_deref(), tls.verify_host.as_deref()),
                false => None,
            },
            ca: file(&tls.ca).filter(|_| verified),
            cert: file(&tls.cert),
            key: None,
            insecure: !verified,
        })
    }

    fn service_http(&mut self, proxy: &Proxy, link: &Link) -> ServiceHttp {
        let edits = |importer: &mut Self, of: Of| {
            let edits: Vec<&Edit> = proxy
                .edits
                .iter()
                .filter(|edit| edit.of == of)
                // Where the frontend writes the client's address, it drops what the client sent.
                .filter(|edit| {
                    !(edit.drops_forwarded_for() && importer.told_clients.contains(&proxy.name))
                })
                .collect();
            importer.edits(&edits)
        };
        ServiceHttp {
            version: match link.h2 {
                true => HttpVersion::H2,
                false => HttpVersion::H1,
            },
            reuse: match proxy.closes {
                true => Reuse::Never,
                false => proxy.reuse,
            },
            request_headers: edits(self, Of::Requests),
            response_headers: edits(self, Of::Responses),
        }
    }

    pub(super) fn edits(&mut self, edits: &[&Edit]) -> HeaderEdits {
        let mut fields = Fields::default();
        // Of two lines about one field the last one counts.
        for edit in edits.iter().rev() {
            if fields.settled.contains(&edit.name.to_ascii_lowercase()) {
                let why = "a later line about the same field takes its place, as in haproxy";
                self.report.note(&edit.line, why);
            } else {
                self.report.good(&edit.line, fields.edit(edit));
            }
        }
        fields.remove.sort();
        HeaderEdits {
            set: Entries::new(fields.set),
            add: Entries::new(fields.add),
            remove: List::new(fields.remove),
        }
    }
}

/// Edits of fields, from the last line to the first.
#[derive(Default)]
struct Fields {
    set: Vec<(Token, Value)>,
    add: Vec<(Token, Value)>,
    remove: Vec<Token>,
    /// The names, in small letters, of those about which lines before count no more.
    settled: Vec<String>,
}

impl Fields {
    fn edit(&mut self, edit: &Edit) -> Result<(), String> {
        let name = field_name(&edit.name)?;
        let change = match &edit.change {
            Change::Remove => None,
            Change::Set(value) => Some((&mut self.set, value)),
            Change::Add(value) => Some((&mut self.add, value)),
        };
        match change {
            None => self.remove.push(name),
            Some((to, value)) => {
                let value = value.parse();
                let value = value.map_err(|_| "the value has line ends; write it in one line")?;
                if to.iter().any(|(known, _)| *known == name) {
                    return Err("a table adds one field of a name; a later line adds it".into());
                }
                to.push((name, value));
            }
        }
        if !matches!(edit.change, Change::Add(_)) {
            self.settled.push(edit.name.to_ascii_lowercase());
        }
        Ok(())
    }
}

/// The name of a field that a table edits, or why it does not.
fn field_name(name: &str) -> Result<Token, String> {
    if ballast_core::http::concerns_connection(name) {
        return Err(format!(
            "{name} is about the connection, which is Ballast's own; remove it"
        ));
    }
    name.parse()
        .map_err(|_| format!("{name:?} is no name of a header field; write another"))
}

/// Of several servers of one address the first one of those that serve most.
fn kept<'p>(
    proxy: &'p Proxy,
    link: &Link,
    port_of_bind: Option<u16>,
) -> HashMap<SocketAddr, &'p Server> {
    let serves = |server: &Server| match state(server) {
        State::Disabled => 0,
        _ if server.settings.weight == Some(0) => 1,
        State::Backup => 2,
        _ => 3,
    };
    let mut kept: HashMap<SocketAddr, &Server> = HashMap::new();
    let alike = proxy.servers.iter();
    for server in alike.filter(|server| server.settings.link == *link) {
        if let Some(address) = server.address(port_of_bind) {
            let known = kept.entry(address).or_insert(server);
            if serves(server) > serves(known) {
                *known = server;
            }
        }
    }
    kept
}

fn state(server: &Server) -> State {
    match (server.settings.is_disabled, server.settings.is_backup) {
        (true, _) => State::Disabled,
        (false, true) => State::Backup,
        (false, false) => State::Ready,
    }
}

fn timeouts(proxy: &Proxy) -> ServiceTimeouts {
    let timeouts = &proxy.timeouts;
    let absent = ServiceTimeouts::ABSENT;
    // As soon as nothing of a connection is looked at, haproxy has the tunnel's time for both sides.
    let server = match (proxy.is_http, timeouts.idle("tunnel")) {
        (false, Some(tunnel)) => Some(tunnel),
        _ => timeouts.idle("server"),
    };
    let connect = timeouts.get("connect").unwrap_or(absent.connect);
    ServiceTimeouts {
        connect,
        queue: timeouts.get("queue").filter(|queue| *queue != connect),
        server: idle(server, proxy.is_http),
        server_fin: timeouts.get("server-fin").unwrap_or(absent.server_fin),
        tunnel: match timeouts.idle("tunnel") {
            Some(Some(tunnel)) if proxy.is_http => tunnel,
            Some(None) if proxy.is_http => super::units::LONGEST,
            _ => absent.tunnel,
        },
    }
}

/// An idle timeout as a table has it; absent where it is the table's default.
pub(super) fn idle(time: Option<Option<Duration>>, is_http: bool) -> Option<OrOff<Duration>> {
    match time? {
        None => Some(OrOff::Off),
        Some(time) if time == default_idle(is_http) => None,
        Some(time) => Some(OrOff::On(time)),
    }
}

/// The idle timeout of a table that has none.
pub(super) fn default_idle(is_http: bool) -> Duration {
    Duration::from_secs(if is_http { 50 } else { 3600 })
}

/// A path as a table has it.
pub(super) fn file(path: &str) -> File {
    File::from(std::path::PathBuf::from(path))
}
