//! `server` and `default-server` lines.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::importer::Importer;
use super::units;
use super::words::Line;

/// A `server` line.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) line: Line,
    pub(super) name: String,
    pub(super) address: IpAddr,
    /// `None`: that of the client's connection.
    pub(super) port: Option<u16>,
    /// The name that `address` was resolved from.
    pub(super) resolved: Option<String>,
    pub(super) settings: Settings,
}

impl Server {
    pub(super) fn address(&self, port_of_bind: Option<u16>) -> Option<SocketAddr> {
        let port = self.port.or(port_of_bind)?;
        Some(SocketAddr::new(self.address, port))
    }
}

/// What stands behind a server's address, or behind `default-server`.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) weight: Option<u16>,
    pub(super) max_connections: Option<u32>,
    pub(super) is_backup: bool,
    pub(super) is_disabled: bool,
    pub(super) is_checked: bool,
    /// It is up as the checks of another server say.
    pub(super) tracks: bool,
    pub(super) checks: ServerCheck,
    pub(super) link: Link,
    pub(super) cookie: bool,
    pub(super) slow_start: Option<Duration>,
    pub(super) closes_when_down: bool,
    /// Clients that it serves are in no stick-table.
    pub(super) keeps_no_clients: bool,
}

/// How a server is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerCheck {
    pub(super) interval: Option<Duration>,
    pub(super) fast_interval: Option<Duration>,
    pub(super) rise: Option<u8>,
    pub(super) fall: Option<u8>,
    pub(super) port: Option<u16>,
    pub(super) tls: bool,
    pub(super) sni: Option<String>,
    /// Whether they begin with a PROXY header, whatever the traffic does.
    pub(super) sends_proxy: bool,
}

/// What connections to a server begin with. All endpoints of a service of Ballast have the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) proxy: u8,
    pub(super) proxy_ssl: bool,
    pub(super) tls: Option<ServerTls>,
    pub(super) h2: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerTls {
    pub(super) verified: bool,
    pub(super) ca: Option<String>,
    pub(super) cert: Option<String>,
    pub(super) sni: Option<String>,
    pub(super) verify_host: Option<String>,
}

impl Importer<'_> {
    /// Reads a `server` line; an error means that it is left out.
    pub(super) fn server(&mut self, line: &Line, defaults: &Settings) -> Result<Server, String> {
        let (name, text) = (line.word(1), line.word(2));
        if name.is_empty() || text.is_empty() {
            return Err("has no name or no address; expected `server NAME ADDRESS:PORT`".into());
        }
        let settings = self.settings(line, line.from(3), defaults.clone());
        let place = place(text)?;
        let (address, resolved) = self.address(line, place.host, place.v6)?;
        Ok(Server {
            line: line.clone(),
            name: name.into(),
            address,
            port: place.port,
            resolved: resolved.then(|| place.host.into()),
            settings,
        })
    }

    /// Reads a `server-template` line: a server for each address that the name has, up to the number of the line.
    pub(super) fn server_template(
        &mut self,
        line: &Line,
        defaults: &Settings,
    ) -> Result<Vec<Server>, String> {
        let (prefix, numbers, text) = (line.word(1), line.word(2), line.word(3));
        if text.is_empty() {
            return Err(
                "has no address; expected `server-template PREFIX NUMBER NAME:PORT`".into(),
            );
        }
        let (first, last) = numbers.split_once('-').unwrap_or(("1", numbers));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
            return Err(format!(
                "{numbers:?} is no number of servers; expected one such as 3, or 1-3"
            ));
        };
        let mut settings = self.settings(line, line.from(4), defaults.clone());
        let place = place(text)?;
        let server =
            |number: u32, address: IpAddr, resolved: Option<&str>, settings: &Settings| Server {
                line: line.clone(),
                name: format!("{prefix}{number}"),
                address: address.to_canonical(),
                port: place.port,
                resolved: resolved.map(str::to_owned),
                settings: settings.clone(),
            };
        if let Ok(address) = place.host.parse::<IpAddr>() {
            // The limit and the weight of each server add up at the one endpoint.
            let count = last.saturating_sub(first).saturating_add(1);
            settings.max_connections = settings
                .max_connections
                .map(|most| most.saturating_mul(count));
            let weight = u32::from(settings.weight.unwrap_or(1)).saturating_mul(count);
            settings.weight = u16::try_from(weight.min(256)).ok();
            self.report.note(line, format!("the {count} servers have one address, and are one endpoint, with the sum of their weights (at most 256) and limits"));
            return Ok(vec![server(first, address, None, &settings)]);
        }
        let mut found = self.resolved(place.host)?;
        found.retain(|address| place.v6.is_none_or(|v6| address.is_ipv6() == v6));
        let servers: Vec<Server> = (first..=last)
            .zip(found)
            .map(|(number, address)| server(number, address, Some(place.host), &settings))
            .collect();
        let count = servers.len();
        self.report.note(line, format!("a server for each address that the name has now, here {count}; import again when that changes"));
        Ok(servers)
    }
}

/// Where a server is, before its name is resolved.
struct Place<'l> {
    host: &'l str,
    port: Option<u16>,
    /// Whether the line asks for one family, and for IPv6.
    v6: Option<bool>,
}

/// Whether an address is to be of IPv6, and the address; an error is why another kind, such as `unix`, is none.
pub(super) fn family(text: &str) -> Result<(Option<bool>, &str), String> {
    match text.split_once('@') {
        Some(("ipv4" | "tcp4", rest)) => Ok((Some(false), rest)),
        Some(("ipv6" | "tcp6", rest)) => Ok((Some(true), rest)),
        Some(("tcp", rest)) => Ok((None, rest)),
        Some(("unix" | "abns" | "abnsz" | "sockpair" | "fd", _)) => Err(NO_UNIX.into()),
        Some((other, _)) => Err(format!(
            "Ballast has no {other}@ address; give it an address and a port"
        )),
        None if text.starts_with('/') => Err(NO_UNIX.into()),
        None => Ok((None, text)),
    }
}

/// What stands in the brackets around an address of IPv6.
pub(super) fn in_brackets(host: &str) -> Option<&str> {
    host.strip_prefix('[')?.strip_suffix(']')
}

fn place(text: &str) -> Result<Place<'_>, String> {
    let (v6, rest) = family(text)?;
    let bare = in_brackets(rest);
    let (host, port) = match rest.rsplit_once(':') {
        // An IPv6 address has its port behind the last colon, so that `::1` means port 1 of `::`.
        Some((host, port)) if bare.is_none() => (host, Some(port)),
        _ => (bare.unwrap_or(rest), None),
    };
    let port = match port {
        None | Some("" | "+0" | "-0") => None,
        Some(port) if port.starts_with(['+', '-']) => {
            return Err(format!(
                "port {port} depends on the client's; write one server for each port"
            ));
        }
        Some(text) => Some(units::port(text)?).filter(|port| *port > 0),
    };
    let host = in_brackets(host).unwrap_or(host);
    Ok(Place { host, port, v6 })
}

const NO_UNIX: &str =
    "Ballast listens at no unix socket, and connects to none; give it an address and a port";
