//! Both ends, their owners, and what is on its way between them.

use super::super::wire::{TABLE_SIZE, WINDOW, block, settings};
use super::message::{Exchange, Held, Way, write};
use super::watch::Watch;
use super::*;

/// Both ends, and the requests between them.
#[derive(Debug)]
pub(super) struct World {
    client: Side,
    server: Side,
    exchanges: Vec<Exchange>,
    is_shut_down: bool,
}

/// One end, and its owner.
#[derive(Debug)]
struct Side {
    tested: Tested,
    watch: Watch,
    config: Config,
    /// Bytes that are on their way here.
    coming: Vec<u8>,
    /// The window that was stated last.
    stated: u32,
}

impl World {
    pub(super) fn new([client, server]: [Config; 2]) -> Self {
        let mut world = Self {
            client: Side::new(End::Client, client),
            server: Side::new(End::Server, server),
            exchanges: Vec::new(),
            is_shut_down: false,
        };
        world.flush(End::Client);
        world.flush(End::Server);
        world
    }

    fn side(&mut self, end: End) -> &mut Side {
        match end {
            End::Client => &mut self.client,
            End::Server => &mut self.server,
        }
    }

    fn core(&mut self, end: End) -> &mut Connection {
        &mut self.side(end).tested.connection
    }

    /// Puts the output of this end on its way.
    fn flush(&mut self, from: End) {
        let side = self.side(from);
        let bytes = side.tested.connection.output().to_vec();
        let half = bytes.len() / 3;
        side.tested.connection.advance(half);
        assert_eq!(side.tested.connection.output(), &bytes[half..]);
        side.tested.connection.advance(bytes.len() - half);
        side.watch.sends(&bytes);
        self.side(from.other()).coming.extend(bytes);
    }

    pub(super) fn does(&mut self, op: &Op) {
        match op {
            Op::Open { head, ends, length } => self.open(head, *ends, *length),
            Op::Respond {
                at,
                head,
                ends,
                length,
                is_interim,
            } => {
                if let Some(at) = self.at(*at) {
                    self.respond(at, head, *ends, *length, *is_interim);
                }
            }
            Op::Say {
                at,
                by,
                bytes,
                most,
            } => {
                if let Some(at) = self.at(*at) {
                    self.say(at, *by, *bytes, *most);
                }
            }
            Op::Finish { at, by, how } => {
                if let Some(at) = self.at(*at) {
                    self.finish(at, *by, how);
                }
            }
            Op::Move { to, bytes } => self.moves(*to, *bytes),
            Op::Read { at, by, released } => {
                if let Some(at) = self.at(*at) {
                    self.read(at, *by, *released);
                }
            }
            Op::Widen { at, by, target } => {
                if let Some(at) = self.at(*at)
                    && let Some(key) = self.exchanges[at].held(*by).key
                {
                    let held = self.exchanges[at].held(*by);
                    held.widest = held.widest.max(*target as usize);
                    self.core(*by).widen(key, *target);
                }
            }
            Op::Reset { at, by } => {
                if let Some(at) = self.at(*at) {
                    self.reset(at, *by);
                }
            }
            Op::Release { at, by } => {
                if let Some(at) = self.at(*at) {
                    self.release(at, *by);
                }
            }
            Op::Settings { by, window, table } => {
                let first = self.side(*by).config.window;
                self.state(*by, first / 4 * window, &[(TABLE_SIZE, *table)]);
            }
            Op::Ping { by } => self.core(*by).ping(),
            Op::Shrink { by } => self.core(*by).shrink(),
            Op::ShutDown => {
                self.is_shut_down = true;
                self.server.tested.connection.shut_down();
            }
        }
        self.flush(End::Client);
        self.flush(End::Server);
        self.keeps_its_limits(End::Client);
        self.keeps_its_limits(End::Server);
    }

    fn at(&self, at: Index) -> Option<usize> {
        (!self.exchanges.is_empty()).then(|| at.index(self.exchanges.len()))
    }

