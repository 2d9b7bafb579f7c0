//! A leg that is nothing but its socket: most are.

use std::io;
use std::task::{Context, Poll};

use super::Leg;
use crate::poller::Stream;

impl Leg for Stream {
    fn plain(&self) -> Option<&Stream> {
        Some(self)
    }

    fn socket(&self) -> Option<&Stream> {
        Some(self)
    }

    fn poll_take(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Self::poll_take(self, cx, buffer)
    }

    fn poll_give(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_give(self, cx, bytes)
    }
}
