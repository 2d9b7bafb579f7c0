//! One question to a ballast, and its answer as bytes.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{PATIENCE, patient};

/// What the runtime socket at `path` answers to `line`.
pub(super) fn socket(path: &Path, line: &str) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    call(path, line)?.take(LONGEST).read_to_end(&mut answer)?;
    Ok(answer)
}

/// A connection to the runtime socket at `path` on which `line` was sent, and nothing else will be.
pub(super) fn call(path: &Path, line: &str) -> io::Result<UnixStream> {
    let mut stream = patient(UnixStream::connect(path)?)?;
    stream.write_all(line.as_bytes())?;
    stream.write_all(b"\n")?;
    stream.shutdown(Shutdown::Write)?;
    Ok(stream)
}

/// The body that `path` has at this address. It is asked for by HTTP/1.0, so it ends with the connection.
pub(super) fn http(address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, DIAL)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n"
    )?;
    body(BufReader::new(stream.take(LONGEST)))
}

/// The body of an answer, which must be a success.
fn body(mut answer: impl BufRead) -> io::Result<Vec<u8>> {
    let status = line(&mut answer)?;
    let code = status.split(' ').nth(1).unwrap_or_default();
    match code {
        "200" => {}
        "401" => {
            return Err(io::Error::other(
                "it asks for a user and a secret; ask its runtime socket, with --socket PATH",
            ));
        }
        "403" => {
            return Err(io::Error::other(
                "the table's stats.source-ranges do not let this address look; ask its runtime socket, with --socket PATH",
            ));
        }
        "" => return Err(io::Error::other("the answer is no HTTP")),
        code => {
            return Err(io::Error::other(format!(
                "it answers {code}: is a ballast of this version there?"
            )));
        }
    }
    while !line(&mut answer)?.is_empty() {}
    let mut body = Vec::new();
    answer.read_to_end(&mut body)?;
    Ok(body)
}

fn line(answer: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    answer.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    Ok(String::from_utf8_lossy(line.trim_ascii_end()).into_owned())
}

/// Why there is no answer at a socket.
pub(super) fn explain_socket(path: &Path, error: &io::Error) -> String {
    let is_socket = || fs::metadata(path).is_ok_and(|file| file.file_type().is_socket());
    match error.kind() {
        io::ErrorKind::ConnectionRefused if !is_socket() => {
            "is no socket; name the one that `ballast run --socket` has".into()
        }
        io::ErrorKind::ConnectionRefused => {
            "nobody answers: the process has ended; start `ballast run`, or name the --socket of one that runs".into()
        }
        io::ErrorKind::InvalidInput => {
            "the path is longer than the 107 bytes that a socket's may have; name a shorter one".into()
        }
        io::ErrorKind::PermissionDenied => {
            format!("{error}; run this as the user of the process, or have it started with --socket-group")
        }
        _ => explain(error),
    }
}

/// Why there is no answer.
pub(super) fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "nobody answers; start `ballast run`, or name its --admin address or its --socket"
                .into()
        }
        io::ErrorKind::NotFound => {
            "nobody answers: there is no such file; name the one that `ballast run --socket` has"
                .into()
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".into(),
        io::ErrorKind::UnexpectedEof => "the answer ends too early".into(),
        _ => error.to_string(),
    }
}

const DIAL: Duration = Duration::from_secs(5);
/// Many times what the largest tables make.
const LONGEST: u64 = 1 << 30;
const LONGEST_LINE: u64 = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(answer: &str) -> Result<String, String> {
        body(answer.as_bytes())
            .map(|body| String::from_utf8(body).unwrap())
            .map_err(|error| explain(&error))
    }

    #[test]
    fn a_body_is_read_to_the_end_of_the_connection() {
        for answer in [
            "HTTP/1.0 200 OK\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        ] {
            assert_eq!(read(answer).as_deref(), Ok("{}"), "{answer}");
        }
    }

    #[test]
    fn what_is_no_success_is_said() {
        for (answer, words) in [
            ("", "no HTTP"),
            ("SSH-2.0", "no HTTP"),
            ("HTTP/1.1 404 Not Found\r\n\r\n", "answers 404"),
            ("HTTP/1.1 401 Unauthorized\r\n\r\n", "--socket"),
            ("HTTP/1.1 403 Forbidden\r\n\r\n", "stats.source-ranges"),
        ] {
            let said = read(answer).unwrap_err();
            assert!(said.contains(words), "{answer}: {said}");
        }
    }
}
