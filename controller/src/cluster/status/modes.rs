//! Whether the API server keeps `ipMode`: by its version when this process begins to lead, and by what it does with a write.
//! One that drops it is asked for its version now and then, because it may be upgraded. Called by [`super`].

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;

use crate::clock;
use crate::request::patiently;

/// What is known.
#[derive(Debug)]
pub(super) struct ModeSearch {
    are_kept: bool,
    /// The version that was found to drop them.
    dropped_by: Option<String>,
    /// When to ask for the version; `None`: now.
    next: Option<Duration>,
}

impl Default for ModeSearch {
    fn default() -> Self {
        Self {
            are_kept: true,
            dropped_by: None,
            next: None,
        }
    }
}

impl ModeSearch {
    pub(super) fn are_kept(&self) -> bool {
        self.are_kept
    }

    /// This process leads no more: the next time it looks anew.
    pub(super) fn rest(&mut self) {
        self.next = None;
    }

    /// When there is something to do here.
    pub(super) fn next_look(&self) -> Option<Duration> {
        self.next.filter(|_| !self.are_kept)
    }

    /// Looks, if it is time to. Says whether that was the first look, or has found out something else than was known.
    pub(super) async fn look(&mut self, client: &Client) -> bool {
        let now = clock::now();
        let is_first = self.next.is_none();
        if self.next.is_some_and(|next| now < next || self.are_kept) {
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
        let keeps = match keeps_modes(version) {
            // This one was seen to drop them, whatever it says.
            Some(true) if !self.are_kept && is_known => false,
            Some(keeps) => keeps,
            None => return false,
        };
        if !keeps {
            self.dropped_by = name;
        }
        self.turn(keeps)
    }

    /// Takes note of what a write has shown. Says whether that is another thing than was known.
    pub(super) fn saw(&mut self, kept: Option<bool>) -> bool {
        let turned = kept.is_some_and(|kept| self.turn(kept));
        if turned && !self.are_kept {
            // So that it is known which version that was.
            self.next = Some(Duration::ZERO);
        }
        turned
    }

    fn turn(&mut self, keeps: bool) -> bool {
        if self.are_kept == keeps {
            return false;
        }
        self.are_kept = keeps;
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

/// Since 1.30 they are kept unless a feature gate says otherwise.
fn keeps_modes(version: &Info) -> Option<bool> {
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    };
    Some((number(&version.major)?, number(&version.minor)?) >= (1, 30))
}

const LOOK_EVERY: Duration = Duration::from_secs(600);

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
    fn the_version_says_whether_modes_are_kept() {
        for (minor, kept) in [
            ("29", false),
            ("29+", false),
            ("30", true),
            ("36", true),
            ("", true),
        ] {
            let mut modes = ModeSearch::default();
            modes.take(at(0), Some(&version(minor)));
            assert_eq!(modes.are_kept(), kept, "{minor}");
        }
        let mut modes = ModeSearch::default();
        modes.take(at(0), None);
        assert!(modes.are_kept(), "a server that does not say");
        assert_eq!(modes.next_look(), None, "there is nothing to wait for");
    }

    #[test]
    fn an_upgrade_is_noticed_when_it_is_asked_again() {
        let mut modes = ModeSearch::default();
        assert!(modes.take(at(0), Some(&version("29"))));
        assert_eq!(modes.next_look(), Some(LOOK_EVERY));
        assert!(!modes.take(at(600), Some(&version("29"))));
        assert!(!modes.take(at(1200), None), "it did not answer");
        assert!(!modes.are_kept());
        assert!(modes.take(at(1800), Some(&version("30"))));
        assert!(modes.are_kept());
    }

    #[test]
    fn what_a_write_shows_counts_more_than_the_version() {
        let mut modes = ModeSearch::default();
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
