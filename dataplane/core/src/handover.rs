//! The messages of a hand-over: how one process passes its listening sockets to the next one.
//!
//! The next process sends a [`Request`]. The old one answers with an [`Offer`], or refuses, and sends the descriptors of the offer's
//! sockets behind it, in its order. The next one says [`Ready`] when it can serve, and the old one answers that it may have the
//! sockets, behind what it knows. By that the next one may leave sockets to it ([`Left`](Message::Left)). The next one confirms that
//! it takes them, and serves from then on. Until it has confirmed, the old one goes on as
//! before, whatever becomes of the next one. Then the old one reads no datagrams any more, and its flows go over; until they have
//! come, the next one reads none.
//!
//! A message is its length, as four bytes, and its text in JSON. Keys that a process does not know are skipped, so that a newer one
//! may say more; what changes the meaning has another version.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::flow::HandedFlow;
use crate::socket_key::SocketKey;
use crate::table::{Name, Transport};

mod state;

pub use state::{KeptCertificate, PairFiles, State, Tickets};

/// What one process says to the other.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// The next process asks for the sockets.
    Request(Request),
    /// The old one has these, and their descriptors follow.
    Offer(Offer),
    /// The next process can serve.
    Ready(Ready),
    /// A part of what the old process knows. There may be any number of them before [`Yours`](Self::Yours).
    State(State),
    /// The next process may have the sockets.
    Yours,
    /// The next process leaves the sockets at these places to the old one, too: by what it has heard of the old one it does not
    /// want them any more. Comes before [`Mine`](Self::Mine), and only where the offer says that it is heard.
    Left(Vec<usize>),
    /// The next process has them, and serves. From here on the old one ends.
    Mine,
    /// Flows of clients of datagrams, which the old process serves no more. The descriptors of their sockets follow. There may
    /// be any number of them behind [`Mine`](Self::Mine), and the last one is empty. Since version 3.
    Flows(Vec<HandedFlow>),
    /// The old process was told to end by somebody else, and hands nothing over.
    Ending,
    /// The process that says this goes on without the other one.
    Refused(String),
}

/// The first message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Request {
    /// The newest version of the messages that the next process understands, and the oldest.
    pub version: u32,
    pub oldest: u32,
    /// The version of the program.
    pub program: String,
}

/// What the old process has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Offer {
    /// The version of this message, and of those that follow.
    pub version: u32,
    /// The version of the program.
    pub program: String,
    /// The number of the process: the kernel knows that of the first one that listened at the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The number of the pid namespace in which that is its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<u64>,
    /// Whether it understands [`Message::Left`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hears_left: bool,
    /// Each stands for one descriptor.
    pub sockets: Vec<Handed>,
}

/// One socket, which the descriptor at the same place is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Handed {
    /// Clients connect to it.
    Tcp(Bound),
    /// Clients send datagrams to it.
    Udp(Bound),
    /// Page, metrics and health are answered there.
    Admin(SocketAddr),
    /// Health alone is answered there.
    Healthz(SocketAddr),
    /// The socket of a file, by the name of its lock.
    File(String),
    /// An instance lock.
    Lock(String),
}

/// The identity of a client's socket: that of [`SocketKey`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Bound {
    pub address: SocketAddr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontend: Option<Name>,
}

/// What the next process does with the offer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Ready {
    /// The places of sockets that it does not want: of clients, of the admin side, of files. The old process closes them, and
    /// serves who waits there.
    #[serde(default)]
    pub unwanted: Vec<usize>,
    /// Its control groups, as `/proc/self/cgroup` has them: a process in a sandbox cannot read those of another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<String>,
    /// The certificates that it cannot use as their files are: those that the old process has go along.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<PairFiles>,
    /// Whether it cannot use the file with the keys of session tickets: those that the old process has go along.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tickets: bool,
}

impl Request {
    /// The request of this version of the program.
    #[must_use]
    pub fn own(program: &str) -> Self {
        Self {
            version: VERSION,
            oldest: OLDEST,
            program: program.into(),
        }
    }

