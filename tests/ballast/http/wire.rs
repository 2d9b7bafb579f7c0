//! HTTP/1 byte by byte, for clients and endpoints of the test's own: nothing here shares code with the product.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use support::peers::{End, hear};
use support::{connect, serve_all};

/// One end of a connection that carries HTTP/1.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    /// Bytes that were read and not used.
    held: Vec<u8>,
}

impl Wire {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self::over(connect(address))
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("an option");
        Self {
            stream,
            held: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream
            .write_all(bytes.as_ref())
            .expect("a peer that reads");
    }

    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.ask("GET", path)
    }

    /// Sends a request without a body and reads its response.
    pub(crate) fn ask(&mut self, method: &str, path: &str) -> Response {
        self.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.response_to(method)
    }

    /// Sends a request with a body and reads its response.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> Response {
        let length = body.len();
        self.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        self.response()
    }

    pub(crate) fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// The response to a request with this method.
    pub(crate) fn response_to(&mut self, method: &str) -> Response {
        self.try_response(method).expect("a response")
    }

    pub(crate) fn try_response(&mut self, method: &str) -> io::Result<Response> {
        let head = self.head()?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status: u16 = status.ok_or(ErrorKind::InvalidData)?;
        let mut response = Response {
            head,
            status,
            body: Vec::new(),
        };
        let has_body = method != "HEAD" && status >= 200 && status != 204 && status != 304;
        if has_body {
            response.body = match (
                response.field("Transfer-Encoding"),
                response.field("Content-Length"),
            ) {
                (Some(_), _) => self.chunks()?,
                (None, Some(length)) => {
                    let length = length.parse().map_err(io::Error::other)?;
                    self.take(length)?
                }
                (None, None) => {
                    while self.fill()? > 0 {}
                    std::mem::take(&mut self.held)
                }
            };
        }
        Ok(response)
    }

    /// The next request; `None` once the peer has ended the connection.
    pub(crate) fn request(&mut self) -> Option<Request> {
        let mut request = self.request_head()?;
        request.body = self.request_body(&request)?;
        Some(request)
    }

    /// The head of the next request.
    pub(crate) fn request_head(&mut self) -> Option<Request> {
        Some(Request {
            head: self.head().ok()?,
            body: Vec::new(),
            connection: 0,
        })
    }

    /// The body behind this head.
    pub(crate) fn request_body(&mut self, request: &Request) -> Option<Vec<u8>> {
        match (
            request.field("Transfer-Encoding"),
            request.field("Content-Length"),
        ) {
            (Some(_), _) => self.chunks().ok(),
            (None, Some(length)) => self.take(length.parse().ok()?).ok(),
            (None, None) => Some(Vec::new()),
        }
    }

    /// One line, without its end.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let end = self.find(b"\r\n")?;
        let line = self.take(end + 2)?;
        Ok(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// Everything until the peer ends the connection, and how it does.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, End) {
        let mut rest = std::mem::take(&mut self.held);
        let (more, end) = hear(&mut self.stream);
        rest.extend_from_slice(&more);
        (rest, end)
    }

    /// Asserts that the peer ends the connection without another byte.
    pub(crate) fn assert_ends(&mut self, end: End, context: &str) {
        let (rest, ended) = self.rest();
        assert_eq!(
            (rest.escape_ascii().to_string(), ended),
            (String::new(), end),
            "{context}"
        );
    }

    pub(crate) fn patience(&self, patience: Duration) {
        self.stream
            .set_read_timeout(Some(patience))
            .expect("an option");
    }

    /// Exactly so many bytes.
    pub(crate) fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.held.len() < length {
            if self.fill()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let rest = self.held.split_off(length);
        Ok(std::mem::replace(&mut self.held, rest))
    }

    fn head(&mut self) -> io::Result<String> {
        let length = self.find(b"\r\n\r\n")? + 4;
        let head = self.take(length)?;
        Ok(String::from_utf8_lossy(&head).into_owned())
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let digits = line.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(digits, 16).map_err(io::Error::other)?;
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            body.extend_from_slice(&self.take(size)?);
            if self.take(2)? != b"\r\n" {
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }

    fn find(&mut self, wanted: &[u8]) -> io::Result<usize> {
        let mut from = 0;
        loop {
            let windows = &mut self.held[from..].windows(wanted.len());
            if let Some(at) = windows.position(|bytes| bytes == wanted) {
                return Ok(from + at);
            }
            from = self.held.len().saturating_sub(wanted.len());
            if self.fill()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 64 << 10];
        let read = self.stream.read(&mut bytes)?;
        self.held.extend_from_slice(&bytes[..read]);
        Ok(read)
    }
}

