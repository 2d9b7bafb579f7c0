//! A histogram of latencies with logarithmic buckets, as HDR histograms have them: 128 buckets for each power of two, so
//! that a value is off by at most 0.8 %. The client owns one; it never allocates after it was made.

use std::time::Duration;

/// Counts of latencies, in nanoseconds.
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            total: 0,
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, latency: Duration) {
        if let Some(count) = self.counts.get_mut(bucket(nanos(latency))) {
            *count += 1;
            self.total += 1;
        }
    }

    /// The latency in microseconds under which `share` (0 to 1) of all recorded ones are.
    pub(crate) fn quantile_us(&self, share: f64) -> f64 {
        let wanted = share * self.total as f64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen as f64 >= wanted {
                return middle_of(index) / 1e3;
            }
        }
        0.0
    }
}

/// A duration in nanoseconds; 584 years are enough.
pub(crate) fn nanos(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(duration.subsec_nanos()))
}

fn bucket(value: u64) -> usize {
    let Ok(value) = usize::try_from(value) else {
        return BUCKETS - 1;
    };
    if value < PER_OCTAVE {
        return value;
    }
    let shift = value.ilog2() - OCTAVE_BITS;
    (shift as usize + 1) * PER_OCTAVE + (value >> shift) - PER_OCTAVE
}

fn middle_of(bucket: usize) -> f64 {
    if bucket < PER_OCTAVE {
        return bucket as f64;
    }
    let width = (1u64 << (bucket / PER_OCTAVE - 1)) as f64;
    let steps = (PER_OCTAVE + bucket % PER_OCTAVE) as f64;
    (steps + 0.5) * width
}

const OCTAVE_BITS: u32 = 7;
const PER_OCTAVE: usize = 1 << OCTAVE_BITS;
const BUCKETS: usize = (u64::BITS - OCTAVE_BITS + 1) as usize * PER_OCTAVE;
