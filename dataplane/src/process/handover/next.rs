//! The process that begins: it asks for the sockets, and takes them once it can serve.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;

use ballast_core::handover::{FLOWS, Handed, MOST_STATE, Message, Offer, PairFiles, Ready, State};
use ballast_core::plan::SocketKey;
use socket2::Socket;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::life::{BROKE_OFF, Life};
use super::watch::watch;
use super::{Decision, FLOWS_WITHIN, MovedFlow, TakenOver, groups, is_end, pid_namespace, wire};
use crate::process::succession::pid_of;

mod ask;

pub use ask::is_served;

/// What the process before offers to this one. Where this is dropped, the other one goes on as before.
#[derive(Debug)]
pub struct Inherited {
    /// The locks, by their names.
    pub(crate) locks: HashMap<String, OwnedFd>,
    /// The sockets of files, by the names of their locks.
    pub(crate) files: HashMap<String, Placed>,
    /// Where everything is answered.
    pub(crate) admin: BTreeMap<SocketAddr, Placed>,
    /// Where health alone is answered.
    pub(crate) healthz: BTreeMap<SocketAddr, Placed>,
    pub(crate) sockets: InheritedSockets,
    /// Cancelled when all of this is the process's own.
    pub(crate) taken: CancellationToken,
}

/// A descriptor, and its place in the offer.
pub(crate) type Placed = (usize, OwnedFd);

/// The sockets of clients, and the process that has them, too.
#[derive(Debug)]
pub(crate) struct InheritedSockets {
    by_key: BTreeMap<SocketKey, Vec<(usize, Socket)>>,
    /// All sockets of the offer that somebody may be waiting at.
    listening: usize,
    /// The places of those that this process does not want.
    unwanted: Vec<usize>,
    old: Old,
    decision: Decision,
}

/// The process that runs.
#[derive(Debug)]
struct Old {
    connection: StdUnixStream,
    life: Arc<Life>,
    pid: Option<u32>,
    program: String,
    /// That of the messages.
    version: u32,
    /// Whether it accepts who waits at a socket that this process leaves late.
    hears_left: bool,
}

/// The sockets that this process may have. Until it takes them, the process before goes on.
#[derive(Debug)]
pub(crate) struct Takeover {
    sockets: BTreeMap<SocketKey, Vec<(usize, Socket)>>,
    inherited: usize,
    listening: usize,
    old: Old,
    /// `None`: that process is no more.
    connection: Option<UnixStream>,
    decision: Decision,
    /// The places of sockets that this process does not want, by what it has heard.
    left: Vec<usize>,
}

/// The sockets that this process has.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) sockets: BTreeMap<SocketKey, Vec<Socket>>,
    /// Where flows come from.
    connection: Option<UnixStream>,
}

/// Flows by the kernel's numbers of their listening sockets.
pub(crate) type MovedFlows = HashMap<u64, Vec<MovedFlow>>;

impl Inherited {
    fn of(connection: UnixStream, offer: Offer, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        // The kernel knows that of the first one that listened at the path. What another one says of itself holds in its namespace.
        let is_elsewhere = offer.pid_namespace.is_some() && offer.pid_namespace != pid_namespace();
        let pid = pid_of(&connection).map(|first| offer.pid.unwrap_or(first));
        let pid = pid.filter(|_| !is_elsewhere);
        let connection = connection.into_std()?;
        let decision = Decision::default();
        let locks = offer.sockets.iter().filter_map(|handed| match handed {
            Handed::Lock(name) => Some(name.clone()),
            _ => None,
        });
        let life = Arc::new(Life::of(pid, locks.collect()));
        watch(connection.try_clone()?, decision.clone(), Arc::clone(&life))?;
        let listening = offer.sockets.iter().filter(|handed| handed.listens());
        let mut inherited = Self {
            locks: HashMap::new(),
            files: HashMap::new(),
            admin: BTreeMap::new(),
            healthz: BTreeMap::new(),
            sockets: InheritedSockets {
                by_key: BTreeMap::new(),
                listening: listening.count(),
                unwanted: Vec::new(),
                old: Old {
                    connection,
                    life,
                    pid,
                    program: offer.program,
                    version: offer.version,
                    hears_left: offer.hears_left,
                },
                decision,
            },
            taken: CancellationToken::new(),
        };
        let pairs = offer.sockets.into_iter().zip(descriptors);
        for (place, (handed, descriptor)) in pairs.enumerate() {
            if let Some(key) = handed.key() {
                inherited
                    .sockets
                    .add(key, place, Socket::from(descriptor))?;
                continue;
            }
            match handed {
                Handed::Admin(address) => {
                    drop(inherited.admin.insert(address, (place, descriptor)));
                }
                Handed::Healthz(address) => {
                    drop(inherited.healthz.insert(address, (place, descriptor)));
                }
                Handed::File(name) => drop(inherited.files.insert(name, (place, descriptor))),
                Handed::Lock(name) => drop(inherited.locks.insert(name, descriptor)),
                Handed::Tcp(_) | Handed::Udp(_) => {}
            }
        }
        Ok(inherited)
    }
}

