//! The runtime socket (`--socket PATH`): haproxy's line protocol, for people with socat and for their scripts.
//!
//! Runs on the admin runtime. What operators change here goes to apply; what they cut, to the workers. `runtime` opens
//! the `SocketFile` and begins `serve`.

use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::stats::Chunks;
use crate::worker::Shared;

mod act;
mod command;
mod help;
mod info;
mod line;
mod servers;
mod sessions;
mod socket_file;

use command::{Command, Prompt};
pub(crate) use socket_file::SocketFile;

/// Answers whoever connects, for as long as the process lives.
pub(crate) async fn serve(listener: StdUnixListener, shared: Arc<Shared>) {
    let listener = match UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot answer at the runtime socket"),
    };
    let slots = Arc::new(Semaphore::new(MOST_CONVERSATIONS));
    loop {
        // Those for whom there is no room wait in the backlog.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                tokio::task::spawn_local(async move {
                    // Whoever leaves or does not read in time is not waited for.
                    Conversation::begin(stream).go_on(&shared).await.ok();
                    drop(slot);
                });
            }
            Err(_) => sleep(EXHAUSTED_PAUSE).await,
        }
    }
}

/// Who asks, as the kernel says.
#[derive(Clone, Copy, Debug)]
struct By {
    pid: i32,
    uid: u32,
}

/// What is said to a command.
enum Answer {
    Text(String),
    Pieces(Chunks),
}

impl Answer {
    fn nothing() -> Self {
        Self::Text(String::new())
    }

    fn error(mut why: String) -> Self {
        if !why.ends_with('\n') {
            why.push('\n');
        }
        Self::Text(why)
    }
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// One connection.
struct Conversation {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    by: By,
    /// Whether another line may come.
    goes_on: bool,
    /// Whether it is asked for.
    asks: bool,
}

/// What was read.
enum Line {
    Is(String),
    TooLong,
    /// Nobody says any more.
    Over,
}

impl Conversation {
    fn begin(stream: UnixStream) -> Self {
        let by = match stream.peer_cred() {
            Ok(peer) => By {
                pid: peer.pid().unwrap_or(0),
                uid: peer.uid(),
            },
            Err(_) => By {
                pid: 0,
                uid: u32::MAX,
            },
        };
        let (reader, writer) = stream.into_split();
        Self {
            reader: BufReader::new(reader),
            writer,
            by,
            goes_on: false,
            asks: false,
        }
    }

    async fn go_on(mut self, shared: &Shared) -> io::Result<()> {
        let unread = loop {
            let patience = if self.goes_on {
                BETWEEN_LINES
            } else {
                FIRST_LINE
            };
            let line = match timeout(patience, self.read_line()).await?? {
                Line::Is(line) => line,
                Line::TooLong => {
                    self.say(TOO_LONG.as_bytes()).await?;
                    break Unread::MayCome;
                }
                Line::Over => break Unread::IsThere,
            };
            if !self.obey(&line, shared).await? || !self.goes_on {
                break Unread::IsThere;
            }
            if self.asks {
                self.say(b"> ").await?;
            }
        };
        self.part(unread).await
    }

    /// Does what a line says. Says whether the conversation may go on.
    async fn obey(&mut self, line: &str, shared: &Shared) -> io::Result<bool> {
        let mut commands = line::commands(line);
        if commands.is_empty() && !self.goes_on {
            commands.push(vec!["help".into()]);
        }
        for words in commands {
            let answer = match command::parse(&words) {
                Ok(Command::Quit) => return Ok(false),
                Ok(Command::Prompt(prompt)) => {
                    self.heed(prompt);
                    Answer::nothing()
                }
                Ok(command) => act::answer(command, shared, self.by).await,
                // What follows would be taken for commands.
                Err(why) if is_payload(&words) => {
                    self.tell(Answer::error(why)).await?;
                    return Ok(false);
                }
                Err(why) => Answer::error(why),
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

    async fn read_line(&mut self) -> io::Result<Line> {
        let mut line = Vec::new();
        let mut limited = (&mut self.reader).take(LONGEST_LINE);
        let read = limited.read_until(b'\n', &mut line).await?;
        let is_whole = line.ends_with(b"\n");
        // A last line may end with the connection.
        if read == 0 || line.trim_ascii().is_empty() && !is_whole {
            return Ok(Line::Over);
        }
        if !is_whole && read as u64 == LONGEST_LINE {
            return Ok(Line::TooLong);
        }
        Ok(Line::Is(
            String::from_utf8_lossy(line.trim_ascii()).into_owned(),
        ))
    }

    /// Says an answer, and the empty line that ends it.
    async fn tell(&mut self, answer: Answer) -> io::Result<()> {
        match answer {
            Answer::Text(mut text) => {
                text.push('\n');
                self.say(text.as_bytes()).await
            }
            Answer::Pieces(pieces) => {
                for piece in pieces {
                    self.say(&piece).await?;
                }
                self.say(b"\n").await
            }
        }
    }

    async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout(READER, self.writer.write_all(bytes)).await?
    }

    /// Closes such that the last answer arrives whole: what is there and was not read would make it a reset.
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

/// What a client may still be saying when nobody listens any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    /// What it has said already.
    IsThere,
    /// The rest of something long.
    MayCome,
}

fn is_payload(words: &[String]) -> bool {
    words.last().is_some_and(|word| word.starts_with("<<"))
}

const MOST_CONVERSATIONS: usize = 32;
const LONGEST_LINE: u64 = 16 * 1024;
const TOO_LONG: &str = "The line is too long: 16384 bytes are the most.\n\n";
const MOST_UNREAD: u64 = 1024 * 1024;
/// For the only line, or the first one.
const FIRST_LINE: Duration = Duration::from_secs(10);
/// For a person who thinks.
const BETWEEN_LINES: Duration = Duration::from_secs(600);
/// For one piece of an answer.
const READER: Duration = Duration::from_secs(10);
const PARTING: Duration = Duration::from_secs(1);
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
