//! Pods: servers that say who they are, on a machine of their own, and the EndpointSlices that list them.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::corner::Corner;
use crate::plane::Host;

/// A machine with pods on it, each with an address of its own.
pub(crate) struct Backends {
    pub(crate) host: Host,
    pub(crate) addresses: Vec<Ipv4Addr>,
    listening: Mutex<Vec<SocketAddr>>,
    ended: Arc<AtomicBool>,
}

impl Backends {
    /// So many. Each answers on port 8080 whatever it hears with its address and who it hears it from.
    pub(crate) fn start(corner: &Corner<'_>, count: u8) -> Self {
        let host = corner.yard.host();
        let [.., third, fourth] = host.address.octets();
        let addresses: Vec<_> = (0..count)
            // Its own part of 10.88.128.0/17: the number of the machine, then that of the pod.
            .map(|pod| {
                let number = u16::from_be_bytes([third, fourth]) - 256;
                let [high, low] = (number * 32 + u16::from(pod)).to_be_bytes();
                Ipv4Addr::new(10, 88, 128 | high, low)
            })
            .collect();
        let pods = Self {
            host,
            addresses,
            listening: Mutex::default(),
            ended: Arc::default(),
        };
        for address in &pods.addresses {
            pods.host
                .network
                .ip(&format!("address add {address}/16 dev eth0"));
            pods.answer_at((*address, 8080).into());
        }
        pods
    }

    /// Answers there, too.
    pub(crate) fn answer_at(&self, address: SocketAddr) {
        let ended = Arc::clone(&self.ended);
        self.host.network.within(|| {
            let listener = TcpListener::bind(address).expect("a listener");
            thread::spawn(move || serve(&listener, &ended));
        });
        self.listening.lock().expect("a lock").push(address);
    }

    /// Answers datagrams there: each with who it is and whom it hears.
    pub(crate) fn echo_at(&self, address: SocketAddr) {
        let ended = Arc::clone(&self.ended);
        self.host.network.within(|| {
            let socket = UdpSocket::bind(address).expect("a socket");
            let patience = Some(Duration::from_millis(200));
            socket.set_read_timeout(patience).expect("a timeout");
            thread::spawn(move || {
                let mut bytes = [0; 1024];
                while !ended.load(Ordering::Relaxed) {
                    if let Ok((_, from)) = socket.recv_from(&mut bytes) {
                        let answer = format!("{} hears {}", address.ip(), from.ip());
                        socket.send_to(answer.as_bytes(), from).ok();
                    }
                }
            });
        });
    }

    /// The slice of a Service with these of them ready.
    pub(crate) fn slice(&self, service: &str, ready: &[usize]) -> String {
        let endpoints = ready
            .iter()
            .map(|&pod| (self.addresses[pod].to_string(), true));
        slice(service, &endpoints.collect::<Vec<_>>())
    }
}

impl Drop for Backends {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // So that they look.
        let listening = self.listening.lock();
        for address in listening.iter().flat_map(|listening| listening.iter()) {
            self.host
                .network
                .within(|| TcpStream::connect(address).ok());
        }
    }
}

fn serve(listener: &TcpListener, ended: &AtomicBool) {
    let name = listener.local_addr().expect("an address").ip();
    for client in listener.incoming().flatten() {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        thread::spawn(move || {
            let mut client = client;
            let mut asked = Vec::new();
            let mut bytes = [0; 1024];
            // A PROXY header may come before the question.
            while !asked.ends_with(b"?\n") {
                match client.read(&mut bytes) {
                    Ok(read @ 1..) => asked.extend_from_slice(&bytes[..read]),
                    _ => return,
                }
            }
            if let Ok(peer) = client.peer_addr() {
                let answer = format!("{name} hears {}", peer.ip());
                client.write_all(answer.as_bytes()).ok();
            }
        });
    }
}

/// A Service of type LoadBalancer with one port of this number, to port 8080 of its pods.
pub(crate) fn service(name: &str, port: u16, extra: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  type: LoadBalancer
  ports: [{{port: {port}, targetPort: 8080}}]
{extra}"
    )
}

/// A slice of a Service whose endpoints run on nodes: an address, and the node's name.
pub(crate) fn slice_on(service: &str, endpoints: &[(String, &str)]) -> String {
    let mut text = slice(service, &[]).replace("endpoints: []", "endpoints:");
    for (address, node) in endpoints {
        writeln!(text, "- {{addresses: [{address}], nodeName: {node}}}")
            .expect("a String takes everything");
    }
    text
}

/// A slice of a Service, with these endpoints, ready or not.
pub(crate) fn slice(service: &str, endpoints: &[(String, bool)]) -> String {
    let mut list = String::new();
    for (address, ready) in endpoints {
        write!(
            list,
            "\n- {{addresses: [{address}], conditions: {{ready: {ready}}}}}"
        )
        .expect("a String takes everything");
    }
    if list.is_empty() {
        list.push_str(" []");
    }
    format!(
        "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {service}, labels: {{kubernetes.io/service-name: {service}}}}}
addressType: IPv4
ports: [{{name: '', port: 8080, protocol: TCP}}]
endpoints:{list}
"
    )
}
