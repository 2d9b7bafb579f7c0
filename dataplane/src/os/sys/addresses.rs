//! The addresses of this host's network interfaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// The addresses of the interfaces that are up, in this thread's network namespace. Link-local IPv6 addresses (`fe80::`) are
/// left out, because they come and go with each virtual interface.
pub fn of_host() -> io::Result<Vec<IpAddr>> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: getifaddrs writes one pointer through the given one, which outlives the call.
    if unsafe { libc::getifaddrs(&raw mut first) } == -1 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut next = first;
    // SAFETY: `next` is null or an entry of the list that getifaddrs made, which is freed only after this loop.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let is_up = entry.ifa_flags & libc::IFF_UP.cast_unsigned() != 0;
        if is_up {
            // SAFETY: the address of an entry is null or valid for as long as the entry is, and as long as its family says.
            addresses.extend(unsafe { address(entry.ifa_addr) });
        }
    }
    // SAFETY: the list came from getifaddrs, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(addresses)
}

/// # Safety
/// `address` is null, or points to a socket address as large as its family says.
unsafe fn address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: guaranteed by the caller.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: of this family it is a sockaddr_in; it is read without asking for its alignment.
            let address: libc::sockaddr_in =
                unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: of this family it is a sockaddr_in6; it is read without asking for its alignment.
            let address: libc::sockaddr_in6 =
                unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let address = Ipv6Addr::from(address.sin6_addr.s6_addr);
            (!address.is_unicast_link_local()).then_some(address.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn the_hosts_addresses_can_all_be_bound() {
        let addresses = of_host().unwrap();
        for address in &addresses {
            UdpSocket::bind((*address, 0)).unwrap_or_else(|error| panic!("{address}: {error}"));
        }
        assert!(
            addresses.contains(&Ipv4Addr::LOCALHOST.into()),
            "{addresses:?}"
        );
    }
}
