//! `server` and `default-server` lines.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::importer::Importer;
use super::units::{fitting, time};
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
    pub(super) checks: ServerCheck,
    pub(super) link: Link,
    pub(super) cookie: bool,
    pub(super) slow_start: Option<Duration>,
    pub(super) closes_when_down: bool,
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
        let (family, rest) = match text.split_once('@') {
            Some(("ipv4" | "tcp4", rest)) => (Some(false), rest),
            Some(("ipv6" | "tcp6", rest)) => (Some(true), rest),
            Some(("tcp", rest)) => (None, rest),
            Some((other, _)) => {
                return Err(format!(
                    "Ballast has no {other}@ address for endpoints; give it an address and a port"
                ));
            }
            None if text.starts_with('/') => {
                return Err(
                    "Ballast connects to no unix socket; give it an address and a port".into(),
                );
            }
            None => (None, text),
        };
        let bare = rest
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
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
            Some(port) => match port.parse::<u16>() {
                Ok(0) => None,
                Ok(port) => Some(port),
                Err(_) => return Err(format!("{port:?} is no port; expected 1 to 65535")),
            },
        };
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let (address, resolved) = self.address(line, host, family)?;
        Ok(Server {
            line: line.clone(),
            name: name.into(),
            address,
            port,
            resolved: resolved.then(|| host.into()),
            settings,
        })
    }

    /// Reads the words of `default-server`, or those behind a server's address.
    pub(super) fn settings(
        &mut self,
        line: &Line,
        words: &[String],
        mut settings: Settings,
    ) -> Settings {
        let mut tls = settings.link.tls.clone().unwrap_or_else(|| ServerTls {
            verified: true,
            ..ServerTls::default()
        });
        let mut is_tls = settings.link.tls.is_some();
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            let wrong = match word {
                "check" => {
                    settings.is_checked = true;
                    None
                }
                "no-check" => {
                    settings.is_checked = false;
                    None
                }
                "inter" => interval(value(), &mut settings.checks.interval),
                "fastinter" => interval(value(), &mut settings.checks.fast_interval),
                "downinter" => {
                    value();
                    Some("`downinter` has no counterpart: an endpoint that is down is checked at its usual interval".into())
                }
                "rise" => count(value(), 10, &mut settings.checks.rise),
                "fall" => count(value(), 20, &mut settings.checks.fall),
                "weight" => within(value(), 256, &mut settings.weight),
                "maxconn" => match value().parse::<u32>() {
                    Ok(0) => {
                        settings.max_connections = None;
                        None
                    }
                    Ok(most) => {
                        settings.max_connections = Some(most);
                        None
                    }
                    Err(_) => Some("`maxconn` has no number; write one".into()),
                },
                "port" => match value().parse::<u16>() {
                    Ok(0) => None,
                    Ok(port) => {
                        settings.checks.port = Some(port);
                        None
                    }
                    Err(_) => Some("`port` has no port; write one".into()),
                },
                "backup" => {
                    settings.is_backup = true;
                    None
                }
                "no-backup" => {
                    settings.is_backup = false;
                    None
                }
                "disabled" => {
                    settings.is_disabled = true;
                    None
                }
                "enabled" => {
                    settings.is_disabled = false;
                    None
                }
                "send-proxy" => {
                    settings.link.proxy = 1;
                    None
                }
                "send-proxy-v2" => {
                    settings.link.proxy = 2;
                    None
                }
                "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                    settings.link.proxy = 2;
                    settings.link.proxy_ssl = true;
                    None
                }
                "no-send-proxy" | "no-send-proxy-v2" => {
                    settings.link.proxy = 0;
                    None
                }
                "proxy-v2-options" => match value() {
                    "ssl" | "ssl,cert-cn" | "cert-cn" => {
                        settings.link.proxy_ssl = true;
                        None
                    }
                    other => Some(format!(
                        "`proxy-v2-options {other}`: Ballast writes the server name, where it is known; see send-proxy-tlvs"
                    )),
                },
                "ssl" => {
                    is_tls = true;
                    None
                }
                "no-ssl" => {
                    is_tls = false;
                    None
                }
                "verify" => {
                    tls.verified = value() != "none";
                    None
                }
                "ca-file" => {
                    let value = value();
                    tls.ca =
                        (value != "@system-ca").then(|| self.below(self.ca_base.as_deref(), value));
                    None
                }
                "crt" => {
                    let path = self.below(self.crt_base.as_deref(), value());
                    tls.cert = Some(path);
                    None
                }
                "verifyhost" => {
                    tls.verify_host = Some(value().into());
                    None
                }
                "sni" => match fixed(value()) {
                    Some(name) => {
                        tls.sni = Some(name);
                        None
                    }
                    None => Some(
                        "`sni`: a service of Ballast asks for one name; write sni str(NAME)".into(),
                    ),
                },
                "check-sni" => {
                    settings.checks.sni = Some(value().into());
                    None
                }
                "check-ssl" => {
                    settings.checks.tls = true;
                    None
                }
                "no-check-ssl" => {
                    settings.checks.tls = false;
                    None
                }
                "alpn" => {
                    settings.link.h2 = value().split(',').next() == Some("h2");
                    None
                }
                "proto" | "check-proto" => match value() {
                    "h2" if word == "proto" => {
                        settings.link.h2 = true;
                        None
                    }
                    "h1" => None,
                    other => Some(format!("`{word} {other}` has no counterpart; remove it")),
                },
                "cookie" => {
                    value();
                    settings.cookie = true;
                    None
                }
                "slowstart" => interval(value(), &mut settings.slow_start),
                "on-marked-down" => match value() {
                    "shutdown-sessions" => {
                        settings.closes_when_down = true;
                        None
                    }
                    other => Some(format!(
                        "`on-marked-down {other}` has no counterpart; remove it"
                    )),
                },
                "resolvers" | "init-addr" | "resolve-prefer" | "resolve-opts" | "resolve-net" => {
                    value();
                    self.report.note(line, format!("`{word}`: names are resolved once, by the import; import again when an address changes"));
                    None
                }
                "observe" | "error-limit" | "on-error" => {
                    value();
                    self.report.note(line, format!("`{word}`: an endpoint that cannot be reached is left out in any case; see ejection"));
                    None
                }
                "id" | "init-state" | "guid" | "pool-max-conn" | "pool-purge-delay"
                | "pool-low-conn" | "max-reuse" | "check-alpn" | "tcp-ut" | "ssl-min-ver"
                | "ssl-max-ver" | "ciphers" | "ciphersuites" | "log-bufsize" | "shard" => {
                    value();
                    None
                }
                "check-send-proxy"
                | "non-stick"
                | "stick"
                | "tfo"
                | "no-tfo"
                | "no-sslv3"
                | "no-tlsv10"
                | "no-tlsv11"
                | "no-tls-tickets"
                | "tls-tickets"
                | "no-ssl-reuse"
                | "ssl-reuse"
                | "force-tlsv12"
                | "force-tlsv13"
                | "no-verifyhost"
                | "no-agent-check"
                | "no-check-send-proxy"
                | "check-via-socks4" => None,
                "addr"
                | "minconn"
                | "maxqueue"
                | "track"
                | "source"
                | "agent-check"
                | "agent-addr"
                | "agent-port"
                | "agent-inter"
                | "agent-send"
                | "redir"
                | "namespace"
                | "interface"
                | "usesrc"
                | "on-marked-up"
                | "crl-file"
                | "hash-key"
                | "socks4"
                | "set-proxy-v2-tlv-fmt"
                | "ws" => {
                    let flag = matches!(word, "agent-check");
                    if !flag {
                        value();
                    }
                    Some(format!(
                        "`{word}` has no counterpart at an endpoint of Ballast; remove it"
                    ))
                }
                unknown => {
                    self.unknown_word(line, unknown, SERVER_WORDS);
                    None
                }
            };
            if let Some(why) = wrong {
                self.report.left_out(line, why);
            }
        }
        settings.link.tls = is_tls.then_some(tls);
        settings
    }
}

