//! The runtime socket (`--socket PATH`): haproxy's line protocol, for people with socat and for their scripts.
//!
//! Runs on the admin runtime. What operators change here goes to apply; what they cut, to the workers. `runtime` opens
//! the `SocketFile` and begins `serve`.

use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::operator::target::By;
use crate::os::panics::vital;
use crate::process::config::Level;
use crate::process::handover::inode;
use crate::process::handover::old::HandedSockets;
use crate::stats::{Chunks, Statistics};

mod act;
mod affinity;
mod certificates;
mod command;
mod help;
mod info;
mod level;
mod line;
mod places;
mod servers;
mod sessions;

use command::{Command, Prompt};
pub(crate) use help::json_form;
use places::{Place, Places};
pub(crate) use sessions::age;

/// The runtime sockets at which this process answers.
pub(crate) struct Consoles(Vec<Console>);

struct Console {
    /// The number by which the kernel lists the socket.
    number: Option<u64>,
    given_up: CancellationToken,
    task: JoinHandle<()>,
}

impl Consoles {
    /// Answers at these sockets.
    pub(crate) fn begin(sockets: Vec<(StdUnixListener, Level)>, stats: &Arc<Statistics>) -> Self {
        let begin = |(listener, level)| {
            let (number, given_up) = (inode(&listener), CancellationToken::new());
            let serving = serve(listener, level, Arc::clone(stats), given_up.clone());
            Console {
                number,
                given_up,
                task: tokio::task::spawn_local(vital("the runtime socket", serving)),
            }
        };
        Self(sockets.into_iter().map(begin).collect())
    }

    /// Accepts nobody any more at the sockets that the next process has: who waits there is its client.
    pub(crate) async fn leave(&mut self, handed: Option<&HandedSockets>) {
        let has_it = |number: u64| handed.is_some_and(|handed| handed.inodes.contains(&number));
        let left = self
            .0
            .extract_if(.., |console| console.number.is_some_and(has_it));
        for console in left {
            console.task.abort();
            console.task.await.ok();
        }
    }

    /// Accepts those who wait at the other ones, whose files are gone. They count as connections when this returns.
    pub(crate) async fn give_up(self) {
        self.0.iter().for_each(|console| console.given_up.cancel());
        for console in self.0 {
            console.task.await.ok();
        }
    }
}

/// Answers at the runtime socket until it is `given_up`: then nobody can connect any more, and who waits there gets an answer.
async fn serve(
    listener: StdUnixListener,
    level: Level,
    stats: Arc<Statistics>,
    given_up: CancellationToken,
) {
    let listener = match UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot answer at the runtime socket"),
    };
    let places = Places::new(MOST_CONVERSATIONS);
    let converse = |stream, place| {
        let stats = Arc::clone(&stats);
        let count = &stats.shared.status.console_connections;
        count.fetch_add(1, Ordering::SeqCst);
        tokio::task::spawn_local(async move {
            let count = &stats.shared.status.console_connections;
            let conversation = Conversation::begin(stream, level);
            // A client that has gone or does not read in time is not waited for.
            conversation.go_on(&stats, &place).await.ok();
            count.fetch_sub(1, Ordering::SeqCst);
        });
    };
    while let Some(accepted) = given_up.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                // Further connections wait in the backlog.
                let Some(place) = places.take().await else {
                    return;
                };
                converse(stream, place);
            }
            Err(_) => sleep(EXHAUSTED_PAUSE).await,
        }
    }
    // A client may have found the path before its file was removed, and connect only now: the kernel refuses it from here on, so that
    // no client is left in the queue.
    shutdown(&listener, Shutdown::Read).ok();
    // Not by the runtime, which may not know of the last ones yet.
    while let Ok(stream) = accept_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        let stream = UnixStream::from_std(stream.into());
        let Some((stream, place)) = stream.ok().zip(places.take().await) else {
            return;
        };
        converse(stream, place);
    }
}

/// One connection to the runtime socket.
struct Conversation {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// The process at the other end.
    by: By<'static>,
    level: Level,
    /// Whether the connection stays open after a line.
    goes_on: bool,
    /// Whether a prompt is sent before each line.
    asks: bool,
    /// Whether a last line says how the commands went.
    reports: bool,
    /// Whether an answer was an error.
    has_failed: bool,
}

enum Read {
    Line(String),
    TooLong,
    /// The client has ended its side.
    End,
}

impl Conversation {
    fn begin(stream: UnixStream, level: Level) -> Self {
        let by = match stream.peer_cred() {
            Ok(peer) => By::Socket {
                pid: peer.pid().unwrap_or(0),
                uid: peer.uid(),
            },
            Err(_) => By::Socket {
                pid: 0,
                uid: u32::MAX,
            },
        };
        let (reader, writer) = stream.into_split();
        Self {
            reader: BufReader::new(reader),
            writer,
            by,
            level,
            goes_on: false,
            asks: false,
            reports: false,
            has_failed: false,
        }
    }

