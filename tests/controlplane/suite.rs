//! The controller and the data plane against a real kube-apiserver and etcd, in network namespaces of the tests' own.
//!
//! `plane` starts API servers, `corner` gives each test its own part of one, `node` is a load balancer node in it with both
//! programs running, `api` speaks to the API server as a person with kubectl would. The programs of the control plane are
//! found by KUBEBUILDER_ASSETS; `tests/controlplane/make` builds them.

mod api;
mod backends;
mod corner;
mod node;
mod plane;
mod process;

mod class;
mod ending;
mod events;
mod figures;
mod kinds;
mod leaders;
mod manifests;
mod rights;
mod status;
mod traffic;
mod trouble;

#[path = "../common/program.rs"]
mod program;

#[path = "../common/netns.rs"]
mod netns;

/// What `netns` asks of its neighbours.
mod peers {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Held by who starts a process.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static STARTS: Mutex<()> = Mutex::new(());
        STARTS.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
