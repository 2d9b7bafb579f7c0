//! The process that runs: it answers at the path of `--handover`, and gives way to the one that can serve.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::handover::{
    FLOWS, Handed, LONGEST, MOST_STATE, Message, Offer, PairFiles, Ready, State,
};
use rustix::net::{Shutdown, shutdown};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::wire::BATCH;
use super::{
    FLOWS_WITHIN, Freeze, GiveFlows, LendRequest, Lent, MovedFlow, READY_WITHIN, groups, inode,
    is_end, pid_namespace, wire,
};
use crate::process::succession::{Offered, Succession, is_permitted, pid_of};
use crate::process::version::VERSION;

/// The sockets that the next process has, by the kernel's numbers and by the names of locks.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandedSockets {
    /// The number of that process, where it can be known.
    pub(crate) pid: Option<u32>,
    /// Whether it is in the control groups of this process, as those of one service are.
    pub(crate) is_of_this_service: bool,
    /// Those of clients, of the admin side and of files.
    pub(crate) inodes: BTreeSet<u64>,
    /// Those of files and locks.
    pub(crate) names: BTreeSet<String>,
}

/// The process that asks.
struct Next {
    stream: UnixStream,
    /// The rest of a message that was not sent whole.
    unsent: VecDeque<u8>,
}

/// What hands sockets over.
pub(crate) struct Giver<F> {
    pub(crate) succession: Succession,
    pub(crate) give_flows: GiveFlows,
    /// The threads that have sockets.
    pub(crate) threads: Vec<mpsc::UnboundedSender<LendRequest>>,
    /// Where apply is told to change nothing.
    pub(crate) freezes: mpsc::UnboundedSender<Freeze>,
    /// The locks and the sockets of files, which belong to no thread.
    pub(crate) of_no_thread: F,
    /// The process that was offered the sockets, and has not said yet what becomes of it.
    pub(crate) busy_with: RefCell<Option<String>>,
}

/// Answers at the path of `--handover` for as long as the process lives.
pub(crate) async fn serve<F: Fn() -> Vec<Lent> + 'static>(
    listener: StdUnixListener,
    giver: Giver<F>,
) {
    let listener = match UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot answer at the path of --handover"),
    };
    let giver = Rc::new(giver);
    let served = async {
        loop {
            match listener.accept().await {
                Ok((next, _)) => {
                    let giver = Rc::clone(&giver);
                    tokio::task::spawn_local(async move { giver.answer(next).await });
                }
                Err(_) => sleep(RETRY_EVERY).await,
            }
        }
    };
    // The next process answers connections that come from now on.
    tokio::select! {
        () = served => {}
        () = giver.succession.wanted() => {}
    }
}

impl<F: Fn() -> Vec<Lent>> Giver<F> {
    async fn answer(&self, next: UnixStream) {
        let who = who(&next);
        let mut next = Next::of(next);
        let waiting = self.succession.wait();
        let given = match (is_permitted(&next.stream), &waiting) {
            (true, Some(_)) => self.give(&mut next, &who).await,
            (true, None) => Err(Kept::because(
                "too many processes ask at once; end those that hang, and start it again",
            )),
            (false, _) => Err(Kept::because(
                "it is another user's process; start it as the user of the one that runs",
            )),
        };
        let last = match given {
            Ok(()) | Err(Kept::Silently) => return,
            Err(Kept::Ending) => Message::Ending,
            Err(Kept::Because(why)) => {
                tracing::warn!("nothing is handed over to {who}: {why}");
                Message::Refused(why)
            }
        };
        // Nothing waits for a process that does not read. Where it reads on, however late, it cannot confirm any more, and hears
        // why.
        drop(waiting);
        shutdown(&next.stream, Shutdown::Read).ok();
        next.say(&last).await.ok();
    }

