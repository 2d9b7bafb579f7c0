//! The client of a connection, as its requests need it: the same for both versions of HTTP.

use std::cell::{Cell, OnceCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ballast_core::forward;
use ballast_core::http::{Host, Scheme};
use ballast_core::moment::Moment;
use ballast_core::pick::Key;
use ballast_core::plan::{
    Frontend, FrontendCounters, FrontendState, HttpFrontend, Plan, Serves, SocketKey,
};
use ballast_core::preamble::{Addresses, Ssl, Transport};
use ballast_core::route::SecureConnection;
use ballast_core::service::Service;

use super::side::Share;
use crate::connect::send_proxy;
use crate::net::tls::{MaybeTls, Policy, Session};
use crate::worker::live::Serving;
use crate::worker::{Connection, ProxyInfo, Worker};

/// The client of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) worker: Rc<Worker>,
    pub(super) frontend: Arc<FrontendState>,
    /// The listening socket that it came in by, which names its frontend in each plan.
    socket: Rc<SocketKey>,
    pub(super) key: Key,
    proxy_info: Option<Box<ProxyInfo>>,
    /// The address that the client connected to, from its own point of view, once somebody has asked for it.
    local: Cell<Option<SocketAddr>>,
    /// How it uses TLS, and whom its certificate names.
    ssl: Option<Ssl<'static>>,
    /// The frontend's rules for certificates of clients at the time of the handshake.
    policy: Policy,
    /// The protocol that was negotiated in the handshake of TLS.
    alpn: Option<&'static [u8]>,
    common_name: Option<Box<str>>,
    subject: Option<Box<str>>,
    /// Its connection's slot in the worker's list.
    pub(super) slot: usize,
    began: Moment,
    /// How many requests it has sent.
    pub(super) requests: Cell<u64>,
    /// The memory that bodies of HTTP/2 may take, once there is one.
    share: OnceCell<Rc<Share>>,
}

impl Peer {
    /// The client of this connection. Takes what only its requests need.
    pub(super) fn of(connection: &mut Connection, socket: Rc<SocketKey>) -> Self {
        let session = connection.socket.session();
        let identity = session.and_then(Session::identity);
        let info = connection.proxy_info.as_ref();
        let is_exact = socket.address.port() > 0 && !socket.address.ip().is_unspecified();
        Self {
            local: Cell::new(match info.and_then(|info| info.destination) {
                Some(destination) => Some(destination),
                None => is_exact.then_some(socket.address),
            }),
            ssl: session.map(Session::anonymous_ssl),
            policy: session.map(Session::policy).unwrap_or_default(),
            alpn: session.and_then(Session::alpn).map(|alpn| match alpn {
                b"h2" => &b"h2"[..],
                b"http/1.0" => b"http/1.0",
                _ => b"http/1.1",
            }),
            common_name: identity.and_then(|identity| identity.common_name.clone()),
            subject: identity.map(|identity| identity.subject.clone()),
            worker: Rc::clone(&connection.worker),
            frontend: Arc::clone(&connection.frontend),
            key: connection.key,
            proxy_info: connection.proxy_info.take(),
            socket,
            slot: connection.slot,
            began: connection.began,
            requests: Cell::new(0),
            share: OnceCell::new(),
        }
    }

    /// Identifies the connection within its worker.
    pub(super) fn id(&self) -> (usize, Moment) {
        (self.slot, self.began)
    }

