//! Whom a dial is for, and what ends the wait for it before the endpoint answers.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::worker::Worker;

/// A client that is to be connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    /// Its place in the worker.
    pub(crate) seat: usize,
    pub(crate) socket: &'a TcpStream,
}

/// Why a dial came to nothing.
#[derive(Debug)]
pub(super) enum InVain {
    Failed(io::Error),
    /// The client aborted.
    ClientLeft,
    /// The endpoint may have no connections now, or those that it had have been cut.
    Cut,
}

impl From<io::Error> for InVain {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Client<'_> {
    /// Waits for an endpoint to answer, as long as somebody wants that. It costs no system call: both sockets are watched
    /// anyway, and an order to cut finds the waker in the client's seat.
    pub(super) async fn wait<T>(
        &self,
        answer: impl Future<Output = io::Result<T>>,
    ) -> Result<T, InVain> {
        // One that is only done sending still waits for its answer.
        let mut left = pin!(self.socket.ready(Interest::ERROR));
        let mut answer = pin!(answer);
        poll_fn(|cx| {
            let mut seats = self.worker.seats.borrow_mut();
            if !seats.goes_on_dialing(self.seat, cx.waker()) {
                return Poll::Ready(Err(InVain::Cut));
            }
            drop(seats);
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(answer.map_err(InVain::Failed));
            }
            left.as_mut().poll(cx).map(|_| Err(InVain::ClientLeft))
        })
        .await
    }
}