    /// Hands everything over. An error: this process goes on.
    async fn give(&self, next: &mut Next, who: &str) -> Result<(), Kept> {
        let version = self.asked(next).await?;
        let _turn = self.turn(who).await?;
        let offered = self.succession.begin_offer();
        let lent = timeout(OFFERS_WITHIN, self.lent(&offered)).await;
        let lent = lent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let lent = lent.map_err(|error| not_offered(&error))?;
        // Where this process is ended meanwhile, the next one may still begin from what it has.
        offered.is(HandedSockets::of(&next.stream, &lent, &BTreeSet::new()));
        let sent = timeout(OFFERS_WITHIN, send(next, version, &lent)).await;
        let sent = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        sent.map_err(|error| not_offered(&error))?;
        tracing::info!(
            "the next process ({who}) has {} sockets now, and this one goes on until it can serve",
            lent.len()
        );
        let ready = tokio::select! {
            ready = until_ready(next) => ready?,
            why = self.succession.withdrawn() => return Err(Kept::because(why)),
        };
        let mut unwanted: BTreeSet<usize> = ready.unwanted.into_iter().collect();
        let (_frozen, known) = self.freeze(ready.certificates, ready.tickets).await?;
        if let Some(why) = self.succession.why_withdrawn() {
            return Err(Kept::because(why));
        }
        let bytes = match timeout(OFFERS_WITHIN, send_state(next, known)).await {
            Ok(told) => told.map_err(untold)?,
            Err(_) => {
                return Err(Kept::Because(format!(
                    "it has not read what this process knows within {OFFERS_WITHIN:?}, and its log may say why; end it if it hangs: this process goes on as before"
                )));
            }
        };
        unwanted.extend(until_taken(next, confirms_within(bytes)).await?);
        let mut handed = HandedSockets::of(&next.stream, &lent, &unwanted);
        handed.is_of_this_service = ready.groups.is_some() && ready.groups == groups();
        drop(lent);
        if version >= FLOWS {
            self.give_flows(next, &handed).await;
        }
        self.succession.hand_over(Arc::new(handed));
        if timeout(FREES_WITHIN, self.succession.free()).await.is_err() {
            tracing::warn!(
                "the admin side does not give way within {FREES_WITHIN:?}: this process ends nevertheless; a command or a request that hangs there is cut at the end"
            );
        }
        self.succession.set_replaced();
        Ok(())
    }

    /// The version in which the next process asks for the sockets.
    async fn asked(&self, next: &mut Next) -> Result<u32, Kept> {
        match timeout(ASKS_WITHIN, wire::receive(&mut next.stream)).await {
            Ok(Ok(Message::Request(request))) => request.answered_in().map_err(Kept::Because),
            Ok(Ok(other)) => Err(Kept::Because(unexpected(&other))),
            Ok(Err(error)) if is_end(&error) => Err(Kept::Silently),
            Ok(Err(error)) => Err(Kept::Because(format!("what it asks {error}"))),
            Err(_) => Err(Kept::Because(format!(
                "it asks nothing for {ASKS_WITHIN:?}"
            ))),
        }
    }

    /// Waits until no other process is taking over. One that has just gone is noticed soon.
    async fn turn(&self, who: &str) -> Result<Turn<'_>, Kept> {
        let until = Instant::now() + TURN_WITHIN;
        loop {
            if self.succession.handed().is_some() {
                // The one that has taken over answers at the path.
                return Err(Kept::Silently);
            }
            if self.succession.is_ending() {
                return Err(Kept::Ending);
            }
            let Some(other) = self.busy_with.borrow().clone() else {
                self.busy_with.replace(Some(who.into()));
                return Ok(Turn(&self.busy_with));
            };
            if Instant::now() >= until {
                return Err(Kept::Because(format!(
                    "another process is taking over now ({other}); end one of the two"
                )));
            }
            sleep(RETRY_EVERY).await;
        }
    }

    /// All sockets of this process. Nobody has heard of them yet: where they change meanwhile, they are collected again.
    async fn lent(&self, offered: &Offered<'_>) -> io::Result<Vec<Lent>> {
        loop {
            let lent = self.collected().await?;
            if self.succession.why_withdrawn().is_none() {
                return Ok(lent);
            }
            offered.begin_again();
        }
    }

    async fn collected(&self) -> io::Result<Vec<Lent>> {
        let mut lent = (self.of_no_thread)();
        for thread in &self.threads {
            let (asked, answer) = oneshot::channel();
            let has_asked = thread.send(asked).is_ok();
            // Half of the sockets must not go over.
            let all = if has_asked { answer.await.ok() } else { None };
            lent.extend(all.ok_or(io::ErrorKind::Interrupted)?);
        }
        Ok(lent)
    }

    /// Gives the flows of the sockets that the next process has, which serves from now on. A flow that does not arrive there is
    /// lost: the client's next datagram begins another one.
    async fn give_flows(&self, next: &mut Next, handed: &HandedSockets) {
        // All workers stop reading at the same time.
        let asked = (self.give_flows)(handed.inodes.clone());
        let sent = timeout(FLOWS_WITHIN, async {
            for given in asked {
                // A worker that has ended has no flows.
                for flows in batches(given.await.unwrap_or_default()) {
                    send_flows(next, flows).await?;
                }
            }
            send_flows(next, Vec::new()).await
        });
        let sent = sent.await;
        if let Err(error) = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            tracing::warn!(
                "not all UDP flows reach the next process: {error}; their clients begin others with the next datagram"
            );
        }
    }

    /// Has apply change nothing until the returned value is dropped. Returns what is known.
    async fn freeze(
        &self,
        certificates: Vec<PairFiles>,
        tickets: bool,
    ) -> Result<(oneshot::Sender<()>, Vec<State>), Kept> {
        let (guard, until) = oneshot::channel();
        let (known, freezing) = oneshot::channel();
        // Where this fails, this process is ending and changes nothing any more.
        let freeze = Freeze {
            certificates,
            tickets,
            known,
            until,
        };
        self.freezes.send(freeze).ok();
        match timeout(OFFERS_WITHIN, freezing).await {
            Ok(known) => Ok((guard, known.unwrap_or_default())),
            Err(_) => Err(Kept::Because(format!(
                "the process that runs has been applying a table for {OFFERS_WITHIN:?}; start the next one again"
            ))),
        }
    }
}

