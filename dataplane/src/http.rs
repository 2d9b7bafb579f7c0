//! A client's HTTP/1 connection: its requests, one after the other. A client that speaks HTTP/2 goes to [`h2`].
//!
//! One task serves the connection and drives both of its sides. For each request: read the head, find the route, get a connection
//! to an endpoint, forward the rewritten head, relay the bodies ([`exchange`]). Requests that no endpoint serves are answered here
//! ([`answers`]). Each request reads the plan in force, so a new table applies to connections that are already open. While a
//! connection waits for a request, it holds neither a buffer nor the plan.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ballast_core::forward;
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, HttpFrontend, Plan, Serves, SocketKey};
use ballast_core::service::Service;

use crate::poller::Timer;
use crate::tcp::Connection;
use crate::tls::Session;

mod account;
mod answers;
mod bridge;
mod buffers;
mod by_owner;
mod exchange;
mod fields;
mod forwarding;
mod h2;
mod idle_timer;
mod linger;
mod links;
mod pool;
mod refuse;
mod request;
mod to_h2;

use account::Account;
pub(crate) use buffers::Buffers;
use buffers::ReadBuffer;
pub(crate) use by_owner::Owner;
pub(crate) use links::{Connecting, Found, Links, Multiplexed, Outcome, Use};
pub(crate) use pool::Pool;
pub(crate) use refuse::Refusing;

/// A client's connection between and during its requests.
struct Client {
    connection: Connection,
    /// The listening socket that it came in by, which names its frontend in each plan.
    socket: Rc<SocketKey>,
    /// Bytes of the client that have been read and not yet used.
    buffer: ReadBuffer,
    timer: Timer,
    /// How many requests it has sent.
    requests: u64,
    account: Account,
}

/// What follows a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The client's next request.
    Request,
    /// An orderly close.
    Close,
    /// An orderly close, after what the client still sends has been read: a close with unread bytes would reset the connection
    /// and could destroy the response on its way.
    Linger,
    /// A reset, because the client did not get a whole response.
    Reset,
    /// HTTP/2: it is what the client speaks.
    Http2,
}

impl Next {
    /// What follows a whole response. `client_keeps`: the response has promised that the connection takes another request.
    /// `wants_close`: the client has asked for the close, and has sent nothing since.
    fn after_response(request_is_complete: bool, client_keeps: bool, wants_close: bool) -> Self {
        match client_keeps {
            _ if !request_is_complete => Self::Linger,
            true => Self::Request,
            false if wants_close => Self::Close,
            // The client may have sent its next request.
            false => Self::Linger,
        }
    }
}

/// Serves the connection until it ends. `first` are bytes of the client that have been read.
pub(crate) async fn serve(connection: Connection, socket: Rc<SocketKey>, first: Vec<u8>) {
    let worker = Rc::clone(&connection.worker);
    let mut client = Client {
        timer: Timer::new(&worker.tools.poller),
        buffer: ReadBuffer::new(&worker.buffers),
        connection,
        socket,
        requests: 0,
        account: Account::default(),
    };
    client.buffer.push(&first);
    drop(first);
    let session = client.connection.socket.session();
    if session.is_some_and(|session| session.alpn() == Some(b"h2")) {
        return to_http2(&mut client).await;
    }
    loop {
        match request::serve(&mut client).await {
            // Requests that are already here could keep the worker from its other tasks.
            Next::Request if !client.buffer.is_empty() => tokio::task::yield_now().await,
            Next::Request => {}
            Next::Close => {
                client.connection.socket.close();
                break;
            }
            Next::Linger => {
                client.buffer.clear();
                linger::linger(&worker, &mut client.connection.socket).await;
                break;
            }
            Next::Reset => break,
            Next::Http2 => return to_http2(&mut client).await,
        }
    }
    worker.pool.forget(Some(client.key()));
}

/// Goes on with a client that speaks HTTP/2.
async fn to_http2(client: &mut Client) {
    let first = client.buffer.held().to_vec();
    client.buffer.clear();
    let socket = Rc::clone(&client.socket);
    // Boxed, so that connections of HTTP/1 have no room for it.
    Box::pin(h2::serve(&mut client.connection, socket, first)).await;
}

impl Client {
    /// Identifies the connection within its worker.
    fn key(&self) -> (usize, Moment) {
        (self.connection.slot, self.connection.began)
    }

    /// Notes that no endpoint serves the connection any more, and counts at the service how long the request has taken.
    fn leave_endpoint(&self, service: &Service) {
        let Connection { worker, slot, .. } = &self.connection;
        worker.connections.borrow_mut().set_idle(*slot);
        self.account.count_time(worker, service);
    }

    /// The address that the client connected to, from its own point of view.
    fn local_address(&self) -> SocketAddr {
        local_address(&self.connection, &self.socket)
    }

    /// The port that the client connected to.
    fn local_port(&self) -> u16 {
        match self.socket.address.port() {
            port if port > 0 && self.connection.proxy_info.is_none() => port,
            _ => self.local_address().port(),
        }
    }
}

/// The address that the client of this connection connected to, from its own point of view.
fn local_address(connection: &Connection, socket: &SocketKey) -> SocketAddr {
    let info = connection.proxy_info.as_ref();
    match info.and_then(|info| info.destination) {
        Some(destination) => destination,
        None if socket.address.port() > 0 && !socket.address.ip().is_unspecified() => {
            socket.address
        }
        None => connection.socket.local_addr().unwrap_or(socket.address),
    }
}

/// A client that connected to this port, as endpoints are told of it.
fn as_seen<'a>(
    address: SocketAddr,
    port: u16,
    subject: Option<&'a str>,
    frontend: &'a Frontend,
    http: &HttpFrontend,
) -> forward::Client<'a> {
    let trusted = http.options().x_forwarded_trust.as_ref();
    let tls = frontend.spec().tls.as_deref();
    let auth = tls.and_then(|tls| tls.client_auth.as_ref());
    forward::Client {
        address,
        peer_is_trusted: trusted.is_none_or(|trusted| trusted.contains(address.ip())),
        scheme: answers::scheme(http),
        port,
        subject: auth.map(|auth| forward::Subject {
            header: auth.header(),
            name: subject,
        }),
    }
}

/// The subject of the client's certificate, if it has one.
fn subject(connection: &Connection) -> Option<&str> {
    let identity = connection.socket.session().and_then(Session::identity)?;
    Some(&identity.subject)
}

/// The frontend of this socket in `plan`, if it still serves HTTP.
fn frontend_in<'p>(
    plan: &'p Plan,
    socket: &SocketKey,
) -> Option<(&'p Arc<Frontend>, &'p Arc<HttpFrontend>)> {
    let frontend = plan.frontend(socket)?;
    match frontend.serves() {
        Serves::Http(http) => Some((frontend, http)),
        _ => None,
    }
}

/// The flow control windows of HTTP/2, of a stream and of a connection: what a peer may send before it is asked for more.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Most bytes of a stream that wait to be sent.
const SEND_BUFFER: usize = 64 * 1024;
