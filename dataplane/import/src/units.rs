//! Numbers and times as haproxy writes them.

use std::time::Duration;

/// A time: a number and `us`, `ms`, `s`, `m`, `h` or `d`; a bare number is milliseconds. `None`: this is no time.
pub(super) fn time(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let micros = match unit {
        "us" => 1,
        "" | "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    Some(Duration::from_micros(number.saturating_mul(micros)))
}

/// A time, as [`time`] reads it; an error says that it is none, and names one such as `such`.
pub(super) fn some_time(text: &str, such: &str) -> Result<Duration, String> {
    time(text).ok_or_else(|| format!("{text:?} is no time; expected one such as {such}"))
}

/// A port, or 0.
pub(super) fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| no_port(text))
}

pub(super) fn no_port(text: &str) -> String {
    format!("{text:?} is no port; expected 1 to 65535")
}

/// The longest time of a table.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 86_400);
/// The shortest time of a table.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

/// The time as a table can have it: whole milliseconds, 1 ms to 24 d.
pub(super) fn fitting(time: Duration) -> Duration {
    let millis = time.as_micros().div_ceil(1000);
    let millis = u64::try_from(millis).unwrap_or(u64::MAX);
    Duration::from_millis(millis).clamp(SHORTEST, LONGEST)
}
