//! Affinity: a client keeps its endpoint as long as possible. With `client-ip` the service stores the endpoint of each client,
//! with `cookie` the client sends the endpoint's value.
//!
//! | where it went | what happens |
//! |---|---|
//! | draining, stopping or weight 0 | it goes there all the same |
//! | left, disabled, closes a loop, fails its checks, or this client just tried it | it goes elsewhere, and that is remembered |
//! | full, or ejected | it goes elsewhere for this once |
//!
//! An ejection is short and may be caused by one lost packet, so it does not end a client's affinity. Where checks are ignored
//! because all fail, they do not move a client either.

use std::time::Duration;

use crate::affinity::cookie::{CookieValue, Cookies};
use crate::affinity::{Affinity, RememberedEndpoint};
use crate::http::Field;
use crate::moment::Moment;
use crate::rng::Rng;
use crate::service::{self, Endpoint, Service};

use super::tier::Tier;
use super::{Key, Picked, Tried, Unavailable};

impl Service {
    /// Picks the endpoint that is remembered for the client's address.
    pub(super) fn pick_by_address(
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
        let index = remembered.and_then(|remembered| self.index_of(remembered));
        self.pick_again(index, key, tried, now, rng)
            .unwrap_or_else(|| self.pick_and_remember(affinity, key, tried, keep, now, rng))
    }

    /// Picks the endpoint that the client's cookie tells.
    pub(super) fn pick_by_cookie(
        &self,
        key: &Key,
        tried: &Tried,
        cookies: &Cookies,
        now: Moment,
        rng: &mut Rng,
    ) -> Result<Picked, Unavailable> {
        let index = key.cookie.and_then(|cookie| cookies.find(cookie));
        self.pick_again(index, key, tried, now, rng)
            .unwrap_or_else(|| self.pick_any(key, tried, now, rng))
    }

    /// Whether the client has affinity to this service, and how. `fields` are those of the client's request. Renews nothing.
    pub(crate) fn affinity_of(
        &self,
        key: &Key,
        fields: &[Field<'_>],
        now: Moment,
    ) -> Option<ToService> {
        match self.affinity.as_ref()? {
            service::Affinity::ClientIp(keep) => {
                let affinity = self.state().affinity()?;
                let remembered = affinity.look_up(key.client().ip(), now)?;
                Some(ToService {
                    known: Known::ByAddress(remembered.last_use(*keep)),
                    endpoint: self.index_of(remembered),
                })
            }
            service::Affinity::Cookie(cookies) => {
                let cookie = CookieValue::find(fields, self.cookie_name()?)?;
                Some(ToService {
                    known: Known::ByCookie,
                    endpoint: Some(cookies.find(cookie)?),
                })
            }
        }
    }

    /// Whether the service can serve a client that has this affinity to it: by its endpoint, or by one that anybody may get.
    pub(crate) fn can_keep(&self, affinity: &ToService, tried: &Tried, now: Moment) -> bool {
        let endpoint = affinity
            .endpoint
            .and_then(|index| self.endpoints.get(index));
        let has_endpoint = endpoint.is_some_and(|endpoint| {
            let availability = self.availability(endpoint, tried, now);
            !matches!(availability, Availability::Unusable)
        });
        has_endpoint || self.is_usable(tried)
    }

    /// The affinity cookie that the client of `key` is given with the response of the picked endpoint; `None` if the service has
    /// none, or if the client keeps its cookie.
    #[must_use]
    pub fn new_cookie(&self, key: &Key, picked: &Picked) -> Option<CookieValue> {
        let value = self.cookie_value(picked.index)?;
        (key.cookie != Some(value) && !picked.is_for_once).then_some(value)
    }

    /// Whether the client whose affinity cookie has this value may get its endpoint; `None`: the service has none of that value.
    #[must_use]
    pub fn keeps_by_cookie(&self, cookie: CookieValue, now: Moment) -> Option<bool> {
        let Some(service::Affinity::Cookie(cookies)) = &self.affinity else {
            return None;
        };
        let endpoint = self.endpoints.get(cookies.find(cookie)?)?;
        let availability = self.availability(endpoint, &Tried::default(), now);
        Some(!matches!(availability, Availability::Unusable))
    }

    /// Picks the endpoint that the client had, at `index`, or another one for this once; `None` if its affinity has ended.
    fn pick_again(
        &self,
        index: Option<usize>,
        key: &Key,
        tried: &Tried,
        now: Moment,
        rng: &mut Rng,
    ) -> Option<Result<Picked, Unavailable>> {
        let index = index?;
        let endpoint = self.endpoints.get(index)?;
        let elsewhere = |rng| {
            let picked = self.pick_any(key, tried, now, rng);
            picked.map(|picked| Picked {
                is_for_once: picked.index != index,
                ..picked
            })
        };
        match self.availability(endpoint, tried, now) {
            Availability::Now => Some(match self.take(index) {
                Some(mut picked) => {
                    picked.is_panic = !endpoint.live.is_passing() && tried.is_empty();
                    Ok(picked)
                }
                None => elsewhere(rng),
            }),
            // Trying an endpoint that may be unreachable is better than refusing the client.
            Availability::Later => Some(elsewhere(rng).or_else(|why| self.take(index).ok_or(why))),
            Availability::Unusable => None,
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

    /// The index of the remembered endpoint, wherever the table has it now.
    fn index_of(&self, remembered: RememberedEndpoint) -> Option<usize> {
        let index = remembered.index as usize;
        let is_it = |endpoint: &Endpoint| endpoint.hash == remembered.endpoint;
        if self.endpoints.get(index).is_some_and(is_it) {
            Some(index)
        } else {
            self.endpoints.iter().position(is_it)
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
            return if endpoint.is_eligible() && nobody_passes() {
                Availability::Now
            } else {
                Availability::Unusable
            };
        }
        if endpoint.live.is_ejected(now) {
            Availability::Later
        } else {
            Availability::Now
        }
    }
}

/// A client's affinity to a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToService {
    pub(crate) known: Known,
    /// The index of its endpoint, if the service still has that.
    endpoint: Option<usize>,
}

/// How a client's affinity is known. The greater one counts where a client has affinity to several services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Known {
    /// The service remembers its address, which used it last at this moment.
    ByAddress(Moment),
    /// Its cookie names an endpoint of the service.
    ByCookie,
}

/// Whether a client can use its remembered endpoint.
enum Availability {
    Now,
    Later,
    Unusable,
}
