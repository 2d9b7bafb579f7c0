//! Whether the API server has a kind, and lets it be read. [`Look`] judges its answers, and [`follow_if_there`] asks for them.

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::super::object::{Parsed, WatchedKind};
use super::super::reflector::{self, Event, paced};
use super::Change;
use crate::request::patiently;

/// Why a kind cannot be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The API server does not have it. Only then there are no objects of it.
    Absent,
    /// It may not be read.
    Denied,
    /// The API server fails for it, with this code.
    Failing(u16),
}

impl Lack {
    /// `is_unlisted`: whether the API server's list of kinds is without this one.
    const fn of(code: u16, is_unlisted: bool) -> Self {
        match code {
            404 => Self::Absent,
            // What the server does not have it denies as well.
            DENIED if is_unlisted => Self::Absent,
            DENIED => Self::Denied,
            code => Self::Failing(code),
        }
    }

    pub(super) const fn code(self) -> u16 {
        match self {
            Self::Absent => 404,
            Self::Denied => DENIED,
            Self::Failing(code) => code,
        }
    }

    fn is_like(self, other: Self) -> bool {
        discriminant(&self) == discriminant(&other)
    }
}

/// The answers about one kind since it could be listed.
#[derive(Default)]
struct Look {
    /// What the observer was told last.
    told: Option<Lack>,
    /// The last answer, and since when all answers are like it.
    last: Option<(Lack, Instant)>,
}

impl Look {
    /// Takes an answer. Returns whether it is to be told, and how long the next look waits.
    fn answered(&mut self, lack: Lack, now: Instant) -> (bool, Duration) {
        let like_the_last = self.last.filter(|(last, _)| last.is_like(lack));
        let since = like_the_last.map_or(now, |(_, since)| since);
        self.last = Some((lack, since));
        let is_told = self.told.is_some_and(|told| told.is_like(lack));
        let lasts = match lack {
            Lack::Absent if self.told.is_none() => Duration::ZERO,
            Lack::Denied => DENIED_FOR,
            Lack::Absent | Lack::Failing(_) => PATIENCE,
        };
        let is_news = !is_told && now.duration_since(since) >= lasts;
        if is_news {
            self.told = Some(lack);
        }
        let pause = match lack {
            _ if !is_told && !is_news => SOON,
            Lack::Absent if now.duration_since(since) < SETTLED => LOOK_SOON,
            Lack::Absent => LOOK_AGAIN,
            Lack::Denied | Lack::Failing(_) => LOOK_WHILE_SERVICES_WAIT,
        };
        (is_news, pause)
    }

    /// The API server did not answer: it is away, for the Services too.
    fn unanswered(&mut self) -> Duration {
        self.last = None;
        SOON
    }
}

/// Follows the objects of a kind whenever the API server has it and lets it be read.
pub(super) async fn follow_if_there<T: WatchedKind>(client: Client, events: mpsc::Sender<Change>)
where
    Change: From<Event<T>>,
{
    let api: Api<Parsed<T>> = Api::all(paced(&client));
    while !events.is_closed() {
        if until_there(&api, &events).await {
            tracing::info!(kind = T::NAME, "is there now");
        }
        reflector::follow(api.clone(), None, None, events.clone()).await;
    }
}

/// Waits until the API server has the kind and lets it be read. Returns whether it was told that it does not.
async fn until_there<T: WatchedKind>(api: &Api<Parsed<T>>, events: &mpsc::Sender<Change>) -> bool
where
    Change: From<Event<T>>,
{
    let mut look = Look::default();
    while !events.is_closed() {
        let one = ListParams::default().limit(1);
        let pause = match patiently(api.list_metadata(&one)).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) => {
                // Every API server has the kinds of Kubernetes itself, which are not in the lists that are asked for.
                let may_go = status.code == DENIED && T::GOES_AFTER.is_some();
                let is_unlisted = may_go && reflector::is_unlisted(api).await;
                let lack = Lack::of(status.code, is_unlisted);
                let (is_news, pause) = look.answered(lack, Instant::now());
                if is_news {
                    // After an error, the task is about to end.
                    drop(events.send(missing::<T>(lack)).await);
                }
                pause
            }
            Err(_) => look.unanswered(),
        };
        sleep(pause).await;
    }
    look.told.is_some()
}

