//! Pods: servers that say who they are, on a machine of their own, and the EndpointSlices that list them.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::corner::Corner;
use crate::plane::Host;

/// A machine with pods on it, each with an address of its own.
pub(crate) struct Backends {
    pub(crate) host: Host,
    pub(crate) addresses: Vec<Ipv4Addr>,
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
        let ended = Arc::new(AtomicBool::new(false));
        for address in &addresses {
            host.network
                .ip(&format!("address add {address}/16 dev eth0"));
            let ended = Arc::clone(&ended);
            host.network.within(|| {
                let listener = TcpListener::bind((*address, 8080)).expect("a listener");
                thread::spawn(move || serve(&listener, &ended));
            });
        }
        Self {
            host,
            addresses,
            ended,
        }
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
        for address in &self.addresses {
            self.host
                .network
                .within(|| std::net::TcpStream::connect((*address, 8080)).ok());
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
