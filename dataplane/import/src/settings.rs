//! What stands behind a server's address, or behind `default-server`.

use std::time::Duration;

use super::importer::Importer;
use super::keywords::{Place, row};
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
            let value = match row(Place::Server, word) {
                Some(row) if row.arguments > 0 => words.next().unwrap_or_default(),
                _ => "",
            };
            if reader.flag(word) {
                continue;
            }
            match reader.value(word, value, self) {
                Some(Ok(())) => {}
                Some(Err(why)) => self.report.left_out(line, why),
                None => self.keyword(line, Place::Server, word, value),
            }
        }
        reader.settings.link.tls = reader.is_tls.then_some(reader.tls);
        reader.settings
    }
}

struct Reader {
    settings: Settings,
    tls: ServerTls,
    is_tls: bool,
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
            "ssl" => self.is_tls = true,
            "no-ssl" => self.is_tls = false,
            "check-ssl" => settings.checks.tls = true,
            "no-check-ssl" => settings.checks.tls = false,
            _ => return false,
        }
        true
    }

    /// A word with its value; `None`: it is none of these.
    fn value(
        &mut self,
        word: &str,
        value: &str,
        importer: &Importer<'_>,
    ) -> Option<Result<(), String>> {
        let settings = &mut self.settings;
        Some(match word {
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
            "downinter" => Err("`downinter` has no counterpart: an endpoint that is down is checked at its usual interval".into()),
            "on-marked-down" | "proxy-v2-options" => Err(format!(
                "`{word} {value}` has no counterpart at an endpoint of Ballast; remove it"
            )),
            _ => return None,
        })
    }
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
