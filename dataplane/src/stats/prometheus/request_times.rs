//! The histogram of HTTP requests by how long they took.

use ballast_core::service::RequestTime;
use ballast_core::text::Append;

use super::super::selection::Kinds;
use super::super::snapshot::{Mode, ServiceStats};
use super::{END, Family, Series, Source, label};

pub(super) fn family(kinds: Kinds) -> Family {
    let help =
        "HTTP requests by how long they took, from their first byte to the end of the response.";
    Family::new(
        kinds,
        "ballast_http_request_seconds",
        help,
        Source::RequestTimes,
    )
}

pub(super) fn write(service: &ServiceStats, series: &mut Series<'_>) {
    if service.mode != Mode::Http {
        return;
    }
    series.head();
    let mut count = 0;
    for (bucket, more) in RequestTime::ALL.iter().zip(&service.own.request_times) {
        count += more;
        begin("_bucket", Some(*bucket), service, series);
        series.out.number(count);
        series.out.push(b'\n');
    }
    begin("_sum", None, service, series);
    let (seconds, micros) = (
        service.own.request_us / 1_000_000,
        service.own.request_us % 1_000_000,
    );
    writeln!(series.out, "{seconds}.{micros:06}");
    begin("_count", None, service, series);
    series.out.number(count);
    series.out.push(b'\n');
}

/// A series up to its value.
fn begin(
    suffix: &str,
    bucket: Option<RequestTime>,
    service: &ServiceStats,
    series: &mut Series<'_>,
) {
    for part in [&*series.family.name, suffix, "{service=\""] {
        series.out.extend_from_slice(part.as_bytes());
    }
    label(series.out, &service.name);
    series.table_labels(&service.spec.labels);
    if let Some(bucket) = bucket {
        series.label("", "le", bucket.word());
    }
    series.out.extend_from_slice(END);
}
