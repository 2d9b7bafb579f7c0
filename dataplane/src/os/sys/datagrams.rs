//! Datagrams in batches, with ancillary data. Receiving: the local address, the size of coalesced datagrams, and the kernel's
//! drop counter. Sending: the source address and the segment size.
//!
//! Used by the loops of `udp`, and by `listen` for the options of their sockets.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// Receive buffers for a number of datagrams of any size. Memory is used only where datagrams have been received.
pub struct Inbox {
    bytes: Box<[u8]>,
    /// The ancillary data of each slot.
    notes: Box<[Note]>,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inbox of {}", self.notes.len())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Note {
    length: usize,
    peer: Option<SocketAddr>,
    local: Option<IpAddr>,
    segment: usize,
    drops: Option<u32>,
}

/// A datagram in an [`Inbox`], or several of one size.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The payload.
    pub bytes: &'a [u8],
    /// The sender.
    pub peer: Option<SocketAddr>,
    /// The local address that it was sent to, if the socket reports it.
    pub local: Option<IpAddr>,
    /// The size of each datagram, if there are several; the last one may be shorter.
    pub segment: Option<usize>,
    /// How many datagrams the kernel has dropped at this socket in all, if the socket reports it.
    pub drops: Option<u32>,
}

impl<'a> Received<'a> {
    /// The number of datagrams.
    pub fn count(&self) -> usize {
        match self.segment {
            Some(segment) => self.bytes.len().div_ceil(segment),
            None => 1,
        }
    }

    /// The datagrams one by one.
    pub fn each(&self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        let size = self.segment.unwrap_or(usize::MAX);
        (0..self.count()).map(move |index| {
            let from = index.saturating_mul(size).min(bytes.len());
            let to = from.saturating_add(size).min(bytes.len());
            &bytes[from..to]
        })
    }
}

impl Inbox {
    /// Creates buffers for `slots` datagrams.
    pub fn new(slots: usize) -> Self {
        Self {
            bytes: vec![0; slots * SLOT].into(),
            notes: vec![Note::default(); slots].into(),
        }
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.notes.len()
    }

    /// Receives the queued datagrams, up to `most`, into the slots from `first` on, without waiting. Returns the number of
    /// slots filled.
    pub fn receive(&mut self, socket: &impl AsFd, first: usize, most: usize) -> io::Result<usize> {
        let last = self.slots().min(first.saturating_add(most.min(BATCH)));
        let count = last.saturating_sub(first);
        let (Some(room), Some(notes)) = (
            self.bytes.get_mut(first * SLOT..last * SLOT),
            self.notes.get_mut(first..last),
        ) else {
            return Ok(0);
        };
        let mut names = [const { MaybeUninit::<libc::sockaddr_storage>::uninit() }; BATCH];
        let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH];
        let mut vectors = [EMPTY_VECTOR; BATCH];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        let parts = room
            .chunks_exact_mut(SLOT)
            .zip(&mut names)
            .zip(&mut controls)
            .zip(&mut vectors)
            .zip(&mut messages);
        for ((((bytes, name), control), vector), message) in parts {
            vector.iov_base = bytes.as_mut_ptr().cast();
            vector.iov_len = bytes.len();
            message.write(libc::mmsghdr {
                msg_hdr: header(
                    name.as_mut_ptr().cast(),
                    size_of::<libc::sockaddr_storage>(),
                    vector,
                    1,
                    control.as_mut_ptr().cast(),
                    size_of::<Control>(),
                ),
                msg_len: 0,
            });
        }
        let vlen = libc::c_uint::try_from(count).unwrap_or(0);
        // SAFETY: the first `count` headers are initialised, and each points to a name, a control buffer, one vector and
        // through that to bytes, of the sizes that it says; all of them outlive the call, and nothing else uses them.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                messages.as_mut_ptr().cast(),
                vlen,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        for (note, message) in notes.iter_mut().zip(&messages).take(received) {
            // SAFETY: as many headers as were received had been initialised, and the kernel has filled them in; their names and
            // control buffers are still there.
            *note = unsafe { read_note(message.assume_init_ref()) };
        }
        Ok(received)
    }

    /// The datagram in a slot.
    #[must_use]
    pub fn datagram(&self, slot: usize) -> Option<Received<'_>> {
        let note = self.notes.get(slot)?;
        let bytes = self.bytes.get(slot * SLOT..)?.get(..note.length)?;
        let is_group = note.segment > 0 && note.segment < note.length;
        Some(Received {
            bytes,
            peer: note.peer,
            local: note.local,
            segment: is_group.then_some(note.segment),
            drops: note.drops,
        })
    }
}

/// A datagram to be sent, or several of one size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// A header before the payload, in the same datagram.
    pub head: &'a [u8],
    /// The payload.
    pub bytes: &'a [u8],
    /// The receiver; `None` if the socket is connected.
    pub to: Option<SocketAddr>,
    /// The source address.
    pub from: Option<IpAddr>,
    /// If given, the kernel segments the payload into datagrams of this size; there is no `head` then.
    pub segment: Option<u16>,
}

