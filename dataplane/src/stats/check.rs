//! What is shown of active checks: the one place where health enters the stats.

use ballast_core::health::Outcome;
use ballast_core::moment::whole_millis;
use ballast_core::service::Endpoint;

/// haproxy's words for results of checks, at their numbers. Those before `HANA` are of endpoints without a result; a dash is a
/// number without a word.
pub(crate) const RESULTS: [&str; 21] = [
    "UNK", "INI", "START", "-", "HANA", "SOCKERR", "L4OK", "L4TOUT", "L4CON", "L6OK", "L6TOUT",
    "L6RSP", "L7TOUT", "L7RSP", "-", "L7OK", "L7OKC", "L7STS", "PROCERR", "PROCTOUT", "PROCOK",
];

/// The words of endpoints with a result.
pub(super) fn results() -> impl Iterator<Item = &'static str> {
    let words = RESULTS.into_iter().skip_while(|word| *word != "HANA");
    words.filter(|word| *word != "-")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckStats {
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
    /// Whether it is up, as far as checks say.
    pub is_up: bool,
    /// How many checks speak for a change, and how many it takes; `None` where nothing is changing.
    pub progress: Option<(u8, u8)>,
}

impl CheckStats {
    /// The checks of `endpoint`, if there are any.
    pub(super) fn of(endpoint: &Endpoint) -> Option<Box<Self>> {
        let monitor = endpoint.live().monitor()?;
        let last = monitor.last;
        let outcome = last.map(|seen| seen.outcome);
        Some(Box::new(Self {
            result: outcome.map_or("", Outcome::word),
            is_running: monitor.is_running,
            code: outcome.and_then(Outcome::code),
            took: last.map_or(0, |seen| whole_millis(seen.took)),
            meaning: outcome.map_or("", Outcome::description),
            said: outcome.and_then(Outcome::info).unwrap_or_default().into(),
            rise: monitor.rise,
            fall: monitor.fall,
            health: monitor.points,
            is_up: monitor.is_up(),
            progress: monitor.is_changing().then(|| monitor.reached()),
        }))
    }
}
