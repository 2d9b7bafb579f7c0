//! Messages and descriptors by a unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ballast_core::handover::{self, LENGTH, Message};
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::sleep;

pub(super) async fn send(to: &mut UnixStream, message: &Message) -> io::Result<()> {
    to.write_all(&message.encode()).await
}

/// The next message. Reads no byte behind it, where descriptors may follow.
pub(super) async fn receive(from: &mut UnixStream) -> io::Result<Message> {
    Ok(receive_sized(from).await?.0)
}

/// The next message, and the length of its text.
pub(super) async fn receive_sized(from: &mut UnixStream) -> io::Result<(Message, usize)> {
    let mut head = [0; LENGTH];
    from.read_exact(&mut head).await?;
    let length = handover::length(head).map_err(invalid)?;
    let mut text = Vec::new();
    let mut limited = from.take(length as u64);
    limited.read_to_end(&mut text).await?;
    if text.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let message = Message::decode(&text).map_err(invalid)?;
    Ok((message, length))
}

/// Sends descriptors in batches, each behind a byte that says how many it has.
pub(super) async fn send_descriptors(
    to: &UnixStream,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    for batch in descriptors.chunks(BATCH) {
        let count = [u8::try_from(batch.len()).unwrap_or(u8::MAX)];
        let send = || send_with(to, &count, batch, SendFlags::NOSIGNAL);
        loop {
            match to.async_io(Interest::WRITABLE, send).await {
                // As many descriptors are under way as the user may have: until the other process has received some.
                Err(error) if is_too_many(&error) => sleep(RETRY_EVERY).await,
                sent => break sent?,
            }
        }
    }
    Ok(())
}

/// Sends bytes, and a batch of descriptors with them.
pub(crate) fn send_with(
    to: impl AsFd,
    bytes: &[u8],
    batch: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(BATCH))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !batch.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(batch));
    }
    sendmsg(to, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// Receives this number of descriptors: all of them, or an error.
pub(super) async fn receive_descriptors(
    from: &UnixStream,
    count: usize,
) -> io::Result<Vec<OwnedFd>> {
    let mut all = Vec::new();
    while all.len() < count {
        let batch = from.async_io(Interest::READABLE, || receive_batch(from));
        all.extend(batch.await?);
    }
    if all.len() == count {
        return Ok(all);
    }
    Err(invalid(
        "has more descriptors than it names, by a bug or by another program at this path",
    ))
}

fn receive_batch(from: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut count = [0];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(BATCH))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut count)];
    let received = recvmsg(from, into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut batch = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            batch.extend(descriptors);
        }
    }
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let [named] = count;
    // The kernel leaves out those for which this process has no room.
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
    if is_cut || batch.is_empty() || batch.len() != usize::from(named) {
        return Err(invalid(format!(
            "has {} descriptors where it names {named}; raise the limit of open files of this process (ulimit -n)",
            batch.len()
        )));
    }
    Ok(batch)
}

fn is_too_many(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error())
}

/// Whether the other process must read before more can be sent.
pub(crate) fn has_no_room(error: &io::Error) -> bool {
    let is_full = error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error());
    error.kind() == io::ErrorKind::WouldBlock || is_full || is_too_many(error)
}

pub(super) fn invalid(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

/// The kernel takes no more by one message.
pub(crate) const BATCH: usize = 253;
const RETRY_EVERY: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::fs::File;

    use ballast_core::handover::Ready;
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn what_was_sent_is_received_in_its_order() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        for count in [0, 1, 253, 254, 600] {
            let message = Message::Ready(Ready {
                unwanted: vec![count],
                ..Ready::default()
            });
            let descriptors = vec![file.as_fd(); count];
            let sending = async {
                send(&mut one, &message).await.unwrap();
                send_descriptors(&one, &descriptors).await.unwrap();
                send(&mut one, &Message::Yours).await.unwrap();
            };
            let receiving = async {
                assert_eq!(receive(&mut other).await.unwrap(), message);
                let received = receive_descriptors(&other, count).await.unwrap();
                assert_eq!(received.len(), count);
                let ours = rustix::fs::fstat(&file).unwrap();
                for descriptor in received {
                    let theirs = rustix::fs::fstat(&descriptor).unwrap();
                    assert_eq!((theirs.st_dev, theirs.st_ino), (ours.st_dev, ours.st_ino));
                }
                assert_eq!(receive(&mut other).await.unwrap(), Message::Yours);
            };
            tokio::join!(sending, receiving);
        }
    }

    #[tokio::test]
    async fn what_breaks_off_or_is_no_message_is_an_error() {
        for (bytes, kind) in [
            (&b""[..], io::ErrorKind::UnexpectedEof),
            (b"\0\0", io::ErrorKind::UnexpectedEof),
            (b"\0\0\0\x09\"yours", io::ErrorKind::UnexpectedEof),
            (b"\0\0\0\x02{}", io::ErrorKind::InvalidData),
            (b"GET / HTTP/1.1\r\n\r\n", io::ErrorKind::InvalidData),
        ] {
            let (mut one, mut other) = UnixStream::pair().unwrap();
            one.write_all(bytes).await.unwrap();
            drop(one);
            let error = receive(&mut other).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{bytes:?}: {error}");
        }
    }

    #[tokio::test]
    async fn other_descriptors_than_named_are_none() {
        let file = File::open("/dev/null").unwrap();
        for (sent, named, kind) in [
            (2, 3, io::ErrorKind::UnexpectedEof),
            (5, 3, io::ErrorKind::InvalidData),
        ] {
            let (one, other) = UnixStream::pair().unwrap();
            let descriptors = vec![file.as_fd(); sent];
            send_descriptors(&one, &descriptors).await.unwrap();
            drop(one);
            let error = receive_descriptors(&other, named).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
        // Bytes without any descriptor.
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(b"\x01").await.unwrap();
        let error = receive_descriptors(&other, 1).await.unwrap_err();
        assert!(error.to_string().contains("names 1"), "{error}");
    }
}