/// The process that is taking over. Others wait until this is dropped.
struct Turn<'a>(&'a RefCell<Option<String>>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.replace(None);
    }
}

async fn send(next: &mut Next, version: u32, lent: &[Lent]) -> io::Result<()> {
    let offer = Message::Offer(Offer {
        version,
        program: VERSION.clone(),
        pid: Some(std::process::id()),
        pid_namespace: pid_namespace(),
        hears_left: true,
        sockets: lent.iter().map(|one| one.handed.clone()).collect(),
    });
    next.say(&offer).await?;
    let descriptors: Vec<_> = lent.iter().map(|one| one.descriptor.as_fd()).collect();
    wire::send_descriptors(&next.stream, &descriptors).await
}

/// As many flows as descriptors fit into a message.
fn batches(flows: Vec<MovedFlow>) -> impl Iterator<Item = Vec<MovedFlow>> {
    let mut flows = flows.into_iter();
    std::iter::from_fn(move || {
        let batch: Vec<MovedFlow> = flows.by_ref().take(BATCH).collect();
        (!batch.is_empty()).then_some(batch)
    })
}

/// Sends flows and their sockets. None at all: those were the last.
async fn send_flows(next: &mut Next, flows: Vec<MovedFlow>) -> io::Result<()> {
    let (flows, sockets): (Vec<_>, Vec<_>) = flows
        .into_iter()
        .map(|moved| (moved.flow, moved.socket))
        .unzip();
    next.say(&Message::Flows(flows)).await?;
    let descriptors: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    wire::send_descriptors(&next.stream, &descriptors).await
}

/// Sends what is known, as far as there is room for it. Returns its bytes.
async fn send_state(next: &mut Next, known: Vec<State>) -> io::Result<usize> {
    let mut sent = 0;
    for part in known {
        let bytes = Message::State(part).encode();
        sent += bytes.len();
        if sent > MOST_STATE || bytes.len() > LONGEST {
            tracing::warn!(
                "clients with affinity of the last services do not go along: what is known is more than {MOST_STATE} bytes"
            );
            break;
        }
        next.send(&bytes).await?;
    }
    Ok(sent)
}

/// Time for the next process to confirm that it has the sockets, once it may. Meanwhile it takes over what this one knows: the
/// time grows with that.
fn confirms_within(bytes: usize) -> Duration {
    let steps = u32::try_from(bytes / STATE_OF_A_SECOND).unwrap_or(u32::MAX);
    CONFIRMS_WITHIN.saturating_add(Duration::from_secs(steps.into()))
}

/// Waits until the next process can serve.
async fn until_ready(next: &mut Next) -> Result<Ready, Kept> {
    match timeout(READY_WITHIN, wire::receive(&mut next.stream)).await {
        Ok(Ok(Message::Ready(ready))) => Ok(ready),
        Ok(Ok(other)) => Err(Kept::Because(unexpected(&other))),
        Ok(Err(error)) if is_end(&error) => Err(Kept::because(
            "it has ended before it could serve, and its log says why; this process goes on as before",
        )),
        Ok(Err(error)) => Err(Kept::Because(format!("what it says {error}"))),
        Err(_) => Err(Kept::Because(format!(
            "it could not serve within {READY_WITHIN:?}, and its log may say why; end it if it hangs: the process that runs goes on as before"
        ))),
    }
}

