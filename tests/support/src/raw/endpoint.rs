//! An endpoint of the test's own, and what it heard.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::frames::field;
use super::{Fields, Raw};

#[derive(Clone)]
pub struct Endpoint {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    connections: Arc<AtomicUsize>,
}

/// The head of a request.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The number of its connection, from 0.
    pub connection: usize,
    pub stream: u32,
    pub fields: Fields,
    /// Whether that is all of it.
    pub ends: bool,
}

impl Heard {
    pub fn path(&self) -> &str {
        field(&self.fields, ":path").unwrap_or_default()
    }

    pub fn method(&self) -> &str {
        field(&self.fields, ":method").unwrap_or_default()
    }
}

impl Endpoint {
    /// Announces these settings and does this with each connection, whose number is the last argument.
    pub fn scripted(
        settings: &'static [(u16, u32)],
        script: impl Fn(&mut Raw, &Self, usize) + Clone + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let endpoint = Self {
            address: listener.local_addr().expect("an address"),
            heard: Arc::default(),
            connections: Arc::default(),
        };
        let serving = endpoint.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let connection = serving.connections.fetch_add(1, Ordering::SeqCst);
                let (script, serving) = (script.clone(), serving.clone());
                client.set_nodelay(true).expect("an option");
                thread::spawn(move || {
                    if let Some(mut raw) = Raw::endpoint_over(client, settings) {
                        script(&mut raw, &serving, connection);
                    }
                });
            }
        });
        endpoint
    }

    /// Waits for the next request and takes note of it. `None`: the connection has ended.
    pub fn hear(&self, raw: &mut Raw, connection: usize) -> Option<Heard> {
        let (stream, fields, ends) = raw.request()?;
        let heard = Heard {
            connection,
            stream,
            fields,
            ends,
        };
        self.list().push(heard.clone());
        Some(heard)
    }

    /// All requests so far.
    pub fn heard(&self) -> Vec<Heard> {
        self.list().clone()
    }

    /// How many requests for this path there were.
    pub fn count(&self, path: &str) -> usize {
        let heard = self.list();
        heard.iter().filter(|heard| heard.path() == path).count()
    }

    /// How many connections it has accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn list(&self) -> MutexGuard<'_, Vec<Heard>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
