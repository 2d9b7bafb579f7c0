//! The only unsafe code: addresses of packet sockets, and the scheduling class of a thread.
#![expect(unsafe_code, reason = "neither std nor rustix has these")]

use std::io;
use std::mem::{self, MaybeUninit};

use socket2::{SockAddr, SockAddrStorage, Socket};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The address of an interface, for frames of this type.
pub(super) fn packet_address(interface: u32, ether_type: u16, to: [u8; 6]) -> io::Result<SockAddr> {
    let mut hardware = [0; 8];
    for (place, byte) in hardware.iter_mut().zip(to) {
        *place = byte;
    }
    let address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).map_err(io::Error::other)?,
        sll_protocol: ether_type.to_be(),
        sll_ifindex: i32::try_from(interface).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: hardware,
    };
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: a sockaddr_ll is smaller than the storage and needs no stricter alignment, and the kernel reads it as such, by its family.
    unsafe { *storage.view_as::<libc::sockaddr_ll>() = address };
    let length = u32::try_from(size_of::<libc::sockaddr_ll>()).map_err(io::Error::other)?;
    // SAFETY: so many bytes of the storage were written.
    Ok(unsafe { SockAddr::new(storage, length) })
}

/// The number of the interface that a frame came to.
pub(super) fn interface_of(address: &SockAddr) -> Option<u32> {
    let is_packet = i32::from(address.family()) == libc::AF_PACKET;
    if !is_packet || (address.len() as usize) < size_of::<libc::sockaddr_ll>() {
        return None;
    }
    // SAFETY: the kernel wrote a sockaddr_ll of this length, and the storage behind the pointer is aligned for every address.
    let index = unsafe { (*address.as_ptr().cast::<libc::sockaddr_ll>()).sll_ifindex };
    u32::try_from(index).ok()
}

/// The socket for a task that waits for frames.
pub(super) fn readable(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    // SAFETY: the socket owns its descriptor, keeps it until it is dropped, and is behind the AsyncFd until then.
    let registered = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
    registered.map_err(io::Error::from)
}

/// Receives a frame, and where it came from.
pub(super) fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<(usize, SockAddr)> {
    let buffer: *mut [u8] = buffer;
    // SAFETY: bytes are good as bytes that may be uninitialised, and recv_from writes none that is.
    socket.recv_from(unsafe { &mut *(buffer as *mut [MaybeUninit<u8>]) })
}

/// Has frames to a group of hosts come in on the interface, as long as the socket is open.
pub(super) fn join(socket: &Socket, interface: u32, group: [u8; 6]) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    // SAFETY: all bytes zero is a valid packet_mreq.
    let mut request: libc::packet_mreq = unsafe { mem::zeroed() };
    request.mr_ifindex = i32::try_from(interface).map_err(io::Error::other)?;
    request.mr_type = u16::try_from(libc::PACKET_MR_MULTICAST).map_err(io::Error::other)?;
    request.mr_alen = 6;
    for (place, byte) in request.mr_address.iter_mut().zip(group) {
        *place = byte;
    }
    let length = u32::try_from(size_of::<libc::packet_mreq>()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and the pointer is good for so many bytes during the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            length,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets this thread run before others that want the processor, for as long as it has something to do.
pub(super) fn run_first() -> io::Result<()> {
    // Threads and children do not inherit the class.
    schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1)
}

/// Lets this thread run as others do, after it ran first.
pub(super) fn run_as_others() -> io::Result<()> {
    // A process that may only have the class cannot give that flag back.
    schedule(libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0)
}

fn schedule(class: i32, priority: i32) -> io::Result<()> {
    // SAFETY: all bytes zero is a valid sched_param.
    let mut param: libc::sched_param = unsafe { mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: the pointer is good for the call.
    let done = unsafe { libc::sched_setscheduler(0, class, &raw const param) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_an_address_is_read_back() {
        let address = packet_address(7, 0x0806, [0xff; 6]).unwrap();
        assert_eq!(interface_of(&address), Some(7));
        let other: SockAddr = std::net::SocketAddr::from(([127, 0, 0, 1], 1)).into();
        assert_eq!(interface_of(&other), None);
        assert!(packet_address(u32::MAX, 0, [0; 6]).is_err());
    }
}
