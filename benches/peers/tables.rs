//! The tables that Ballast gets, and the swapping of one while it is served.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::protocol::Protocol;
use crate::tls::Certificate;
use crate::{netns, proxies};

/// One frontend, one service, one endpoint.
pub(crate) fn plain(front: SocketAddr, origin: SocketAddr) -> String {
    json!({"version": 1, "frontends": [frontend("bench", front, "bench")], "services": [service("bench", origin)]})
        .to_string()
}

/// One route that strips `/svc`, or serves every call of gRPC, of a frontend that speaks this. `logs`: each request has an access line.
pub(crate) fn http(
    front: SocketAddr,
    origin: SocketAddr,
    protocol: Protocol,
    logs: bool,
    folder: &Path,
) -> String {
    let mut frontend = json!({
        "name": "bench",
        "bind": [front.to_string()],
        "protocol": "http",
        "routes": [{"path": "/svc", "rewrite": "/", "service": "bench"}],
    });
    let mut service = service("bench", origin);
    match protocol {
        Protocol::Http => {
            frontend["bind"] = json!([front.to_string(), second_front(front).to_string()]);
        }
        Protocol::Grpc => {
            frontend["routes"] = json!([{"path": "/", "service": "bench"}]);
            service["http"] = json!({"version": "h2"});
        }
        _ => {}
    }
    if protocol.is_tls() {
        let files = Certificate::in_folder(folder);
        frontend["protocol"] = json!("https");
        frontend["tls"] = json!({"certificates": [{"cert": files.certificate, "key": files.key}]});
    }
    let access = if logs { "haproxy" } else { "off" };
    json!({
        "version": 1,
        "log": {"access": access},
        "frontends": [frontend],
        "services": [service],
    })
    .to_string()
}

/// Datagrams, and on the port above those of which each is a flow with one answer.
pub(crate) fn datagrams(front: SocketAddr, origin: SocketAddr) -> String {
    let above = second_front(front);
    json!({
        "version": 1,
        "frontends": [
            {"name": "bench", "bind": [front.to_string()], "protocol": "udp", "service": "bench"},
            {"name": "flows", "bind": [above.to_string()], "protocol": "udp", "service": "bench",
                "udp": {"requests": 1, "responses": 1}},
        ],
        "services": [service("bench", origin)],
    })
    .to_string()
}

/// The same beside another service, of which one endpoint's weight differs from generation to generation.
pub(crate) fn swapped(front: SocketAddr, origin: SocketAddr, generation: u64) -> String {
    let other = json!({"name": "other", "endpoints": [
        {"address": "10.203.2.77:80", "weight": 1 + generation % 2},
        {"address": "10.203.2.78:80", "weight": 1},
    ]});
    let other_front = second_front(front);
    json!({
        "version": 1,
        "generation": generation,
        "frontends": [frontend("bench", front, "bench"), frontend("other", other_front, "other")],
        "services": [service("bench", origin), other],
    })
    .to_string()
}

/// `count` frontends with an address of their own each (all of 127.0.0.0/8 is local), and one service.
pub(crate) fn many_frontends(origin: SocketAddr, count: u32) -> String {
    let frontends = (0..count).map(|number| {
        let bind = SocketAddr::new(Ipv4Addr::from_bits(FIRST_FRONTEND + number).into(), 8000);
        frontend(&format!("front-{number}"), bind, "bench")
    });
    let frontends: Vec<Value> = frontends.collect();
    json!({"version": 1, "frontends": frontends, "services": [service("bench", origin)]})
        .to_string()
}

/// 10,000 services of 10 endpoints, the first 100 of them behind a frontend each. The first two send everybody to `origin`;
/// of the first one that endpoint is all that differs between two calls.
pub(crate) fn large(front: SocketAddr, origin: SocketAddr, generation: u32) -> String {
    let frontends = (0..LARGE_FRONTENDS).map(|number| {
        let bind = SocketAddr::new(front.ip(), front.port() + number);
        frontend(
            &format!("front-{number}"),
            bind,
            &format!("service-{number}"),
        )
    });
    let frontends: Vec<Value> = frontends.collect();
    let services: Vec<String> = (0..LARGE_SERVICES)
        .map(|number| large_service(number, origin))
        .collect();
    format!(
        r#"{{"version": 1, "generation": {generation}, "frontends": {}, "services": [{}]}}"#,
        Value::from(frontends),
        services.join(", ")
    )
}

