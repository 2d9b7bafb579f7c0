//! `ballast show` and `ballast ctl`: the other end of the admin address and of the runtime socket.
//!
//! Called by `main`. Plain blocking sockets: there is one question and one answer.

use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::operator::console;
use crate::os::clock::unix_seconds;

mod ask;
mod rows;

pub use rows::Paint;

/// What is to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// The process and its table
    Info,
    /// The frontends, those of udp with their datagrams
    Frontends,
    /// The services
    Services,
    /// The endpoints of all services
    Endpoints,
    /// The connections and flows, 1000 at most; only the runtime socket lists them, so --socket is needed
    Connections,
}

/// The server that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// An admin address.
    Admin(SocketAddr),
    /// A runtime socket.
    Socket(PathBuf),
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// No answer, or not the one that was expected.
    #[error("{0}: {1}")]
    At(String, String),
    /// The answer came, and cannot be passed on.
    #[error("standard output cannot be written: {0}; make room there, or write elsewhere")]
    Unwritten(io::Error),
    /// The commands cannot be read.
    #[error("standard input cannot be read: {0}; give the commands as arguments, or by a pipe")]
    Unread(io::Error),
    /// Only a runtime socket lists connections.
    #[error(
        "connections are told by the runtime socket only, and not by the admin address: start `ballast run` with --socket PATH, and say the same here"
    )]
    NeedsSocket,
    /// A command whose answer is for people only.
    #[error(
        "\"{0}\" has no answer in JSON; leave --json out, or ask for `show info`, `show stat`, `show sess` or `show snapshot`"
    )]
    NoJson(String),
}

/// The answer for people: aligned, and coloured if `paint` wants it.
pub fn for_people(what: What, server: &Server, paint: Paint) -> Result<String, Unanswered> {
    let answer = fetch(what, server)?;
    Ok(match what {
        What::Info => rows::pairs(&rows::in_words(rows::info(&answer), unix_seconds()), paint),
        what => {
            let rows = rows::with_trouble(rows::rows(what, &answer));
            rows::table(rows::columns(what), &rows, paint) + &rows::exceptions(&rows)
        }
    })
}

/// The answer for programs: a map, or a list of maps.
pub fn for_programs(what: What, server: &Server) -> Result<String, Unanswered> {
    let answer = fetch(what, server)?;
    let value = match what {
        What::Info => rows::info(&answer),
        what => Value::from(rows::rows(what, &answer)),
    };
    Ok(format!("{value:#}\n"))
}

fn fetch(what: What, server: &Server) -> Result<Value, Unanswered> {
    let (name, answer) = match (server, what) {
        (Server::Admin(_), What::Connections) => return Err(Unanswered::NeedsSocket),
        (Server::Admin(address), _) => (
            format!("http://{address}/api/snapshot"),
            ask::http(*address, "/api/snapshot"),
        ),
        (Server::Socket(path), What::Connections) => (
            path.display().to_string(),
            ask::socket(path, "show sess json"),
        ),
        (Server::Socket(path), _) => (
            path.display().to_string(),
            ask::socket(path, "show snapshot"),
        ),
    };
    let parsed = answer.and_then(|bytes| {
        serde_json::from_slice(&bytes).map_err(|error| {
            if error.is_eof() && !bytes.is_empty() {
                io::ErrorKind::UnexpectedEof.into()
            } else {
                io::Error::other("the answer is no JSON: is a ballast of this version there?")
            }
        })
    });
    let parsed = parsed.and_then(|answer| if rows::is_of_ballast(what, &answer) {
        Ok(answer)
    } else {
        Err(io::Error::other(
            "the answer is no ballast's: another program answers there, or one of another version",
        ))
    });
    parsed.map_err(|error| {
        let why = match server {
            Server::Admin(_) => ask::explain(&error),
            Server::Socket(path) => ask::explain_socket(path, &error),
        };
        Unanswered::At(name, why)
    })
}

/// What became of the commands of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Each was executed.
    Done,
    /// An answer was an error.
    Failed,
}

/// The command that answers in JSON what `line` asks for.
pub fn json_form(line: &str) -> Result<String, Unanswered> {
    console::json_form(line).ok_or_else(|| Unanswered::NoJson(line.trim().to_owned()))
}

/// The lines of `input` that say something. Of one that is longer than a runtime socket takes, the rest is left out.
pub fn lines(mut input: impl BufRead) -> impl Iterator<Item = Result<String, Unanswered>> {
    let mut next = move || {
        let mut line = Vec::new();
        let most = console::LONGEST_LINE + 1;
        (&mut input).take(most).read_until(b'\n', &mut line)?;
        if line.len() as u64 == most && !line.ends_with(b"\n") {
            input.skip_until(b'\n')?;
        }
        let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line));
        Ok((!line.is_empty()).then(|| text.into_owned()))
    };
    let all = std::iter::from_fn(move || next().map_err(Unanswered::Unread).transpose());
    all.filter(|line| line.as_ref().map_or(true, |line| !line.trim().is_empty()))
}

/// Sends `line` to the runtime socket at `path`, and passes the answers on as they come. Where the reader of `out` goes, the rest is
/// read and not passed on: how the commands ended stands at the end.
pub fn pass(path: &Path, line: &str, out: &mut impl Write) -> Result<Outcome, Unanswered> {
    let at = |error: io::Error| {
        Unanswered::At(
            path.display().to_string(),
            ask::explain_socket(path, &error),
        )
    };
    let line = format!("report;{line}");
    if line.len() as u64 >= console::LONGEST_LINE {
        // The socket would say so, too, and perhaps before all of it is sent.
        let written = out.write_all(format!("{}\n\n", console::TOO_LONG).as_bytes());
        written.map_err(Unanswered::Unwritten)?;
        return Ok(Outcome::Failed);
    }
    let mut stream = ask::call(path, &line).map_err(at)?;
    let mut bytes = vec![0; 64 * 1024];
    // The end of what has come, in which the report may be.
    let mut held = Vec::new();
    let mut out = Out {
        out,
        has_reader: true,
    };
    loop {
        let read = stream.read(&mut bytes).map_err(at)?;
        let Some(piece) = bytes.get(..read).filter(|piece| !piece.is_empty()) else {
            break;
        };
        held.extend_from_slice(piece);
        let ready = held.len().saturating_sub(console::FAILED.len());
        out.pass(&held[..ready])?;
        held.drain(..ready);
    }
    let ends = [
        (console::DONE, Outcome::Done),
        (console::FAILED, Outcome::Failed),
    ];
    let report = ends.iter().find_map(|(line, outcome)| {
        let rest = held.strip_suffix(line.as_bytes())?;
        Some((rest, *outcome))
    });
    let (rest, outcome) = match report {
        Some((rest, outcome)) => (rest, Ok(outcome)),
        None => (&*held, Err(at(io::ErrorKind::UnexpectedEof.into()))),
    };
    out.pass(rest)?;
    outcome
}

/// Where answers go.
struct Out<'w, W> {
    out: &'w mut W,
    /// One that has closed its end has read enough.
    has_reader: bool,
}

impl<W: Write> Out<'_, W> {
    fn pass(&mut self, bytes: &[u8]) -> Result<(), Unanswered> {
        if !self.has_reader {
            return Ok(());
        }
        match self.out.write_all(bytes).and_then(|()| self.out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.has_reader = false,
            written => written.map_err(Unanswered::Unwritten)?,
        }
        Ok(())
    }
}

fn patient(stream: UnixStream) -> io::Result<UnixStream> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Between two pieces of an answer.
const PATIENCE: Duration = Duration::from_secs(30);
