//! Which certificates of a frontend a client is offered, by the server name that it asks for, and whether they are valid.
//!
//! The data plane reads the certificates, and signs with their keys.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::table::{HostPattern, UnknownName};

mod period;

pub use period::{Period, Validity};

/// The certificates of one frontend by server name.
///
/// A certificate is named by its place in the table. One that cannot be used keeps its names: a client that asks for one of them
/// is refused, and not offered another certificate.
#[derive(Debug, Default)]
pub struct CertificateNames {
    exact: HashMap<Box<str>, Vec<usize>>,
    /// Keyed by the part of the name behind `*.`.
    wildcards: HashMap<Box<str>, Vec<usize>>,
    /// The first certificate, which clients without a name are offered. Empty: it cannot be used.
    first: Vec<usize>,
    unknown: UnknownName,
    no_name: UnknownName,
    /// Whether no client is refused, whatever it asks for.
    takes_all: bool,
}

impl CertificateNames {
    /// For each certificate, in the order of the table: the names that it is offered for, and whether it can be used. Names are in
    /// lower case, without a dot at the end; `*.` at the beginning matches exactly one label.
    pub fn new<'a, Names: IntoIterator<Item = &'a str>>(
        certificates: impl IntoIterator<Item = (Names, bool)>,
        unknown: UnknownName,
        no_name: UnknownName,
    ) -> Self {
        let mut offered = Self {
            unknown,
            no_name,
            takes_all: unknown == UnknownName::Default && no_name == UnknownName::Default,
            ..Self::default()
        };
        for (place, (names, is_usable)) in certificates.into_iter().enumerate() {
            let usable = is_usable.then_some(place);
            offered.takes_all &= is_usable;
            if place == 0 {
                offered.first.extend(usable);
            }
            for name in names {
                let of_name = match name.strip_prefix("*.") {
                    Some(parent) => offered.wildcards.entry(parent.into()),
                    None => offered.exact.entry(name.into()),
                };
                of_name.or_default().extend(usable);
            }
        }
        offered
    }

    /// The places of the certificates for a client that asks for this name, or for none: those of the exact name, then those of
    /// the wildcard, in the order of the table; else the first certificate. Empty: the client is refused. Case, and a dot at the
    /// end of the name, are ignored.
    pub fn find(&self, server_name: Option<&str>) -> &[usize] {
        let without = |policy| match policy {
            UnknownName::Default => &*self.first,
            UnknownName::Refuse => &[],
        };
        let Some(name) = server_name else {
            return without(self.no_name);
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        let name: Cow<'_, str> = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            name.to_ascii_lowercase().into()
        } else {
            name.into()
        };
        let wildcard = || self.wildcards.get(name.split_once('.')?.1);
        match self.exact.get(&*name).or_else(wildcard) {
            Some(places) => places,
            None => without(self.unknown),
        }
    }

    /// Whether a client that asks for this name, or for none, is refused.
    #[must_use]
    pub fn refuses(&self, server_name: Option<&str>) -> bool {
        !self.takes_all && self.find(server_name).is_empty()
    }
}

/// Whether a certificate with these names is good for a name that the table offers it for. Clients refuse it otherwise.
pub fn is_covered<'a>(name: &HostPattern, names: impl IntoIterator<Item = &'a str>) -> bool {
    names
        .into_iter()
        .any(|own| match (name, own.strip_prefix("*.")) {
            (HostPattern::Exact(name), None) => own == &**name,
            (HostPattern::Under(parent), Some(own)) => own == &**parent,
            (HostPattern::Exact(name), Some(parent)) => {
                name.split_once('.').is_some_and(|(_, rest)| rest == parent)
            }
            (HostPattern::Under(_), None) => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_good_for_its_names_and_one_label_below_its_wildcards() {
        let names = ["shop.test", "*.star.test"];
        for (name, expected) in [
            ("shop.test", true),
            ("SHOP.test.", true),
            ("a.star.test", true),
            ("*.star.test", true),
            ("*.shop.test", false),
            ("star.test", false),
            ("a.b.star.test", false),
            ("other.test", false),
        ] {
            let name: HostPattern = name.parse().unwrap();
            assert_eq!(is_covered(&name, names), expected, "{name}");
        }
    }

    /// Three good certificates, and a bad one between them.
    fn names(unknown: UnknownName) -> CertificateNames {
        let certificates = [
            (&["first.test"][..], true),
            (&["*.star.test", "both.test"], true),
            (&["bad.test", "*.bad.test"], false),
            (&["both.test", "exact.star.test"], true),
        ];
        let certificates = certificates.map(|(names, is_usable)| (names.to_vec(), is_usable));
        CertificateNames::new(certificates, unknown, UnknownName::Default)
    }

    #[test]
    fn clients_without_a_name_are_refused_where_the_table_says_so() {
        for unknown in [UnknownName::Default, UnknownName::Refuse] {
            let names = CertificateNames::new([(["a.test"], true)], unknown, UnknownName::Refuse);
            assert!(names.refuses(None));
            assert!(!names.refuses(Some("a.test")));
            assert_eq!(
                names.refuses(Some("b.test")),
                unknown == UnknownName::Refuse
            );
        }
    }

    #[test]
    fn the_name_chooses_and_the_first_certificate_is_for_the_others() {
        for (name, expected) in [
            (Some("first.test"), &[0][..]),
            (Some("FIRST.Test."), &[0]),
            (Some("a.star.test"), &[1]),
            (Some("both.test"), &[1, 3]),
            // The exact name goes first, and alone.
            (Some("exact.star.test"), &[3]),
            (None, &[0]),
            // The only certificate for these cannot be used.
            (Some("bad.test"), &[]),
            (Some("x.bad.test"), &[]),
        ] {
            for unknown in [UnknownName::Default, UnknownName::Refuse] {
                let names = names(unknown);
                assert_eq!(names.find(name), expected, "{name:?}");
                assert_eq!(names.refuses(name), expected.is_empty(), "{name:?}");
            }
        }
        // A wildcard matches one label.
        for name in ["star.test", "a.b.star.test", "other.test", "test", "."] {
            assert_eq!(names(UnknownName::Default).find(Some(name)), [0], "{name}");
            assert!(!names(UnknownName::Default).refuses(Some(name)), "{name}");
            assert!(names(UnknownName::Refuse).refuses(Some(name)), "{name}");
        }
    }

    #[test]
    fn without_the_first_certificate_there_is_no_default() {
        let certificates = [(["a.test"], false), (["b.test"], true)];
        let names = CertificateNames::new(certificates, UnknownName::Default, UnknownName::Default);
        assert!(names.refuses(Some("a.test")));
        assert!(!names.refuses(Some("b.test")));
        assert!(names.refuses(Some("c.test")));
        assert!(names.refuses(None));
    }
}
