//! What stands behind a server's address, or behind `default-server`.

use std::time::Duration;

use super::importer::Importer;
use super::keywords::{Place, with_values};
use super::server::{ServerTls, Settings};
use super::units::{fitting, some_time};
use super::versions::Versions;
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
            versions: Versions::default(),
            tls: tls.unwrap_or_else(|| ServerTls {
                verified: self.verifies_servers,
                ..ServerTls::default()
            }),
            settings,
        };
        for (word, value) in with_values(words, Place::Server) {
            if reader.versions.take(word, value) || reader.flag(word) {
                continue;
            }
            match reader.value(word, value, self) {
                Ok(true) => {}
                Err(why) => self.report.left_out(line, why),
                Ok(false) => self.keyword(line, Place::Server, word, value),
            }
        }
        if reader.is_tls {
            self.unlike(line, reader.versions, Versions::default());
        }
        reader.settings.link.tls = reader.is_tls.then_some(reader.tls);
        reader.settings
    }
}

struct Reader {
    settings: Settings,
    tls: ServerTls,
    is_tls: bool,
    versions: Versions,
}

impl Reader {
    /// A word without a value; `false`: it is none of these.
    fn flag(&mut self, word: &str) -> bool {
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
            "non-stick" => settings.keeps_no_clients = true,
            "stick" => settings.keeps_no_clients = false,
            "ssl" => self.is_tls = true,
            "no-ssl" => self.is_tls = false,
            "check-ssl" => settings.checks.tls = true,
            "no-check-ssl" => settings.checks.tls = false,
            "check-send-proxy" => settings.checks.sends_proxy = true,
            "no-check-send-proxy" => settings.checks.sends_proxy = false,
            _ => return false,
        }
        true
    }

    /// A word with its value; `false`: it is none of these.
    fn value(&mut self, word: &str, value: &str, importer: &Importer<'_>) -> Result<bool, String> {
        let settings = &mut self.settings;
        let checks = &mut settings.checks;
        match word {
            "inter" => checks.interval = interval(value)?,
            "fastinter" => checks.fast_interval = interval(value)?,
            "slowstart" => settings.slow_start = interval(value)?,
            "rise" => count(value, 10, &mut checks.rise)?,
            "fall" => count(value, 20, &mut checks.fall)?,
            "weight" => {
                let weight = value.parse().ok().filter(|weight| *weight <= 256);
                let why = || format!("{value:?} is not from 0 to 256; write another weight");
                settings.weight = Some(weight.ok_or_else(why)?);
            }
            "maxconn" => settings.max_connections = number(value)?,
            "track" => {
                settings.tracks = true;
                return Err(format!("`track {value}`: in haproxy it is up as that server's checks say, and here as its own, which it has where another server of its service has `check`; write check"));
            }
            "port" => checks.port = number(value)?,
            "verify" => self.tls.verified = value != "none",
            "ca-file" => {
                let path = || importer.below(importer.ca_base.as_deref(), value);
                self.tls.ca = (value != "@system-ca").then(path);
            }
            "crt" => self.tls.cert = Some(importer.below(importer.crt_base.as_deref(), value)),
            "verifyhost" => self.tls.verify_host = Some(value.into()),
            "sni" => {
                let why = "`sni`: a service of Ballast asks for one name, and here for none, and verifies none; write sni str(NAME)";
                self.tls.sni = Some(fixed(value).ok_or(why)?);
            }
            "check-sni" => checks.sni = Some(value.into()),
            "alpn" | "proto" => settings.link.h2 = value.split(',').next() == Some("h2"),
            "cookie" => settings.cookie = true,
            "on-marked-down" if value == "shutdown-sessions" => settings.closes_when_down = true,
            "proxy-v2-options" if value.split(',').all(|it| matches!(it, "ssl" | "cert-cn")) => {
                settings.link.proxy_ssl = true;
            }
            "observe" if value == "layer7" => return Err("`observe layer7`: an endpoint that answers 5xx to clients is not left out, whatever on-error says; write a check (option httpchk) of what may fail".into()),
            "downinter" => return Err("`downinter` has no counterpart: an endpoint that is down is checked at its usual interval".into()),
            "on-marked-down" | "proxy-v2-options" => {
                return Err(format!(
                    "`{word} {value}` has no counterpart at an endpoint of Ballast; remove it"
                ));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn interval(text: &str) -> Result<Option<Duration>, String> {
    Ok(Some(fitting(some_time(text, "2s")?)))
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
