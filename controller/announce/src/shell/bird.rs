//! BIRD: its configuration is written, applied by its control socket, and its sessions are read back.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::files::{beside, content, replace, write_beside};
use crate::bgp::{
    MARK, Reply, Routes, Sessions, Taken, configuration, mark_of, read_reply, read_sessions,
    routes_in,
};
use crate::file::Bgp;

/// The routes that BIRD is to tell the routers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) bgp: Option<Bgp>,
    pub(super) addresses: Vec<IpAddr>,
}

/// The result of the last attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// `None`: BIRD was not asked yet.
    pub(super) sessions: Option<Sessions>,
    pub(super) routes: Routes,
    /// The routes that BIRD has now, or will begin with if it does not run.
    applied: Option<Told>,
}

/// The connection to the thread that speaks with BIRD.
pub(super) struct Link {
    told: watch::Sender<Told>,
    said: watch::Receiver<Said>,
    /// Until there is something to tell.
    start: Option<Start>,
}

/// What the thread begins with.
struct Start {
    file: PathBuf,
    /// What an earlier process told BIRD.
    before: Routes,
    told: watch::Receiver<Told>,
    said: watch::Sender<Said>,
}

impl Link {
    /// Keeps the BIRD of the file in step until the process ends, in a thread of its own: a disk that stalls delays nothing else.
    /// `before`: the addresses of which BIRD told routers when the last process ended.
    pub(super) fn open(file: PathBuf, before: BTreeSet<IpAddr>) -> Self {
        let before = Routes::left(before);
        let (told, telling) = watch::channel(Told::default());
        let (saying, said) = watch::channel(Said {
            routes: before.clone(),
            applied: Some(Told::default()),
            ..Said::default()
        });
        let start = Some(Start {
            file,
            before,
            told: telling,
            said: saying,
        });
        Self { told, said, start }
    }

    /// Until this process has spoken with the BIRD of the file, that one may tell routers of everything that an earlier process has
    /// written for it.
    pub(super) fn go_on(&mut self, bgp: Option<&Bgp>) {
        let Some(start) = &mut self.start else {
            return;
        };
        match bgp {
            Some(bgp) => {
                let text = content(&beside(&start.file, &bgp.bird.config), LARGEST_FILE);
                let text = text.unwrap_or_default();
                let routes = routes_in(&String::from_utf8_lossy(&text));
                start.before.written(&routes);
            }
            None if start.before != Routes::default() => {
                start.before = Routes::default();
                tracing::warn!(
                    "the file has no bgp any more, so BIRD is not told to withdraw what an earlier process told routers; end that BIRD"
                );
            }
            None => {}
        }
        let routes = start.before.clone();
        start.said.send_modify(|said| said.routes = routes);
    }

    /// BIRD is to tell this from now on.
    pub(super) fn tell(&mut self, wanted: Told) {
        let has_bird = wanted.bgp.is_some();
        self.told.send_if_modified(|told| {
            let is_new = *told != wanted;
            *told = wanted;
            is_new
        });
        if let Some(start) = self.start.take_if(|_| has_bird)
            && let Err(error) = start.run()
        {
            tracing::error!(%error, "cannot start the thread that speaks with BIRD; see the limits of this process");
        }
    }

    /// A receiver that wakes when the thread has read something new from BIRD.
    pub(super) fn listen(&self) -> watch::Receiver<Said> {
        self.said.clone()
    }

    /// Whether more is known than [`Link::said`] returned last.
    pub(super) fn has_news(&self) -> bool {
        self.said.has_changed().unwrap_or(false)
    }

    /// The routes and sessions that the thread read last.
    pub(super) fn said(&mut self) -> Said {
        self.said.borrow_and_update().clone()
    }

    /// Waits until BIRD has what it is to tell, as long as that may take.
    pub(super) async fn is_done(&self) {
        let wanted = self.told.borrow().clone();
        let mut said = self.said.clone();
        let is_done = said.wait_for(|said| said.applied.as_ref() == Some(&wanted));
        // An attempt to do something else may be under way.
        if !matches!(timeout(2 * LONGEST, is_done).await, Ok(Ok(_))) {
            tracing::error!(
                "BIRD does not answer, and may go on to announce what this node does not serve any more; see that it runs, or end it"
            );
        }
    }
}

