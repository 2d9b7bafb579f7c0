//! HTTP/1 as a parser reads it that is not ours, and that forgives nothing: heads by the crate `httparse`, whose liberties are
//! taken away, and bodies here.
#![allow(dead_code, reason = "each test file uses its part of this")]

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use httparse::{EMPTY_HEADER, Status};

use support::serve_all;

type Fields = Vec<(String, String)>;

/// A message as it came.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// The first line.
    pub(crate) line: String,
    pub(crate) fields: Fields,
    pub(crate) body: Vec<u8>,
    /// `None`: the body is not chunked.
    pub(crate) trailers: Option<Fields>,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begins: String = self.text().chars().take(300).collect();
        f.debug_struct("Message")
            .field("line", &self.line)
            .field("fields", &self.fields)
            .field("length", &self.body.len())
            .field("body", &begins)
            .field("trailers", &self.trailers)
            .finish()
    }
}

impl Message {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter();
        let found = found.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The second word of the first line: the target of a request, the status of a response.
    pub(crate) fn second(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn status(&self) -> u16 {
        self.second().parse().expect("a status")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Why there is no message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum No {
    /// The connection has ended, after so many bytes of a message.
    More(usize),
    /// What came is no message.
    Wrong(String),
}

/// One end of a connection.
pub(crate) struct Http1 {
    pub(crate) stream: TcpStream,
    held: Vec<u8>,
}

impl Http1 {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        Self::over(stream)
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("an option");
        Self {
            stream,
            held: Vec::new(),
        }
    }

    /// Sends bytes. An end of the connection is seen by who reads.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        if let Err(error) = self.stream.write_all(bytes.as_ref()) {
            let ended = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
            assert!(ended.contains(&error.kind()), "a peer that reads: {error}");
        }
    }

    /// Sends a request without a body and reads its response.
    pub(crate) fn get(&mut self, path: &str) -> Message {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n\r\n"));
        self.response("GET").expect("a response")
    }

    pub(crate) fn request(&mut self) -> Result<Message, No> {
        let mut message = self.head(true)?;
        self.body(&mut message, false)?;
        Ok(message)
    }

    /// The response to a request with this method. Interim ones are left out.
    pub(crate) fn response(&mut self, method: &str) -> Result<Message, No> {
        loop {
            let mut message = self.head(false)?;
            let status = message.status();
            if status < 200 {
                continue;
            }
            if method != "HEAD" && status != 204 && status != 304 {
                self.body(&mut message, true)?;
            }
            return Ok(message);
        }
    }

    /// The head of the next message.
    pub(crate) fn head(&mut self, is_request: bool) -> Result<Message, No> {
        let length = self.find(b"\r\n\r\n")? + 4;
        let head: Vec<u8> = self.held.drain(..length).collect();
        has_strict_lines(&head)?;
        let mut room = [EMPTY_HEADER; 128];
        let (parsed, fields) = if is_request {
            let mut request = httparse::Request::new(&mut room);
            (request.parse(&head), request.headers)
        } else {
            let mut response = httparse::Response::new(&mut room);
            (response.parse(&head), response.headers)
        };
        if parsed != Ok(Status::Complete(length)) {
            return wrong(format!("{parsed:?} of {}", head.escape_ascii()));
        }
        let line = head.split(|byte| *byte == b'\r').next();
        if line.is_none_or(<[u8]>::is_empty) {
            return wrong(format!("an empty line before {}", head.escape_ascii()));
        }
        Ok(Message {
            line: String::from_utf8_lossy(line.unwrap_or_default()).into_owned(),
            fields: owned(fields),
            ..Message::default()
        })
    }

    fn body(&mut self, message: &mut Message, may_close: bool) -> Result<(), No> {
        let coding = message.field("Transfer-Encoding");
        let length = message.field("Content-Length");
        match (coding, length) {
            (Some("chunked"), None) => self.chunks(message)?,
            (None, Some(length)) => {
                let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
                let Some(length) = length.parse().ok().filter(|_| is_number) else {
                    return wrong(format!("Content-Length: {length}"));
                };
                message.body = self.take(length)?;
            }
            (None, None) if may_close => {
                while self.fill()? > 0 {}
                message.body = std::mem::take(&mut self.held);
            }
            (None, None) => {}
            other => return wrong(format!("framed by {other:?}")),
        }
        Ok(())
    }

