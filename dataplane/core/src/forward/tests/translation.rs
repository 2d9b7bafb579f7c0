//! A message that goes from one version of HTTP to the other is the same message there. The tests of this crate and the fuzz target
//! `frames` include this file. What is written as HTTP/1 is read by the crate `httparse` and by [`strict`], which is not Ballast's
//! reader; what is written as HTTP/2 is counted frame by frame.

use super::{
    Body, Client, Config, Connection, Edits, Event, Field, Fields, Framing, FrontendHttp,
    HeadSearch, Host, HttpVersion, Key, Limits, MaybeUninit, Moment, PREFACE, Piece, Request,
    Response, Scheme, ToClient, ToEndpoint, Trailing, Version, framing_to, parse_request,
    parse_response, parse_trailers, request, request_block, response, response_fields, write_data,
    write_end,
};

// The fuzz target finds it by this path, too.
#[path = "strict.rs"]
mod strict;

/// Panics if a message does not stay what it is. The first byte says how it ends and is framed, the second one in which pieces it
/// comes, and each other one is a piece of its body.
pub(super) fn check(bytes: &[u8]) {
    let Some((&[how, cuts], pieces)) = bytes.split_first_chunk() else {
        return;
    };
    let script = Script::read(how, cuts, pieces);
    script.request_to_http1();
    script.request_to_http2();
    for version in [Version::Http10, Version::Http11] {
        script.response_to_http1(version);
    }
    script.response_to_http2();
}

/// A message as its sender has it.
#[derive(Debug)]
struct Script {
    /// Each with its padding.
    pieces: Vec<(Vec<u8>, Option<u8>)>,
    end: End,
    trailers: Vec<(&'static str, &'static str)>,
    /// The value of `content-length`.
    declared: Option<usize>,
    cuts: u8,
}

/// The last frame of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Its head: there is no body.
    Head,
    /// The last piece.
    Piece,
    /// A piece without bytes.
    Empty,
    Trailers,
    /// It is broken off.
    Reset,
}

impl Script {
    fn read(how: u8, cuts: u8, bytes: &[u8]) -> Self {
        let end = match how % 5 {
            0 => End::Head,
            1 if !bytes.is_empty() => End::Piece,
            1 | 2 => End::Empty,
            3 => End::Trailers,
            _ => End::Reset,
        };
        let mut marks = MARKS.iter().copied().cycle();
        let count = if end == End::Head { 0 } else { 40 };
        let pieces: Vec<_> = bytes
            .iter()
            .take(count)
            .map(|byte| {
                let length = SIZES.get(usize::from(byte & 7)).copied().unwrap_or(0);
                let padding = (byte & 8 != 0).then_some(byte >> 4);
                (marks.by_ref().take(length).collect(), padding)
            })
            .collect();
        let length: usize = pieces
            .iter()
            .map(|(bytes, _): &(Vec<u8>, _)| bytes.len())
            .sum();
        let has_trailers = end == End::Trailers;
        let trailers = TRAILERS.iter().copied().skip(usize::from(how >> 5) % 4);
        Self {
            pieces,
            end,
            trailers: trailers.filter(|_| has_trailers).collect(),
            declared: (how & 16 != 0).then_some(length + usize::from(end == End::Reset)),
            cuts,
        }
    }

    fn body(&self) -> Vec<u8> {
        self.pieces
            .iter()
            .flat_map(|(bytes, _)| bytes.clone())
            .collect()
    }

    /// The trailers that go on.
    fn allowed(&self) -> Vec<(String, String)> {
        let kept = self
            .trailers
            .iter()
            .filter(|(name, _)| ALLOWED.contains(name));
        kept.map(|(name, value)| ((*name).into(), (*value).into()))
            .collect()
    }

