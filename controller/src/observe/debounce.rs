//! Sends the observed state once changes pause, if it differs from the state that was sent last. Used by `cluster` and `folder`, which
//! hold the state. This module adds the results of the lookups that the last decision [`Wanted`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::earlier::external_name;
use super::lookups::Lookups;
use super::own_addresses::OwnAddresses;
use super::secrets::Watches;
use super::settle::Settle;
use super::turns::Turns;
use super::{Earlier, Grant, Key, Observed, Secret, Wanted, grants, names, secrets};

/// The last step of the observer, before the reconcile loop.
pub(super) struct Debouncer {
    wanted: watch::Receiver<Wanted>,
    observed: watch::Sender<Option<Arc<Observed>>>,
    /// Reads Secrets and ReferenceGrants; `None`: they are part of the manifests.
    client: Option<Client>,
    secrets: Lookups<Key, Option<Secret>>,
    watches: Watches,
    names: Lookups<String, Vec<IpAddr>>,
    turns: Turns,
    /// The shortest time between two lookups of a name.
    dns_min_ttl: Duration,
    earlier: Earlier,
    own_addresses: OwnAddresses,
    grants: Lookups<String, Vec<Grant>>,
    settle: Settle,
}

impl Debouncer {
    /// `client` reads Secrets and ReferenceGrants; `None`: they are part of the manifests.
    pub(super) fn new(
        client: Option<Client>,
        dns_min_ttl: Duration,
        earlier: Earlier,
        mut wanted: watch::Receiver<Wanted>,
        observed: watch::Sender<Option<Arc<Observed>>>,
    ) -> Self {
        // The initial value is looked up, too.
        wanted.mark_changed();
        Self {
            wanted,
            observed,
            client,
            secrets: Lookups::new(),
            watches: Watches::default(),
            names: Lookups::new(),
            turns: Turns::default(),
            dns_min_ttl,
            earlier,
            own_addresses: OwnAddresses::default(),
            grants: Lookups::new(),
            settle: Settle::default(),
        }
    }

    /// Notes a change of the observed state.
    pub(super) fn changed(&mut self) {
        self.settle.changed(Instant::now());
    }

    /// Returns when it is time to [`Debouncer::send`]. May be dropped and called again at any time.
    pub(super) async fn due(&mut self) {
        loop {
            let due = self.settle.due();
            tokio::select! {
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => return,
                // An error means that the sender is gone: the wanted lookups stay as they are.
                Ok(()) = self.wanted.changed() => self.look_up(),
                () = self.secrets.changed() => self.changed(),
                () = self.names.changed() => self.changed(),
                () = self.grants.changed() => self.changed(),
            }
        }
    }

    /// Sends the observed state with the results of the lookups, if it differs from the state that was sent last.
    pub(super) fn send(&mut self, mut observed: Observed) {
        self.settle.sent();
        let mut looked_up = Wanted {
            nodes: self.client.is_none() || observed.looked_up.nodes,
            ..Wanted::default()
        };
        if self.client.is_some() {
            observed.secrets = BTreeMap::new();
            for (key, secret) in self.secrets.answers() {
                looked_up.secrets.insert(key.clone());
                if let Some(secret) = secret {
                    observed.secrets.insert(key.clone(), secret.clone());
                }
            }
            let grants = self.grants.answers();
            let grants = grants.map(|(namespace, grants)| (namespace.clone(), grants.clone()));
            observed.grants = grants.collect();
            looked_up.grants = observed.grants.keys().cloned().collect();
        } else {
            let wanted = self.wanted.borrow();
            looked_up.secrets = wanted.secrets.clone();
            looked_up.grants = wanted.grants.clone();
        }
        let names = self.names.answers();
        let names = names.map(|(name, addresses)| (name.clone(), addresses.clone()));
        observed.resolved = names.collect();
        observed.earlier = self.earlier.that_stay(&observed);
        let of_names = namespaces(&observed);
        if !of_names.is_empty() {
            observed.own_addresses = self.own_addresses.now();
        }
        self.turns.set_namespaces(of_names);
        looked_up.names = observed.resolved.keys().cloned().collect();
        observed.looked_up = Arc::new(looked_up);
        self.observed.send_if_modified(|sent| {
            let differs = sent.as_deref() != Some(&observed);
            if differs {
                *sent = Some(Arc::new(observed));
            }
            differs
        });
    }

    fn look_up(&mut self) {
        let wanted = self.wanted.borrow_and_update().clone();
        let (shortest, turns) = (self.dns_min_ttl, self.turns.clone());
        let mut forgot = self.names.want(&wanted.names, move |name, answers| {
            names::follow(name, shortest, turns.clone(), answers)
        });
        match &self.client {
            Some(client) => {
                let (of_secrets, watches) = (client.clone(), self.watches.clone());
                forgot |= self.secrets.want(&wanted.secrets, move |key, answers| {
                    secrets::follow(of_secrets.clone(), key, watches.clone(), answers)
                });
                let client = client.clone();
                forgot |= self.grants.want(&wanted.grants, move |namespace, answers| {
                    grants::follow(client.clone(), namespace, answers)
                });
            }
            None => forgot = true,
        }
        if forgot {
            self.changed();
        }
    }
}

/// The namespaces whose Services have each external name.
fn namespaces(observed: &Observed) -> BTreeMap<String, BTreeSet<String>> {
    let mut of_name: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (key, service) in &observed.services {
        if let Some(name) = external_name(service) {
            let namespaces = of_name.entry(name.to_owned()).or_default();
            namespaces.insert(key.namespace.clone());
        }
    }
    of_name
}
