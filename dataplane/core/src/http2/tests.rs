//! Connections with a peer whose frames are written by hand, one file for each subject.

use super::connection::Role;
use super::*;
use crate::moment::Moment;

mod ending;
mod flow;
mod frames;
mod heads;
mod memory;
mod messages;
mod oracle;
mod pair;
mod properties;
mod resets;
mod settings;
mod streams;
mod wire;

use wire::{confirmation, frames, words};

/// A connection, and what its peer has seen of it.
#[derive(Debug)]
struct Tested {
    connection: Connection,
    now: Moment,
    events: Vec<Event>,
}

/// The limits of most tests.
const CONFIG: Config = Config {
    max_streams: 4,
    window: 20_000,
    max_head: 4096,
};

impl Tested {
    /// Before the first byte of the peer.
    fn new(role: Role, config: Config) -> Self {
        let mut connection = match role {
            Role::Server => Connection::server(config),
            Role::Client => Connection::client(config),
        };
        let sent = connection.output().len();
        connection.advance(sent);
        Self {
            connection,
            now: Moment(1000),
            events: Vec::new(),
        }
    }

    /// Both sides have sent their settings; the peer has not confirmed those of this one.
    fn begun(role: Role, config: Config) -> Self {
        let mut tested = Self::new(role, config);
        if role == Role::Server {
            tested.gets(PREFACE);
        }
        tested.gets(wire::settings(&[]));
        assert_eq!(tested.says(), "confirmed");
        tested
    }

    fn of(role: Role) -> Self {
        let mut tested = Self::begun(role, CONFIG);
        tested.gets(confirmation());
        tested
    }

    fn server() -> Self {
        Self::of(Role::Server)
    }

    /// A client with as many requests under way: streams 1, 3, 5 and so on.
    fn client(requests: usize) -> (Self, Vec<Key>) {
        let mut tested = Self::of(Role::Client);
        let mut keys = Vec::new();
        for _ in 0..requests {
            keys.push(tested.asks(true));
        }
        tested.says();
        (tested, keys)
    }

    /// Sends a request.
    fn asks(&mut self, ends: bool) -> Key {
        let block = wire::block(&wire::GET);
        let key = self.connection.request_stream(&block, ends, false);
        key.unwrap()
    }

    /// The peer sends this, and the connection goes on.
    fn gets(&mut self, bytes: impl AsRef<[u8]>) {
        self.tries(bytes).unwrap();
    }

    /// The peer sends this.
    fn tries(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), ErrorCode> {
        let Self {
            connection,
            now,
            events,
        } = self;
        connection.receive(bytes.as_ref(), *now, events)
    }

    /// The frames that the connection has written since it was asked last.
    fn says(&mut self) -> String {
        let said: Vec<_> = self.sends().iter().map(words).collect();
        said.join(", ")
    }

    fn sends(&mut self) -> Vec<wire::Frame> {
        let bytes = self.connection.output().to_vec();
        self.connection.advance(bytes.len());
        frames(&bytes)
    }

    /// The requests that have come since the last call.
    fn requests(&mut self) -> Vec<Key> {
        let events = self.events.drain(..);
        events
            .filter_map(|event| match event {
                Event::Request(key) => Some(key),
                Event::Changed(_) | Event::AllChanged => None,
            })
            .collect()
    }

    /// The one request that has come since the last call.
    fn request(&mut self) -> Key {
        let requests = self.requests();
        let [key] = requests.as_slice() else {
            panic!("{requests:?}");
        };
        *key
    }

    /// Takes what has come of a body and gives its window back.
    fn reads(&mut self, key: Key) -> Vec<u8> {
        let bytes = self.connection.take_body(key);
        self.connection.release_body(key, bytes.len());
        bytes
    }
}

/// Text of a head: pseudo-header fields, and the others.
fn text(head: &Head) -> String {
    let mut text = match head.status() {
        0 => format!("{} {}", head.method(), head.path()),
        status => status.to_string(),
    };
    for field in head.fields() {
        text += &format!(" {}={}", field.name, field.value.escape_ascii());
    }
    text
}