    /// The frames of HTTP/2, with these fields in the head.
    fn frames(&self, head: &[(&str, &str)]) -> Vec<Vec<u8>> {
        let length = self.declared.map(|length| length.to_string());
        let length = length.as_deref().map(|length| ("content-length", length));
        let head: Vec<_> = head.iter().copied().chain(length).collect();
        let flag = |ends: bool| u8::from(ends);
        let mut frames = vec![frame(1, 4 | flag(self.end == End::Head), &block(&head))];
        for (at, (bytes, padding)) in self.pieces.iter().enumerate() {
            let ends = flag(self.end == End::Piece && at + 1 == self.pieces.len());
            frames.push(match padding {
                None => frame(0, ends, bytes),
                Some(padding) => {
                    let zeros = vec![0; usize::from(*padding)];
                    frame(
                        0,
                        8 | ends,
                        &[&[*padding], bytes.as_slice(), &zeros].concat(),
                    )
                }
            });
        }
        match self.end {
            End::Head | End::Piece => {}
            End::Empty => frames.push(frame(0, 1, b"")),
            End::Trailers => frames.push(frame(1, 5, &block(&self.trailers))),
            End::Reset => frames.push(frame(3, 0, &8_u32.to_be_bytes())),
        }
        frames
    }

    /// The message of HTTP/1 behind the fields of its head. A message that is broken off lacks its end.
    fn http1(&self, first: &str, ends_with_connection: bool) -> Vec<u8> {
        let mut out = first.as_bytes().to_vec();
        if let Some(length) = self.declared {
            out.extend(format!("Content-Length: {length}\r\n\r\n").bytes());
            out.extend(self.body());
            return out;
        }
        if ends_with_connection {
            out.extend(b"\r\n");
            out.extend(self.body());
            return out;
        }
        out.extend(b"Transfer-Encoding: chunked\r\n\r\n");
        for (bytes, padding) in self.pieces.iter().filter(|(bytes, _)| !bytes.is_empty()) {
            let extension = if padding.is_some() { ";a=b" } else { "" };
            out.extend(format!("{:x}{extension}\r\n", bytes.len()).bytes());
            out.extend(bytes);
            out.extend(b"\r\n");
        }
        if self.end == End::Reset {
            return out;
        }
        out.extend(b"0\r\n");
        for (name, value) in &self.trailers {
            out.extend(format!("{name}: {value}\r\n").bytes());
        }
        out.extend(b"\r\n");
        out
    }

    fn request_to_http1(&self) {
        let mut core = Connection::server(CONFIG);
        let mut events = Vec::new();
        let begin = [PREFACE, SETTINGS].concat();
        core.receive(&begin, NOW, &mut events).expect("settings");
        let mut sink: Option<Http1> = None;
        let frames = self.frames(&REQUEST);
        for (at, bytes) in frames.iter().enumerate() {
            core.receive(bytes, NOW, &mut events).expect("right frames");
            if !self.is_turn(at, frames.len()) {
                continue;
            }
            let Some(&Event::Request(key)) = events.first() else {
                panic!("{events:?}");
            };
            let sink = sink.get_or_insert_with(|| {
                let head = core.take_head(key).expect("no reset").expect("a head");
                let framing = match head.length() {
                    _ if core.is_read(key) => Framing::Empty,
                    Some(length) => Framing::Length(length),
                    None => Framing::Chunked,
                };
                let fields: Vec<_> = head.fields().collect();
                let mut sink = Http1::new(framing);
                with_endpoint(&fields, framing, HttpVersion::H1, |to| {
                    request(&mut sink.out, to);
                });
                sink
            });
            sink.pump(&mut core, key);
        }
        // A request that is reset before anyone has looked at it is not sent.
        let sink = sink.expect("it was begun");
        self.is_same(&sink, strict::message(&sink.out, true));
    }

    fn response_to_http1(&self, version: Version) {
        let (mut core, key) = client();
        let mut events = Vec::new();
        core.receive(SETTINGS, NOW, &mut events).expect("settings");
        let mut sink: Option<Http1> = None;
        let frames = self.frames(&[(":status", "200")]);
        for (at, bytes) in frames.iter().enumerate() {
            core.receive(bytes, NOW, &mut events).expect("right frames");
            if !self.is_turn(at, frames.len()) {
                continue;
            }
            let sink = sink.get_or_insert_with(|| {
                let head = core.take_head(key).expect("no reset").expect("a head");
                let framing = if core.is_read(key) {
                    Framing::Empty
                } else {
                    head.length().map_or(Framing::Chunked, Framing::Length)
                };
                let framing = framing_to(version, framing);
                let fields: Vec<_> = head.fields().collect();
                let mut sink = Http1::new(framing);
                with_client(&fields, framing, version, |to| response(&mut sink.out, to));
                sink
            });
            sink.pump(&mut core, key);
        }
        let sink = sink.expect("it was begun");
        self.is_same(&sink, strict::message(&sink.out, false));
    }

