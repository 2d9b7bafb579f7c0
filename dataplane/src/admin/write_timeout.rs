//! A connection that fails when its other end reads nothing for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// A connection of the admin side.
#[derive(Debug)]
pub(super) struct WriteTimeout {
    stream: TcpStream,
    limit: Duration,
    /// Runs while the other end reads nothing.
    stuck: Option<Pin<Box<Sleep>>>,
    /// Bytes since other tasks had their turn.
    turn: usize,
}

impl WriteTimeout {
    pub(super) fn new(stream: TcpStream, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            stuck: None,
            turn: 0,
        }
    }

    /// Whether it is other tasks' turn: a fast reader must not keep them waiting.
    fn gives_way(&mut self, cx: &Context<'_>) -> bool {
        let is_over = self.turn >= TURN;
        if is_over {
            self.turn = 0;
            cx.waker().wake_by_ref();
        }
        is_over
    }

    fn written(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = poll {
            self.stuck = None;
            self.turn += result.as_ref().copied().unwrap_or(0);
            return Poll::Ready(result);
        }
        let limit = self.limit;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.gives_way(cx) {
            return Poll::Pending;
        }
        let poll = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.gives_way(cx) {
            return Poll::Pending;
        }
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.written(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

const TURN: usize = 64 * 1024;
