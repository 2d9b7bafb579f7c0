//! Socket options for long-lived connections.
//!
//! Keep-alive probes find silent peers that are gone, and a user timeout ends a connection whose endpoint acknowledges nothing.
//! Each option costs a system call, and most connections end long before the option matters. Therefore the endpoint's socket
//! gets the options only when the connection is older than [`LONG_LIVED_AFTER`]. A client's socket inherits its options from
//! the listening socket. A connection that many requests share gets them at once.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::net::poller::Stream;

/// Sets the options on the endpoint's socket.
pub(crate) fn watch(server: &Stream) {
    let server = SockRef::from(server);
    // These calls fail only for a socket that is already closed, which the next read reports.
    server.set_tcp_user_timeout(Some(USER_TIMEOUT)).ok();
    server.set_tcp_keepalive(&keepalive()).ok();
}

/// When the kernel begins to probe a silent peer, and how often it does.
pub(crate) fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL)
}

/// Much shorter than the times below, so a dead peer is not detected later than it would be with options set at once.
pub(super) const LONG_LIVED_AFTER: Duration = Duration::from_secs(5);
const USER_TIMEOUT: Duration = Duration::from_secs(60);
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
