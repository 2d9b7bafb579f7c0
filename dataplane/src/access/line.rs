//! Renders access lines: a record in, a text out.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_core::table::{Access, Name};

/// What an access line says of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// When it was accepted.
    pub accepted: SystemTime,
    pub client: SocketAddr,
    pub frontend: Name,
    /// The service, if the connection got that far.
    pub service: Option<Name>,
    /// The endpoint: its name, or its address.
    pub server: Option<Box<str>>,
    /// Time in the queue; `None`: it left in the queue.
    pub queued: Option<Duration>,
    /// Time to connect; `None`: no endpoint was connected.
    pub connecting: Option<Duration>,
    /// Time from accept to end.
    pub total: Duration,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client.
    pub bytes_out: u64,
    /// How it ended.
    pub termination: Termination,
    /// Numbers of connections at its end: of the process, the frontend, the service and the endpoint.
    pub connections: [u64; 4],
    /// Attempts after the first one.
    pub retries: u16,
    /// Whether one of these attempts was at another endpoint than the attempt before it.
    pub is_redispatched: bool,
    /// Clients that were ahead of it in the service's queue.
    pub queue: u64,
}

/// haproxy's two termination letters: what ended the session, and in which phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Termination(pub [u8; 2]);

impl Termination {
    /// Marks a connection without a line: a mere port probe.
    pub(super) const SILENT: Self = Self([0; 2]);

    fn letters(self) -> [char; 2] {
        self.0.map(char::from)
    }
}

/// Appends the line to `line`, without a line feed.
pub(super) fn render(record: &Record, form: Access, line: &mut String) {
    // Writing to a String cannot fail.
    match form {
        Access::Off => {}
        Access::Haproxy => tcplog(record, line).unwrap_or_default(),
        Access::Json => json(record, line).unwrap_or_default(),
    }
}

fn tcplog(record: &Record, line: &mut String) -> std::fmt::Result {
    let [cause, state] = record.termination.letters();
    let millis = |time: Option<Duration>| time.map_or(-1, as_millis);
    let [actconn, feconn, beconn, srvconn] = record.connections;
    let service: &str = record.service.as_deref().unwrap_or(&record.frontend);
    write!(
        line,
        "{}:{} [{}] {} {}/{} {}/{}/{} {} {cause}{state} {actconn}/{feconn}/{beconn}/{srvconn}/{}{} 0/{}",
        record.client.ip(),
        record.client.port(),
        Date(record.accepted),
        record.frontend,
        service,
        record.server.as_deref().unwrap_or("<NOSRV>"),
        millis(record.queued),
        millis(record.connecting),
        as_millis(record.total),
        record.bytes_out,
        if record.is_redispatched { "+" } else { "" },
        record.retries,
        record.queue,
    )
}

fn json(record: &Record, line: &mut String) -> std::fmt::Result {
    let [cause, state] = record.termination.letters();
    write!(
        line,
        "{{\"time\":\"{}\",\"client\":\"{}\",\"frontend\":\"{}\"",
        Iso(record.accepted),
        record.client,
        record.frontend,
    )?;
    // Names and addresses contain no character that JSON would escape.
    for (key, name) in [
        ("service", record.service.as_deref()),
        ("server", record.server.as_deref()),
    ] {
        match name {
            Some(name) => write!(line, ",\"{key}\":\"{name}\"")?,
            None => write!(line, ",\"{key}\":null")?,
        }
    }
    write!(
        line,
        ",\"bytes_in\":{},\"bytes_out\":{},\"duration_ms\":{},\"termination\":\"{cause}{state}\"}}",
        record.bytes_in,
        record.bytes_out,
        as_millis(record.total),
    )
}

fn as_millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// haproxy's date, in UTC: `21/Nov/2026:15:04:05.678`.
pub(crate) struct Date(pub(crate) SystemTime);

impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = Civil::of(self.0);
        write!(
            f,
            "{:02}/{}/{}:{:02}:{:02}:{:02}.{:03}",
            at.day,
            at.month_name(),
            at.year,
            at.hour,
            at.minute,
            at.second,
            at.milli
        )
    }
}

/// RFC 3339, in UTC: `2026-11-21T15:04:05.678Z`.
struct Iso(SystemTime);

