//! The endpoints: they live on, but for the one that dies and returns.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Where the endpoints are.
pub(crate) struct Endpoints {
    addresses: [SocketAddr; 6],
}

impl Endpoints {
    /// Starts them, in a thread.
    pub(crate) fn start() -> io::Result<Self> {
        let ports = [18_001, 18_002, 18_003, 18_004, 18_005, 18_006];
        let addresses = ports.map(|port| SocketAddr::from((PLACE, port)));
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let [tcp, udp, web, second, third, dying] = addresses;
        let bound = runtime.block_on(async {
            let mut listening = Vec::new();
            for address in [tcp, web, second, third] {
                listening.push(TcpListener::bind(address).await?);
            }
            io::Result::Ok((listening, UdpSocket::bind(udp).await?))
        })?;
        thread::spawn(move || {
            runtime.block_on(async {
                let (listening, udp) = bound;
                let mut all = JoinSet::new();
                for (index, listener) in listening.into_iter().enumerate() {
                    all.spawn(serve(listener, index == 0));
                }
                all.spawn(echo_datagrams(udp));
                all.spawn(die_and_return(dying));
                while all.join_next().await.is_some() {}
            });
        });
        Ok(Self { addresses })
    }

    /// Of TCP, UDP, three of HTTP, and the one that dies.
    pub(crate) fn addresses(&self) -> [SocketAddr; 6] {
        self.addresses
    }
}

async fn serve(listener: TcpListener, echoes: bool) {
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                clients.spawn(async move {
                    // A client that goes is no concern of its endpoint.
                    if echoes {
                        echo(client).await.ok();
                    } else {
                        answer(client).await.ok();
                    }
                });
            }
            Some(_) = clients.join_next() => {}
        }
    }
}

async fn echo(mut client: TcpStream) -> io::Result<()> {
    let mut bytes = [0; 4_096];
    loop {
        let length = client.read(&mut bytes).await?;
        if length == 0 {
            return Ok(());
        }
        client.write_all(&bytes[..length]).await?;
    }
}

/// Answers requests without bodies.
async fn answer(mut client: TcpStream) -> io::Result<()> {
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n".to_vec();
    answer.resize(answer.len() + 1_024, b'x');
    let (mut head, mut bytes) = (Vec::new(), [0; 4_096]);
    loop {
        let length = client.read(&mut bytes).await?;
        if length == 0 {
            return Ok(());
        }
        head.extend_from_slice(&bytes[..length]);
        while let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            head.drain(..end + 4);
            client.write_all(&answer).await?;
        }
    }
}

async fn echo_datagrams(socket: UdpSocket) {
    let mut bytes = [0; 2_048];
    loop {
        if let Ok((length, from)) = socket.recv_from(&mut bytes).await {
            socket.send_to(&bytes[..length], from).await.ok();
        }
    }
}

/// Lives for four seconds, is gone for two, and so on: whoever is connected is cut.
async fn die_and_return(address: SocketAddr) {
    loop {
        if let Ok(listener) = TcpListener::bind(address).await {
            timeout(Duration::from_secs(4), serve(listener, false))
                .await
                .ok();
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

const PLACE: Ipv4Addr = Ipv4Addr::new(127, 90, 0, 2);