impl Start {
    fn run(self) -> io::Result<()> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build()?;
        let work = follow(self.file, self.before, self.told, self.said);
        let thread = thread::Builder::new().name("bird".to_owned());
        thread.spawn(move || runtime.block_on(work)).map(drop)
    }
}

/// A BIRD, by its files.
struct Bird {
    config: PathBuf,
    socket: PathBuf,
    bgp: Bgp,
    /// The configuration that BIRD is to have.
    text: String,
    /// The configuration that BIRD has. `None`: it is not known.
    applied: Option<String>,
    routes: Routes,
    /// `None`: it was not asked yet.
    sessions: Option<Sessions>,
    last_error: String,
}

async fn follow(
    file: PathBuf,
    mut before: Routes,
    mut told: watch::Receiver<Told>,
    said: watch::Sender<Said>,
) {
    let mut birds: Vec<Bird> = Vec::new();
    let mut last = None;
    loop {
        let wanted = told.borrow_and_update().clone();
        let is_new = last.replace(wanted.clone()).as_ref() != Some(&wanted);
        let files =
            |bgp: &Bgp| [&bgp.bird.config, &bgp.bird.socket].map(|path| beside(&file, path));
        if let Some(bgp) = &wanted.bgp {
            let [config, socket] = files(bgp);
            let mut known = birds.iter_mut();
            match known.find(|one| one.config == config && one.socket == socket) {
                Some(bird) => bird.bgp.clone_from(bgp),
                None => {
                    let routes = std::mem::take(&mut before);
                    birds.push(Bird::new(config, socket, bgp, routes));
                }
            }
        }
        let wanted_files = wanted.bgp.as_ref().map(files);
        let is_wanted = |bird: &Bird| wanted_files.as_ref().is_some_and(|one| bird.has(one));
        for bird in &mut birds {
            bird.aim(is_wanted(bird), &wanted.addresses, is_new);
        }
        let publish = |birds: &[Bird], applied: Option<Told>| {
            let now = summary(birds, is_wanted, &before, applied);
            said.send_if_modified(|known| {
                let is_new = *known != now;
                *known = now;
                is_new
            });
        };
        let applied = said.borrow().applied.clone();
        publish(&birds, applied.filter(|applied| *applied == wanted));
        let mut done = true;
        // The one of the file comes last: an earlier one may have had the same configuration file, and leaves it empty.
        birds.sort_by_key(|bird| !is_wanted(bird));
        for index in (0..birds.len()).rev() {
            let Some(bird) = birds.get_mut(index) else {
                continue;
            };
            let is_wanted = is_wanted(bird);
            match bird.keep(is_wanted, &wanted.addresses).await {
                true if is_wanted => {}
                // This BIRD announces nothing of this node any more.
                true => drop(birds.remove(index)),
                false => done = false,
            }
        }
        publish(&birds, done.then_some(wanted));
        let pause = async {
            match birds.is_empty() {
                true => std::future::pending().await,
                false => sleep(LOOK_EVERY).await,
            }
        };
        tokio::select! {
            changed = told.changed() => if changed.is_err() {
                return;
            },
            () = pause => {}
        }
    }
}

/// The sessions of the BIRD of the file, and the routes that this one or an earlier one may have.
fn summary(
    birds: &[Bird],
    is_wanted: impl Fn(&Bird) -> bool,
    left: &Routes,
    applied: Option<Told>,
) -> Said {
    let wanted = birds.iter().find(|bird| is_wanted(bird));
    let mut routes = wanted.map(|bird| bird.routes.clone()).unwrap_or_default();
    routes.beside(left);
    for bird in birds {
        routes.beside(&bird.routes);
    }
    Said {
        sessions: wanted.and_then(|bird| bird.sessions.clone()),
        routes,
        applied,
    }
}

impl Bird {
    fn new(config: PathBuf, socket: PathBuf, bgp: &Bgp, routes: Routes) -> Self {
        Self {
            config,
            socket,
            bgp: bgp.clone(),
            text: String::new(),
            applied: None,
            routes,
            sessions: None,
            last_error: String::new(),
        }
    }

    fn has(&self, [config, socket]: &[PathBuf; 2]) -> bool {
        self.config == *config && self.socket == *socket
    }

    /// It is to have these routes; one that is not wanted any more has no peers and no routes. `is_new`: it was to have others before.
    fn aim(&mut self, is_wanted: bool, addresses: &[IpAddr], is_new: bool) {
        let addresses = if is_wanted { addresses } else { &[] };
        if !is_wanted {
            self.bgp.peers.clear();
        }
        self.routes.attempt(addresses);
        // Of thousands of addresses it is long.
        if is_new {
            self.text = configuration(&self.bgp, addresses);
        }
    }

