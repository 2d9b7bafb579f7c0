//! What is shown of active checks: the one place where health enters the stats.

use ballast_core::health::Outcome;
use ballast_core::moment::whole_millis;
use ballast_core::service::Endpoint;

/// The checks of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The last result in haproxy's word: `L4OK`, `L7TOUT`; empty before the first one.
    pub result: &'static str,
    /// Whether one runs now.
    pub is_running: bool,
    /// The HTTP status of the last answer.
    pub code: Option<u16>,
    /// How long the last one took, in milliseconds.
    pub took: u64,
    /// What the last result means.
    pub meaning: &'static str,
    /// What the endpoint or the system said.
    pub said: Box<str>,
    /// Passed checks in a row that make it up.
    pub rise: u8,
    /// Failed checks in a row that make it down.
    pub fall: u8,
    /// From 0 to rise + fall - 1; up from `rise` on.
    pub health: u8,
}

impl Check {
    /// The checks of `endpoint`, if there are any.
    pub(super) fn of(endpoint: &Endpoint) -> Option<Box<Self>> {
        let monitor = endpoint.live().monitor()?;
        let last = monitor.last();
        let outcome = last.map(|seen| seen.outcome);
        Some(Box::new(Self {
            result: outcome.map_or("", Outcome::word),
            is_running: monitor.is_running(),
            code: outcome.and_then(Outcome::code),
            took: last.map_or(0, |seen| whole_millis(seen.took)),
            meaning: outcome.map_or("", Outcome::description),
            said: outcome.and_then(Outcome::info).unwrap_or_default().into(),
            rise: monitor.rise_at(),
            fall: monitor.fall_at(),
            health: monitor.points(),
        }))
    }

    /// Whether it is up, as far as checks say.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.health >= self.rise
    }

    /// How many checks speak for a change, and how many it takes; `None` where nothing is changing.
    #[must_use]
    pub fn progress(&self) -> Option<(u8, u8)> {
        let best = self.rise.saturating_add(self.fall).saturating_sub(1);
        match self.is_up() {
            true if self.health < best => {
                Some((self.health.saturating_sub(self.rise) + 1, self.fall))
            }
            false if self.health > 0 => Some((self.health, self.rise)),
            true | false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_counted_as_haproxy_counts_it() {
        let progress = |health| {
            let check = Check {
                result: "L4OK",
                is_running: false,
                code: None,
                took: 0,
                meaning: "",
                said: Box::default(),
                rise: 2,
                fall: 3,
                health,
            };
            (check.is_up(), check.progress())
        };
        assert_eq!(progress(0), (false, None));
        assert_eq!(progress(1), (false, Some((1, 2))));
        assert_eq!(progress(2), (true, Some((1, 3))));
        assert_eq!(progress(3), (true, Some((2, 3))));
        assert_eq!(progress(4), (true, None));
    }
}
