//! When the certificates of frontends end.

use ballast_core::text::Append;

use std::collections::HashSet;

use super::super::selection::Kinds;
use super::super::snapshot::FrontendStats;
use super::{END, Family, Series, Source};

pub(super) fn family(kinds: Kinds) -> Family {
    let help =
        "When the certificate expires, in seconds since 1970; past that it is served all the same.";
    Family::new(
        kinds,
        "ballast_certificate_expiry_seconds",
        help,
        Source::Certificates,
    )
}

/// All series of one frontend: one for each file and first name, though the table may have several entries with these.
pub(super) fn write(frontend: &FrontendStats, series: &mut Series<'_>) {
    let mut written = HashSet::new();
    let certificates = frontend.certificates.iter();
    for certificate in certificates.flat_map(|all| all.served.iter()) {
        let name = certificate.name();
        let name = name.get(..LONGEST_NAME).unwrap_or(name);
        if !written.insert((&*certificate.file, name)) {
            continue;
        }
        series.begin(&frontend.name);
        series.label("", "certificate", &certificate.file);
        series.label("", "name", name);
        series.table_labels(&frontend.spec.labels);
        series.out.extend_from_slice(END);
        series.out.number(certificate.period.not_after);
        series.out.push(b'\n');
    }
}

/// The longest name that DNS has. Names are ASCII.
const LONGEST_NAME: usize = 253;
