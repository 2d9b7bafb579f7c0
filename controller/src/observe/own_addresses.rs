//! The addresses of this machine, by the kernel's routing tables: those of bridges and of pools too, which no Node has in its status.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::Instant;

/// The addresses as they were read last.
#[derive(Debug, Default)]
pub(super) struct OwnAddresses {
    read: Option<Instant>,
    found: Vec<IpNet>,
}

impl OwnAddresses {
    /// The addresses, read again after a while. What cannot be read stays as it was.
    pub(super) fn now(&mut self) -> Vec<IpNet> {
        if self.read.is_none_or(|read| read.elapsed() >= AGAIN) {
            self.read = Some(Instant::now());
            match read() {
                Ok(found) => self.found = found,
                Err(error) => {
                    tracing::debug!(%error, "the addresses of this machine cannot be read");
                }
            }
        }
        self.found.clone()
    }
}

fn read() -> io::Result<Vec<IpNet>> {
    let mut found = of_v4(BufReader::new(File::open("/proc/net/fib_trie")?))?;
    // Without IPv6, the kernel has no such file.
    if let Ok(file) = File::open("/proc/net/ipv6_route") {
        found.extend(of_v6(BufReader::new(file))?);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// An address is a line `|-- ADDRESS`, and each of its routes a line `/PREFIX SCOPE TYPE` below it.
fn of_v4(lines: impl BufRead) -> io::Result<Vec<IpNet>> {
    let mut found = Vec::new();
    let mut address: Option<Ipv4Addr> = None;
    for line in lines.lines() {
        let line = line?;
        let line = line.trim_start();
        if let Some(text) = line.strip_prefix("|-- ") {
            address = text.trim_end().parse().ok();
        } else if line.ends_with(" LOCAL")
            && let Some(text) = line.strip_prefix('/')
            && let Some((prefix, _)) = text.split_once(' ')
            && let (Some(address), Ok(prefix)) = (address, prefix.parse())
        {
            found.extend(IpNet::new(IpAddr::V4(address), prefix));
        }
    }
    Ok(found)
}

/// A route is a line: destination and prefix in hexadecimal first, the flags as the last but one of ten fields.
fn of_v6(lines: impl BufRead) -> io::Result<Vec<IpNet>> {
    let mut found = Vec::new();
    for line in lines.lines() {
        let line = line?;
        let mut fields = line.split_ascii_whitespace();
        let (address, prefix) = (fields.next(), fields.next());
        let hex = |text: Option<&str>| u128::from_str_radix(text?, 16).ok();
        if let (Some(address), Some(prefix)) = (hex(address), hex(prefix))
            && let Some(flags) = hex(fields.nth(6))
            && flags & LOCAL != 0
            && let Ok(prefix) = u8::try_from(prefix)
        {
            found.extend(IpNet::new(Ipv6Addr::from_bits(address).into(), prefix));
        }
    }
    Ok(found)
}

/// The flag of a route to this machine (RTF_LOCAL).
const LOCAL: u128 = 0x8000_0000;
const AGAIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(found: &[IpNet]) -> Vec<String> {
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn local_routes_are_found_and_no_others() {
        let trie = "Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.244.0.0/24 2 0 2
        |-- 10.244.0.0
           /24 link UNICAST
        |-- 10.244.0.1
           /32 host LOCAL
        |-- 10.244.0.255
           /32 link BROADCAST
     |-- 203.0.113.0
        /24 link UNICAST
        /28 host LOCAL
";
        let found = of_v4(trie.as_bytes()).unwrap();
        assert_eq!(texts(&found), ["10.244.0.1/32", "203.0.113.0/28"]);

        let none = "0".repeat(32);
        let routes = format!(
            "fd000000000000000000000000000000 40 {none} 00 {none} 00000100 00000001 00000000 00000001     eth0
fd000000000000000000000000000002 80 {none} 00 {none} 00000000 00000004 00000000 80200001     eth0
"
        );
        let found = of_v6(routes.as_bytes()).unwrap();
        assert_eq!(texts(&found), ["fd00::2/128"]);
        assert!(of_v6("odd".as_bytes()).unwrap().is_empty());
    }

    #[test]
    fn this_machine_has_an_address() {
        let found = OwnAddresses::default().now();
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert!(found.iter().any(|one| one.contains(&loopback)), "{found:?}");
    }
}
