//! The relay against scripted sides with random behaviour, and against real sockets.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use ballast_core::plan::{SocketKey, Transport};
use ballast_core::rng::Rng;
use socket2::{SockRef, Socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use super::*;
use crate::os::sys;

mod wakes;

/// A side that reads its input and accepts writes, both in pieces of random size.
struct RandomSide {
    input: VecDeque<u8>,
    output: Arc<Mutex<Seen>>,
    dice: Rng,
    /// What follows the input: an orderly end, or this error.
    breaks: Option<io::ErrorKind>,
    /// How many bytes it accepts before it fails.
    accepts: usize,
}

#[derive(Default)]
struct Seen {
    bytes: Vec<u8>,
    shut: bool,
}

impl RandomSide {
    fn new(input: &[u8], seed: u64) -> (Self, Arc<Mutex<Seen>>) {
        let output = Arc::<Mutex<Seen>>::default();
        let side = Self {
            input: input.iter().copied().collect(),
            output: Arc::clone(&output),
            dice: Rng::new(seed),
            breaks: None,
            accepts: usize::MAX,
        };
        (side, output)
    }

    /// The size of the next piece; 0 means that the call is to return `Pending`.
    fn piece(&mut self, most: usize, cx: &Context<'_>) -> usize {
        let piece = usize::try_from(self.dice.below(most as u64 + 1)).unwrap();
        if piece == 0 {
            cx.waker().wake_by_ref();
        }
        piece
    }
}

impl AsyncRead for RandomSide {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.input.is_empty() {
            return Poll::Ready(self.breaks.map_or(Ok(()), |kind| Err(kind.into())));
        }
        let most = self.input.len().min(buffer.remaining()).min(40_000);
        let piece = self.piece(most, cx);
        if piece == 0 {
            return Poll::Pending;
        }
        let bytes: Vec<u8> = self.input.drain(..piece).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RandomSide {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.accepts == 0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let most = bytes.len().min(self.accepts);
        let piece = self.piece(most, cx);
        if piece == 0 {
            return Poll::Pending;
        }
        self.accepts -= piece;
        let mut seen = self.output.lock().unwrap();
        assert!(!seen.shut, "a byte came behind the end");
        seen.bytes.extend_from_slice(&bytes[..piece]);
        Poll::Ready(Ok(piece))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.output.lock().unwrap().shut = true;
        Poll::Ready(Ok(()))
    }
}

impl RelaySide for RandomSide {
    fn splice_socket(&self) -> Option<&Stream> {
        None
    }

    fn socket(&self) -> Option<&Stream> {
        None
    }
}

/// The resources of a worker with this many pipes.
fn tools(pipes: usize) -> Tools {
    let clock = Clock::start();
    Tools::new(clock, pipes, Poller::new(clock).unwrap())
}

/// A socket that is registered with the poller.
fn watched(stream: TcpStream, tools: &Tools) -> Stream {
    Stream::accepted(&tools.poller, stream.into_std().unwrap()).unwrap()
}

/// Runs `work` while the poller runs.
async fn beside_poller<T>(tools: &Tools, work: impl Future<Output = T>) -> T {
    tokio::select! {
        done = work => done,
        () = Rc::clone(&tools.poller).run() => panic!("the poller has ended"),
    }
}

const TIMEOUTS: RelayTimeouts = RelayTimeouts {
    idle: Some(Duration::from_secs(60)),
    half_closed: Duration::from_secs(30),
    abort: Duration::from_secs(30),
};

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The seeds of the schedules, and the upper bounds of their input lengths: the first ones as given, all others with few bytes,
/// which exercise the relay as well in less time. A million with FIGURES=1, which takes half a minute for each test; a
/// twentieth of that without.
fn schedules(first: impl Fn(u64) -> u64) -> impl Iterator<Item = (u64, u64)> {
    let all = if is_for_figures() { 1_000_000 } else { 50_000 };
    (0..all).map(move |seed| (seed, if seed < 2_000 { first(seed) } else { 48 }))
}

fn is_for_figures() -> bool {
    std::env::var_os("FIGURES").is_some()
}

#[tokio::test]
async fn no_schedule_of_partial_reads_and_writes_loses_or_reorders_a_byte() {
    let tools = tools(0);
    for (seed, longest) in schedules(|seed| if seed % 10 == 0 { 300_000 } else { 600 }) {
        let mut dice = Rng::new(seed);
        let mut length = || usize::try_from(dice.below(longest)).unwrap();
        let (first, up, down) = (
            noise(length() % 100, seed),
            noise(length(), !seed),
            noise(length(), seed << 32),
        );
        let (mut client, to_client) = RandomSide::new(&up, seed);
        let (mut server, to_server) = RandomSide::new(&down, seed ^ 0x5555);
        let mut counted = (0, 0);
        let closed = relay(
            &mut client,
            &mut server,
            first.clone(),
            TIMEOUTS,
            &tools,
            |up, down| {
                counted = (counted.0 + up, counted.1 + down);
            },
        )
        .await;
        assert_eq!(closed.why, Why::Finished, "seed {seed}");
        assert_eq!(
            (closed.up, closed.down),
            (up.len() as u64, down.len() as u64),
            "seed {seed}"
        );
        assert_eq!(counted, (closed.up, closed.down), "seed {seed}");
        let (to_client, to_server) = (to_client.lock().unwrap(), to_server.lock().unwrap());
        assert!(to_client.shut && to_server.shut, "seed {seed}");
        assert!(to_client.bytes == down, "seed {seed}");
        assert!(to_server.bytes == [first, up].concat(), "seed {seed}");
    }
}

#[tokio::test]
async fn a_side_that_breaks_is_an_abort_behind_all_that_it_said() {
    let tools = tools(0);
    for (seed, longest) in schedules(|seed| if seed < 500 { 20_000 } else { 600 }) {
        let mut dice = Rng::new(seed);
        let mut length = || usize::try_from(dice.below(longest)).unwrap();
        let (up, down) = (noise(length(), seed), noise(length(), !seed));
        let (mut client, to_client) = RandomSide::new(&up, seed);
        let (mut server, to_server) = RandomSide::new(&down, seed ^ 0x5555);
        client.breaks = Some(io::ErrorKind::ConnectionReset);
        let closed = relay(
            &mut client,
            &mut server,
            Vec::new(),
            TIMEOUTS,
            &tools,
            |_, _| {},
        )
        .await;
        assert_eq!(
            (closed.why, closed.by, closed.up),
            (Why::Aborted, closed.by, up.len() as u64),
            "seed {seed}"
        );
        let (to_client, to_server) = (to_client.lock().unwrap(), to_server.lock().unwrap());
        assert!(to_server.bytes == up, "seed {seed}");
        assert!(!to_server.shut, "an abort is no end: seed {seed}");
        assert!(down.starts_with(&to_client.bytes), "seed {seed}");
    }
}

#[tokio::test]
async fn a_side_that_takes_no_more_is_still_heard_to_its_end() {
    let tools = tools(0);
    for (seed, longest) in schedules(|seed| if seed < 500 { 20_000 } else { 600 }) {
        let mut dice = Rng::new(seed);
        let mut length = || usize::try_from(dice.below(longest)).unwrap();
        let (up, down) = (noise(1 + length(), seed), noise(length(), !seed));
        let (mut client, to_client) = RandomSide::new(&up, seed);
        let (mut server, to_server) = RandomSide::new(&down, seed ^ 0x5555);
        server.accepts = length() % up.len();
        let accepts = server.accepts;
        let closed = relay(
            &mut client,
            &mut server,
            Vec::new(),
            TIMEOUTS,
            &tools,
            |_, _| {},
        )
        .await;
        assert_eq!(closed.why, Why::Aborted, "seed {seed}");
        let (to_client, to_server) = (to_client.lock().unwrap(), to_server.lock().unwrap());
        assert!(to_server.bytes == up[..accepts], "seed {seed}");
        assert!(to_client.bytes == down, "seed {seed}");
    }
}

/// Splicing needs real sockets: these have small buffers, and random turns of the peers. There are fewer of these schedules,
/// because each leaves ports behind that stay in TIME_WAIT for a minute.
#[tokio::test]
async fn no_schedule_of_spliced_bulk_loses_or_reorders_a_byte() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Also without pipes, and with one pipe for two directions.
    let tools = [2, 1, 0].map(tools);
    let (mut moved, mut spliced) = (0, 0);
    for seed in 0..if is_for_figures() { 5_000 } else { 500 } {
        let mut dice = Rng::new(seed);
        let mut length = || usize::try_from(dice.below(200_000)).unwrap();
        let (first, up, down) = (
            noise(length() / 100, seed),
            noise(length(), !seed),
            noise(length(), seed << 32),
        );
        let tools = &tools[usize::try_from(seed % 3).unwrap()];
        let (client, ours_to_client) = narrow_pair(&listener, &mut dice).await;
        let (ours_to_server, server) = narrow_pair(&listener, &mut dice).await;
        // The sockets are closed as soon as the relay has ended.
        let relaying = async {
            let mut client = watched(ours_to_client, tools);
            let mut server = watched(ours_to_server, tools);
            let first = first.clone();
            relay(&mut client, &mut server, first, TIMEOUTS, tools, |_, _| {}).await
        };
        let relaying = beside_poller(tools, relaying);
        let (closed, to_server, to_client) = tokio::join!(
            relaying,
            converse(server, &down, seed),
            converse(client, &up, !seed)
        );
        assert_eq!(closed.why, Why::Finished, "seed {seed}");
        assert!(to_client == down, "seed {seed}");
        assert!(to_server == [first, up].concat(), "seed {seed}");
        if seed % 3 == 0 {
            moved += closed.up + closed.down;
        }
        spliced += tools.pipes.take_spliced();
    }
    assert!(spliced > moved / 4, "{spliced} of {moved}");
}