    fn chunks(&mut self, message: &mut Message) -> Result<(), No> {
        loop {
            let line = self.line()?;
            let is_size = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_hexdigit());
            let Some(size) = usize::from_str_radix(&line, 16).ok().filter(|_| is_size) else {
                return wrong(format!("{line:?} is no size of a chunk"));
            };
            if size == 0 {
                break;
            }
            message.body.extend_from_slice(&self.take(size)?);
            let end = self.take(2)?;
            if end != b"\r\n" {
                return wrong(format!("{} behind a chunk", end.escape_ascii()));
            }
        }
        let mut section = Vec::new();
        loop {
            let line = self.line()?;
            section.extend_from_slice(line.as_bytes());
            section.extend_from_slice(b"\r\n");
            if line.is_empty() {
                break;
            }
        }
        has_strict_lines(&section)?;
        let mut room = [EMPTY_HEADER; 128];
        match httparse::parse_headers(&section, &mut room) {
            Ok(Status::Complete((used, trailers))) if used == section.len() => {
                message.trailers = Some(owned(trailers));
                Ok(())
            }
            other => wrong(format!("{other:?} of {}", section.escape_ascii())),
        }
    }

    /// Everything until the peer ends the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.fill().is_ok_and(|read| read > 0) {}
        std::mem::take(&mut self.held)
    }

    /// One line, without its end.
    pub(crate) fn line(&mut self) -> Result<String, No> {
        let end = self.find(b"\r\n")?;
        let line = self.take(end + 2)?;
        Ok(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// Exactly so many bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<Vec<u8>, No> {
        while self.held.len() < length {
            self.more()?;
        }
        Ok(self.held.drain(..length).collect())
    }

    fn find(&mut self, wanted: &[u8]) -> Result<usize, No> {
        let mut from = 0;
        loop {
            let mut windows = self.held[from..].windows(wanted.len());
            if let Some(at) = windows.position(|bytes| bytes == wanted) {
                return Ok(from + at);
            }
            from = self.held.len().saturating_sub(wanted.len());
            self.more()?;
        }
    }

    fn more(&mut self) -> Result<(), No> {
        match self.fill()? {
            0 => Err(No::More(self.held.len())),
            _ => Ok(()),
        }
    }

    fn fill(&mut self) -> Result<usize, No> {
        let mut bytes = [0; 16 << 10];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(read) => {
                    self.held.extend_from_slice(&bytes[..read]);
                    return Ok(read);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.failed(&error),
            }
        }
    }

    fn failed(&self, error: &io::Error) -> Result<usize, No> {
        match error.kind() {
            ErrorKind::ConnectionReset => Err(No::More(self.held.len())),
            _ => wrong(format!("{error}, after {}", self.held.escape_ascii())),
        }
    }
}

fn wrong<T>(why: String) -> Result<T, No> {
    Err(No::Wrong(why))
}

/// Lines end with CR LF, and neither byte stands anywhere else.
fn has_strict_lines(bytes: &[u8]) -> Result<(), No> {
    let is_strict = |at: usize| match bytes[at] {
        b'\r' => bytes.get(at + 1) == Some(&b'\n'),
        b'\n' => at > 0 && bytes[at - 1] == b'\r',
        _ => true,
    };
    if (0..bytes.len()).all(is_strict) {
        Ok(())
    } else {
        wrong(format!("a bare line end in {}", bytes.escape_ascii()))
    }
}

fn owned(fields: &[httparse::Header<'_>]) -> Fields {
    let owned = |field: &httparse::Header<'_>| {
        let value = String::from_utf8_lossy(field.value);
        (field.name.to_owned(), value.into_owned())
    };
    fields.iter().map(owned).collect()
}

/// A server of the test's own, and what it heard.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<Vec<Message>>>,
    wrong: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Endpoint {
    /// Answers every request so, and keeps its connections.
    pub(crate) fn answering(answer: impl Fn(&Message) -> Vec<u8> + Clone + Send + 'static) -> Self {
        Self::scripted(move |wire, endpoint, _| {
            while let Some(request) = endpoint.hear(wire) {
                wire.send(answer(&request));
            }
        })
    }

    /// Does this with each connection, whose number is the last argument.
    pub(crate) fn scripted(
        script: impl Fn(&mut Http1, &Self, usize) + Clone + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let endpoint = Self {
            address: listener.local_addr().expect("an address"),
            heard: Arc::default(),
            wrong: Arc::default(),
            connections: Arc::default(),
        };
        let serving = endpoint.clone();
        let accepted = Arc::clone(&endpoint.connections);
        serve_all(listener, accepted, move |client, connection| {
            script(&mut Http1::over(client), &serving, connection);
        });
        endpoint
    }

    /// The next request, of which it takes note, or of what is wrong with it. `None`: there is none.
    pub(crate) fn hear(&self, wire: &mut Http1) -> Option<Message> {
        match wire.request() {
            Ok(request) => {
                let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
                heard.push(request.clone());
                Some(request)
            }
            Err(No::More(_)) => None,
            Err(No::Wrong(why)) => {
                let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
                wrong.push(why);
                None
            }
        }
    }

    /// All requests so far. Fails where something came that was none.
    pub(crate) fn heard(&self) -> Vec<Message> {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(wrong.is_empty(), "not HTTP/1: {wrong:?}");
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.clone()
    }

    /// How many requests for this path there were.
    pub(crate) fn count(&self, path: &str) -> usize {
        let heard = self.heard();
        heard.iter().filter(|one| one.second() == path).count()
    }

    /// How many connections it has accepted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A response with this body.
pub(crate) fn ok(body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// For what must come: long, because machines may be busy.
const PATIENCE: Duration = Duration::from_secs(20);
