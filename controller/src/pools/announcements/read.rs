//! Reads the objects about announcing: the form of each system is brought into that of [`super::Announcements`].

use ballast_announce::file::Pattern;
use serde_json::{Map, Value, json};

use super::super::pool::{Announce, ProblemKind, Selectors};
use super::super::read::Reader;
use super::{Advertisement, Announcements, Peer, short};
use crate::observe::Key;

/// Our own kind: everything in one object.
impl Announcements {
    pub(super) fn announcement(&mut self, reader: &mut Reader<'_>, name: &str) {
        let advertisement = |reader: &mut Reader<'_>, mode| Advertisement {
            is_metallb: false,
            mode,
            pools: reader.names("spec.pools"),
            pool_selectors: reader.selector("spec.poolSelector"),
            nodes: reader.selector("spec.nodeSelector"),
            interfaces: Vec::new(),
            words: Map::new(),
        };
        let has_bgp = reader.at("spec.bgp").is_some();
        if reader.at("spec.l2").is_some() || !has_bgp {
            let interfaces = reader.interfaces("spec.l2.interfaces");
            let one = advertisement(reader, Announce::L2);
            self.advertisements
                .push(Advertisement { interfaces, ..one });
        }
        if !has_bgp {
            return;
        }
        let my_asn = reader.at("spec.bgp.myASN").and_then(Value::as_u64);
        let router_id = reader.word("spec.bgp.routerID");
        let mut own: Vec<String> = Vec::new();
        for (index, value) in reader.list("spec.bgp.peers").iter().enumerate() {
            let at = format!("spec.bgp.peers[{index}]");
            let mut part = Reader::of(value);
            let nodes = reader.selector("spec.nodeSelector");
            let mut peer = part.peer(false, nodes);
            // Two objects may have routers of one name.
            let word = part.word("name").unwrap_or_else(|| index.to_string());
            let full = format!("{name}.{word}");
            peer.name = short(&full);
            own.push(full);
            peer.my_asn = peer.my_asn.or(my_asn);
            peer.router_id = peer.router_id.or_else(|| router_id.clone());
            let is_followed = !part.is_left_out;
            reader.take_problems(&at, part);
            if is_followed {
                self.peers.push(peer);
            }
        }
        let advertisements = reader.list("spec.bgp.advertisements");
        let default = json!({});
        let advertisements = match advertisements {
            [] => std::slice::from_ref(&default),
            some => some,
        };
        for (index, value) in advertisements.iter().enumerate() {
            let part = Reader::of(value);
            let mut one = advertisement(reader, Announce::Bgp);
            one.words = part.advertised();
            let peers = match one.words.get("peers").and_then(Value::as_array) {
                Some(peers) => {
                    let names = peers.iter().filter_map(Value::as_str);
                    names.map(|peer| format!("{name}.{peer}")).collect()
                }
                None => own.clone(),
            };
            one.words.insert("peers".to_owned(), json!(peers));
            reader.take_problems(&format!("spec.bgp.advertisements[{index}]"), part);
            self.advertisements.push(one);
        }
    }
}

/// MetalLB's kinds.
impl Announcements {
    pub(super) fn l2(&mut self, reader: &mut Reader<'_>) {
        self.has_metallb = true;
        let interfaces = reader.interfaces("spec.interfaces");
        let what = "has no effect: addresses are spread evenly over the nodes";
        reader.not_followed("spec.preferredNodeSelectors", what);
        if let Some(one) = reader.metallb_advertisement(Announce::L2) {
            self.advertisements
                .push(Advertisement { interfaces, ..one });
        }
    }

    pub(super) fn bgp(&mut self, reader: &mut Reader<'_>) {
        self.has_metallb = true;
        let spec = reader.at("spec").cloned().unwrap_or_default();
        let part = Reader::of(&spec);
        let words = part.advertised();
        reader.take_problems("spec", part);
        if let Some(one) = reader.metallb_advertisement(Announce::Bgp) {
            self.advertisements.push(Advertisement { words, ..one });
        }
    }