/// Two connected sockets with small send buffers. With small receive buffers, the kernel would sometimes wait for a fifth of a
/// second.
async fn narrow_pair(listener: &TcpListener, dice: &mut Rng) -> (TcpStream, TcpStream) {
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    let pair = (near.unwrap(), far.unwrap().0);
    for end in [&pair.0, &pair.1] {
        let room = 16_384 << dice.below(4);
        SockRef::from(end).set_send_buffer_size(room).unwrap();
    }
    pair
}

/// Sends these bytes and receives everything, both in pieces and with random pauses.
async fn converse(mut stream: TcpStream, says: &[u8], seed: u64) -> Vec<u8> {
    let (mut reading, mut writing) = stream.split();
    let saying = async {
        let (mut dice, mut left) = (Rng::new(seed), says);
        while !left.is_empty() {
            let piece = piece(&mut dice).min(left.len());
            writing.write_all(&left[..piece]).await.unwrap();
            left = &left[piece..];
            pause(&mut dice).await;
        }
        writing.shutdown().await.unwrap();
    };
    let hearing = async {
        let (mut dice, mut heard) = (Rng::new(seed ^ 0x5555), Vec::new());
        loop {
            let most = piece(&mut dice);
            if (&mut reading)
                .take(most as u64)
                .read_buf(&mut heard)
                .await
                .unwrap()
                == 0
            {
                return heard;
            }
            pause(&mut dice).await;
        }
    };
    tokio::join!(saying, hearing).1
}