    /// Sees that it has the configuration that it is to have, or begins with it. If not, it is tried again.
    async fn keep(&mut self, is_wanted: bool, addresses: &[IpAddr]) -> bool {
        // Until the attempt has succeeded, the configuration of BIRD is not known.
        let known = self.applied.take();
        let step = step(&self.config, &self.socket, &self.text, known.as_deref());
        let step = timeout(LONGEST, step).await;
        let step = step.unwrap_or_else(|_| Err(io::Error::other("no answer within 3 s")));
        match step {
            Ok(step) => {
                self.sessions = Some(step.sessions);
                if step.is_anothers {
                    self.routes.forget();
                }
                if let Some(error) = step.refused {
                    tell(&mut self.last_error, &error);
                    return false;
                }
                self.last_error.clear();
                self.applied = Some(self.text.clone());
                self.routes.applied(if is_wanted { addresses } else { &[] });
                true
            }
            Err(error) => {
                self.sessions = Some(Sessions::default());
                if !is_gone(&error) {
                    tell(&mut self.last_error, &error);
                    return false;
                }
                // One that does not run announces nothing, and begins with what is in its file.
                self.routes = Routes::default();
                // Where an earlier one has no file any more, it begins with nothing.
                let has_it = match is_wanted || self.config.exists() {
                    true => begin_with(&self.config, &self.text),
                    false => Ok(()),
                };
                tell(
                    &mut self.last_error,
                    has_it.as_ref().err().unwrap_or(&error),
                );
                has_it.is_ok()
            }
        }
    }
}

/// Whether nobody listens at the socket. A BIRD that hangs has a socket, at which no more connections may fit.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// The result of an exchange with BIRD.
struct Step {
    sessions: Sessions,
    /// Whether BIRD ran by a configuration that is not this program's.
    is_anothers: bool,
    /// Why BIRD did not take the configuration.
    refused: Option<io::Error>,
}

/// Applies a configuration, unless BIRD runs by it, and reads the sessions. `known`: the configuration that it had when it was seen last.
async fn step(config: &Path, socket: &Path, text: &str, known: Option<&str>) -> io::Result<Step> {
    let mut bird = UnixStream::connect(socket).await?;
    let exchange = async {
        answer(&mut bird).await?;
        let mark = command_to(&mut bird, &format!("eval {MARK}")).await?;
        let is_anothers = known.is_some_and(|known| mark_of(known) != mark.value());
        let is_known = known == Some(text) && !is_anothers && is_there(config, text);
        if known == Some(text) && !is_known {
            tracing::warn!(
                "somebody else gave BIRD another configuration, or changed its file: it gets that of this program again; change the announcer's file instead"
            );
        }
        let refused = match is_known {
            true => None,
            false => apply(&mut bird, config, text).await.err(),
        };
        let protocols = command_to(&mut bird, "show protocols").await?;
        let bfd = command_to(&mut bird, "show bfd sessions").await?;
        Ok(Step {
            sessions: read_sessions(&protocols, &bfd),
            is_anothers,
            refused,
        })
    };
    // It was there: an error of the files is none of the socket.
    exchange
        .await
        .map_err(|error: io::Error| io::Error::other(error.to_string()))
}

/// A text that BIRD refuses does not come to where it reads at its start.
async fn apply(bird: &mut UnixStream, config: &Path, text: &str) -> io::Result<()> {
    let new = write_beside(config, text.as_bytes(), MODE)?;
    match ask(bird, "configure check", &new).await? {
        Taken::Not(why) => return Err(io::Error::other(why)),
        Taken::Whole | Taken::Busy => fs::rename(new, config)?,
    }
    configure(bird, config).await
}

/// Has BIRD run by the file. One that is busy may put it off, and may give the place of this configuration to another one, so it is asked
/// again until it says that it runs by it.
async fn configure(bird: &mut UnixStream, config: &Path) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match ask(bird, "configure", config).await? {
            Taken::Whole => return Ok(()),
            Taken::Not(why) => return Err(io::Error::other(why)),
            Taken::Busy => {
                while begun.elapsed() < BUSY_AT_MOST {
                    sleep(BUSY_FOR).await;
                    if !command_to(bird, "configure status").await?.is_busy() {
                        break;
                    }
                }
            }
        }
        if begun.elapsed() >= BUSY_AT_MOST {
            let why = "BIRD is busy with another configuration, or with the end of a session; see birdc configure status";
            return Err(io::Error::other(why));
        }
    }
}

