//! HTTP/2 frame by frame, for peers of the test's own: as client and as endpoint. The test decides every byte that is sent. What the
//! other side sends must keep to RFC 9113, or the test fails.
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

mod checks;
mod endpoint;
mod frames;
mod hpack;

pub use endpoint::{Endpoint, Heard};
pub use frames::*;
pub use hpack::{Fields, encode};

/// One end of a connection.
pub struct Raw<S = TcpStream> {
    pub stream: S,
    /// Whether DATA gives its windows back as soon as it is read.
    pub gives_back: bool,
    /// Whether SETTINGS and PING are answered as soon as they are read.
    pub answers: bool,
    is_client: bool,
    held: Vec<u8>,
    decoder: hpack::Decoder,
    /// What was read while something else was awaited.
    aside: VecDeque<Event>,
    peer: PeerSettings,
    /// How many bytes may be sent by the connection.
    room: i64,
    /// How many bytes the other side may send by the connection.
    allowance: i64,
    /// The initial window that was announced to the other side, and whether that has confirmed it.
    initial: i64,
    is_confirmed: bool,
    streams: BTreeMap<u32, Stream>,
}

/// What the other side has said of itself.
#[derive(Clone, Copy, Debug)]
pub struct PeerSettings {
    pub initial_window: i64,
    /// `None`: it has set no limit.
    pub max_streams: Option<u32>,
}

#[derive(Debug)]
struct Stream {
    /// How many bytes may be sent.
    room: i64,
    /// How many bytes the other side has sent, and how many beyond the initial window it may send.
    received: i64,
    granted: i64,
    has_head: bool,
    has_ended: bool,
    is_reset: bool,
}

/// What the other side has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Settings(Vec<(u16, u32)>),
    SettingsAck,
    /// A head, or trailers.
    Head {
        stream: u32,
        fields: Fields,
        ends: bool,
    },
    Data {
        stream: u32,
        bytes: Vec<u8>,
        ends: bool,
    },
    Reset {
        stream: u32,
        code: u32,
    },
    Ping([u8; 8]),
    Pong([u8; 8]),
    GoAway {
        last: u32,
        code: u32,
    },
    Window {
        stream: u32,
        by: u32,
    },
    /// The connection has ended.
    End,
}

/// A whole request or response, or what came of it.
#[derive(Default)]
pub struct Message {
    pub fields: Fields,
    pub body: Vec<u8>,
    pub trailers: Option<Fields>,
    /// The code of the reset that ended it.
    pub reset: Option<u32>,
    /// Whether the connection ended in the middle of it.
    pub is_cut: bool,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begins: String = self.text().chars().take(300).collect();
        f.debug_struct("Message")
            .field("fields", &self.fields)
            .field("length", &self.body.len())
            .field("body", &begins)
            .field("trailers", &self.trailers)
            .field("reset", &self.reset)
            .field("is_cut", &self.is_cut)
            .finish()
    }
}

