//! `ballast show` and `ballast ctl`: the other end of the admin address and of the runtime socket.
//!
//! Called by `main`. Plain blocking sockets: there is one question and one answer.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

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
    /// The connections and flows, 1000 at most: only the runtime socket tells them, so it needs --socket
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
    /// Only a runtime socket lists connections.
    #[error(
        "connections are told by the runtime socket only, and not by the admin address: start `ballast run` with --socket PATH, and say the same here"
    )]
    NeedsSocket,
}

/// The answer for people: aligned, and coloured if `paint` wants it.
pub fn for_people(what: What, server: &Server, paint: Paint) -> Result<String, Unanswered> {
    let answer = fetch(what, server)?;
    Ok(match what {
        What::Info => rows::pairs(&rows::info(&answer), paint),
        what => rows::table(rows::columns(what), &rows::rows(what, &answer), paint),
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
        serde_json::from_slice(&bytes).map_err(|error| match error.is_eof() && !bytes.is_empty() {
            true => io::ErrorKind::UnexpectedEof.into(),
            false => io::Error::other("the answer is no JSON: is a ballast of this version there?"),
        })
    });
    parsed.map_err(|error| Unanswered::At(name, ask::explain(&error)))
}

/// Sends `line` to the runtime socket at `path`, and passes the answer on as it comes.
pub fn pass(path: &Path, line: &str, out: &mut impl Write) -> Result<(), Unanswered> {
    let at = |error: io::Error| Unanswered::At(path.display().to_string(), ask::explain(&error));
    let mut stream = ask::call(path, line).map_err(at)?;
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = stream.read(&mut bytes).map_err(at)?;
        let Some(piece) = bytes.get(..read).filter(|piece| !piece.is_empty()) else {
            return Ok(());
        };
        // A reader that has closed its end has read enough.
        if out.write_all(piece).and_then(|()| out.flush()).is_err() {
            return Ok(());
        }
    }
}

fn patient(stream: UnixStream) -> io::Result<UnixStream> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Between two pieces of an answer.
const PATIENCE: Duration = Duration::from_secs(30);
