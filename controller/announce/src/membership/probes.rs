//! How long members take to answer a probe.

use std::time::Duration;

use foca::{Header, Message};

use super::Identity;

/// Probes that were answered, by the time that the answer took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// The probes that took at most as long as [`Probes::BOUNDS`] has it; each is counted once.
    pub counts: [u64; Self::BOUNDS.len()],
    /// All that were answered.
    pub count: u64,
    /// The time that all of them took.
    pub sum: Duration,
    /// The question whose answer is awaited: whom, its number and when. A member asks one at a time.
    asked: Option<(String, u64, Duration)>,
}

impl Probes {
    /// The buckets of the metric, in milliseconds. What takes longer than the last one is asked again through others.
    pub const BOUNDS: [u64; 6] = [1, 2, 5, 10, 25, 50];

    /// A message of foca leaves.
    pub(super) fn sent(&mut self, now: Duration, message: &[u8]) {
        if let Some((to, Message::Ping(number))) = header(message).map(|it| (it.dst, it.message)) {
            self.asked = Some((to.name, u64::from(number), now));
        }
    }

    /// A message of foca came.
    pub(super) fn received(&mut self, now: Duration, message: &[u8]) {
        let Some((from, Message::Ack(number))) = header(message).map(|it| (it.src, it.message))
        else {
            return;
        };
        let of = |(name, asked, _): &mut (String, u64, Duration)| {
            *name == from.name && *asked == u64::from(number)
        };
        let Some((_, _, at)) = self.asked.take_if(of) else {
            return;
        };
        let took = now.saturating_sub(at);
        self.count += 1;
        self.sum += took;
        let within = |millis: &u64| took <= Duration::from_millis(*millis);
        let bucket = Self::BOUNDS.iter().position(within);
        if let Some(count) = bucket.and_then(|bucket| self.counts.get_mut(bucket)) {
            *count += 1;
        }
    }
}

fn header(message: &[u8]) -> Option<Header<Identity>> {
    let (header, _) = postcard::take_from_bytes(message).ok()?;
    Some(header)
}