impl Message {
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.fields, name)
    }

    /// The status of a response; 0: there is none.
    pub fn status(&self) -> u16 {
        let status = self.field(":status").map(str::parse);
        status.map_or(0, |status| status.expect("a number"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Raw {
    /// A client's connection with the usual settings. Nothing of the other side has been read yet.
    pub fn to(address: SocketAddr) -> Self {
        Self::with(address, &[])
    }

    /// A client's connection with these settings.
    pub fn with(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        Self::client_over(stream, settings)
    }

    /// How long a read may take before the test fails.
    pub fn patience(&self, patience: Duration) {
        let set = self.stream.set_read_timeout(Some(patience));
        set.expect("an option");
    }
}

impl<S: Read + Write> Raw<S> {
    pub fn client_over(stream: S, settings: &[(u16, u32)]) -> Self {
        let mut raw = Self::new(stream, true, settings);
        raw.send(&[PREFACE, &settings_frame(settings)].concat());
        raw
    }

    /// The other end of it. `None`: the client does not speak HTTP/2.
    pub fn endpoint_over(stream: S, settings: &[(u16, u32)]) -> Option<Self> {
        let mut raw = Self::new(stream, false, settings);
        raw.send(&settings_frame(settings));
        while raw.held.len() < PREFACE.len() {
            if raw.fill().ok()? == 0 {
                return None;
            }
        }
        raw.held.starts_with(PREFACE).then_some(())?;
        raw.held.drain(..PREFACE.len());
        Some(raw)
    }

    fn new(stream: S, is_client: bool, settings: &[(u16, u32)]) -> Self {
        let initial = settings.iter().find(|(name, _)| *name == INITIAL_WINDOW);
        Self {
            stream,
            gives_back: true,
            answers: true,
            is_client,
            held: Vec::new(),
            decoder: hpack::Decoder::default(),
            aside: VecDeque::new(),
            peer: PeerSettings {
                initial_window: DEFAULT_WINDOW,
                max_streams: None,
            },
            room: DEFAULT_WINDOW,
            allowance: DEFAULT_WINDOW,
            initial: initial.map_or(DEFAULT_WINDOW, |(_, value)| i64::from(*value)),
            is_confirmed: false,
            streams: BTreeMap::new(),
        }
    }

    /// Sends bytes as they are. An end of the connection is seen by who reads.
    pub fn send(&mut self, bytes: &[u8]) {
        let sent = self.stream.write_all(bytes);
        if let Err(error) = sent.and_then(|()| self.stream.flush()) {
            let ended = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
            assert!(ended.contains(&error.kind()), "a peer that reads: {error}");
        }
    }

    /// Sends a head, or trailers, in one frame.
    pub fn head<N: AsRef<str>, V: AsRef<str>>(
        &mut self,
        stream: u32,
        fields: &[(N, V)],
        ends: bool,
    ) {
        let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
        self.opens(stream);
        self.send(&frame(HEADERS, flags, stream, &encode(fields)));
    }

    /// Sends a request without a body.
    pub fn get(&mut self, stream: u32, path: &str) {
        self.head(stream, &request("GET", path), true);
    }

    /// Asks by as many streams as the other side allows, a hundred at most.
    pub fn ask_for_many(&mut self) -> Vec<u32> {
        let most = self.until_settings().max_streams.unwrap_or(100);
        let streams: Vec<u32> = (1..).step_by(2).take(most.min(100) as usize).collect();
        for stream in &streams {
            self.get(*stream, "/");
        }
        streams
    }

    /// Takes note of a stream whose first frame the test sends by itself.
    pub fn opens(&mut self, stream: u32) {
        let room = self.peer.initial_window;
        self.streams
            .entry(stream)
            .or_insert_with(|| Stream::new(room));
    }

    /// Sends DATA in one frame, whatever the windows are.
    pub fn data(&mut self, stream: u32, bytes: &[u8], ends: bool) {
        self.spend(stream, bytes.len());
        let flags = if ends { END_STREAM } else { 0 };
        self.send(&frame(DATA, flags, stream, bytes));
    }

    /// Sends DATA with so many bytes of padding, whatever the windows are.
    pub fn padded(&mut self, stream: u32, bytes: &[u8], padding: u8, ends: bool) {
        self.spend(stream, bytes.len() + 1 + usize::from(padding));
        let flags = PADDED | if ends { END_STREAM } else { 0 };
        let zeros = vec![0; usize::from(padding)];
        let payload = [&[padding], bytes, &zeros].concat();
        self.send(&frame(DATA, flags, stream, &payload));
    }

    /// Sends a body as the windows allow, reading meanwhile.
    pub fn body(&mut self, stream: u32, mut bytes: &[u8], ends: bool) {
        while !bytes.is_empty() {
            let room = self.until_room(stream, 1);
            let (now, later) = bytes.split_at(room.min(MAX_FRAME).min(bytes.len()));
            self.data(stream, now, ends && later.is_empty());
            bytes = later;
        }
    }

    /// Waits until so many bytes may be sent; how many may be.
    pub fn until_room(&mut self, stream: u32, least: usize) -> usize {
        loop {
            if let Ok(room) = usize::try_from(self.room(stream))
                && room >= least
            {
                return room;
            }
            let event = self.read();
            let is_over = matches!(&event, Event::Reset { stream: of, .. } if *of == stream)
                || event == Event::End;
            assert!(!is_over, "there is no room for a body: {event:?}");
            self.aside.push_back(event);
        }
    }

    /// How many bytes may be sent now.
    pub fn room(&self, stream: u32) -> i64 {
        let of_stream = self.streams.get(&stream);
        let of_stream = of_stream.map_or(self.peer.initial_window, |stream| stream.room);
        of_stream.min(self.room)
    }

    pub fn reset(&mut self, stream: u32, code: u32) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.is_reset = true;
        }
        self.send(&reset_frame(stream, code));
    }

    /// Lets the other side send so many bytes more; stream 0: by the whole connection.
    pub fn grant(&mut self, stream: u32, by: u32) {
        match (stream, self.streams.get_mut(&stream)) {
            (0, _) => self.allowance += i64::from(by),
            (_, Some(stream)) => stream.granted += i64::from(by),
            _ => {}
        }
        self.send(&frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes()));
    }

    pub fn go_away(&mut self, last: u32, code: u32) {
        let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
        self.send(&frame(GOAWAY, 0, 0, &payload));
    }

    /// Sends PING and waits for its answer. `false`: the connection has ended.
    pub fn ping(&mut self, payload: [u8; 8]) -> bool {
        self.send(&frame(PING, 0, 0, &payload));
        self.seek(|event| match event {
            Event::Pong(answer) => (*answer == payload).then_some(true),
            Event::End => Some(false),
            _ => None,
        })
    }

    /// Sends a response with this body.
    pub fn respond(&mut self, stream: u32, status: u16, body: &[u8]) {
        self.head(stream, &[(":status", status.to_string())], body.is_empty());
        self.body(stream, body, true);
    }

    /// The next event.
    pub fn event(&mut self) -> Event {
        match self.aside.pop_front() {
            Some(event) => event,
            None => self.read(),
        }
    }

    /// The next event; `None`: nothing comes for as long as a read may take.
    pub fn try_event(&mut self) -> Option<Event> {
        match self.aside.pop_front() {
            Some(event) => Some(event),
            None => self.try_read(),
        }
    }

    /// The first event of which this is something. All others are kept for later.
    pub fn seek<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let found = self.aside.iter().enumerate();
        let found = found.filter_map(|(at, event)| Some((at, wanted(event)?)));
        if let Some((at, found)) = { found }.next() {
            if self.aside.get(at) != Some(&Event::End) {
                self.aside.remove(at);
            }
            return found;
        }
        loop {
            let event = self.read();
            let found = wanted(&event);
            if found.is_none() || event == Event::End {
                assert!(
                    found.is_some() || event != Event::End,
                    "the connection has ended; before that: {:?}",
                    self.aside
                );
                self.aside.push_back(event);
            }
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Everything of this stream until its end. Interim responses are left out.
    pub fn message(&mut self, of: u32) -> Message {
        let mut message = Message::default();
        loop {
            let event = self.seek(|event| match event {
                Event::Head { stream, .. }
                | Event::Data { stream, .. }
                | Event::Reset { stream, .. } => (*stream == of).then(|| event.clone()),
                Event::End => Some(Event::End),
                _ => None,
            });
            let is_last = match event {
                Event::Head { fields, ends, .. } => {
                    let is_interim =
                        field(&fields, ":status").is_some_and(|is| is.starts_with('1'));
                    match message.fields.is_empty() {
                        _ if is_interim => {}
                        true => message.fields = fields,
                        false => message.trailers = Some(fields),
                    }
                    ends
                }
                Event::Data { bytes, ends, .. } => {
                    message.body.extend_from_slice(&bytes);
                    ends
                }
                Event::Reset { code, .. } => {
                    message.reset = Some(code);
                    true
                }
                _ => {
                    message.is_cut = true;
                    true
                }
            };
            if is_last {
                return message;
            }
        }
    }

    /// The next request: its stream, its head, and whether that is all of it. `None`: the connection has ended.
    pub fn request(&mut self) -> Option<(u32, Fields, bool)> {
        self.seek(|event| match event {
            Event::Head {
                stream,
                fields,
                ends,
            } if field(fields, ":method").is_some() => Some(Some((*stream, fields.clone(), *ends))),
            Event::End => Some(None),
            _ => None,
        })
    }

    /// Waits for GOAWAY that is more than a warning; its code. `None`: the connection ended without one.
    pub fn until_go_away(&mut self) -> Option<u32> {
        self.seek(|event| match event {
            Event::GoAway { last, code } if *last < MAX_STREAM || *code != NO_ERROR => {
                Some(Some(*code))
            }
            Event::End => Some(None),
            _ => None,
        })
    }

    /// Whether GOAWAY with an error was among what was read and set aside.
    pub fn is_sent_away(&self) -> bool {
        let mut aside = self.aside.iter();
        aside.any(|event| matches!(event, Event::GoAway { code, .. } if *code != NO_ERROR))
    }

    /// Reads until the other side has sent its SETTINGS.
    pub fn until_settings(&mut self) -> PeerSettings {
        self.seek(|event| matches!(event, Event::Settings(_)).then_some(()));
        self.peer
    }

    /// Reads everything until the end of the connection.
    pub fn rest(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            match self.event() {
                Event::End => return events,
                event => events.push(event),
            }
        }
    }

    /// The event of the next frame, which is checked and, if need be, answered.
    fn read(&mut self) -> Event {
        let event = self.try_read();
        event.unwrap_or_else(|| panic!("nothing came, but {:?}", self.aside))
    }

    fn try_read(&mut self) -> Option<Event> {
        let event = match self.frame() {
            Ok(Some(frame)) => self.checked(frame),
            Ok(None) => return Some(Event::End),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return None,
                // In TLS, an end that was not announced.
                ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => {
                    return Some(Event::End);
                }
                _ => panic!("a read failed: {error}"),
            },
        };
        match &event {
            Event::Settings(_) if self.answers => self.send(&frame(SETTINGS, ACK, 0, &[])),
            Event::Ping(payload) if self.answers => self.send(&frame(PING, ACK, 0, payload)),
            _ => {}
        }
        Some(event)
    }

    /// The next frame. `None`: the connection has ended between two of them.
    fn frame(&mut self) -> io::Result<Option<Frame>> {
        while self.held.len() < 9 {
            if self.fill()? == 0 {
                return if self.held.is_empty() {
                    Ok(None)
                } else {
                    Err(ErrorKind::UnexpectedEof.into())
                };
            }
        }
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
        };
        let length = number(&self.held[..3]) as usize;
        assert!(length <= MAX_FRAME, "a frame of {length} bytes");
        while self.held.len() < 9 + length {
            if self.fill()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let frame = Frame {
            kind: self.held[3],
            flags: self.held[4],
            stream: number(&self.held[5..9]),
            payload: self.held[9..9 + length].to_vec(),
        };
        self.held.drain(..9 + length);
        Ok(Some(frame))
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 16 << 10];
        let read = self.stream.read(&mut bytes)?;
        self.held.extend_from_slice(&bytes[..read]);
        Ok(read)
    }

    fn spend(&mut self, stream: u32, count: usize) {
        let count = i64::try_from(count).expect("a small number");
        self.room -= count;
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.room -= count;
        }
    }
}

impl Stream {
    fn new(room: i64) -> Self {
        Self {
            room,
            received: 0,
            granted: 0,
            has_head: false,
            has_ended: false,
            is_reset: false,
        }
    }
}

/// A frame as it came.
#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// GOAWAY with this stream is a warning.
const MAX_STREAM: u32 = 0x7fff_ffff;
/// For what must come: long, because machines may be busy.
const PATIENCE: Duration = Duration::from_secs(20);
