//! The counters and the access line of one request. An account is opened with the request's first byte and closed with the end of
//! the response.

use std::mem;
use std::net::SocketAddr;

use ballast_core::admit::Refusal;
use ballast_core::affinity::cookie::SentCookie;
use ballast_core::endpoint::EndpointState;
use ballast_core::http::StatusClass;
use ballast_core::moment::Moment;
use ballast_core::plan::{FrontendCounters, FrontendState};
use ballast_core::service::{Endpoint, Service};

use super::answers::Reason;
use super::exchange::ExchangeFailure;
use super::peer::Peer;
use crate::access::{Progress, Record, Request, WaitPhase};
use crate::connect::{EndpointSession, Unserved, Upstream};
use crate::net::relay::Side;
use crate::os::clock::Micros;
use crate::worker::Worker;
use crate::worker::buffers::WriteBuffer;

/// The account of the request that a client's connection serves, if it serves one.
#[derive(Debug, Default)]
pub(super) struct Account {
    is_open: bool,
    /// When the first byte of the request was read, and when its head was complete.
    began: Micros,
    headed: Option<Micros>,
    pub(super) progress: Progress,
    /// When a connection to an endpoint was there, and when the head of the response was.
    connected: Option<Micros>,
    responded: Option<Micros>,
    status: Option<u16>,
    bytes: (u64, u64),
    phase: Phase,
    ending: Option<[u8; 2]>,
    /// What became of the cookie of the service's affinity, in haproxy's two letters.
    cookie: Option<[u8; 2]>,
    /// Whether the response will give the client a cookie.
    gives_cookie: bool,
    /// The connections of the service and of the endpoint.
    connections: (u32, u32),
    /// `None`: no access lines are wanted, or the request was malformed.
    texts: Option<Texts>,
    is_logged: bool,
}

/// Which phase of a request is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// It is being read.
    #[default]
    Request,
    /// It waits for an endpoint.
    Dial,
    /// It was sent, and the head of its response has not arrived.
    Head,
    /// The response is on its way to the client.
    Data,
}

/// The texts of an access line, one after the other in one buffer.
#[derive(Debug)]
struct Texts {
    bytes: WriteBuffer,
    /// The ends of the request line, the host and the name of the service. The name of the endpoint follows.
    ends: [usize; 3],
}

impl Texts {
    /// `bytes` are the request line.
    fn new(mut bytes: WriteBuffer, host: &[u8]) -> Self {
        let end = bytes.len();
        bytes.extend_from_slice(host);
        let ends = [end, bytes.len(), bytes.len()];
        Self { bytes, ends }
    }

    fn text(&self, from: usize, to: usize) -> &str {
        let bytes = self.bytes.get(from..to).unwrap_or_default();
        str::from_utf8(bytes).unwrap_or_default()
    }

    fn service(&mut self, name: &str) {
        let [_, host, service] = &mut self.ends;
        self.bytes.truncate(*host);
        self.bytes.extend_from_slice(name.as_bytes());
        *service = self.bytes.len();
    }

    fn server(&mut self, service: &Service, index: usize, endpoint: &EndpointState) {
        self.bytes.truncate(self.ends[2]);
        let spec = service.spec().endpoints.get(index);
        match spec.and_then(|spec| spec.name.as_deref()) {
            Some(name) => self.bytes.extend_from_slice(name.as_bytes()),
            None => self
                .bytes
                .extend_from_slice(endpoint.address().to_string().as_bytes()),
        }
    }
}

impl Account {
    /// Notes that the request, which came at `began` with this cookie, waits for an endpoint of `service`.
    pub(super) fn dials(
        &mut self,
        service: &Service,
        cookie: SentCookie,
        began: Moment,
    ) -> &mut Progress {
        self.phase = Phase::Dial;
        self.progress = Progress {
            queued: self.progress.queued,
            ..Progress::default()
        };
        let has_letters = self.is_logged && service.cookie_name().is_some();
        self.cookie = has_letters.then(|| [cookie_letter(service, cookie, began), b'N']);
        if let Some(texts) = &mut self.texts {
            texts.service(&service.spec().name);
        }
        &mut self.progress
    }

    /// Whether a request is being served.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Notes that the request is routed anew. Returns when its first byte was read.
    pub(super) fn routes_anew(&mut self) -> Micros {
        self.phase = Phase::Request;
        self.cookie = None;
        if let Some(texts) = &mut self.texts {
            texts.service("");
        }
        self.began
    }

