//! The dial: attempts to connect to an endpoint of a service, until one succeeds.
//!
//! Each attempt takes a lease on an endpoint, and each failure is reported to the service, which may eject the endpoint. No
//! endpoint is sent a byte of the client before its connection is established, so nothing is lost by trying another one.

use std::cell::OnceCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ballast_core::admit::{Admission, Refusal};
use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::pick::{Key, Picked, Tried, Unavailable};
use ballast_core::service::{Failure, Service};
use socket2::Type;

use crate::access::{Progress, WaitPhase};
use crate::net::poller::{Stream, Timer};
use crate::net::source_address;
use crate::net::tls::MaybeTls;
use crate::os::log::LogLimiter;
use crate::os::socket_error;
use crate::worker::pool::{Multiplexed, Owner, Pool, Use};
use crate::worker::{Stage, Worker, WorkerPlan};

mod outcome;
mod retry_pause;
mod secure;
mod shared;
mod trial;

pub(crate) use outcome::{EndpointSession, Link, Unserved, Upstream};

/// The requester of an endpoint. It need not be a connection: an HTTP/2 request has none of its own.
pub(crate) struct Caller<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    /// The client's address, by which endpoints are chosen.
    pub(crate) key: &'a Key,
    /// The slot of the client's connection in the worker's list.
    pub(crate) slot: usize,
    /// When the client's connection was accepted, or its request began.
    pub(crate) began: Moment,
    /// Whether the client has come to the service before, and counts there.
    pub(crate) has_come: bool,
    /// Whether an idle connection to the endpoint will do, and whose; `None`: a new one is made.
    pub(crate) idle: Option<Owner>,
    /// Whether a connection serves a request of another client, if this client leaves while the connection is made.
    pub(crate) keeps: bool,
    /// How connections are shared that serve many requests at once; `None`: the caller wants one for itself.
    pub(crate) multiplexed: Option<Multiplexed>,
    /// The PROXY header for an endpoint of this service. It is asked for only where TLS is spoken with the endpoint, because it
    /// precedes the handshake; a caller that gets an upstream without TLS sends it with the first bytes.
    pub(crate) proxy_header: &'a dyn Fn(&Service) -> Vec<u8>,
    /// Where the share of a request is kept that takes as much of the process's room as a connection; `None`: the caller has its
    /// share.
    pub(crate) room: Option<&'a OnceCell<Admission>>,
    /// The service in a newer plan, for a client that waited with this one. `None`: it stays with the service as it was.
    pub(crate) service_in: &'a ServiceIn<'a>,
    /// Ready when the client no longer wants an endpoint.
    pub(crate) poll_gone: &'a dyn Fn(&Context<'_>) -> Poll<()>,
}

/// See [`Caller::service_in`].
pub(crate) type ServiceIn<'a> =
    dyn Fn(&WorkerPlan, &Service) -> Result<Option<Arc<Service>>, Refusal> + 'a;

impl fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("key", self.key)
            .finish_non_exhaustive()
    }
}

/// Connects the caller to an endpoint of this service of `plan`, or returns why that is not possible. Returns the service
/// with the endpoint, because a newer plan may have replaced it meanwhile. `progress` is updated throughout the dial; what it has of
/// time in queues is added to.
pub(crate) async fn dial(
    caller: Caller<'_>,
    service: Arc<Service>,
    plan: WorkerPlan,
    progress: &mut Progress,
) -> Result<(Upstream, Arc<Service>), Unserved> {
    let (upstream, service) = dial_link(caller, service, plan, progress).await?;
    let Link::Own(stream) = upstream.stream else {
        // The caller did not ask for a part in a connection.
        return Err(Refusal::Failed.into());
    };
    let upstream = Upstream {
        stream,
        session: upstream.session,
        is_reused: upstream.is_reused,
        index: upstream.index,
        cookie: upstream.cookie,
    };
    Ok((upstream, service))
}

