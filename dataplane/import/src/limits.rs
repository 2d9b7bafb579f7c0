//! Limits per client: `stick-table … store conn_cur,conn_rate(1s)`, `tcp-request … track-sc0 src`, and the rules that reject by
//! these counters.

use std::num::NonZeroU32;
use std::time::Duration;

use ballast_core::table::Frontend;

use super::frontends::Backends;
use super::proxy::{Does, Proxy, Stick, Track};

/// A counter of clients, and from which count on a condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    /// The criterion, for messages.
    pub(super) shown: String,
    counts: Counts,
    /// The number of `track-sc…`; `None`: the counters of the client's address, tracked or not.
    number: Option<u8>,
    /// The section that has the table; `None`: this one, or that of `track-sc…`.
    table: Option<String>,
    /// The lowest count for which the condition holds.
    least: u32,
}

/// What is counted of each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    AtOnce,
    PerPeriod,
}

impl Counter {
    /// Reads a criterion such as `src_conn_cur` or `sc_conn_rate(0,table)`, and its patterns. `None`: it is no such counter, or is not
    /// asked whether it is above a number.
    pub(super) fn read(criterion: &str, patterns: &[String]) -> Option<Self> {
        let (name, arguments) = match criterion.strip_suffix(')') {
            Some(rest) => rest.split_once('(')?,
            None => (criterion, ""),
        };
        let mut arguments = arguments.split(',').filter(|word| !word.is_empty());
        let (number, counter) = match name.split_once('_')? {
            ("src", counter) => (None, counter),
            ("sc", counter) => (Some(arguments.next()?.parse().ok()?), counter),
            (by, counter) => (Some(by.strip_prefix("sc")?.parse().ok()?), counter),
        };
        let counts = match counter {
            "conn_cur" => Counts::AtOnce,
            "conn_rate" => Counts::PerPeriod,
            _ => return None,
        };
        let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
        let least = match patterns.as_slice() {
            ["gt", count] => count.parse::<u32>().ok()?.checked_add(1)?,
            ["ge", count] => count.parse().ok()?,
            [range] => range.strip_suffix(':')?.parse().ok()?,
            _ => return None,
        };
        Some(Self {
            shown: format!("`{criterion}`"),
            counts,
            number,
            table: arguments.next().map(str::to_owned),
            least,
        })
    }
}

/// Why a rule that looks at a counter is no limit.
pub(super) enum NoLimit {
    /// A table does not say it, for this reason.
    LeftOut(String),
    /// It rejects every client.
    Everybody,
}

/// The rules of a section up to one that rejects by a counter.
pub(super) struct Before<'p> {
    pub(super) proxy: &'p Proxy,
    pub(super) backends: &'p Backends<'p>,
    /// How many rules stand before it.
    pub(super) rules: usize,
}

impl Before<'_> {
    /// The stick-table of a section. A frontend and a backend may have one name.
    fn table(&self, name: &str) -> Option<&Stick> {
        let is_own = name == self.proxy.name && self.proxy.stick.table.is_some();
        let section = match is_own {
            true => Some(self.proxy),
            false => self.backends.get(name).copied(),
        };
        let stick = section.map(|section| &section.stick);
        stick.filter(|stick| stick.table.is_some())
    }

    /// Adds the limit that this rule comes to. `Ok` has what differs, an error why it is left out.
    pub(super) fn limit(
        &self,
        counter: &Counter,
        frontend: &mut Frontend,
    ) -> Result<&'static str, NoLimit> {
        let is_wanted = |track: &Track| match counter.number {
            Some(of) => of == track.number,
            None => track.is_by_address && self.name(&track.table) == self.name(&counter.table),
        };
        let left_out = |why: String| Err(NoLimit::LeftOut(why));
        let mut rules = self.proxy.rules.iter().enumerate();
        let found = rules.find_map(|(at, rule)| match &rule.does {
            Does::Track(track) if is_wanted(track) => Some((at, track, rule)),
            _ => None,
        });
        let Some((at, track, rule)) = found else {
            return match counter.number {
                Some(_) => Ok(NEVER),
                None => left_out(format!(
                    "no `tcp-request … track-sc` of this section counts clients by their address for it; {REMEDY}"
                )),
            };
        };
        // By its number a client is known once it is counted, and by its address always.
        if counter.number.is_some() && at >= self.rules {
            return Ok(NEVER);
        }
        if !track.is_by_address {
            return left_out(format!(
                "`{}` does not count clients by their address, and what this line denies is served; {REMEDY}",
                rule.line.shown
            ));
        }
        if !rule.condition.is_empty() {
            return left_out(format!("only some clients are counted; {REMEDY}"));
        }
        let name = self.name(&track.table);
        if counter.table.is_some() && self.name(&counter.table) != name {
            return left_out(format!(
                "clients are counted in the stick-table of {name:?}, and this line looks at another one; {REMEDY}"
            ));
        }
        let Some(stick) = self.table(name) else {
            return left_out(format!(
                "there is no stick-table that is understood in {name:?}; {REMEDY}"
            ));
        };
        // A client that is counted before the rule counts itself.
        let most = match at < self.rules {
            true => counter.least.saturating_sub(1),
            false => counter.least,
        };
        let Some(most) = NonZeroU32::new(most) else {
            return Err(NoLimit::Everybody);
        };
        let lower = |known: &mut Option<NonZeroU32>| {
            *known = Some(known.map_or(most, |known| known.min(most)));
        };
        match counter.counts {
            Counts::AtOnce if stick.counts_connections => {
                lower(&mut frontend.max_connections_per_client);
                Ok(
                    "it is max-connections-per-client: each frontend counts for itself, and IPv6 clients by their /64",
                )
            }
            Counts::PerPeriod if stick.rate_period == Some(Duration::from_secs(1)) => {
                lower(&mut frontend.max_connection_rate_per_client);
                Ok(
                    "it is max-connection-rate-per-client: each frontend counts for itself, IPv6 clients by their /64, and what was rejected does not count",
                )
            }
            Counts::PerPeriod if stick.rate_period.is_some() => left_out(format!(
                "haproxy lets {most} connections in at once and then waits for its period, Ballast counts by the second; {REMEDY}"
            )),
            _ => left_out(format!(
                "the stick-table does not store what it looks at; {REMEDY}"
            )),
        }
    }

    /// The section whose table this is.
    fn name<'s>(&'s self, table: &'s Option<String>) -> &'s str {
        table
            .as_ref()
            .map_or(self.proxy.name.as_str(), String::as_str)
    }
}

/// Whether a criterion, as messages show it, asks for a counter of clients.
pub(super) fn is_counter(shown: &str) -> bool {
    let name = shown.trim_start_matches('`');
    let by_number = name.strip_prefix("sc").and_then(|rest| {
        rest.trim_start_matches(|letter: char| letter.is_ascii_digit())
            .strip_prefix('_')
    });
    by_number.is_some() || name.starts_with("src_") && !name.starts_with("src_port")
}

const NEVER: &str =
    "no line before it counts clients for it, so that it never rejects, in haproxy neither";

/// How clients are limited in a table.
pub(super) const REMEDY: &str = "limit each client by max-connections-per-client or max-connection-rate-per-client of the frontend";