    /// Notes the endpoint that the request is sent to.
    pub(super) fn connected<S>(&mut self, service: &Service, upstream: &Upstream<S>, now: Micros) {
        let endpoint = upstream.session.lease.endpoint();
        self.phase = Phase::Head;
        self.connected = Some(now);
        if let Some(texts) = &mut self.texts {
            texts.service(&service.spec().name);
            texts.server(service, upstream.index, endpoint);
        }
        self.gives_cookie = upstream.cookie.is_some();
        if let Some([sent @ (b'V' | b'D'), _]) = &mut self.cookie {
            // The endpoint of a good cookie may have been tried in vain, and a client may get another one for this once.
            *sent = if self.gives_cookie { b'D' } else { b'V' };
        }
        self.sees(service, endpoint);
    }

    /// Notes how many connections the service and the endpoint have.
    pub(super) fn sees(&mut self, service: &Service, endpoint: &EndpointState) {
        if self.is_logged {
            self.connections = (service.state().current(), endpoint.in_flight());
        }
    }

    /// Counts the head of the endpoint's response.
    pub(super) fn responded(
        &mut self,
        frontend: &FrontendCounters,
        session: &EndpointSession,
        status: u16,
        now: Micros,
    ) {
        self.phase = Phase::Data;
        self.responded = Some(now);
        if let Some([_, returned]) = self.cookie.as_mut().filter(|_| self.gives_cookie) {
            *returned = b'I';
        }
        let waited = now.since(self.connected.unwrap_or(now));
        session.counters().responded(status, waited);
        self.answers(frontend, status);
    }

    /// Counts at the service how long the request has taken. A switch to another protocol ends the request.
    pub(super) fn count_time(&self, worker: &Worker, service: &Service) {
        let end = match (self.status, self.responded) {
            (Some(101), Some(responded)) => responded,
            _ => worker.shared.clock.precisely(),
        };
        let counters = service.state().counters(worker.id);
        counters.request(end.since(self.began));
    }

    /// Counts bytes from and to the client.
    pub(super) fn moved(&mut self, frontend: &FrontendCounters, up: u64, down: u64) {
        frontend.bytes_in.add(up);
        frontend.bytes_out.add(down);
        self.bytes.0 += up;
        self.bytes.1 += down;
    }

    /// Counts the first `total` bytes of the request, but for those of them that were counted before.
    pub(super) fn received(&mut self, frontend: &FrontendCounters, total: usize) {
        let total = u64::try_from(total).unwrap_or(u64::MAX);
        self.moved(frontend, total.saturating_sub(self.bytes.0), 0);
    }

    /// Counts a response that is about to be sent to the client.
    pub(super) fn answers(&mut self, frontend: &FrontendCounters, status: u16) {
        self.status = Some(status);
        frontend.responses[StatusClass::of(status).index()].add(1);
    }

    /// Notes what has ended the request. The first one counts.
    pub(super) fn ends(&mut self, ending: [u8; 2]) {
        self.ending.get_or_insert(ending);
    }

    /// Notes that the request has failed in its present phase.
    pub(super) fn fails(&mut self, failure: ExchangeFailure) {
        let cause = match failure {
            ExchangeFailure::ClientLeft => b'C',
            ExchangeFailure::ClientTimedOut => b'c',
            ExchangeFailure::ServerLeft { .. } => b'S',
            ExchangeFailure::ServerTimedOut | ExchangeFailure::Expired => b's',
            ExchangeFailure::ClientMalformed | ExchangeFailure::ServerMalformed => b'P',
            ExchangeFailure::Cut => b'K',
        };
        self.ends([cause, self.phase_letter()]);
    }

    /// Notes why there is no endpoint for the request. The line names the endpoint that was tried last.
    pub(super) fn unserved(&mut self, unserved: Unserved, worker: &Worker) {
        let was_tried = matches!(
            unserved,
            Unserved::Refused(Refusal::Failed) | Unserved::ClientLeft(WaitPhase::Dial)
        );
        if let Some(texts) = &mut self.texts
            && let Some(address) = self.progress.tried.filter(|_| was_tried)
        {
            let plan = worker.plan();
            let [_, from, to] = texts.ends;
            let found = plan.service(texts.text(from, to)).and_then(|service| {
                let is_it = |one: &Endpoint| one.address() == address;
                let index = service.endpoints().iter().position(is_it)?;
                Some((service, index, service.endpoints().get(index)?.live()))
            });
            if let Some((service, index, endpoint)) = found {
                texts.server(service, index, endpoint);
                self.sees(service, endpoint);
            }
        }
        self.ends(match unserved {
            Unserved::ClientLeft(WaitPhase::Queue) => *b"CQ",
            Unserved::ClientLeft(WaitPhase::Dial) => *b"CC",
            Unserved::Refused(Refusal::QueueFull) => *b"SQ",
            Unserved::Refused(Refusal::QueueTimeout) => *b"sQ",
            Unserved::Refused(Refusal::Failed) if self.progress.timed_out => *b"sC",
            Unserved::Refused(_) => *b"SC",
        });
    }

    fn phase_letter(&self) -> u8 {
        match self.phase {
            Phase::Request => b'R',
            Phase::Dial if self.progress.is_queued => b'Q',
            Phase::Dial => b'C',
            Phase::Head => b'H',
            Phase::Data => b'D',
        }
    }

