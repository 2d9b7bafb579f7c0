//! One client that floods the proxy, while the load client asks as others do. It is a process of its own, at a lower priority
//! and with short turns: it shares a core with the others, and is to take from them what the proxy spends on it, not their
//! processor. A connection that the proxy ends is followed by the next one at once.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{self, RecvFlags};

use crate::{http, http2};

/// The bytes that a flooding client or endpoint sends without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flood {
    /// To compare with.
    Nothing,
    /// Frames of HTTP/2 of an unknown type, of 16 KiB each.
    Frames,
    /// A response in chunks of 1 KiB to a request of HTTP/1.0.
    Chunks,
}

/// Floods until it is killed.
pub(crate) fn run(flood: Flood, to: SocketAddr) -> io::Result<()> {
    let work = match flood {
        Flood::Nothing => return Ok(()),
        Flood::Frames => send_frames,
        Flood::Chunks => read_chunks,
    };
    let begin = move || {
        ballast::sys::set_time_slice(TURN)?;
        loop {
            if work(to).is_err() {
                std::thread::sleep(AFTER_END);
            }
        }
    };
    for _ in 1..flood.connections() {
        std::thread::spawn(begin);
    }
    begin()
}

impl Flood {
    /// Its word on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Frames => "frames",
            Self::Chunks => "chunks",
        }
    }

    pub(crate) fn from_word(word: &str) -> io::Result<Self> {
        let known = [Self::Nothing, Self::Frames, Self::Chunks];
        let known = known.into_iter().find(|flood| flood.word() == word);
        known.ok_or_else(|| io::Error::other(format!("no such flood: {word}")))
    }

    fn connections(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Frames => 2,
            Self::Chunks => 1,
        }
    }
}

fn send_frames(to: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    let mut out = http2::PREFACE.to_vec();
    http2::put(&mut out, http2::SETTINGS, 0, 0, &[]);
    stream.write_all(&out)?;
    // Its settings are read first: nobody acknowledges what was not said.
    stream.read_exact(&mut [0; 9])?;
    out.clear();
    http2::put(&mut out, http2::SETTINGS, http2::ACK, 0, &[]);
    stream.write_all(&out)?;
    out.clear();
    for _ in 0..FRAMES {
        http2::put(&mut out, UNKNOWN, 0, 0, &[0; 16 * 1024]);
    }
    loop {
        stream.write_all(&out)?;
    }
}

fn read_chunks(to: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.write_all(http::CHUNKS_REQUEST)?;
    let mut scratch = vec![0; 1024 * 1024];
    loop {
        let (_, length) = net::recv(&stream, &mut scratch[..], RecvFlags::TRUNC)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// A type that no extension has.
const UNKNOWN: u8 = 0xfa;
/// In one write.
const FRAMES: usize = 16;
const TURN: Duration = Duration::from_micros(100);
const PATIENCE: Duration = Duration::from_secs(5);
const AFTER_END: Duration = Duration::from_millis(1);
