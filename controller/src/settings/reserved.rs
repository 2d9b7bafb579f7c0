//! `--reserved-ports`: ports of the nodes that no Service is given.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Ports and ranges of ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservedPorts(Vec<RangeInclusive<u16>>);

impl ReservedPorts {
    /// What runs on nodes of a cluster: ssh, etcd, the API server, the kubelet, the scheduler, the controller manager and kube-proxy.
    pub(super) const DEFAULT: &str = "22,2379,2380,6443,10250,10256-10259";

    pub(super) fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }
}

impl FromStr for ReservedPorts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::default());
        }
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
            let (first, last) = number(first).zip(number(last))?;
            (first <= last).then_some(first..=last)
        };
        let ranges = text.split(',').map(|part| {
            range(part).ok_or_else(|| {
                format!("{part:?} is not a port or a range of ports; write such as 22,10256-10259, or none")
            })
        });
        ranges.collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for ReservedPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, range) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_they_are_written() {
        for text in [ReservedPorts::DEFAULT, "none", "80", "1-65535"] {
            let read: ReservedPorts = text.parse().expect("ports");
            assert_eq!(read.to_string(), text);
        }
        let ports: ReservedPorts = ReservedPorts::DEFAULT.parse().expect("ports");
        assert!(ports.contains(22) && ports.contains(10_257) && !ports.contains(10_260));
        for wrong in ["", "0", "x", "9-1", "80,", "70000", "1-2-3"] {
            let error = wrong.parse::<ReservedPorts>().expect_err(wrong);
            assert!(error.contains("none"), "{error}");
        }
    }
}