    async fn go_on(mut self, stats: &Statistics, place: &Place) -> io::Result<()> {
        let unread = loop {
            let patience = if self.goes_on {
                BETWEEN_LINES
            } else {
                FIRST_LINE
            };
            let Some(read) = place.wait(patience, self.read_line()).await else {
                return Ok(());
            };
            let line = match read? {
                Read::Line(line) => line,
                Read::TooLong => {
                    self.tell(Err(TOO_LONG.into())).await?;
                    break Unread::MayCome;
                }
                Read::End => break Unread::IsThere,
            };
            if !self.obey(&line, stats).await? || !self.goes_on {
                break Unread::IsThere;
            }
            if self.asks {
                self.say(b"> ").await?;
            }
        };
        if self.reports {
            let last = if self.has_failed { FAILED } else { DONE };
            self.say(last.as_bytes()).await?;
        }
        self.part(unread).await
    }

    /// Executes the commands of a line. Returns whether the connection may stay open.
    async fn obey(&mut self, line: &str, stats: &Statistics) -> io::Result<bool> {
        let mut commands = line::commands(line);
        let asks_nothing = commands.iter().all(|words| *words == ["report"]);
        if asks_nothing && !self.goes_on {
            commands.push(vec!["help".into()]);
        }
        for words in commands {
            let answer = match command::parse(&words) {
                Ok(Command::Quit) => return Ok(false),
                Ok(Command::Report) => {
                    self.reports = true;
                    continue;
                }
                Ok(Command::Prompt(prompt)) => {
                    self.heed(prompt);
                    Ok(String::new().into())
                }
                Ok(command) if !self.level.may(&command) => Err(level::DENIED.into()),
                Ok(command) => act::answer(command, stats, self.by, self.level).await,
                // What follows would be taken for commands.
                Err(why) if is_payload(&words) => {
                    self.tell(Err(why)).await?;
                    return Ok(false);
                }
                Err(why) => Err(why),
            };
            self.tell(answer).await?;
        }
        Ok(true)
    }

    fn heed(&mut self, prompt: Prompt) {
        let asking = match prompt {
            Prompt::Toggle => !self.asks,
            Prompt::Asking => true,
            Prompt::Silent | Prompt::Over => false,
        };
        (self.asks, self.goes_on) = (asking, asking || prompt == Prompt::Silent);
    }

    async fn read_line(&mut self) -> io::Result<Read> {
        let mut line = Vec::new();
        let mut limited = (&mut self.reader).take(LONGEST_LINE);
        let read = limited.read_until(b'\n', &mut line).await?;
        let is_whole = line.ends_with(b"\n");
        // A last line may end with the connection.
        if read == 0 || line.trim_ascii().is_empty() && !is_whole {
            return Ok(Read::End);
        }
        if !is_whole && read as u64 == LONGEST_LINE {
            // The client asked for a report, though the line is not executed.
            self.reports |= line.starts_with(b"report;");
            return Ok(Read::TooLong);
        }
        Ok(Read::Line(
            String::from_utf8_lossy(line.trim_ascii()).into_owned(),
        ))
    }

    /// Sends an answer, or the error that takes its place, and the empty line that ends it.
    async fn tell(&mut self, answer: Result<Chunks, String>) -> io::Result<()> {
        match answer {
            Ok(answer) => {
                for piece in answer {
                    self.say(&piece).await?;
                }
            }
            Err(why) => {
                self.has_failed = true;
                self.say(why.trim_end_matches('\n').as_bytes()).await?;
                self.say(b"\n").await?;
            }
        }
        self.say(b"\n").await
    }

    async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout(READER, self.writer.write_all(bytes)).await?
    }

    /// Closes so that the last answer arrives whole: closing a socket with unread bytes would reset the connection.
    async fn part(mut self, unread: Unread) -> io::Result<()> {
        self.writer.shutdown().await?;
        if unread == Unread::MayCome {
            let mut rest = (&mut self.reader).take(MOST_UNREAD);
            let mut nowhere = tokio::io::sink();
            timeout(PARTING, tokio::io::copy(&mut rest, &mut nowhere)).await??;
        }
        let mut nowhere = [0; 4096];
        for _ in 0..MOST_UNREAD / 4096 {
            if !matches!(self.reader.get_ref().try_read(&mut nowhere), Ok(1..)) {
                break;
            }
        }
        Ok(())
    }
}

/// What a client may have sent that will not be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    /// What has arrived already.
    IsThere,
    /// The rest of something long.
    MayCome,
}

fn is_payload(words: &[String]) -> bool {
    words.last().is_some_and(|word| word.starts_with("<<"))
}

const MOST_CONVERSATIONS: usize = 32;
/// Of a line, with its end.
pub(crate) const LONGEST_LINE: u64 = 16 * 1024;
pub(crate) const TOO_LONG: &str = "The line is too long: 16384 bytes are the most.";
/// The last line after `report`, if each command was executed.
pub(crate) const DONE: &str = "ok\n";
/// The last line after `report`, if an answer was an error.
pub(crate) const FAILED: &str = "error\n";
const MOST_UNREAD: u64 = 1024 * 1024;
/// How long the only line, or the first one, may take.
const FIRST_LINE: Duration = Duration::from_secs(10);
/// How long a person may think.
const BETWEEN_LINES: Duration = Duration::from_secs(600);
/// How long sending one piece of an answer may take.
const READER: Duration = Duration::from_secs(10);
const PARTING: Duration = Duration::from_secs(1);
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
