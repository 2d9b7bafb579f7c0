//! Resolves one name of an ExternalName Service repeatedly. `debounce` starts one task for each wanted name.
//!
//! The name is resolved again after the time to live of its records, but at least `--dns-min-ttl` and at most [`LONGEST`] later, when
//! its turn comes. After a lookup that finds nothing, the last addresses stay.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::sleep;

use super::MOST_ADDRESSES;
use super::dns::{self, ResolveError, Resolved};
use super::lookups::AnswerSender;
use super::turns::Turns;

/// Sends the addresses of a name, sorted, and no more than [`MOST`] of them. At least one answer is sent, even if it is empty.
pub(super) async fn follow(
    name: String,
    shortest: Duration,
    turns: Turns,
    answers: AnswerSender<String, Vec<IpAddr>>,
) {
    if let Some(address) = literal(&name) {
        return answers.send(vec![address]).await;
    }
    let (name, turns) = (name.as_str(), &turns);
    let look_up = || async move {
        turns.turn(name).await;
        dns::look_up(name).await
    };
    follow_with(name, shortest, &answers, look_up).await;
}

async fn follow_with<F: Future<Output = Result<Resolved, ResolveError>>>(
    name: &str,
    shortest: Duration,
    answers: &AnswerSender<String, Vec<IpAddr>>,
    look_up: impl Fn() -> F,
) {
    let mut found = Resolved::default();
    let mut is_failing = false;
    let longest = LONGEST.max(shortest);
    let mut wait = shortest;
    loop {
        match look_up().await {
            Ok(new) => {
                if is_failing {
                    tracing::info!(name, "resolves again");
                }
                is_failing = false;
                wait = new.ttl.clamp(shortest, longest);
                found.update(new);
            }
            Err(error) => {
                if !is_failing {
                    tracing::warn!(name, %error, "does not resolve; its last addresses stay");
                }
                wait = match is_failing {
                    true => (wait * 2).min(longest),
                    false => shortest,
                };
                is_failing = true;
            }
        }
        let mut addresses = found.addresses();
        addresses.truncate(MOST);
        answers.send(addresses).await;
        sleep(wait).await;
    }
}

/// A name that is an address. An IPv6 address may have brackets.
fn literal(name: &str) -> Option<IpAddr> {
    let inner = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(name).parse().ok()
}

/// The most addresses that are kept of a name: one more than a Service may have, so that a decision knows that there are more.
const MOST: usize = MOST_ADDRESSES + 1;
const LONGEST: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use tokio::time::{Instant, timeout};

    use super::super::lookups::Lookups;
    use super::*;

    const SHORTEST: Duration = Duration::from_secs(1);

    #[test]
    fn an_address_is_no_name_to_resolve() {
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
    async fn a_name_is_resolved_again_and_keeps_its_last_addresses() {
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let found = |last, seconds| {
            Ok(Resolved::only(
                &[address(last)],
                Duration::from_secs(seconds),
            ))
        };
        // The fourth answer has a long time to live: the fifth is never asked for.
        let script = vec![
            Err(ResolveError::NoAddress),
            found(1, 0),
            Err(ResolveError::NoAddress),
            found(2, 600),
            found(3, 0),
        ];
        let asked = Arc::new(Mutex::new(Vec::new()));
        let times = Arc::clone(&asked);
        let mut lookups = Lookups::new();
        let wanted = BTreeSet::from(["db".to_owned()]);
        lookups.want(&wanted, move |name, answers| {
            let (script, times) = (script.clone(), Arc::clone(&times));
            async move {
                let script = Mutex::new(script.into_iter());
                let next = || {
                    times.lock().unwrap().push(Instant::now());
                    let next = script.lock().unwrap().next();
                    async { next.unwrap_or(Err(ResolveError::NoAddress)) }
                };
                follow_with(&name, SHORTEST, &answers, next).await;
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
