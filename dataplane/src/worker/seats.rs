//! The connections of a worker, for those who ask which there are.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::plan::SocketKey;

/// The connections of a worker, each in its numbered place.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    seats: Vec<Option<Seated>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Seated {
    client: SocketAddr,
    socket: Rc<SocketKey>,
    began: Moment,
    endpoint: Option<Arc<EndpointState>>,
}

impl Seats {
    pub(crate) fn take(
        &mut self,
        client: SocketAddr,
        socket: Rc<SocketKey>,
        began: Moment,
    ) -> usize {
        let seated = Some(Seated {
            client,
            socket,
            began,
            endpoint: None,
        });
        match self.free.pop() {
            Some(seat) => {
                self.seats[seat] = seated;
                seat
            }
            None => {
                self.seats.push(seated);
                self.seats.len() - 1
            }
        }
    }

    /// A PROXY header has named the client.
    pub(crate) fn is_for(&mut self, seat: usize, client: SocketAddr) {
        if let Some(seated) = &mut self.seats[seat] {
            seated.client = client;
        }
    }

    pub(crate) fn is_served_by(&mut self, seat: usize, endpoint: &Arc<EndpointState>) {
        if let Some(seated) = &mut self.seats[seat] {
            seated.endpoint = Some(Arc::clone(endpoint));
        }
    }

    pub(crate) fn leave(&mut self, seat: usize) {
        self.seats[seat] = None;
        self.free.push(seat);
    }

    /// The first `most` connections.
    pub(super) fn list(&self, most: usize) -> Vec<Seen> {
        let seats = self.seats.iter().enumerate().take(MOST_LOOKED_AT);
        let seen = seats.filter_map(|(seat, seated)| {
            let seated = seated.as_ref()?;
            Some(Seen {
                seat,
                client: seated.client,
                key: SocketKey::clone(&seated.socket),
                endpoint: seated.endpoint.clone(),
                began: seated.began,
            })
        });
        seen.take(most).collect()
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
    pub(crate) key: SocketKey,
    /// Where it is served, once it is.
    pub(crate) endpoint: Option<Arc<EndpointState>>,
    /// When it came.
    pub(crate) began: Moment,
}

/// A look at the connections ends here, so that clients do not wait for it.
const MOST_LOOKED_AT: usize = 1 << 17;
