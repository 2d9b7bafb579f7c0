//! Ends the TCP connections of addresses that leave this node (sock_diag(7), `ss --kill`).
//!
//! What clients send on such a connection goes to the node that has the address now, and what this node sends has no address to come
//! from. So the process here would wait for it until its own patience ends, and so would a client that is owed an answer. The kernel
//! resets such a connection if it is told to while the address is still there.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::oneshot;

use super::sys;

/// The addresses whose connections are to end, and whom to tell when they have.
pub(super) type Order = (Arc<Leaving>, oneshot::Sender<()>);

/// Addresses that leave this host. An order to end their connections may take its time, and one of them may be back by then.
#[derive(Debug)]
pub(super) struct Leaving(Mutex<BTreeSet<IpAddr>>);

impl Leaving {
    pub(super) fn of(addresses: BTreeSet<IpAddr>) -> Self {
        Self(Mutex::new(addresses))
    }

    /// The address is on this host again: its connections go on.
    pub(super) fn is_back(&self, address: IpAddr) {
        self.lock().remove(&address);
    }

    fn has(&self, address: IpAddr) -> bool {
        self.lock().contains(&address)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<IpAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread that ends connections, as there may be very many. It waits in the class in which it runs: on a busy host a new one
/// would wait long for its first turn.
pub(super) fn start() -> mpsc::Sender<Order> {
    let (orders, ordered) = mpsc::channel::<Order>();
    let follow = move || {
        let mut is_told = false;
        loop {
            // Where that is not permitted, a nice value of the process is that of its threads, too.
            sys::run_first().ok();
            let Ok((leaving, is_over)) = ordered.recv() else {
                return;
            };
            if let Err(error) = end(&leaving)
                && !std::mem::replace(&mut is_told, true)
            {
                tell(&error);
            }
            is_over.send(()).ok();
        }
    };
    if let Err(error) = thread::Builder::new().spawn(follow) {
        tell(&error);
    }
    orders
}

fn tell(error: &io::Error) {
    tracing::warn!(%error, "cannot end the connections of an address that this node gives up; they go on until the patience of both sides ends");
}

/// Ends the connections of these addresses.
///
/// # Errors
/// The kernel does not list its sockets, does not end one, or there are too many.
fn end(leaving: &Leaving) -> io::Result<()> {
    let mut pace = Pace::begin();
    // A socket of IPv6 may have a connection of IPv4. What fails for one family need not fail for the other one.
    let done = [AF_INET, AF_INET6].map(|family| end_family(family, leaving, &mut pace));
    done.into_iter().collect()
}

fn end_family(family: u8, leaving: &Leaving, pace: &mut Pace) -> io::Result<()> {
    let addresses = leaving.lock().clone();
    if addresses.is_empty() {
        return Ok(());
    }
    let protocol = Protocol::from(libc::NETLINK_SOCK_DIAG);
    let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut answers = Answers::default();
    for (id, is_over) in connections(&socket, family, &addresses, pace)? {
        pace.keep()?;
        if !leaving.has(local(family, &id)) {
            continue;
        }
        socket.send(&request(SOCK_DESTROY, ANSWER, family, &id, &[]))?;
        match receive(&socket, |_, _| Ok(())) {
            // The next answer could be one to this request.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            answer => answers.add(is_over, answer),
        }
    }
    answers.sum()
}

/// The time that a thread takes, which runs before others: for a moment only, then as they do, and not for long.
struct Pace {
    begun: Instant,
    is_first: bool,
}

impl Pace {
    fn begin() -> Self {
        Self {
            begun: Instant::now(),
            is_first: true,
        }
    }

    /// To be called after each step.
    fn keep(&mut self) -> io::Result<()> {
        let time = self.begun.elapsed();
        if time >= AT_ONCE && std::mem::take(&mut self.is_first) {
            sys::run_as_others()?;
        }
        match time < LONGEST {
            true => Ok(()),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// The answers of the kernel to requests to end a connection.
#[derive(Default)]
struct Answers {
    has_ended_one: bool,
    failed: Option<io::Error>,
}

impl Answers {
    /// `is_over`: of a connection in its time-wait. Kernels before 6.0 do not support to end that, and no process waits for it.
    fn add(&mut self, is_over: bool, answer: io::Result<()>) {
        match answer {
            Ok(()) => self.has_ended_one = true,
            // It has ended by itself.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) if is_over && error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
    }

    /// The first error. A kernel that supports to end no connection has ended none; else one has reached its time-wait meanwhile.
    fn sum(self) -> io::Result<()> {
        let unsupported = Some(libc::EOPNOTSUPP);
        match self.failed {
            Some(error) if !self.has_ended_one || error.raw_os_error() != unsupported => Err(error),
            _ => Ok(()),
        }
    }
}

/// What the kernel calls a socket: ports, addresses, interface and a cookie.
type Id = [u8; 48];

/// The connections of these addresses on sockets of a family, each with whether it is in its time-wait.
fn connections(
    socket: &Socket,
    family: u8,
    addresses: &BTreeSet<IpAddr>,
    pace: &mut Pace,
) -> io::Result<Vec<(Id, bool)>> {
    let filter = filter(addresses);
    socket.send(&request(
        SOCK_DIAG_BY_FAMILY,
        DUMP,
        family,
        &[0; 48],
        &filter,
    ))?;
    let mut found = Vec::new();
    let listed = receive(socket, |kind, payload| {
        if kind == SOCK_DIAG_BY_FAMILY
            && let Some((id, is_over)) = connection(payload)
            && addresses.contains(&local(family, id))
        {
            found.push((*id, is_over));
        }
        pace.keep()
    });
    match listed {
        Ok(()) => Ok(found),
        // A kernel without IPv6.
        Err(error) if family == AF_INET6 && error.raw_os_error() == Some(libc::ENOENT) => Ok(found),
        Err(error) => Err(error),
    }
}

/// The connection of an `inet_diag_msg`, and whether it is in its time-wait, which the kernel calls FIN_WAIT2 at first.
fn connection(payload: &[u8]) -> Option<(&Id, bool)> {
    let ([_family, _state, timer, _], rest) = payload.split_first_chunk()?;
    Some((rest.first_chunk()?, *timer == TIME_WAIT_TIMER))
}

/// The own address of a connection.
fn local(family: u8, id: &Id) -> IpAddr {
    let [_, _, _, _, octets @ ..] = id;
    let octets: [u8; 16] = octets.first_chunk().copied().unwrap_or_default();
    let [a, b, c, d, ..] = octets;
    match family {
        AF_INET => Ipv4Addr::new(a, b, c, d).into(),
        _ => Ipv6Addr::from(octets).to_canonical(),
    }
}

/// An attribute by which the kernel lists only the connections of these addresses. Of many it would compare each connection with each
/// address, so there it is empty: the kernel lists all.
fn filter(addresses: &BTreeSet<IpAddr>) -> Vec<u8> {
    let mut program = Vec::new();
    if addresses.is_empty() || addresses.len() > FILTERED {
        return program;
    }
    // From the last one to the first: each leads past those behind it.
    for (behind, address) in addresses.iter().rev().enumerate() {
        let (family, octets) = match address {
            IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
        };
        let [bits, length] = [octets.len() * 8, octets.len() + 12].map(|it| it.to_le_bytes()[0]);
        let mut step = vec![OWN_ADDRESS, length];
        // Where it is another address the next step is behind the jump, or, of the last one, behind the end.
        step.extend((u16::from(length) + 4).to_ne_bytes());
        step.extend([family, bits, 0, 0]);
        step.extend(ANY_PORT.to_ne_bytes());
        step.extend(octets);
        if behind > 0 {
            let to_the_end = u16::try_from(program.len() + 4).unwrap_or_default();
            step.extend([JUMP, 4]);
            step.extend(to_the_end.to_ne_bytes());
        }
        program.splice(..0, step);
    }
    let length = u16::try_from(program.len() + 4).unwrap_or_default();
    program.splice(..0, [length, FILTER].map(u16::to_ne_bytes).concat());
    program
}

/// A message to the kernel: `nlmsghdr`, `inet_diag_req_v2`, and an attribute, if there is one.
fn request(kind: u16, flags: u16, family: u8, id: &Id, attribute: &[u8]) -> Vec<u8> {
    let length = LENGTH + u32::try_from(attribute.len()).unwrap_or_default();
    let mut bytes = Vec::with_capacity(LENGTH as usize + attribute.len());
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((REQUEST | flags).to_ne_bytes());
    // The number of the message, and the sender, whom the kernel knows.
    bytes.extend([0; 8]);
    bytes.extend([family, IPPROTO_TCP, 0, 0]);
    bytes.extend(CONNECTED.to_ne_bytes());
    bytes.extend(id);
    bytes.extend(attribute);
    bytes
}

/// Receives messages, each with its kind, until the kernel has said everything.
fn receive(socket: &Socket, mut each: impl FnMut(u16, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let mut socket = socket;
        let length = socket.read(&mut buffer)?;
        let mut rest = buffer.get(..length).unwrap_or_default();
        while let Some((kind, payload, after)) = message(rest) {
            match kind {
                DONE => return Ok(()),
                ERROR => {
                    let code = payload.first_chunk().copied().map_or(0, i32::from_ne_bytes);
                    return match code {
                        0 => Ok(()),
                        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                    };
                }
                kind => each(kind, payload)?,
            }
            rest = after;
        }
    }
}

/// The kind of the first message, what it says, and the rest.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_ne_bytes(*length)).ok()?;
    let payload = bytes.get(HEADER..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((u16::from_ne_bytes(*kind), payload, after))
}

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// The kinds of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
/// Their flags.
const REQUEST: u16 = 1;
const ANSWER: u16 = 4;
const DUMP: u16 = 0x300;
const HEADER: usize = 16;
/// Of a request without an attribute.
const LENGTH: u32 = 72;
/// A bit for each state of a connection, but for TIME_WAIT, CLOSE and LISTEN.
const CONNECTED: u32 = 0x1fff & !(1 << 6 | 1 << 7 | 1 << 10);
/// INET_DIAG_REQ_BYTECODE, and its steps: whether the own address is this one, at any port, and a jump.
const FILTER: u16 = 1;
const OWN_ADDRESS: u8 = 7;
const ANY_PORT: i32 = -1;
const JUMP: u8 = 1;
/// Of so many addresses at most the kernel chooses the connections itself.
const FILTERED: usize = 32;
/// `idiag_timer` of a connection in its time-wait.
const TIME_WAIT_TIMER: u8 = 3;
/// The kernel answers at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// An address that leaves waits so long for the end of its connections: by then another node announces it for the second time.
pub(super) const AT_ONCE: Duration = Duration::from_millis(50);
/// After this time the rest of the connections is left to the patience of both sides.
const LONGEST: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_address_of_a_connection_is_read_and_nothing_of_half_a_message() {
        let mut id = [0; 48];
        id[4..8].copy_from_slice(&[192, 0, 2, 1]);
        assert_eq!(local(AF_INET, &id), IpAddr::from([192, 0, 2, 1]));
        id[4..20].copy_from_slice(&Ipv4Addr::new(192, 0, 2, 2).to_ipv6_mapped().octets());
        assert_eq!(local(AF_INET6, &id), IpAddr::from([192, 0, 2, 2]));
        let bytes = request(SOCK_DESTROY, ANSWER, AF_INET6, &id, &[]);
        assert_eq!(bytes.len(), 72);
        let (kind, payload, rest) = message(&bytes).unwrap();
        assert_eq!((kind, payload.len(), rest.len()), (SOCK_DESTROY, 56, 0));
        for length in 0..72 {
            assert_eq!(message(&bytes[..length]), None);
        }
    }

    /// A connection of an address that is back goes on, also where this process may end connections.
    #[test]
    fn of_an_address_that_is_back_nothing_ends() {
        use std::io::Write as _;

        let address: IpAddr = "127.83.0.6".parse().unwrap();
        let listener = std::net::TcpListener::bind((address, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let mut client = std::net::TcpStream::connect(to).unwrap();
        let mut accepted = listener.accept().unwrap().0;
        let leaving = Leaving::of([address].into());
        assert!(leaving.has(address));
        leaving.is_back(address);
        end(&leaving).unwrap();
        accepted.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn one_that_is_in_its_time_wait_is_known() {
        let mut payload = [7; 72];
        assert_eq!(connection(&payload), Some((&[7; 48], false)));
        payload[2] = TIME_WAIT_TIMER;
        assert_eq!(connection(&payload), Some((&[7; 48], true)));
        assert_eq!(connection(&payload[..51]), None);
    }

    #[test]
    fn a_connection_that_cannot_be_ended_is_an_error_where_that_says_something_of_the_kernel() {
        let (gone, unsupported, forbidden) = (libc::ENOENT, libc::EOPNOTSUPP, libc::EPERM);
        for (codes, expected) in [
            (&[][..], None),
            (&[0, gone, 0], None),
            (&[0, unsupported, 0], None),
            (&[unsupported, 0], None),
            (&[gone, unsupported, unsupported], Some(unsupported)),
            (&[0, forbidden, 0], Some(forbidden)),
        ] {
            let mut answers = Answers::default();
            for code in codes {
                answers.add(
                    false,
                    match code {
                        0 => Ok(()),
                        code => Err(io::Error::from_raw_os_error(*code)),
                    },
                );
            }
            let error = answers.sum().err();
            assert_eq!(error.and_then(|error| error.raw_os_error()), expected);
        }
        let mut answers = Answers::default();
        answers.add(true, Err(io::Error::from_raw_os_error(unsupported)));
        assert!(answers.sum().is_ok());
    }

    /// Connections of addresses of the loopback, which the kernel finds by its own filter and by a list of all, on sockets of both kinds.
    #[test]
    fn exactly_the_connections_of_the_addresses_are_found() {
        let of = |address: &str| {
            let address = address.parse::<IpAddr>().unwrap();
            let listener = std::net::TcpListener::bind((address, 0)).unwrap();
            let to = listener.local_addr().unwrap();
            let client = std::net::TcpStream::connect(to).unwrap();
            let accepted = listener.accept().unwrap().0;
            (listener, client, accepted)
        };
        let _open = [
            "127.83.0.1",
            "127.83.0.2",
            "127.83.0.3",
            "::ffff:127.83.0.4",
        ]
        .map(of);
        let found = |family, addresses: &BTreeSet<IpAddr>| {
            let protocol = Protocol::from(libc::NETLINK_SOCK_DIAG);
            let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol));
            let socket = socket.unwrap();
            let mut pace = Pace {
                begun: Instant::now(),
                is_first: false,
            };
            let found = connections(&socket, family, addresses, &mut pace).unwrap();
            let found = found.iter().map(|(id, _)| local(family, id).to_string());
            found.collect::<BTreeSet<String>>()
        };
        let wanted = [
            "127.83.0.1",
            "127.83.0.3",
            "127.83.0.4",
            "fd83::1",
            "127.83.0.9",
        ];
        let mut addresses: BTreeSet<IpAddr> = wanted.map(|one| one.parse().unwrap()).into();
        for _ in 0..2 {
            let expected = ["127.83.0.1", "127.83.0.3"].map(str::to_owned).into();
            assert_eq!(found(AF_INET, &addresses), expected);
            assert_eq!(
                found(AF_INET6, &addresses),
                ["127.83.0.4".to_owned()].into()
            );
            let more = (0..=255).map(|last| IpAddr::from([192, 0, 2, last]));
            addresses.extend(more);
            assert!(filter(&addresses).is_empty());
        }
        for address in wanted {
            let one = [address.parse().unwrap()].into();
            assert!(
                found(AF_INET, &one).len() + found(AF_INET6, &one).len() <= 1,
                "{address}"
            );
        }
    }
}
