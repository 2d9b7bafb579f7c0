//! Server-sent events: once a second, what has changed on the page of whoever listens.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{MissedTickBehavior, interval};

use super::desk::Desk;
use super::page::{Changes, View};

/// The body of an answer that goes on.
#[derive(Debug)]
pub(super) struct Events(mpsc::Receiver<Bytes>);

impl Events {
    /// For one listener more.
    pub(super) fn begin(
        desk: &Rc<Desk>,
        view: View,
        from: IpAddr,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        // Whoever reads slowly misses seconds, and hears later what has changed in all of them.
        let (sender, receiver) = mpsc::channel(1);
        tokio::task::spawn_local(tell(
            Rc::clone(desk),
            Changes::new(view),
            from,
            sender,
            slot,
        ));
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
    desk: Rc<Desk>,
    mut changes: Changes,
    from: IpAddr,
    sender: mpsc::Sender<Bytes>,
    _slot: OwnedSemaphorePermit,
) {
    let status = &desk.shared.status;
    let _counted = Counted::new(&desk);
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
        // A new table may have taken the right to look away.
        if desk.refuse(from).is_some() {
            return;
        }
        let Ok(place) = sender.try_reserve() else {
            continue;
        };
        let mut event = b"data: ".to_vec();
        event.extend(changes.since(&desk.shared, desk.recent()));
        event.extend_from_slice(b"\n\n");
        place.send(event.into());
    }
}

/// Counts one listener while it listens, for the end to wait for.
struct Counted<'a>(&'a Desk);

impl<'a> Counted<'a> {
    fn new(desk: &'a Desk) -> Self {
        desk.shared.status.listeners.fetch_add(1, Ordering::SeqCst);
        Self(desk)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0
            .shared
            .status
            .listeners
            .fetch_sub(1, Ordering::SeqCst);
    }
}
