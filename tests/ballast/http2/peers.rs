//! Clients and endpoints that speak HTTP/2, and endpoints that speak HTTP/1.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use support::{run, server};

/// A connection of HTTP/2 by prior knowledge.
pub(crate) async fn client(address: SocketAddr) -> SendRequest<Bytes> {
    let socket = TcpStream::connect(address).await.expect("a connection");
    let (client, connection) = h2::client::Builder::new()
        .initial_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .handshake(socket)
        .await
        .expect("HTTP/2");
    spawn_local(async move {
        connection.await.ok();
    });
    client
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub(crate) fn request(method: &str, path: &str) -> Request<()> {
    Request::builder()
        .method(Method::from_bytes(method.as_bytes()).expect("a method"))
        .uri(format!("http://shop.example{path}"))
        .body(())
        .expect("a request")
}

/// Sends a request and reads its response.
pub(crate) async fn fetch(
    client: &SendRequest<Bytes>,
    request: Request<()>,
    body: Option<Bytes>,
    trailers: Option<HeaderMap>,
) -> Result<Answer, h2::Error> {
    let mut client = client.clone().ready().await?;
    let is_whole = body.is_none() && trailers.is_none();
    let (response, mut send) = client.send_request(request, is_whole)?;
    spawn_local(async move {
        if let Some(body) = body {
            send_all(&mut send, body, trailers.is_none()).await?;
        }
        match trailers {
            Some(trailers) => send.send_trailers(trailers),
            None => Ok(()),
        }
    });
    read(response.await?).await
}

async fn read(response: Response<RecvStream>) -> Result<Answer, h2::Error> {
    let (head, mut stream) = response.into_parts();
    let body = read_all(&mut stream).await?;
    Ok(Answer {
        status: head.status.as_u16(),
        body,
        trailers: stream.trailers().await?,
    })
}

pub(crate) async fn read_all(stream: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    Ok(body)
}

/// Sends the bytes as flow control allows.
pub(crate) async fn send_all(
    stream: &mut SendStream<Bytes>,
    mut bytes: Bytes,
    is_last: bool,
) -> Result<(), h2::Error> {
    if bytes.is_empty() {
        return stream.send_data(bytes, is_last);
    }
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = match stream.capacity() {
            0 => match poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(room) => room?,
                None => return Ok(()),
            },
            room => room,
        };
        let part = bytes.split_to(room.min(bytes.len()));
        stream.send_data(part, is_last && bytes.is_empty())?;
    }
    Ok(())
}

/// Bytes that differ everywhere.
pub(crate) fn pattern(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

/// What an endpoint has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connections: AtomicUsize,
    pub(crate) requests: AtomicUsize,
    pub(crate) resets: AtomicUsize,
}

/// An endpoint that speaks HTTP/2 and serves [`answer`]. `most`: its MAX_CONCURRENT_STREAMS. It ends a connection after
/// `requests` requests.
pub(crate) fn h2_endpoint(most: u32, requests: usize) -> (SocketAddr, Arc<Seen>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    listener.set_nonblocking(true).expect("an option");
    let address = listener.local_addr().expect("an address");
    let seen = Arc::<Seen>::default();
    let saw = Arc::clone(&seen);
    thread::spawn(move || {
        run(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((socket, _)) = listener.accept().await {
                saw.connections.fetch_add(1, Ordering::Relaxed);
                spawn_local(serve(socket, most, requests, Arc::clone(&saw)));
            }
        });
    });
    (address, seen)
}

