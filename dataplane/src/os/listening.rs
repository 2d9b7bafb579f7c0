//! The listening TCP sockets of this network namespace, and which process has one, as the kernel lists them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Each listening socket: its address and its inode.
pub(crate) fn sockets() -> impl Iterator<Item = (SocketAddr, u64)> {
    let files = ["/proc/net/tcp", "/proc/net/tcp6"];
    let files = files.into_iter().filter_map(|file| File::open(file).ok());
    files.flat_map(|file| {
        let lines = BufReader::new(file).lines().skip(1).map_while(Result::ok);
        // The kernel lists listening sockets first.
        lines.map_while(|line| listening(&line))
    })
}

/// The process that listens where this address cannot be bound, such as `haproxy (pid 17)`. `None`: nobody does, or this process
/// may not look at the one that does.
pub(crate) fn holder(address: SocketAddr) -> Option<String> {
    let is_in_the_way = |(at, _): &(SocketAddr, u64)| {
        let (one, other) = (at.ip(), address.ip());
        at.port() == address.port()
            && (one == other || one.is_unspecified() || other.is_unspecified())
    };
    let is_of_the_family = |(at, _): &(SocketAddr, u64)| at.is_ipv4() == address.is_ipv4();
    let found: Vec<(SocketAddr, u64)> = sockets().filter(is_in_the_way).collect();
    // A socket of all IPv6 addresses may have the IPv4 ones, too.
    let own = found.iter().find(|one| is_of_the_family(one));
    let (_, inode) = own.or_else(|| found.first())?;
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    processes.into_iter().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let mut descriptors = fs::read_dir(process.path().join("fd")).ok()?;
        let has_it = descriptors.any(|descriptor| {
            let to = descriptor.and_then(|descriptor| fs::read_link(descriptor.path()));
            to.is_ok_and(|to| *to.as_os_str() == *socket)
        });
        let name = || fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        has_it.then(|| format!("{} (pid {pid})", name().trim().escape_debug()))
    })
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

    #[test]
    fn the_process_that_listens_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pid = format!("(pid {})", std::process::id());
        assert!(holder(address).unwrap().ends_with(&pid));
        let everywhere = SocketAddr::from(([0, 0, 0, 0], address.port()));
        assert!(holder(everywhere).unwrap().ends_with(&pid));
        let elsewhere = SocketAddr::from(([127, 0, 0, 2], address.port()));
        assert_eq!(holder(elsewhere), None);
    }
}
