//! The load client: one thread, one kind of load, one answer. The bench starts it in the client's namespace; it waits until
//! the proxy serves, warms up, then measures for one window and prints one line of JSON. It reads the CPU time of the proxy and of all
//! others that take part itself, at both ends of its window, so that units and costs are of the same moments.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::client::ClientConnection;
use serde_json::{Value, json};

use crate::hist::{Histogram, nanos};
use crate::load::{Kind, Load};
use crate::protocol::Protocol;
use crate::{bulk, connects, http, http2, multiplexed, origin, requests, tls, udp, usage};

/// Applies `load` and prints what it saw.
pub(crate) fn run(load: &Load) -> io::Result<()> {
    if load.kind.is_datagrams() {
        println!("{}", udp::run(load)?);
        return Ok(());
    }
    Dialer::new(load.to, load.protocol)?.wait_until_served()?;
    let outcome = match load.kind {
        Kind::Requests | Kind::Download if load.protocol.is_http2() => multiplexed::run(load),
        Kind::Requests => requests::run(load),
        Kind::Connections => connects::run(load),
        Kind::Upload | Kind::Download => bulk::run(load),
        _ => hold_idle(load),
    }?;
    println!("{outcome}");
    Ok(())
}

/// Counts units within the window, and what they cost.
pub(crate) struct Meter<'a> {
    load: &'a Load,
    pids: Vec<u32>,
    kernel: Vec<u32>,
    warm_at: Instant,
    begun: Option<Snapshot>,
    units: u64,
    errors: u64,
    latencies: Histogram,
}

struct Snapshot {
    at: Instant,
    proxy_ns: u64,
    origin_ns: u64,
    client_ns: u64,
    kernel_ns: u64,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(load: &'a Load) -> Self {
        Self {
            load,
            pids: load.proxy.map(usage::family).unwrap_or_default(),
            kernel: usage::soft_interrupt_threads(&load.cores),
            warm_at: Instant::now() + load.warmup,
            begun: None,
            units: 0,
            errors: 0,
            latencies: Histogram::new(),
        }
    }

    /// Called once a turn: begins the window when it is time, and says when it is over.
    #[inline]
    pub(crate) fn is_over(&mut self) -> bool {
        let now = Instant::now();
        match &self.begun {
            Some(begin) => now >= begin.at + self.load.window,
            None if now >= self.warm_at => {
                self.begun = Some(self.snapshot());
                false
            }
            None => false,
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    #[inline]
    pub(crate) fn count(&mut self, units: usize) {
        if self.begun.is_some() {
            self.units += units as u64;
        }
    }

    #[inline]
    pub(crate) fn count_latency(&mut self, latency: Duration) {
        if self.begun.is_some() {
            self.units += 1;
            self.latencies.record(latency);
        }
    }

    /// A connection that broke, or could not be made; also before the window.
    pub(crate) fn count_error(&mut self) {
        self.errors += 1;
    }

    pub(crate) fn finish(&self) -> Value {
        let end = self.snapshot();
        let begin = self.begun.as_ref().unwrap_or(&end);
        let elapsed = nanos(end.at - begin.at);
        let proxy_ns = end.proxy_ns.saturating_sub(begin.proxy_ns);
        json!({
            "seconds": elapsed as f64 / 1e9,
            "units": self.units,
            "errors": self.errors,
            "proxy_ns": proxy_ns,
            "machine_ns": proxy_ns
                + end.origin_ns.saturating_sub(begin.origin_ns)
                + end.client_ns.saturating_sub(begin.client_ns)
                + end.kernel_ns.saturating_sub(begin.kernel_ns),
            "p50_us": self.latencies.quantile_us(0.5),
            "p99_us": self.latencies.quantile_us(0.99),
            "p999_us": self.latencies.quantile_us(0.999),
        })
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            at: Instant::now(),
            proxy_ns: usage::cpu_ns(&self.pids),
            origin_ns: usage::cpu_ns(&[self.load.origin]),
            client_ns: usage::cpu_ns(&[std::process::id()]),
            kernel_ns: usage::cpu_ns(&self.kernel),
        }
    }
}

/// A connection that stands, for the loads that open theirs before they begin.
pub(crate) fn connect(to: SocketAddr) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream.into())
}