/// Like [`dial`], for a caller that may share a connection with others.
pub(crate) async fn dial_link(
    caller: Caller<'_>,
    service: Arc<Service>,
    plan: WorkerPlan,
    progress: &mut Progress,
) -> Result<(Upstream<Link>, Arc<Service>), Unserved> {
    let now = caller.worker.shared.clock.now();
    let waited = progress.queued.unwrap_or_default();
    let attempts = Attempts {
        caller,
        progress,
        service,
        plan,
        tried: Tried::default(),
        last_failed: None,
        began: now,
        now,
        waited,
        queued: Duration::ZERO,
        deadline: None,
    };
    attempts.run().await
}

pub(super) struct Attempts<'a> {
    pub(super) caller: Caller<'a>,
    pub(super) progress: &'a mut Progress,
    /// The service as in `plan`. A newer plan is read only after a wait, or after connections were cut.
    pub(super) service: Arc<Service>,
    pub(super) plan: WorkerPlan,
    pub(super) tried: Tried,
    /// The endpoint of the last attempt, if that attempt failed.
    last_failed: Option<Arc<EndpointState>>,
    began: Moment,
    /// The time as of the last wait.
    pub(super) now: Moment,
    /// How long the client waited in queues before this dial: it may have been for a service that is gone.
    pub(super) waited: Duration,
    pub(super) queued: Duration,
    /// The end of the connect timeout; set by the first attempt.
    pub(super) deadline: Option<Moment>,
}

/// What a connection to an endpoint is made of.
pub(super) struct Reach {
    worker: Rc<Worker>,
    service: Arc<Service>,
    plan: WorkerPlan,
    endpoint: Arc<EndpointState>,
    /// The PROXY header, where TLS follows it.
    proxy_header: Vec<u8>,
    until: Moment,
}

/// A connection that is being made.
type Making = Pin<Box<dyn Future<Output = Result<MaybeTls, AttemptError>>>>;

/// A connection to the picked endpoint.
enum Connected {
    New(MaybeTls),
    /// It was idle after an earlier request.
    Idle(MaybeTls),
    /// It serves many requests at once.
    Shared {
        link: Use,
        is_reused: bool,
    },
}

/// Why an attempt failed.
#[derive(Debug)]
enum AttemptError {
    Socket(io::Error),
    /// The client aborted.
    ClientLeft,
    /// An order cut the endpoint's connections, or the endpoint may not have connections any more.
    Cut,
}

impl From<io::Error> for AttemptError {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl Attempts<'_> {
    async fn run(mut self) -> Result<(Upstream<Link>, Arc<Service>), Unserved> {
        let worker = self.caller.worker;
        if !self.caller.has_come {
            self.service.state().counters(worker.id).sessions.add(1);
        }
        if let Some(room) = self.caller.room.filter(|room| room.get().is_none()) {
            match worker.shared.admit_request() {
                Some(admission) => drop(room.set(admission)),
                None => Box::pin(self.wait_for_room(room)).await?,
            }
        }
        loop {
            let picked = self.pick().await?;
            self.progress.queued = Some(self.waited + self.queued);
            let picked = self.spare_client(picked);
            self.count_retry(&picked);
            if picked.is_panic {
                self.service.state().counters(worker.id).panics.add(1);
            }
            let began = self.now;
            let attempt = self.attempt(&picked).await;
            if attempt.is_err() {
                self.progress.tried = Some(picked.lease.address());
            }
            match attempt {
                Ok(connected) => return Ok(self.connected(picked, connected)),
                Err(AttemptError::ClientLeft) => {
                    let counters = picked.lease.endpoint().counters(worker.id);
                    counters.client_aborts.add(1);
                    return Err(Unserved::ClientLeft(WaitPhase::Dial));
                }
                Err(AttemptError::Socket(error)) => {
                    let failure = self.report_failure(&picked, &error, began);
                    self.next_attempt(&picked, failure)?;
                }
                Err(AttemptError::Cut) => {
                    self.tried.cut(picked.lease.endpoint());
                    self.next_attempt(&picked, Failure::Refused)?;
                    // If the endpoint left the table, its replacements are in a newer plan.
                    self.refresh_service()?;
                }
            }
        }
    }

