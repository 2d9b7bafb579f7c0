//! Asks the data plane whether clients should be sent to it, over one connection as long as it holds. Called by
//! [`super::report`].

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::pulse::Heard;

/// A client of `/readyz`, with the connection that is kept from the last request.
#[derive(Debug)]
pub(super) struct Asker {
    dataplane: SocketAddr,
    kept: Option<TcpStream>,
}

/// What was answered.
struct Answer {
    status: u16,
    /// Whether the connection may be used again.
    is_kept: bool,
}

impl Asker {
    pub(super) fn new(dataplane: SocketAddr) -> Self {
        Self {
            dataplane,
            kept: None,
        }
    }

    /// What `/readyz` says there.
    pub(super) async fn ask(&mut self) -> Heard {
        match timeout(PATIENCE, self.status()).await.ok().flatten() {
            Some(200) => Heard::Ready,
            Some(_) => Heard::Leaving,
            None => Heard::Nothing,
        }
    }

    async fn status(&mut self) -> Option<u16> {
        if let Some(kept) = self.kept.take()
            && let Some(status) = self.over(kept).await
        {
            return Some(status);
        }
        // The other side may have closed the old one, or be another process.
        let fresh = TcpStream::connect(self.dataplane).await.ok()?;
        self.over(fresh).await
    }

    async fn over(&mut self, mut stream: TcpStream) -> Option<u16> {
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {}\r\n\r\n", self.dataplane);
        stream.write_all(request.as_bytes()).await.ok()?;
        let answer = read(&mut stream).await?;
        if answer.is_kept {
            self.kept = Some(stream);
        }
        Some(answer.status)
    }
}

/// One whole answer, or none.
async fn read(stream: &mut TcpStream) -> Option<Answer> {
    let mut bytes = Vec::with_capacity(512);
    loop {
        if let Some(answer) = parse(&bytes)? {
            return Some(answer);
        }
        let is_over = stream.read_buf(&mut bytes).await.ok()? == 0;
        if is_over || bytes.len() > LARGEST {
            return None;
        }
    }
}

/// The outer `None`: it is none that is understood here; the inner one: there is more to come.
#[expect(clippy::option_option, reason = "wrong, half there, or there")]
fn parse(bytes: &[u8]) -> Option<Option<Answer>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Some(None);
    };
    let head = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let (first, lines) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = first.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let value = |name: &str| {
        let mut pairs = lines.lines().filter_map(|line| line.split_once(':'));
        pairs.find_map(|(found, value)| found.eq_ignore_ascii_case(name).then(|| value.trim()))
    };
    let closes = value("connection").is_some_and(|word| word.eq_ignore_ascii_case("close"));
    let length = value("content-length").map(str::parse::<usize>);
    let Some(length) = length else {
        // Whatever comes, this connection is not used again.
        return Some(Some(Answer {
            status,
            is_kept: false,
        }));
    };
    let whole = end + 4 + length.ok()?.min(LARGEST);
    Some((bytes.len() >= whole).then_some(Answer {
        status,
        is_kept: !closes && bytes.len() == whole,
    }))
}

const PATIENCE: Duration = Duration::from_millis(500);
const LARGEST: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn an_answer_is_understood_whole_and_not_before() {
        let kept = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nready\n";
        for end in 0..kept.len() {
            assert!(parse(&kept[..end]).unwrap().is_none(), "{end} bytes");
        }
        let is = |status, is_kept| Some((status, is_kept));
        for (text, expected) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nready\n",
                is(200, true),
            ),
            (
                "HTTP/1.1 503 No\r\ncontent-length: 0\r\nConnection: close\r\n\r\n",
                is(503, false),
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", is(200, false)),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore",
                is(200, false),
            ),
            ("SSH-2.0-x\r\n\r\n", None),
        ] {
            let answer = parse(text.as_bytes()).flatten();
            let found = answer.map(|answer| (answer.status, answer.is_kept));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[tokio::test]
    async fn one_connection_is_enough_and_another_one_is_made_when_it_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut asker = Asker::new(listener.local_addr().unwrap());
        let serve = async {
            let mut counts = Vec::new();
            // The second one is another process: it says goodbye.
            for (answers, status) in [(3, "200 OK"), (2, "503 No")] {
                let (mut stream, _) = listener.accept().await.unwrap();
                for _ in 0..answers {
                    let mut asked = [0; 1024];
                    let read = stream.read(&mut asked).await.unwrap();
                    assert!(asked[..read].ends_with(b"\r\n\r\n"));
                    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 1\r\n\r\n\n");
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
                counts.push(answers);
            }
            counts
        };
        let ask = async {
            let mut heard = Vec::new();
            for _ in 0..5 {
                heard.push(asker.ask().await);
            }
            heard
        };
        let (counts, heard) = tokio::join!(serve, ask);
        assert_eq!(counts, [3, 2]);
        assert_eq!(heard[..3], [Heard::Ready; 3]);
        assert_eq!(heard[3..], [Heard::Leaving; 2]);
        drop(listener);
        assert_eq!(asker.ask().await, Heard::Nothing);
    }
}
