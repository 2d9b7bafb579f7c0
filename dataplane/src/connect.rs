//! Connections to endpoints: the dial with its queue, and the PROXY header that is sent first. It imports `worker` and what is
//! below; what serves clients (`tcp`, `http`, `udp`) imports it.

mod dial;
mod queue;
pub(crate) mod send_proxy;

pub(crate) use dial::{Caller, EndpointSession, Link, Unserved, Upstream, dial, dial_link};