    /// The settings of this end change. The engine never does this, so the test writes the frame.
    fn state(&mut self, by: End, window: u32, others: &[(u16, u32)]) {
        let all = [&[(WINDOW, window), (777, 1)], others].concat();
        let bytes = settings(&all);
        let side = self.side(by);
        side.stated = window;
        side.watch.sends(&bytes);
        self.side(by.other()).coming.extend(bytes);
    }

    fn open(&mut self, fields: &Fields, ends: bool, length: Option<usize>) {
        let path = format!("/{}", self.exchanges.len());
        let length = length.filter(|_| !ends);
        let mut block = block(&[(":method", "POST"), (":scheme", "http"), (":path", &path)]);
        let most = self.server.config.max_head;
        let head = write(
            &mut crate::http2::Fields::new(&mut block),
            fields,
            length,
            most,
        );
        let widest = self.client.config.window as usize;
        let Some(key) = self.core(End::Client).request_stream(&block, ends, false) else {
            return;
        };
        self.exchanges.push(Exchange {
            client: Held {
                key: Some(key),
                unreleased: 0,
                widest,
            },
            up: Way {
                heads: vec![format!("POST {path}{head}")],
                announced: length,
                has_begun: true,
                is_sent: ends,
                finish: ends.then_some(Finish::Empty),
                ..Way::default()
            },
            ..Exchange::default()
        });
    }

    fn respond(
        &mut self,
        at: usize,
        fields: &Fields,
        ends: bool,
        length: Option<usize>,
        is_interim: bool,
    ) {
        let exchange = &mut self.exchanges[at];
        let Some(key) = exchange.server.key.filter(|_| !exchange.down.has_begun) else {
            return;
        };
        // Interim ones that nobody takes are a reason to end the stream.
        let is_interim = is_interim && exchange.down.heads.len() < 4;
        let (status, ends) = if is_interim {
            (103, false)
        } else {
            (200, ends)
        };
        let length = length.filter(|_| !ends && !is_interim);
        let mut head = String::new();
        let most = self.client.config.max_head;
        let server = &mut self.server.tested.connection;
        let result = server.respond(key, status, ends, |out| {
            head = write(&mut crate::http2::Fields::new(out), fields, length, most);
        });
        if result.is_ok() {
            let way = &mut exchange.down;
            way.heads.push(format!("{status}{head}"));
            if !is_interim {
                (way.has_begun, way.is_sent, way.announced) = (true, ends, length);
                way.finish = ends.then_some(Finish::Empty);
            }
        } else {
            assert!(server.reset_reason(key).is_some());
        }
    }

    fn say(&mut self, at: usize, by: End, bytes: usize, most: usize) {
        let way = self.exchanges[at].from(by);
        if way.finish.is_none() && way.has_begun {
            let bytes = way
                .announced
                .map_or(bytes, |announced| announced.min(bytes));
            way.announced = way.announced.map(|announced| announced - bytes);
            let begin = way.body.len();
            way.body
                .extend((begin..begin + bytes).map(|at| (at * 31 % 251).to_le_bytes()[0]));
        }
        self.pump(at, by, most);
    }

    fn finish(&mut self, at: usize, by: End, how: &Finish) {
        let rest = self.exchanges[at].from(by).announced.unwrap_or(0);
        self.say(at, by, rest, 0);
        let way = self.exchanges[at].from(by);
        if way.finish.is_none() && way.has_begun {
            way.finish = Some(how.clone());
        }
        self.pump(at, by, usize::MAX);
    }