/// Lengths of all relevant sizes: within one read, too small for a pipe, and for several pipes.
fn piece(dice: &mut Rng) -> usize {
    let most = [600, 9_000, 100_000][usize::try_from(dice.below(3)).unwrap()];
    1 + usize::try_from(dice.below(most)).unwrap()
}

async fn pause(dice: &mut Rng) {
    match dice.below(100) {
        0 => sleep(Duration::from_millis(1)).await,
        1..30 => tokio::task::yield_now().await,
        _ => {}
    }
}

/// Two connected sockets.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (far, _) = listener.accept().await.unwrap();
    (near, far)
}

/// A client and a server joined by a relay, and the relay's result.
async fn relayed(
    timeouts: RelayTimeouts,
) -> (TcpStream, TcpStream, tokio::task::JoinHandle<(Closed, u64)>) {
    let (client, ours_to_client) = pair().await;
    let (ours_to_server, server) = pair().await;
    let relaying = std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(async {
                let tools = tools(8);
                let mut client = watched(ours_to_client, &tools);
                let mut server = watched(ours_to_server, &tools);
                let relaying = relay(
                    &mut client,
                    &mut server,
                    Vec::new(),
                    timeouts,
                    &tools,
                    |_, _| {},
                );
                let closed = beside_poller(&tools, relaying).await;
                (closed, tools.pipes.take_spliced())
            })
    });
    let ended = tokio::task::spawn_blocking(|| relaying.join().unwrap());
    (client, server, ended)
}

