//! What was found, and whether it is what is promised.

use std::time::Duration;

use crate::clients::{Kind, Tallies};
use crate::proxy::Usage;

/// What the Ballast that serves used, over time.
#[derive(Default)]
pub(crate) struct Samples(Vec<(Duration, Usage)>);

impl Samples {
    pub(crate) fn take(&mut self, at: Duration, usage: Usage) {
        self.0.push((at, usage));
    }

    /// The median of the second quarter, of the last quarter, and the slope of an hour by least squares since the first quarter.
    fn course(&self, of: impl Fn(&Usage) -> f64) -> (f64, f64, f64) {
        let quarter = self.0.len() / 4;
        let values: Vec<(f64, f64)> = self
            .0
            .iter()
            .skip(quarter)
            .map(|(at, usage)| (at.as_secs_f64() / 3_600.0, of(usage)))
            .collect();
        let count = values.len().max(1) as f64;
        let mean_of = |part: fn(&(f64, f64)) -> f64| values.iter().map(part).sum::<f64>() / count;
        let (at, mean) = (mean_of(|value| value.0), mean_of(|value| value.1));
        let over = |part: fn(f64, f64) -> f64| {
            let parts = values
                .iter()
                .map(|value| part(value.0 - at, value.1 - mean));
            parts.sum::<f64>()
        };
        let spread = over(|time, _| time * time).max(f64::MIN_POSITIVE);
        let slope = over(|time, value| time * value) / spread;
        let late = values.len().saturating_sub(quarter);
        let median = |part: &[(f64, f64)]| {
            let mut sorted: Vec<f64> = part.iter().map(|value| value.1).collect();
            sorted.sort_by(f64::total_cmp);
            sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
        };
        let early = values.get(..quarter).unwrap_or(&values);
        let late = values.get(late..).unwrap_or(&values);
        (median(early), median(late), slope)
    }
}

/// Prints the report. Whether all that is promised was held.
pub(crate) fn print(
    tallies: &Tallies,
    samples: &Samples,
    swaps: u64,
    left: &[String],
    complaints: &[String],
) -> bool {
    println!(
        "\n{:<22} {:>10} {:>8} {:>9} {:>9} {:>9}",
        "clients", "exchanges", "failed", "p50 ms", "p99 ms", "p99.9 ms"
    );
    let mut is_held = true;
    for kind in Kind::ALL {
        let tally = tallies.of(kind);
        let (done, failed) = tally.counts();
        let [half, most, nearly_all] = tally.quantiles_ms([0.5, 0.99, 0.999]);
        println!(
            "{:<22} {done:>10} {failed:>8} {half:>9.2} {most:>9.2} {nearly_all:>9.2}",
            kind.name()
        );
        for why in tally.reasons() {
            println!("    {why}");
        }
        is_held &= done > 0 && (failed == 0 || kind == Kind::OfDying);
    }
    println!("\n{swaps} tables");
    println!(
        "{:<22} {:>10} {:>10} {:>14}",
        "used", "early", "late", "slope an hour"
    );
    for (name, course) in [
        (
            "memory, KiB",
            samples.course(|usage| usage.resident_kib as f64),
        ),
        (
            "descriptors",
            samples.course(|usage| usage.descriptors as f64),
        ),
        ("threads", samples.course(|usage| usage.threads as f64)),
    ] {
        let (early, late, slope) = course;
        println!("{name:<22} {early:>10.0} {late:>10.0} {slope:>14.0}");
        is_held &= late <= early * 1.1 + 1.0;
    }
    match left {
        [] => println!("every gauge is back at zero"),
        left => println!("gauges that are not back at zero:\n{}", left.join("\n")),
    }
    if !complaints.is_empty() {
        println!("errors in the logs:\n{}", complaints.join("\n"));
    }
    is_held &= left.is_empty() && complaints.is_empty();
    println!("{}", if is_held { "held" } else { "NOT HELD" });
    is_held
}