/// Whether the file has this content.
fn is_there(path: &Path, text: &str) -> bool {
    content(path, text.len()).is_ok_and(|there| there == text.as_bytes())
}

/// Puts the text where a BIRD that does not run reads at its start, if it is not there. The file has passwords.
fn begin_with(config: &Path, text: &str) -> io::Result<()> {
    if is_there(config, text) {
        return Ok(());
    }
    check("bird", text)?;
    replace(config, text.as_bytes(), MODE)
}

/// Whether the program takes the configuration. If it is not on this host, or in another container, that is not known.
fn check(program: &str, text: &str) -> io::Result<()> {
    let mut command = Command::new(program);
    command
        .args(["-p", "-c", "/dev/stdin"])
        .stdin(Stdio::piped());
    let checking = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let Ok(mut checking) = checking else {
        return Ok(());
    };
    if let Some(mut input) = checking.stdin.take() {
        // One that ends before it has read all says why.
        input.write_all(text.as_bytes()).ok();
    }
    let checked = checking.wait_with_output()?;
    if checked.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&checked.stderr);
    let why = format!("{program} -p: {}", why.trim());
    Err(io::Error::other(why))
}

/// Has BIRD do something with a file.
async fn ask(bird: &mut UnixStream, command: &str, file: &Path) -> io::Result<Taken> {
    let path = std::path::absolute(file)?;
    let reply = command_to(bird, &format!("{command} \"{}\"", path.display())).await?;
    Ok(reply.taken())
}

async fn command_to(bird: &mut UnixStream, command: &str) -> io::Result<Reply> {
    bird.write_all(format!("{command}\n").as_bytes()).await?;
    answer(bird).await
}

async fn answer(bird: &mut UnixStream) -> io::Result<Reply> {
    let mut text = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let read = bird.read(&mut buffer).await?;
        text.extend_from_slice(buffer.get(..read).unwrap_or_default());
        if let Some(reply) = read_reply(&String::from_utf8_lossy(&text)) {
            return Ok(reply);
        }
        if read == 0 || text.len() > LARGEST {
            return Err(io::Error::other("the answer of BIRD has no end"));
        }
    }
}

