//! A client of the data plane's `/readyz`. Used by [`super::lease`].

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::renew::Readiness;

/// The client, with the connection that is kept from the last request.
#[derive(Debug)]
pub(super) struct ReadyzClient {
    dataplane: SocketAddr,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

impl ReadyzClient {
    pub(super) fn new(dataplane: SocketAddr) -> Self {
        Self {
            dataplane,
            connection: None,
        }
    }

    /// Requests `/readyz`.
    pub(super) async fn check(&mut self) -> Readiness {
        match timeout(ANSWER_WITHIN, self.status()).await.ok().flatten() {
            Some(StatusCode::OK) => Readiness::Ready,
            Some(_) => Readiness::NotReady,
            None => Readiness::Unreachable,
        }
    }

    async fn status(&mut self) -> Option<StatusCode> {
        if let Some(connection) = self.connection.take()
            && let Some(status) = self.request(connection).await
        {
            return Some(status);
        }
        // The data plane may have closed the old connection, or be another process now.
        let stream = TcpStream::connect(self.dataplane).await.ok()?;
        let (connection, driver) = handshake(TokioIo::new(stream)).await.ok()?;
        // Ends with the connection, which ends with its `SendRequest`.
        tokio::spawn(driver);
        self.request(connection).await
    }

    async fn request(&mut self, mut connection: SendRequest<Empty<Bytes>>) -> Option<StatusCode> {
        connection.ready().await.ok()?;
        let request = Request::get("/readyz").header(HOST, self.dataplane.to_string());
        let request = request.body(Empty::new()).ok()?;
        let answer = connection.send_request(request).await.ok()?;
        let status = answer.status();
        // The connection can be used again once the body was read.
        let body = Limited::new(answer.into_body(), LARGEST_BODY);
        if body.collect().await.is_ok() {
            self.connection = Some(connection);
        }
        Some(status)
    }
}

const ANSWER_WITHIN: Duration = Duration::from_millis(500);
const LARGEST_BODY: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_answer_counts_whole_and_only_if_it_is_http() {
        for (answer, expected) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nready\n",
                Readiness::Ready,
            ),
            (
                "HTTP/1.1 503 No\r\ncontent-length: 0\r\nConnection: close\r\n\r\n",
                Readiness::NotReady,
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", Readiness::Ready),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore",
                Readiness::Ready,
            ),
            ("HTTP/1.1 200 OK\r\nContent-Le", Readiness::Unreachable),
            ("SSH-2.0-x\r\n\r\n", Readiness::Unreachable),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = ReadyzClient::new(listener.local_addr().unwrap());
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                let read = stream.read(&mut request).await.unwrap();
                let request = std::str::from_utf8(&request[..read]).unwrap();
                assert!(request.starts_with("GET /readyz HTTP/1.1\r\n"), "{request}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            };
            let (readiness, ()) = tokio::join!(client.check(), serve);
            assert_eq!(readiness, expected, "{answer}");
        }
    }

    #[tokio::test]
    async fn one_connection_is_enough_and_another_one_is_made_when_it_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = ReadyzClient::new(listener.local_addr().unwrap());
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
            let mut found = Vec::new();
            for _ in 0..5 {
                found.push(client.check().await);
            }
            found
        };
        let (counts, found) = tokio::join!(serve, ask);
        assert_eq!(counts, [3, 2]);
        assert_eq!(found[..3], [Readiness::Ready; 3]);
        assert_eq!(found[3..], [Readiness::NotReady; 2]);
        drop(listener);
        assert_eq!(client.check().await, Readiness::Unreachable);
    }
}