/// Sends one message, without waiting.
pub fn send(socket: &impl AsFd, datagram: &Outgoing<'_>) -> io::Result<()> {
    send_many(socket, std::slice::from_ref(datagram)).map(|_| ())
}

/// Sends as many of these messages in a row as the kernel accepts, without waiting. Returns their number, which is at least
/// one.
pub fn send_many(socket: &impl AsFd, datagrams: &[Outgoing<'_>]) -> io::Result<usize> {
    let mut names = [const { MaybeUninit::<libc::sockaddr_storage>::uninit() }; BATCH];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH];
    let mut vectors = [[EMPTY_VECTOR; 2]; BATCH];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    let parts = datagrams
        .iter()
        .zip(&mut names)
        .zip(&mut controls)
        .zip(&mut vectors)
        .zip(&mut messages);
    let mut count = 0;
    for ((((datagram, name), control), vectors), message) in parts {
        let name_length = datagram.to.map_or(0, |to| write_name(name, to));
        let [head, payload] = vectors;
        *head = vector(datagram.head);
        *payload = vector(datagram.bytes);
        let mut header = header(
            name.as_mut_ptr().cast(),
            name_length,
            vectors.as_mut_ptr(),
            vectors.len(),
            control.write(Control::EMPTY).0.as_mut_ptr().cast(),
            0,
        );
        write_control(&mut header, datagram);
        message.write(libc::mmsghdr {
            msg_hdr: header,
            msg_len: 0,
        });
        count += 1;
    }
    // SAFETY: the first `count` headers are initialised, and each points to a name, a control buffer and two vectors, of
    // the sizes that it says; all of them, and the bytes that the vectors point to, outlive the call. Sending writes
    // nothing but the headers' lengths.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_fd().as_raw_fd(),
            messages.as_mut_ptr().cast(),
            count,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Lets the kernel report the local address of each datagram, coalesce datagrams (GRO), and count what it drops.
pub fn enable_ancillary_data(socket: &impl AsFd, is_ipv4: bool) -> io::Result<()> {
    let (level, option) = if is_ipv4 {
        (libc::IPPROTO_IP, libc::IP_PKTINFO)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
    };
    set(socket, level, option, 1)?;
    set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    // An old kernel lacks this; then receiving is only slower.
    coalesce(socket).ok();
    Ok(())
}

/// How many datagrams the kernel has dropped at this socket since it was made.
pub fn drops(socket: &impl AsFd) -> io::Result<u32> {
    let mut numbers = [0_u32; MEMORY_NUMBERS];
    let mut length = libc::socklen_t::try_from(size_of_val(&numbers)).unwrap_or(0);
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the kernel writes at most `length` bytes into
    // `numbers`, which is exactly its size, and the length that it wrote into `length`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    // An older kernel writes fewer numbers, and this one stays 0.
    let [.., drops] = numbers;
    Ok(drops)
}

/// Lets the kernel coalesce datagrams of one size that arrive in a row (GRO).
pub fn coalesce(socket: &impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Lets routers fragment datagrams, so that large ones pass.
pub fn allow_fragments(socket: &impl AsFd, is_ipv4: bool) -> io::Result<()> {
    if is_ipv4 {
        set(
            socket,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DONT,
        )
    } else {
        set(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DONT,
        )
    }
}

fn set(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0);
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the kernel reads `length` bytes of `value`, which
    // is exactly its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            length,
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn header(
    name: *mut libc::c_void,
    name_length: usize,
    vectors: *mut libc::iovec,
    vector_count: usize,
    control: *mut libc::c_void,
    control_length: usize,
) -> libc::msghdr {
    // SAFETY: a msghdr consists of integers and pointers, for all of which zero is a valid value. Some systems pad it, so it
    // cannot be written as a literal.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_name = match name_length {
        0 => ptr::null_mut(),
        _ => name,
    };
    header.msg_namelen = libc::socklen_t::try_from(name_length).unwrap_or(0);
    header.msg_iov = vectors;
    header.msg_iovlen = vector_count as _;
    header.msg_control = control;
    header.msg_controllen = control_length as _;
    header
}

/// # Safety
/// The kernel has filled in the header, and what it points to is still there.
unsafe fn read_note(message: &libc::mmsghdr) -> Note {
    let mut note = Note {
        length: message.msg_len as usize,
        ..Note::default()
    };
    let header = &message.msg_hdr;
    if header.msg_namelen > 0 {
        // SAFETY: the name has room for any address, and the kernel wrote as much of it as its family needs.
        note.peer = unsafe { read_name(header.msg_name.cast()) };
    }
    // SAFETY: the kernel wrote well-formed control messages up to `msg_controllen`.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !control.is_null() {
        // SAFETY: a control message that is there has a header, and behind that the data which its kind says. They may lie
        // anywhere, hence the unaligned reads.
        unsafe {
            let data = libc::CMSG_DATA(control);
            match ((*control).cmsg_level, (*control).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info: libc::in_pktinfo = data.cast::<libc::in_pktinfo>().read_unaligned();
                    // Not the destination address of the packet: that may be a broadcast address, from which nothing can be
                    // sent.
                    let ours = Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr));
                    note.local = Some(ours.into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    note.local = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = data.cast::<libc::c_int>().read_unaligned();
                    note.segment = usize::try_from(size).unwrap_or(0);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    note.drops = Some(data.cast::<u32>().read_unaligned());
                }
                _ => {}
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    note
}

/// # Safety
/// `name` points to a whole `sockaddr_storage`, of which the kernel wrote what the family needs.
unsafe fn read_name(name: *const libc::sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: the caller's promise; each kind of address is only read where the family says that it is one.
    unsafe {
        match libc::c_int::from((*name).ss_family) {
            libc::AF_INET => {
                let v4 = name.cast::<libc::sockaddr_in>().read();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = name.cast::<libc::sockaddr_in6>().read();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Writes a socket address and returns its length.
fn write_name(name: &mut MaybeUninit<libc::sockaddr_storage>, to: SocketAddr) -> usize {
    let name = name.as_mut_ptr();
    match to {
        SocketAddr::V4(to) => {
            let address = libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: to.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: to.ip().to_bits().to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage has room and the alignment for any kind of address.
            unsafe { name.cast::<libc::sockaddr_in>().write(address) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(to) => {
            let address = libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: to.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: to.ip().octets(),
                },
                sin6_scope_id: to.scope_id(),
            };
            // SAFETY: as above.
            unsafe { name.cast::<libc::sockaddr_in6>().write(address) };
            size_of::<libc::sockaddr_in6>()
        }
    }
}

fn family(family: libc::c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).unwrap_or(0)
}

/// Writes the source address and the segment size into the control buffer that the header points to.
fn write_control(header: &mut libc::msghdr, datagram: &Outgoing<'_>) {
    let mut used = 0;
    match datagram.from {
        Some(IpAddr::V4(from)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr {
                    s_addr: from.to_bits().to_be(),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            push_control(header, &mut used, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some(IpAddr::V6(from)) => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr {
                    s6_addr: from.octets(),
                },
                ipi6_ifindex: 0,
            };
            push_control(
                header,
                &mut used,
                libc::IPPROTO_IPV6,
                libc::IPV6_PKTINFO,
                info,
            );
        }
        None => {}
    }
    if let Some(segment) = datagram.segment {
        push_control(header, &mut used, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    }
    header.msg_controllen = used as _;
    if used == 0 {
        header.msg_control = ptr::null_mut();
    }
}

/// Adds one control message. The buffer is an empty [`Control`], which has room for all messages that are ever added.
fn push_control<T: Copy>(
    header: &libc::msghdr,
    used: &mut usize,
    level: libc::c_int,
    kind: libc::c_int,
    data: T,
) {
    let Ok(size) = u32::try_from(size_of::<T>()) else {
        return;
    };
    // SAFETY: these two functions only compute sizes.
    let (space, length) = unsafe { (libc::CMSG_SPACE(size), libc::CMSG_LEN(size)) };
    if *used + space as usize > size_of::<Control>() {
        return;
    }
    // SAFETY: the buffer is a Control, aligned for a cmsghdr, and `used` is a sum of CMSG_SPACEs, so the alignment is kept; the
    // check above ensures that `space` bytes are left, which hold the header and the data.
    unsafe {
        let control = header
            .msg_control
            .cast::<u8>()
            .add(*used)
            .cast::<libc::cmsghdr>();
        (*control).cmsg_level = level;
        (*control).cmsg_type = kind;
        (*control).cmsg_len = length as _;
        libc::CMSG_DATA(control).cast::<T>().write_unaligned(data);
    }
    *used += space as usize;
}

fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        // The kernel only reads from this buffer.
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// Buffer for the control messages of one datagram; four of the larger kind would fit.
#[repr(C, align(8))]
struct Control([u8; 160]);

impl Control {
    const EMPTY: Self = Self([0; 160]);
}

const EMPTY_VECTOR: libc::iovec = libc::iovec {
    iov_base: ptr::null_mut(),
    iov_len: 0,
};

/// The size of the largest datagram, and of the largest group that the kernel coalesces.
const SLOT: usize = 65_536;

/// The most datagrams received or sent with one call.
pub const BATCH: usize = 32;

/// The numbers of `SO_MEMINFO`, of which the last one is `SK_MEMINFO_DROPS`.
const MEMORY_NUMBERS: usize = 9;

#[cfg(test)]
mod tests;
