//! One life of the announcer: from a file to its end, or to a file that asks for other sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand;
use ballast_core::table::Problem;
use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, sleep_until};

use super::admin::Router;
use super::bird::Told;
use super::files::{Wanted, beside};
use super::kernel::{Kernel, Look, Refusal, Worker, has_finished, send};
use super::log::tell;
use super::netlink::Netlink;
use super::packets::Packets;
use super::{Failure, LOOK_EVERY, Options, Reporter, Signals, Source, data_plane};
use crate::bgp::Sessions;
use crate::file::Announce;
use crate::node::{Action, DataPlane, Node, Start};

/// Why a life ends.
pub(super) enum End {
    /// The process is told to end.
    Asked,
    /// This file asks for other sockets; that of the members is open.
    Again(Box<Wanted>, Option<UdpSocket>),
}

/// Everything that a life has.
struct Life<'r> {
    node: Node,
    begun: Instant,
    udp: Option<UdpSocket>,
    acts: mpsc::UnboundedSender<Action>,
    packets: Arc<[Packets; 2]>,
    /// Actions that went to the worker.
    sent: u64,
    /// It is known whether the data plane serves, so what routers are to know is decided.
    is_decided: bool,
    /// Asks for another look at the kernel's tables.
    again: Arc<Notify>,
    reporter: &'r mut Reporter,
    /// The sessions with routers.
    sessions: Sessions,
    /// The number of the state that was reported last.
    reported: Option<u64>,
    /// When.
    reported_at: Duration,
}

/// The sources of events of a life, and the worker that carries out its actions.
struct Ears {
    packets: Arc<[Packets; 2]>,
    /// The kernel's interfaces, routes and addresses.
    kernel: watch::Receiver<Kernel>,
    data_plane: watch::Receiver<DataPlane>,
    /// Addresses that the kernel refused.
    refusals: mpsc::UnboundedReceiver<Refusal>,
    worker: JoinHandle<()>,
    /// So many actions of the worker the kernel has answered.
    answered: Arc<AtomicU64>,
}

