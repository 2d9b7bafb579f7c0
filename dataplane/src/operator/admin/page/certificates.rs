//! What the page shows of certificates: each file once, with the frontends that serve it.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use ballast_core::certificate::Validity;
use maud::{Markup, html};

use super::line::{Line, cell, cells};
use super::rows::Listing;
use crate::stats::{FrontendStats, ServedCertificate};

/// A certificate, and who serves it.
struct Shown<'s> {
    certificate: &'s ServedCertificate,
    validity: Validity,
    now: u64,
    frontends: Vec<&'s FrontendStats>,
}

impl Listing {
    /// The certificates of the frontends of this page.
    pub(super) fn certificates(&self) -> impl Iterator<Item = Line> {
        shown(self).into_iter().take(MOST).enumerate().map(|(place, shown)| {
            let Shown { certificate, validity, now, ref frontends } = shown;
            let (class, word) = match validity {
                Validity::Valid => ("st open", "VALID"),
                Validity::ExpiresSoon => ("st warn", "EXPIRES SOON"),
                Validity::NotYetValid => ("st stop", "NOT YET VALID"),
                Validity::Expired => ("st stop", "EXPIRED"),
            };
            let more = certificate.names.len().saturating_sub(NAMES);
            let cells = cells! {
                "name" {
                    @for (place, name) in certificate.names.iter().take(NAMES).enumerate() {
                        @if place > 0 { ", " }
                        b { (name) }
                    }
                    @if certificate.names.is_empty() { "no name" }
                    @if more > 0 { " and " (more) " more" }
                    small { (certificate.file) }
                }
                "status" { b class=(class) { (word) } }
                "n" { span title={ (certificate.warning(now).unwrap_or_default()) } { (days(certificate.period.not_after, now)) } }
                "w" { (certificate.issuer) }
                "fe" {
                    @for (place, frontend) in frontends.iter().enumerate() {
                        @if place > 0 { ", " }
                        a href={ "#" (*frontend.name) "/Frontend" } { (*frontend.name) }
                    }
                }
            };
            Line::new(format!("c{place}"), "certificate", cells)
        })
    }

    /// Hashes what decides which lines there are.
    pub(super) fn hash_certificates(&self, hasher: &mut impl Hasher) {
        for shown in shown(self) {
            (&shown.certificate.file, &shown.certificate.names).hash(hasher);
        }
    }
}

fn shown(listing: &Listing) -> Vec<Shown<'_>> {
    let mut found: BTreeMap<(&str, u64), Shown<'_>> = BTreeMap::new();
    for frontend in listing.frontends() {
        let Some(all) = &frontend.certificates else {
            continue;
        };
        for (certificate, validity) in all.each() {
            let key = (&*certificate.file, certificate.period.not_after);
            let shown = found.entry(key).or_insert_with(|| Shown {
                certificate,
                validity,
                now: all.now,
                frontends: Vec::new(),
            });
            shown.frontends.push(frontend);
        }
    }
    // Those that end first, first.
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by_key(|shown| shown.certificate.period.not_after);
    found
}

/// How many whole days are left.
fn days(end: u64, now: u64) -> String {
    match end.checked_sub(now) {
        Some(left) => (left / DAY).to_string(),
        None => format!("−{}", now.saturating_sub(end).div_ceil(DAY)),
    }
}

pub(super) fn heads() -> Markup {
    html! {
        th class="name" { "Names and file" }
        th class="status" { "Status" }
        th class="n" title="Until it expires" { "Days left" }
        th class="w" { "Issuer" }
        th class="fe" { "Frontends" }
    }
}

/// Certificates that are shown; the metrics have all of them.
const MOST: usize = 200;
/// Names that are shown of one.
const NAMES: usize = 3;
const DAY: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_whole_and_count_backwards_behind_the_end() {
        for (end, now, days_left) in [
            (DAY * 10, DAY * 3, "7"),
            (DAY * 10 - 1, DAY * 3, "6"),
            (DAY, DAY, "0"),
            (DAY, DAY + 1, "−1"),
            (DAY, DAY * 4, "−3"),
        ] {
            assert_eq!(days(end, now), days_left);
        }
    }
}
