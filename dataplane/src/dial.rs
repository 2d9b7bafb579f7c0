//! To an endpoint: the attempt loop around `pick`.
//!
//! Every attempt takes a lease, and every failure is told to the service, which may eject the endpoint. Not a byte of
//! the client is read before a connection stands, so nothing is lost by trying elsewhere.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ballast_core::admit::Refusal;
use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::pick::{Key, Picked, Tried, Unavailable};
use ballast_core::plan::Plan;
use ballast_core::service::{Failure, Service};
use ballast_core::table::Protocol;
use socket2::Type;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::log::Rarely;
#[cfg(test)]
use crate::tcp;
use crate::{fault, source};

mod client;
mod header;
mod outcome;
mod queue;
mod trial;

pub(crate) use client::Client;
pub(crate) use outcome::{Dial, Dialed, During, Unserved};

use client::InVain;
use header::header;

/// Who asks to be connected.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The client, by which endpoints are chosen.
    pub(crate) key: Key,
    /// What it connected to, where a PROXY header said so.
    pub(crate) destination: Option<SocketAddr>,
    /// The name that it asked for, where one is known.
    pub(crate) authority: Option<Box<str>>,
    /// What another proxy calls this connection.
    pub(crate) unique_id: Option<Box<[u8]>>,
}

impl Caller {
    pub(crate) fn new(peer: SocketAddr) -> Self {
        Self {
            key: Key::new(peer),
            destination: None,
            authority: None,
            unique_id: None,
        }
    }
}

/// Connects the client to an endpoint of this service of `plan`, or says why it cannot be. How it went is in `dial`,
/// whatever the end.
pub(crate) async fn connect(
    client: Client<'_>,
    caller: &Caller,
    (service, plan): (Arc<Service>, Arc<Plan>),
    now: Moment,
    dial: &mut Dial,
) -> Result<Dialed, Unserved> {
    let attempts = Attempts {
        client,
        caller,
        dial,
        service,
        plan,
        tried: Tried::default(),
        left: None,
        arrived: now,
        now,
        queued: Duration::ZERO,
        deadline: None,
    };
    attempts.run().await
}

/// The way of one client to an endpoint.
struct Attempts<'a> {
    client: Client<'a>,
    caller: &'a Caller,
    dial: &'a mut Dial,
    /// Of the plan: only after a wait or a cut is a newer one asked.
    service: Arc<Service>,
    plan: Arc<Plan>,
    tried: Tried,
    /// Whom it tried last.
    left: Option<Arc<EndpointState>>,
    arrived: Moment,
    /// As it was after the last wait.
    now: Moment,
    queued: Duration,
    /// When the time to connect is over, once it has begun.
    deadline: Option<Moment>,
}