impl std::fmt::Display for Iso {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = Civil::of(self.0);
        write!(
            f,
            "{}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            at.year, at.month, at.day, at.hour, at.minute, at.second, at.milli
        )
    }
}

/// The date of old syslog, in UTC: `Nov 21 15:04:05`.
pub(super) struct SyslogDate(pub(super) SystemTime);

impl std::fmt::Display for SyslogDate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = Civil::of(self.0);
        write!(
            f,
            "{} {:2} {:02}:{:02}:{:02}",
            at.month_name(),
            at.day,
            at.hour,
            at.minute,
            at.second
        )
    }
}

/// A date and time of the calendar.
struct Civil {
    year: u64,
    month: usize,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    milli: u32,
}

impl Civil {
    fn of(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs();
        let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
        let mut year = 1970;
        while days >= year_length(year) {
            days -= year_length(year);
            year += 1;
        }
        let mut month = 0;
        while days >= month_length(year, month) {
            days -= month_length(year, month);
            month += 1;
        }
        Self {
            year,
            month: month + 1,
            day: days + 1,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            milli: since.subsec_millis(),
        }
    }

    fn month_name(&self) -> &'static str {
        MONTHS[self.month - 1].0
    }
}

fn year_length(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

/// `month` counts from 0.
fn month_length(year: u64, month: usize) -> u64 {
    MONTHS[month].1 + u64::from(month == 1 && is_leap(year))
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const MONTHS: [(&str, u64); 12] = [
    ("Jan", 31),
    ("Feb", 28),
    ("Mar", 31),
    ("Apr", 30),
    ("May", 31),
    ("Jun", 30),
    ("Jul", 31),
    ("Aug", 31),
    ("Sep", 30),
    ("Oct", 31),
    ("Nov", 30),
    ("Dec", 31),
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::access) fn record() -> Record {
        Record {
            accepted: UNIX_EPOCH + Duration::from_millis(1_795_273_445_678),
            client: "192.0.2.7:51000".parse().unwrap(),
            frontend: "mysql".parse().unwrap(),
            service: Some("orders".parse().unwrap()),
            server: Some("db-0".into()),
            queued: Some(Duration::ZERO),
            connecting: Some(Duration::from_millis(3)),
            total: Duration::from_millis(1_250),
            bytes_in: 12,
            bytes_out: 345,
            termination: Termination(*b"cD"),
            connections: [9, 5, 4, 2],
            retries: 1,
            is_redispatched: true,
            queue: 0,
        }
    }

    fn rendered(record: &Record, form: Access) -> String {
        let mut line = String::new();
        render(record, form, &mut line);
        line
    }

    #[test]
    fn a_line_has_the_fields_of_tcplog() {
        assert_eq!(
            rendered(&record(), Access::Haproxy),
            "192.0.2.7:51000 [21/Nov/2026:15:04:05.678] mysql orders/db-0 0/3/1250 345 cD 9/5/4/2/+1 0/0"
        );
        let nobody = Record {
            server: None,
            queued: None,
            connecting: None,
            client: "[2001:db8::1]:9".parse().unwrap(),
            termination: Termination(*b"SC"),
            retries: 0,
            is_redispatched: false,
            ..record()
        };
        assert_eq!(
            rendered(&nobody, Access::Haproxy),
            "2001:db8::1:9 [21/Nov/2026:15:04:05.678] mysql orders/<NOSRV> -1/-1/1250 345 SC 9/5/4/2/0 0/0"
        );
        let same = Record {
            retries: 3,
            is_redispatched: false,
            ..record()
        };
        let line = rendered(&same, Access::Haproxy);
        assert!(line.ends_with(" 9/5/4/2/3 0/0"), "{line}");
    }

    #[test]
    fn json_is_an_object_with_every_field() {
        let line = rendered(&record(), Access::Json);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "time": "2026-11-21T15:04:05.678Z", "client": "192.0.2.7:51000", "frontend": "mysql",
                "service": "orders", "server": "db-0", "bytes_in": 12, "bytes_out": 345,
                "duration_ms": 1250, "termination": "cD",
            })
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| Iso(UNIX_EPOCH + Duration::from_secs(seconds)).to_string();
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59.000Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000Z");
        let day = SyslogDate(UNIX_EPOCH + Duration::from_secs(86_400 * 4)).to_string();
        assert_eq!(day, "Jan  5 00:00:00");
    }
}
