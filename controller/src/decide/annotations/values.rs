//! Parsers of annotation values, in the words of every system whose annotations are read. An error completes a sentence that
//! begins with the value.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use ballast_core::table::{
    Expect, HeaderMatch, HealthMode, HostPattern, List, MaxAge, OnGone, OrOff, Protocol, SendProxy,
    ServerName, Target, UrlPath, Wrong, parse_duration,
};
use ipnet::IpNet;

use crate::observe::{Family, Key};
use crate::settings::Selector;

/// The booleans that Go's ParseBool takes, in any case.
pub(in crate::decide) fn boolean(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "t" | "true" => Ok(true),
        "0" | "f" | "false" => Ok(false),
        _ => Err("is neither true nor false".to_owned()),
    }
}

pub(in crate::decide) fn send_proxy(text: &str) -> Result<SendProxy, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "off" | "false" => Ok(SendProxy::Off),
        "v1" | "true" => Ok(SendProxy::V1),
        "v2" => Ok(SendProxy::V2),
        _ => Err("is not a version of the PROXY protocol; expected off, v1 or v2".to_owned()),
    }
}

/// `off`, or the ranges whose PROXY headers are trusted. `on` alone is an error: every client would be trusted.
pub(in crate::decide) fn accept_proxy(text: &str) -> Result<Option<Vec<IpNet>>, String> {
    let words = text.split([',', ' ']);
    let words: Vec<&str> = words.filter(|word| !["", "on"].contains(word)).collect();
    match words.as_slice() {
        ["off"] => Ok(None),
        [] => Err(
            "does not say whose headers are trusted; expected off or ranges such as 10.0.0.0/8"
                .to_owned(),
        ),
        words => words
            .iter()
            .map(|word| range(word))
            .collect::<Result<_, _>>()
            .map(Some),
    }
}

/// A duration, milliseconds without a unit, or `off`; 0 is off.
pub(in crate::decide) fn idle(text: &str) -> Result<OrOff<Duration>, String> {
    match text.trim() {
        "off" => Ok(OrOff::Off),
        text => match integer(text) {
            Some(0) => Ok(OrOff::Off),
            Some(millis) => parse_duration(&format!("{millis}ms"))
                .map(OrOff::On)
                .map_err(wrong),
            None => go_duration(text).map(OrOff::On),
        },
    }
}

/// The same, but `off` and 0 are errors.
pub(in crate::decide) fn connect(text: &str) -> Result<Duration, String> {
    match idle(text)? {
        OrOff::On(time) => Ok(time),
        OrOff::Off => Err("would wait for ever; expected a duration from 1ms to 24d".to_owned()),
    }
}

pub(in crate::decide) fn duration(text: &str) -> Result<Duration, String> {
    go_duration(text.trim())
}

pub(in crate::decide) fn millis(text: &str) -> Result<u32, String> {
    integer(text.trim()).ok_or_else(|| "is not a number of milliseconds".to_owned())
}

/// The time between health checks: a duration, or seconds without a unit.
pub(in crate::decide) fn check_time(text: &str) -> Result<Duration, String> {
    let time = match integer(text.trim()) {
        Some(seconds) => Duration::from_secs(seconds.into()),
        None => go_duration(text.trim())?,
    };
    match (Duration::from_secs(1)..=Duration::from_secs(300)).contains(&time) {
        true => Ok(time),
        false => Err("is out of range; expected 1s to 300s".to_owned()),
    }
}

/// A limit; -1 is `None`: no limit.
pub(in crate::decide) fn limit(text: &str) -> Result<Option<NonZeroU32>, String> {
    match text.trim() {
        "-1" => Ok(None),
        text => match integer(text).and_then(NonZeroU32::new) {
            Some(limit) => Ok(Some(limit)),
            None => Err("is not a limit; expected 1 or more, or -1 for none".to_owned()),
        },
    }
}

pub(in crate::decide) fn fall(text: &str) -> Result<u8, String> {
    count(text, 20)
}

pub(in crate::decide) fn rise(text: &str) -> Result<u8, String> {
    count(text, 10)
}

fn count(text: &str, most: u8) -> Result<u8, String> {
    let count = integer(text.trim()).and_then(|count| u8::try_from(count).ok());
    let count = count.filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| format!("is out of range; expected 1 to {most}"))
}