/// Announces as the file has it.
pub(super) async fn live(
    options: &Options,
    wanted: Wanted,
    udp: Option<UdpSocket>,
    source: &mut Source,
    end: &mut Signals,
    reporter: &mut Reporter,
) -> Result<End, Failure> {
    // Its tasks end with it. Without one of them addresses would not be renewed, or the node would hold what it does not serve.
    let mut tasks = JoinSet::new();
    let (mut life, mut ears) = open(options, &wanted, udp, reporter, &mut tasks)?;
    let (begun, mut keys) = (life.begun, wanted.keys);
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut bird = life.reporter.bird.listen();
    let why = loop {
        life.go_on();
        let deadline = life.deadline().map(|at| (begun + at).into());
        let due = async {
            match deadline {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let (mut is_time, mut found) = (false, None);
        let [arp, neighbours] = &*ears.packets;
        // Of several that are ready a random one is taken: who sends datagrams without end cannot keep the rest from being heard.
        tokio::select! {
            () = end.come() => break End::Asked,
            failure = lost(&mut tasks, &mut ears.worker) => return Err(failure),
            () = readable(life.udp.as_ref()) => life.receive(),
            frame = arp.receive() => life.hear(frame),
            frame = neighbours.receive() => life.hear(frame),
            Some(first) = ears.refusals.recv() => life.refused(first, &mut ears.refusals),
            Ok(()) = ears.data_plane.changed() => {
                let known = *ears.data_plane.borrow_and_update();
                life.is_decided = true;
                life.node.set_data_plane(begun.elapsed(), known);
            }
            Ok(()) = ears.kernel.changed() => {
                let kernel = ears.kernel.borrow_and_update().clone();
                life.see(kernel);
            }
            // What it says is taken before the next report.
            heard = bird.changed() => heard.map_err(|_| bird_ended())?,
            () = source.watch.changed() => life.reporter.look(),
            new = source.found.recv() => found = Some(new.ok_or_else(files_ended)?),
            _ = look.tick() => is_time = true,
            () = due => {}
        }
        if is_time {
            life.locate(&peers_of(life.node.file()));
            life.reporter.look();
            life.report();
        }
        let Some(found) = found else { continue };
        let taken = found.and_then(|new| {
            let needs = needs_other_sockets(&new.file, life.node.file());
            let socket = needs.then(|| bind_next(&new.file, life.udp.as_ref()));
            Ok((new, socket.transpose()?))
        });
        match taken {
            Err(problems) => life.reporter.refuse(&problems),
            Ok((new, Some(udp))) => break End::Again(Box::new(new), udp),
            Ok((new, None)) => life.change(new, &mut keys),
        }
    };
    if matches!(why, End::Asked) {
        life.leave(&mut ears).await;
    }
    life.report();
    drop(life);
    // The worker carries out the last actions: it removes addresses.
    if !has_finished(&mut ears.worker, &ears.answered, LAST_ANSWER, LAST_ACTIONS).await {
        ears.worker.abort();
        tracing::error!(
            "the kernel does not answer, so this node may still have addresses that it gave up; they go when a minute has passed. See dmesg"
        );
    }
    Ok(why)
}

/// Opens the sockets, and starts what watches and what acts.
fn open<'r>(
    options: &Options,
    wanted: &Wanted,
    udp: Option<UdpSocket>,
    reporter: &'r mut Reporter,
    tasks: &mut JoinSet<io::Error>,
) -> Result<(Life<'r>, Ears), Failure> {
    let (netlink, changes) = Netlink::open(tasks).map_err(Failure::of("rtnetlink", PRIVILEGES))?;
    let packets = Arc::new([
        Packets::arp().map_err(Failure::of("a socket for ARP", PRIVILEGES))?,
        Packets::neighbours()
            .map_err(Failure::of("a socket for neighbour discovery", PRIVILEGES))?,
    ]);
    let begun = Instant::now();
    let node = begin(wanted, udp.as_ref())?;
    let data_plane = follow_data_plane(options, &wanted.file, tasks);
    let (acts, acting) = mpsc::unbounded_channel();
    let (refused, refusals) = mpsc::unbounded_channel();
    let worker = Worker {
        netlink: netlink.clone(),
        packets: Arc::clone(&packets),
        done: Arc::default(),
        answered: Arc::default(),
        again: Arc::default(),
    };
    let answered = Arc::clone(&worker.answered);
    let (done, again) = (Arc::clone(&worker.done), Arc::clone(&worker.again));
    let look = Look {
        netlink,
        done,
        again: Arc::clone(&again),
    };
    let (seen, kernel) = watch::channel(Kernel::default());
    tasks.spawn(async move {
        look.follow(changes, seen).await;
        io::Error::other("looking at the kernel's tables ended")
    });
    let worker = tokio::spawn(worker.act(acting, refused));
    reporter.take(wanted);
    reporter.bird.go_on(wanted.file.bgp.as_ref());
    let mut life = Life {
        node,
        begun,
        udp,
        acts,
        packets: Arc::clone(&packets),
        sent: 0,
        is_decided: wanted.file.data_plane.is_none(),
        again,
        reporter,
        sessions: Sessions::default(),
        reported: None,
        reported_at: Duration::ZERO,
    };
    life.hear_bird();
    let ears = Ears {
        packets,
        kernel,
        data_plane,
        refusals,
        worker,
        answered,
    };
    Ok((life, ears))
}

/// Follows the state of the data plane, if the file names one.
fn follow_data_plane(
    options: &Options,
    file: &Announce,
    tasks: &mut JoinSet<io::Error>,
) -> watch::Receiver<DataPlane> {
    let unknown = match file.data_plane {
        Some(_) => DataPlane::Unready,
        None => DataPlane::Ready,
    };
    let (known, data_plane) = watch::channel(unknown);
    if let Some(plane) = &file.data_plane {
        let socket = plane
            .socket
            .as_ref()
            .map(|path| beside(&options.file, path));
        let ready = plane.ready.clone();
        tasks.spawn(async move {
            data_plane::follow(socket, ready, known).await;
            io::Error::other("following the data plane ended")
        });
    }
    data_plane
}

impl Life<'_> {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// When [`Life::go_on`] is to be called at the latest.
    fn deadline(&self) -> Option<Duration> {
        let report = self.has_news().then(|| self.reported_at + REPORT_EVERY);
        self.node.deadline().into_iter().chain(report).min()
    }

    fn has_news(&self) -> bool {
        self.reported != Some(self.node.noted())
    }

    /// Does what is due, and what follows from it.
    fn go_on(&mut self) {
        let now = self.now();
        if self.node.deadline().is_some_and(|at| at <= now) {
            // Datagrams that came while this process did not run are taken first.
            self.receive();
            self.node.tick(now);
        }
        if self.reporter.bird.has_news() {
            self.hear_bird();
        }
        for action in self.node.take_actions(now) {
            match action {
                Action::Send(to, bytes) => {
                    if let Some(udp) = &self.udp {
                        // A datagram that cannot be sent is a lost one, which the members expect.
                        udp.try_send_to(&bytes, to).ok();
                    }
                }
                Action::Tell(event) => tell(&event),
                Action::Locate(other) => self.locate(&[other]),
                Action::Probe {
                    interface,
                    address,
                    bytes,
                } => {
                    let mut sockets = self.packets.iter();
                    if let Some(socket) = sockets.find(|socket| socket.is_for(&bytes)) {
                        socket.join(interface, &bytes);
                    }
                    if send(&self.packets, interface, &bytes).is_err() {
                        self.node.not_asked(now, address);
                    }
                }
                other => {
                    self.sent += 1;
                    self.acts.send(other).ok();
                }
            }
        }
        // A report of many addresses is long, and they change together.
        if self.has_news() && (self.reported.is_none() || now >= self.reported_at + REPORT_EVERY) {
            self.report();
        }
    }

    /// Finds out where the others reach this node, if that is open.
    fn locate(&mut self, others: &[SocketAddr]) {
        let now = self.now();
        if let Some(udp) = self.udp.as_ref().filter(|_| self.node.is_nowhere()) {
            self.node.found_at(now, reached_at(udp, others));
        }
    }

    fn hear_bird(&mut self) {
        let said = self.reporter.bird.said();
        self.node
            .set_routers(self.now(), &said.routes, said.sessions.as_ref());
        self.sessions = said.sessions.unwrap_or_default();
    }

    fn report(&mut self) {
        self.hear_bird();
        let epoch = epoch(self.now());
        if epoch.abs_diff(self.node.epoch()) > STEP {
            self.node.set_epoch(epoch);
        }
        self.reported = Some(self.node.noted());
        self.reported_at = self.now();
        self.is_decided |= self.reported_at >= DECIDED_AFTER;
        // BIRD may still tell what an earlier process decided: until this one has, it goes on to.
        if self.is_decided
            && let Some(addresses) = self.node.for_routers()
        {
            let bgp = self.node.file().bgp.clone();
            self.reporter.bird.tell(Told { bgp, addresses });
        }
        let (node, reporter, sessions) = (&self.node, &mut self.reporter, &self.sessions);
        reporter.report(node.statuses(), |shown| {
            shown.node.clone_from(&node.file().node);
            let routers = node.file().bgp.iter().flat_map(|bgp| &bgp.peers);
            let routers = routers.map(|peer| {
                let at = SocketAddr::new(peer.peer_address, peer.peer_port);
                let has_bfd = peer.bfd.is_some();
                (peer.name.clone(), Router { at, has_bfd })
            });
            shown.routers = routers.collect();
            shown.members = node.members();
            shown.counters = node.counters().clone();
            shown.probes = node.probes().cloned();
            shown.sessions.clone_from(sessions);
        });
    }

    /// Takes the datagrams that are there: as many as the buffer of a socket holds usually, and no more, lest who sends without
    /// end keeps this process from the rest.
    fn receive(&mut self) {
        let mut buffer = [0; 2048];
        for _ in 0..AT_ONCE {
            let received = self.udp.as_ref().map(|udp| udp.try_recv_from(&mut buffer));
            let Some(Ok((length, from))) = received else {
                break;
            };
            let now = self.now();
            let from = SocketAddr::new(from.ip().to_canonical(), from.port());
            self.node
                .datagram(now, from, buffer.get(..length).unwrap_or_default());
        }
        self.node.settle(self.now());
    }

    fn hear(&mut self, frame: io::Result<(u32, Vec<u8>)>) {
        // An interface that went down is told by an error, once.
        if let Ok((interface, frame)) = frame {
            let now = self.now();
            self.node.frame(now, interface, &frame);
        }
    }

    /// Takes the refusals that are there: to choose the owners after each of many would take long.
    fn refused(&mut self, first: Refusal, more: &mut mpsc::UnboundedReceiver<Refusal>) {
        let now = self.now();
        let mut next = Some(first);
        while let Some((interface, address, why)) = next {
            self.node.refused(now, interface, address, why);
            next = more.try_recv().ok();
        }
        self.node.settle(now);
    }

    /// Takes what the kernel has.
    fn see(&mut self, kernel: Kernel) {
        let now = self.now();
        // While something is under way the addresses are not yet what they are to be.
        let is_done = kernel.done == self.sent;
        self.node.set_network(now, kernel.network);
        if !is_done {
            self.again.notify_one();
            return;
        }
        self.node.set_addresses(now, &kernel.addresses);
    }

    /// Takes a new file.
    fn change(&mut self, new: Wanted, keys: &mut Option<crate::key::Keys>) {
        self.reporter.take(&new);
        if let Some(new) = &new.keys
            && Some(new) != keys.as_ref()
        {
            self.node.set_keys(new);
            *keys = Some(new.clone());
        }
        if new.file != *self.node.file() {
            let now = self.now();
            self.node.set_file(now, new.file);
        }
        self.report();
    }

    /// Serves what others can take until they have it, and gives up the rest.
    async fn leave(&mut self, ears: &mut Ears) {
        let begun = Instant::now();
        self.is_decided = true;
        self.node.leave(self.now());
        let [arp, neighbours] = &*ears.packets;
        loop {
            self.go_on();
            let time = begun.elapsed();
            let is_over = time >= LEAVE && !self.node.is_handing_over();
            if is_over || time >= LEAVE_AT_MOST {
                break;
            }
            tokio::select! {
                () = readable(self.udp.as_ref()) => self.receive(),
                frame = arp.receive() => self.hear(frame),
                frame = neighbours.receive() => self.hear(frame),
                Ok(()) = ears.data_plane.changed() => {
                    let known = *ears.data_plane.borrow_and_update();
                    self.node.set_data_plane(self.now(), known);
                }
                () = sleep(Duration::from_millis(10)) => {}
            }
        }
        let now = self.now();
        self.node.end(now);
        self.go_on();
        self.report();
        self.reporter.bird.is_done().await;
        // What BIRD has withdrawn leaves lo.
        self.hear_bird();
        if let Some(at) = self.node.lingers() {
            sleep_until((self.begun + at).into()).await;
            self.node.tick(self.now());
        }
        self.go_on();
    }
}

