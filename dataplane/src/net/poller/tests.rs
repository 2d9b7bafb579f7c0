use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Instant;

use ballast_core::service::ServiceState;
use rustix::event::{PollFd, PollFlags, poll};
use socket2::{Domain, Socket as Socket2, Type};
use tokio::time::timeout;

use super::*;
use crate::net::source_address;

/// Runs `work` while a poller runs.
async fn with_poller<T>(work: impl AsyncFnOnce(&Rc<Poller>) -> T) -> T {
    let poller = Poller::new(Clock::start()).unwrap();
    tokio::select! {
        done = timeout(LONG, work(&poller)) => done.unwrap(),
        () = Rc::clone(&poller).run() => panic!("the poller has ended"),
    }
}

/// A watched socket, and its peer.
fn pair(poller: &Rc<Poller>) -> (Stream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    (Stream::accepted(poller, ours).unwrap(), peer)
}

async fn take(stream: &Stream, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let taken = poll_fn(|cx| stream.poll_recv(cx, &mut bytes)).await?;
    bytes.truncate(taken);
    Ok(bytes)
}

async fn give(stream: &Stream, bytes: &[u8]) -> io::Result<usize> {
    poll_fn(|cx| stream.poll_send(cx, bytes)).await
}

/// Lets other tasks of this thread run, and the kernel's events be read.
async fn let_others_run() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test]
async fn an_end_that_comes_with_the_last_bytes_is_read_behind_them() {
    with_poller(async |poller| {
        let (ours, mut peer) = pair(poller);
        peer.write_all(b"last").unwrap();
        drop(peer);
        while !ours.slot.has(Ready::READ_END) {
            let_others_run().await;
        }
        // A short read says that the socket is empty; the end was reported together with the bytes.
        assert_eq!(take(&ours, 64).await.unwrap(), b"last");
        assert_eq!(take(&ours, 64).await.unwrap(), b"");
    })
    .await;
}