/// The change by which a kind cannot be listed. What was seen of a kind that is there stays.
pub(super) fn missing<T: WatchedKind>(lack: Lack) -> Change
where
    Change: From<Event<T>>,
{
    let none = (lack == Lack::Absent).then(|| {
        let none = Event::<T>::Listed(None, BTreeSet::new(), 0);
        Box::new(Change::from(none))
    });
    Change::Missing {
        kind: T::NAME,
        lack,
        none,
    }
}

/// The pause before a kind is asked for again, while the API server is away, or an answer is not yet told.
const SOON: Duration = Duration::from_secs(1);
/// A kind for which the API server fails for so long counts as unreadable: Services with an address need not wait for it. A kind that
/// was read, or could not be, is absent after so long; [`WatchedKind::GOES_AFTER`] is as long.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// A kind that the API server has and denies for so long may not be read. A server that has just begun denies for a moment what it
/// grants.
const DENIED_FOR: Duration = Duration::from_secs(10);
/// The pause before an absent kind is looked for, for this time: a server that has just begun may not have all kinds yet.
const LOOK_SOON: Duration = Duration::from_secs(2);
const SETTLED: Duration = Duration::from_secs(6);
/// The later pauses: nothing else is read at rest.
const LOOK_AGAIN: Duration = Duration::from_secs(120);
/// The pause before a kind is looked for that cannot be read.
const LOOK_WHILE_SERVICES_WAIT: Duration = Duration::from_secs(15);
/// The API server's code for a missing right.
pub(super) const DENIED: u16 = 403;

#[cfg(test)]
mod tests {
    use super::*;

    /// What a look reports for answers of the API server at these seconds; code 0 is a request without an answer.
    fn told(answers: &[(u64, u16)]) -> Vec<(u64, u16)> {
        let (start, mut look) = (Instant::now(), Look::default());
        let mut told = Vec::new();
        for (second, code) in answers {
            if *code == 0 {
                look.unanswered();
                continue;
            }
            let lack = Lack::of(*code, false);
            let (is_news, pause) = look.answered(lack, start + Duration::from_secs(*second));
            assert!(pause >= SOON);
            told.extend(is_news.then_some((*second, *code)));
        }
        told
    }

    #[test]
    fn only_what_lasts_is_told_and_no_failure_says_that_a_kind_is_absent() {
        for (answers, expected) in [
            (&[(0, 404)][..], &[(0, 404)][..]),
            // One failure after a long absence, or one refusal, is no news.
            (&[(0, 404), (120, 503)], &[(0, 404)]),
            (&[(0, 404), (120, 403)], &[(0, 404)]),
            (&[(0, 404), (120, 500), (130, 404)], &[(0, 404)]),
            (&[(0, 404), (120, 429), (179, 503)], &[(0, 404)]),
            (
                &[(0, 404), (120, 429), (150, 500), (180, 503)],
                &[(0, 404), (180, 503)],
            ),
            (&[(0, 503), (59, 500)], &[]),
            (&[(0, 503), (60, 503), (61, 500)], &[(60, 503)]),
            // Time without an answer is none of the kind's.
            (&[(0, 503), (30, 0), (61, 503), (120, 503)], &[]),
            (&[(0, 403), (9, 403)], &[]),
            (&[(0, 403), (10, 403), (25, 403)], &[(10, 403)]),
            // A server that begins may not know the kind at first.
            (&[(0, 503), (60, 503), (75, 404), (90, 503)], &[(60, 503)]),
            (
                &[(0, 503), (60, 503), (75, 404), (135, 404)],
                &[(60, 503), (135, 404)],
            ),
            (
                &[(0, 403), (10, 403), (20, 404), (80, 404)],
                &[(10, 403), (80, 404)],
            ),
        ] {
            assert_eq!(told(answers), expected, "{answers:?}");
        }
    }

    #[test]
    fn what_the_server_does_not_list_is_absent_also_where_it_is_denied() {
        for (code, is_unlisted, lack) in [
            (403, false, Lack::Denied),
            (403, true, Lack::Absent),
            (404, false, Lack::Absent),
            (429, false, Lack::Failing(429)),
            (503, true, Lack::Failing(503)),
        ] {
            assert_eq!(Lack::of(code, is_unlisted), lack);
            assert!(code == lack.code() || is_unlisted);
        }
    }
}