    /// Sends what may be sent.
    fn pump(&mut self, at: usize, by: End, most: usize) {
        let most_head = self.side(by.other()).config.max_head;
        let exchange = &mut self.exchanges[at];
        let Some(key) = exchange.held(by).key else {
            return;
        };
        let core = match by {
            End::Client => &mut self.client.tested.connection,
            End::Server => &mut self.server.tested.connection,
        };
        let way = exchange.from(by);
        if way.is_sent || !way.has_begun {
            return;
        }
        let Ok(room) = core.room(key) else {
            return;
        };
        let count = room.min(most).min(way.body.len() - way.sent);
        let is_rest = way.sent + count == way.body.len();
        let finish = way.finish.take_if(|_| is_rest);
        let ends = matches!(finish, Some(Finish::WithBytes));
        let bytes = &way.body[way.sent..way.sent + count];
        core.send_body(key, bytes, ends).unwrap();
        way.sent += count;
        match &finish {
            None | Some(Finish::WithBytes) => {}
            Some(Finish::Empty) => core.send_body(key, b"", true).unwrap(),
            Some(Finish::Trailers(fields)) => {
                let mut text = String::new();
                let trailers =
                    core.send_trailers(key, |out| text = write(out, fields, None, most_head));
                trailers.unwrap();
                way.trailers = Some(text);
            }
        }
        if finish.is_some() {
            way.finish = finish;
            way.is_sent = true;
        }
    }

    /// So many bytes arrive at this end.
    fn moves(&mut self, to: End, bytes: usize) {
        let side = self.side(to);
        let most = bytes.min(side.coming.len());
        let bytes: Vec<u8> = side.coming.drain(..most).collect();
        side.watch.hears(&bytes);
        side.tested.gets(&bytes);
        // No frame asks for an answer that is more than half as long again.
        let answers = side.tested.connection.output().len();
        assert!(
            answers <= 2 * most + 26 * (1 + self.exchanges.len()),
            "{answers} to {most}"
        );
        let side = self.side(to);
        let keys = side.tested.requests();
        for key in keys {
            let id = self.server.tested.connection.streams.get(key).unwrap().id;
            let held = &mut self.exchanges[id as usize / 2].server;
            assert_eq!(held.key, None);
            held.key = Some(key);
            held.widest = self.server.config.window as usize;
        }
        self.flush(to);
        for at in 0..self.exchanges.len() {
            self.pump(at, to, usize::MAX);
        }
    }

    /// Takes all that has arrived of a message.
    fn read(&mut self, at: usize, by: End, released: usize) {
        let exchange = &mut self.exchanges[at];
        let Some(key) = exchange.held(by).key else {
            return;
        };
        let core = match by {
            End::Client => &mut self.client.tested.connection,
            End::Server => &mut self.server.tested.connection,
        };
        let way = exchange.from(by.other());
        while let Ok(Some(head)) = core.take_head(key) {
            assert!(!head.is_too_large());
            way.heard_heads.push(text(&head));
            core.recycle(head);
        }
        let bytes = core.take_body(key);
        way.heard_body.extend_from_slice(&bytes);
        assert!(way.body.starts_with(&way.heard_body));
        if core.body_end(key) == Ok(true) {
            if let Some(trailers) = core.take_trailers(key) {
                way.heard_trailers = text(&trailers).strip_prefix(' ').map(Into::into);
            }
            way.is_heard = true;
            assert!(core.is_read(key));
        }
        let reset = core.reset_reason(key);
        if reset == Some(Reset::Refused) {
            assert_eq!(
                exchange.server.key, None,
                "it was refused though it is served"
            );
            (exchange.up.is_cut, exchange.down.is_cut) = (true, true);
        }
        assert!(!matches!(reset, Some(Reset::Malformed)), "{reset:?}");
        let held = exchange.held(by);
        held.unreleased += bytes.len();
        let released = held.unreleased * released / 4;
        held.unreleased -= released;
        core.release_body(key, released);
    }

    fn reset(&mut self, at: usize, by: End) {
        let Some(key) = self.exchanges[at].held(by).key else {
            return;
        };
        let is_there = self.core(by).body_end(key) == Ok(true);
        let exchange = &mut self.exchanges[at];
        exchange.from(by).is_cut |= !exchange.from(by).is_sent;
        exchange.from(by.other()).is_cut |= !is_there;
        self.core(by).reset(key, ErrorCode::CANCEL);
        assert!(self.core(by).reset_reason(key).is_some() || is_there);
    }

