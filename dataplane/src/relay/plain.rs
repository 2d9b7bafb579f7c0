//! A leg that is nothing but its socket: most are.
//!
//! It asks the runtime to wait, and nothing else: a byte goes through the kernel's calls alone. That is a third of what a
//! relay of small messages costs in this process.

use std::io;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::Leg;

impl Leg for TcpStream {
    fn plain(&self) -> Option<&TcpStream> {
        Some(self)
    }

    fn socket(&self) -> Option<&TcpStream> {
        Some(self)
    }

    fn is_quiet(&self) -> bool {
        self.try_io(Interest::READABLE, || Ok(())).is_err()
    }

    fn poll_take(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let most = buffer.len();
            let receive = || Ok(recv(self, &mut *buffer, RecvFlags::empty())?.1);
            match attempt(self, Interest::READABLE, most, receive) {
                Some(result) => return Poll::Ready(result),
                None => ready!(self.poll_read_ready(cx))?,
            }
        }
    }

    fn poll_give(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let give = || Ok(send(self, bytes, SendFlags::NOSIGNAL)?);
            match attempt(self, Interest::WRITABLE, bytes.len(), give) {
                Some(result) => return Poll::Ready(result),
                None => ready!(self.poll_write_ready(cx))?,
            }
        }
    }

    fn poll_finish(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match shutdown(self, Shutdown::Write) {
            // The peer has gone meanwhile: there is nobody to tell.
            Err(Errno::NOTCONN) => Ok(()),
            result => Ok(result?),
        })
    }
}

/// One call for at most so many bytes, unless the runtime knows that it would be in vain; `None`: wait for news.
fn attempt(
    socket: &TcpStream,
    interest: Interest,
    most: usize,
    call: impl FnOnce() -> io::Result<usize>,
) -> Option<io::Result<usize>> {
    let mut moved = 0;
    let tried = socket.try_io(interest, || {
        moved = call()?;
        match moved {
            // The next call would be in vain. The runtime is told so, instead of letting the kernel say it.
            1.. if moved < most => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    });
    match tried {
        Err(error) if moved == 0 => match error.kind() {
            io::ErrorKind::WouldBlock => None,
            _ => Some(Err(error)),
        },
        _ => Some(Ok(moved)),
    }
}
