//! The local ports for flows, and their partition among the workers.

/// The kernel's range of local ports, and the ports of it that flows may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
    /// The number of ports that are not reserved.
    free: usize,
    /// The ports for flows.
    ports: Vec<u16>,
}

impl PortRange {
    /// Parses the kernel's `ip_local_port_range` (`FIRST LAST`) and `ip_local_reserved_ports` (`8080,9000-9100`). An unreadable
    /// range counts as the kernel's default, and an unreadable list as empty.
    ///
    /// Every eighth port is left to the host, beginning with the first. These ports are spread over the range because the
    /// kernel searches for a free port step by step. If the range has only one port, flows get it.
    pub fn new(range: &str, reserved: &str) -> Self {
        let (first, last) = ends(range).unwrap_or(DEFAULT);
        let reserved: Vec<(u16, u16)> = reserved.trim().split(',').filter_map(interval).collect();
        let is_reserved = |port: u16| {
            let mut all = reserved.iter();
            all.any(|(first, last)| (*first..=*last).contains(&port))
        };
        let free: Vec<u16> = (first.max(1)..=last)
            .filter(|port| !is_reserved(*port))
            .collect();
        let ports = match free.as_slice() {
            [alone] => vec![*alone],
            _ => {
                let places = (0..).zip(&free);
                let ours = places.filter(|(place, _)| place % HOST_SHARE != 0);
                ours.map(|(_, port)| *port).collect()
            }
        };
        Self {
            first,
            last,
            free: free.len(),
            ports,
        }
    }

    /// The ports of one worker. No two workers share a port.
    pub fn share(&self, worker: usize, workers: usize) -> Vec<u16> {
        let workers = workers.max(1);
        let shared = self.ports.iter().skip(worker).step_by(workers);
        shared.copied().collect()
    }

    /// The number of ports for flows.
    pub fn usable(&self) -> usize {
        self.ports.len()
    }

    /// How many flows each worker may have to one endpoint from one source address.
    pub fn flows(&self, workers: usize) -> usize {
        super::ports::max_flows_per_group(self.ports.len() / workers.max(1))
    }

    /// Explains the number of ports, for the log.
    pub fn explain(&self) -> String {
        format!(
            "local ports {} to {}, {} of them not reserved, {} for UDP flows, the others for the host",
            self.first,
            self.last,
            self.free,
            self.ports.len()
        )
    }
}

fn ends(range: &str) -> Option<(u16, u16)> {
    let mut words = range.split_whitespace().map(str::parse);
    match (words.next()?, words.next()?) {
        (Ok(first), Ok(last)) if first <= last => Some((first, last)),
        _ => None,
    }
}

fn interval(words: &str) -> Option<(u16, u16)> {
    let words = words.trim();
    let (first, last) = words.split_once('-').unwrap_or((words, words));
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// The default of Linux.
const DEFAULT: (u16, u16) = (32_768, 60_999);
/// One port of this many is left to the host.
const HOST_SHARE: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn an_eighth_of_what_nobody_reserved_is_left_to_the_host() {
        for (range, reserved, free, usable) in [
            ("32768\t60999\n", "\n", 28_232, 24_703),
            ("40000 40099", "", 100, 87),
            ("40000 40099", "40000-40049,40098, 40099\n", 48, 42),
            ("40000 40099", "1-65535", 0, 0),
            ("40000 40000", "", 1, 1),
            ("40000 40001", "", 2, 1),
            ("0 65535", "", 65_535, 57_343),
            // Input that the kernel never produces.
            ("40099 40000", "", 28_232, 24_703),
            ("nonsense", "nonsense,7-3,-,70000", 28_232, 24_703),
            ("", "", 28_232, 24_703),
        ] {
            let found = PortRange::new(range, reserved);
            assert_eq!((found.free, found.usable()), (free, usable), "{range}");
            assert!(free <= 1 || free - usable >= free.div_ceil(8), "{range}");
        }
        let ports = PortRange::new("40000 40099", "40002").ports;
        assert!(!ports.contains(&40_000) && !ports.contains(&40_002));
        assert!(ports.contains(&40_001));
    }

    #[test]
    fn no_two_workers_share_a_port_and_none_is_lost() {
        for workers in [1, 2, 3, 16, 200] {
            let range = PortRange::new("40000 40099", "");
            let shares: Vec<Vec<u16>> = (0..workers)
                .map(|worker| range.share(worker, workers))
                .collect();
            let all: HashSet<u16> = shares.iter().flatten().copied().collect();
            assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), 87);
            assert_eq!(all.len(), 87);
            let least = range.flows(workers);
            for share in &shares {
                assert!(super::super::ports::max_flows_per_group(share.len()) >= least);
            }
        }
        assert_eq!(PortRange::new("", "").flows(2), 11_580);
    }
}