/// Lets the next process have the sockets, and waits until it confirms that it has them. Returns the places of those that it has
/// left since it was ready. An error: it has none.
async fn until_taken(next: &mut Next, within: Duration) -> Result<Vec<usize>, Kept> {
    let end = next.stream.as_fd().try_clone_to_owned().map_err(untold)?;
    let told = timeout(ASKS_WITHIN, next.say(&Message::Yours)).await;
    told.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(untold)?;
    let mut saying = pin!(confirmed(&mut next.stream));
    let (said, is_late) = match timeout(within, saying.as_mut()).await {
        Ok(said) => (said, false),
        Err(_) => {
            // From here on its confirmation has arrived, or it fails to send one.
            shutdown(&end, Shutdown::Read).ok();
            (saying.await, true)
        }
    };
    match said {
        Ok((left, Message::Mine)) => Ok(left),
        Ok((_, other)) => Err(Kept::Because(unexpected(&other))),
        Err(_) if is_late => Err(Kept::Because(format!(
            "it has not confirmed within {within:?} when it was to take over, and its log may say why; this process goes on as before"
        ))),
        Err(error) if is_end(&error) => Err(Kept::because(
            "it ended when it was to take over, and its log may say why; this process goes on as before",
        )),
        Err(error) => Err(Kept::Because(format!("what it says {error}"))),
    }
}

/// The places of sockets that the next process leaves, and its next message.
async fn confirmed(next: &mut UnixStream) -> io::Result<(Vec<usize>, Message)> {
    match wire::receive(next).await? {
        Message::Left(left) => Ok((left, wire::receive(next).await?)),
        other => Ok((Vec::new(), other)),
    }
}

impl Next {
    fn of(stream: UnixStream) -> Self {
        Self {
            stream,
            unsent: VecDeque::new(),
        }
    }

    async fn say(&mut self, message: &Message) -> io::Result<()> {
        self.send(&message.encode()).await
    }

    /// Sends a message behind the rest of the one before. What is not sent where this is cancelled goes before the next one.
    async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.unsent.extend(message);
        self.stream.write_all_buf(&mut self.unsent).await
    }
}

impl HandedSockets {
    /// What `next` has of what was lent.
    fn of(next: &UnixStream, lent: &[Lent], unwanted: &BTreeSet<usize>) -> Self {
        let mut handed = Self {
            pid: pid_of(next),
            ..Self::default()
        };
        for (place, lent) in lent.iter().enumerate() {
            if unwanted.contains(&place) {
                continue;
            }
            match &lent.handed {
                Handed::File(name) => {
                    handed.names.insert(name.clone());
                    handed.inodes.extend(inode(&*lent.descriptor));
                }
                // Which process has it makes no difference.
                Handed::Lock(_) => {}
                Handed::Tcp(_) | Handed::Udp(_) | Handed::Admin(_) | Handed::Healthz(_) => {
                    handed.inodes.extend(inode(&*lent.descriptor));
                }
            }
        }
        handed
    }
}

/// Why this process keeps its sockets.
enum Kept {
    /// The other process has gone, or asks again: there is nothing to say.
    Silently,
    /// This process was told to end.
    Ending,
    Because(String),
}

impl Kept {
    fn because(why: &str) -> Self {
        Self::Because(why.into())
    }
}

fn untold(error: io::Error) -> Kept {
    if is_end(&error) {
        return Kept::because(
            "it ended when it was to take over, and its log may say why; this process goes on as before",
        );
    }
    Kept::Because(format!(
        "it cannot be told that it may serve: {error}; this process goes on as before: start the next one again"
    ))
}

fn not_offered(error: &io::Error) -> Kept {
    let why = match error.kind() {
        io::ErrorKind::TimedOut => {
            format!("were not collected and received within {OFFERS_WITHIN:?}")
        }
        io::ErrorKind::Interrupted => {
            "cannot be collected, since the process that runs is ending".into()
        }
        _ => format!("cannot be sent: {error}"),
    };
    Kept::Because(format!(
        "the sockets {why}; the process that runs goes on as before: start the next one again, and end one that hangs first"
    ))
}

fn unexpected(message: &Message) -> String {
    format!(
        "its message {} is not the one that comes next",
        message.kind()
    )
}

fn who(other: &UnixStream) -> String {
    match pid_of(other) {
        Some(pid) => format!("pid {pid}"),
        None => "of another pid namespace".into(),
    }
}

/// Time for a process that has connected to ask.
const ASKS_WITHIN: Duration = Duration::from_secs(2);
/// Time for another process that is taking over to be done. A busy machine needs seconds for that.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// Time for the threads to lend their sockets, and for the other process to receive them.
const OFFERS_WITHIN: Duration = Duration::from_secs(30);
/// Time for the next process to confirm, where there is little to take over.
const CONFIRMS_WITHIN: Duration = Duration::from_secs(10);
/// So many bytes more give it a second more.
const STATE_OF_A_SECOND: usize = 8 << 20;
/// Time for the admin thread to leave its addresses and files.
const FREES_WITHIN: Duration = Duration::from_secs(5);
const RETRY_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
