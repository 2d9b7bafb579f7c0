//! Active checks.

use std::fmt;
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::host::Target;
use super::record::{Leaf, Wrong, leaf, parsed, record, serde_by_field, words};
use super::text::{Needle, Payload, Token, Value};
use super::tls::HealthTls;

record! {
    /// How endpoints are checked.
    pub struct Health {
        /// What is spoken.
        mode: HealthMode;
        /// Absent: the endpoint's.
        port: Option<NonZeroU16> = None;
        /// Between two checks.
        interval: Duration = Duration::from_secs(2), in SHORTEST..=LONGEST;
        /// While a state is changing. Absent: `interval`, see [`Health::fast_interval`].
        fast_interval: Option<Duration> = None, in SHORTEST..=LONGEST;
        /// For one check. Absent: see [`Health::timeout`].
        timeout: Option<Duration> = None;
        /// Passed checks in a row that make an endpoint up.
        rise: u8 = 2, in 1..=10;
        /// Failed checks in a row that make it down.
        fall: u8 = 3, in 1..=20;
        /// http: the method.
        method: Option<Token> = None;
        /// http: the path.
        path: Option<Target> = None;
        /// http: the Host field. Absent: the endpoint's address.
        host: Option<Value> = None;
        /// http: statuses that are well. Absent: 200-399, see [`Health::expects`].
        expect: Option<Expect> = None;
        /// http: must be contained in the first 64 KiB of the body.
        body: Option<Needle> = None;
        /// tcp, udp: what is sent.
        send: Option<Payload> = None;
        /// tcp, udp: how the answer must begin.
        answer: Option<Payload> = None;
        /// https. Absent: not verified.
        tls: Option<HealthTls> = None;
    }
}

impl Health {
    /// Between two checks while a state is changing.
    #[must_use]
    pub fn fast_interval(&self) -> Duration {
        self.fast_interval.unwrap_or(self.interval)
    }

    /// For one check: by default 1 s, or the interval where that is shorter.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
            .unwrap_or_else(|| self.interval.min(Duration::from_secs(1)))
    }

    /// http: the method.
    #[must_use]
    pub fn method(&self) -> &str {
        self.method.as_deref().unwrap_or("GET")
    }

    /// http: the path.
    #[must_use]
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

words! {
    /// What a check speaks.
    pub enum HealthMode: "a mode of health" {
        /// Endpoints are not checked.
        Off = "off",
        /// A connection, and `send` and `answer` perhaps.
        Tcp = "tcp",
        /// A request.
        Http = "http",
        /// A request in TLS.
        Https = "https",
        /// A datagram.
        Udp = "udp",
    }
}

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
            match range.start() == range.end() {
                true => write!(f, "{comma}{}", range.start())?,
                false => write!(f, "{comma}{}-{}", range.start(), range.end())?,
            }
        }
        Ok(())
    }
}

impl Leaf for Expect {
    const WHAT: &'static str = "a list of statuses";
    const FORM: &'static str =
        r#"statuses and ranges of them from 100 to 599, such as "200,204,300-399""#;

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

    fn stand_in() -> Self {
        Self(Box::from([200..=399]))
    }
}

leaf!(Expect);
serde_by_field!(Expect);
parsed!(Expect);

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

const SHORTEST: Duration = Duration::from_millis(100);

const LONGEST: Duration = Duration::from_secs(24 * 86_400);
