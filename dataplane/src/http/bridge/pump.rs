//! One direction of an exchange: moves the frames of a body from one side to the other.

use std::task::{Context, Poll, ready};

use super::side::{Broken, Frame, Side};
use crate::relay::yield_to_others;

/// How far a body has been moved.
#[derive(Debug)]
pub(super) struct Flow {
    /// Bytes of its data.
    pub(super) bytes: u64,
    /// Whether its last frame has been read.
    pub(super) is_read: bool,
    /// Whether its last frame has been sent.
    pub(super) is_done: bool,
    /// Whether any of it has been read.
    pub(super) is_touched: bool,
    /// Whether everything that was read has been sent, and the next frame has not arrived.
    pub(super) is_waiting: bool,
}

/// The side at which a body got stuck for good.
#[derive(Debug)]
pub(super) enum Stopped {
    Source(Broken),
    Sink(Broken),
}

impl Flow {
    pub(super) fn new(has_body: bool) -> Self {
        Self {
            bytes: 0,
            is_read: !has_body,
            is_done: false,
            is_touched: false,
            is_waiting: false,
        }
    }
}

/// Moves what can be moved. Ready once the whole body has been sent.
pub(super) fn pump(
    source: &mut Side<'_>,
    sink: &mut Side<'_>,
    flow: &mut Flow,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Stopped>> {
    if flow.is_done {
        return Poll::Ready(Ok(()));
    }
    for _ in 0..BUDGET {
        flow.is_waiting = false;
        ready!(sink.poll_room(cx)).map_err(Stopped::Sink)?;
        if flow.is_read {
            flow.is_done = true;
            return Poll::Ready(Ok(()));
        }
        let Poll::Ready(frame) = source.poll_frame(cx) else {
            flow.is_waiting = true;
            return Poll::Pending;
        };
        flow.is_touched = true;
        let frame = frame.map_err(Stopped::Source)?;
        flow.is_read = match &frame {
            Frame::Data { bytes, is_last } => {
                flow.bytes += bytes.len() as u64;
                *is_last
            }
            Frame::Trailers(_) | Frame::End => true,
        };
        sink.push(frame).map_err(Stopped::Sink)?;
    }
    yield_to_others(cx);
    Poll::Pending
}

/// Frames in a row before other tasks run.
const BUDGET: usize = 16;