fn interval(text: &str, to: &mut Option<Duration>) -> Option<String> {
    match time(text) {
        Some(time) => {
            *to = Some(fitting(time));
            None
        }
        None => Some(format!("{text:?} is no time; expected one such as 2s")),
    }
}

fn count(text: &str, most: u8, to: &mut Option<u8>) -> Option<String> {
    match text.parse::<u8>() {
        Ok(number) if (1..=most).contains(&number) => {
            *to = Some(number);
            None
        }
        _ => {
            *to = Some(most);
            Some(format!("{text:?} is not from 1 to {most}; {most} is taken"))
        }
    }
}

fn within(text: &str, most: u16, to: &mut Option<u16>) -> Option<String> {
    match text.parse::<u16>() {
        Ok(number) if number <= most => {
            *to = Some(number);
            None
        }
        _ => Some(format!(
            "{text:?} is not from 0 to {most}; write another weight"
        )),
    }
}

/// The name in `str(NAME)`.
fn fixed(expression: &str) -> Option<String> {
    let name = expression.strip_prefix("str(")?.strip_suffix(')')?;
    Some(name.trim_matches(['"', '\'']).into())
}

const SERVER_WORDS: &[&str] = &[
    "addr",
    "alpn",
    "backup",
    "ca-file",
    "check",
    "check-ssl",
    "cookie",
    "crt",
    "disabled",
    "downinter",
    "fall",
    "fastinter",
    "init-addr",
    "inter",
    "maxconn",
    "on-marked-down",
    "port",
    "proto",
    "resolvers",
    "rise",
    "send-proxy",
    "send-proxy-v2",
    "slowstart",
    "sni",
    "ssl",
    "track",
    "verify",
    "weight",
];