impl InheritedSockets {
    fn add(&mut self, key: SocketKey, place: usize, socket: Socket) -> io::Result<()> {
        let local = socket.local_addr()?.as_socket();
        let is_it = local.is_some_and(|local| {
            let port = key.address.port();
            local.ip() == key.address.ip() && (port == 0 || local.port() == port)
        });
        if !is_it {
            return Err(wire::invalid(format!("has another socket for {key}")));
        }
        self.by_key.entry(key).or_default().push((place, socket));
        Ok(())
    }

    /// This process wants none of the sockets at these places.
    pub(crate) fn leave(&mut self, places: impl IntoIterator<Item = usize>) {
        self.unwanted.extend(places);
    }

    /// Where it is decided whether this process takes over.
    pub(crate) fn decision(&self) -> Decision {
        self.decision.clone()
    }

    /// Tells the other process that this one can serve, and waits until it may have the sockets of the `wanted` ones. The others
    /// are closed by the process that had them. Returns what that one knows, too, with these `certificates` of it and, if this one lacks
    /// those of its file, the keys of session `tickets`. An error: that one goes on, and this one must not serve.
    pub(crate) async fn ready(
        mut self,
        wanted: &[SocketKey],
        certificates: Vec<PairFiles>,
        tickets: bool,
    ) -> Result<(Takeover, State), String> {
        let wanted: HashSet<&SocketKey> = wanted.iter().collect();
        let (kept, unwanted): (BTreeMap<_, _>, BTreeMap<_, _>) = self
            .by_key
            .into_iter()
            .partition(|(key, _)| wanted.contains(key));
        let places = unwanted.values().flatten().map(|(place, _)| *place);
        self.unwanted.extend(places);
        // The old process accepts the clients that wait at them: its plan says where they go.
        drop(unwanted);
        let inherited = self.listening - self.unwanted.len();
        let ready = Ready {
            unwanted: self.unwanted,
            groups: groups(),
            certificates,
            tickets,
        };
        let (connection, state) = self.old.gives_way(ready).await?;
        let takeover = Takeover {
            sockets: kept,
            inherited,
            listening: self.listening,
            old: self.old,
            connection,
            decision: self.decision,
            left: Vec::new(),
        };
        Ok((takeover, state))
    }
}

impl Takeover {
    /// What this process takes, and from whom.
    pub(crate) fn summary(&self) -> TakenOver {
        TakenOver {
            sockets: self.inherited,
            of: self.listening,
            pid: self.old.pid,
            program: self.old.program.clone(),
        }
    }

