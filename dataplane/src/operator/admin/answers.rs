//! The answers to one connection of the admin side, and how far they have come. An answer is under way until its last byte has left
//! for the kernel: its body ends before that, with what a slow reader has not taken yet in a buffer.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::places::Place;

/// The answers to one connection, one after the other.
#[derive(Debug)]
pub(super) struct Answers {
    /// That of the connection.
    place: Place,
    /// What the answer that is under way takes beside that.
    other: RefCell<Option<Place>>,
    /// Whether all of it is in the buffer of the connection.
    is_buffered: Cell<bool>,
}

impl Answers {
    pub(super) fn new(place: Place) -> Rc<Self> {
        Rc::new(Self {
            place,
            other: RefCell::default(),
            is_buffered: Cell::new(false),
        })
    }

    /// The client has sent a whole request.
    pub(super) fn begin(&self) {
        self.is_buffered.set(false);
        self.place.set_answered(true);
    }

    /// The answer takes this place, too, until it has been sent.
    pub(super) fn hold(&self, place: Place) {
        drop(self.other.replace(Some(place)));
    }

    /// The client has taken some of it.
    fn go_on(&self) {
        self.place.go_on();
        if let Some(other) = &*self.other.borrow() {
            other.go_on();
        }
    }

    /// The buffer is empty.
    fn flushed(&self) {
        if self.is_buffered.take() {
            drop(self.other.take());
            self.place.set_answered(false);
        }
    }
}

/// The body of an answer.
pub(super) struct Answer<B> {
    body: B,
    answers: Rc<Answers>,
}

impl<B> Answer<B> {
    pub(super) fn new(body: B, answers: Rc<Answers>) -> Self {
        Self { body, answers }
    }
}

impl<B: Body<Error = Infallible> + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Answer<B> {
    fn drop(&mut self) {
        self.answers.is_buffered.set(true);
    }
}

/// The stream of a connection, which tells its answers what the client takes.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    answers: Rc<Answers>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, answers: Rc<Answers>) -> Self {
        Self { stream, answers }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, room)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.answers.go_on();
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bytes));
        self.answers.go_on();
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called where nothing is left to be written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        self.answers.flushed();
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::pin::pin;
    use std::sync::Arc;

    use http_body_util::Full;
    use hyper::body::{Bytes, Incoming};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio_util::sync::CancellationToken;

    use super::super::places::Places;
    use super::*;

    /// The body is whole in the buffer of the connection long before the client has taken it.
    #[tokio::test]
    async fn an_answer_is_under_way_until_the_client_has_taken_it() {
        let from = SocketAddr::from(([192, 0, 2, 1], 7));
        let [places, others] = [(); 2].map(|()| Places::new(4));
        let take = |places: &Arc<Places>, is_answered| {
            places.take(from, is_answered, CancellationToken::new())
        };
        let answers = Answers::new(take(&places, false).unwrap());
        let (mut client, stream) = duplex(1024);
        let service = service_fn(|_: Request<Incoming>| {
            answers.begin();
            answers.hold(take(&others, true).unwrap());
            let body = Full::new(Bytes::from_static(&[b'x'; BODY]));
            let answer = Answer::new(body, Rc::clone(&answers));
            async move { Ok::<_, Infallible>(Response::new(answer)) }
        });
        let watched = Watched::new(stream, Rc::clone(&answers));
        let serving = http1::Builder::new().serve_connection(TokioIo::new(watched), service);
        let reading = async {
            for _ in 0..2 {
                assert_eq!((places.answered(), others.answered()), (0, 0));
                client
                    .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                    .await
                    .unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                let mut read = 0;
                while read < BODY {
                    // What the stream has room for is sent when the client has read so far.
                    if BODY - read > 2048 {
                        assert!(answers.is_buffered.get());
                        assert_eq!((places.answered(), others.answered()), (1, 1));
                    }
                    read += client.read(&mut [0; 16]).await.unwrap();
                }
                tokio::task::yield_now().await;
            }
            assert_eq!((places.answered(), others.answered()), (0, 0));
        };
        let mut serving = pin!(serving);
        tokio::select! {
            ended = serving.as_mut() => panic!("{ended:?}"),
            () = reading => {}
        }
    }

    const BODY: usize = 16 * 1024;
}