    /// The version in which the process that has the sockets answers, or why it does not.
    pub fn answered_in(&self) -> Result<u32, String> {
        let version = self.version.min(VERSION);
        if version >= OLDEST && version >= self.oldest {
            return Ok(version);
        }
        Err(format!(
            "the process that runs hands over by messages of version {VERSION}, and the next one (ballast {}) asks for version {}; upgrade by way of a version between them, or end this process first",
            self.program, self.oldest
        ))
    }
}

impl Offer {
    /// Whether this process understands the offer, or why it does not.
    pub fn is_understood(&self) -> Result<(), String> {
        if (OLDEST..=VERSION).contains(&self.version) {
            return Ok(());
        }
        Err(format!(
            "the process that runs (ballast {}) hands over by messages of version {}, and this one knows version {VERSION}; upgrade by way of a version between them, or end that process first",
            self.program, self.version
        ))
    }
}

impl Handed {
    /// The socket of this identity.
    #[must_use]
    pub fn of_clients(key: &SocketKey) -> Self {
        let bound = Bound {
            address: key.address,
            frontend: key.asked_by.clone(),
        };
        match key.transport {
            Transport::Tcp => Self::Tcp(bound),
            Transport::Udp => Self::Udp(bound),
        }
    }

    /// Its identity, if clients come by it.
    #[must_use]
    pub fn key(&self) -> Option<SocketKey> {
        let (transport, bound) = match self {
            Self::Tcp(bound) => (Transport::Tcp, bound),
            Self::Udp(bound) => (Transport::Udp, bound),
            Self::Admin(_) | Self::Healthz(_) | Self::File(_) | Self::Lock(_) => return None,
        };
        Some(SocketKey {
            transport,
            address: bound.address,
            asked_by: bound.frontend.clone(),
        })
    }

    /// Whether somebody may be waiting at it.
    #[must_use]
    pub fn listens(&self) -> bool {
        !matches!(self, Self::Lock(_))
    }
}

impl Message {
    /// The bytes of the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Nothing in a message has keys that are no texts, which alone could fail.
        let text = serde_json::to_vec(self).unwrap_or_default();
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend(text);
        bytes
    }

    /// The message of this text.
    pub fn decode(text: &[u8]) -> Result<Self, Wrong> {
        serde_json::from_slice(text).map_err(|error| Wrong::Text(error.to_string()))
    }

    /// What kind of message it is.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::Offer(_) => "offer",
            Self::Ready(_) => "ready",
            Self::State(_) => "state",
            Self::Yours => "yours",
            Self::Left(_) => "left",
            Self::Mine => "mine",
            Self::Flows(_) => "flows",
            Self::Ending => "ending",
            Self::Refused(_) => "refused",
        }
    }
}

/// The length of the text behind these bytes.
pub fn length(bytes: [u8; LENGTH]) -> Result<usize, Wrong> {
    let length = u32::from_be_bytes(bytes);
    match usize::try_from(length) {
        Ok(length) if length <= LONGEST => Ok(length),
        _ => Err(Wrong::Length(length)),
    }
}

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    Length(u32),
    Text(String),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(
                f,
                "is no message of a hand-over: its length would be {length} bytes"
            ),
            Self::Text(why) => write!(f, "is no message of a hand-over: {why}"),
        }
    }
}