    /// The frontend in `plan`: that of the listening socket, or, if the socket has been replaced by others, the frontend that
    /// the connection came in by.
    pub(super) fn frontend_in<'p>(
        &self,
        plan: &'p Plan,
    ) -> Option<(&'p Arc<Frontend>, &'p Arc<HttpFrontend>)> {
        let frontend = plan.frontend(&self.socket).or_else(|| {
            let mut frontends = plan.frontends().iter();
            frontends.find(|frontend| Arc::ptr_eq(frontend.state(), &self.frontend))
        })?;
        match frontend.serves() {
            Serves::Http(http) => Some((frontend, http)),
            _ => None,
        }
    }

    /// The frontend in `plan`, if that would let this client in by a connection such as it has. A table may have closed it to the client
    /// since the connection was made.
    pub(super) fn admitted_in<'p>(
        &self,
        plan: &'p Serving,
    ) -> Option<(&'p Arc<Frontend>, &'p Arc<HttpFrontend>)> {
        let found = self.frontend_in(plan)?;
        let (frontend, http) = found;
        let address = self.key.client().ip();
        let has_certificate = frontend.client_auth().is_none_or(|_| {
            let tls = plan.tls.frontend(frontend.name());
            tls.is_some_and(|tls| tls.policy() == self.policy)
        });
        let is_admitted = self.ssl.is_some() == http.is_https()
            && frontend.limits().check_source(address).is_ok()
            && has_certificate;
        is_admitted.then_some(found)
    }

    /// Whether the table no longer has the frontend for this client.
    pub(super) fn is_shut_out(&self) -> bool {
        self.admitted_in(&self.worker.plan()).is_none()
    }

    /// Whether a request for this host came by a connection of TLS that would not have been opened for it.
    pub(super) fn is_misdirected(
        &self,
        host: Option<Host<'_>>,
        frontend: &Frontend,
        http: &HttpFrontend,
    ) -> bool {
        if self.ssl.is_none() {
            return false;
        }
        let connection = SecureConnection {
            server_name: self.proxy_info.as_deref().and_then(ProxyInfo::server_name),
            alpn: self.alpn,
        };
        let plan = self.worker.plan();
        plan.tls.is_misdirected(frontend, http, host, &connection)
    }

    pub(super) fn counters(&self) -> &FrontendCounters {
        self.frontend.counters().of(self.worker.id)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.worker.is_draining.get()
    }

    /// Whether the connection ends though it waits for a request only. The client of a process that was replaced may be sending
    /// one just now: its connection ends with the next response.
    pub(super) fn ends_idle(&self) -> bool {
        self.is_draining() && !self.worker.keeps_idle.get()
    }

    /// Asks the socket for the address that the client connected to, unless it is known.
    pub(super) fn learn_local_address(&self, socket: &MaybeTls) {
        if self.local.get().is_none() {
            let local = socket.local_addr().unwrap_or(self.socket.address);
            self.local.set(Some(local));
        }
    }

    /// The address that the client connected to, from its own point of view, as far as it is known.
    pub(super) fn local_address(&self) -> SocketAddr {
        self.local.get().unwrap_or(self.socket.address)
    }

    /// The port that the client connected to. It is known where it is not 0.
    pub(super) fn local_port(&self) -> u16 {
        self.local_address().port()
    }

    /// The client as it is reported to endpoints of this frontend.
    pub(super) fn as_seen<'a>(
        &'a self,
        frontend: &'a Frontend,
        http: &HttpFrontend,
    ) -> forward::Client<'a> {
        let address = self.key.client();
        let trusted = http.options().x_forwarded_trust.as_ref();
        forward::Client {
            address,
            peer_is_trusted: trusted.is_none_or(|trusted| trusted.contains(address.ip())),
            scheme: scheme(http),
            port: self.local_port(),
            subject: frontend.client_auth().map(|auth| forward::Subject {
                header: auth.header(),
                name: self.subject.as_deref(),
            }),
        }
    }

    /// The PROXY header for a new connection to an endpoint of this service; empty if the service asks for none.
    pub(super) fn proxy_header(&self, service: &Service) -> Vec<u8> {
        let ssl = self.ssl.map(|ssl| Ssl {
            common_name: self.common_name.as_deref(),
            ..ssl
        });
        send_proxy::header(
            &self.worker,
            service,
            Transport::Tcp,
            || {
                Some(Addresses {
                    source: self.key.client(),
                    destination: self.local_address(),
                })
            },
            self.proxy_info.as_deref(),
            ssl,
        )
    }

    /// The memory that bodies of HTTP/2 of this client may take, in addition to the first window of each stream.
    pub(super) fn share(&self) -> &Rc<Share> {
        self.share.get_or_init(|| {
            let plan = self.worker.plan();
            let http = self.frontend_in(&plan).map(|(_, http)| http);
            Share::new(http.map_or(0, |http| http.options().http2_memory))
        })
    }

    /// Notes that no endpoint serves the connection now.
    pub(super) fn leave_endpoint(&self) {
        self.worker.connections.borrow_mut().set_idle(self.slot);
    }
}

/// The scheme that the clients of a frontend use.
pub(super) fn scheme(http: &HttpFrontend) -> Scheme {
    if http.is_https() {
        Scheme::Https
    } else {
        Scheme::Http
    }
}