impl Attempts<'_> {
    async fn run(mut self) -> Result<Dialed, Unserved> {
        let worker = self.client.worker;
        self.service.state().counters(worker.id).sessions.add(1);
        loop {
            let picked = self.pick().await?;
            if let Some(left) = self.left.take() {
                left.counters(worker.id).redispatches.add(1);
                self.dial.retries += 1;
            }
            self.dial.queued = Some(self.queued);
            let picked = self.spare_client(picked);
            if picked.is_panic {
                self.service.state().counters(worker.id).panics.add(1);
            }
            let began = self.now;
            match self.attempt(&picked).await {
                Ok(stream) => return Ok(self.connected(picked, stream)),
                Err(InVain::ClientLeft) => {
                    let counters = picked.lease.endpoint().counters(worker.id);
                    counters.client_aborts.add(1);
                    return Err(Unserved::Left(During::Dial));
                }
                Err(InVain::Failed(error)) => {
                    let failure = self.note_failure(&picked, &error, began);
                    self.go_on(&picked, failure)?;
                }
                Err(InVain::Cut) => {
                    self.go_on(&picked, Failure::Refused)?;
                    // Where its endpoint is gone, those that came instead are in a newer plan.
                    self.follow_table()?;
                }
            }
        }
    }

    /// Whom to try next.
    async fn pick(&mut self) -> Result<Picked, Unserved> {
        let picked = self.service.pick(
            &self.caller.key,
            &self.tried,
            self.now,
            &mut self.client.worker.rng.borrow_mut(),
        );
        match picked {
            Ok(picked) => Ok(picked),
            Err(Unavailable::NoEndpoint) => {
                self.count_unserved();
                Err(self.none_left().into())
            }
            Err(Unavailable::Full) => Box::pin(self.wait_in_queue()).await,
        }
    }

    fn pick_in_turn(&self) -> Result<Picked, Unavailable> {
        let mut rng = self.client.worker.rng.borrow_mut();
        self.service
            .pick_in_turn(&self.caller.key, &self.tried, self.now, &mut rng)
    }

    /// From now on its service is that of the plan in force.
    fn follow_table(&mut self) -> Result<(), Refusal> {
        let plan = self.client.worker.shared.live.plan();
        if !Arc::ptr_eq(&plan, &self.plan) {
            let service = plan.service(self.service.state().name());
            self.service = Arc::clone(service.ok_or(Refusal::NoEndpoint)?);
            self.plan = plan;
        }
        Ok(())
    }

    /// Nobody can be picked: from the beginning, or because all have been tried.
    fn none_left(&self) -> Refusal {
        if self.tried.is_empty() {
            Refusal::NoEndpoint
        } else {
            Refusal::Failed
        }
    }

    fn count_unserved(&self) {
        let counters = self.service.state().counters(self.client.worker.id);
        counters.unserved.add(u64::from(self.tried.is_empty()));
    }

    /// One attempt: short while there is somebody else to try, else as long as is left.
    async fn attempt(&mut self, picked: &Picked) -> Result<TcpStream, InVain> {
        let Client { worker, seat, .. } = self.client;
        let endpoint = picked.lease.endpoint();
        // From now on an order to cut its connections finds this one. One that came before has left its mark.
        worker.seats.borrow_mut().at_endpoint(seat, endpoint);
        if endpoint.has_ended() {
            worker.seats.borrow_mut().dialed_in_vain(seat);
            return Err(InVain::Cut);
        }
        let counters = endpoint.counters(worker.id);
        counters.picked.add(1);
        counters.dials.add(1);
        #[cfg(test)]
        tcp::tests::come_by(tcp::tests::DIALING, self.client.socket.peer_addr().ok());
        let until = worker.shared.clock.instant(self.until(picked));
        let address = picked.lease.address();
        let reached = reach(&self.service, address, until, Some(self.client)).await;
        self.now = worker.shared.clock.now();
        let mut seats = worker.seats.borrow_mut();
        match &reached {
            Ok(_) => seats.dialed(seat),
            Err(_) => seats.dialed_in_vain(seat),
        }
        drop(seats);
        reached
    }

    /// When the attempt that begins now is to end.
    fn until(&mut self, picked: &Picked) -> Moment {
        let spec = self.service.spec();
        let deadline = self.now.after(spec.timeouts.connect);
        let deadline = *self.deadline.get_or_insert(deadline);
        let is_last = self.tried.len() >= usize::from(spec.retries)
            || !self.service.has_another(picked.index, &self.tried);
        match is_last {
            true => deadline,
            false => deadline.min(self.now.after(short_attempt(&self.service))),
        }
    }

    /// On to somebody else, while there is time and an attempt is left.
    fn go_on(&mut self, picked: &Picked, failure: Failure) -> Result<(), Refusal> {
        if let Some(endpoint) = self.service.endpoints().get(picked.index) {
            self.tried.note(endpoint, failure);
        }
        self.dial.timed_out = failure == Failure::TimedOut;
        let spent = self.tried.len() > usize::from(self.service.spec().retries);
        if spent || self.deadline.is_some_and(|deadline| self.now >= deadline) {
            return Err(Refusal::Failed);
        }
        self.left = Some(Arc::clone(picked.lease.endpoint()));
        Ok(())
    }

    /// Tells the service of a failed attempt. An attempt that failed for want of something of our own says nothing
    /// about the endpoint.
    fn note_failure(&self, picked: &Picked, error: &io::Error, began: Moment) -> Failure {
        let endpoint = picked.lease.endpoint();
        if !fault::is_ours(error) {
            let counters = endpoint.counters(self.client.worker.id);
            counters.connect_errors.add(1);
        }
        let Some(failure) = fault::of_endpoint(error) else {
            static SAID: Rarely = Rarely::new();
            if let Some(unsaid) = SAID.say(self.now) {
                tracing::warn!(endpoint = %endpoint.address(), %error, unsaid, "cannot dial");
            }
            return Failure::Unreachable;
        };
        let news = self.service.failed(picked.index, failure, began, self.now);
        fault::announce(endpoint, &news, &self.plan, self.now);
        failure
    }

    fn connected(self, picked: Picked, stream: TcpStream) -> Dialed {
        let (service, worker) = (&self.service, self.client.worker);
        let connecting = self.now.since(self.arrived).saturating_sub(self.queued);
        self.dial.connecting = Some(connecting);
        service.connected(picked.index, self.now);
        let counters = picked.lease.endpoint().counters(worker.id);
        counters.session(self.now, self.queued, connecting);
        let name = worker.shared.access.is_on().then(|| {
            let endpoint = service.spec().endpoints.get(picked.index);
            match endpoint.and_then(|endpoint| endpoint.name.as_deref()) {
                Some(name) => name.into(),
                None => picked.lease.address().to_string().into(),
            }
        });
        Dialed {
            stream,
            lease: picked.lease,
            name,
            header: header(service, &self.client, self.caller),
            server_timeout: service.spec().timeouts.server(Protocol::Tcp),
            server_fin: service.spec().timeouts.server_fin,
        }
    }
}