fn tell(last: &mut String, error: &io::Error) {
    let words = error.to_string();
    if *last != words {
        tracing::error!(
            error = words,
            "cannot keep BIRD in step; it is tried again each second; see that BIRD runs and that its control socket is that of the file"
        );
        *last = words;
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3);
/// The bytes of an answer at most.
const LARGEST: usize = 1 << 20;
/// The bytes of a configuration at most: of each address it has a route, and a part of a filter for each router.
const LARGEST_FILE: usize = 64 << 20;
/// How often a BIRD that is busy is asked whether it still is.
const BUSY_FOR: Duration = Duration::from_millis(20);
/// For so long a BIRD that is busy is waited for. It is asked again a second later.
const BUSY_AT_MOST: Duration = Duration::from_secs(2);
const MODE: u32 = 0o640;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use tempfile::TempDir;
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    use tokio::net::UnixListener;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::file;

    /// A BIRD of the test's own: it takes every configuration in which its word does not stand.
    struct Fake {
        /// Its configuration.
        configured: Arc<Mutex<Vec<String>>>,
        /// How it answers the next requests for one. With 0005 and 0006 it does not take it.
        answers: Arc<Mutex<VecDeque<&'static str>>>,
        task: JoinHandle<()>,
        socket: PathBuf,
    }

    impl Fake {
        fn start(folder: &TempDir, socket: &str, refused: &'static str) -> Self {
            let socket = folder.path().join(socket);
            let listener = UnixListener::bind(&socket).unwrap();
            let configured = Arc::<Mutex<Vec<String>>>::default();
            let answers = Arc::<Mutex<VecDeque<&'static str>>>::default();
            let known = (Arc::clone(&configured), Arc::clone(&answers));
            let task = tokio::spawn(async move {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let (read, mut write) = stream.split();
                    write.write_all(b"0001 BIRD 2.0.12 ready.\n").await.unwrap();
                    let mut lines = BufReader::new(read).lines();
                    while let Ok(Some(line)) = lines.next_line().await {
                        let answer = said(&line, refused, &known.0, &known.1);
                        if write.write_all(answer.as_bytes()).await.is_err() {
                            break;
                        }
                    }
                }
            });
            Self {
                configured,
                answers,
                task,
                socket,
            }
        }

        fn last(&self) -> String {
            let configured = self.configured.lock().unwrap();
            configured.last().cloned().unwrap_or_default()
        }

        async fn end(self) {
            self.task.abort();
            self.task.await.ok();
            fs::remove_file(self.socket).unwrap();
        }
    }

    /// What a BIRD says to a line.
    fn said(
        line: &str,
        refused: &str,
        configured: &Mutex<Vec<String>>,
        answers: &Mutex<VecDeque<&'static str>>,
    ) -> String {
        let mut configured = configured.lock().unwrap();
        let last = configured.last().cloned().unwrap_or_default();
        let path = line.split('"').nth(1);
        let text = path.map(|path| fs::read_to_string(path).unwrap());
        let text = text.unwrap_or_default();
        let answer = match line.split('"').next() {
            Some("configure check ") if text.contains(refused) => "8002 no\n",
            Some("configure check ") => "0020 Configuration OK\n",
            Some("configure ") => {
                let answer = answers.lock().unwrap().pop_front();
                let answer = answer.unwrap_or("0003 Reconfigured\n");
                if !["0005", "0006"].iter().any(|code| answer.starts_with(code)) {
                    configured.push(text);
                }
                answer
            }
            Some("configure status") => "0003-Daemon is up and running\n0000 \n",
            Some("eval mark_of_ballast") => match mark_of(&last) {
                Some(mark) => return format!("0023 {mark}\n"),
                None => "9001 syntax error, unexpected CF_SYM_UNDEFINED\n",
            },
            Some("show protocols") if has_tor(&last) => SESSION,
            _ => "0000 \n",
        };
        answer.to_owned()
    }

    fn has_tor(configured: &str) -> bool {
        configured.contains("'ballast.tor'")
    }

    const SESSION: &str = "1002-ballast.tor BGP --- up 10:00:00.000 Established\n0000 \n";
    const NEVER: &str = "this stands in no configuration";

    fn told(socket: &str, addresses: &[&str]) -> Told {
        let text = format!(
            "version: 1
node: a
bgp:
  bird: {{config: bird.conf, socket: {socket}}}
  router-id: 10.0.0.1
  my-asn: 1
  peers: [{{name: tor, peer-asn: 2, peer-address: 10.0.0.2}}]
"
        );
        Told {
            bgp: file::parse(text.as_bytes()).unwrap().bgp,
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
        }
    }

    fn block_on(work: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async { timeout(Duration::from_secs(60), work).await.unwrap() });
    }

    fn place() -> (TempDir, Link) {
        let folder = tempfile::tempdir().unwrap();
        let link = Link::open(folder.path().join("announce.yaml"), BTreeSet::new());
        (folder, link)
    }

    #[test]
    fn what_failed_is_not_taken_for_what_bird_has() {
        block_on(async {
            let (folder, mut link) = place();
            let config = folder.path().join("bird.conf");
            let bird = Fake::start(&folder, "ctl", NEVER);
            link.tell(told("ctl", &[]));
            link.is_done().await;
            assert!(bird.last().contains("tor") && !bird.last().contains("192.0.2.1"));
            // BIRD ends, and will begin with the newest file.
            bird.end().await;
            link.tell(told("ctl", &["192.0.2.1"]));
            link.is_done().await;
            assert!(fs::read_to_string(&config).unwrap().contains("192.0.2.1"));
            link.tell(told("ctl", &[]));
            link.is_done().await;
            assert!(!fs::read_to_string(&config).unwrap().contains("192.0.2.1"));
            // A BIRD that has just begun is configured again.
            let bird = Fake::start(&folder, "ctl", NEVER);
            while bird.last().is_empty() {
                tokio::task::yield_now().await;
            }
            assert!(!bird.last().contains("192.0.2.1"));
        });
    }

    #[test]
    fn a_configuration_that_is_refused_does_not_come_to_the_file_of_bird() {
        block_on(async {
            let (folder, mut link) = place();
            let bird = Fake::start(&folder, "ctl", "192.0.2.1");
            link.tell(told("ctl", &["192.0.2.2"]));
            link.is_done().await;
            link.tell(told("ctl", &["192.0.2.1"]));
            let new = folder.path().join("bird.conf.new");
            while !fs::read_to_string(&new).is_ok_and(|text| text.contains("192.0.2.1")) {
                tokio::task::yield_now().await;
            }
            link.tell(told("ctl", &["192.0.2.3"]));
            link.is_done().await;
            let all = bird.configured.lock().unwrap().concat();
            assert!(all.contains("192.0.2.2") && all.contains("192.0.2.3"));
            assert!(!all.contains("192.0.2.1/"));
        });
    }

    #[test]
    fn a_bird_that_the_file_does_not_name_any_more_tells_nothing() {
        block_on(async {
            let (folder, mut link) = place();
            let one = Fake::start(&folder, "one", NEVER);
            let other = Fake::start(&folder, "other", NEVER);
            link.tell(told("one", &["192.0.2.1"]));
            link.is_done().await;
            assert!(one.last().contains("192.0.2.1"));
            link.tell(told("other", &["192.0.2.1"]));
            link.is_done().await;
            assert!(!one.last().contains("192.0.2.1") && !one.last().contains("tor"));
            assert!(other.last().contains("192.0.2.1"));
            link.tell(Told::default());
            link.is_done().await;
            assert!(!other.last().contains("192.0.2.1") && !other.last().contains("tor"));
        });
    }

    #[test]
    fn a_bird_that_hangs_may_have_what_it_had_and_one_that_ended_has_nothing() {
        block_on(async {
            let (folder, mut link) = place();
            let bird = Fake::start(&folder, "ctl", NEVER);
            let address = "192.0.2.1".parse().unwrap();
            let known = |link: &mut Link| {
                let said = link.said();
                (said.routes.has(address), said.routes.may_have(address))
            };
            link.tell(told("ctl", &["192.0.2.1"]));
            link.is_done().await;
            assert_eq!(known(&mut link), (true, true));
            assert!(link.said().sessions.unwrap().peers["tor"].0);
            // It takes connections, and answers nothing: what waits for the withdrawal is not told of one.
            bird.task.abort();
            let path = bird.socket.clone();
            fs::remove_file(&path).unwrap();
            let silent = UnixListener::bind(&path).unwrap();
            let wanted = told("ctl", &[]);
            link.tell(wanted.clone());
            let mut said = link.listen();
            let failed = said.wait_for(|said| said.sessions == Some(Sessions::default()));
            failed.await.unwrap();
            assert_eq!(known(&mut link), (false, true));
            let config = folder.path().join("bird.conf");
            assert!(fs::read_to_string(&config).unwrap().contains("192.0.2.1"));
            assert_ne!(link.said().applied, Some(wanted));
            // It ends, and nobody listens at its socket.
            drop(silent);
            link.is_done().await;
            assert_eq!(known(&mut link), (false, false));
            assert!(!fs::read_to_string(&config).unwrap().contains("192.0.2.1"));
        });
    }

    #[test]
    fn a_bird_that_somebody_else_configured_is_configured_again() {
        block_on(async {
            let (folder, mut link) = place();
            let bird = Fake::start(&folder, "ctl", NEVER);
            let wanted = told("ctl", &["192.0.2.1"]);
            link.tell(wanted.clone());
            link.is_done().await;
            let ours = bird.last();
            // One of somebody else, an earlier one (configure undo), and ours whose file somebody changed.
            let earlier = configuration(&wanted.bgp.unwrap(), &[]);
            for other in ["other".to_owned(), earlier] {
                bird.configured.lock().unwrap().push(other);
                while bird.last() != ours {
                    tokio::task::yield_now().await;
                }
            }
            let count = bird.configured.lock().unwrap().len();
            let config = folder.path().join("bird.conf");
            fs::write(&config, ours.replace("192.0.2.1", "192.0.2.2")).unwrap();
            while bird.configured.lock().unwrap().len() == count {
                tokio::task::yield_now().await;
            }
            assert_eq!(fs::read_to_string(&config).unwrap(), ours);
            assert_eq!(bird.last(), ours);
        });
    }

    #[test]
    fn a_configuration_is_taken_when_bird_says_that_it_runs_by_it() {
        block_on(async {
            let (folder, mut link) = place();
            let bird = Fake::start(&folder, "ctl", NEVER);
            let answers = |all: &[&'static str]| bird.answers.lock().unwrap().extend(all);
            let address = "192.0.2.1".parse().unwrap();
            let queued = "0005 Reconfiguration already in progress, queueing new config\n";
            let in_progress = "0004 Reconfiguration in progress\n";
            answers(&[queued, in_progress]);
            link.tell(told("ctl", &["192.0.2.1"]));
            link.is_done().await;
            assert!(bird.answers.lock().unwrap().is_empty());
            assert_eq!(bird.configured.lock().unwrap().len(), 2);
            assert!(link.said().routes.has(address));
            // One that shuts down does not withdraw it. It is asked again until it ends.
            answers(&["0006 Reconfiguration ignored, shutting down\n"; 1_000]);
            let wanted = told("ctl", &[]);
            link.tell(wanted.clone());
            while bird.answers.lock().unwrap().len() == 1_000 {
                tokio::task::yield_now().await;
            }
            let told = link.said();
            assert!(told.routes.may_have(address) && told.applied != Some(wanted));
            bird.end().await;
            link.is_done().await;
            assert!(!link.said().routes.may_have(address));
        });
    }

    #[test]
    fn what_an_earlier_process_wrote_for_bird_may_be_told_until_bird_was_spoken_with() {
        block_on(async {
            let (folder, mut link) = place();
            let [there, other] = ["192.0.2.1", "192.0.2.2"].map(|one| one.parse().unwrap());
            let wanted = told("ctl", &["192.0.2.2"]);
            let text = configuration(wanted.bgp.as_ref().unwrap(), &[there]);
            fs::write(folder.path().join("bird.conf"), text).unwrap();
            let bird = Fake::start(&folder, "ctl", NEVER);
            let may_have = |link: &mut Link| {
                let said = link.said();
                [there, other].map(|one| said.routes.may_have(one))
            };
            assert_eq!(may_have(&mut link), [false, false]);
            link.go_on(wanted.bgp.as_ref());
            assert_eq!(may_have(&mut link), [true, false]);
            assert_eq!(link.said().sessions, None);
            link.tell(wanted);
            link.is_done().await;
            assert_eq!(may_have(&mut link), [false, true]);
            assert!(link.said().sessions.is_some());
            drop(bird);

            // A file without bgp does not say where that BIRD is.
            let file = folder.path().join("announce.yaml");
            let mut link = Link::open(file, [there].into());
            assert_eq!(may_have(&mut link), [true, false]);
            link.go_on(None);
            assert_eq!(may_have(&mut link), [false, false]);
        });
    }

    #[test]
    fn an_earlier_bird_does_not_empty_the_file_that_is_another_ones_now() {
        block_on(async {
            let (folder, mut link) = place();
            let one = Fake::start(&folder, "one", NEVER);
            link.tell(told("one", &["192.0.2.1"]));
            link.is_done().await;
            one.end().await;
            // Its configuration file is the same one.
            let other = Fake::start(&folder, "other", NEVER);
            link.tell(told("other", &["192.0.2.1"]));
            link.is_done().await;
            let config = fs::read_to_string(folder.path().join("bird.conf")).unwrap();
            assert!(config.contains("192.0.2.1"), "{config}");
            assert_eq!(other.last(), config);
        });
    }

    #[test]
    fn the_end_of_the_thread_is_noticed_and_nothing_counts_as_done_then() {
        block_on(async {
            let (_folder, mut link) = place();
            let mut heard = link.listen();
            link.told.send_replace(told("ctl", &["192.0.2.1"]));
            // As a panic does.
            drop(link.start.take());
            assert!(heard.changed().await.is_err());
            let begun = std::time::Instant::now();
            link.is_done().await;
            assert!(begun.elapsed() < LONGEST);
        });
    }

    #[test]
    fn a_text_is_checked_by_the_program_if_it_is_there() {
        let good = configuration(&told("ctl", &["192.0.2.1"]).bgp.unwrap(), &[]);
        assert!(check("no-such-program", "x").is_ok());
        if Command::new("bird").arg("--version").output().is_err() {
            eprintln!("SKIP: bird2 is not installed (apt-get install bird2)");
            return;
        }
        check("bird", &good).unwrap();
        let why = check("bird", "protocol what {}").unwrap_err().to_string();
        assert!(
            why.starts_with("bird -p: ") && why.contains("syntax error"),
            "{why}"
        );
    }
}