    pub(super) fn metallb_peer(&mut self, reader: &mut Reader<'_>, name: &str) {
        let spec = reader.at("spec").cloned().unwrap_or_default();
        let nodes = reader.selectors("spec.nodeSelectors");
        let namespace = reader.word("metadata.namespace").unwrap_or_default();
        let mut part = Reader::of(&spec);
        let mut peer = part.peer(true, nodes);
        peer.name = short(name);
        if let Some(secret) = &mut peer.secret
            && secret.namespace.is_empty()
        {
            secret.namespace = namespace;
        }
        let is_followed = !part.is_left_out;
        reader.take_problems("spec", part);
        if is_followed {
            self.peers.push(peer);
        }
    }

    pub(super) fn community(&mut self, reader: &Reader<'_>) {
        for one in reader.list("spec.communities") {
            if let (Some(name), Some(value)) = (one["name"].as_str(), one["value"].as_str()) {
                self.communities.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    pub(super) fn profile(&mut self, reader: &mut Reader<'_>, name: &str) {
        let spec = reader.at("spec").cloned().unwrap_or_default();
        let mut part = Reader::of(&spec);
        let bfd = part.bfd();
        reader.take_problems("spec", part);
        self.profiles.insert(name.to_owned(), bfd);
    }
}

/// The parts that both systems have. A reader is at the part itself.
impl Reader<'_> {
    /// An advertisement of MetalLB, without what its mode adds. `None`: it is for some Services only, which nodes do not know.
    fn metallb_advertisement(&mut self, mode: Announce) -> Option<Advertisement> {
        let one = Advertisement {
            is_metallb: true,
            mode,
            pools: self.names("spec.ipAddressPools"),
            pool_selectors: self.selectors("spec.ipAddressPoolSelectors"),
            nodes: self.selectors("spec.nodeSelectors"),
            interfaces: Vec::new(),
            words: Map::new(),
        };
        let what = "is not followed, and the whole object is left out; give these Services a pool of their own";
        let is_for_all = !self.not_followed("spec.serviceSelectors", what);
        is_for_all.then_some(one)
    }

    /// Names of interfaces. One that no interface can have is reported, and stands for none.
    fn interfaces(&mut self, path: &str) -> Vec<String> {
        let names = self.texts(path).into_iter();
        let names: Vec<String> = names.map(|(_, name)| name.to_owned()).collect();
        let (good, bad): (Vec<String>, Vec<String>) = names
            .into_iter()
            .partition(|name| name.parse::<Pattern>().is_ok());
        for name in &bad {
            let what =
                format!("{name:?} is not the name of an interface; expected 1 to 15 letters");
            self.problem(ProblemKind::BadValue, path, what);
        }
        match (good.is_empty(), bad.is_empty()) {
            // None of them is there, so no interface may carry the addresses.
            (true, false) => vec![NO_INTERFACE.to_owned()],
            _ => good,
        }
    }

    /// What routers are told, in the words of the announcer's file.
    fn advertised(&self) -> Map<String, Value> {
        self.words(&[
            ("aggregationLength", "aggregation-length"),
            ("aggregationLengthV6", "aggregation-length-v6"),
            ("localPref", "local-pref"),
            ("communities", "communities"),
            ("peers", "peers"),
        ])
    }

    /// A router.
    fn peer(&mut self, is_metallb: bool, mut nodes: Selectors) -> Peer {
        if !is_metallb {
            let own = self.selector("nodeSelector");
            // Both must select a node.
            nodes = match (nodes.selectors.first(), own.selectors.first()) {
                (Some(one), Some(other)) => Selectors {
                    selectors: vec![one.and(other)],
                    broken: nodes.broken || own.broken,
                },
                (one, _) => Selectors {
                    broken: nodes.broken || own.broken,
                    ..if one.is_some() { nodes } else { own }
                },
            };
        }
        let mut words = self.words(&[
            ("peerASN", "peer-asn"),
            ("peerAddress", "peer-address"),
            ("interface", "interface"),
            ("peerPort", "peer-port"),
            ("localASN", "local-asn"),
            ("sourceAddress", "source-address"),
            ("password", "password"),
            ("ebgpMultiHop", "multihop"),
            ("vrf", "vrf"),
            ("enableGracefulRestart", "graceful-restart"),
        ]);
        for (field, key) in [
            ("holdTime", "hold-time"),
            ("keepaliveTime", "keepalive-time"),
            ("connectTime", "connect-time"),
        ] {
            if let Some(time) = self.word(field) {
                words.insert(key.to_owned(), json!(seconds(&time)));
            }
        }
        if let Some(bfd) = self.at("bfd") {
            let mut part = Reader::of(bfd);
            words.insert("bfd".to_owned(), part.bfd());
            self.take_problems("bfd", part);
        }
        self.is_left_out = self.not_followed(
            "dynamicASN",
            "is not followed, and the router is left out; write its number as peerASN",
        );
        if self.at("peerAddress").is_none() {
            let text = "is missing, and the router is left out; an interface alone does not lead to it, write its address";
            self.problem(ProblemKind::BadValue, "peerAddress", text.to_owned());
            self.is_left_out = true;
        }
        let what = "has no effect: a router is told of the addresses of its own family";
        self.not_followed("dualStackAddressFamily", what);
        let secret = self.word("passwordSecret.name").map(|name| Key {
            namespace: self.word("passwordSecret.namespace").unwrap_or_default(),
            name,
        });
        Peer {
            is_metallb,
            name: String::new(),
            nodes,
            my_asn: self.at("myASN").and_then(Value::as_u64),
            router_id: self.word("routerID"),
            profile: self.word("bfdProfile"),
            secret,
            words,
        }
    }

    /// A BFD profile, in the words of the announcer's file.
    fn bfd(&mut self) -> Value {
        let mut words = self.words(&[
            ("detectMultiplier", "detect-multiplier"),
            ("passiveMode", "passive-mode"),
        ]);
        for (field, key) in [
            ("receiveInterval", "receive-interval"),
            ("transmitInterval", "transmit-interval"),
        ] {
            if let Some(time) = self.at(field).and_then(Value::as_u64) {
                words.insert(key.to_owned(), json!(format!("{time}ms")));
            }
        }
        for field in ["echoMode", "echoInterval", "minimumTtl"] {
            self.not_followed(field, "has no effect: BIRD does not have it");
        }
        Value::Object(words)
    }

    /// The fields that are there, under other names.
    fn words(&self, fields: &[(&str, &str)]) -> Map<String, Value> {
        let there = fields.iter().filter_map(|(field, key)| {
            let value = self.at(field)?;
            let is_nothing = value.as_array().is_some_and(Vec::is_empty) || value == "";
            (!is_nothing).then(|| ((*key).to_owned(), value.clone()))
        });
        there.collect()
    }

    fn word(&self, path: &str) -> Option<String> {
        let word = self.at(path)?.as_str()?;
        (!word.is_empty()).then(|| word.to_owned())
    }

    /// Reports a field, if it is there and says something. Returns whether it does.
    fn not_followed(&mut self, path: &str, what: &str) -> bool {
        let is_nothing = |value: &Value| {
            value == false
                || value == ""
                || value.as_array().is_some_and(Vec::is_empty)
                || value.is_null()
        };
        let is_there = self.at(path).is_some_and(|value| !is_nothing(value));
        if is_there {
            self.problem(ProblemKind::BadValue, path, what.to_owned());
        }
        is_there
    }

    /// Takes over the problems of a part at a place.
    fn take_problems(&mut self, at: &str, part: Reader<'_>) {
        for problem in part.problems {
            let place = format!("{at}.{}", problem.at);
            self.problem(problem.kind, &place, problem.text);
        }
    }
}

/// A duration of Kubernetes, such as `1m30s`, in seconds: the announcer's file has one unit. What is no such duration stays as it is,
/// and is refused there.
fn seconds(text: &str) -> String {
    let mut rest = text;
    let mut sum = 0;
    while let Some(end) = rest.find(|letter: char| !letter.is_ascii_digit()) {
        let (number, unit) = rest.split_at(end);
        let length = unit
            .find(|letter: char| letter.is_ascii_digit())
            .unwrap_or(unit.len());
        let (unit, after) = unit.split_at(length);
        let factor = match unit {
            "h" => 3600,
            "m" => 60,
            "s" => 1,
            _ => return text.to_owned(),
        };
        let Some(part) = number
            .parse::<u64>()
            .ok()
            .and_then(|one| one.checked_mul(factor))
        else {
            return text.to_owned();
        };
        sum += part.min(1 << 40);
        rest = after;
    }
    match rest.is_empty() {
        true => format!("{sum}s"),
        false => text.to_owned(),
    }
}

/// A pattern that is the name of no interface.
const NO_INTERFACE: &str = "~none";
