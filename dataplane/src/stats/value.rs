//! One field of one row, and how it is written without allocating.

use std::io::Write;
use std::net::SocketAddr;

use super::check::Check;
use super::snapshot::Status;

/// The value of one column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    /// Does not apply here.
    Empty,
    /// A level, a limit, a rate.
    Level(u32),
    /// What only grows.
    Count(u64),
    /// May be below zero.
    Signed(i32),
    Text(&'a str),
    Status(Status),
    Address(SocketAddr),
    /// The result of a check.
    Check(&'a Check),
    /// Whether a service is up, and how many of how many endpoints are.
    UpOf(bool, u32, u32),
}

impl<'a> Value<'a> {
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
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Value::Empty => {}
            Value::Level(level) => number(out, level.into()),
            Value::Count(count) => number(out, count),
            Value::Signed(signed) => {
                if signed < 0 {
                    out.push(b'-');
                }
                number(out, signed.unsigned_abs().into());
            }
            Value::Text(text) => out.extend_from_slice(text.as_bytes()),
            Value::Status(Status { kind, progress }) => {
                out.extend_from_slice(kind.word().as_bytes());
                if let Some((done, of)) = progress {
                    out.push(b' ');
                    number(out, done.into());
                    out.push(b'/');
                    number(out, of.into());
                }
            }
            // Writing into a vector cannot fail.
            Value::Address(address) => write!(out, "{address}").unwrap_or_default(),
            Value::Check(check) => {
                if check.is_running {
                    out.extend_from_slice(b"* ");
                }
                out.extend_from_slice(check.result.as_bytes());
            }
            Value::UpOf(is_up, up, of) => {
                let word = up_or_down(is_up);
                write!(out, "{word} ({up}/{of})").unwrap_or_default();
            }
        }
    }

    /// What haproxy calls its type.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Level(_) => "u32",
            Value::Count(_) => "u64",
            Value::Signed(_) => "s32",
            _ => "str",
        }
    }

    /// Whether it was written by somebody, so that it may hold any letter.
    pub(super) fn is_free_text(&self) -> bool {
        matches!(self, Value::Text(_) | Value::Check(_))
    }

    pub(super) fn is_text(&self) -> bool {
        !matches!(
            self,
            Value::Level(_) | Value::Count(_) | Value::Signed(_) | Value::Empty
        )
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Value::Empty)
    }
}

/// What a service's status is called.
pub(super) fn up_or_down(is_up: bool) -> &'static str {
    if is_up { "UP" } else { "DOWN" }
}

/// Decimal digits.
pub(super) fn number(out: &mut Vec<u8>, mut number: u64) {
    if let Ok(digit @ 0..10) = u8::try_from(number) {
        out.push(b'0' + digit);
        return;
    }
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        // The digit of a remainder by ten fits.
        digits[first] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// Milliseconds, as seconds with three places.
pub(super) fn seconds(out: &mut Vec<u8>, ms: u64) {
    number(out, ms / 1000);
    let rest = u8::try_from(ms % 1000 / 10).unwrap_or(0);
    let last = u8::try_from(ms % 10).unwrap_or(0);
    out.extend_from_slice(&[b'.', b'0' + rest / 10, b'0' + rest % 10, b'0' + last]);
}

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
