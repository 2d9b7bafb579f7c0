//! BIRD: its configuration is written, applied by its control socket, and its sessions are read back.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::files::{beside, replace, write_beside};
use crate::bgp::{Reply, Sessions, configuration, read_reply, read_sessions};
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
    /// The routes that BIRD has now, or will begin with if it does not run.
    pub(super) applied: Option<Told>,
}

/// The connection to the task that speaks with BIRD.
pub(super) struct Link {
    told: watch::Sender<Told>,
    said: watch::Receiver<Said>,
}

impl Link {
    /// Keeps the BIRD of the file in step until the process ends.
    pub(super) fn open(file: PathBuf) -> Self {
        let (told, telling) = watch::channel(Told::default());
        let (saying, said) = watch::channel(Said::default());
        tokio::spawn(follow(file, telling, saying));
        Self { told, said }
    }

    /// BIRD is to tell this from now on.
    pub(super) fn tell(&self, wanted: Told) {
        self.told.send_if_modified(|told| {
            let is_new = *told != wanted;
            *told = wanted;
            is_new
        });
    }

    /// Whether the sessions are others than those that [`Link::sessions`] returned.
    pub(super) fn has_news(&self) -> bool {
        self.said.has_changed().unwrap_or(false)
    }

    pub(super) fn sessions(&mut self) -> Sessions {
        self.said.borrow_and_update().sessions.clone()
    }

    /// Waits until BIRD has what it is to tell, as long as that may take.
    pub(super) async fn is_done(&mut self) {
        let wanted = self.told.borrow().clone();
        let is_done = self
            .said
            .wait_for(|said| said.applied.as_ref() == Some(&wanted));
        // An attempt to do something else may be under way.
        if timeout(2 * LONGEST, is_done).await.is_err() {
            tracing::error!(
                "BIRD does not answer, and may go on to announce what this node does not serve any more; see that it runs, or end it"
            );
        }
    }
}

/// A BIRD, by its files.
struct Bird {
    config: PathBuf,
    socket: PathBuf,
    bgp: Bgp,
    /// The configuration that BIRD has. `None`: it is not known.
    applied: Option<String>,
    last_error: String,
}

async fn follow(file: PathBuf, mut told: watch::Receiver<Told>, said: watch::Sender<Said>) {
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
                None => birds.push(Bird::new(config, socket, bgp)),
            }
        }
        let (mut now, mut done) = (Said::default(), true);
        for index in (0..birds.len()).rev() {
            let Some(bird) = birds.get_mut(index) else {
                continue;
            };
            let is_wanted =
                wanted.bgp.as_ref().map(files) == Some([bird.config.clone(), bird.socket.clone()]);
            match bird.keep(is_wanted, &wanted.addresses).await {
                Some(sessions) if is_wanted => now.sessions = sessions,
                // This BIRD announces nothing of this node any more.
                Some(_) => drop(birds.remove(index)),
                None => done = false,
            }
        }
        now.applied = done.then_some(wanted);
        said.send_if_modified(|known| {
            let is_new = *known != now;
            *known = now;
            is_new
        });
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

impl Bird {
    fn new(config: PathBuf, socket: PathBuf, bgp: &Bgp) -> Self {
        Self {
            config,
            socket,
            bgp: bgp.clone(),
            applied: None,
            last_error: String::new(),
        }
    }

    /// Sees that it has the configuration that it is to have; one that is not wanted any more has no peers and no routes. `None`: it
    /// is tried again.
    async fn keep(&mut self, is_wanted: bool, addresses: &[IpAddr]) -> Option<Sessions> {
        let text = match is_wanted {
            true => configuration(&self.bgp, addresses),
            false => {
                self.bgp.peers.clear();
                configuration(&self.bgp, &[])
            }
        };
        // Until the attempt has succeeded, the configuration of BIRD is not known.
        let known = self.applied.take();
        let needed = (known.as_ref() != Some(&text)).then_some(&*text);
        let step = timeout(LONGEST, step(&self.config, &self.socket, needed)).await;
        let step = step.unwrap_or_else(|_| Err(io::Error::other("no answer within 3 s")));
        match step {
            Ok(sessions) => {
                self.applied = Some(text);
                self.last_error.clear();
                return Some(sessions);
            }
            Err(error) => tell(&mut self.last_error, &error),
        }
        // One that does not run announces nothing, and begins with what is in its file.
        let is_gone = UnixStream::connect(&self.socket).await.is_err();
        let has_it = || fs::read(&self.config).is_ok_and(|there| there == text.as_bytes());
        (is_gone && has_it()).then(Sessions::default)
    }
}

/// Applies a configuration, if one is needed, and reads the sessions.
async fn step(config: &Path, socket: &Path, text: Option<&str>) -> io::Result<Sessions> {
    let connected = async {
        let mut bird = UnixStream::connect(socket).await?;
        answer(&mut bird).await?;
        io::Result::Ok(bird)
    };
    let mut bird = match (connected.await, text) {
        (Ok(bird), _) => bird,
        (Err(error), Some(text)) => {
            // BIRD does not run, and will begin with this file. The file has passwords.
            if !fs::read(config).is_ok_and(|there| there == text.as_bytes()) {
                replace(config, text.as_bytes(), MODE)?;
            }
            return Err(error);
        }
        (Err(error), None) => return Err(error),
    };
    if let Some(text) = text {
        // A text that BIRD refuses does not come to where it reads at its start.
        let new = write_beside(config, text.as_bytes(), MODE)?;
        ask(&mut bird, "configure check", &new).await?;
        fs::rename(new, config)?;
        ask(&mut bird, "configure", config).await?;
    }
    let protocols = command_to(&mut bird, "show protocols").await?;
    let bfd = command_to(&mut bird, "show bfd sessions").await?;
    Ok(read_sessions(&protocols, &bfd))
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
        let link = Link::open(folder.path().join("announce.yaml"));
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
}
