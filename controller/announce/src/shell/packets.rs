//! Frames of ARP and neighbour discovery, from and to every interface.

use std::io;

use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use tokio::io::unix::AsyncFd;

use super::sys::{interface_of, join, packet_address, readable, receive};

/// A socket for frames of one type.
pub(super) struct Packets {
    socket: AsyncFd<Socket>,
    ether_type: u16,
}

impl Packets {
    /// The socket of ARP.
    pub(super) fn arp() -> io::Result<Self> {
        Self::open(ARP, &[])
    }

    /// The socket of neighbour discovery. The kernel sorts out all other IPv6 packets.
    pub(super) fn neighbours() -> io::Result<Self> {
        Self::open(IPV6, &NEIGHBOURS)
    }

    fn open(ether_type: u16, filter: &[(u16, u8, u8, u32)]) -> io::Result<Self> {
        // Without a protocol nothing comes before the filter is there.
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
        socket.set_nonblocking(true)?;
        if !filter.is_empty() {
            let filter: Vec<SockFilter> = filter
                .iter()
                .map(|(code, then, or, value)| SockFilter::new(*code, *then, *or, *value))
                .collect();
            socket.attach_filter(&filter)?;
        }
        // Interface 0 stands for all.
        socket.bind(&packet_address(0, ether_type, [0; 6])?)?;
        Ok(Self {
            socket: readable(socket)?,
            ether_type,
        })
    }

    /// The next frame with the number of its interface.
    pub(super) async fn receive(&self) -> io::Result<(u32, Vec<u8>)> {
        loop {
            let mut ready = self.socket.readable().await?;
            let mut buffer = [0; LONGEST];
            let Ok(received) = ready.try_io(|socket| receive(socket.get_ref(), &mut buffer)) else {
                continue;
            };
            let (length, from) = received?;
            if let (Some(interface), Some(frame)) = (interface_of(&from), buffer.get(..length)) {
                return Ok((interface, frame.to_vec()));
            }
        }
    }

    /// Hears who asks for the same addresses as this frame: the questions for an IPv6 address go to a group.
    pub(super) fn join(&self, interface: u32, frame: &[u8]) {
        let to = frame.first_chunk().copied().unwrap_or_default();
        if to != [0xff; 6] {
            // Without it two hosts that ask at once may not hear each other; an answer is heard.
            join(self.socket.get_ref(), interface, to).ok();
        }
    }

    /// Sends a whole frame.
    pub(super) fn send(&self, interface: u32, frame: &[u8]) -> io::Result<()> {
        let to = frame.first_chunk().copied().unwrap_or_default();
        let to = packet_address(interface, self.ether_type, to)?;
        self.socket.get_ref().send_to(frame, &to).map(drop)
    }

    /// Whether frames of this kind are this socket's.
    pub(super) fn is_for(&self, frame: &[u8]) -> bool {
        frame.get(12..14) == Some(&self.ether_type.to_be_bytes())
    }
}

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// Classic BPF: of a frame, the next header of IPv6 has to be ICMPv6, and the type of that a neighbour solicitation or advertisement.
const NEIGHBOURS: [(u16, u8, u8, u32); 7] = [
    (LOAD_BYTE, 0, 0, 20),
    (IF_EQUAL, 0, 4, 58),
    (LOAD_BYTE, 0, 0, 54),
    (IF_EQUAL, 1, 0, 135),
    (IF_EQUAL, 0, 1, 136),
    (RETURN, 0, 0, u32::MAX),
    (RETURN, 0, 0, 0),
];
/// BPF_LD, BPF_B, BPF_ABS
const LOAD_BYTE: u16 = 0x30;
/// BPF_JMP, BPF_JEQ, BPF_K
const IF_EQUAL: u16 = 0x15;
/// BPF_RET, BPF_K
const RETURN: u16 = 0x06;

/// More than an advertisement ever has.
const LONGEST: usize = 512;
