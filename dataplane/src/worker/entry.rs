//! The access entry of a live connection collects the fields of its access line. Dropping the entry writes the line, also after a
//! panic, a cut or a drain.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ballast_core::admit::Refusal;
use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::plan::FrontendState;
use ballast_core::service::{Service, ServiceState};
use ballast_core::table::Name;

use crate::access::{Progress, Record, WaitPhase, relay_letters};
use crate::net::relay::{Side, Why};
use crate::worker::Worker;

/// The access line of one connection, as far as it is known.
#[derive(Debug)]
pub(crate) struct Entry {
    worker: Rc<Worker>,
    began: Moment,
    frontend: Arc<FrontendState>,
    client: SocketAddr,
    service: Option<(Name, Arc<ServiceState>)>,
    server: Option<(Box<str>, Arc<EndpointState>)>,
    progress: Progress,
    bytes: (u64, u64),
    /// haproxy's two termination letters.
    termination: Option<[u8; 2]>,
    /// Whether there is no line: a mere port probe.
    is_silent: bool,
}

impl Entry {
    /// Creates the entry of an accepted connection; `None` if no lines are wanted.
    pub(crate) fn begin(
        worker: &Rc<Worker>,
        frontend: &Arc<FrontendState>,
        client: SocketAddr,
        began: Moment,
    ) -> Option<Box<Self>> {
        worker.shared.access.is_on().then(|| {
            Box::new(Self {
                worker: Rc::clone(worker),
                began,
                frontend: Arc::clone(frontend),
                client,
                service: None,
                server: None,
                progress: Progress::default(),
                bytes: (0, 0),
                termination: None,
                is_silent: false,
            })
        })
    }

    /// Notes the client that a PROXY header named.
    pub(crate) fn client(&mut self, client: SocketAddr) {
        self.client = client;
    }

    /// Notes the service, and returns where the dial records its progress.
    pub(crate) fn begin_dial(&mut self, service: &Service) -> &mut Progress {
        self.service = Some((service.spec().name.clone(), Arc::clone(service.state())));
        &mut self.progress
    }

    /// Notes the endpoint.
    pub(crate) fn connected(&mut self, service: &Service, endpoint: &Arc<EndpointState>) {
        // A newer plan may have sent the client to another service.
        let is_same = |known: &(Name, _)| Arc::ptr_eq(&known.1, service.state());
        if !self.service.as_ref().is_some_and(is_same) {
            self.service = Some((service.spec().name.clone(), Arc::clone(service.state())));
        }
        let address = endpoint.address();
        let mut specs = service.spec().endpoints.iter();
        let name = specs
            .find(|spec| spec.address == address)
            .and_then(|spec| spec.name.as_deref());
        let name = name.map_or_else(|| address.to_string().into(), Into::into);
        self.server = Some((name, Arc::clone(endpoint)));
    }

    /// Notes the endpoint of the last attempt, where none came to anything.
    fn tried(&mut self) {
        let Some((address, (name, _))) = self.progress.tried.zip(self.service.as_ref()) else {
            return;
        };
        let plan = self.worker.plan();
        let service = plan.service(name);
        let found = service.and_then(|service| {
            let mut endpoints = service.endpoints().iter();
            let endpoint = endpoints.find(|endpoint| endpoint.address() == address)?;
            Some((Arc::clone(service), Arc::clone(endpoint.live())))
        });
        if let Some((service, endpoint)) = found {
            self.connected(&service, &endpoint);
        }
    }

    /// Notes a refusal.
    pub(crate) fn refused(&mut self, refusal: Refusal) {
        if refusal == Refusal::Failed {
            self.tried();
        }
        self.end(match refusal {
            Refusal::NoEndpoint | Refusal::Loop => b"SC",
            Refusal::QueueFull => b"SQ",
            Refusal::QueueTimeout => b"sQ",
            Refusal::Failed if self.progress.timed_out => b"sC",
            Refusal::Failed => b"SC",
            Refusal::SourceRange
            | Refusal::MaxConnections
            | Refusal::MaxConnectionsPerClient
            | Refusal::MaxConnectionRatePerClient => b"PR",
        });
    }

    /// Adds the numbers of bytes from and to the client.
    pub(crate) fn moved(&mut self, up: u64, down: u64) {
        self.bytes.0 += up;
        self.bytes.1 += down;
    }

    /// Notes that the client aborted before it had an endpoint.
    pub(crate) fn client_left(&mut self, phase: WaitPhase) {
        if phase == WaitPhase::Dial {
            self.tried();
        }
        self.end(match phase {
            WaitPhase::Queue => b"CQ",
            WaitPhase::Dial => b"CC",
        });
    }

    /// Notes the end of the relay.
    pub(crate) fn closed(&mut self, why: Why, fault: Option<Side>) {
        self.termination = Some(relay_letters(why, fault));
    }

    /// Notes the termination letters.
    pub(crate) fn end(&mut self, letters: &[u8; 2]) {
        self.termination = Some(*letters);
    }

    /// Drops the entry without a line.
    pub(crate) fn forget(mut self) {
        self.is_silent = true;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.is_silent {
            return;
        }
        // Every end is noted, except an order from outside to end the connection.
        let termination = self
            .termination
            .unwrap_or(match (&self.service, &self.server) {
                (_, Some(_)) => *b"KD",
                (Some(_), None) if self.progress.is_queued => *b"KQ",
                (Some(_), None) => *b"KC",
                (None, None) => *b"KR",
            });
        let shared = &self.worker.shared;
        let (service, server) = (self.service.as_ref(), self.server.as_ref());
        self.worker.lines.add(&Record {
            began: self.began.into(),
            client: self.client,
            frontend: self.frontend.name(),
            service: service.map(|(name, _)| &**name),
            server: server.map(|(name, _)| &**name),
            progress: self.progress,
            total: shared.clock.now().since(self.began),
            bytes_in: self.bytes.0,
            bytes_out: self.bytes.1,
            termination: &termination,
            connections: [
                u32::try_from(shared.connections()).unwrap_or(u32::MAX),
                self.frontend.admit().current(),
                service.map_or(0, |(_, service)| service.current()),
                server.map_or(0, |(_, server)| server.in_flight()),
            ],
            request: None,
        });
    }
}