/// Opens connections of one protocol to one address, and knows what is said first on them.
pub(crate) struct Dialer {
    to: SocketAddr,
    protocol: Protocol,
    tls: Option<Arc<ClientConfig>>,
}

impl Dialer {
    pub(crate) fn new(to: SocketAddr, protocol: Protocol) -> io::Result<Self> {
        let tls = tls::config(protocol)?;
        Ok(Self { to, protocol, tls })
    }

    /// A session for a new connection, if TLS is spoken.
    pub(crate) fn session(&self) -> io::Result<Option<ClientConnection>> {
        self.tls.as_ref().map(tls::session).transpose()
    }

    pub(crate) fn wait_until_served(&self) -> io::Result<()> {
        let give_up = Instant::now() + START_PATIENCE;
        loop {
            match self.ask_once() {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > give_up => {
                    let to = self.to;
                    return Err(io::Error::other(format!(
                        "nothing answers at {to}: {error}"
                    )));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// A connection whose bytes are read and forgotten.
    pub(crate) fn open_sink(&self) -> io::Result<OwnedFd> {
        let mut stream = self.connect()?;
        stream.write_all(&[origin::SINK])?;
        stream.set_nonblocking(true)?;
        Ok(stream.into())
    }

    /// A connection that brings bytes without end.
    pub(crate) fn open_source(&self) -> io::Result<OwnedFd> {
        let mut stream = self.connect()?;
        let question: &[u8] = match self.protocol {
            Protocol::Tcp => &[origin::SOURCE],
            _ => http::ENDLESS_REQUEST,
        };
        match self.session()? {
            Some(mut session) => {
                rustls::Stream::new(&mut session, &mut stream).write_all(question)?;
            }
            None => stream.write_all(question)?,
        }
        stream.set_nonblocking(true)?;
        Ok(stream.into())
    }

    /// Connects, sends one request and awaits its answer.
    fn ask_once(&self) -> io::Result<TcpStream> {
        let mut stream = self.connect()?;
        match (self.protocol, self.session()?) {
            (protocol, Some(mut session)) => {
                let mut stream = rustls::Stream::new(&mut session, &mut stream);
                match protocol.is_http2() {
                    true => http2::ask(&mut stream)?,
                    false => http::ask(&mut stream)?,
                }
            }
            (Protocol::Http2 | Protocol::Grpc, None) => http2::ask(&mut stream)?,
            (Protocol::Tcp, None) => {
                let mut bytes = [origin::ECHO; 64];
                stream.write_all(&bytes)?;
                stream.read_exact(&mut bytes)?;
            }
            (_, None) => http::ask(&mut stream)?,
        }
        Ok(stream)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.to, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Opens idle connections, each after one request, and weighs the proxy before and after.
fn hold_idle(load: &Load) -> io::Result<Value> {
    let dialer = Dialer::new(load.to, load.protocol)?;
    let warmed: io::Result<Vec<TcpStream>> = (0..WARM_PAIRS).map(|_| dialer.ask_once()).collect();
    drop(warmed?);
    std::thread::sleep(load.warmup);
    let pids = load.proxy.map(usage::family).unwrap_or_default();
    let before = usage::private_bytes(&pids);
    let held: io::Result<Vec<TcpStream>> =
        (0..load.connections).map(|_| dialer.ask_once()).collect();
    let held = held?;
    std::thread::sleep(load.window);
    let after = usage::private_bytes(&pids);
    Ok(json!({"units": held.len(), "private_before": before, "private_after": after}))
}

const PATIENCE: Duration = Duration::from_secs(5);
/// A large table on a busy machine takes its time.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// Connections that come and go before memory is weighed, so that code and tables are there already.
const WARM_PAIRS: usize = 20;
