//! A client who has no endpoint yet: who it is, how its way went, and what becomes of it if it gets none.

use std::net::SocketAddr;
use std::sync::Arc;

use ballast_core::admit::{Admission, Refusal};
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, FrontendState, Plan};
use ballast_core::service::Service;

use crate::access::Entry;
use crate::dial::{self, Caller, Client, Dial, Dialed, During, Unserved};
use crate::{preamble, relay};

/// The client. However this ends, also by being cut: who gets no endpoint gets a reset, and its line, if anybody wants to
/// read it, says how its way went.
pub(super) struct Newcomer<'a> {
    client: Client<'a>,
    frontend: &'a FrontendState,
    caller: Caller,
    /// As it was after the last wait.
    now: Moment,
    entry: Option<Box<Entry>>,
    dial: Dial,
    is_reset: bool,
}

/// Why a client gets no endpoint.
pub(super) enum NoWay {
    /// It is not said whose connection this is.
    Header(preamble::End),
    Refused(Refusal),
    /// It aborted while it waited.
    Left(During),
}

impl<'a> Newcomer<'a> {
    pub(super) fn new(
        client: Client<'a>,
        frontend: &'a Arc<FrontendState>,
        peer: SocketAddr,
        began: Moment,
    ) -> Self {
        Self {
            client,
            frontend,
            caller: Caller::new(peer),
            // A busy worker may look at it much later than it was accepted: that is not an endpoint's delay.
            now: client.worker.shared.clock.now(),
            entry: Entry::begin(client.worker, frontend, peer, began),
            dial: Dial::default(),
            is_reset: true,
        }
    }

    /// Hears from a trusted peer who its client is, and lets that one in or not. Returns the bytes that came with that.
    pub(super) async fn introduce(
        &mut self,
        frontend: &Frontend,
        admission: &mut Admission,
    ) -> Result<Vec<u8>, NoWay> {
        let Client {
            worker,
            seat,
            socket,
        } = self.client;
        let heard = Box::pin(preamble::read(socket, frontend, &mut self.caller)).await;
        let rest = heard.map_err(NoWay::Header)?;
        self.now = worker.shared.clock.now();
        let client = self.caller.key.client();
        if let Some(entry) = &mut self.entry {
            entry.client(client);
        }
        worker.seats.borrow_mut().is_for(seat, client);
        admission
            .identify(frontend.limits(), client.ip(), self.now)
            .map_err(NoWay::Refused)?;
        Ok(rest)
    }

    /// Connects it to an endpoint of this service of `plan`.
    pub(super) async fn connect(
        &mut self,
        service: Arc<Service>,
        plan: Arc<Plan>,
    ) -> Result<Dialed, NoWay> {
        if let Some(entry) = &mut self.entry {
            entry.service(&service);
        }
        let dialed = dial::connect(
            self.client,
            &self.caller,
            (service, plan),
            self.now,
            &mut self.dial,
        );
        dialed.await.map_err(|unserved| match unserved {
            Unserved::Refused(refusal) => NoWay::Refused(refusal),
            Unserved::Left(during) => NoWay::Left(during),
        })
    }

    /// It has an endpoint. Returns its line, for what is to come.
    pub(super) fn served(mut self, dialed: &mut Dialed) -> Option<Box<Entry>> {
        self.is_reset = false;
        let mut entry = self.line()?;
        let name = dialed.name.take().unwrap_or_default();
        entry.connected(name, dialed.lease.endpoint());
        Some(entry)
    }

    /// It gets none: that is counted, and told.
    pub(super) fn ends(mut self, why: NoWay) {
        let line = self.line();
        match (why, line) {
            (NoWay::Header(end), line) => {
                // Not each of them is reset: who said nothing is told nothing.
                self.is_reset = false;
                let counters = self.frontend.counters().of(self.client.worker.id);
                preamble::account(end, self.client.socket, counters, line);
            }
            (NoWay::Refused(refusal), line) => {
                if let Some(mut entry) = line {
                    entry.refused(refusal);
                }
                let counters = self.frontend.counters().of(self.client.worker.id);
                counters.refused[refusal.index()].add(1);
            }
            (NoWay::Left(during), Some(mut entry)) => entry.left(during),
            (NoWay::Left(_), None) => {}
        }
    }

    fn line(&mut self) -> Option<Box<Entry>> {
        let mut entry = self.entry.take()?;
        entry.dialed(self.dial);
        Some(entry)
    }
}

impl Drop for Newcomer<'_> {
    fn drop(&mut self) {
        self.line();
        if self.is_reset {
            relay::reset_on_close(self.client.socket);
        }
    }
}
