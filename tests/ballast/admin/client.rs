//! A client of the admin address that sends and reads every byte itself.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The answer to a request that was written, to the end of the connection.
    pub(crate) fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A server that did not want the whole body may reset after its answer.
        if let Err(error) = stream.read_to_end(&mut bytes) {
            assert!(!bytes.is_empty(), "{error}");
        }
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a head");
        let (head, body) = bytes.split_at(end + 4);
        let head = String::from_utf8(head.into()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked {
            unchunked(body)
        } else {
            body.to_owned()
        };
        Self {
            status,
            head,
            body: String::from_utf8(body).unwrap(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        let found = lines.find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }
}

/// A request, not yet sent.
pub(crate) struct Request {
    line: String,
    version: &'static str,
    headers: String,
    has_host: bool,
    body: String,
}

impl Request {
    pub(crate) fn new(method: &str, address: &str) -> Self {
        Self {
            line: format!("{method} {address}"),
            version: "1.1",
            headers: String::new(),
            has_host: false,
            body: String::new(),
        }
    }

    /// A form, sent as a browser sends one of the page.
    pub(crate) fn form(address: &str, body: &str, admin: SocketAddr) -> Self {
        Self::bare_form(address, body).header("Origin", &format!("http://{admin}"))
    }

    /// A form that does not say where it comes from.
    pub(crate) fn bare_form(address: &str, body: &str) -> Self {
        let mut request = Self::new("POST", address)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .header("Content-Length", &body.len().to_string());
        request.body = body.into();
        request
    }

    pub(crate) fn version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.has_host |= name == "Host";
        write!(self.headers, "{name}: {value}\r\n").unwrap();
        self
    }

    pub(crate) fn body(mut self, body: &str) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn credentials(self, person: Option<(&str, &str)>) -> Self {
        match person {
            Some((name, secret)) => {
                let coded = base64(format!("{name}:{secret}").as_bytes());
                self.header("Authorization", &format!("Basic {coded}"))
            }
            None => self,
        }
    }

    /// Sends it, and reads until the other end closes.
    pub(crate) fn send(self, admin: SocketAddr) -> Answer {
        let stream = connect(admin).expect("a connection");
        self.over(stream)
    }

    pub(crate) fn over(self, mut stream: TcpStream) -> Answer {
        self.write(&mut stream);
        Answer::read(stream)
    }

    /// Sends it, and leaves reading to the caller.
    pub(crate) fn write(mut self, stream: &mut TcpStream) {
        if !self.has_host {
            let host = stream.peer_addr().unwrap().to_string();
            self = self.header("Host", &host);
        }
        let Self {
            line,
            version,
            headers,
            body,
            ..
        } = self;
        let text = format!("{line} HTTP/{version}\r\n{headers}Connection: close\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).unwrap();
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let (size, rest) = bytes.split_at(end);
        let size = usize::from_str_radix(std::str::from_utf8(size).unwrap(), 16).unwrap();
        let (chunk, rest) = rest[2..].split_at(size);
        if size == 0 {
            assert_eq!(rest, b"\r\n");
            return whole;
        }
        whole.extend_from_slice(chunk);
        bytes = rest.strip_prefix(b"\r\n").unwrap();
    }
    // Only an answer to HEAD has none at all.
    assert_eq!(bytes, b"", "the last chunk is missing");
    whole
}

pub(crate) fn get(admin: SocketAddr, address: &str) -> Answer {
    Request::new("GET", address).send(admin)
}

/// A connection, if somebody listens.
pub(crate) fn connect(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10)).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    Some(stream)
}

/// A table of so many services with so many endpoints each, and a frontend that nobody can use.
pub(crate) fn many(services: usize, endpoints: usize) -> String {
    let mut text = String::from(
        "version: 1\nfrontends: [{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s0}]\nservices:\n",
    );
    for service in 0..services {
        let (high, low) = (service / 250 + 1, service % 250);
        let endpoints: Vec<String> = (1..=endpoints)
            .map(|number| format!("{{address: \"127.{high}.{low}.{number}:9\"}}"))
            .collect();
        writeln!(
            text,
            "  - {{name: s{service}, endpoints: [{}]}}",
            endpoints.join(", ")
        )
        .unwrap();
    }
    text
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = (0..3).fold(0, |number, place| {
            number << 8 | u32::from(three.get(place).copied().unwrap_or(0))
        });
        for place in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= three.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    text
}

pub(crate) const USERS: &str = "anna:secret\nviktor:look:viewer\n";
/// An admin.
pub(crate) const ANNA: (&str, &str) = ("anna", "secret");
/// A viewer.
pub(crate) const VIKTOR: (&str, &str) = ("viktor", "look");

/// A connection from 127.0.0.`client`.
pub(crate) fn connect_from(client: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let from = SocketAddr::from(([127, 0, 0, client], 0));
    socket.bind(&from.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let wait = Some(Duration::from_secs(10));
    socket.set_read_timeout(wait).unwrap();
    socket.into()
}

/// Whether the other end of a connection to this address has not closed it.
pub(crate) fn is_open(admin: SocketAddr, stream: &TcpStream) -> bool {
    let hex = |address: SocketAddr| match address {
        // As the kernel has it in memory.
        SocketAddr::V4(address) => format!(
            "{:08X}:{:04X}",
            u32::from_ne_bytes(address.ip().octets()),
            address.port()
        ),
        SocketAddr::V6(_) => panic!("not in this list"),
    };
    let ends = [hex(admin), hex(stream.local_addr().unwrap())];
    let list = fs::read_to_string("/proc/self/net/tcp").unwrap();
    list.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1..3) == Some(&[&*ends[0], &*ends[1]]) && fields[3] == ESTABLISHED
    })
}

const ESTABLISHED: &str = "01";
