//! Sends what is observed once no more changes come, if it differs from what was sent last. Used by `cluster` and `folder`, which hold what
//! is observed; what the last decision [`Wanted`] is looked up here.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::lookups::Lookups;
use super::secrets::Watches;
use super::settle::Settle;
use super::{Grant, Key, Observed, Secret, Wanted, grants, names, secrets};

/// Between the watches and the reconcile loop.
pub(super) struct Debouncer {
    wanted: watch::Receiver<Wanted>,
    observed: watch::Sender<Option<Arc<Observed>>>,
    /// `None`: Secrets and ReferenceGrants are seen like everything else.
    client: Option<Client>,
    secrets: Lookups<Key, Option<Secret>>,
    watches: Watches,
    names: Lookups<String, Vec<IpAddr>>,
    grants: Lookups<String, Vec<Grant>>,
    settle: Settle,
}

impl Debouncer {
    /// `client`: where Secrets are read, if they are not seen like everything else.
    pub(super) fn new(
        client: Option<Client>,
        mut wanted: watch::Receiver<Wanted>,
        observed: watch::Sender<Option<Arc<Observed>>>,
    ) -> Self {
        // What is wanted from the beginning is looked up, too.
        wanted.mark_changed();
        Self {
            wanted,
            observed,
            client,
            secrets: Lookups::new(),
            watches: Watches::default(),
            names: Lookups::new(),
            grants: Lookups::new(),
            settle: Settle::default(),
        }
    }

    /// Something that is seen changed.
    pub(super) fn changed(&mut self) {
        self.settle.changed(Instant::now());
    }

    /// Returns when it is time to [`Debouncer::send`]. May be dropped and called again at any time.
    pub(super) async fn due(&mut self) {
        loop {
            let due = self.settle.due();
            tokio::select! {
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => return,
                // An error: nobody will want anything else.
                Ok(()) = self.wanted.changed() => self.look_up(),
                () = self.secrets.changed() => self.changed(),
                () = self.names.changed() => self.changed(),
                () = self.grants.changed() => self.changed(),
            }
        }
    }

    /// Sends what is seen, with what was looked up, if it is not what was sent last.
    pub(super) fn send(&mut self, mut seen: Observed) {
        self.settle.sent();
        let mut looked_up = Wanted {
            nodes: self.client.is_none() || seen.looked_up.nodes,
            ..Wanted::default()
        };
        if self.client.is_some() {
            seen.secrets = BTreeMap::new();
            for (key, secret) in self.secrets.answers() {
                looked_up.secrets.insert(key.clone());
                if let Some(secret) = secret {
                    seen.secrets.insert(key.clone(), secret.clone());
                }
            }
            let grants = self.grants.answers();
            seen.grants = grants
                .map(|(namespace, grants)| (namespace.clone(), grants.clone()))
                .collect();
            looked_up.grants = seen.grants.keys().cloned().collect();
        } else {
            let wanted = self.wanted.borrow();
            looked_up.secrets = wanted.secrets.clone();
            looked_up.grants = wanted.grants.clone();
        }
        let names = self.names.answers();
        seen.resolved = names
            .map(|(name, addresses)| (name.clone(), addresses.clone()))
            .collect();
        looked_up.names = seen.resolved.keys().cloned().collect();
        seen.looked_up = Arc::new(looked_up);
        self.observed.send_if_modified(|sent| {
            let differs = sent.as_deref() != Some(&seen);
            if differs {
                *sent = Some(Arc::new(seen));
            }
            differs
        });
    }

    fn look_up(&mut self) {
        let wanted = self.wanted.borrow_and_update().clone();
        let mut forgot = self.names.want(&wanted.names, names::follow);
        match &self.client {
            Some(client) => {
                forgot |= self.secrets.want(&wanted.secrets, |key, report| {
                    secrets::follow(client.clone(), key, self.watches.clone(), report)
                });
                forgot |= self.grants.want(&wanted.grants, |namespace, report| {
                    grants::follow(client.clone(), namespace, report)
                });
            }
            None => forgot = true,
        }
        if forgot {
            self.changed();
        }
    }
}