    fn release(&mut self, at: usize, by: End) {
        let exchange = &mut self.exchanges[at];
        let Some(key) = exchange.held(by).key.take() else {
            return;
        };
        exchange.from(by).is_cut |= !exchange.from(by).is_sent;
        exchange.from(by.other()).is_cut |= !exchange.from(by.other()).is_heard;
        self.core(by).release(key);
    }

    /// What the engine holds is what its owner has allowed.
    fn keeps_its_limits(&mut self, end: End) {
        let exchanges = &mut self.exchanges;
        let Side { tested, config, .. } = match end {
            End::Client => &mut self.client,
            End::Server => &mut self.server,
        };
        let core = &mut tested.connection;
        if end == End::Server {
            let most = config.max_streams as usize;
            assert!(core.streams.open_count() <= most && core.streams() <= 2 * most);
        }
        // Until the peer has confirmed the settings, it may use the first window of the protocol.
        let first = if core.is_confirmed { 0 } else { 65_535 };
        let mut all = 0;
        for exchange in exchanges {
            let held = exchange.held(end);
            let Some(stream) = held.key.and_then(|key| core.streams.get(key)) else {
                continue;
            };
            let bytes = stream.body.len() + held.unreleased;
            all += bytes;
            let most = held.widest.max(first).max(65_535.min(bytes));
            assert!(bytes <= most, "{bytes} of {most}");
            assert!(
                stream.body.capacity() <= 2 * most.max(8),
                "{}",
                stream.body.capacity()
            );
            assert!(stream.window + stream.unreleased <= stream.target.max(65_535));
        }
        let widest: usize = self
            .exchanges
            .iter_mut()
            .map(|one| one.held(end).widest)
            .sum();
        assert!(all <= widest + 65_535, "{all} bytes on all streams");
    }

    /// Everybody says all, and reads all.
    pub(super) fn ends(mut self) {
        for end in [End::Client, End::Server] {
            let window = self.side(end).config.window;
            if self.side(end).stated != window {
                self.state(end, window, &[]);
            }
        }
        let mut before = String::new();
        loop {
            for end in [End::Client, End::Server] {
                self.moves(end, usize::MAX);
                for at in 0..self.exchanges.len() {
                    self.respond(at, &Fields::new(), false, None, false);
                    self.finish(at, end, &Finish::WithBytes);
                    self.read(at, end, 4);
                    self.flush(end);
                }
            }
            let now = format!(
                "{:?}",
                self.exchanges
                    .iter()
                    .map(Exchange::progress)
                    .collect::<Vec<_>>()
            );
            let is_moving =
                now != before || !self.client.coming.is_empty() || !self.server.coming.is_empty();
            before = now;
            if !is_moving {
                break;
            }
        }
        for (at, exchange) in self.exchanges.iter_mut().enumerate() {
            // The server may have refused what its client has given up.
            if exchange.down.is_cut && exchange.up.heard_heads.is_empty() {
                exchange.up.is_cut = true;
            }
            exchange.up.has_arrived(at, "request");
            exchange.down.has_arrived(at, "response");
        }
        assert_eq!(
            self.server.tested.connection.is_shut_down(),
            self.is_shut_down
        );
        assert_eq!(
            self.client.tested.connection.takes_requests(),
            !self.is_shut_down
        );
        for at in 0..self.exchanges.len() {
            self.release(at, End::Client);
            self.release(at, End::Server);
        }
        for end in [End::Client, End::Server] {
            self.flush(end);
            let core = self.core(end);
            core.shrink();
            assert_eq!(core.streams(), 0);
            assert!(memory::held(core) <= 512, "{}", memory::held(core));
        }
    }
}

impl Side {
    fn new(end: End, config: Config) -> Self {
        let role = match end {
            End::Client => Role::Client,
            End::Server => Role::Server,
        };
        let connection = match role {
            Role::Client => Connection::client(config),
            Role::Server => Connection::server(config),
        };
        Self {
            tested: Tested {
                connection,
                now: Moment(1000),
                events: Vec::new(),
            },
            watch: Watch::new(end == End::Client),
            config,
            coming: Vec::new(),
            stated: config.window,
        }
    }
}