    /// The endpoint to try next.
    async fn pick(&mut self) -> Result<Picked, Unserved> {
        loop {
            let mut picked = self.pick_behind_the_queue();
            // Once more, if a newer plan sends the client to another service that is full, too.
            while let Err(Unavailable::Full) = picked {
                picked = Box::pin(self.wait_in_queue()).await?;
            }
            match picked {
                Ok(picked) => return Ok(picked),
                Err(why) => Box::pin(self.wait_to_try_again(why)).await?,
            }
        }
    }

    /// An endpoint for a client that has not waited: who waits comes first.
    pub(super) fn pick_behind_the_queue(&self) -> Result<Picked, Unavailable> {
        let mut rng = self.caller.worker.rng.borrow_mut();
        self.service
            .pick(self.caller.key, &self.tried, self.now, &mut rng)
    }

    pub(super) fn pick_in_turn(&self) -> Result<Picked, Unavailable> {
        let mut rng = self.caller.worker.rng.borrow_mut();
        self.service
            .pick_in_turn(self.caller.key, &self.tried, self.now, &mut rng)
    }

    /// Switches to the client's service in the plan in force. Returns whether that is another service than before.
    pub(super) fn refresh_service(&mut self) -> Result<bool, Refusal> {
        let plan = self.caller.worker.plan();
        if Arc::ptr_eq(&plan, &self.plan) {
            return Ok(false);
        }
        let Some(service) = (self.caller.service_in)(&plan, &self.service)? else {
            return Ok(false);
        };
        let is_another = !Arc::ptr_eq(service.state(), self.service.state());
        if is_another {
            let counters = service.state().counters(self.caller.worker.id);
            counters.sessions.add(1);
        }
        (self.service, self.plan) = (service, plan);
        Ok(is_another)
    }

    /// Counts a further attempt, at the same endpoint as the previous one or at another one.
    fn count_retry(&mut self, picked: &Picked) {
        let Some(last_failed) = self.last_failed.take() else {
            return;
        };
        let counters = last_failed.counters(self.caller.worker.id);
        if Arc::ptr_eq(&last_failed, picked.lease.endpoint()) {
            counters.retries.add(1);
        } else {
            counters.redispatches.add(1);
            self.progress.is_redispatched = true;
        }
        self.progress.retries += 1;
    }

    /// The refusal when no endpoint can be picked: either none ever could be, or all have been tried.
    pub(super) fn refusal(&self, why: Unavailable) -> Refusal {
        match why {
            _ if !self.tried.is_empty() => Refusal::Failed,
            Unavailable::Loop => Refusal::Loop,
            Unavailable::NoEndpoint | Unavailable::Full => Refusal::NoEndpoint,
        }
    }

    pub(super) fn count_unserved(&self) {
        let counters = self.service.state().counters(self.caller.worker.id);
        counters.unserved.add(u64::from(self.tried.is_empty()));
    }

    /// One attempt. It is short while another endpoint is left to try, else as long as the connect timeout allows.
    async fn attempt(&mut self, picked: &Picked) -> Result<Connected, AttemptError> {
        let worker = self.caller.worker;
        let endpoint = picked.lease.endpoint();
        let counters = endpoint.counters(worker.id);
        counters.picked.add(1);
        worker
            .connections
            .borrow_mut()
            .set_endpoint(self.caller.slot, endpoint);
        if let Some(how) = self.caller.multiplexed {
            return Box::pin(self.attempt_shared(picked, how)).await;
        }
        if let Some(owner) = self.caller.idle
            && let Some(stream) = worker.pool.take(endpoint, self.service.spec(), owner)
        {
            counters.reuses.add(1);
            return Ok(Connected::Idle(stream));
        }
        self.connect(picked).await.map(Connected::New)
    }

    /// Makes a connection.
    async fn connect(&mut self, picked: &Picked) -> Result<MaybeTls, AttemptError> {
        let reach = self.reach(picked);
        let connected = if self.caller.keeps {
            self.connect_to_keep(reach).await
        } else {
            self.race(pin!(reach.run())).await
        };
        self.now = self.caller.worker.shared.clock.now();
        connected
    }

