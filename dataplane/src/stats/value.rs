//! One field of one row, and how it is written without allocating.

use std::net::SocketAddr;
use std::time::Duration;

use ballast_core::text::Append;

use serde::{Serialize, Serializer};

use super::check::CheckStats;
use super::snapshot::Status;

/// The value of one column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    /// Does not apply here.
    Empty,
    /// A level, a limit, a rate.
    Level(u32),
    /// What only grows.
    Count(u64),
    /// May be below zero.
    Signed(i32),
    /// Whole seconds.
    Seconds(Duration),
    /// Seconds and their parts.
    Exact(Duration),
    /// In days, hours, minutes and seconds.
    Days(Duration),
    Text(&'a str),
    Status(Status),
    Address(SocketAddr),
    /// The result of a check.
    Check(&'a CheckStats),
    /// Whether a service is up, and how many of how many endpoints are.
    UpOf(bool, u32, u32),
}

impl<'a> Value<'a> {
    /// A level that cannot be larger than a level may be.
    pub(super) fn level(level: u64) -> Self {
        Value::Level(u32::try_from(level).unwrap_or(u32::MAX))
    }

    pub(super) fn level_or_empty(level: Option<u32>) -> Self {
        level.map_or(Value::Empty, Value::Level)
    }

    /// Nothing where there is no text.
    pub(super) fn text_or_empty(text: &'a str) -> Self {
        if text.is_empty() {
            Value::Empty
        } else {
            Value::Text(text)
        }
    }

    /// As it is read by people and programs, before any escaping.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Value::Empty => {}
            Value::Level(level) => out.number(level.into()),
            Value::Count(count) => out.number(count),
            Value::Seconds(time) => out.number(time.as_secs()),
            Value::Signed(signed) => write!(out, "{signed}"),
            Value::Exact(time) => write!(out, "{:.6}", time.as_secs_f64()),
            Value::Days(time) => {
                let (seconds, minutes) = (time.as_secs() % 60, time.as_secs() / 60 % 60);
                let (hours, days) = (time.as_secs() / 3600 % 24, time.as_secs() / 86_400);
                write!(out, "{days}d {hours}h{minutes:02}m{seconds:02}s");
            }
            Value::Text(text) => out.text(text),
            Value::Status(status) => write!(out, "{status}"),
            Value::Address(address) => write!(out, "{address}"),
            Value::Check(check) => {
                let running = if check.is_running { "* " } else { "" };
                write!(out, "{running}{}", check.result);
            }
            Value::UpOf(is_up, up, of) => write!(out, "{} ({up}/{of})", up_or_down(is_up)),
        }
    }

    /// What haproxy calls its type.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Level(_) | Value::Seconds(_) => "u32",
            Value::Count(_) => "u64",
            Value::Signed(_) => "s32",
            Value::Exact(_) => "flt",
            _ => "str",
        }
    }

    /// Whether it is a text of a table or an endpoint, which may hold any letter.
    pub(super) fn is_free_text(&self) -> bool {
        matches!(self, Value::Text(_) | Value::Check(_))
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Value::Empty)
    }
}

/// As JSON has it: a number, exact as long as a JSON number can be, or a text.
impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Level(level) => serializer.serialize_u32(*level),
            Value::Count(count) => serializer.serialize_u64((*count).min(MOST_EXACT)),
            Value::Signed(signed) => serializer.serialize_i32(*signed),
            Value::Seconds(time) => serializer.serialize_u64(time.as_secs()),
            Value::Exact(time) => serializer.serialize_f64(time.as_secs_f64()),
            _ => {
                let mut text = Vec::new();
                self.write(&mut text);
                serializer.serialize_str(&String::from_utf8_lossy(&text))
            }
        }
    }
}

/// A number of things that is never larger.
pub(super) fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// What a service's status is called.
pub(super) fn up_or_down(is_up: bool) -> &'static str {
    if is_up { "UP" } else { "DOWN" }
}

/// Milliseconds, as seconds with three places.
pub(super) fn seconds(out: &mut Vec<u8>, ms: u64) {
    write!(out, "{}.{:03}", ms / 1000, ms % 1000);
}

/// JSON's numbers are exact up to here only.
pub(super) const MOST_EXACT: u64 = (1 << 53) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::snapshot::StatusKind;

    fn written(value: Value<'_>) -> String {
        let mut out = Vec::new();
        value.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_written_whole() {
        for count in [0, 9, 10, 1_234_567_890, u64::MAX] {
            assert_eq!(written(Value::Count(count)), count.to_string());
        }
        for signed in [-1, 0, 7, i32::MIN, i32::MAX] {
            assert_eq!(written(Value::Signed(signed)), signed.to_string());
        }
        for (ms, text) in [
            (0, "0.000"),
            (7, "0.007"),
            (45, "0.045"),
            (61_230, "61.230"),
        ] {
            let mut out = Vec::new();
            seconds(&mut out, ms);
            assert_eq!(out, text.as_bytes());
        }
    }

    #[test]
    fn states_are_haproxys_words() {
        for (kind, progress, text) in [
            (StatusKind::Unchecked, None, "no check"),
            (StatusKind::Up, None, "UP"),
            (StatusKind::Up, Some((1, 3)), "UP 1/3"),
            (StatusKind::Down, Some((1, 2)), "DOWN 1/2"),
            (StatusKind::Draining, Some((2, 3)), "DRAIN 2/3"),
            (StatusKind::Maintenance, None, "MAINT"),
        ] {
            let status = Status { kind, progress };
            assert_eq!(written(Value::Status(status)), text);
            assert_eq!(status.to_string(), text);
        }
        assert_eq!(written(Value::UpOf(true, 2, 3)), "UP (2/3)");
        assert_eq!(written(Value::UpOf(false, 0, 3)), "DOWN (0/3)");
    }

    #[test]
    fn addresses_have_brackets_where_they_need_them() {
        let address = |text: &str| written(Value::Address(text.parse().unwrap()));
        assert_eq!(address("10.0.0.1:80"), "10.0.0.1:80");
        assert_eq!(address("[2001:db8::1]:80"), "[2001:db8::1]:80");
    }
}
