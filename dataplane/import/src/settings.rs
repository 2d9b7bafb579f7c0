//! What stands behind a server's address, or behind `default-server`.

use std::time::Duration;

use super::importer::Importer;
use super::server::{ServerTls, Settings};
use super::units::{fitting, time};
use super::words::Line;

impl Importer<'_> {
    /// Reads the words of `default-server`, or those behind a server's address.
    pub(super) fn settings(
        &mut self,
        line: &Line,
        words: &[String],
        mut settings: Settings,
    ) -> Settings {
        let tls = settings.link.tls.take();
        let mut reader = Reader {
            is_tls: tls.is_some(),
            tls: tls.unwrap_or_else(|| ServerTls {
                verified: true,
                ..ServerTls::default()
            }),
            settings,
        };
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let known = match Takes::of(word) {
                Takes::Nothing => reader.flag(word),
                Takes::Value => reader.value(word, words.next().unwrap_or_default(), self),
            };
            match known {
                Known::Set => {}
                Known::Noted(why) => self.report.note(line, why),
                Known::LeftOut(why) => self.report.left_out(line, why),
                Known::Not => self.unknown_word(line, word, SERVER_WORDS),
            }
        }
        reader.settings.link.tls = reader.is_tls.then_some(reader.tls);
        reader.settings
    }
}

/// Whether a value stands behind a word.
enum Takes {
    Nothing,
    Value,
}

impl Takes {
    fn of(word: &str) -> Self {
        match VALUES.contains(&word) {
            true => Self::Value,
            false => Self::Nothing,
        }
    }
}

/// What becomes of a word.
enum Known {
    Set,
    Noted(String),
    LeftOut(String),
    Not,
}

struct Reader {
    settings: Settings,
    tls: ServerTls,
    is_tls: bool,
}

impl Reader {
    /// A word without a value.
    fn flag(&mut self, word: &str) -> Known {
        let settings = &mut self.settings;
        match word {
            "check" => settings.is_checked = true,
            "no-check" => settings.is_checked = false,
            "backup" => settings.is_backup = true,
            "no-backup" => settings.is_backup = false,
            "disabled" => settings.is_disabled = true,
            "enabled" => settings.is_disabled = false,
            "send-proxy" => settings.link.proxy = 1,
            "send-proxy-v2" => settings.link.proxy = 2,
            "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                settings.link.proxy = 2;
                settings.link.proxy_ssl = true;
            }
            "no-send-proxy" | "no-send-proxy-v2" => settings.link.proxy = 0,
            "ssl" => self.is_tls = true,
            "no-ssl" => self.is_tls = false,
            "check-ssl" => settings.checks.tls = true,
            "no-check-ssl" => settings.checks.tls = false,
            _ if NEEDLESS.contains(&word) => {}
            "agent-check" => return no_counterpart(word),
            _ => return Known::Not,
        }
        Known::Set
    }

    /// A word with its value.
    fn value(&mut self, word: &str, value: &str, importer: &Importer<'_>) -> Known {
        let settings = &mut self.settings;
        let set = match word {
            "inter" => interval(value, &mut settings.checks.interval),
            "fastinter" => interval(value, &mut settings.checks.fast_interval),
            "slowstart" => interval(value, &mut settings.slow_start),
            "rise" => count(value, 10, &mut settings.checks.rise),
            "fall" => count(value, 20, &mut settings.checks.fall),
            "weight" => weight(value, &mut settings.weight),
            "maxconn" => number(value).map(|most| settings.max_connections = most),
            "port" => number(value).map(|port| settings.checks.port = port),
            "verify" => {
                self.tls.verified = value != "none";
                Ok(())
            }
            "ca-file" => {
                let path = || importer.below(importer.ca_base.as_deref(), value);
                self.tls.ca = (value != "@system-ca").then(path);
                Ok(())
            }
            "crt" => {
                self.tls.cert = Some(importer.below(importer.crt_base.as_deref(), value));
                Ok(())
            }
            "verifyhost" => {
                self.tls.verify_host = Some(value.into());
                Ok(())
            }
            "sni" => match fixed(value) {
                Some(name) => {
                    self.tls.sni = Some(name);
                    Ok(())
                }
                None => Err("`sni`: a service of Ballast asks for one name; write sni str(NAME)".into()),
            },
            "check-sni" => {
                settings.checks.sni = Some(value.into());
                Ok(())
            }
            "alpn" | "proto" => {
                settings.link.h2 = value.split(',').next() == Some("h2");
                Ok(())
            }
            "cookie" => {
                settings.cookie = true;
                Ok(())
            }
            "on-marked-down" if value == "shutdown-sessions" => {
                settings.closes_when_down = true;
                Ok(())
            }
            "proxy-v2-options" if value.split(',').all(|option| matches!(option, "ssl" | "cert-cn")) => {
                settings.link.proxy_ssl = true;
                Ok(())
            }
            "resolvers" | "init-addr" | "resolve-prefer" | "resolve-opts" | "resolve-net" => {
                return Known::Noted(format!("`{word}`: names are resolved once, by the import; import again when an address changes"));
            }
            "observe" | "error-limit" | "on-error" => {
                return Known::Noted(format!("`{word}`: an endpoint that cannot be reached is left out in any case; see ejection"));
            }
            "downinter" => Err("`downinter` has no counterpart: an endpoint that is down is checked at its usual interval".into()),
            _ if NEEDLESS.contains(&word) => Ok(()),
            _ => return no_counterpart(&format!("{word} {value}")),
        };
        match set {
            Ok(()) => Known::Set,
            Err(why) => Known::LeftOut(why),
        }
    }
}