/// Waits until a task of the life ends, or panics. The next process finds the addresses where they are.
async fn lost(tasks: &mut JoinSet<io::Error>, worker: &mut JoinHandle<()>) -> Failure {
    let ended = tokio::select! {
        Some(ended) = tasks.join_next() => ended,
        ended = worker => ended.map(|()| io::Error::other("the queue of changes ended")),
    };
    ended_task(ended.unwrap_or_else(io::Error::other))
}

/// The thread of the files has ended by a panic.
pub(super) fn files_ended() -> Failure {
    ended_task(io::Error::other("the thread of the files ended"))
}

/// The thread that speaks with BIRD has ended by a panic, or could not be started.
fn bird_ended() -> Failure {
    ended_task(io::Error::other("the thread that speaks with BIRD ended"))
}

fn ended_task(error: io::Error) -> Failure {
    Failure::of("a task that this process cannot do without", REPORT)(error)
}

/// Opens the socket of the members, if the file has any. `present`: the one that this process has, which may be in the way of it: an
/// address of all interfaces and one of them exclude each other on one port.
fn bind(file: &Announce, present: Option<&UdpSocket>) -> io::Result<Option<UdpSocket>> {
    let Some(members) = &file.members else {
        return Ok(None);
    };
    let domain = socket2::Domain::for_address(members.bind);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None)?;
    // While both have the option, only another process's socket is in the way.
    let may_share = |may: bool| -> io::Result<()> {
        if let Some(present) = present {
            socket2::SockRef::from(present).set_reuse_address(may)?;
            socket.set_reuse_address(may)?;
        }
        Ok(())
    };
    may_share(true)?;
    let bound = socket.bind(&members.bind.into());
    may_share(false)?;
    bound?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into()).map(Some)
}