    /// What a connection to this endpoint is made of. It is about to be made.
    fn reach(&mut self, picked: &Picked) -> Reach {
        let worker = self.caller.worker;
        let endpoint = picked.lease.endpoint();
        endpoint.counters(worker.id).dials.add(1);
        worker
            .shared
            .reached(Stage::Dialing, self.caller.key.client());
        Reach {
            until: self.attempt_deadline(picked),
            worker: Rc::clone(worker),
            service: Arc::clone(&self.service),
            plan: Rc::clone(&self.plan),
            endpoint: Arc::clone(endpoint),
            proxy_header: secure::header_before(&self.caller, &self.service),
        }
    }

    /// Waits for a connection, unless the client leaves.
    async fn race<T>(
        &self,
        mut connecting: Pin<&mut (impl Future<Output = Result<T, AttemptError>> + ?Sized)>,
    ) -> Result<T, AttemptError> {
        let poll_gone = self.caller.poll_gone;
        poll_fn(|cx| {
            if let Poll::Ready(connected) = connecting.as_mut().poll(cx) {
                return Poll::Ready(connected);
            }
            poll_gone(cx).map(|()| Err(AttemptError::ClientLeft))
        })
        .await
    }

    /// Makes a connection that serves a later request, of any client, if this client leaves meanwhile. The heap holds what makes it,
    /// because that may outlive the request.
    async fn connect_to_keep(&self, reach: Reach) -> Result<MaybeTls, AttemptError> {
        let (worker, service) = (Rc::clone(&reach.worker), Arc::clone(&reach.service));
        let endpoint = Arc::clone(&reach.endpoint);
        if let Some(left) = worker.pool.claim(&endpoint, service.spec()) {
            let making = async { left.made().await.map_err(AttemptError::Socket) };
            let made = self.race(pin!(making)).await;
            if let Err(AttemptError::ClientLeft) = made {
                Pool::leave_again(&worker, &endpoint, left);
            }
            return made;
        }
        let mut making: Making = Box::pin(reach.run());
        let made = self.race(making.as_mut()).await;
        if let Err(AttemptError::ClientLeft) = made {
            let making = async move {
                making.await.map_err(|error| match error {
                    AttemptError::Socket(error) => error,
                    AttemptError::ClientLeft | AttemptError::Cut => {
                        io::ErrorKind::ConnectionAborted.into()
                    }
                })
            };
            Pool::leave_behind(&worker, &endpoint, service.spec(), making);
        }
        made
    }

    /// The end of the connect timeout, which begins with the first attempt.
    fn deadline(&mut self) -> Moment {
        let deadline = self.now.after(self.service.spec().timeouts.connect);
        *self.deadline.get_or_insert(deadline)
    }

    /// The end of the attempt that begins now.
    fn attempt_deadline(&mut self, picked: &Picked) -> Moment {
        let deadline = self.deadline();
        let is_last = self.tried.len() >= usize::from(self.service.spec().retries)
            || !self.service.has_another(picked.index, &self.tried);
        if is_last {
            deadline
        } else {
            deadline.min(self.now.after(short_attempt(&self.service)))
        }
    }

    /// Prepares the next attempt, if time and attempts are left.
    fn next_attempt(&mut self, picked: &Picked, failure: Failure) -> Result<(), Refusal> {
        if let Some(endpoint) = self.service.endpoints().get(picked.index) {
            self.tried.note(endpoint, failure);
        }
        self.progress.timed_out = failure == Failure::TimedOut;
        if self.service.is_spent(&self.tried)
            || self.deadline.is_some_and(|deadline| self.now >= deadline)
        {
            return Err(Refusal::Failed);
        }
        self.last_failed = Some(Arc::clone(picked.lease.endpoint()));
        Ok(())
    }