/// The version of the messages that this program sends.
pub const VERSION: u32 = 3;
/// The first version in which the flows of clients of datagrams go along.
pub const FLOWS: u32 = 3;
/// The oldest version that it understands: the one before its own.
pub const OLDEST: u32 = 2;
/// The bytes of a length.
pub const LENGTH: usize = 4;
/// The most bytes of a text: several times what 100,000 sockets take.
pub const LONGEST: usize = 32 << 20;
/// The most bytes of all parts of the state. What is beyond does not go along.
pub const MOST_STATE: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{CompileContext, compile};
    use crate::flow::{HandedHeader, Phase};
    use crate::loops::LOOPBACK_ONLY;
    use crate::moment::Moment;
    use crate::plan::Plan;
    use crate::rng::Rng;
    use crate::table::{Format, parse};

    mod oracle;

    fn flow() -> HandedFlow {
        HandedFlow {
            socket: 9,
            peer: "[fe80::1%3]:7".parse().unwrap(),
            local: "fe80::2".parse().unwrap(),
            client: "192.0.2.1:7".parse().unwrap(),
            service: "s".into(),
            endpoint: "10.0.0.1:53".parse().unwrap(),
            requests: 2,
            responses: 1,
            phase: Phase::LastRequest,
            began_ms: 30,
            last_ms: 20,
            worker: (1, 2),
            bound: Some("0.0.0.0:40000".parse().unwrap()),
            is_alone: true,
            header: Some(HandedHeader {
                bytes: b"\r\n".into(),
                is_for_one: true,
                was_sent: true,
                has_checksum: true,
                ..HandedHeader::default()
            }),
        }
    }

    fn offer() -> Message {
        let bound = |address: &str, frontend: Option<&str>| Bound {
            address: address.parse().unwrap(),
            frontend: frontend.map(|name| name.parse().unwrap()),
        };
        Message::Offer(Offer {
            version: 3,
            program: "0.1.0".into(),
            pid: Some(7),
            pid_namespace: Some(11),
            hears_left: true,
            sockets: vec![
                Handed::Tcp(bound("192.0.2.1:80", None)),
                Handed::Udp(bound("[::1]:0", Some("dns"))),
                Handed::Admin("127.0.0.1:1936".parse().unwrap()),
                Handed::Healthz("0.0.0.0:8081".parse().unwrap()),
                Handed::File("ballast/socket/0".into()),
                Handed::Lock("ballast/admin/1936".into()),
            ],
        })
    }

    /// These texts are what another version of the program reads: they stay as they are.
    #[test]
    fn messages_have_these_texts() {
        for (message, text) in [
            (
                Message::Request(Request::own("0.1.0")),
                r#"{"request":{"version":3,"oldest":2,"program":"0.1.0"}}"#,
            ),
            (
                offer(),
                r#"{"offer":{"version":3,"program":"0.1.0","pid":7,"pid-namespace":11,"hears-left":true,"sockets":[{"tcp":{"address":"192.0.2.1:80"}},{"udp":{"address":"[::1]:0","frontend":"dns"}},{"admin":"127.0.0.1:1936"},{"healthz":"0.0.0.0:8081"},{"file":"ballast/socket/0"},{"lock":"ballast/admin/1936"}]}}"#,
            ),
            (
                Message::Ready(Ready {
                    unwanted: vec![3],
                    groups: Some("0::/a".into()),
                    certificates: vec![PairFiles {
                        cert: "/a.crt".into(),
                        key: Some("/a.key".into()),
                    }],
                    tickets: true,
                }),
                r#"{"ready":{"unwanted":[3],"groups":"0::/a","certificates":[{"cert":"/a.crt","key":"/a.key"}],"tickets":true}}"#,
            ),
            (Message::State(State::default()), r#"{"state":{}}"#),
            (Message::Yours, r#""yours""#),
            (Message::Left(vec![3, 4]), r#"{"left":[3,4]}"#),
            (Message::Mine, r#""mine""#),
            (
                Message::Flows(vec![flow()]),
                r#"{"flows":[{"socket":9,"peer":"[fe80::1%3]:7","local":"fe80::2","client":"192.0.2.1:7","service":"s","endpoint":"10.0.0.1:53","requests":2,"responses":1,"phase":"last-request","began-ms":30,"last-ms":20,"worker":[1,2],"bound":"0.0.0.0:40000","is-alone":true,"header":{"bytes":[13,10],"is-for-one":true,"was-sent":true,"has-checksum":true}}]}"#,
            ),
            (Message::Flows(Vec::new()), r#"{"flows":[]}"#),
            (Message::Ending, r#""ending""#),
            (Message::Refused("no".into()), r#"{"refused":"no"}"#),
        ] {
            let bytes = message.encode();
            let (head, body) = bytes.split_first_chunk::<LENGTH>().unwrap();
            assert_eq!(length(*head), Ok(body.len()));
            assert_eq!(String::from_utf8_lossy(body), text);
            assert_eq!(Message::decode(body), Ok(message));
        }
    }

    #[test]
    fn a_newer_process_may_say_more_within_a_version() {
        for (text, expected) in [
            (
                r#"{"request":{"version":3,"oldest":2,"program":"9","wants":["tickets"]}}"#,
                Message::Request(Request::own("9")),
            ),
            // An older one says less.
            (
                r#"{"offer":{"version":2,"program":"9","sockets":[]}}"#,
                Message::Offer(Offer {
                    version: 2,
                    program: "9".into(),
                    pid: None,
                    pid_namespace: None,
                    hears_left: false,
                    sockets: Vec::new(),
                }),
            ),
            (
                r#"{"ready":{"later":true}}"#,
                Message::Ready(Ready::default()),
            ),
            (
                r#"{"flows":[{"socket":9,"peer":"192.0.2.1:7","local":"192.0.2.2","client":"192.0.2.1:7","service":"s","endpoint":"10.0.0.1:53","worker":[0,1],"mood":"low"}]}"#,
                Message::Flows(vec![HandedFlow {
                    socket: 9,
                    peer: "192.0.2.1:7".parse().unwrap(),
                    local: "192.0.2.2".parse().unwrap(),
                    client: "192.0.2.1:7".parse().unwrap(),
                    requests: 0,
                    responses: 0,
                    phase: Phase::Open,
                    began_ms: 0,
                    last_ms: 0,
                    worker: (0, 1),
                    bound: None,
                    is_alone: false,
                    header: None,
                    ..flow()
                }]),
            ),
        ] {
            assert_eq!(Message::decode(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_message_is_said() {
        for bytes in [*b"GET ", [0xff; 4]] {
            let said = length(bytes).unwrap_err().to_string();
            assert!(said.contains("is no message of a hand-over"), "{said}");
        }
        for text in ["", "{}", "{\"offer\":{}}", "\"ours\"", "[1]", "\u{0}"] {
            let said = Message::decode(text.as_bytes()).unwrap_err().to_string();
            assert!(said.contains("is no message of a hand-over"), "{said}");
        }
    }

    #[test]
    fn processes_one_version_apart_understand_each_other() {
        let asks = |version, oldest| Request {
            version,
            oldest,
            program: "7".into(),
        };
        for (request, expected) in [
            (asks(2, 1), Some(2)),
            (asks(2, 2), Some(2)),
            (asks(3, 2), Some(3)),
            (asks(4, 3), Some(3)),
            (asks(1, 1), None),
            (asks(4, 4), None),
            (asks(9, 8), None),
            (asks(0, 0), None),
        ] {
            let answer = request.answered_in();
            assert_eq!(answer.clone().ok(), expected, "{request:?}");
            if let Err(why) = answer {
                assert!(why.contains("of version 3"), "{why}");
                let asked = format!("asks for version {}", request.oldest);
                assert!(why.contains(&asked), "{why}");
            }
        }
        for (version, is_understood) in [(1, false), (2, true), (3, true), (4, false)] {
            let offer = Offer {
                version,
                program: "7".into(),
                pid: None,
                pid_namespace: None,
                hears_left: false,
                sockets: Vec::new(),
            };
            let answer = offer.is_understood();
            assert_eq!(answer.is_ok(), is_understood, "{version}");
            if let Err(why) = answer {
                assert!(why.contains(&format!("of version {version}")), "{why}");
                assert!(why.contains("knows version 3"), "{why}");
            }
        }
    }

    #[test]
    fn a_client_socket_is_known_by_its_identity() {
        let Message::Offer(offer) = offer() else {
            panic!("an offer");
        };
        for handed in &offer.sockets {
            let again = handed.key().map(|key| Handed::of_clients(&key));
            let is_of_clients = matches!(handed, Handed::Tcp(_) | Handed::Udp(_));
            assert_eq!(again.as_ref(), is_of_clients.then_some(handed));
        }
        let listening = offer.sockets.iter().filter(|handed| handed.listens());
        assert_eq!(listening.count(), 5);
    }

    #[test]
    fn the_corpus_of_the_fuzz_target_keeps_every_promise() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fuzz/corpus/handover"
        );
        let mut seeds = 0;
        for seed in std::fs::read_dir(folder).unwrap() {
            oracle::check(&std::fs::read(seed.unwrap().path()).unwrap());
            seeds += 1;
        }
        assert!(seeds > 5, "only {seeds} seeds in {folder}");
    }
}