/// The socket of the members at the beginning.
pub(super) fn bind_first(file: &Announce) -> Result<Option<UdpSocket>, Failure> {
    let members = file.members.as_ref();
    let what = members.map(|members| format!("members.bind {}", members.bind));
    bind(file, None).map_err(Failure::of(what.unwrap_or_default(), A_BIND))
}

/// The socket for a file that needs another one, or why the file is refused: then the present one stays.
fn bind_next(
    file: &Announce,
    present: Option<&UdpSocket>,
) -> Result<Option<UdpSocket>, Vec<Problem>> {
    bind(file, present).map_err(|error| {
        let why = format!("cannot be bound: {error}");
        vec![Problem::new("members.bind", why, A_BIND)]
    })
}

async fn readable(udp: Option<&UdpSocket>) {
    match udp {
        Some(udp) if udp.readable().await.is_ok() => {}
        _ => std::future::pending().await,
    }
}

fn begin(wanted: &Wanted, udp: Option<&UdpSocket>) -> Result<Node, Failure> {
    let epoch = epoch(Duration::ZERO);
    let file = wanted.file.clone();
    let (Some(udp), Some(keys)) = (udp, &wanted.keys) else {
        return Ok(Node::new(Duration::ZERO, epoch, file, None));
    };
    let mut random = [0; 15];
    let filled = rand::fill(&mut random).map_err(io::Error::other);
    filled.map_err(Failure::of(
        "random bytes",
        "see that the system has a random source",
    ))?;
    let (boot, seed) = random.split_first_chunk().unwrap_or((&[0; 7], &[]));
    let start = Start {
        at: reached_at(udp, &peers_of(&file)),
        generation: epoch,
        boot: *boot,
        seed: seed.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    Ok(Node::new(Duration::ZERO, epoch, file, Some((keys, start))))
}

/// The milliseconds after 1970, by the clock of the host, at the moment that was this time ago.
fn epoch(ago: Duration) -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let epoch = since.unwrap_or_default().saturating_sub(ago);
    u64::try_from(epoch.as_millis()).unwrap_or(u64::MAX)
}

