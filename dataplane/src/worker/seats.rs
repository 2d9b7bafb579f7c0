//! The connections of a worker, each in its seat, for those who order one to end or ask which there are.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::plan::SocketKey;
use tokio::task::AbortHandle;

/// The connections of a worker, found by the endpoint that they have: nothing else can end one from outside.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    seats: Vec<Seated>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct Seated {
    task: Option<AbortHandle>,
    /// Who came, by which socket, and when.
    came: Option<(SocketAddr, Arc<SocketKey>, Moment)>,
    endpoint: Option<Arc<EndpointState>>,
    /// Whom to wake, as long as that endpoint is being dialed, or soon will be once more.
    dialing: Option<Waker>,
}

impl Seats {
    pub(crate) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.seats.push(Seated::default());
            self.seats.len() - 1
        })
    }

    pub(crate) fn occupy(&mut self, seat: usize, task: AbortHandle) {
        self.seats[seat].task = Some(task);
    }

    pub(crate) fn came(&mut self, seat: usize, from: SocketAddr, by: Arc<SocketKey>, at: Moment) {
        self.seats[seat].came = Some((from, by, at));
    }

    /// A proxy has said for whom it came.
    pub(crate) fn is_for(&mut self, seat: usize, client: SocketAddr) {
        if let Some((came, ..)) = &mut self.seats[seat].came {
            *came = client;
        }
    }

    pub(crate) fn at_endpoint(&mut self, seat: usize, endpoint: &Arc<EndpointState>) {
        self.seats[seat].endpoint = Some(Arc::clone(endpoint));
    }

    /// The dial to its endpoint goes on. `false`: not any more, its connections have been cut.
    pub(crate) fn goes_on_dialing(&mut self, seat: usize, waker: &Waker) -> bool {
        let seated = &mut self.seats[seat];
        if seated.endpoint.is_none() {
            return false;
        }
        match &mut seated.dialing {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    pub(crate) fn dialed(&mut self, seat: usize) {
        self.seats[seat].dialing = None;
    }

    pub(crate) fn dialed_in_vain(&mut self, seat: usize) {
        let seated = &mut self.seats[seat];
        (seated.dialing, seated.endpoint) = (None, None);
    }

    pub(crate) fn leave(&mut self, seat: usize) {
        self.seats[seat] = Seated::default();
        self.free.push(seat);
    }

    /// The first `most` of its connections.
    pub(super) fn list(&self, most: usize) -> Vec<Seen> {
        let seats = self.seats.iter().enumerate().take(MOST_LOOKED_AT);
        let seen = seats.filter_map(|(seat, seated)| {
            let (client, key, began) = seated.came.as_ref()?;
            Some(Seen {
                seat,
                client: *client,
                key: Arc::clone(key),
                endpoint: seated.endpoint.clone(),
                began: *began,
            })
        });
        seen.take(most).collect()
    }

    /// Ends the connections that these endpoints have. A client for whom one of them is still being dialed has said nothing
    /// yet: that dial alone ends.
    pub(super) fn cut(&mut self, endpoints: &[Arc<EndpointState>]) {
        let gone: HashSet<*const EndpointState> = endpoints.iter().map(Arc::as_ptr).collect();
        let seats = self.seats.iter_mut().filter(|seated| {
            let endpoint = seated.endpoint.as_ref().map(Arc::as_ptr);
            endpoint.is_some_and(|endpoint| gone.contains(&endpoint))
        });
        for seated in seats {
            if let Some(dialing) = seated.dialing.take() {
                seated.endpoint = None;
                dialing.wake();
            } else if let Some(task) = &seated.task {
                task.abort();
            }
        }
    }
}

/// A connection or a flow, as its worker knows it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Its place in its worker.
    pub(crate) seat: usize,
    /// Who has come.
    pub(crate) client: SocketAddr,
    /// The socket that it came in by.
    pub(crate) key: Arc<SocketKey>,
    /// Where it is served, once it is.
    pub(crate) endpoint: Option<Arc<EndpointState>>,
    /// When it came.
    pub(crate) began: Moment,
}

/// A look at the connections ends here, so that clients do not wait for it.
const MOST_LOOKED_AT: usize = 1 << 17;
