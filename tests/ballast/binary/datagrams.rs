//! How UDP flows see the end of `ballast run`.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::peers::fresh_address;
use crate::process::{Process, Signal, folder};

#[test]
fn at_sigterm_flows_are_served_until_nothing_passes_for_two_seconds_and_nobody_new_is() {
    let frontend = fresh_address();
    let folder = folder(&format!(
        "version: 1\nfrontends:\n  - {{name: f, bind: [\"{frontend}\"], protocol: udp, service: s, timeouts: {{idle: 1h}}}}\nservices:\n  - {{name: s, endpoints: [{{address: \"{}\"}}]}}\n",
        echo()
    ));
    let mut process = Process::run(folder.path(), &["--drain-timeout", "10m"]);
    process.until_answers("/readyz", 200);
    let old = client(frontend);
    assert!(is_answered(&old));
    let begun = Instant::now();
    process.signal(Signal::TERM);
    process.until_answers("/readyz", 503);
    process.until("nobody new is served", || {
        let late = client(frontend);
        let wait = Some(Duration::from_millis(300));
        late.set_read_timeout(wait).unwrap();
        !is_answered(&late)
    });
    // Each question puts the end off.
    assert!(is_answered(&old));
    assert_eq!(process.ends(), Some(0));
    process.until_said("ended cut=0");
    assert!(begun.elapsed() >= Duration::from_secs(2));
}

fn echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok((length, peer)) = socket.recv_from(&mut bytes) {
            socket.send_to(&bytes[..length], peer).ok();
        }
    });
    address
}

fn client(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    socket
}

fn is_answered(client: &UdpSocket) -> bool {
    client.send(b"?").is_ok() && client.recv(&mut [0; 8]).is_ok()
}