    /// Whether the owner looks at what has come behind this frame.
    fn is_turn(&self, at: usize, count: usize) -> bool {
        at + 1 == count || self.cuts >> (at % 8) & 1 == 1
    }

    fn is_same(&self, sink: &Http1, found: Result<Option<strict::Message>, String>) {
        let text = sink.out.escape_ascii();
        let found = found.unwrap_or_else(|wrong| panic!("{wrong}: {text} of {self:?}"));
        if self.end == End::Reset {
            assert!(!sink.is_done, "{text}");
            // Nothing but the end of the connection ends such a body, which is broken then.
            if sink.framing != Framing::UntilClose {
                assert!(found.is_none(), "{text} of {self:?}");
            }
            return;
        }
        let found = found.unwrap_or_else(|| panic!("not whole: {text} of {self:?}"));
        assert!(sink.is_done, "{text}");
        assert_eq!(found.body, self.body(), "{text} of {self:?}");
        assert_eq!(found.behind, 0, "{text} of {self:?}");
        if let Some(trailers) = found.trailers {
            assert_eq!(trailers, self.allowed(), "{text}");
        }
    }

    fn request_to_http2(&self) {
        let bytes = self.http1("POST /p HTTP/1.1\r\nHost: a\r\n", false);
        let mut places = [const { MaybeUninit::uninit() }; 16];
        let head = parse_request(&bytes, &mut HeadSearch::default(), &mut places, &LIMITS);
        let head = head.expect("a request").expect("a whole head");
        let mut block = Vec::new();
        with_endpoint(head.request.fields, head.framing, HttpVersion::H2, |to| {
            request_block(&mut block, to, Scheme::Http);
        });
        let mut sender = Connection::client(CONFIG);
        let ends = !head.framing.has_body();
        let key = sender.request_stream(&block, ends, false).expect("room");
        let body = bytes.get(head.length..).unwrap_or_default();
        self.send_body(&mut sender, key, head.framing, body);

        let mut receiver = Connection::server(CONFIG);
        let mut events = Vec::new();
        receiver
            .receive(sender.output(), NOW, &mut events)
            .expect("right frames");
        let Some(&Event::Request(key)) = events.first() else {
            panic!("{events:?}");
        };
        let text = self.has_come(&mut receiver, key, sender.output());
        assert!(text.starts_with("POST /p a"), "{text}");
    }

    fn response_to_http2(&self) {
        let closes = self.cuts & 1 == 0 && self.trailers.is_empty() && self.end != End::Reset;
        let bytes = self.http1("HTTP/1.1 200 OK\r\n", closes);
        let mut places = [const { MaybeUninit::uninit() }; 16];
        let mut search = HeadSearch::default();
        let head = parse_response(&bytes, &mut search, &mut places, &LIMITS, "GET");
        let head = head.expect("a response").expect("a whole head");
        let (mut receiver, asked) = client();
        let mut sender = Connection::server(CONFIG);
        let mut events = Vec::new();
        sender
            .receive(receiver.output(), NOW, &mut events)
            .expect("a request");
        let Some(&Event::Request(key)) = events.first() else {
            panic!("{events:?}");
        };
        let ends = !head.framing.has_body();
        with_client(head.response.fields, head.framing, Version::Http2, |to| {
            let write = |out: &mut Vec<u8>| response_fields(&mut Fields::new(out), to);
            sender.respond(key, 200, ends, write).expect("no reset");
        });
        let body = bytes.get(head.length..).unwrap_or_default();
        self.send_body(&mut sender, key, head.framing, body);
        receiver
            .receive(sender.output(), NOW, &mut events)
            .expect("right frames");
        let text = self.has_come(&mut receiver, asked, sender.output());
        assert!(text.starts_with("200"), "{text}");
    }

