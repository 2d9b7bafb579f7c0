//! Ports and addresses that no other test has, in this process or in one that runs beside it.
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// A port that nobody uses, on any address, and no other test gets. It lies below those that the kernel hands out.
pub fn free_port() -> u16 {
    loop {
        let port = u16::try_from(claim("port", 12_000, 20_000)).expect("a port");
        let any = (Ipv4Addr::UNSPECIFIED, port);
        // It may be some other program's.
        if TcpListener::bind(any).is_ok() && UdpSocket::bind(any).is_ok() {
            return port;
        }
    }
}

/// A loopback address that no other test has, so that all its ports are free.
pub fn fresh_ip() -> Ipv4Addr {
    let loopback = u32::from(Ipv4Addr::new(127, 64, 0, 0));
    Ipv4Addr::from(claim("address", loopback, 1 << 20))
}

/// One of `count` numbers from `first` on, for as long as this process lives: the kernel gives a name to one at a time, and
/// takes it back from who is gone.
fn claim(what: &str, first: u32, count: u32) -> u32 {
    static HELD: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let start = std::process::id().wrapping_mul(101);
    for step in 0..count {
        let number = first + start.wrapping_add(step) % count;
        let name = format!("a ballast test's {what} {number}");
        let name = SocketAddr::from_abstract_name(name).expect("a short name");
        if let Ok(claim) = UnixListener::bind_addr(&name) {
            held.push(claim);
            return number;
        }
    }
    panic!("every {what} is taken");
}
