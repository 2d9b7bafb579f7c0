//! What only a connection that lasts needs of its sockets.
//!
//! Peers that say nothing are asked whether they are still there, and an endpoint that acknowledges nothing is given up. Each
//! option is a call, and most connections are over long before any of them matters: so the leg to the endpoint gets them
//! when it has lasted. The client's inherits its own from the listening socket.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::poller::Stream;

/// Lets the kernel watch over the leg to the endpoint.
pub(super) fn watch(server: &Stream) {
    let server = SockRef::from(server);
    // They fail only for a socket that is gone already, which the next read tells.
    server.set_tcp_user_timeout(Some(USER_TIMEOUT)).ok();
    server.set_tcp_keepalive(&keepalive()).ok();
}

/// How legs to peers that say nothing are kept, and found dead.
pub(crate) fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL)
}

/// Much less than any of the times below: nothing is found dead later for it.
pub(super) const LASTING: Duration = Duration::from_secs(5);
const USER_TIMEOUT: Duration = Duration::from_secs(60);
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
