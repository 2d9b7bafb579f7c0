//! HTTP/2 on connections that stay, several streams at once on each: requests, calls of gRPC, or bodies that never end. Closed
//! loop: a stream that is answered is followed by the next one. All that one wake-up finds to say leaves in one write.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{self, RecvFlags};
use rustls::client::ClientConnection;
use serde_json::Value;

use crate::client::{self, Dialer, Meter};
use crate::http2::{self, Block, Frame, Inbox};
use crate::load::{Kind, Load};
use crate::poll::{self, EventFlags, Poll};
use crate::protocol::Protocol;
use crate::tls::{Socket, unless_blocked};
use crate::{http, origin_http2};

/// Asks, or receives, for one window.
pub(crate) fn run(load: &Load) -> io::Result<Value> {
    let mut multiplexed = Multiplexed::open(load)?;
    let mut meter = Meter::new(load);
    while !meter.is_over() {
        multiplexed.turn(&mut meter)?;
    }
    Ok(meter.finish())
}

struct Multiplexed {
    poll: Poll,
    connections: Vec<Option<Connection>>,
    standing: usize,
    /// Connections whose budget ended before their bytes did.
    again: Vec<usize>,
    ask: Ask,
}

/// The request that each stream sends, and the answer that it expects.
struct Ask {
    head: Block,
    body: Vec<u8>,
    /// The length of the answer's body; `None`: it has no end, and the unit is a byte of it.
    answer: Option<usize>,
}

struct Connection {
    wire: Wire,
    inbox: Inbox,
    talk: Talk,
}

/// The socket, with TLS or without.
struct Wire {
    fd: OwnedFd,
    session: Option<ClientConnection>,
}

/// The state of HTTP/2 on one connection, apart from its socket and its unread bytes.
struct Talk {
    /// Frames that are not sent yet.
    out: Vec<u8>,
    streams: Vec<Stream>,
    next: u32,
    /// Bytes of bodies that the other side takes.
    credit: u32,
    /// Received bytes whose window is not given back yet.
    owed: u32,
}

struct Stream {
    id: u32,
    since: Instant,
    begun: bool,
    received: usize,
    owed: u32,
}

impl Multiplexed {
    fn open(load: &Load) -> io::Result<Self> {
        let (poll, ask) = (Poll::new()?, Ask::of(load));
        let dialer = Dialer::new(load.to, load.protocol)?;
        let mut connections = Vec::new();
        for token in 0..load.connections {
            let (fd, session) = (client::connect(load.to)?, dialer.session()?);
            poll.add_stream(&fd, token)?;
            let mut connection = Connection {
                wire: Wire { fd, session },
                inbox: Inbox::new(),
                talk: Talk::begin(),
            };
            for _ in 0..load.streams {
                connection.talk.ask(&ask)?;
            }
            connection.wire.send(&mut connection.talk.out)?;
            connections.push(Some(connection));
        }
        let standing = connections.len();
        let again = Vec::new();
        Ok(Self {
            poll,
            connections,
            standing,
            again,
            ask,
        })
    }

    fn turn(&mut self, meter: &mut Meter<'_>) -> io::Result<()> {
        let patience = match self.again.is_empty() {
            true => TURN,
            false => Duration::ZERO,
        };
        let ready = self.poll.wait(Some(patience))?;
        let mut busy: Vec<(usize, EventFlags)> =
            (0..ready).map(|index| self.poll.event(index)).collect();
        for token in std::mem::take(&mut self.again) {
            if busy.iter().all(|(known, _)| *known != token) {
                busy.push((token, EventFlags::empty()));
            }
        }
        for (token, flags) in busy {
            self.serve(token, flags, meter);
        }
        match self.standing {
            0 => Err(io::Error::other("every connection broke")),
            _ => Ok(()),
        }
    }

    fn serve(&mut self, token: usize, flags: EventFlags, meter: &mut Meter<'_>) {
        let Some(slot) = self.connections.get_mut(token) else {
            return;
        };
        let Some(connection) = slot else {
            return;
        };
        match connection.work(flags, &self.ask, meter) {
            Ok(true) => {}
            Ok(false) => self.again.push(token),
            Err(_) => {
                meter.count_error();
                *slot = None;
                self.standing -= 1;
            }
        }
    }
}

