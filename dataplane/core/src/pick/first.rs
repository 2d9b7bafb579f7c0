//! `first`: in the order of the table, each filled up to its `max-connections` before the next one is used.

use crate::moment::Moment;
use crate::service::Service;

/// The first endpoint with room in the best tier.
pub(super) fn pick_fast(service: &Service, now: Moment) -> Option<usize> {
    (0..service.endpoints.len()).find(|index| service.is_open(*index, now))
}