    /// Leaves all sockets but these to the process before, which accepts who waits there: its plan says where they go.
    pub(crate) fn leave_but(&mut self, wanted: &[SocketKey]) {
        let wanted: HashSet<&SocketKey> = wanted.iter().collect();
        let all = std::mem::take(&mut self.sockets).into_iter();
        let (kept, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.partition(|(key, _)| wanted.contains(key));
        self.sockets = kept;
        for (place, _) in left.into_values().flatten() {
            self.left.push(place);
            self.inherited -= 1;
        }
    }

    /// Takes the sockets: from here on this process serves, and the one before does not. An error: that one goes on, and this one
    /// must not serve.
    pub(crate) async fn take(self) -> Result<Taken, String> {
        let Self {
            sockets,
            inherited,
            listening,
            old,
            connection,
            decision,
            left,
        } = self;
        if !decision.take() {
            return Err(format!("{old} goes on: this process was told to end"));
        }
        let connection = match connection {
            Some(connection) => old.confirm(connection, left).await?,
            None => None,
        };
        let rest = match connection {
            Some(_) => "which finishes its connections",
            None => "which has ended meanwhile",
        };
        tracing::info!("inherited {inherited} of {listening} sockets from {old}, {rest}");
        let has_flows = old.version >= FLOWS;
        let sockets = sockets.into_iter().map(|(key, sockets)| {
            let sockets = sockets.into_iter().map(|(_, socket)| socket);
            (key, sockets.collect())
        });
        Ok(Taken {
            sockets: sockets.collect(),
            connection: connection.filter(|_| has_flows),
        })
    }
}

impl Taken {
    /// Receives the flows of the process before, by the kernel's numbers of their listening sockets. Until it returns, datagrams
    /// wait in those.
    pub(crate) async fn flows(&mut self) -> MovedFlows {
        let mut flows = MovedFlows::new();
        let Some(mut connection) = self.connection.take() else {
            return flows;
        };
        let receiving = receive_flows(&mut connection, &mut flows);
        let received = timeout(FLOWS_WITHIN, receiving).await;
        if let Err(error) = received.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            let count: usize = flows.values().map(Vec::len).sum();
            tracing::warn!(
                "{count} UDP flows of the process before arrived, and then: {error}; the clients of others begin new ones with their next datagram"
            );
        }
        flows
    }
}

async fn receive_flows(from: &mut UnixStream, into: &mut MovedFlows) -> io::Result<()> {
    loop {
        let flows = match wire::receive(from).await? {
            Message::Flows(flows) if flows.is_empty() => return Ok(()),
            Message::Flows(flows) => flows,
            other => return Err(wire::invalid(format!("is a message {}", other.kind()))),
        };
        let sockets = wire::receive_descriptors(from, flows.len()).await?;
        for (flow, socket) in flows.into_iter().zip(sockets) {
            let of_socket = into.entry(flow.socket).or_default();
            of_socket.push(MovedFlow { flow, socket });
        }
    }
}

impl Old {
    /// Waits until this process may have the sockets. Without a connection the other one is no more.
    async fn gives_way(&self, ready: Ready) -> Result<(Option<UnixStream>, State), String> {
        let failed = |error: io::Error| format!("{self}: {error}");
        let connection = self.connection.try_clone().map_err(failed)?;
        let mut connection = UnixStream::from_std(connection).map_err(failed)?;
        // Where that process has given up waiting, its last message says so.
        wire::send(&mut connection, &Message::Ready(ready))
            .await
            .ok();
        let (mut state, mut received) = (State::default(), 0);
        loop {
            return match wire::receive_sized(&mut connection).await {
                Ok((Message::State(part), length)) => {
                    received += length;
                    if received <= MOST_STATE {
                        state.add(part);
                    }
                    continue;
                }
                Ok((Message::Yours, _)) => Ok((Some(connection), state)),
                Ok((Message::Refused(why), _)) => Err(format!("{self} goes on: {why}")),
                Ok((other, _)) => Err(format!("{self} answers by a message {}", other.kind())),
                Err(error) if is_end(&error) => self.has_ended().await.map(|()| (None, state)),
                Err(error) => Err(failed(error)),
            };
        }
    }

    /// Tells the other process that this one has the sockets, but those that it has `left`. `None`: that one is no more.
    async fn confirm(
        &self,
        mut connection: UnixStream,
        left: Vec<usize>,
    ) -> Result<Option<UnixStream>, String> {
        let said = async {
            if self.hears_left && !left.is_empty() {
                wire::send(&mut connection, &Message::Left(left)).await?;
            }
            wire::send(&mut connection, &Message::Mine).await
        };
        if said.await.is_ok() {
            return Ok(Some(connection));
        }
        // It has ended, or it has given up waiting and said so.
        match wire::receive(&mut connection).await {
            Ok(Message::Refused(why)) => Err(format!("{self} goes on: {why}")),
            _ => self.has_ended().await.map(|()| None),
        }
    }

    /// Where the connection has ended: an error, unless that process has.
    async fn has_ended(&self) -> Result<(), String> {
        let life = Arc::clone(&self.life);
        match tokio::task::spawn_blocking(move || life.has_ended()).await {
            Ok(true) => Ok(()),
            _ => Err(format!("{self} {BROKE_OFF}")),
        }
    }
}

impl fmt::Display for Old {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "the process with pid {pid}")?,
            None => write!(f, "a process in another pid namespace")?,
        }
        write!(f, " (ballast {})", self.program)
    }
}
