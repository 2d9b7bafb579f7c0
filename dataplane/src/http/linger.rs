//! The end of a connection whose client may still be sending.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncWrite;

use crate::net::poller::Timer;
use crate::net::relay::yield_to_others;
use crate::net::tls::MaybeTls;
use crate::worker::Worker;
use crate::worker::buffers::ReadBuffer;

/// Tells the client that nothing more comes, and reads what it still sends, for a while. If the connection were closed with unread
/// bytes, the kernel would reset it, and the client might lose the response.
pub(super) async fn linger(worker: &Worker, socket: &mut MaybeTls) {
    let mut buffer = ReadBuffer::new(&worker.buffers);
    let mut timer = Timer::new(&worker.tools.poller);
    timer.set(worker.shared.clock.now().after(LONGEST));
    let (mut left, mut is_shut_down) = (MOST_BYTES, false);
    poll_fn(|cx| {
        // Once: the kernel reports each shutdown of a socket as an event, which would wake this task again.
        if !is_shut_down && Pin::new(&mut *socket).poll_shutdown(cx).is_pending() {
            return timer.poll(cx);
        }
        is_shut_down = true;
        for _ in 0..BUDGET {
            buffer.clear();
            match buffer.poll_fill(socket, cx) {
                Poll::Ready(Ok(read)) if read > 0 && read < left => left -= read,
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return timer.poll(cx),
            }
        }
        yield_to_others(cx);
        timer.poll(cx)
    })
    .await;
    socket.close_in_order();
}

/// The client has so much time to read the response and close.
const LONGEST: Duration = Duration::from_secs(2);
/// Clients that send a large file and read the response only afterwards are read to their end, if that is not far.
const MOST_BYTES: usize = 32 << 20;
/// Reads per wake-up.
const BUDGET: usize = 16;
