//! Which addresses may see the page, the metrics and everything else at the admin address but health. The table says it
//! (`stats.source-ranges`); [`super::handler`] asks for each request.

use std::fmt;
use std::net::IpAddr;

use ballast_core::admit::PrefixSet;
use ballast_core::table;

/// The addresses that may see the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Viewers {
    who: Who,
    /// Whether they need a name and a secret as well.
    with_secret: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    Everybody,
    /// This machine and networks that are not the internet.
    OwnNetworks,
    Within {
        ranges: PrefixSet,
        /// The ranges as the log names them.
        text: String,
    },
}

impl Viewers {
    /// What a table wants, if there is one. Without ranges, credentials guard the page if there are any, and else only
    /// own networks see it.
    pub(super) fn of(stats: Option<&table::Stats>, with_secret: bool) -> Self {
        let ranges = stats.and_then(|stats| stats.source_ranges.as_ref());
        let who = match ranges {
            Some(ranges) => {
                let first: Vec<String> = ranges
                    .iter()
                    .take(MOST_NAMED)
                    .map(|r| r.to_string())
                    .collect();
                let more = match ranges.len().saturating_sub(MOST_NAMED) {
                    0 => String::new(),
                    more => format!(" and {more} more ranges"),
                };
                Who::Within {
                    ranges: PrefixSet::new(ranges.iter().copied()),
                    text: first.join(", ") + &more,
                }
            }
            None if with_secret => Who::Everybody,
            None => Who::OwnNetworks,
        };
        Self { who, with_secret }
    }

    /// Why this address may not see the page, and what would help; `None`: it may.
    pub(super) fn refuse(&self, client: IpAddr) -> Option<String> {
        let client = client.to_canonical();
        let (may_look, why) = match &self.who {
            Who::Everybody => return None,
            Who::OwnNetworks => (is_own_network(client), NOT_OWN),
            Who::Within { ranges, .. } => (ranges.contains(client), NOT_WITHIN),
        };
        (!may_look).then(|| format!("{client} may not see this: {why}\n"))
    }

    /// Logs which addresses may see the page.
    pub(crate) fn log(&self) {
        tracing::info!("the page and the metrics are shown to {self}");
    }
}

impl fmt::Display for Viewers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            Who::Everybody => f.write_str("every address")?,
            Who::OwnNetworks => f.write_str(
                "loopback, link-local, private and shared (100.64.0.0/10) addresses only; for others, \
                 name their ranges in the table's stats.source-ranges, or start ballast with --stats-auth-file",
            )?,
            Who::Within { text, .. } => write!(f, "addresses in {text} only (the table's stats.source-ranges)")?,
        }
        if self.with_secret {
            f.write_str(", with credentials of the auth file")
        } else {
            Ok(())
        }
    }
}

/// Loopback, link-local, private (RFC 1918), unique local (RFC 4193) and shared (RFC 6598) addresses.
fn is_own_network(client: IpAddr) -> bool {
    match client {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            let is_shared = first == 100 && (64..128).contains(&second);
            v4.is_loopback() || v4.is_link_local() || v4.is_private() || is_shared
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unique_local(),
    }
}

const NOT_OWN: &str = "the table has no stats.source-ranges, so only loopback, link-local, private and shared \
    (100.64.0.0/10) addresses may; add a range to stats.source-ranges, or start ballast with --stats-auth-file";
const NOT_WITHIN: &str = "it is in none of the table's stats.source-ranges; add it there";
/// In the log.
const MOST_NAMED: usize = 8;

#[cfg(test)]
mod tests {
    use ballast_core::table::{Format, parse};

    use super::*;

    fn refused(viewers: &Viewers, client: &str) -> bool {
        viewers.refuse(client.parse().unwrap()).is_some()
    }

    fn with(stats: &str, with_secret: bool) -> Viewers {
        let text = format!("version: 1\nstats: {stats}\n");
        let table = parse(text.as_bytes(), Format::Yaml).unwrap();
        Viewers::of(Some(&table.stats), with_secret)
    }

    #[test]
    fn without_ranges_and_secrets_only_own_networks_see_the_page() {
        for viewers in [Viewers::of(None, false), with("{}", false)] {
            for own in [
                "127.0.0.1",
                "127.255.0.9",
                "10.0.0.1",
                "172.16.0.1",
                "172.31.255.255",
                "192.168.9.9",
                "169.254.1.1",
                "100.64.0.1",
                "100.127.255.255",
                "::1",
                "fe80::1",
                "febf::1",
                "fc00::1",
                "fdff::1",
                "::ffff:10.0.0.1",
            ] {
                assert!(!refused(&viewers, own), "{own}");
            }
            for other in [
                "198.51.100.1",
                "9.255.255.255",
                "11.0.0.0",
                "172.15.255.255",
                "172.32.0.0",
                "192.169.0.0",
                "169.253.255.255",
                "100.63.255.255",
                "100.128.0.0",
                "0.0.0.0",
                "2001:db8::1",
                "fec0::1",
                "fbff::1",
                "fe00::1",
                "::2",
                "::ffff:198.51.100.1",
            ] {
                assert!(refused(&viewers, other), "{other}");
            }
        }
    }

    #[test]
    fn secrets_open_the_page_for_every_address_unless_ranges_are_named() {
        let all = with("{}", true);
        assert!(!refused(&all, "198.51.100.1"));
        for with_secret in [false, true] {
            let some = with("{source-ranges: [\"198.51.100.7/24\"]}", with_secret);
            assert!(!refused(&some, "198.51.100.1"));
            assert!(!refused(&some, "::ffff:198.51.100.1"));
            assert!(refused(&some, "127.0.0.1"), "exactly these");
            assert!(refused(&some, "::1"), "a family without a range");
        }
    }

    #[test]
    fn the_log_names_the_ranges() {
        let some = with("{source-ranges: [\"10.0.0.0/8\", \"2001:db8::/32\"]}", true);
        let said = some.to_string();
        assert!(said.contains("10.0.0.0/8, 2001:db8::/32 only"), "{said}");
        assert!(said.contains("with credentials"), "{said}");
        let list: Vec<String> = (0..20).map(|n| format!("\"10.{n}.0.0/16\"")).collect();
        let many = with(&format!("{{source-ranges: [{}]}}", list.join(", ")), false);
        assert!(many.to_string().contains("10.7.0.0/16 and 12 more ranges"));
    }
}
