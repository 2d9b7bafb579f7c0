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
use tokio::time::{sleep, timeout};

use super::files::{beside, content, replace, write_beside};
use crate::bgp::{Reply, Routes, Sessions, configuration, read_reply, read_sessions};
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
    pub(super) sessions: Sessions,
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
    before: BTreeSet<IpAddr>,
    told: watch::Receiver<Told>,
    said: watch::Sender<Said>,
}

impl Link {
    /// Keeps the BIRD of the file in step until the process ends, in a thread of its own: a disk that stalls delays nothing else.
    /// `before`: the addresses of which BIRD told routers when the last process ended.
    pub(super) fn open(file: PathBuf, before: BTreeSet<IpAddr>) -> Self {
        let (told, telling) = watch::channel(Told::default());
        let (saying, said) = watch::channel(Said {
            routes: Routes::left(before.clone()),
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
            tracing::error!(%error, "cannot start the thread that speaks with BIRD; see the limits of this process, and start it again");
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
        if timeout(2 * LONGEST, is_done).await.is_err() {
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
    /// The configuration that BIRD has. `None`: it is not known.
    applied: Option<String>,
    routes: Routes,
    sessions: Sessions,
    last_error: String,
}

async fn follow(
    file: PathBuf,
    mut before: BTreeSet<IpAddr>,
    mut told: watch::Receiver<Told>,
    said: watch::Sender<Said>,
) {
    let mut birds: Vec<Bird> = Vec::new();
    loop {
        let wanted = told.borrow_and_update().clone();
        let files =
            |bgp: &Bgp| [&bgp.bird.config, &bgp.bird.socket].map(|path| beside(&file, path));
        if let Some(bgp) = &wanted.bgp {
            let [config, socket] = files(bgp);
            let mut known = birds.iter_mut();
            match known.find(|one| one.config == config && one.socket == socket) {
                Some(bird) => bird.bgp.clone_from(bgp),
                None => {
                    let routes = Routes::left(std::mem::take(&mut before));
                    birds.push(Bird::new(config, socket, bgp, routes));
                }
            }
        }
        let wanted_files = wanted.bgp.as_ref().map(files);
        let is_wanted = |bird: &Bird| wanted_files.as_ref().is_some_and(|one| bird.has(one));
        for bird in &mut birds {
            bird.aim(is_wanted(bird), &wanted.addresses);
        }
        let publish = |birds: &[Bird], applied: Option<Told>| {
            let left = Routes::left(before.clone());
            let now = summary(birds, is_wanted, left, applied);
            said.send_if_modified(|known| {
                let is_new = *known != now;
                *known = now;
                is_new
            });
        };
        let applied = said.borrow().applied.clone();
        publish(&birds, applied.filter(|applied| *applied == wanted));
        let mut done = true;
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
    left: Routes,
    applied: Option<Told>,
) -> Said {
    let wanted = birds.iter().find(|bird| is_wanted(bird));
    let mut routes = wanted.map(|bird| bird.routes.clone()).unwrap_or_default();
    routes.beside(&left);
    for bird in birds {
        routes.beside(&bird.routes);
    }
    Said {
        sessions: wanted.map(|bird| bird.sessions.clone()).unwrap_or_default(),
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
            applied: None,
            routes,
            sessions: Sessions::default(),
            last_error: String::new(),
        }
    }

    fn has(&self, [config, socket]: &[PathBuf; 2]) -> bool {
        self.config == *config && self.socket == *socket
    }

    /// It is to have these routes; one that is not wanted any more has no peers and no routes.
    fn aim(&mut self, is_wanted: bool, addresses: &[IpAddr]) {
        if !is_wanted {
            self.bgp.peers.clear();
        }
        self.routes.attempt(if is_wanted { addresses } else { &[] });
    }

    /// Sees that it has the configuration that it is to have, or begins with it. If not, it is tried again.
    async fn keep(&mut self, is_wanted: bool, addresses: &[IpAddr]) -> bool {
        let addresses = if is_wanted { addresses } else { &[] };
        let text = configuration(&self.bgp, addresses);
        // Until the attempt has succeeded, the configuration of BIRD is not known.
        let known = self.applied.take();
        let needed = (known.as_ref() != Some(&text)).then_some(&*text);
        let step = timeout(LONGEST, step(&self.config, &self.socket, needed)).await;
        let step = step.unwrap_or_else(|_| Err(io::Error::other("no answer within 3 s")));
        match step {
            Ok((sessions, refused)) => {
                self.sessions = sessions;
                if let Some(error) = refused {
                    tell(&mut self.last_error, &error);
                    return false;
                }
                self.last_error.clear();
                // It began with another configuration, or somebody gave it one.
                let names = self.bgp.peers.iter().map(|peer| &peer.name);
                if needed.is_none()
                    && !self
                        .sessions
                        .peers
                        .keys()
                        .eq(names.collect::<BTreeSet<_>>())
                {
                    self.routes.forget();
                    return false;
                }
                self.applied = Some(text);
                self.routes.applied(addresses);
                true
            }
            Err(error) => {
                self.sessions = Sessions::default();
                if !is_gone(&error) {
                    tell(&mut self.last_error, &error);
                    return false;
                }
                // One that does not run announces nothing, and begins with what is in its file.
                self.routes = Routes::default();
                let has_it = begin_with(&self.config, &text);
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

/// Applies a configuration, if one is needed, and reads the sessions. Returns also why it was not applied.
async fn step(
    config: &Path,
    socket: &Path,
    text: Option<&str>,
) -> io::Result<(Sessions, Option<io::Error>)> {
    let mut bird = UnixStream::connect(socket).await?;
    let exchange = async {
        answer(&mut bird).await?;
        let refused = match text {
            Some(text) => apply(&mut bird, config, text).await.err(),
            None => None,
        };
        let protocols = command_to(&mut bird, "show protocols").await?;
        let bfd = command_to(&mut bird, "show bfd sessions").await?;
        Ok((read_sessions(&protocols, &bfd), refused))
    };
    // It was there: an error of the files is none of the socket.
    exchange
        .await
        .map_err(|error: io::Error| io::Error::other(error.to_string()))
}

/// A text that BIRD refuses does not come to where it reads at its start.
async fn apply(bird: &mut UnixStream, config: &Path, text: &str) -> io::Result<()> {
    let new = write_beside(config, text.as_bytes(), MODE)?;
    ask(bird, "configure check", &new).await?;
    fs::rename(new, config)?;
    ask(bird, "configure", config).await
}

/// Puts the text where a BIRD that does not run reads at its start, if it is not there. The file has passwords.
fn begin_with(config: &Path, text: &str) -> io::Result<()> {
    if content(config, text.len()).is_ok_and(|there| there == text.as_bytes()) {
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
async fn ask(bird: &mut UnixStream, command: &str, file: &Path) -> io::Result<()> {
    let path = std::path::absolute(file)?;
    let reply = command_to(bird, &format!("{command} \"{}\"", path.display())).await?;
    match reply.error() {
        Some(error) => Err(io::Error::other(error.to_owned())),
        None => Ok(()),
    }
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
const LARGEST: usize = 1 << 20;
const MODE: u32 = 0o640;

#[cfg(test)]
mod tests {
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
        task: JoinHandle<()>,
        socket: PathBuf,
    }

    impl Fake {
        fn start(folder: &TempDir, socket: &str, refused: &'static str) -> Self {
            let socket = folder.path().join(socket);
            let listener = UnixListener::bind(&socket).unwrap();
            let configured = Arc::<Mutex<Vec<String>>>::default();
            let known = Arc::clone(&configured);
            let task = tokio::spawn(async move {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let (read, mut write) = stream.split();
                    write.write_all(b"0001 BIRD 2.0.12 ready.\n").await.unwrap();
                    let mut lines = BufReader::new(read).lines();
                    while let Ok(Some(line)) = lines.next_line().await {
                        let path = line.split('"').nth(1);
                        let text = path.map(|path| fs::read_to_string(path).unwrap());
                        let text = text.unwrap_or_default();
                        let answer: &[u8] = match line.split('"').next() {
                            Some("configure check ") if text.contains(refused) => b"8002 no\n",
                            Some("configure ") => {
                                known.lock().unwrap().push(text);
                                b"0003 Reconfigured\n"
                            }
                            Some("show protocols") => {
                                let has_peer = known
                                    .lock()
                                    .unwrap()
                                    .last()
                                    .is_some_and(|text| has_tor(text));
                                if has_peer { SESSION } else { b"0000 \n" }
                            }
                            _ => b"0020 \n",
                        };
                        if write.write_all(answer).await.is_err() {
                            break;
                        }
                    }
                }
            });
            Self {
                configured,
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

    fn has_tor(configured: &str) -> bool {
        configured.contains("'ballast.tor'")
    }

    const SESSION: &[u8] = b"1002-ballast.tor BGP --- up 10:00:00.000 Established\n0000 \n";
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
            assert!(link.said().sessions.peers["tor"].0);
            // It takes connections, and answers nothing: what waits for the withdrawal is not told of one.
            bird.task.abort();
            let path = bird.socket.clone();
            fs::remove_file(&path).unwrap();
            let silent = UnixListener::bind(&path).unwrap();
            let wanted = told("ctl", &[]);
            link.tell(wanted.clone());
            let mut said = link.listen();
            let failed = said.wait_for(|said| said.sessions.peers.is_empty());
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
            link.tell(told("ctl", &["192.0.2.1"]));
            link.is_done().await;
            bird.configured.lock().unwrap().push("other".to_owned());
            while !bird.last().contains("192.0.2.1") {
                tokio::task::yield_now().await;
            }
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
