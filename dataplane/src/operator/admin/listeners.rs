//! The listening sockets of the admin addresses. `runtime` opens the first ones; then the admin thread has them follow the
//! table.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;

use ballast_core::handover::Handed;
use ballast_core::table::{self, Bind};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, yield_now};

use super::viewers::Viewers;
use crate::net::listen;
use crate::process::config::{Admin, Config};
use crate::process::handover::next::Placed;
use crate::process::handover::old::HandedSockets;
use crate::process::handover::{Lent, inode};
use crate::process::instance_lock::{InstanceLock, InstanceLocks, LockName};
use crate::process::start_error::StartError;

/// What is answered at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Everything,
    /// `/healthz`, and nothing else.
    Health,
}

/// Addresses, and what is answered at each.
pub(crate) type Addresses = Vec<(Purpose, SocketAddr)>;

/// What a table wants of the admin side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) addresses: Addresses,
    pub(crate) viewers: Viewers,
}

/// The addresses of the command line. What it leaves open, the table decides.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine {
    admin: Admin,
    healthz: Admin,
    /// Whether clients need credentials.
    is_guarded: bool,
}

impl CommandLine {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            admin: config.admin.clone(),
            healthz: config.healthz.clone(),
            is_guarded: config.stats_auth_file.is_some(),
        }
    }

    /// What this table wants; `None`: there is no table yet.
    pub(crate) fn wanted(&self, stats: Option<&table::Stats>) -> Wanted {
        Wanted {
            addresses: self.addresses(stats),
            viewers: Viewers::of(stats, self.is_guarded),
        }
    }

    /// The addresses that no table changes.
    pub(super) fn given(&self) -> Addresses {
        let of = |purpose, admin: &Admin| -> Addresses {
            match admin {
                Admin::At(addresses) => addresses.iter().map(|at| (purpose, *at)).collect(),
                Admin::FromTable => Vec::new(),
            }
        };
        let everything = of(Purpose::Everything, &self.admin).into_iter();
        everything
            .chain(of(Purpose::Health, &self.healthz))
            .collect()
    }

    fn addresses(&self, stats: Option<&table::Stats>) -> Addresses {
        let admin = match (&self.admin, stats) {
            (Admin::At(addresses), _) => addresses.clone(),
            (Admin::FromTable, Some(stats)) => bound_by(stats.bind()),
            (Admin::FromTable, None) => vec![DEFAULT_ADMIN],
        };
        let healthz = match (&self.healthz, stats.and_then(|stats| stats.healthz.on())) {
            (Admin::At(addresses), _) => addresses.clone(),
            (Admin::FromTable, Some(binds)) => bound_by(binds),
            (Admin::FromTable, None) => Vec::new(),
        };
        let everything = admin.into_iter().map(|at| (Purpose::Everything, at));
        let health = healthz.into_iter().map(|at| (Purpose::Health, at));
        everything.chain(health).collect()
    }
}

fn bound_by(binds: &[Bind]) -> Vec<SocketAddr> {
    let ipv6 = listen::has_ipv6();
    let addresses = binds.iter().flat_map(|bind| bind.addresses_here(ipv6));
    addresses.collect()
}

/// The addresses where everything is answered.
pub(crate) fn admin_addresses(wanted: &Addresses) -> Vec<SocketAddr> {
    let everything = wanted
        .iter()
        .filter(|(purpose, _)| *purpose == Purpose::Everything);
    everything.map(|(_, address)| *address).collect()
}

/// All listening sockets, and the guards that keep a second process from the same ports.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    open: BTreeMap<(Purpose, SocketAddr), Listening>,
    guards: BTreeMap<u16, InstanceLock>,
    names: InstanceLocks,
    /// The sockets that the process before hands over.
    inherited: BTreeMap<(Purpose, SocketAddr), Placed>,
}

#[derive(Debug)]
struct Listening {
    bound: SocketAddr,
    /// The listener, until it accepts.
    fresh: Option<StdTcpListener>,
    /// The listener, and the task that accepts from it.
    accepting: Option<(Arc<TcpListener>, AbortHandle)>,
}

impl Listeners {
    /// Takes these sockets where their addresses are wanted.
    pub(crate) fn inherit(&mut self, purpose: Purpose, sockets: BTreeMap<SocketAddr, Placed>) {
        let sockets = sockets.into_iter();
        self.inherited
            .extend(sockets.map(|(address, socket)| ((purpose, address), socket)));
    }

    /// Every socket, for the next process.
    pub(super) fn lend(&self) -> Vec<Lent> {
        let open = self.open.iter().filter_map(|(one, listening)| {
            let (listener, _) = listening.accepting.as_ref()?;
            Some(Lent {
                handed: match one {
                    (Purpose::Everything, address) => Handed::Admin(*address),
                    (Purpose::Health, address) => Handed::Healthz(*address),
                },
                descriptor: Arc::clone(listener) as _,
            })
        });
        open.collect()
    }

    /// Listens at all these addresses, or returns the one where that is impossible.
    pub(crate) fn take(
        &mut self,
        wanted: &Addresses,
        names: &InstanceLocks,
    ) -> Result<(), StartError> {
        self.names = names.clone();
        for (purpose, address) in wanted {
            if !self.open.contains_key(&(*purpose, *address)) {
                self.bind(*purpose, *address)?;
            }
        }
        Ok(())
    }

    /// Closes those that are not wanted: the process before has them, and closes them when this one serves. Returns their places.
    pub(crate) fn leave_rest(&mut self) -> Vec<usize> {
        let rest = std::mem::take(&mut self.inherited).into_values();
        rest.map(|(place, _)| place).collect()
    }

