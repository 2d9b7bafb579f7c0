//! Server-sent events: once a second, what has changed on a reader's page.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::handler::Handler;
use super::page::{Changes, View};

/// The body of a reply that goes on: one event a second.
#[derive(Debug)]
pub(super) struct Events(mpsc::Receiver<Bytes>);

impl Events {
    /// Begins to tell one more reader.
    pub(super) fn begin(handler: &Rc<Handler>, view: View, from: IpAddr) -> Self {
        // A slow reader misses seconds, and is sent later what has changed in all of them.
        let (sender, receiver) = mpsc::channel(1);
        tokio::task::spawn_local(tell(Rc::clone(handler), Changes::new(view), from, sender));
        Self(receiver)
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = self.0.poll_recv(cx);
        event.map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

async fn tell(
    handler: Rc<Handler>,
    mut changes: Changes,
    from: IpAddr,
    sender: mpsc::Sender<Bytes>,
) {
    let status = &handler.stats.shared.status;
    let _counted = Counted::new(&handler);
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = second.tick() => {}
            () = sender.closed() => return,
            () = status.ended() => {
                sender.try_send(Bytes::from_static(b"event: end\ndata: {}\n\n")).ok();
                return;
            }
        }
        // A new table may not let this address see the page any more.
        if handler.refuse(from).is_some() {
            return;
        }
        let Ok(place) = sender.try_reserve() else {
            continue;
        };
        let mut event = b"data: ".to_vec();
        let announced = handler.announced().await;
        event.extend(changes.since(&handler.stats, handler.recent(), announced));
        event.extend_from_slice(b"\n\n");
        place.send(event.into());
    }
}

/// Counts one reader of events while it is sent any: the end of the process waits for them.
struct Counted<'a>(&'a Handler);

impl<'a> Counted<'a> {
    fn new(handler: &'a Handler) -> Self {
        handler
            .stats
            .shared
            .status
            .listeners
            .fetch_add(1, Ordering::SeqCst);
        Self(handler)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0
            .stats
            .shared
            .status
            .listeners
            .fetch_sub(1, Ordering::SeqCst);
    }
}