    /// A request that was not ended was cut.
    fn termination(&self) -> [u8; 4] {
        let cut = [b'K', self.phase_letter()];
        let [cause, phase] = self.ending.unwrap_or(cut);
        let [sent, returned] = self.cookie.unwrap_or(*b"--");
        [cause, phase, sent, returned]
    }
}

impl Account {
    /// Opens the account of a request of which nothing but its beginning is known.
    pub(super) fn of_malformed(peer: &Peer, began: Micros) -> Self {
        Self {
            is_open: true,
            began,
            is_logged: peer.worker.shared.access.is_on(),
            ..Self::default()
        }
    }

    /// Opens the account of a request whose head is whole. `line` is called for the request line.
    pub(super) fn of(
        peer: &Peer,
        host: &str,
        line: impl FnOnce(&mut Vec<u8>),
        began: Micros,
        now: Micros,
    ) -> Self {
        let mut account = Self::of_malformed(peer, began);
        account.headed = Some(now);
        account.texts = account.is_logged.then(|| {
            let mut bytes = peer.worker.buffers.for_writing();
            line(&mut bytes);
            bytes.truncate(LONGEST_LINE);
            Texts::new(bytes, host.as_bytes())
        });
        account
    }

    /// Counts an answer of Ballast's own by its reason.
    pub(super) fn answers_because(&mut self, reason: Reason, counters: &FrontendCounters) {
        let ending = match reason {
            Reason::Asked => {
                counters.intercepted.add(1);
                b"LR"
            }
            Reason::Denied => {
                counters.denied_requests.add(1);
                b"PR"
            }
            Reason::Malformed => {
                counters.bad_requests.add(1);
                b"PR"
            }
            Reason::Late => {
                counters.bad_requests.add(1);
                b"cR"
            }
            // Noted where it was noticed.
            Reason::Unserved => return,
            Reason::Failed(failure) => {
                if failure.fault() == Some(Side::Client) {
                    counters.bad_requests.add(1);
                }
                return;
            }
        };
        self.ends(*ending);
    }

    /// Closes the account and writes the access line, if it is open.
    pub(super) fn close(&mut self, peer: &Peer) {
        if !mem::take(&mut self.is_open) {
            return;
        }
        if mem::take(&mut self.is_logged) {
            self.log(&peer.worker, peer.key.client(), &peer.frontend);
        }
        // Gives the buffer back.
        self.texts = None;
    }

    fn log(&self, worker: &Worker, client: SocketAddr, frontend: &FrontendState) {
        let account = self;
        let now = worker.shared.clock.precisely();
        let texts = account.texts.as_ref();
        let names = texts.map(|texts| {
            let [_, host, service] = texts.ends;
            let end = texts.bytes.len();
            (texts.text(host, service), texts.text(service, end))
        });
        let some = |name: &&str| !name.is_empty();
        worker.lines.add(&Record {
            began: account.began,
            client,
            frontend: frontend.name(),
            service: names.map(|(service, _)| service).filter(some),
            server: names.map(|(_, server)| server).filter(some),
            progress: account.progress,
            total: now.since(account.began),
            bytes_in: account.bytes.0,
            bytes_out: account.bytes.1,
            termination: &account.termination(),
            connections: [
                worker.shared.admit.current(),
                frontend.admit().current(),
                account.connections.0,
                account.connections.1,
            ],
            request: Some(Request {
                receiving: account.headed.map(|headed| headed.since(account.began)),
                responding: account
                    .responded
                    .map(|responded| responded.since(account.connected.unwrap_or(responded))),
                status: account.status,
                line: texts.map(|texts| {
                    let [request, host, _] = texts.ends;
                    (texts.text(0, request), texts.text(request, host))
                }),
            }),
        });
    }
}

/// haproxy's letter for the cookie that a client sent, before an endpoint is dialed.
fn cookie_letter(service: &Service, sent: SentCookie, now: Moment) -> u8 {
    let value = match sent {
        SentCookie::None => return b'N',
        SentCookie::Foreign => return b'I',
        SentCookie::Value(value) => value,
    };
    match service.keeps_by_cookie(value, now) {
        None => b'I',
        Some(true) => b'V',
        Some(false) => b'D',
    }
}

/// The beginning of a head up to the end of the request line, which may follow empty lines.
pub(super) fn request_line(head: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let begin = head.iter().position(|byte| !is_end(byte));
    let line = &head[begin.unwrap_or(head.len())..];
    let line = line.get(..LONGEST_LINE).unwrap_or(line);
    let end = line.iter().position(is_end);
    &line[..end.unwrap_or(line.len())]
}

/// So much of a request line is logged, as by haproxy.
const LONGEST_LINE: usize = 1024;
