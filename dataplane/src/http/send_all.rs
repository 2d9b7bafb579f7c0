//! Sends a few bytes to a client that may be slow.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use crate::net::poller::Timer;
use crate::net::relay::Tools;
use crate::net::tls::MaybeTls;

/// Sends all of `bytes`, unless the client accepts none for the length of `timeout`.
pub(super) async fn send_all(
    client: &mut MaybeTls,
    bytes: &[u8],
    timer: &mut Timer,
    timeout: Duration,
    tools: &Tools,
) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        timer.set(tools.clock().soon().after(timeout));
        let sent = poll_fn(|cx| match client.poll_send(cx, rest) {
            Poll::Ready(sent) => Poll::Ready(sent),
            Poll::Pending => timer.poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
        });
        rest = rest.split_at(sent.await?).1;
    }
    Ok(())
}
