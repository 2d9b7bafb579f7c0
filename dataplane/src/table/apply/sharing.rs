//! Addresses at which other processes listen, too. The kernel then gives each process a part of the clients, and no bind fails:
//! all sockets of frontends have SO_REUSEPORT.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Looks for such addresses for some time after sockets were opened.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// How many looks are left.
    looks: u8,
    /// The sockets of others, as last seen.
    seen: BTreeMap<SocketAddr, BTreeSet<u64>>,
    warned: BTreeSet<SocketAddr>,
}

impl Sharing {
    /// Sockets were opened.
    pub(super) fn begin(&mut self) {
        self.looks = LOOKS;
    }

    /// Warns of the addresses at which sockets listen that are not `own`: the inodes of the own ones by their address. A process
    /// that gives way to this one closes its sockets soon, so that only what is seen twice counts.
    pub(super) fn look<'o>(
        &mut self,
        own: impl FnOnce() -> HashMap<SocketAddr, &'o BTreeSet<u64>>,
    ) {
        if self.looks == 0 {
            return;
        }
        self.looks -= 1;
        let own = own();
        let mut others: BTreeMap<SocketAddr, BTreeSet<u64>> = BTreeMap::new();
        for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let Ok(file) = File::open(file) else {
                continue;
            };
            let lines = BufReader::new(file).lines().skip(1).map_while(Result::ok);
            // The kernel lists listening sockets first.
            for (address, inode) in lines.map_while(|line| listening(&line)) {
                if own.get(&address).is_some_and(|own| !own.contains(&inode)) {
                    others.entry(address).or_default().insert(inode);
                }
            }
        }
        for (address, inodes) in &others {
            let stays = self
                .seen
                .get(address)
                .is_some_and(|seen| !seen.is_disjoint(inodes));
            if stays && self.warned.insert(*address) {
                tracing::warn!(
                    "bind {address}: another process listens there, too, and gets a part of the clients; `ss -ltnp` names it: stop it, or choose another address"
                );
            }
        }
        self.seen = others;
    }
}

/// The address and the inode of a listening socket, by its line in /proc/net/tcp or tcp6.
fn listening(line: &str) -> Option<(SocketAddr, u64)> {
    let mut fields = line.split_whitespace();
    let (ip, port) = fields.nth(1)?.split_once(':')?;
    if fields.nth(1)? != LISTEN {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Each 32 bits are written as a number of this machine.
    let word = |at: usize| {
        let digits = ip.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        _ => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let mut bytes = [0; 16];
            for (to, from) in bytes.iter_mut().zip(words.as_flattened()) {
                *to = *from;
            }
            IpAddr::from(Ipv6Addr::from(bytes))
        }
    };
    Some((SocketAddr::new(ip, port), inode))
}

/// The state of a listening socket.
const LISTEN: &str = "0A";
/// One look every five seconds.
const LOOKS: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn lines_of_the_kernel_are_addresses_and_inodes() {
        for (line, expected) in [
            (
                "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31337 1 0 100 0 0 10 0",
                Some(("127.0.0.1:8080", 31337)),
            ),
            (
                "   1: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7 1 0",
                Some(("[::1]:80", 7)),
            ),
            (
                "   2: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 9 1 0",
                None,
            ),
            ("nonsense", None),
        ] {
            let expected = expected.map(|(address, inode)| (address.parse().unwrap(), inode));
            assert_eq!(listening(line), expected, "{line}");
        }
    }
}
