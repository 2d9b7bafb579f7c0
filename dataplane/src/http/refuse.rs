//! The answer to a client above the limit of its frontend, where the table says `on-limit: reject`.
//!
//! It is sent before any request is read. The limit protects Ballast too, so few such clients are answered at a time and the
//! others are reset; a client of https is always reset, since an answer would need a handshake.

use std::rc::Rc;

use ballast_core::admit::Admission;
use ballast_core::answer::{Form, Recipient, write};
use ballast_core::http::Version;
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, Serves};

use super::answers::{SEND_TIMEOUT, edits_of, with_page};
use super::linger::linger;
use super::send_all::send_all;
use crate::net::poller::Timer;
use crate::net::tls::MaybeTls;
use crate::worker::Worker;

/// The right to answer one client: one of the worker's [`MOST`].
#[derive(Debug)]
pub(crate) struct Refusing {
    worker: Rc<Worker>,
    /// The client counts in the process as long as it has a descriptor.
    _process: Admission,
}

impl Refusing {
    /// `None`: a client of this frontend is reset, or there are too many clients.
    pub(crate) fn begin(worker: &Rc<Worker>, frontend: &Frontend, now: Moment) -> Option<Self> {
        let Serves::Http(http) = frontend.serves() else {
            return None;
        };
        let refusing = worker.refusing.get();
        if http.is_https() || refusing >= MOST {
            return None;
        }
        let shared = &worker.shared;
        let process = shared.admit.admit_peer(&shared.limits(), now, None).ok()?;
        worker.refusing.set(refusing + 1);
        Some(Self {
            worker: Rc::clone(worker),
            _process: process,
        })
    }

    /// Tells the client 503, and closes the connection in order.
    pub(crate) async fn answer(self, socket: &mut MaybeTls, frontend: &Frontend) {
        let worker = &self.worker;
        let to = Recipient {
            version: Version::Http11,
            asks_for_head: false,
            keeps_connection: false,
            hsts: None,
            edits: edits_of(None, Some(frontend)),
        };
        let bytes = with_page(worker, 503, Form::Text, Some(frontend), |answer| {
            let mut bytes = worker.buffers.for_writing();
            write(&mut bytes, answer, &to);
            bytes
        });
        let mut timer = Timer::new(&worker.tools.poller);
        let sent = send_all(socket, &bytes, &mut timer, SEND_TIMEOUT, &worker.tools).await;
        if sent.is_ok() {
            linger(worker, socket).await;
        }
    }
}

impl Drop for Refusing {
    fn drop(&mut self) {
        self.worker.refusing.set(self.worker.refusing.get() - 1);
    }
}

/// Clients that a worker answers at a time.
pub(crate) const MOST: usize = 32;