impl Connection {
    /// Does what an event allows; `false`: there is more to receive.
    fn work(&mut self, flags: EventFlags, ask: &Ask, meter: &mut Meter<'_>) -> io::Result<bool> {
        let mut is_empty = false;
        for _ in 0..BUDGET {
            let space = self.inbox.space();
            let room = space.len();
            let Some(length) = self.wire.receive(space)? else {
                is_empty = true;
                break;
            };
            // A short read has emptied the socket; TLS has records behind the one that was read.
            is_empty = self.wire.session.is_none() && length < room && !poll::is_closing(flags);
            self.inbox.fill(length);
            while let Some(frame) = self.inbox.frame() {
                self.talk.hear(&frame, ask, meter)?;
            }
            if is_empty {
                break;
            }
        }
        self.wire.send(&mut self.talk.out)?;
        Ok(is_empty)
    }
}

impl Wire {
    /// Reads once; `None`: nothing is there now.
    fn receive(&mut self, space: &mut [u8]) -> io::Result<Option<usize>> {
        let length = match &mut self.session {
            None => match net::recv(&self.fd, &mut *space, RecvFlags::empty()) {
                Ok((_, length)) => Some(length),
                Err(Errno::AGAIN) => None,
                Err(errno) => return Err(errno.into()),
            },
            Some(session) => loop {
                if let Some(length) = unless_blocked(session.reader().read(space))? {
                    break Some(length);
                }
                match unless_blocked(session.read_tls(&mut Socket(&self.fd)))? {
                    Some(0) => break Some(0),
                    Some(_) => {
                        session.process_new_packets().map_err(io::Error::other)?;
                    }
                    None => break None,
                }
            },
        };
        match length {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            length => Ok(length),
        }
    }

    /// Sends what the other side takes, and removes it from `out`.
    fn send(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(session) = &mut self.session else {
            if !out.is_empty() {
                let taken = unless_blocked(Socket(&self.fd).write(out))?;
                out.drain(..taken.unwrap_or_default());
            }
            return Ok(());
        };
        let taken = session.writer().write(out)?;
        out.drain(..taken);
        let mut socket = Socket(&self.fd);
        while session.wants_write() && unless_blocked(session.write_tls(&mut socket))?.is_some() {}
        Ok(())
    }
}

impl Talk {
    fn begin() -> Self {
        let mut settings = vec![0, http2::ENABLE_PUSH, 0, 0, 0, 0];
        settings.extend([0, http2::INITIAL_WINDOW_SIZE]);
        settings.extend(STREAM_WINDOW.to_be_bytes());
        let mut out = http2::PREFACE.to_vec();
        http2::put(&mut out, http2::SETTINGS, 0, 0, &settings);
        http2::put_window(&mut out, 0, CONNECTION_WINDOW - http2::FIRST_WINDOW);
        let (streams, next, credit, owed) = (Vec::new(), 1, http2::FIRST_WINDOW, 0);
        Self {
            out,
            streams,
            next,
            credit,
            owed,
        }
    }

    #[inline]
    fn ask(&mut self, ask: &Ask) -> io::Result<()> {
        let id = self.next;
        self.next += 2;
        let block = match id {
            1 => &ask.head.first,
            _ => &ask.head.later,
        };
        let flags = match ask.body.is_empty() {
            true => http2::END_STREAM | http2::END_HEADERS,
            false => http2::END_HEADERS,
        };
        http2::put(&mut self.out, http2::HEADERS, flags, id, block);
        if !ask.body.is_empty() {
            let length = u32::try_from(ask.body.len()).map_err(io::Error::other)?;
            let credit = self.credit.checked_sub(length);
            self.credit =
                credit.ok_or_else(|| io::Error::other("the window for bodies is shut"))?;
            http2::put(&mut self.out, http2::DATA, http2::END_STREAM, id, &ask.body);
        }
        let (begun, received, owed) = (false, 0, 0);
        self.streams.push(Stream {
            id,
            since: Instant::now(),
            begun,
            received,
            owed,
        });
        Ok(())
    }

    #[inline]
    fn hear(&mut self, frame: &Frame<'_>, ask: &Ask, meter: &mut Meter<'_>) -> io::Result<()> {
        match frame.kind {
            http2::DATA | http2::HEADERS => self.hear_answer(frame, ask, meter),
            http2::RST_STREAM => self.finish(frame.stream, false, ask, meter),
            http2::GOAWAY => Err(io::Error::other("the other side goes away")),
            http2::WINDOW_UPDATE if frame.stream == 0 => {
                self.credit = self.credit.saturating_add(frame.increment());
                Ok(())
            }
            http2::SETTINGS
                if frame
                    .table_size()
                    .is_some_and(|size| size < http2::FIRST_TABLE) =>
            {
                Err(io::Error::other(
                    "the other side shrinks the table of fields",
                ))
            }
            _ => {
                http2::put_acknowledgement(&mut self.out, frame);
                Ok(())
            }
        }
    }