fn no_counterpart(words: &str) -> Known {
    Known::LeftOut(format!(
        "`{words}` has no counterpart at an endpoint of Ballast; remove it"
    ))
}

fn interval(text: &str, to: &mut Option<Duration>) -> Result<(), String> {
    let time = time(text).ok_or_else(|| format!("{text:?} is no time; expected one such as 2s"))?;
    *to = Some(fitting(time));
    Ok(())
}

fn count(text: &str, most: u8, to: &mut Option<u8>) -> Result<(), String> {
    match text.parse::<u8>() {
        Ok(number) if (1..=most).contains(&number) => {
            *to = Some(number);
            Ok(())
        }
        _ => {
            *to = Some(most);
            Err(format!("{text:?} is not from 1 to {most}; {most} is taken"))
        }
    }
}

fn weight(text: &str, to: &mut Option<u16>) -> Result<(), String> {
    let weight = text.parse().ok().filter(|weight| *weight <= 256);
    *to =
        Some(weight.ok_or_else(|| format!("{text:?} is not from 0 to 256; write another weight"))?);
    Ok(())
}

/// A number, of which 0 means none.
fn number<T: std::str::FromStr + Default + PartialEq>(text: &str) -> Result<Option<T>, String> {
    let number: T = text
        .parse()
        .map_err(|_| format!("{text:?} is no number that stands here; write another"))?;
    Ok(Some(number).filter(|number| *number != T::default()))
}

/// The name in `str(NAME)`.
fn fixed(expression: &str) -> Option<String> {
    let name = expression.strip_prefix("str(")?.strip_suffix(')')?;
    Some(name.trim_matches(['"', '\'']).into())
}

/// Words with a value behind them.
const VALUES: &[&str] = &[
    "addr",
    "agent-addr",
    "agent-inter",
    "agent-port",
    "agent-send",
    "alpn",
    "ca-file",
    "check-alpn",
    "check-proto",
    "check-sni",
    "ciphers",
    "ciphersuites",
    "cookie",
    "crl-file",
    "crt",
    "downinter",
    "error-limit",
    "fall",
    "fastinter",
    "guid",
    "hash-key",
    "id",
    "init-addr",
    "init-state",
    "inter",
    "interface",
    "log-bufsize",
    "max-reuse",
    "maxconn",
    "maxqueue",
    "minconn",
    "namespace",
    "observe",
    "on-error",
    "on-marked-down",
    "on-marked-up",
    "pool-low-conn",
    "pool-max-conn",
    "pool-purge-delay",
    "port",
    "proto",
    "proxy-v2-options",
    "redir",
    "resolve-net",
    "resolve-opts",
    "resolve-prefer",
    "resolvers",
    "rise",
    "set-proxy-v2-tlv-fmt",
    "shard",
    "slowstart",
    "sni",
    "socks4",
    "source",
    "ssl-max-ver",
    "ssl-min-ver",
    "tcp-ut",
    "track",
    "usesrc",
    "verify",
    "verifyhost",
    "weight",
    "ws",
];

/// Words by which nothing is lost.
const NEEDLESS: &[&str] = &[
    "check-alpn",
    "check-proto",
    "check-send-proxy",
    "check-via-socks4",
    "ciphers",
    "ciphersuites",
    "force-tlsv12",
    "force-tlsv13",
    "guid",
    "id",
    "init-state",
    "log-bufsize",
    "max-reuse",
    "no-agent-check",
    "no-check-send-proxy",
    "no-ssl-reuse",
    "no-sslv3",
    "no-tfo",
    "no-tls-tickets",
    "no-tlsv10",
    "no-tlsv11",
    "no-verifyhost",
    "non-stick",
    "pool-low-conn",
    "pool-max-conn",
    "pool-purge-delay",
    "shard",
    "ssl-max-ver",
    "ssl-min-ver",
    "ssl-reuse",
    "stick",
    "tcp-ut",
    "tfo",
    "tls-tickets",
];

/// Words that a wrong one may be meant for.
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