    /// Further descriptors of the sockets that nothing accepts from yet.
    pub(super) fn copies(&self) -> io::Result<Vec<StdTcpListener>> {
        let fresh = self.open.values().filter_map(|one| one.fresh.as_ref());
        fresh.map(StdTcpListener::try_clone).collect()
    }

    /// Where everything is answered: the port of those that asked for any.
    pub(crate) fn bound(&self) -> Vec<SocketAddr> {
        let open = self.open.iter();
        open.filter(|((purpose, _), _)| *purpose == Purpose::Everything)
            .map(|(_, listening)| listening.bound)
            .collect()
    }

    /// The sockets that nothing accepts from yet.
    pub(super) fn fresh(&mut self) -> Vec<(Purpose, SocketAddr, StdTcpListener)> {
        let open = self.open.iter_mut();
        open.filter_map(|((purpose, address), listening)| {
            let listener = listening.fresh.take()?;
            Some((*purpose, *address, listener))
        })
        .collect()
    }

    /// `task` accepts from this socket now.
    pub(super) fn accepts(
        &mut self,
        one: (Purpose, SocketAddr),
        listener: Arc<TcpListener>,
        task: AbortHandle,
    ) {
        if let Some(listening) = self.open.get_mut(&one) {
            listening.accepting = Some((listener, task));
        }
    }

    fn bind(&mut self, purpose: Purpose, address: SocketAddr) -> Result<(), StartError> {
        let is_guard = purpose == Purpose::Everything && address.port() != 0;
        if is_guard && !self.guards.contains_key(&address.port()) {
            let guard = self.names.take(LockName::Port(address.port()));
            let guard = guard.map_err(|taken| {
                StartError::lock_failed(taken, || StartError::SecondOne(address))
            })?;
            self.guards.insert(address.port(), guard);
        }
        let listener = match self.inherited.remove(&(purpose, address)) {
            Some((_, socket)) => Ok(socket.into()),
            None => listen::open_alone(address),
        };
        let (bound, listener) = listener
            .and_then(|listener| Ok((listener.local_addr()?, listener)))
            .map_err(|error| match purpose {
                Purpose::Everything => StartError::Admin(address, error),
                Purpose::Health => StartError::Healthz(address, error),
            })?;
        let listening = Listening {
            bound,
            fresh: Some(listener),
            accepting: None,
        };
        self.open.insert((purpose, address), listening);
        Ok(())
    }

    /// Closes what is not wanted and is in the way of what is: one socket at all addresses of a port and one at a single
    /// address exclude each other.
    pub(super) async fn make_way(&mut self, wanted: &Addresses) -> Addresses {
        let fresh = |one: &&(Purpose, SocketAddr)| !self.open.contains_key(one);
        let fresh: Addresses = wanted.iter().filter(fresh).copied().collect();
        let in_the_way = |one: &&(Purpose, SocketAddr)| {
            let holds = |(_, new): &(Purpose, SocketAddr)| overlap(one.1, *new);
            !wanted.contains(one) && fresh.iter().any(holds)
        };
        let closed: Addresses = self.open.keys().filter(in_the_way).copied().collect();
        for one in &closed {
            if let Some(listening) = self.open.remove(one) {
                listening.close().await;
            }
        }
        closed
    }

    /// Closes all of them, and gives up their ports. Returns those that the next process was not `handed`, which are closed when
    /// they are dropped: somebody may be waiting there.
    pub(super) async fn close(
        mut self,
        handed: Option<&HandedSockets>,
    ) -> Vec<(Purpose, Arc<TcpListener>)> {
        let mut rest = Vec::new();
        for ((purpose, _), listening) in std::mem::take(&mut self.open) {
            let Some(listener) = listening.close().await else {
                continue;
            };
            let has_it = |handed: &HandedSockets| {
                inode(&*listener).is_some_and(|inode| handed.inodes.contains(&inode))
            };
            if !handed.is_some_and(has_it) {
                rest.push((purpose, listener));
            }
        }
        rest
    }

    /// Opens what is wanted, then closes what is not. What cannot be opened is logged, and tried again later. While nothing
    /// that is wanted can be opened, the old addresses still answer, those in `made_way` included. Returns whether all is
    /// as wanted.
    pub(super) fn follow(&mut self, wanted: &Addresses, made_way: &Addresses) -> bool {
        let mut whole = true;
        for (purpose, address) in wanted {
            if self.open.contains_key(&(*purpose, *address)) {
                continue;
            }
            match self.bind(*purpose, *address) {
                Ok(()) => tracing::info!(%address, "admin address"),
                Err(error) => {
                    whole = false;
                    tracing::error!("{error}");
                }
            }
        }
        if wanted.is_empty() || wanted.iter().any(|one| self.open.contains_key(one)) {
            self.open.retain(|one, state| {
                let stays = wanted.contains(one);
                if !stays && let Some((_, accepting)) = &state.accepting {
                    accepting.abort();
                }
                stays
            });
            let open = &self.open;
            self.guards.retain(|port, _| {
                let mut open = open.keys();
                open.any(|(purpose, at)| *purpose == Purpose::Everything && at.port() == *port)
            });
        } else {
            for (purpose, address) in made_way {
                if let Err(error) = self.bind(*purpose, *address) {
                    tracing::error!("{error}");
                }
            }
        }
        whole
    }
}

impl Listening {
    /// Returns the listener, from which nothing accepts any more. It is closed when it is dropped.
    async fn close(self) -> Option<Arc<TcpListener>> {
        let (listener, task) = self.accepting?;
        task.abort();
        // The task has the listener, too.
        while !task.is_finished() {
            yield_now().await;
        }
        Some(listener)
    }
}

/// Whether two sockets at these addresses exclude each other.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip().is_unspecified() || other.ip().is_unspecified())
}

const DEFAULT_ADMIN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1936);
