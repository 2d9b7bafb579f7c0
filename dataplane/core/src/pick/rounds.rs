//! Rounds of attempts: a client that has tried every endpoint of its service without success tries them again after a pause.
//!
//! An endpoint may refuse only for a moment: its container restarts, or it counts as ready a little before it listens. Within
//! one round no endpoint is tried twice; between two rounds there is a pause.

use std::sync::Arc;
use std::time::Duration;

use crate::endpoint::EndpointState;
use crate::moment::Moment;
use crate::service::{Endpoint, Service};

use super::Tried;

impl Service {
    /// The pause before the next round; `None` if there is no next round: before any attempt, when `retries` are used up, when
    /// no endpoint may be picked, or when the pause would not end before `deadline`, the end of the connect timeout.
    pub fn pause(&self, tried: &Tried, now: Moment, deadline: Moment) -> Option<Duration> {
        let doublings = 1_u32.checked_shl(tried.rounds).unwrap_or(u32::MAX);
        let pause = FIRST_PAUSE.saturating_mul(doublings).min(LONGEST_PAUSE);
        let goes_on = !tried.is_empty()
            && !self.is_spent(tried)
            && self.endpoints.iter().any(|one| self.may_try(one, tried))
            && now.after(pause) < deadline;
        goes_on.then_some(pause)
    }

    /// Whether a client has used up its `retries`.
    pub fn is_spent(&self, tried: &Tried) -> bool {
        tried.len() > usize::from(self.spec().retries)
    }

    fn may_try(&self, endpoint: &Endpoint, tried: &Tried) -> bool {
        endpoint.has_tier(self.try_all) && !tried.was_cut(&endpoint.live)
    }
}

impl Tried {
    /// Begins the next round: tried endpoints may be picked from `service` again. If `service`, which a new table may have
    /// changed, has an untried endpoint, the tried ones stay excluded, so that the untried one comes first. Ejected endpoints
    /// are excluded while another one is not ejected.
    pub fn begin_again(&mut self, service: &Service, now: Moment) {
        self.rounds += 1;
        let mut endpoints = service.endpoints.iter();
        if endpoints.any(|one| service.may_try(one, self) && !self.has(one)) {
            return;
        }
        self.endpoints.clone_from(&self.cut);
        let is_fine = |one: &&Endpoint| {
            one.is_eligible() && one.live.takes_newcomers() && !one.live.is_ejected(now)
        };
        let mut fine = service.endpoints.iter().filter(is_fine);
        if fine.any(|one| !self.was_cut(&one.live)) {
            let all = service.endpoints.iter();
            let ejected = all.filter(|one| one.live.is_ejected(now));
            self.endpoints
                .extend(ejected.map(|one| Arc::clone(&one.live)));
        }
    }

    /// Notes that the connections of `endpoint` were cut while this client dialed it: it is not tried again in any round.
    pub fn cut(&mut self, endpoint: &Arc<EndpointState>) {
        self.cut.push(Arc::clone(endpoint));
    }

    fn was_cut(&self, endpoint: &Arc<EndpointState>) -> bool {
        self.cut.iter().any(|cut| Arc::ptr_eq(cut, endpoint))
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