#[tokio::test]
async fn a_half_closed_connection_still_gets_its_answer() {
    let (mut client, mut server, ended) = relayed(TIMEOUTS).await;
    client.write_all(b"?").await.unwrap();
    client.shutdown().await.unwrap();
    let mut question = Vec::new();
    server.read_to_end(&mut question).await.unwrap();
    let answer = noise(1 << 20, 1);
    server.write_all(&answer).await.unwrap();
    drop(server);
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert!(heard == answer);
    drop(client);
    let (closed, _) = ended.await.unwrap();
    assert_eq!((closed.why, closed.by), (Why::Finished, Some(Side::Client)));
}

#[tokio::test]
async fn the_leg_to_the_endpoint_is_watched_once_a_connection_has_lasted() {
    let (client, ours_to_client) = pair().await;
    let (ours_to_server, server) = pair().await;
    let side = ours_to_server.into_std().unwrap();
    let seen = Socket::from(side.try_clone().unwrap());
    let tools = Tools {
        long_lived_after: Duration::from_millis(50),
        ..tools(0)
    };
    let timeouts = RelayTimeouts {
        idle: None,
        ..TIMEOUTS
    };
    let mut client_side = watched(ours_to_client, &tools);
    let mut server_side = Stream::accepted(&tools.poller, side).unwrap();
    let relaying = relay(
        &mut client_side,
        &mut server_side,
        Vec::new(),
        timeouts,
        &tools,
        |_, _| {},
    );
    let mut relaying = pin!(beside_poller(&tools, relaying));
    assert!(!seen.keepalive().unwrap());
    let watched = async {
        while !seen.keepalive().unwrap() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        closed = &mut relaying => panic!("{closed:?}"),
        () = watched => {}
    }
    assert_eq!(
        seen.tcp_user_timeout().unwrap(),
        Some(Duration::from_secs(60))
    );
    assert_asked(&seen);
    drop((client, server));
    assert_eq!(relaying.await.why, Why::Finished);
}

#[test]
fn the_leg_to_the_client_is_watched_from_the_first_moment() {
    let key = SocketKey {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        transport: Transport::Tcp,
        asked_by: None,
    };
    let listening = crate::net::listen::open(&key, 1, None).unwrap();
    let address = listening[0].local_addr().unwrap();
    let _client = std::net::TcpStream::connect(address.as_socket().unwrap()).unwrap();
    // It does not wait for bytes that are already on their way.
    listening[0].set_nonblocking(false).unwrap();
    let (side, _) = listening[0].accept().unwrap();
    assert!(side.keepalive().unwrap());
    assert_asked(&side);
}

/// The kernel probes a peer that is silent for half a minute every ten seconds.
fn assert_asked(side: &Socket) {
    let times = (side.tcp_keepalive_time(), side.tcp_keepalive_interval());
    assert_eq!(times.0.unwrap(), Duration::from_secs(30));
    assert_eq!(times.1.unwrap(), Duration::from_secs(10));
}