    /// Sends a body of HTTP/1, in pieces of any length.
    fn send_body(&self, sender: &mut Connection, key: Key, framing: Framing, bytes: &[u8]) {
        if !framing.has_body() {
            assert!(bytes.is_empty() || self.end == End::Reset);
            return;
        }
        let mut body = Body::new(framing, &LIMITS);
        let mut section = Vec::new();
        let mut has_ended = false;
        for bytes in bytes.chunks(1 + usize::from(self.cuts)) {
            let mut rest = bytes;
            while !rest.is_empty() {
                let mut pieces = body.pieces(rest);
                let mut data: &[u8] = &[];
                for piece in &mut pieces {
                    match piece.expect("a right body") {
                        Piece::Data(bytes) => {
                            data = bytes;
                            break;
                        }
                        Piece::Trailers(bytes) => section.extend_from_slice(bytes),
                    }
                }
                let used = pieces.used();
                rest = rest.get(used..).unwrap_or_default();
                if !data.is_empty() {
                    let is_last = body.is_complete() && section.is_empty();
                    sender.send_body(key, data, is_last).expect("no reset");
                    has_ended |= is_last;
                }
                assert!(used > 0, "bytes behind the body");
            }
        }
        if has_ended || !body.may_close() {
            return;
        }
        let trailers = match section.len() {
            ..=2 => Vec::new(),
            _ => parse_trailers(&section).expect("trailers"),
        };
        let trailing = Trailing::default();
        let kept = || trailers.iter().filter(|field| trailing.allows(field.name));
        let sent = match kept().next() {
            None => sender.send_body(key, b"", true),
            Some(_) => sender.send_trailers(key, |out| {
                kept().for_each(|field| super::Sink::field(out, field.name, field.value));
            }),
        };
        sent.expect("no reset");
    }

    /// Whether the message has come as it was sent. Returns its head.
    fn has_come(&self, receiver: &mut Connection, key: Key, sent: &[u8]) -> String {
        let ends = ends_of_streams(sent);
        let head = receiver.take_head(key).expect("no reset").expect("a head");
        let text = match head.status() {
            0 => format!(
                "{} {} {}",
                head.method(),
                head.path(),
                head.authority().unwrap_or("")
            ),
            status => status.to_string(),
        };
        let body = receiver.take_body(key);
        let end = receiver.body_end(key);
        assert_eq!(receiver.reset_reason(key), None, "{self:?}");
        assert_eq!(body, self.body(), "{self:?}");
        assert_eq!(end, Ok(self.end != End::Reset), "{self:?}");
        assert_eq!(ends, usize::from(self.end != End::Reset), "{self:?}");
        let trailers = receiver.take_trailers(key);
        let owned = |field: Field<'_>| {
            let value = String::from_utf8_lossy(field.value);
            (field.name.to_owned(), value.into_owned())
        };
        let trailers: Option<Vec<_>> = trailers.map(|all| all.fields().map(owned).collect());
        let expected = match self.declared {
            None => self.allowed(),
            Some(_) => Vec::new(),
        };
        assert_eq!(trailers, Some(expected).filter(|all| !all.is_empty()));
        text
    }
}

/// The body that goes to a connection of HTTP/1.
struct Http1 {
    framing: Framing,
    out: Vec<u8>,
    is_done: bool,
}

impl Http1 {
    fn new(framing: Framing) -> Self {
        Self {
            framing,
            out: Vec::new(),
            is_done: !framing.has_body(),
        }
    }