#[tokio::test]
async fn reads_and_writes_wait_until_there_is_something_to_do() {
    with_poller(async |poller| {
        let (ours, mut peer) = pair(poller);
        let mut sent = 0;
        let block = vec![7; 64 << 10];
        while let Poll::Ready(given) = poll_fn(|cx| Poll::Ready(ours.poll_send(cx, &block))).await {
            sent += given.unwrap();
        }
        let reading = std::thread::spawn(move || {
            let mut read = vec![0; sent];
            peer.read_exact(&mut read).unwrap();
            peer.write_all(b"answer").unwrap();
            peer
        });
        assert!(give(&ours, b"more").await.unwrap() > 0);
        assert_eq!(take(&ours, 64).await.unwrap(), b"answer");
        reading.join().unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_reset_wakes_a_task_that_waits_for_room_to_write() {
    with_poller(async |poller| {
        let (ours, peer) = pair(poller);
        let block = vec![7; 64 << 10];
        while poll_fn(|cx| Poll::Ready(ours.poll_send(cx, &block)))
            .await
            .is_ready()
        {}
        assert!(!ours.is_broken());
        Socket2::from(peer)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        assert_eq!(
            give(&ours, b"more").await.unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        assert!(ours.is_broken());
    })
    .await;
}

#[tokio::test]
async fn dropping_a_stream_is_a_reset_unless_it_was_closed_in_order() {
    with_poller(async |poller| {
        for is_orderly in [false, true] {
            let (ours, mut peer) = pair(poller);
            if is_orderly {
                ours.close_in_order();
            }
            drop(ours);
            let end = peer.read(&mut [0]).map_err(|error| error.kind());
            let expected = if is_orderly {
                Ok(0)
            } else {
                Err(ErrorKind::ConnectionReset)
            };
            assert_eq!(end, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn an_order_to_cut_finds_the_streams_of_an_endpoint_and_no_others() {
    with_poller(async |poller| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = Arc::new(ServiceState::new("s", 1));
        let address = listener.local_addr().unwrap();
        let endpoints = [(); 2].map(|()| Arc::new(EndpointState::new(&service, address)));
        let streams = endpoints
            .each_ref()
            .map(|endpoint| connecting(poller, endpoint));
        for stream in &streams {
            poll_fn(|cx| stream.poll_connected(cx)).await.unwrap();
        }
        let watch = CutWatch::new(poller, &endpoints[0]);
        assert!(
            poll_fn(|cx| Poll::Ready(watch.poll_cut(cx)))
                .await
                .is_pending()
        );
        poller.cut(&endpoints[..1]);
        poll_fn(|cx| watch.poll_cut(cx)).await;
        assert!(streams[0].is_cut());
        assert!(!streams[1].is_cut());
        let [cut, _] = streams;
        let slot = cut.slot.index;
        drop(cut);
        let next = connecting(poller, &endpoints[0]);
        assert_eq!(next.slot.index, slot, "the slot is used again");
        assert!(!next.is_cut(), "and is as new");
    })
    .await;
}

fn connecting(poller: &Rc<Poller>, endpoint: &Arc<EndpointState>) -> Stream {
    let socket = source_address::begin_connect(endpoint.address(), None, Type::STREAM).unwrap();
    Stream::connecting(poller, socket.into(), endpoint).unwrap()
}

#[tokio::test]
async fn a_refused_connect_says_why() {
    with_poller(async |poller| {
        // Bound but not listening, so no other process gets the port meanwhile.
        let bound = Socket2::new(Domain::IPV4, Type::STREAM, None).unwrap();
        bound
            .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
            .unwrap();
        let address = bound.local_addr().unwrap().as_socket().unwrap();
        let service = Arc::new(ServiceState::new("s", 1));
        let stream = connecting(poller, &Arc::new(EndpointState::new(&service, address)));
        let error = poll_fn(|cx| stream.poll_connected(cx)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    })
    .await;
}

#[tokio::test]
async fn only_a_second_or_a_long_write_to_an_endpoint_turns_nagle_off() {
    with_poller(async |poller| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = Arc::new(ServiceState::new("s", 1));
        let address = listener.local_addr().unwrap();
        let endpoint = Arc::new(EndpointState::new(&service, address));
        let stream = connecting(poller, &endpoint);
        poll_fn(|cx| stream.poll_connected(cx)).await.unwrap();
        give(&stream, b"short").await.unwrap();
        assert!(!stream.fd.nodelay().unwrap());
        give(&stream, b"short").await.unwrap();
        assert!(stream.fd.nodelay().unwrap());
        let stream = connecting(poller, &endpoint);
        poll_fn(|cx| stream.poll_connected(cx)).await.unwrap();
        give(&stream, &[0; ONE_SEGMENT + 1]).await.unwrap();
        assert!(stream.fd.nodelay().unwrap());
    })
    .await;
}

#[tokio::test]
async fn timers_fire_in_their_order_and_not_before_their_time() {
    with_poller(async |poller| {
        let begun = Instant::now();
        let after = |millis| poller.clock.now().after(Duration::from_millis(millis));
        let mut late = Timer::new(poller);
        let mut early = Timer::new(poller);
        let mut never = Timer::new(poller);
        late.set(after(60));
        early.set(after(5_000));
        never.set(after(20));
        // Earlier than any deadline that the poller sleeps for.
        early.set(after(30));
        never.clear();
        poll_fn(|cx| early.poll(cx)).await;
        assert!(begun.elapsed() >= Duration::from_millis(29));
        assert!(poll_fn(|cx| Poll::Ready(late.poll(cx))).await.is_pending());
        poll_fn(|cx| late.poll(cx)).await;
        assert!(begun.elapsed() >= Duration::from_millis(59));
        assert!(poll_fn(|cx| Poll::Ready(never.poll(cx))).await.is_pending());
        // An expired timer can be set again.
        late.set(after(5));
        poll_fn(|cx| late.poll(cx)).await;
    })
    .await;
}

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn what_arrived_before_a_deadline_was_noticed_is_seen_with_it() {
    let poller = Poller::new(Clock::start()).unwrap();
    let (ours, mut peer) = pair(&poller);
    let mut timer = Timer::new(&poller);
    timer.set(poller.clock.now().after(Duration::from_millis(200)));
    let mut events = Vec::with_capacity(EVENTS);
    let mut sleep = pin!(poller.sleep());
    let mut drive = |cx: &mut Context<'_>| {
        assert!(poller.drive(&mut events, sleep.as_mut(), cx).is_pending());
        Poll::Ready(())
    };
    // The socket can be written to, which is an event of its own.
    let_others_run().await;
    poll_fn(&mut drive).await;
    // The runtime looks at the sockets and the time, and only then do bytes come.
    tokio::time::sleep(Duration::from_millis(300)).await;
    peer.write_all(b"?").unwrap();
    // A busy kernel delivers them later.
    let mut arrived = [PollFd::new(&ours, PollFlags::IN)];
    poll(&mut arrived, None).unwrap();
    poll_fn(&mut drive).await;
    poll_fn(|cx| {
        assert!(timer.poll(cx).is_ready());
        assert!(ours.poll_readable(cx).is_ready());
        Poll::Ready(())
    })
    .await;
}