#[tokio::test]
async fn bulk_is_spliced_and_arrives_whole() {
    let (client, mut server, ended) = relayed(TIMEOUTS).await;
    let sent = noise(32 << 20, 2);
    let expected = sent.clone();
    let writing = tokio::spawn(async move {
        let mut client = client;
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
        client
    });
    let mut heard = Vec::new();
    server.read_to_end(&mut heard).await.unwrap();
    assert!(heard == expected);
    drop((server, writing.await.unwrap()));
    let (closed, spliced) = ended.await.unwrap();
    assert_eq!(closed.why, Why::Finished);
    assert!(
        spliced > closed.up / 2,
        "only {spliced} of {} were spliced",
        closed.up
    );
}

#[tokio::test]
async fn a_reset_is_passed_on_behind_the_bytes_before_it() {
    let (mut client, mut server, ended) = relayed(TIMEOUTS).await;
    let sent = noise(100 << 10, 3);
    server.write_all(&sent).await.unwrap();
    while sys::unacknowledged(&server).unwrap() > 0 {
        tokio::task::yield_now().await;
    }
    SockRef::from(&server)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(server);
    let mut heard = Vec::new();
    let end = client.read_to_end(&mut heard).await;
    assert!(
        heard == sent,
        "{} of {} bytes came",
        heard.len(),
        sent.len()
    );
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    let (closed, _) = ended.await.unwrap();
    assert_eq!((closed.why, closed.by), (Why::Aborted, Some(Side::Server)));
}

#[tokio::test]
async fn an_answer_before_the_end_of_an_upload_is_read() {
    let (mut client, mut server, ended) = relayed(TIMEOUTS).await;
    let (mut reading, mut writing) = client.split();
    let upload = async {
        let block = vec![0; 64 << 10];
        for _ in 0..160 {
            writing.write_all(&block).await?;
        }
        Ok::<_, io::Error>(())
    };
    let answer = async {
        server.read_u8().await.unwrap();
        server.write_all(b"too large").await.unwrap();
        drop(server);
    };
    let mut heard = Vec::new();
    let (end, uploaded, ()) = tokio::join!(reading.read_to_end(&mut heard), upload, answer);
    assert_eq!(heard, b"too large");
    // The kernel reports a reset once, to the first call.
    assert!(
        end.is_err() || uploaded.is_err(),
        "an aborted upload is no clean end"
    );
    assert_eq!(ended.await.unwrap().0.why, Why::Aborted);
}

#[tokio::test]
async fn who_never_closes_after_the_others_end_is_reaped_but_not_while_bytes_drip() {
    let half_closed = Duration::from_millis(300);
    let timeouts = RelayTimeouts {
        half_closed,
        ..TIMEOUTS
    };
    let (mut client, mut server, ended) = relayed(timeouts).await;
    client.shutdown().await.unwrap();
    let mut drop_of = [0];
    let begun = Instant::now();
    while begun.elapsed() < half_closed * 3 {
        sleep(half_closed / 3).await;
        server.write_all(&[7]).await.unwrap();
        client.read_exact(&mut drop_of).await.unwrap();
    }
    assert_eq!(
        client.read(&mut drop_of).await.unwrap_err().kind(),
        io::ErrorKind::ConnectionReset
    );
    let (closed, _) = ended.await.unwrap();
    assert_eq!(
        (closed.why, closed.by),
        (Why::HalfClosed, Some(Side::Client))
    );
}

#[tokio::test]
async fn an_idle_connection_ends_after_its_time() {
    let timeouts = RelayTimeouts {
        idle: Some(Duration::from_millis(200)),
        ..TIMEOUTS
    };
    let begun = Instant::now();
    let (mut client, mut server, ended) = relayed(timeouts).await;
    assert!(client.read_u8().await.is_err());
    assert!(server.read_u8().await.is_err());
    assert_eq!(ended.await.unwrap().0.why, Why::Idle);
    assert!(begun.elapsed() >= Duration::from_millis(200));
}