fn peers_of(file: &Announce) -> Vec<SocketAddr> {
    let members = file.members.iter();
    members.flat_map(|members| members.peers.clone()).collect()
}

/// Where the others reach this node: the address of the socket, or the one from which a datagram to one of them goes. A host that
/// boots may have no route yet, and a file need not name a peer: then it stays open.
fn reached_at(udp: &UdpSocket, others: &[SocketAddr]) -> SocketAddr {
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    let local = udp.local_addr().unwrap_or(any);
    if !local.ip().is_unspecified() {
        return local;
    }
    let own = others.iter().find_map(|other| {
        let socket = std::net::UdpSocket::bind((local.ip(), 0)).ok()?;
        // Connecting a UDP socket sends nothing.
        socket.connect(other).ok()?;
        let own = socket.local_addr().ok()?;
        // A socket for both families has IPv4 addresses in the form of IPv6.
        Some(own.ip().to_canonical()).filter(|own| !own.is_unspecified())
    });
    own.map_or(local, |own| SocketAddr::new(own, local.port()))
}

fn needs_other_sockets(new: &Announce, old: &Announce) -> bool {
    let bind = |file: &Announce| file.members.as_ref().map(|members| members.bind);
    new.node != old.node || bind(new) != bind(old) || new.data_plane != old.data_plane
}

/// The time at the end in which the other nodes hear that this one goes. A node without others ends after it.
const LEAVE: Duration = Duration::from_millis(300);
/// The time in which the others have taken what they are to hold: of thousands of addresses, each takes less than a millisecond.
const LEAVE_AT_MOST: Duration = Duration::from_secs(5);
/// A kernel that has answered nothing for so long at the end is not waited for.
const LAST_ANSWER: Duration = Duration::from_secs(15);
/// With the time to leave and that of BIRD it is less than a pod has to end, and `TimeoutStopSec` of the unit.
const LAST_ACTIONS: Duration = Duration::from_secs(30);
const PRIVILEGES: &str = "the announcer needs CAP_NET_ADMIN and CAP_NET_RAW";
const REPORT: &str = "it is to be started again; please report it";
const A_BIND: &str = "give an address of this host and a port that is free";
/// Datagrams that are taken in one turn.
const AT_ONCE: usize = 512;
/// A data plane of which nothing is known for so long does not serve.
const DECIDED_AFTER: Duration = Duration::from_secs(2);
/// By more milliseconds the clock of the host differs only after it was set; less is not worth another ack.
const STEP: u64 = 1_000;
/// Reports are no more frequent, unless one is the first or the last.
const REPORT_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_or_panics_ends_the_life() {
        let idle = || tokio::spawn(std::future::pending::<()>());
        let mut ended = JoinSet::new();
        ended.spawn(async { io::Error::other("the socket is closed") });
        let failure = lost(&mut ended, &mut idle()).await.to_string();
        assert!(failure.contains("the socket is closed"), "{failure}");
        let mut panicked = JoinSet::new();
        panicked.spawn(async { panic!("for the test") });
        let failure = lost(&mut panicked, &mut idle()).await.to_string();
        assert!(failure.contains("panicked"), "{failure}");
        let mut worker = tokio::spawn(async {});
        let failure = lost(&mut JoinSet::new(), &mut worker).await.to_string();
        assert!(failure.contains("the queue of changes ended"), "{failure}");
    }
}