fn large_service(number: u32, origin: SocketAddr) -> String {
    let address = |index: u32| {
        let number = number * ENDPOINTS + index;
        SocketAddr::new(Ipv4Addr::from_bits(FIRST_ENDPOINT + number).into(), 8080)
    };
    let endpoints: Vec<String> = (0..ENDPOINTS)
        .map(|index| match (number, index) {
            (0, 0) => format!(r#"{{"address": "{origin}"}}"#),
            // The other one stays where it is, whatever becomes of the first.
            (1, 0) => format!(r#"{{"address": "{}:{}"}}"#, origin.ip(), netns::ORIGIN_PORT),
            (0 | 1, _) => format!(r#"{{"address": "{}", "weight": 0}}"#, address(index)),
            _ => format!(r#"{{"address": "{}"}}"#, address(index)),
        })
        .collect();
    format!(
        r#"{{"name": "service-{number}", "endpoints": [{}]}}"#,
        endpoints.join(", ")
    )
}

/// The port above: of the second frontend, of what is to be compared, or of HTTP/2 where the first one is of HTTP/1.
pub(crate) fn second_front(front: SocketAddr) -> SocketAddr {
    SocketAddr::new(front.ip(), front.port() + 1)
}

/// Replaces the table by rename at a fixed pace, until it is stopped.
pub(crate) struct Swapper {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<u64>>,
}

impl Swapper {
    pub(crate) fn start(folder: &Path, front: SocketAddr, origin: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (folder, stopped) = (folder.to_owned(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut generation = 1;
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(EVERY);
                generation += 1;
                let next = folder.join("table.next");
                fs::write(&next, swapped(front, origin, generation))?;
                fs::rename(&next, proxies::table_file(&folder))?;
            }
            Ok(generation)
        });
        Self { stop, thread }
    }

    /// Stops, and returns how many tables were written; an error if the last one is not served within five seconds.
    pub(crate) fn stop(self, folder: &Path) -> io::Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let generation = self
            .thread
            .join()
            .map_err(|_| io::Error::other("the swapper panicked"))??;
        wait_for_ack(folder, Duration::from_secs(5), |ack| {
            ack["served"]["generation"] == generation
        })?;
        Ok(generation - 1)
    }
}

/// Waits until Ballast says what the condition asks for.
pub(crate) fn wait_for_ack(
    folder: &Path,
    patience: Duration,
    is_wanted: impl Fn(&Value) -> bool,
) -> io::Result<Value> {
    let give_up = Instant::now() + patience;
    loop {
        let text = fs::read_to_string(proxies::ack_file(folder)).unwrap_or_default();
        let ack: Value = serde_json::from_str(&text).unwrap_or_default();
        if is_wanted(&ack) {
            return Ok(ack);
        }
        if Instant::now() > give_up {
            return Err(io::Error::other(format!(
                "the ack did not come; it says: {text}"
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn frontend(name: &str, bind: SocketAddr, service: &str) -> Value {
    json!({"name": name, "bind": [bind.to_string()], "protocol": "tcp", "service": service})
}

fn service(name: &str, endpoint: SocketAddr) -> Value {
    json!({"name": name, "endpoints": [{"address": endpoint.to_string()}]})
}

const EVERY: Duration = Duration::from_millis(100);
/// 127.100.0.1
const FIRST_FRONTEND: u32 = 0x7f64_0001;
/// 10.64.0.1
const FIRST_ENDPOINT: u32 = 0x0a40_0001;
const LARGE_FRONTENDS: u16 = 100;
const LARGE_SERVICES: u32 = 10_000;
const ENDPOINTS: u32 = 10;
