//! Where the admin side answers. Follows the table; taken at the start by `runtime`, kept by the admin thread.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener as StdTcpListener};

use ballast_core::table::{self, Bind};
use tokio::task::{AbortHandle, yield_now};

use super::viewers::Viewers;
use crate::config::{Admin, Config};
use crate::instance_lock::{InstanceLock, InstanceLocks, LockName};
use crate::listen;
use crate::start_error::StartError;

/// What is answered at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// All that there is.
    Everything,
    /// `/healthz`, and nothing else.
    Health,
}

/// Where what is to be answered.
pub(crate) type Wanted = Vec<(Purpose, SocketAddr)>;

/// What a table wants of the admin side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) doors: Wanted,
    pub(crate) viewers: Viewers,
}

/// What the command line says of the admin side. The table says the rest.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    admin: Admin,
    healthz: Admin,
    /// Whether whoever comes must say who they are.
    is_guarded: bool,
}

impl Places {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            admin: config.admin.clone(),
            healthz: config.healthz.clone(),
            is_guarded: config.stats_auth_file.is_some(),
        }
    }

    /// What this table wants; `None`: there is none yet.
    pub(crate) fn wish(&self, stats: Option<&table::Stats>) -> Wish {
        Wish {
            doors: self.wanted(stats),
            viewers: Viewers::of(stats, self.is_guarded),
        }
    }

    fn wanted(&self, stats: Option<&table::Stats>) -> Wanted {
        let admin = match (&self.admin, stats) {
            (Admin::At(addresses), _) => addresses.clone(),
            (Admin::FromTable, Some(stats)) => addresses(stats.bind()),
            (Admin::FromTable, None) => vec![DEFAULT_ADMIN],
        };
        let healthz = match (&self.healthz, stats.and_then(|stats| stats.healthz.on())) {
            (Admin::At(addresses), _) => addresses.clone(),
            (Admin::FromTable, Some(binds)) => addresses(binds),
            (Admin::FromTable, None) => Vec::new(),
        };
        let everything = admin.into_iter().map(|at| (Purpose::Everything, at));
        let health = healthz.into_iter().map(|at| (Purpose::Health, at));
        everything.chain(health).collect()
    }
}

fn addresses(binds: &[Bind]) -> Vec<SocketAddr> {
    let ipv6 = listen::has_ipv6();
    let addresses = binds.iter().flat_map(|bind| bind.addresses_here(ipv6));
    addresses.collect()
}

/// The addresses where everything is answered.
pub(crate) fn admin_addresses(wanted: &Wanted) -> Vec<SocketAddr> {
    let everything = wanted
        .iter()
        .filter(|(purpose, _)| *purpose == Purpose::Everything);
    everything.map(|(_, address)| *address).collect()
}

/// Where the admin side answers, and who must not answer beside it.
#[derive(Debug)]
pub(crate) struct Doors {
    open: BTreeMap<(Purpose, SocketAddr), Door>,
    guards: BTreeMap<u16, InstanceLock>,
    names: InstanceLocks,
}

/// One address.
#[derive(Debug)]
struct Door {
    bound: SocketAddr,
    listener: Option<StdTcpListener>,
    /// Ends with the listener, once it accepts.
    accepting: Option<AbortHandle>,
}

impl Doors {
    /// Takes all these addresses, or says which one cannot be had.
    pub(crate) fn take(wanted: &Wanted, names: &InstanceLocks) -> Result<Self, StartError> {
        let mut doors = Self {
            open: BTreeMap::new(),
            guards: BTreeMap::new(),
            names: names.clone(),
        };
        for (purpose, address) in wanted {
            doors.bind(*purpose, *address)?;
        }
        Ok(doors)
    }

    /// Where everything is answered: the port of those that asked for any.
    pub(crate) fn bound(&self) -> Vec<SocketAddr> {
        let open = self.open.iter();
        open.filter(|((purpose, _), _)| *purpose == Purpose::Everything)
            .map(|(_, door)| door.bound)
            .collect()
    }

    /// Those that do not accept yet.
    pub(super) fn fresh(&mut self) -> Vec<(Purpose, SocketAddr, StdTcpListener)> {
        let open = self.open.iter_mut();
        open.filter_map(|((purpose, address), door)| {
            let listener = door.listener.take()?;
            Some((*purpose, *address, listener))
        })
        .collect()
    }

    /// One accepts now.
    pub(super) fn accepts(&mut self, purpose: Purpose, address: SocketAddr, task: AbortHandle) {
        if let Some(door) = self.open.get_mut(&(purpose, address)) {
            door.accepting = Some(task);
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
        let listener = listen::open_alone(address);
        let (bound, listener) = listener
            .and_then(|listener| Ok((listener.local_addr()?, listener)))
            .map_err(|error| match purpose {
                Purpose::Everything => StartError::Admin(address, error),
                Purpose::Health => StartError::Healthz(address, error),
            })?;
        let door = Door {
            bound,
            listener: Some(listener),
            accepting: None,
        };
        self.open.insert((purpose, address), door);
        Ok(())
    }

    /// Closes what is not wanted and holds a port that is: all addresses and one of them cannot be had at once.
    pub(super) async fn make_way(&mut self, wanted: &Wanted) -> Wanted {
        let fresh = |door: &&(Purpose, SocketAddr)| !self.open.contains_key(door);
        let fresh: Wanted = wanted.iter().filter(fresh).copied().collect();
        let in_the_way = |door: &&(Purpose, SocketAddr)| {
            let holds = |(_, new): &(Purpose, SocketAddr)| overlap(door.1, *new);
            !wanted.contains(door) && fresh.iter().any(holds)
        };
        let closed: Wanted = self.open.keys().filter(in_the_way).copied().collect();
        for door in &closed {
            let accepting = self.open.remove(door).and_then(|door| door.accepting);
            if let Some(task) = accepting {
                task.abort();
                // The socket is closed when the task is no more.
                while !task.is_finished() {
                    yield_now().await;
                }
            }
        }
        closed
    }

    /// Opens what is wanted, then closes what is not. What cannot be opened is said, and tried again later; as long as
    /// nothing of what is wanted can be, the old addresses still answer, and those that made way do again. Says whether
    /// all is as wanted.
    pub(super) fn follow(&mut self, wanted: &Wanted, made_way: &Wanted) -> bool {
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
        if wanted.is_empty() || wanted.iter().any(|door| self.open.contains_key(door)) {
            self.open.retain(|door, state| {
                let stays = wanted.contains(door);
                if !stays && let Some(accepting) = &state.accepting {
                    accepting.abort();
                }
                stays
            });
            let open = &self.open;
            self.guards.retain(|port, _| {
                let mut doors = open.keys();
                doors.any(|(purpose, at)| *purpose == Purpose::Everything && at.port() == *port)
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

/// Whether one socket at each cannot be had at once.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip().is_unspecified() || other.ip().is_unspecified())
}

const DEFAULT_ADMIN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1936);
