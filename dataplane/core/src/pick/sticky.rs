//! `affinity.client-ip`: a client goes where it went before, as long as that can be.
//!
//! | where it went | what happens |
//! |---|---|
//! | draining or weight 0 | it goes there all the same |
//! | left, disabled, closes a loop, fails its checks, or this client just tried it | it goes elsewhere, and that is remembered |
//! | full, or ejected | it goes elsewhere for this once |
//!
//! An ejection is short and may be one lost packet's doing: a session is worth more than that. Where checks are ignored
//! because all fail, they do not move a client either.

use std::time::Duration;

use crate::affinity::{Affinity, Place};
use crate::moment::Moment;
use crate::rng::Rng;
use crate::service::{Endpoint, Service};

use super::tier::Tier;
use super::{Key, Picked, Tried, Unavailable};

impl Service {
    pub(super) fn pick_sticky(
        &self,
        key: &Key,
        tried: &Tried,
        keep: Duration,
        now: Moment,
        rng: &mut Rng,
    ) -> Result<Picked, Unavailable> {
        let affinity = self.state().affinity_or_new(rng);
        let client = key.client().ip();
        let place = affinity.recall(client, keep, now);
        let Some((index, endpoint)) = place.and_then(|place| self.endpoint_at(place)) else {
            return self.pick_and_remember(affinity, key, tried, keep, now, rng);
        };
        match self.reach(endpoint, tried, now) {
            Reach::Now => match self.take(index) {
                Some(mut picked) => {
                    picked.is_panic = !endpoint.live.is_passing() && tried.is_empty();
                    Ok(picked)
                }
                None => self.pick_any(key, tried, now, rng),
            },
            Reach::Later => self
                .pick_any(key, tried, now, rng)
                // Better a try at one that may be silent than none at all.
                .or_else(|why| self.take(index).ok_or(why)),
            Reach::Never => self.pick_and_remember(affinity, key, tried, keep, now, rng),
        }
    }

    fn pick_and_remember(
        &self,
        affinity: &Affinity,
        key: &Key,
        tried: &Tried,
        keep: Duration,
        now: Moment,
        rng: &mut Rng,
    ) -> Result<Picked, Unavailable> {
        let picked = self.pick_any(key, tried, now, rng)?;
        if let Some(endpoint) = self.endpoints.get(picked.index) {
            let index = u32::try_from(picked.index).unwrap_or(u32::MAX);
            affinity.remember(key.client().ip(), endpoint.hash, index, keep, now);
        }
        Ok(picked)
    }

    /// The endpoint that was remembered, wherever the table has it now.
    fn endpoint_at(&self, place: Place) -> Option<(usize, &Endpoint)> {
        let index = place.index as usize;
        let same_place = self
            .endpoints
            .get(index)
            .filter(|endpoint| endpoint.hash == place.endpoint);
        match same_place {
            Some(endpoint) => Some((index, endpoint)),
            None => self
                .endpoints
                .iter()
                .enumerate()
                .find(|(_, endpoint)| endpoint.hash == place.endpoint),
        }
    }

    fn reach(&self, endpoint: &Endpoint, tried: &Tried, now: Moment) -> Reach {
        if endpoint.is_out() || tried.has(endpoint) {
            return Reach::Never;
        }
        if !endpoint.live.is_passing() {
            let nobody_passes = || {
                self.best_tier(tried, now)
                    .is_some_and(|found| found.tier == Tier::Anybody)
            };
            return match endpoint.is_eligible() && nobody_passes() {
                true => Reach::Now,
                false => Reach::Never,
            };
        }
        match endpoint.live.is_ejected(now) {
            true => Reach::Later,
            false => Reach::Now,
        }
    }
}

/// Whether a client can go where it went before.
enum Reach {
    Now,
    Later,
    Never,
}
