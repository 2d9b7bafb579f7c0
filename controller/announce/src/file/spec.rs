//! The form of the file: every key, what may stand there, and what people are told about it. Strict reading and the JSON Schema
//! are both made of it, so they agree.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ballast_core::table::{Wrong, parse_duration};

use super::bgp::Community;
use super::values::{Pattern, parse_or_zero};

/// The kind of a value.
pub(super) enum Kind {
    /// A text with a rule.
    Text(&'static Rule),
    /// One of these words, each with what it means.
    Words(&'static [(&'static str, &'static str)]),
    /// A whole number.
    Number(u64, u64),
    /// true or false.
    Truth,
    /// A list.
    List(&'static Self, Least),
    /// One text, or a list of them.
    OneOrList(&'static Rule),
    /// A map of known keys.
    Map(&'static Map),
}

/// How many items a list has at least.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Least {
    /// None.
    Any,
    /// One.
    One,
}

/// The rule for a text.
pub(super) struct Rule {
    /// As in "5 is a number, not `what`".
    pub(super) what: &'static str,
    /// The remedy, after "expected ".
    pub(super) form: &'static str,
    /// A good text. Editors show it, and it takes the place of one that was refused, so that the rest can be checked.
    pub(super) example: &'static str,
    /// A regular expression that every good text matches. Editors look at it; reading is stricter.
    pub(super) pattern: &'static str,
    pub(super) check: fn(&str) -> Result<(), Wrong>,
}

/// A map of known keys.
pub(super) struct Map {
    pub(super) about: &'static str,
    pub(super) fields: &'static [Field],
}

/// A known key.
pub(super) struct Field {
    pub(super) key: &'static str,
    pub(super) about: &'static str,
    pub(super) kind: Kind,
    pub(super) is_required: bool,
}

const fn must(key: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        key,
        about,
        kind,
        is_required: true,
    }
}

const fn may(key: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        is_required: false,
        ..must(key, kind, about)
    }
}

/// The whole file.
pub(super) static FILE: Map = Map {
    about: "The announcer's file of Ballast",
    fields: &[
        must(
            "version",
            Kind::Number(1, 1),
            "The version of the file's form: 1.",
        ),
        must(
            "node",
            Kind::Text(&NODE),
            "The name of this node. Each node has another one.",
        ),
        may(
            "members",
            Kind::Map(&MEMBERS),
            "The other nodes that may hold addresses, and how they talk. Absent: there are none.",
        ),
        may(
            "data-plane",
            Kind::Map(&DATA_PLANE),
            "The data plane on this node. Absent: it is not looked at.",
        ),
        may(
            "addresses",
            Kind::List(&Kind::Map(&ADDRESS), Least::Any),
            "The addresses that the network is to lead here.",
        ),
        may(
            "bgp",
            Kind::Map(&BGP),
            "The routers that are told, by BIRD. Absent: none.",
        ),
        may(
            "return",
            Kind::Words(&[
                ("delayed", "After 30 s of good health."),
                ("never", "When no other node can hold them."),
                ("at-once", "As soon as it is back."),
            ]),
            "When a node that was away gets its addresses back. Default: delayed.",
        ),
    ],
};

static MEMBERS: Map = Map {
    about: "How this node talks to the others.",
    fields: &[
        must(
            "bind",
            Kind::Text(&SOCKET_ADDRESS),
            "Where datagrams of the others arrive.",
        ),
        may(
            "peers",
            Kind::List(&Kind::Text(&SOCKET_ADDRESS), Least::Any),
            "Some of the others. They tell the rest.",
        ),
        must(
            "key-file",
            Kind::Text(&PATH),
            "A file with one or two keys: 32 bytes each, in base64, one on a line.",
        ),
    ],
};

static DATA_PLANE: Map = Map {
    about: "How the data plane is looked at.",
    fields: &[
        may(
            "socket",
            Kind::Text(&PATH),
            "Its runtime socket. When the connection to it ends, the data plane has ended.",
        ),
        may(
            "ready",
            Kind::Text(&READY),
            "The URL that says whether it is ready. It is asked every 200 ms.",
        ),
    ],
};

static ADDRESS: Map = Map {
    about: "An address.",
    fields: &[
        must("address", Kind::Text(&ADDRESS_TEXT), "The address."),
        must(
            "mode",
            Kind::Words(&[
                (
                    "l2",
                    "One node holds it and answers ARP or neighbour discovery.",
                ),
                ("bgp", "Every node that can serve it tells the routers."),
            ]),
            "How the network learns it.",
        ),
        must(
            "nodes",
            Kind::List(&Kind::Text(&NODE), Least::One),
            "The nodes that may hold it.",
        ),
        may(
            "interface",
            Kind::OneOrList(&INTERFACE),
            "The interfaces that may carry it: auto (the one whose network has the address, else that of the default route), or names, with * for any letters. Default: auto.",
        ),
        may(
            "ready",
            Kind::Truth,
            "Whether this node can serve it. Default: true.",
        ),
    ],
};

static BGP: Map = Map {
    about: "The routers that are told, and what they are told.",
    fields: &[
        must("bird", Kind::Map(&BIRD), "Where BIRD is."),
        must(
            "router-id",
            Kind::Text(&IPV4),
            "The id of this router: one of its IPv4 addresses.",
        ),
        must(
            "my-asn",
            Kind::Number(1, LAST_ASN),
            "The number of this router's autonomous system.",
        ),
        must(
            "peers",
            Kind::List(&Kind::Map(&PEER), Least::One),
            "The routers.",
        ),
        may(
            "advertisements",
            Kind::List(&Kind::Map(&ADVERTISEMENT), Least::One),
            "How addresses are advertised. Absent: each by itself, to all peers, with nothing added.",
        ),
    ],
};

static BIRD: Map = Map {
    about: "The files of BIRD.",
    fields: &[
        must(
            "config",
            Kind::Text(&PATH),
            "The configuration that is written for BIRD. Changes by hand are overwritten.",
        ),
        must("socket", Kind::Text(&PATH), "BIRD's control socket."),
    ],
};

static PEER: Map = Map {
    about: "A router.",
    fields: &[
        must(
            "name",
            Kind::Text(&NAME),
            "Its name, for advertisements and metrics.",
        ),
        must(
            "peer-asn",
            Kind::Number(1, LAST_ASN),
            "The number of its autonomous system.",
        ),
        must("peer-address", Kind::Text(&ADDRESS_TEXT), "Its address."),
        may(
            "interface",
            Kind::Text(&ONE_INTERFACE),
            "The interface that leads to it. A link-local address needs it.",
        ),
        may(
            "peer-port",
            Kind::Number(1, 65_535),
            "Its port. Default: 179.",
        ),
        may(
            "source-address",
            Kind::Text(&ADDRESS_TEXT),
            "The address of this node that the session comes from.",
        ),
        may(
            "local-asn",
            Kind::Number(1, LAST_ASN),
            "The number of this router's autonomous system in this session. Default: my-asn.",
        ),
        may(
            "router-id",
            Kind::Text(&IPV4),
            "The id of this router in this session. Default: that of all sessions.",
        ),
        may(
            "hold-time",
            Kind::Text(&HOLD_TIME),
            "After so long without a message the session is over: at least 3s, or 0s for never. Default: 90s.",
        ),
        may(
            "keepalive-time",
            Kind::Text(&DURATION),
            "How often a message is sent. Default: a third of hold-time.",
        ),
        may(
            "connect-time",
            Kind::Text(&DURATION),
            "How long until another attempt to connect.",
        ),
        may(
            "password",
            Kind::Text(&PASSWORD),
            "The password of TCP-MD5.",
        ),
        may(
            "multihop",
            Kind::Truth,
            "Whether the router is more than one hop away. Default: false.",
        ),
        may("vrf", Kind::Text(&ONE_INTERFACE), "The VRF of the session."),
        may(
            "graceful-restart",
            Kind::Truth,
            "Whether the router keeps the routes while BIRD restarts. Default: false.",
        ),
        may(
            "bfd",
            Kind::Map(&BFD),
            "How a dead link is found quickly. Absent: by the hold time only.",
        ),
    ],
};

static BFD: Map = Map {
    about: "Bidirectional forwarding detection.",
    fields: &[
        may(
            "receive-interval",
            Kind::Text(&DURATION),
            "How often packets may arrive: 10ms to 60s. Default: 300ms.",
        ),
        may(
            "transmit-interval",
            Kind::Text(&DURATION),
            "How often packets are sent: 10ms to 60s. Default: 300ms.",
        ),
        may(
            "detect-multiplier",
            Kind::Number(2, 255),
            "How many missing packets end the session. Default: 3.",
        ),
        may(
            "passive-mode",
            Kind::Truth,
            "Whether the router begins. Default: false.",
        ),
    ],
};

static ADVERTISEMENT: Map = Map {
    about: "How addresses are advertised.",
    fields: &[
        may(
            "addresses",
            Kind::List(&Kind::Text(&ADDRESS_TEXT), Least::One),
            "The addresses that are advertised so. Absent: all.",
        ),
        may(
            "aggregation-length",
            Kind::Number(1, 32),
            "The length of the prefix that stands for an IPv4 address. Default: 32.",
        ),
        may(
            "aggregation-length-v6",
            Kind::Number(1, 128),
            "The length of the prefix that stands for an IPv6 address. Default: 128.",
        ),
        may(
            "local-pref",
            Kind::Number(0, LAST_ASN),
            "The local preference. Only peers of the own autonomous system are told.",
        ),
        may(
            "communities",
            Kind::List(&Kind::Text(&COMMUNITY), Least::One),
            "The communities.",
        ),
        may(
            "peers",
            Kind::List(&Kind::Text(&NAME), Least::One),
            "The peers that are told. Absent: all.",
        ),
    ],
};

static NODE: Rule = Rule {
    what: "the name of a node",
    form: "letters, digits, '-', '_' and '.', at most 253",
    example: "edge1",
    pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$",
    check: |text| named(&NODE, text, 253),
};

static NAME: Rule = Rule {
    what: "a name",
    form: "letters, digits, '-', '_' and '.', at most 48",
    example: "tor",
    pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$",
    check: |text| named(&NAME, text, 48),
};

static ADDRESS_TEXT: Rule = Rule {
    what: "an address",
    form: "an IPv4 or IPv6 address",
    example: "192.0.2.10",
    pattern: "^[0-9A-Fa-f.:]+$",
    check: |text| by_parse::<IpAddr>(&ADDRESS_TEXT, text),
};

static IPV4: Rule = Rule {
    what: "an IPv4 address",
    form: "an IPv4 address",
    example: "10.0.0.1",
    pattern: "^[0-9.]+$",
    check: |text| by_parse::<Ipv4Addr>(&IPV4, text),
};

static SOCKET_ADDRESS: Rule = Rule {
    what: "an address with a port",
    form: "IP:PORT, or [IPV6]:PORT",
    example: "10.0.0.2:7956",
    pattern: "^.+:[0-9]+$",
    check: |text| match text.parse::<SocketAddr>() {
        Ok(address) if address.port() > 0 => Ok(()),
        _ => Err(SOCKET_ADDRESS.wrong()),
    },
};

static PATH: Rule = Rule {
    what: "a path",
    form: "the path of a file, relative to the folder of this one or absolute",
    example: "members.key",
    pattern: "^.+$",
    check: |text| match text.is_empty() || text.chars().any(char::is_control) {
        true => Err(PATH.wrong()),
        false => Ok(()),
    },
};

static READY: Rule = Rule {
    what: "a URL",
    form: "http://IP:PORT/PATH",
    example: "http://127.0.0.1:1936/readyz",
    pattern: "^http://[^/]+/.*$",
    check: |text| {
        let parts = text
            .strip_prefix("http://")
            .and_then(|rest| rest.split_once('/'));
        let is_good = |(host, path): (&str, &str)| {
            host.parse::<SocketAddr>().is_ok() && path.bytes().all(|byte| byte.is_ascii_graphic())
        };
        match parts.is_some_and(is_good) {
            true => Ok(()),
            false => Err(READY.wrong()),
        }
    },
};

static INTERFACE: Rule = Rule {
    what: "the name of an interface",
    form: "auto, or 1 to 15 letters such as eth0 or bond*",
    example: "eth0",
    pattern: "^[^/ ]{1,15}$",
    check: |text| text.parse::<Pattern>().map(drop),
};

/// The name of one interface. BIRD's configuration has it in quotes.
static ONE_INTERFACE: Rule = Rule {
    what: "the name of an interface",
    form: "1 to 15 letters, digits, '-', '_', '.' and '@'",
    example: "eth0",
    pattern: "^[A-Za-z0-9._@-]{1,15}$",
    check: |text| {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
        match (1..=15).contains(&text.len()) && text.bytes().all(is_good) {
            true => Ok(()),
            false => Err(ONE_INTERFACE.wrong()),
        }
    },
};

static DURATION: Rule = Rule {
    what: "a duration",
    form: "a number with its unit, such as 250ms, 5s or 3m",
    example: "5s",
    pattern: "^[0-9]+(ms|s|m|h|d)$",
    check: |text| parse_duration(text).map(drop),
};

static HOLD_TIME: Rule = Rule {
    check: |text| parse_or_zero(text).map(drop),
    ..DURATION
};

/// BIRD's texts have no escapes, and Linux takes 80 bytes.
static PASSWORD: Rule = Rule {
    what: "a password that BIRD can read",
    form: "1 to 80 printable ASCII characters without '\"'",
    example: "secret",
    pattern: "^[ !#-~]{1,80}$",
    check: |text| {
        let is_good = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"';
        match (1..=80).contains(&text.len()) && text.bytes().all(is_good) {
            true => Ok(()),
            false => Err(PASSWORD.wrong()),
        }
    },
};

static COMMUNITY: Rule = Rule {
    what: "a community",
    form: "two numbers up to 65535 such as 64512:7, or large:64512:1:2",
    example: "64512:7",
    pattern: "^([0-9]+:[0-9]+|large:[0-9]+:[0-9]+:[0-9]+)$",
    check: |text| text.parse::<Community>().map(drop),
};

impl Rule {
    /// Whether nobody is to see what is wrong with the text: the ack and the log may be read by many.
    pub(super) fn is_secret(&self) -> bool {
        std::ptr::eq(self, &PASSWORD)
    }

    fn wrong(&self) -> Wrong {
        Wrong {
            why: format!("is not {}", self.what),
            remedy: format!("expected {}", self.form),
        }
    }
}

fn named(rule: &Rule, text: &str, longest: usize) -> Result<(), Wrong> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins_well = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    match begins_well && text.len() <= longest && text.bytes().all(is_good) {
        true => Ok(()),
        false => Err(rule.wrong()),
    }
}

fn by_parse<T: std::str::FromStr>(rule: &Rule, text: &str) -> Result<(), Wrong> {
    text.parse::<T>().map(drop).map_err(|_| rule.wrong())
}

const LAST_ASN: u64 = u32::MAX as u64;