fn short_attempt(service: &Service) -> Duration {
    FIRST_ATTEMPTS.min(service.spec().timeouts.connect / 2)
}

/// Dials from one of the service's own addresses, if it has any.
async fn reach(
    service: &Service,
    address: SocketAddr,
    until: Instant,
    client: Option<Client<'_>>,
) -> Result<TcpStream, InVain> {
    let turn = || service.state().next_source();
    let mut result = Err(io::Error::from(io::ErrorKind::AddrNotAvailable).into());
    for source in source::candidates(&service.spec().source, address, turn) {
        result = dial(address, source, until, client).await;
        if !matches!(&result, Err(InVain::Failed(error)) if source::is_used_up(error)) {
            break;
        }
    }
    result
}

async fn dial(
    address: SocketAddr,
    source: Option<IpAddr>,
    until: Instant,
    client: Option<Client<'_>>,
) -> Result<TcpStream, InVain> {
    let memory = client.and_then(|client| client.worker.shared.room.memory);
    let socket = source::connecting_as(address, source, Type::STREAM, |socket| {
        // Without a limit of memory the kernel finds the best sizes.
        memory.map_or(Ok(()), |memory| memory.buffers.limit(socket))
    })?;
    socket.set_tcp_nodelay(true)?;
    let stream = TcpStream::from_std(socket.into())?;
    let answer = async {
        timeout_at(until, stream.ready(Interest::WRITABLE | Interest::ERROR))
            .await
            .map_err(|_| io::ErrorKind::TimedOut)?
    };
    let ready = match client {
        Some(client) => client.wait(answer).await?,
        None => answer.await?,
    };
    // Only a socket that says that something is wrong is asked what.
    if (ready.is_error() || ready.is_write_closed())
        && let Some(error) = stream.take_error()?
    {
        return Err(error.into());
    }
    Ok(stream)
}

/// Long enough for one lost SYN to be repeated.
const FIRST_ATTEMPTS: Duration = Duration::from_millis(1_250);
