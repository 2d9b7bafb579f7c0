//! Renders access lines: a record in, a text out.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use ballast_core::table::{Access, Name};

use crate::net::relay::{Side, Why};
use crate::os::clock::{DATE, utc};

use super::Progress;

/// The contents of the access line of one connection.
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
    /// How far the connection came on its way to an endpoint.
    pub progress: Progress,
    /// Time from accept to end.
    pub total: Duration,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client.
    pub bytes_out: u64,
    /// haproxy's two termination letters: what ended the session, and in which phase.
    pub termination: [u8; 2],
    /// Numbers of connections at its end: of the process, the frontend, the service and the endpoint.
    pub connections: [u64; 4],
}

/// haproxy's two termination letters for the end of a relay: what ended the session, and in which phase.
pub(crate) fn relay_letters(why: Why, fault: Option<Side>) -> [u8; 2] {
    *match (why, fault) {
        (Why::Finished, _) => b"--",
        (Why::Cut, _) => b"KD",
        (Why::Aborted, Some(Side::Server)) => b"SD",
        (Why::Aborted, _) => b"CD",
        (Why::Idle | Why::HalfClosed, Some(Side::Server)) => b"sD",
        (Why::Idle | Why::HalfClosed, _) => b"cD",
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
    let [cause, state] = record.termination.map(char::from);
    let millis = |time: Option<Duration>| time.map_or(-1, as_millis);
    let progress = &record.progress;
    let [actconn, feconn, beconn, srvconn] = record.connections;
    let service: &str = record.service.as_deref().unwrap_or(&record.frontend);
    write!(
        line,
        "{}:{} [{}] {} {}/{} {}/{}/{} {} {cause}{state} {actconn}/{feconn}/{beconn}/{srvconn}/{}{} 0/{}",
        record.client.ip(),
        record.client.port(),
        utc(record.accepted, DATE),
        record.frontend,
        service,
        record.server.as_deref().unwrap_or("<NOSRV>"),
        millis(progress.queued),
        millis(progress.connecting),
        as_millis(record.total),
        record.bytes_out,
        if progress.is_redispatched { "+" } else { "" },
        progress.retries,
        progress.before,
    )
}

fn json(record: &Record, line: &mut String) -> std::fmt::Result {
    let [cause, state] = record.termination.map(char::from);
    write!(
        line,
        "{{\"time\":\"{}\",\"client\":\"{}\",\"frontend\":\"{}\"",
        utc(record.accepted, RFC_3339),
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

/// RFC 3339: `2026-11-21T15:04:05.678Z`.
pub(super) const RFC_3339: &str = "%Y-%m-%dT%H:%M:%S.%3fZ";
/// The date of old syslog: `Nov 21 15:04:05`.
pub(super) const SYSLOG_DATE: &str = "%b %e %H:%M:%S";

#[cfg(test)]
pub(super) mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    pub(in crate::access) fn record() -> Record {
        Record {
            accepted: UNIX_EPOCH + Duration::from_millis(1_795_273_445_678),
            client: "192.0.2.7:51000".parse().unwrap(),
            frontend: "mysql".parse().unwrap(),
            service: Some("orders".parse().unwrap()),
            server: Some("db-0".into()),
            progress: Progress {
                queued: Some(Duration::ZERO),
                connecting: Some(Duration::from_millis(3)),
                retries: 1,
                is_redispatched: true,
                ..Progress::default()
            },
            total: Duration::from_millis(1_250),
            bytes_in: 12,
            bytes_out: 345,
            termination: *b"cD",
            connections: [9, 5, 4, 2],
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
            progress: Progress::default(),
            client: "[2001:db8::1]:9".parse().unwrap(),
            termination: *b"SC",
            ..record()
        };
        assert_eq!(
            rendered(&nobody, Access::Haproxy),
            "2001:db8::1:9 [21/Nov/2026:15:04:05.678] mysql orders/<NOSRV> -1/-1/1250 345 SC 9/5/4/2/0 0/0"
        );
        let mut same = record();
        (same.progress.retries, same.progress.is_redispatched) = (3, false);
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
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds), RFC_3339).to_string();
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59.000Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000Z");
        let day = utc(UNIX_EPOCH + Duration::from_secs(86_400 * 4), SYSLOG_DATE).to_string();
        assert_eq!(day, "Jan  5 00:00:00");
    }
}
