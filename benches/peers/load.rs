//! What the client is asked to do: the words on its command line, written by the bench and read by the client.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::protocol::Protocol;

/// One load, for one window.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) kind: Kind,
    pub(crate) protocol: Protocol,
    pub(crate) to: SocketAddr,
    /// Bytes of a request, and of its answer, where they are not of HTTP.
    pub(crate) size: usize,
    pub(crate) connections: usize,
    /// Requests at once on each connection, where the protocol has streams.
    pub(crate) streams: usize,
    /// Units per second; `None`: as fast as the answers come.
    pub(crate) rate: Option<f64>,
    pub(crate) warmup: Duration,
    pub(crate) window: Duration,
    /// The process whose CPU time or memory is asked for, and its descendants.
    pub(crate) proxy: Option<u32>,
    pub(crate) origin: u32,
    pub(crate) cores: Vec<usize>,
}

/// What one unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request and its answer on a connection that stays.
    Requests,
    /// Connect, one request, its answer, close.
    Connections,
    /// One byte from client to origin.
    Upload,
    /// One byte from origin to client.
    Download,
    /// A connection that does nothing.
    Idle,
    /// A datagram and its answer, of a client that stays.
    Datagrams,
    /// One of many datagrams of one client.
    DatagramBulk,
    /// A datagram and its answer, of a client of its own.
    Flows,
    /// A client that asks nothing any more.
    IdleFlows,
}

impl Load {
    pub(crate) fn to_words(&self) -> Vec<String> {
        let cores: Vec<String> = self.cores.iter().map(ToString::to_string).collect();
        let mut words = vec![
            format!("kind={}", self.kind.word()),
            format!("protocol={}", self.protocol.word()),
            format!("to={}", self.to),
            format!("size={}", self.size),
            format!("connections={}", self.connections),
            format!("streams={}", self.streams),
            format!("warmup={}", self.warmup.as_secs_f64()),
            format!("window={}", self.window.as_secs_f64()),
            format!("origin={}", self.origin),
            format!("cores={}", cores.join(",")),
        ];
        words.extend(self.rate.map(|rate| format!("rate={rate}")));
        words.extend(self.proxy.map(|pid| format!("proxy={pid}")));
        words
    }

    pub(crate) fn from_words(words: &[String]) -> io::Result<Self> {
        let find = |key: &str| {
            words
                .iter()
                .filter_map(|word| word.split_once('='))
                .find(|(name, _)| *name == key)
        };
        let value = |key: &str| {
            find(key)
                .map(|(_, value)| value)
                .ok_or_else(|| unreadable(key))
        };
        let seconds =
            |key: &str| Ok::<_, io::Error>(Duration::from_secs_f64(number(key, value(key)?)?));
        let kind = value("kind")?;
        Ok(Self {
            kind: Kind::ALL
                .into_iter()
                .find(|known| known.word() == kind)
                .ok_or_else(|| unreadable("kind"))?,
            protocol: Protocol::from_word(value("protocol")?)
                .ok_or_else(|| unreadable("protocol"))?,
            to: number("to", value("to")?)?,
            size: number("size", value("size")?)?,
            connections: number("connections", value("connections")?)?,
            streams: number("streams", value("streams")?)?,
            rate: find("rate")
                .map(|(key, value)| number(key, value))
                .transpose()?,
            warmup: seconds("warmup")?,
            window: seconds("window")?,
            proxy: find("proxy")
                .map(|(key, value)| number(key, value))
                .transpose()?,
            origin: number("origin", value("origin")?)?,
            cores: value("cores")?
                .split(',')
                .map(|core| number("cores", core))
                .collect::<io::Result<_>>()?,
        })
    }
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Requests,
        Self::Connections,
        Self::Upload,
        Self::Download,
        Self::Idle,
        Self::Datagrams,
        Self::DatagramBulk,
        Self::Flows,
        Self::IdleFlows,
    ];

    pub(crate) fn is_datagrams(self) -> bool {
        matches!(
            self,
            Self::Datagrams | Self::DatagramBulk | Self::Flows | Self::IdleFlows
        )
    }

    fn word(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Connections => "connections",
            Self::Upload => "upload",
            Self::Download => "download",
            Self::Idle => "idle",
            Self::Datagrams => "datagrams",
            Self::DatagramBulk => "datagram-bulk",
            Self::Flows => "flows",
            Self::IdleFlows => "idle-flows",
        }
    }
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> io::Result<T> {
    value.parse().map_err(|_| unreadable(key))
}

fn unreadable(key: &str) -> io::Error {
    io::Error::other(format!("the load's word {key} is missing or unreadable"))
}