pub(in crate::decide) fn health_mode(text: &str) -> Result<HealthMode, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "off" => Ok(HealthMode::Off),
        "tcp" => Ok(HealthMode::Tcp),
        "http" => Ok(HealthMode::Http),
        "https" => Ok(HealthMode::Https),
        "udp" => Ok(HealthMode::Udp),
        _ => {
            Err("is not a mode of health checks; expected off, tcp, http, https or udp".to_owned())
        }
    }
}

/// The port that is checked: a number, or the name of a port of the Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::decide) enum CheckPort {
    Number(u16),
    Name(String),
}

pub(in crate::decide) fn check_port(text: &str) -> Result<CheckPort, String> {
    let text = text.trim();
    if let Some(number) = integer(text) {
        return port(number).map(CheckPort::Number);
    }
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    match !text.is_empty() && text.bytes().all(allowed) {
        true => Ok(CheckPort::Name(text.to_owned())),
        false => Err(
            "is not a port; expected 1 to 65535, or the name of a port of this Service".to_owned(),
        ),
    }
}

pub(in crate::decide) fn target(text: &str) -> Result<Target, String> {
    text.trim().parse().map_err(wrong)
}

pub(in crate::decide) fn expect(text: &str) -> Result<Expect, String> {
    if text.len() > 100 {
        return Err(
            "is too long; expected statuses and ranges of them, such as 200-399".to_owned(),
        );
    }
    text.trim().parse().map_err(wrong)
}

/// Source ranges; `None`: every client.
pub(in crate::decide) fn ranges(text: &str) -> Result<Option<List<IpNet>>, String> {
    let parts = text.split(',').map(str::trim);
    let ranges = parts.filter(|part| !part.is_empty()).map(range);
    let ranges = sorted(ranges.collect::<Result<Vec<_>, _>>()?);
    Ok((!ranges.is_empty()).then(|| List::new(ranges)))
}

/// Host bits are masked, and a range of IPv4-mapped addresses becomes an IPv4 range.
fn range(text: &str) -> Result<IpNet, String> {
    let wrong = || {
        format!("contains {text:?}, which is not a range; expected IP/LENGTH, such as 10.0.0.0/8")
    };
    let net: IpNet = text.parse().map_err(|_| wrong())?;
    match (net.addr().to_canonical(), net.prefix_len()) {
        (IpAddr::V4(address), length) if net.addr().is_ipv6() => {
            let length = length.checked_sub(96).ok_or_else(wrong)?;
            let net = IpNet::new(address.into(), length).map_err(|_| wrong())?;
            Ok(net.trunc())
        }
        _ => Ok(net.trunc()),
    }
}

/// At most one address of each family.
pub(in crate::decide) fn addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let parts = text.split(',').map(str::trim);
    let parts = parts.filter(|part| !part.is_empty());
    let addresses: Result<Vec<IpAddr>, _> = parts.map(str::parse::<IpAddr>).collect();
    let mut addresses = addresses.map_err(|_| {
        "is not an address; expected an IPv4 address, an IPv6 address or both".to_owned()
    })?;
    for address in &mut addresses {
        *address = address.to_canonical();
    }
    let families: Vec<Family> = addresses.iter().copied().map(Family::of).collect();
    match sorted(families.clone()).len() == families.len() && !families.is_empty() {
        true => Ok(addresses),
        false => Err("is not one address for each family".to_owned()),
    }
}

pub(in crate::decide) fn hostnames(text: &str) -> Result<Vec<String>, String> {
    let names = text.split(',').map(|name| name.trim().to_ascii_lowercase());
    let names: Vec<String> = names.collect();
    // The API server takes only these in a status: RFC 1123, no wildcard, no dot at the end, no address.
    let is_label =
        |label: &str| !label.starts_with('-') && !label.ends_with('-') && !label.contains('_');
    let is_name = |name: &String| {
        name.parse::<ServerName>().is_ok()
            && name.split('.').all(is_label)
            && name.parse::<IpAddr>().is_err()
    };
    match names.iter().all(is_name) {
        true => Ok(names),
        false => Err("is not a DNS name; expected one such as edge.example.com".to_owned()),
    }
}

pub(in crate::decide) fn selector(text: &str) -> Result<Selector, String> {
    Selector::from_str(text)
}