    /// Passes on what has arrived.
    fn pump(&mut self, core: &mut Connection, key: Key) {
        while !self.is_done {
            let bytes = core.take_body(key);
            let end = core.body_end(key);
            if !bytes.is_empty() {
                write_data(&mut self.out, self.framing, &bytes);
                core.release_body(key, bytes.len());
                if end == Ok(true) && !core.has_trailers(key) {
                    write_end(&mut self.out, self.framing, &[]);
                    self.is_done = true;
                }
                continue;
            }
            if end != Ok(true) {
                return;
            }
            let trailers = core.take_trailers(key);
            let trailers = trailers
                .as_ref()
                .map(|trailers| trailers.fields().collect());
            let mut trailers: Vec<_> = trailers.unwrap_or_default();
            trailers.retain(|field| Trailing::default().allows(field.name));
            write_end(&mut self.out, self.framing, &trailers);
            self.is_done = true;
        }
    }
}

/// A client that has sent a request.
fn client() -> (Connection, Key) {
    let mut core = Connection::client(CONFIG);
    let key = core.request_stream(b"\x82\x86\x84\x41\x01a", true, false);
    (core, key.expect("room"))
}

fn with_endpoint(
    fields: &[Field<'_>],
    framing: Framing,
    version: HttpVersion,
    write: impl FnOnce(&ToEndpoint<'_>),
) {
    let address = ([192, 0, 2, 1], 80).into();
    write(&ToEndpoint {
        request: &Request {
            method: "POST",
            path: "/p",
            query: None,
            host: Host::parse("a"),
            version: Version::Http11,
            fields,
        },
        framing,
        upgrades: false,
        keeps_connection: true,
        version,
        endpoint: address,
        client: &Client {
            address,
            peer_is_trusted: false,
            scheme: Scheme::Http,
            port: 80,
            subject: None,
        },
        options: FrontendHttp::ABSENT,
        edits: Edits::default(),
        rewrite: None,
        prefix: "",
        cookie: None,
    });
}

fn with_client(
    fields: &[Field<'_>],
    framing: Framing,
    version: Version,
    write: impl FnOnce(&ToClient<'_>),
) {
    write(&ToClient {
        response: &Response {
            status: 200,
            reason: "OK",
            version: Version::Http11,
            fields,
        },
        framing,
        answers_head: false,
        version,
        keeps_connection: framing != Framing::UntilClose,
        edits: Edits::default(),
        hsts: None,
        sticky: None,
        map_back: None,
    });
}

/// A frame of stream 1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [.., a, b, c] = payload.len().to_be_bytes();
    [&[a, b, c, kind, flags, 0, 0, 0, 1], payload].concat()
}

/// Literal fields, all of them short.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            out.push(u8::try_from(text.len()).expect("a short one"));
            out.extend(text.bytes());
        }
    }
    out
}

/// How many frames of stream 1 end it. Behind such a frame there is none.
fn ends_of_streams(sent: &[u8]) -> usize {
    let mut rest = sent.strip_prefix(PREFACE).unwrap_or(sent);
    let mut ends = 0;
    while let Some((&[a, b, c, kind, flags, .., stream], behind)) = rest.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        rest = behind.get(length..).expect("a whole frame");
        if stream == 1 && kind < 2 {
            assert_eq!(ends, 0, "a frame behind the end");
            ends += usize::from(flags & 1);
        }
        assert!(kind != 3, "it was reset");
    }
    assert!(rest.is_empty());
    ends
}

const CONFIG: Config = Config {
    max_streams: 4,
    window: 65_535,
    max_head: 16_384,
};
const LIMITS: Limits = Limits {
    bytes: 16_384,
    fields: 16,
};
const NOW: Moment = Moment(1000);
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const REQUEST: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "a"),
    (":path", "/p"),
];
const SIZES: [usize; 8] = [0, 0, 1, 2, 7, 16, 17, 300];
/// Bodies consist of what marks chunks.
const MARKS: &[u8] = b"\r\n0\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\nGET / HTTP/1.1\r\n\r\n";
const TRAILERS: [(&str, &str); 6] = [
    ("x-sum", "1"),
    ("content-length", "5"),
    ("host", "b"),
    ("grpc-status", "0"),
    ("x-forwarded-for", "192.0.2.9"),
    ("x-sum", "2 3"),
];
const ALLOWED: [&str; 2] = ["x-sum", "grpc-status"];
