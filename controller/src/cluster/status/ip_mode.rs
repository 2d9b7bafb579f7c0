//! Whether the API server keeps `ipMode`: found out from its version when this process begins to lead, and from its answers to
//! writes. A server that drops the field is asked for its version every minute, because it may be upgraded. Called by
//! [`super`].

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;

use crate::clock;
use crate::request::patiently;

/// The knowledge about the API server.
#[derive(Debug)]
pub(super) struct IpModeSearch {
    /// Whether the API server keeps the field.
    is_kept: bool,
    /// The version that was found to drop the field.
    dropped_by: Option<String>,
    /// The time at which the server is asked for its version; `None`: now.
    next: Option<Duration>,
}

impl Default for IpModeSearch {
    fn default() -> Self {
        Self {
            is_kept: true,
            dropped_by: None,
            next: None,
        }
    }
}

impl IpModeSearch {
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// This process leads no more. When it leads again it asks again.
    pub(super) fn rest(&mut self) {
        self.next = None;
    }

    /// The time at which [`Self::look`] has something to do.
    pub(super) fn next_look(&self) -> Option<Duration> {
        self.next.filter(|_| !self.is_kept)
    }

    /// Asks for the version, if it is time to. Says whether that was the first time, or the answer changed anything.
    pub(super) async fn look(&mut self, client: &Client) -> bool {
        let now = clock::now();
        let is_first = self.next.is_none();
        if self.next.is_some_and(|next| now < next || self.is_kept) {
            return false;
        }
        let version = patiently(client.apiserver_version()).await;
        self.take(now, version.ok().as_ref()) || is_first
    }

    /// Takes note of a version.
    fn take(&mut self, now: Duration, version: Option<&Info>) -> bool {
        self.next = Some(now + LOOK_EVERY);
        let Some(version) = version else { return false };
        let name = Some(version.git_version.clone());
        let is_known = self.dropped_by.is_none() || self.dropped_by == name;
        let keeps = match keeps_ip_mode(version) {
            // This version was seen to drop the field.
            Some(true) if !self.is_kept && is_known => false,
            Some(keeps) => keeps,
            None => return false,
        };
        if !keeps {
            self.dropped_by = name;
        }
        self.turn(keeps)
    }

    /// Takes note of the answer to a write. Says whether it changed anything.
    pub(super) fn saw(&mut self, kept: Option<bool>) -> bool {
        let turned = kept.is_some_and(|kept| self.turn(kept));
        if turned && !self.is_kept {
            // The version of that server is not known yet.
            self.next = Some(Duration::ZERO);
        }
        turned
    }

    fn turn(&mut self, keeps: bool) -> bool {
        if self.is_kept == keeps {
            return false;
        }
        self.is_kept = keeps;
        match keeps {
            true => {
                self.dropped_by = None;
                tracing::info!("the API server keeps ipMode now");
            }
            false => tracing::warn!("the API server drops ipMode: it is older than 1.30"),
        }
        true
    }
}

/// Since 1.30 the field is kept unless a feature gate says otherwise.
fn keeps_ip_mode(version: &Info) -> Option<bool> {
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    };
    Some((number(&version.major)?, number(&version.minor)?) >= (1, 30))
}

const LOOK_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn version(minor: &str) -> Info {
        Info {
            major: "1".to_owned(),
            minor: minor.to_owned(),
            git_version: format!("v1.{minor}.0"),
            ..Info::default()
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_version_says_whether_modes_is_kept() {
        for (minor, kept) in [
            ("29", false),
            ("29+", false),
            ("30", true),
            ("36", true),
            ("", true),
        ] {
            let mut modes = IpModeSearch::default();
            modes.take(at(0), Some(&version(minor)));
            assert_eq!(modes.is_kept(), kept, "{minor}");
        }
        let mut modes = IpModeSearch::default();
        modes.take(at(0), None);
        assert!(modes.is_kept(), "a server that does not say");
        assert_eq!(modes.next_look(), None, "there is nothing to wait for");
    }

    #[test]
    fn an_upgrade_is_noticed_when_it_is_asked_again() {
        let mut modes = IpModeSearch::default();
        assert!(modes.take(at(0), Some(&version("29"))));
        assert_eq!(modes.next_look(), Some(LOOK_EVERY));
        assert!(!modes.take(at(600), Some(&version("29"))));
        assert!(!modes.take(at(1200), None), "it did not answer");
        assert!(!modes.is_kept());
        assert!(modes.take(at(1800), Some(&version("30"))));
        assert!(modes.is_kept());
    }

    #[test]
    fn what_a_write_shows_counts_more_than_the_version() {
        let mut modes = IpModeSearch::default();
        assert!(!modes.take(at(0), Some(&version("30"))));
        assert!(modes.saw(Some(false)));
        assert!(!modes.saw(None));
        // Asked at once, to know who it was, and then now and then.
        assert_eq!(modes.next_look(), Some(at(0)));
        for seconds in [1, 601, 1201] {
            assert!(!modes.take(at(seconds), Some(&version("30"))));
            assert_eq!(modes.next_look(), Some(at(seconds) + LOOK_EVERY));
        }
        assert!(modes.take(at(1801), Some(&version("31"))));
        assert!(modes.saw(Some(false)));
        assert!(
            modes.saw(Some(true)),
            "and one that keeps them is believed at once"
        );
    }
}
