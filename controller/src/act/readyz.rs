//! Asks the data plane whether clients should be sent to it. Called by [`super::report`].

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::pulse::Heard;

/// What `/readyz` says there.
pub(super) async fn ask(dataplane: SocketAddr) -> Heard {
    let asked = timeout(PATIENCE, status(dataplane)).await;
    match asked.ok().flatten() {
        Some(200) => Heard::Ready,
        Some(_) => Heard::Leaving,
        None => Heard::Nothing,
    }
}

async fn status(dataplane: SocketAddr) -> Option<u16> {
    let mut stream = TcpStream::connect(dataplane).await.ok()?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {dataplane}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    // All of it, so that the other side is not reset; it is short.
    let mut answer = Vec::new();
    stream.take(LARGEST).read_to_end(&mut answer).await.ok()?;
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let word = line.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(word).ok()?.parse().ok()
}

const PATIENCE: Duration = Duration::from_millis(500);
const LARGEST: u64 = 64 << 10;
