//! Resolves one name of an ExternalName Service again and again. Started by `lookout` for each that is wanted.
//!
//! It is asked again when its records' time to live is over, at least every [`LONGEST`] and at most every [`SHORTEST`].
//! A lookup that finds nothing keeps the addresses that were found before.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::sleep;

use super::dns;
use super::lookups::Report;

/// Reports the addresses of a name, in order; at least one report comes, be it that nothing was found.
pub(super) async fn follow(name: String, report: Report<String, Vec<IpAddr>>) {
    if let Some(address) = literal(&name) {
        return report.say(vec![address]).await;
    }
    let mut found = dns::Found::default();
    let mut is_lost = false;
    let mut wait = SHORTEST;
    loop {
        match dns::look_up(&name).await {
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
