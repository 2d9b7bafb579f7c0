//! `affinity.client-ip`: a client keeps its endpoint as long as possible.
//!
//! | where it went | what happens |
//! |---|---|
//! | draining or weight 0 | it goes there all the same |
//! | left, disabled, closes a loop, fails its checks, or this client just tried it | it goes elsewhere, and that is remembered |
//! | full, or ejected | it goes elsewhere for this once |
//!
//! An ejection is short and may be caused by one lost packet, so it does not end a client's affinity. Where checks are ignored
//! because all fail, they do not move a client either.

use std::time::Duration;

use crate::affinity::{Affinity, RememberedEndpoint};
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
        let remembered = affinity.recall(client, keep, now);
        let Some((index, endpoint)) =
            remembered.and_then(|remembered| self.endpoint_at(remembered))
        else {
            return self.pick_and_remember(affinity, key, tried, keep, now, rng);
        };
        match self.availability(endpoint, tried, now) {
            Availability::Now => match self.take(index) {
                Some(mut picked) => {
                    picked.is_panic = !endpoint.live.is_passing() && tried.is_empty();
                    Ok(picked)
                }
                None => self.pick_any(key, tried, now, rng),
            },
            Availability::Later => self
                .pick_any(key, tried, now, rng)
                // Trying an endpoint that may be unreachable is better than refusing the client.
                .or_else(|why| self.take(index).ok_or(why)),
            Availability::Unusable => self.pick_and_remember(affinity, key, tried, keep, now, rng),
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

    /// The remembered endpoint, wherever the table has it now.
    fn endpoint_at(&self, remembered: RememberedEndpoint) -> Option<(usize, &Endpoint)> {
        let index = remembered.index as usize;
        let same_place = self
            .endpoints
            .get(index)
            .filter(|endpoint| endpoint.hash == remembered.endpoint);
        match same_place {
            Some(endpoint) => Some((index, endpoint)),
            None => self
                .endpoints
                .iter()
                .enumerate()
                .find(|(_, endpoint)| endpoint.hash == remembered.endpoint),
        }
    }

    fn availability(&self, endpoint: &Endpoint, tried: &Tried, now: Moment) -> Availability {
        if endpoint.is_out() || tried.has(endpoint) {
            return Availability::Unusable;
        }
        if !endpoint.live.is_passing() {
            let nobody_passes = || {
                self.best_tier(tried, now)
                    .is_some_and(|found| found.tier == Tier::Anybody)
            };
            return match endpoint.is_eligible() && nobody_passes() {
                true => Availability::Now,
                false => Availability::Unusable,
            };
        }
        match endpoint.live.is_ejected(now) {
            true => Availability::Later,
            false => Availability::Now,
        }
    }
}

/// Whether a client can use its remembered endpoint.
enum Availability {
    Now,
    Later,
    Unusable,
}