    /// Reports a failed attempt to the service. A failure for want of a local resource says nothing about the endpoint.
    fn report_failure(&self, picked: &Picked, error: &io::Error, began: Moment) -> Failure {
        let endpoint = picked.lease.endpoint();
        if !socket_error::is_local(error) {
            let counters = endpoint.counters(self.caller.worker.id);
            counters.connect_errors.add(1);
        }
        let Some(failure) = socket_error::endpoint_failure(error) else {
            static LIMITER: LogLimiter = LogLimiter::new();
            if let Some(suppressed) = LIMITER.allow(self.now) {
                let service = endpoint.service().name();
                tracing::warn!(
                    service,
                    endpoint = %endpoint.address(),
                    %error,
                    suppressed,
                    "cannot connect to an endpoint, for a reason of this side's"
                );
            }
            return Failure::Unreachable;
        };
        let news = self.service.failed(picked.index, failure, began, self.now);
        socket_error::report_failure(endpoint, &news, &self.plan, self.now);
        failure
    }

    fn connected(self, picked: Picked, connected: Connected) -> (Upstream<Link>, Arc<Service>) {
        let connecting = self.now.since(self.began).saturating_sub(self.queued);
        self.progress.connecting = Some(connecting);
        let (stream, is_reused) = match connected {
            Connected::New(stream) => (Link::Own(stream), false),
            Connected::Idle(stream) => (Link::Own(stream), true),
            Connected::Shared { link, is_reused } => (Link::Shared(link), is_reused),
        };
        if !is_reused {
            picked.lease.endpoint().connected(self.now);
        }
        let cookie = self.service.new_cookie(self.caller.key, &picked);
        let Caller { worker, began, .. } = self.caller;
        let index = picked.index;
        let session = EndpointSession::new(picked.lease, worker, began);
        session
            .counters()
            .session(self.now, self.queued, connecting);
        let upstream = Upstream {
            stream,
            session,
            is_reused,
            index,
            cookie,
        };
        (upstream, self.service)
    }
}

fn short_attempt(service: &Service) -> Duration {
    FIRST_ATTEMPTS.min(service.spec().timeouts.connect / 2)
}

/// Connects to an endpoint, from one of the service's source addresses if it has any.
async fn open_stream(
    worker: &Worker,
    service: &Service,
    endpoint: &Arc<EndpointState>,
    until: Moment,
) -> Result<Stream, AttemptError> {
    let turn = || service.state().next_source();
    let mut result = Err(io::Error::from(io::ErrorKind::AddrNotAvailable).into());
    for source in source_address::candidates(&service.spec().source, endpoint.address(), turn) {
        result = open_stream_from(source, worker, endpoint, until).await;
        if !matches!(&result, Err(AttemptError::Socket(error)) if source_address::has_no_port(error))
        {
            break;
        }
    }
    result
}

async fn open_stream_from(
    source: Option<IpAddr>,
    worker: &Worker,
    endpoint: &Arc<EndpointState>,
    until: Moment,
) -> Result<Stream, AttemptError> {
    let memory = worker.shared.room.memory;
    let socket =
        source_address::begin_connect_with(endpoint.address(), source, Type::STREAM, |socket| {
            // Without a memory limit the kernel sizes its buffers best by itself.
            memory.map_or(Ok(()), |memory| memory.buffers.limit(socket))
        })?;
    let poller = &worker.tools.poller;
    let stream = Stream::connecting(poller, socket.into(), endpoint)?;
    // From now on an order to cut this endpoint's connections finds the stream. An earlier order has marked the endpoint as
    // ended.
    if endpoint.has_ended() {
        return Err(AttemptError::Cut);
    }
    let mut timer = Timer::new(poller);
    timer.set(until);
    poll_fn(|cx| {
        if stream.is_cut() {
            return Poll::Ready(Err(AttemptError::Cut));
        }
        if let Poll::Ready(connected) = stream.poll_connected(cx) {
            return Poll::Ready(connected.map_err(AttemptError::Socket));
        }
        timer
            .poll(cx)
            .map(|()| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    })
    .await?;
    Ok(stream)
}

/// Long enough for one retransmission of a lost SYN.
const FIRST_ATTEMPTS: Duration = Duration::from_millis(1_250);
