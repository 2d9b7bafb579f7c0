//! Active checks.

use std::fmt;
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{Within, is, is_default, is_seconds, number, seconds, shown_as_written};
use super::host::Target;
use super::leaf::{AsText, Leaf, Wrong, leaf};
use super::text::{Needle, Payload, Token, Value};
use super::tls::HealthTls;

/// How endpoints are checked. A field of another mode has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Health {
    /// The protocol of a check.
    pub mode: HealthMode,
    /// The port that is checked. Default: the endpoint's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub port: Option<NonZeroU16>,
    /// The time between two checks, 100ms at least. Default: 2s.
    #[serde(
        with = "AsText::<Duration>",
        default = "seconds::<2>",
        skip_serializing_if = "is_seconds::<2>"
    )]
    pub interval: Duration,
    /// The time between two checks while an endpoint is going up or down, 100ms at least. Default: as `interval`.
    #[serde(
        with = "AsText::<Option<Duration>>",
        default,
        skip_serializing_if = "is_default"
    )]
    pub fast_interval: Option<Duration>,
    /// How long one check may take, not longer than `interval`. Default: 1s, or `interval` where that is shorter.
    #[serde(
        with = "AsText::<Option<Duration>>",
        default,
        skip_serializing_if = "is_default"
    )]
    pub timeout: Option<Duration>,
    /// Passed checks in a row that bring an endpoint up. Default: 2.
    #[serde(
        with = "Within::<1, 10>",
        default = "number::<2, u8>",
        skip_serializing_if = "is::<2, _>"
    )]
    pub rise: u8,
    /// Failed checks in a row that take an endpoint down. Default: 3.
    #[serde(
        with = "Within::<1, 20>",
        default = "number::<3, u8>",
        skip_serializing_if = "is::<3, _>"
    )]
    pub fall: u8,
    /// http: the method. Default: GET.
    #[serde(default, skip_serializing_if = "is_default")]
    pub method: Option<Token>,
    /// http: the path, with a query if need be. Default: /.
    #[serde(default, skip_serializing_if = "is_default")]
    pub path: Option<Target>,
    /// http: the Host field. Default: the endpoint's address.
    #[serde(default, skip_serializing_if = "is_default")]
    pub host: Option<Value>,
    /// http: the statuses that pass. Default: 200-399.
    #[serde(default, skip_serializing_if = "is_default")]
    pub expect: Option<Expect>,
    /// http: a text that the first 64 KiB of the body must contain.
    #[serde(default, skip_serializing_if = "is_default")]
    pub body: Option<Needle>,
    /// tcp and udp: the bytes that are sent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub send: Option<Payload>,
    /// tcp and udp: the bytes that the answer must begin with.
    #[serde(default, skip_serializing_if = "is_default")]
    pub answer: Option<Payload>,
    /// tcp and udp: the bytes that the first 64 KiB of the answer must contain, in place of `answer`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub answer_contains: Option<Payload>,
    /// https: how the endpoint's certificate is verified. Absent: it is not verified.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tls: Option<HealthTls>,
}

impl Health {
    /// Checks of this kind that say nothing else.
    #[must_use]
    pub fn new(mode: HealthMode) -> Self {
        Self {
            mode,
            port: None,
            interval: seconds::<2>(),
            fast_interval: None,
            timeout: None,
            rise: 2,
            fall: 3,
            method: None,
            path: None,
            host: None,
            expect: None,
            body: None,
            send: None,
            answer: None,
            answer_contains: None,
            tls: None,
        }
    }

    /// Between two checks while a state is changing.
    pub fn fast_interval(&self) -> Duration {
        self.fast_interval.unwrap_or(self.interval)
    }

    /// For one check: by default 1 s, or the interval where that is shorter.
    pub fn timeout(&self) -> Duration {
        self.timeout
            .unwrap_or_else(|| self.interval.min(Duration::from_secs(1)))
    }

    /// http: the method.
    pub fn method(&self) -> &str {
        self.method.as_deref().unwrap_or("GET")
    }

    /// http: the path.
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or("/")
    }

    /// http: whether a status is well.
    #[must_use]
    pub fn expects(&self, status: u16) -> bool {
        match &self.expect {
            Some(expect) => expect.takes(status),
            None => (200..=399).contains(&status),
        }
    }
}

/// The protocol of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a mode of health")]
pub enum HealthMode {
    /// Endpoints are not checked.
    Off,
    /// A connection; with `send` and `answer` also what is said on it.
    Tcp,
    /// A request.
    Http,
    /// A request in TLS.
    Https,
    /// A datagram.
    Udp,
}

shown_as_written!(HealthMode);

/// The statuses that a check takes for well: `200,204,300-399`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expect(Box<[RangeInclusive<u16>]>);

impl Expect {
    /// Whether a status is one of them.
    #[must_use]
    pub fn takes(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            if range.start() == range.end() {
                write!(f, "{comma}{}", range.start())?;
            } else {
                write!(f, "{comma}{}-{}", range.start(), range.end())?;
            }
        }
        Ok(())
    }
}

impl Leaf for Expect {
    const NAME: &'static str = "Statuses";
    const WHAT: &'static str = "a list of statuses";
    const FORM: &'static str =
        r#"statuses and ranges of them from 100 to 599, such as "200,204,300-399""#;
    const PATTERN: &'static str = r"^[0-9,\s-]+$";
    const EXAMPLE: &'static str = "200-399";

    fn parse(text: &str) -> Result<Self, Wrong> {
        let ranges: Option<Box<[_]>> = text
            .split(',')
            .map(|part| parse_range(part.trim()))
            .collect();
        ranges.map(Self).ok_or_else(Wrong::form::<Self>)
    }

    fn text(&self) -> impl fmt::Display {
        self
    }
}

leaf!(Expect);

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (parse_status(first)?, parse_status(last)?);
    (first <= last).then_some(first..=last)
}

fn parse_status(text: &str) -> Option<u16> {
    let digits = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    let status = digits.then(|| text.parse().ok()).flatten()?;
    (100..=599).contains(&status).then_some(status)
}