    #[inline]
    fn hear_answer(
        &mut self,
        frame: &Frame<'_>,
        ask: &Ask,
        meter: &mut Meter<'_>,
    ) -> io::Result<()> {
        let Some(stream) = self
            .streams
            .iter_mut()
            .find(|stream| stream.id == frame.stream)
        else {
            return Err(io::Error::other("an answer to nothing"));
        };
        if frame.kind == http2::HEADERS {
            stream.begun |= frame.has_status_200();
        } else {
            stream.received += frame.payload.len();
            let length = u32::try_from(frame.payload.len()).map_err(io::Error::other)?;
            stream.owed += length;
            self.owed += length;
            if stream.owed >= STREAM_WINDOW / 2 {
                http2::put_window(&mut self.out, stream.id, std::mem::take(&mut stream.owed));
            }
            if self.owed >= CONNECTION_WINDOW / 2 {
                http2::put_window(&mut self.out, 0, std::mem::take(&mut self.owed));
            }
            if ask.answer.is_none() {
                meter.count(frame.payload.len());
            }
        }
        if !frame.ends_stream() {
            return Ok(());
        }
        let is_good = stream.begun && ask.answer == Some(stream.received);
        self.finish(frame.stream, is_good, ask, meter)
    }

    #[inline]
    fn finish(
        &mut self,
        id: u32,
        is_good: bool,
        ask: &Ask,
        meter: &mut Meter<'_>,
    ) -> io::Result<()> {
        let Some(place) = self.streams.iter().position(|stream| stream.id == id) else {
            return Ok(());
        };
        let stream = self.streams.swap_remove(place);
        match is_good {
            true => meter.count_latency(stream.since.elapsed()),
            false => meter.count_error(),
        }
        self.ask(ask)
    }
}

impl Ask {
    fn of(load: &Load) -> Self {
        match (load.protocol, load.kind) {
            (Protocol::Grpc, _) => Self {
                head: Block::new(&[http2::METHOD_POST, http2::SCHEME_HTTP], &CALL, 0),
                body: origin_http2::MESSAGE.to_vec(),
                answer: Some(origin_http2::MESSAGE.len()),
            },
            (_, Kind::Download) => Self {
                head: Self::page(http2::SCHEME_HTTPS, http2::PATH_OF_ENDLESS),
                body: Vec::new(),
                answer: None,
            },
            _ => Self {
                head: Self::page(http2::SCHEME_HTTP, http2::PATH_OF_ITEM),
                body: Vec::new(),
                answer: Some(http::ANSWER_BODY),
            },
        }
    }

    fn page(scheme: u8, path: &[u8]) -> Block {
        Block::new(&[&[http2::METHOD_GET, scheme], path].concat(), &PAGE, 0)
    }
}

/// The fields of a browser's request, beside method, scheme and path.
const PAGE: [(&str, &str); 11] = [
    (":authority", http::HOST),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    ),
    (
        "accept",
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    ),
    ("accept-language", "en-US,en;q=0.9"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("referer", "https://bench.example/svc/index.html"),
    ("cookie", "session=5d41402abc4b2a76b9719d911017c592"),
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-mode", "cors"),
    ("sec-fetch-dest", "empty"),
    ("cache-control", "no-cache"),
];

/// The fields of a call, beside method and scheme.
const CALL: [(&str, &str); 6] = [
    (":path", "/bench.Bench/Echo"),
    (":authority", http::HOST),
    ("content-type", "application/grpc"),
    ("user-agent", "grpc-go/1.75.0"),
    ("te", "trailers"),
    ("grpc-accept-encoding", "gzip"),
];

/// The windows of a common browser.
const STREAM_WINDOW: u32 = 6 * 1024 * 1024;
const CONNECTION_WINDOW: u32 = 15 * 1024 * 1024;
/// Reads of one connection in one turn.
const BUDGET: usize = 16;
/// How long a turn waits at most, so that the window ends in time where nothing happens.
const TURN: Duration = Duration::from_millis(20);
