//! Resolves one name of an ExternalName Service again and again. Started by `debounce` for each that is wanted.
//!
//! It is asked again when its records' time to live is over, at least every [`LONGEST`] and at most every [`SHORTEST`].
//! A lookup that finds nothing keeps the addresses that were found before.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::sleep;

use super::dns::{self, Found, NotFound};
use super::lookups::Report;

/// Reports the addresses of a name, in order; at least one report comes, be it that nothing was found.
pub(super) async fn follow(name: String, report: Report<String, Vec<IpAddr>>) {
    if let Some(address) = literal(&name) {
        return report.say(vec![address]).await;
    }
    follow_with(&name, &report, || dns::look_up(&name)).await;
}

async fn follow_with<F: Future<Output = Result<Found, NotFound>>>(
    name: &str,
    report: &Report<String, Vec<IpAddr>>,
    look_up: impl Fn() -> F,
) {
    let mut found = Found::default();
    let mut is_lost = false;
    let mut wait = SHORTEST;
    loop {
        match look_up().await {
            Ok(new) => {
                if is_lost {
                    tracing::info!(name, "resolves again");
                }
                is_lost = false;
                wait = new.ttl.clamp(SHORTEST, LONGEST);
                found.update(new);
            }
            Err(error) => {
                if !is_lost {
                    tracing::warn!(name, %error, "does not resolve; its last addresses stay");
                }
                wait = match is_lost {
                    true => (wait * 2).min(LONGEST),
                    false => SHORTEST,
                };
                is_lost = true;
            }
        }
        report.say(found.addresses()).await;
        sleep(wait).await;
    }
}

/// An address is its own name; IPv6 ones may be bracketed.
fn literal(name: &str) -> Option<IpAddr> {
    let inner = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(name).parse().ok()
}

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use tokio::time::{Instant, timeout};

    use super::super::lookups::Lookups;
    use super::*;

    #[test]
    fn an_address_is_its_own_name() {
        let cases = [
            ("192.0.2.7", Some("192.0.2.7")),
            ("2001:db8::7", Some("2001:db8::7")),
            ("[2001:db8::7]", Some("2001:db8::7")),
            ("[192.0.2.7", None),
            ("192.0.2.7.example", None),
        ];
        for (name, expected) in cases {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(literal(name), expected, "{name}");
        }
    }

    #[tokio::test]
    async fn a_name_is_asked_for_again_and_keeps_what_it_had() {
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let found = |last, seconds| Ok(Found::only(&[address(last)], Duration::from_secs(seconds)));
        // The last one holds for ever: what would come then is not asked for.
        let script = vec![
            Err(NotFound::Nowhere),
            found(1, 0),
            Err(NotFound::Nowhere),
            found(2, 600),
            found(3, 0),
        ];
        let asked = Arc::new(Mutex::new(Vec::new()));
        let times = Arc::clone(&asked);
        let mut lookups = Lookups::new();
        let wanted = BTreeSet::from(["db".to_owned()]);
        lookups.want(&wanted, move |name, report| {
            let (script, times) = (script.clone(), Arc::clone(&times));
            async move {
                let script = Mutex::new(script.into_iter());
                let next = || {
                    times.lock().unwrap().push(Instant::now());
                    let next = script.lock().unwrap().next();
                    async { next.unwrap_or(Err(NotFound::Nowhere)) }
                };
                follow_with(&name, &report, next).await;
            }
        });
        let mut seen = Vec::new();
        for _ in 0..3 {
            let changed = timeout(Duration::from_secs(30), lookups.changed()).await;
            changed.expect("another answer");
            let answers: Vec<_> = lookups
                .answers()
                .flat_map(|(_, found)| found.clone())
                .collect();
            seen.push(answers);
        }
        assert_eq!(seen, [vec![], vec![address(1)], vec![address(2)]]);
        let times = asked.lock().unwrap().clone();
        assert_eq!(times.len(), 4);
        for pair in times.windows(2) {
            assert!(pair[1] - pair[0] >= SHORTEST);
        }
    }
}
