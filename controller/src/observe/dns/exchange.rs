//! Asks name servers, one after the other. Used by `dns`.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::NotFound;
use super::config::Config;
use super::message::{Answer, Family, question, read};

/// The first answer that says something: records, or that there are none.
pub(super) async fn ask(config: &Config, name: &str, family: Family) -> Result<Answer, NotFound> {
    let mut why = "there is none".to_owned();
    for _ in 0..config.attempts {
        for server in &config.servers {
            let id = RandomState::new().hash_one(name).to_le_bytes();
            let id = u16::from_le_bytes([id[0], id[1]]);
            let question = question(id, name, family).ok_or(NotFound::NotAName)?;
            why = match timeout(config.timeout, ask_one(*server, &question)).await {
                Ok(Ok(Answer::Refused(code))) => format!("{server} answered with code {code}"),
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => format!("{server}: {error}"),
                Err(_) => format!("{server} did not answer in time"),
            };
        }
    }
    Err(NotFound::Unanswered(why))
}

async fn ask_one(server: SocketAddr, question: &[u8]) -> io::Result<Answer> {
    let answer = over_udp(server, question).await?;
    match answer {
        Answer::Truncated => over_tcp(server, question).await,
        answer => Ok(answer),
    }
}

async fn over_udp(server: SocketAddr, question: &[u8]) -> io::Result<Answer> {
    let any = match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    // From here on, only what comes from this server is received.
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = [0; MOST_OVER_UDP];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let received = buffer.get(..length).unwrap_or_default();
        // Anybody may have sent what is not an answer to this question: go on listening.
        if let Some(answer) = read(received, question) {
            return Ok(answer);
        }
    }
}

async fn over_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    let framed = [&length.to_be_bytes(), question].concat();
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut received = vec![0; length.into()];
    stream.read_exact(&mut received).await?;
    match read(&received, question) {
        Some(Answer::Truncated) | None => Err(io::ErrorKind::InvalidData.into()),
        Some(answer) => Ok(answer),
    }
}

/// Nobody sends more to whom does not ask for it.
const MOST_OVER_UDP: usize = 4096;