pub(in crate::decide) fn openstack_selector(text: &str) -> Result<Selector, String> {
    Selector::from_openstack(text)
}

/// Whether the mode of externalTrafficPolicy Local is `strict`.
pub(in crate::decide) fn strict(text: &str) -> Result<bool, String> {
    match text.trim() {
        "edge" => Ok(false),
        "strict" => Ok(true),
        _ => Err("is not a mode; expected edge or strict".to_owned()),
    }
}

pub(in crate::decide) fn mode(text: &str) -> Result<Protocol, String> {
    match text.trim() {
        "tcp" => Ok(Protocol::Tcp),
        "http" => Ok(Protocol::Http),
        "https" => Ok(Protocol::Https),
        "tls" => Ok(Protocol::Tls),
        _ => Err("is not a mode; expected tcp, http, https or tls".to_owned()),
    }
}

pub(in crate::decide) fn on_gone(text: &str) -> Result<OnGone, String> {
    match text.trim() {
        "keep" => Ok(OnGone::Keep),
        "close" => Ok(OnGone::Close),
        _ => Err("is neither keep nor close".to_owned()),
    }
}

pub(in crate::decide) fn hosts(text: &str) -> Result<Vec<HostPattern>, String> {
    let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
    let hosts = parts.map(str::parse::<HostPattern>);
    let hosts = hosts.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    match hosts.is_empty() {
        true => Err("names no host".to_owned()),
        false => Ok(distinct(hosts)),
    }
}

/// Paths, and whether upper and lower case count as equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::decide) struct Paths {
    pub(in crate::decide) paths: Vec<UrlPath>,
    pub(in crate::decide) ignore_case: bool,
}

/// `/a, /b`, or the arguments of haproxy's path_beg: `-i /a /b`.
pub(in crate::decide) fn paths(text: &str) -> Result<Paths, String> {
    let words = text.split([',', ' ']);
    let mut words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let ignore_case = words.first() == Some(&"-i");
    if ignore_case {
        words.remove(0);
    }
    let paths = words.iter().map(|word| word.parse::<UrlPath>());
    let paths = paths.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let paths = distinct(paths);
    match paths.is_empty() {
        true => Err("names no path".to_owned()),
        false => Ok(Paths { paths, ignore_case }),
    }
}

/// How the part of the path that matched is rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::decide) enum Rewrite {
    Strip,
    Keep,
    To(UrlPath),
}

pub(in crate::decide) fn rewrite(text: &str) -> Result<Rewrite, String> {
    match text.trim() {
        "strip" => Ok(Rewrite::Strip),
        "keep" => Ok(Rewrite::Keep),
        text => text.parse().map(Rewrite::To).map_err(|_| {
            "is not a rewrite; expected strip, keep or a path such as /app".to_owned()
        }),
    }
}

/// A Secret's namespace and name; without a namespace the Service's own is meant.
pub(in crate::decide) fn secret(text: &str) -> Result<(Option<String>, String), String> {
    let text = text.trim();
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    let is_in = |part: &str, longest: usize, more: &[u8]| {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9') || more.contains(&byte);
        (1..=longest).contains(&part.len()) && part.bytes().all(allowed)
    };
    // The API server's rules for both. No namespace has a dot, so `NAMESPACE.NAME` is a unique file name.
    let is_namespace = |part: &str| is_in(part, 63, b"-");
    match is_in(name, 253, b"-.") && namespace.is_none_or(is_namespace) {
        true => Ok((namespace.map(str::to_owned), name.to_owned())),
        false => Err("is not a Secret; expected its name, or namespace/name".to_owned()),
    }
}

impl Key {
    pub(in crate::decide) fn in_namespace(
        namespace: &str,
        (other, name): &(Option<String>, String),
    ) -> Self {
        Self::new(other.as_deref().unwrap_or(namespace), name)
    }
}

/// The name of a Service, which is in the same namespace.
pub(in crate::decide) fn service(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    match text.trim() {
        name if (1..=63).contains(&name.len()) && name.bytes().all(allowed) => Ok(name.to_owned()),
        _ => Err("is not the name of a Service of this namespace; expected one such as web".into()),
    }
}