/// A response as it came.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) head: String,
    pub(crate) status: u16,
    /// Without the marks of its chunks.
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        fields(&self.head, name).next()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn closes(&self) -> bool {
        self.field("Connection") == Some("close")
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    /// Without the marks of its chunks.
    pub(crate) body: Vec<u8>,
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
}

impl Request {
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub(crate) fn method(&self) -> &str {
        self.line().split(' ').next().unwrap_or_default()
    }

    pub(crate) fn target(&self) -> &str {
        self.line().split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        fields(&self.head, name).next()
    }

    pub(crate) fn fields(&self, name: &str) -> Vec<&str> {
        fields(&self.head, name).collect()
    }
}

fn fields<'h>(head: &'h str, name: &str) -> impl Iterator<Item = &'h str> {
    head.lines().skip(1).filter_map(move |line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A server of the test's own, and what it heard.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
}

impl Endpoint {
    /// Answers every request so, and keeps its connections.
    pub(crate) fn answering(answer: impl Fn(&Request) -> Vec<u8> + Clone + Send + 'static) -> Self {
        Self::scripted(move |wire, endpoint, connection| {
            while let Some(request) = endpoint.hear(wire, connection) {
                // A client may leave before its answer.
                if wire.stream.write_all(&answer(&request)).is_err() {
                    return;
                }
            }
        })
    }

    /// Answers every request with this text.
    pub(crate) fn saying(text: &'static str) -> Self {
        Self::answering(move |_| ok(text))
    }

    /// Does this with each connection, whose number is the last argument.
    pub(crate) fn scripted(
        script: impl Fn(&mut Wire, &Self, usize) + Clone + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let endpoint = Self {
            address: listener.local_addr().expect("an address"),
            heard: Arc::default(),
            connections: Arc::default(),
        };
        let serving = endpoint.clone();
        let accepted = Arc::clone(&endpoint.connections);
        serve_all(listener, accepted, move |client, connection| {
            script(&mut Wire::over(client), &serving, connection);
        });
        endpoint
    }

    /// Reads a request and takes note of it.
    pub(crate) fn hear(&self, wire: &mut Wire, connection: usize) -> Option<Request> {
        let request = Request {
            connection,
            ..wire.request()?
        };
        self.note(request.clone());
        Some(request)
    }

    pub(crate) fn note(&self, request: Request) {
        self.list().push(request);
    }

    /// All requests so far.
    pub(crate) fn heard(&self) -> Vec<Request> {
        self.list().clone()
    }

    /// The last request.
    pub(crate) fn last(&self) -> Request {
        self.list().last().cloned().expect("a request")
    }

    /// How many connections it has accepted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn list(&self) -> MutexGuard<'_, Vec<Request>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A response with this text.
pub(crate) fn ok(text: &str) -> Vec<u8> {
    response("200 OK", "", text)
}

/// A response with this status, these fields (each with its line end) and this body.
pub(crate) fn response(status: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// A table of one http frontend, on any port, whose default is a service with these endpoints. `frontend` and `service` are
/// more of their fields.
pub(crate) fn table(frontend: &str, service: &str, endpoints: &[&Endpoint]) -> String {
    let addresses: Vec<_> = endpoints.iter().map(|endpoint| endpoint.address).collect();
    let service = service_of("s", service, &addresses);
    routed(&format!(", default: {{service: s}}{frontend}"), &[&service])
}

/// A table of one http frontend with these fields, and these services.
pub(crate) fn routed(frontend: &str, services: &[&str]) -> String {
    let services = services.join(", ");
    format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: http{frontend}}}]\nservices: [{services}]\n"
    )
}

/// A service, as a table has it.
pub(crate) fn service_of(name: &str, fields: &str, endpoints: &[SocketAddr]) -> String {
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|address| format!("{{address: \"{address}\"}}"))
        .collect();
    let endpoints = endpoints.join(", ");
    format!("{{name: {name}{fields}, endpoints: [{endpoints}]}}")
}
