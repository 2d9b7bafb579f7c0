//! Addresses that are given up in order: another host takes them first, and every new connection is taken by one or the other.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::hosts::{Host, Place, enter, pause, until};
use crate::{V4, V6, settle};

/// `ready: false` in the file of the host that has it, as the controller writes it when a node leaves.
pub(crate) fn unready(place: &mut Place) {
    let (one, other) = settle(place);
    let file = place.hosts[one].file();
    let client = place.client.holder();
    let connections = while_clients_connect(client, || {
        place.hosts[one].write(&file.replace("ready: true", "ready: false"));
        until("the other has it alone", || place.holders(V4) == [other]);
        pause(LONG);
    });
    connections.all_were_taken();
}

/// `ballast` is told to end: its /readyz says so, and it serves on for its --shutdown-delay.
pub(crate) fn told_to_end(place: &mut Place) {
    let (one, other) = settle(place);
    let readiness: Vec<Readiness> = place.hosts.iter().map(Readiness::of).collect();
    for host in &place.hosts {
        let new = "{socket: ballast.sock, ready: \"http://127.0.0.1:1936/readyz\"}";
        host.write(&host.file().replace("{socket: ballast.sock}", new));
    }
    pause(LONG);
    until("the addresses are held again", || {
        place.holders(V4).len() == 1 && place.holders(V6).len() == 1
    });
    let (one, other) = match place.holders(V4) == [one] {
        true => (one, other),
        false => (other, one),
    };
    let client = place.client.holder();
    let connections = while_clients_connect(client, || {
        readiness[one].is_ready.store(false, Ordering::Relaxed);
        until("the other has both alone", || {
            place.holders(V4) == [other] && place.holders(V6) == [other]
        });
        place.hosts[one].end_data_plane();
        pause(LONG);
    });
    connections.all_were_taken();
}

/// The answer of /readyz on a host.
struct Readiness {
    is_ready: Arc<AtomicBool>,
}

impl Readiness {
    fn of(host: &Host) -> Self {
        let is_ready = Arc::new(AtomicBool::new(true));
        let (holder, answer) = (host.holder(), Arc::clone(&is_ready));
        // It ends with the test's process.
        thread::spawn(move || {
            enter(holder);
            let listener = TcpListener::bind("127.0.0.1:1936").expect("a port");
            for mut client in listener.incoming().flatten() {
                let mut request = [0; 256];
                _ = client.read(&mut request).unwrap_or(0);
                let status = match answer.load(Ordering::Relaxed) {
                    true => "200 OK",
                    false => "503 Service Unavailable",
                };
                let answer = format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n");
                client.write_all(answer.as_bytes()).ok();
            }
        });
        Self { is_ready }
    }
}

/// The connections of a client that opens one each 10 ms.
struct Connections {
    taken: u32,
    refused: Vec<String>,
    /// Those that the move of the address ended: the next host does not know them.
    reset: u32,
}

impl Connections {
    fn all_were_taken(&self) {
        let Self {
            taken,
            refused,
            reset,
        } = self;
        println!("{taken} connections were taken; the move ended {reset} of them");
        assert!(refused.is_empty() && *taken > 50, "{refused:?}");
        assert!(*reset <= 1, "{reset}");
    }
}

fn while_clients_connect(client: u32, work: impl FnOnce()) -> Connections {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let counted = scope.spawn(|| {
            enter(client);
            let to: SocketAddr = (V4.parse::<std::net::IpAddr>().expect("an address"), 80).into();
            let (mut taken, mut refused, mut reset) = (0, Vec::new(), 0);
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                match TcpStream::connect_timeout(&to, LONG) {
                    Ok(mut stream) => {
                        taken += 1;
                        stream.set_read_timeout(Some(LONG)).expect("a socket");
                        // The host closes the connection.
                        let end = stream.read(&mut [0]).map_err(|error| error.kind());
                        reset += u32::from(end == Err(ErrorKind::ConnectionReset));
                    }
                    Err(error) => refused.push(format!("{:?}: {error}", begun.elapsed())),
                }
                pause(Duration::from_millis(10));
            }
            Connections {
                taken,
                refused,
                reset,
            }
        });
        pause(LONG);
        work();
        is_over.store(true, Ordering::Relaxed);
        counted.join().expect("no panic")
    })
}

const LONG: Duration = Duration::from_secs(1);
