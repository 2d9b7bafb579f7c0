//! The answers of BIRD on its control socket.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::PREFIX;

/// A whole answer: lines with their codes, the last of which ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    lines: Vec<(u16, String)>,
}

/// What became of a configuration that BIRD was asked to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// BIRD runs by it.
    Whole,
    /// BIRD is busy: it begins to run by it, or has put it off until it runs by the one before.
    Busy,
    /// BIRD has not taken it, and says why.
    Not(String),
}

impl Reply {
    /// Reads an answer to `configure`, or to `configure check`.
    #[must_use]
    pub fn taken(&self) -> Taken {
        match self.lines.last() {
            Some((RECONFIGURED | CONFIGURATION_OK, _)) => Taken::Whole,
            Some((IN_PROGRESS | QUEUED, _)) => Taken::Busy,
            Some((SHUTTING_DOWN, _)) => {
                let why = "BIRD shuts down, and takes no configuration any more; start it again";
                Taken::Not(why.to_owned())
            }
            Some((_, why)) => Taken::Not(why.clone()),
            None => Taken::Not(String::new()),
        }
    }

    /// Whether an answer to `configure status` says that BIRD does not run by its configuration yet.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let mut codes = self.lines.iter().map(|(code, _)| *code);
        codes.any(|code| [IN_PROGRESS, QUEUED].contains(&code))
    }

    /// The value in an answer to `eval`. `None`: BIRD does not know the word that it was asked for.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        let mut lines = self.lines.iter();
        let value = lines.find(|(code, _)| *code == VALUE);
        value.map(|(_, value)| value.as_str())
    }
}

/// Reads an answer from what has come. `None`: it is not whole yet.
#[must_use]
pub fn read_reply(text: &str) -> Option<Reply> {
    let mut lines: Vec<(u16, String)> = Vec::new();
    for line in text.split_inclusive('\n') {
        let line = line.strip_suffix('\n')?;
        if let Some(more) = line.strip_prefix(' ') {
            let code = lines.last().map_or(0, |(code, _)| *code);
            lines.push((code, more.to_owned()));
            continue;
        }
        let (code, rest) = line.split_at_checked(4)?;
        let code = code.parse().ok()?;
        let is_last = rest.starts_with(' ');
        lines.push((code, rest.chars().skip(1).collect()));
        if is_last {
            return Some(Reply { lines });
        }
    }
    None
}

/// The states of the sessions, as BIRD reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    /// Whether the session with each peer stands, and what BIRD says of it.
    pub peers: BTreeMap<String, (bool, String)>,
    /// Whether BFD sees each neighbour, by address.
    pub bfd: BTreeMap<IpAddr, bool>,
}

/// Reads the answers to `show protocols` and `show bfd sessions`.
#[must_use]
pub fn read_sessions(protocols: &Reply, bfd: &Reply) -> Sessions {
    let mut sessions = Sessions::default();
    for (_, line) in protocols.lines.iter().filter(|(code, _)| *code == PROTOCOL) {
        let mut words = line.split_whitespace();
        let name = words.next().and_then(|name| name.strip_prefix(PREFIX));
        let Some(name) = name else {
            continue;
        };
        // After the protocol, the table, the state and since when it is so.
        let info: Vec<&str> = words.skip(3).skip_while(|word| is_time(word)).collect();
        let stands = info.first() == Some(&"Established");
        sessions
            .peers
            .insert(name.to_owned(), (stands, info.join(" ")));
    }
    for (_, line) in bfd.lines.iter().filter(|(code, _)| *code == BFD) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [address, _, state, ..] = words[..]
            && let Ok(address) = address.parse()
        {
            sessions.bfd.insert(address, state == "Up");
        }
    }
    sessions
}

fn is_time(word: &str) -> bool {
    word.starts_with(|letter: char| letter.is_ascii_digit())
}

/// The codes of BIRD's answers (doc/reply_codes of its source).
const RECONFIGURED: u16 = 3;
const IN_PROGRESS: u16 = 4;
const QUEUED: u16 = 5;
const SHUTTING_DOWN: u16 = 6;
const CONFIGURATION_OK: u16 = 20;
const VALUE: u16 = 23;
const PROTOCOL: u16 = 1002;
const BFD: u16 = 1020;