async fn serve(socket: TcpStream, most: u32, requests: usize, seen: Arc<Seen>) {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(most);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else {
        return;
    };
    let left = Rc::new(Cell::new(requests));
    while let Some(Ok((request, respond))) = connection.accept().await {
        seen.requests.fetch_add(1, Ordering::Relaxed);
        left.set(left.get().saturating_sub(1));
        if left.get() == 0 {
            connection.graceful_shutdown();
        }
        let seen = Arc::clone(&seen);
        spawn_local(async move {
            if answer(request, respond).await.is_err() {
                seen.resets.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

/// `/echo` sends back what comes, as it comes, and `x-up` of the trailers as `x-down`. `/large` sends [`pattern`]. `/hang` answers
/// nothing until the client gives up. `/reset` resets the stream. Everything else is answered with the head of the request.
async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let (head, mut stream) = request.into_parts();
    match head.uri.path() {
        "/echo" => {
            let mut send = respond.send_response(Response::new(()), false)?;
            while let Some(data) = stream.data().await {
                let data = data?;
                stream.flow_control().release_capacity(data.len())?;
                send_all(&mut send, data, false).await?;
            }
            let mut trailers = HeaderMap::new();
            if let Some(up) = stream.trailers().await?
                && let Some(value) = up.get("x-up")
            {
                trailers.insert("x-down", value.clone());
            }
            send.send_trailers(trailers)
        }
        "/large" => {
            let mut send = respond.send_response(Response::new(()), false)?;
            send_all(&mut send, pattern(LARGE), true).await
        }
        "/hang" => Err(poll_fn(|cx| respond.poll_reset(cx)).await?.into()),
        "/reset" => {
            respond.send_reset(Reason::ENHANCE_YOUR_CALM);
            Ok(())
        }
        _ => {
            let mut text = format!("{} {}\n", head.method, head.uri);
            for (name, value) in &head.headers {
                text += &format!("{name}: {}\n", value.to_str().unwrap_or("?"));
            }
            let mut send = respond.send_response(Response::new(()), false)?;
            send.send_data(text.into(), true)
        }
    }
}

/// An endpoint that speaks HTTP/1.1 and answers the same.
pub(crate) fn h1_endpoint() -> SocketAddr {
    server(|socket| {
        let mut writer = socket.try_clone().expect("a clone");
        let mut reader = BufReader::new(socket);
        while let Some(()) = serve_h1(&mut reader, &mut writer) {}
    })
}

fn serve_h1(reader: &mut impl BufRead, writer: &mut impl Write) -> Option<()> {
    let head = lines(reader)?;
    let path = head.first()?.split(' ').nth(1)?.to_owned();
    let is_chunked = field(&head, "transfer-encoding").is_some();
    let length = field(&head, "content-length").and_then(|length| length.parse().ok());
    let mut body = Vec::new();
    let mut trailers = Vec::new();
    if is_chunked {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            if size == 0 {
                break;
            }
            let begun = body.len();
            body.resize(begun + size, 0);
            reader.read_exact(body.get_mut(begun..)?).ok()?;
            reader.read_line(&mut String::new()).ok()?;
        }
        trailers = lines(reader)?;
    } else {
        body.resize(length.unwrap_or(0), 0);
        reader.read_exact(&mut body).ok()?;
    }
    let mut out = Vec::new();
    match path.as_str() {
        "/echo" => {
            out.extend_from_slice(
                b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            );
            for piece in body.chunks(10_000) {
                out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                out.extend_from_slice(piece);
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(b"0\r\n");
            if let Some(up) = field(&trailers, "x-up") {
                out.extend_from_slice(format!("x-down: {up}\r\n").as_bytes());
            }
            out.extend_from_slice(b"\r\n");
        }
        "/large" => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(&pattern(LARGE));
        }
        "/hang" => {
            reader.read_exact(&mut [0]).ok();
            return None;
        }
        _ => {
            let text = head.join("\n") + "\n";
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }
    writer.write_all(&out).ok()
}

/// Lines up to an empty one. `None`: the connection has ended.
fn lines(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => return Some(lines),
            line => lines.push(line.to_owned()),
        }
    }
}

pub(crate) fn field<'a>(lines: &'a [String], name: &str) -> Option<&'a str> {
    lines.iter().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// Reads everything until the end of the connection.
pub(crate) fn rest(mut from: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    from.read_to_end(&mut all).ok();
    all
}

pub(crate) const LARGE: usize = 3 << 20;