/// A share of 100.
pub(in crate::decide) fn percent(text: &str) -> Result<u32, String> {
    let share = integer(text.trim()).filter(|share| *share <= 100);
    share.ok_or_else(|| "is out of range; expected 0 to 100".to_owned())
}

/// A header field with exactly this value: `NAME=VALUE`. The host of a request is no such field in a routing table.
pub(in crate::decide) fn header(text: &str) -> Result<HeaderMatch, String> {
    let parts = text.split_once('=').and_then(|(name, value)| {
        let (name, value) = (name.trim(), value.trim());
        let is_usable = !value.is_empty() && !name.eq_ignore_ascii_case("host");
        Some((name.parse().ok()?, value.parse().ok()?)).filter(|_| is_usable)
    });
    let (name, value) = parts.ok_or(
        "is not a header field with a value; expected NAME=VALUE, such as X-Canary=1, and not Host",
    )?;
    Ok(HeaderMatch {
        name,
        value: Some(value),
        prefix: None,
        present: false,
        absent: false,
    })
}

pub(in crate::decide) fn max_age(text: &str) -> Result<MaxAge, String> {
    text.trim().parse().map_err(wrong)
}

/// External ports: one for the only port, or a list such as `443:8443, 80:8080`.
pub(in crate::decide) fn external_port(text: &str) -> Result<Vec<(Option<u16>, u16)>, String> {
    let number = |text: &str| integer(text.trim()).and_then(|number| port(number).ok());
    let parts = text.split(',').map(|part| match part.split_once(':') {
        Some((inner, outer)) => Some((Some(number(inner)?), number(outer)?)),
        None => Some((None, number(part)?)),
    });
    let ports: Option<Vec<_>> = parts.collect();
    let ports =
        ports.filter(|ports| ports.len() == 1 || ports.iter().all(|(inner, _)| inner.is_some()));
    ports.ok_or_else(|| "is not a port; expected 8080, or 80:8080, 443:8443".to_owned())
}

/// A name without further rules.
pub(in crate::decide) fn word(text: &str) -> Result<String, String> {
    Ok(text.trim().to_owned())
}

/// The names of address pools, comma separated.
pub(in crate::decide) fn pools(text: &str) -> Result<Vec<String>, String> {
    let names = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(str::to_owned).collect();
    match (names.len(), names.iter().all(|name| name.len() <= 253)) {
        (1..=16, true) => Ok(names),
        _ => Err("names no address pool; expected one to 16 names, comma separated".to_owned()),
    }
}

/// A line of free text.
pub(in crate::decide) fn line(text: &str) -> Result<String, String> {
    match text.chars().any(char::is_control) {
        true => Err("has control characters".to_owned()),
        false => Ok(text.trim().to_owned()),
    }
}

/// A duration in Go's syntax, and with days: `10s`, `1m30s`, `500ms`, `2d`.
fn go_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "is not a duration; expected one such as 250ms, 5s, 3m, 1h or 2d".to_owned();
    if text.is_empty() {
        return Err(wrong());
    }
    let mut whole = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let is_digit = |letter: char| letter.is_ascii_digit();
        let digits = rest.find(|letter| !is_digit(letter)).ok_or_else(wrong)?;
        let unit = rest.get(digits..).unwrap_or_default();
        let length = unit.find(is_digit).unwrap_or(unit.len());
        let (part, after) = rest.split_at_checked(digits + length).ok_or_else(wrong)?;
        let part = parse_duration(part).map_err(|_| wrong())?;
        whole = whole.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    match whole <= LONGEST {
        true => Ok(whole),
        false => Err("is out of range; expected a duration from 1ms to 24d".to_owned()),
    }
}

/// Decimal digits only.
fn integer(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn port(number: u32) -> Result<u16, String> {
    match u16::try_from(number) {
        Ok(port @ 1..) => Ok(port),
        _ => Err("is out of range; expected 1 to 65535".to_owned()),
    }
}

/// The items in their order, each once: where there is no room for all, the first ones count.
fn distinct<T: Ord + Clone>(mut items: Vec<T>) -> Vec<T> {
    let mut seen = BTreeSet::new();
    items.retain(|item| seen.insert(item.clone()));
    items
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items.dedup();
    items
}

/// The error of a type of the routing table.
fn wrong(wrong: Wrong) -> String {
    wrong.to_string()
}

const LONGEST: Duration = Duration::from_secs(24 * 86_400);
