//! The certificates that frontends serve, and what an operator should know of them. Whatever their dates, they are served: a
//! client may be set to take them, and one that is not learns more from the certificate than from a refusal.

use std::fmt::{self, Display};
use std::sync::Arc;

use ballast_core::certificate::{Period, Validity, is_covered};
use ballast_core::table;
use jiff::Timestamp;

use super::certificates::Certificate;
use super::x509;

#[derive(Debug)]
pub struct ServedCertificate {
    /// Its file, as the table names it.
    pub file: Box<str>,
    /// The names that it is offered for: the table's, or those in it.
    pub names: Arc<[Box<str>]>,
    /// When it is valid.
    pub period: Period,
    /// The certificate's subject, in the form of RFC 4514.
    pub subject: Box<str>,
    /// The certificate's issuer, in the form of RFC 4514.
    pub issuer: Box<str>,
    /// The number that the issuer gave it, in hexadecimal digits.
    pub serial: Box<str>,
    /// Names that the table offers it for, and that are not in it.
    foreign_names: Box<[Box<str>]>,
}

/// The names that a certificate is offered for.
pub(super) fn names_of(spec: &table::Certificate, certificate: &Certificate) -> Arc<[Box<str>]> {
    match &spec.hosts {
        Some(hosts) => hosts.iter().map(|host| host.to_string().into()).collect(),
        None => Arc::clone(&certificate.names),
    }
}

impl ServedCertificate {
    /// `None`: it cannot be used.
    pub(super) fn of(spec: &table::Certificate, certificate: &Certificate) -> Option<Self> {
        let hosts = spec.hosts.iter().flatten();
        let foreign =
            hosts.filter(|host| !is_covered(host, certificate.names.iter().map(|name| &**name)));
        let own = certificate.key.as_ref().and_then(|key| key.cert.first());
        let x509::Origin {
            subject,
            issuer,
            serial,
        } = own.and_then(x509::origin).unwrap_or_default();
        Some(Self {
            file: spec.cert.display().to_string().into(),
            names: names_of(spec, certificate),
            period: certificate.period?,
            subject,
            issuer,
            serial,
            foreign_names: foreign.map(|host| host.to_string().into()).collect(),
        })
    }

    /// The first of its names; empty if it has none.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", |name| name)
    }

    /// What an operator should know of it, as sentences without a subject.
    fn warnings(&self, now: u64) -> impl Iterator<Item = String> {
        let foreign = (!self.foreign_names.is_empty()).then(|| {
            let names = Listed(&self.foreign_names);
            format!("is offered for {names}, which it does not name, so that clients refuse it")
        });
        self.warning(now).into_iter().chain(foreign)
    }

    /// What an operator should know of its period, as a sentence without a subject. `None`: it is valid.
    pub(crate) fn warning(&self, now: u64) -> Option<String> {
        let Period {
            not_before,
            not_after,
        } = self.period;
        match self.period.at(now) {
            Validity::Valid => None,
            Validity::ExpiresSoon => Some(format!("expires at {}", Date(not_after))),
            Validity::NotYetValid => Some(format!(
                "is not valid before {}, and is served all the same",
                Date(not_before)
            )),
            Validity::Expired => Some(format!(
                "expired at {}, and is served all the same",
                Date(not_after)
            )),
        }
    }
}

impl Display for ServedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.file, Listed(&self.names))
    }
}

/// What an operator should know of the certificates of this frontend, as sentences.
pub(super) fn warnings<'a>(
    frontend: &'a str,
    certificates: &'a [ServedCertificate],
    now: u64,
) -> impl Iterator<Item = String> + 'a {
    certificates.iter().flat_map(move |certificate| {
        let warnings = certificate.warnings(now);
        warnings.map(move |what| format!("frontend {frontend}: certificate {certificate} {what}"))
    })
}

/// The first names, and how many more there are.
pub(super) struct Listed<'a>(pub(super) &'a [Box<str>]);

impl Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no name");
        }
        for (place, name) in self.0.iter().take(LISTED).enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{name}")?;
        }
        match self.0.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// A second since 1970, as a date.
struct Date(u64);

impl Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = i64::try_from(self.0).ok();
        match second.and_then(|second| Timestamp::from_second(second).ok()) {
            Some(date) => date.fmt(f),
            None => f.write_str("the end of all dates"),
        }
    }
}

/// Names that a line lists.
const LISTED: usize = 3;
