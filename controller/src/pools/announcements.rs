//! How addresses of pools are announced: our `Announcement`, and MetalLB's five kinds beside it. They are read into one form, and what
//! cannot be followed is a problem with the name of its object.

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ballast_announce::file::parse;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::pool::{Announce, Selectors};
use super::read::Reader;
use crate::observe::Key;

/// Everything that objects say about announcing.
#[derive(Debug, Default)]
pub struct Announcements {
    advertisements: Vec<Advertisement>,
    /// Whether MetalLB has advertisements, followed or not, or may have some that cannot be read.
    has_metallb: bool,
    peers: Vec<Peer>,
    /// MetalLB's names of communities.
    communities: BTreeMap<String, String>,
    /// MetalLB's BFDProfiles, in the words of the announcer's file.
    profiles: BTreeMap<String, Value>,
    /// The labels of pools, for selectors: by whether a pool is MetalLB's, and its name.
    labels: BTreeMap<(bool, String), BTreeMap<String, String>>,
    /// What cannot be followed: the object, with the place, the reason and the remedy.
    pub problems: Vec<String>,
}

/// A statement about the addresses of some pools on some nodes.
#[derive(Debug)]
struct Advertisement {
    is_metallb: bool,
    mode: Announce,
    /// All pools, if this is empty, and so are the selectors.
    pools: BTreeSet<String>,
    pool_selectors: Selectors,
    nodes: Selectors,
    /// The interfaces, for l2; empty: any.
    interfaces: Vec<String>,
    /// For bgp, in the words of the announcer's file, but for `communities` by name, and the names of `peers`.
    words: Map<String, Value>,
}

/// The node for which the announcer's file is.
pub struct NodeHere<'a> {
    pub labels: &'a BTreeMap<String, String>,
    /// The id of its router, an IPv4 address; without one, routers must name it.
    pub router_id: Option<String>,
}

/// A router of a node.
struct Router {
    /// The objects that name it: whether each is MetalLB's, and the name there.
    names: Vec<(bool, String)>,
    /// In the words of the announcer's file.
    words: Value,
}

/// The routers of a node, and what they are told of.
#[derive(Debug, Default)]
pub struct Routers {
    /// The part `bgp` of the announcer's file on a node, but for the files of BIRD; `None`: no router is for this node.
    pub bgp: Option<Value>,
    /// The addresses that some router is told of.
    pub told: BTreeSet<IpAddr>,
    pub problems: Vec<String>,
}

/// A router, as an object describes it.
#[derive(Debug)]
struct Peer {
    is_metallb: bool,
    /// Its name in the announcer's file.
    name: String,
    nodes: Selectors,
    my_asn: Option<u64>,
    router_id: Option<String>,
    profile: Option<String>,
    secret: Option<Key>,
    /// In the words of the announcer's file.
    words: Map<String, Value>,
}

/// How the addresses of one pool are announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way<'a> {
    pub mode: Announce,
    /// The advertisements that say it; none: the default.
    by: Vec<&'a Advertisement>,
}

impl PartialEq for Advertisement {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Advertisement {}

impl Way<'_> {
    /// Whether a node may announce them.
    pub fn is_for(&self, node: &BTreeMap<String, String>) -> bool {
        self.by.is_empty() || self.by.iter().any(|one| one.nodes.all_or_any(node))
    }

    /// The interfaces that carry them on a node; empty: any that fits.
    pub fn interfaces(&self, node: &BTreeMap<String, String>) -> Vec<String> {
        let here = self.by.iter().filter(|one| one.nodes.all_or_any(node));
        let here: Vec<_> = here.collect();
        if here.iter().any(|one| one.interfaces.is_empty()) {
            return Vec::new();
        }
        let names: BTreeSet<&String> = here.iter().flat_map(|one| &one.interfaces).collect();
        names.into_iter().cloned().collect()
    }
}

impl Announcements {
    /// Reads the objects. Those of other kinds are pools, of which the labels count. `unread` are the kinds that the API server has and
    /// does not let be read.
    pub fn read<'o>(
        objects: impl IntoIterator<Item = &'o Value>,
        unread: &BTreeMap<&'static str, u16>,
    ) -> Self {
        let mut all = Self::default();
        for kind in ["L2Advertisement", "BGPAdvertisement"] {
            if unread.contains_key(kind) {
                all.has_metallb = true;
                all.problems.push(format!(
                    "{kind}: cannot be read, so what it says of MetalLB's pools is not followed; apply the rights of the component announce"
                ));
            }
        }
        for object in objects {
            let mut reader = Reader::of(object);
            let Some(name) = reader.at("metadata.name").and_then(Value::as_str) else {
                continue;
            };
            let group = object["apiVersion"].as_str().unwrap_or_default();
            let kind = object["kind"].as_str().unwrap_or_default();
            match (group.split('/').next().unwrap_or_default(), kind) {
                ("ballast.dev", "Announcement") => all.announcement(&mut reader, name),
                ("metallb.io", "L2Advertisement") => all.l2(&mut reader),
                ("metallb.io", "BGPAdvertisement") => all.bgp(&mut reader),
                ("metallb.io", "BGPPeer") => all.metallb_peer(&mut reader, name),
                ("metallb.io", "Community") => all.community(&reader),
                ("metallb.io", "BFDProfile") => all.profile(&mut reader, name),
                (group @ ("ballast.dev" | "metallb.io"), "AddressPool" | "IPAddressPool") => {
                    let labels = reader.at("metadata.labels").and_then(Value::as_object);
                    let labels = labels
                        .into_iter()
                        .flatten()
                        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
                    let pool = (group == "metallb.io", name.to_owned());
                    all.labels.insert(pool, labels.collect());
                }
                _ => {}
            }
            let problems = reader.problems.iter();
            all.problems
                .extend(problems.map(|problem| format!("{kind} {name}: {problem}")));
        }
        all
    }

    /// How the addresses of a pool are announced; `None`: nobody announces them, though there are advertisements.
    pub fn way(&self, pool: &str, announce: Announce) -> Option<Way<'_>> {
        let is_metallb = announce == Announce::Advertised;
        let of_system = || {
            let all = self.advertisements.iter();
            all.filter(move |one| one.is_metallb == is_metallb)
        };
        let by = |mode: Announce| -> Vec<&Advertisement> {
            let of_mode = of_system().filter(|one| one.mode == mode);
            of_mode.filter(|one| self.selects(one, pool)).collect()
        };
        match announce {
            Announce::Nobody => None,
            Announce::L2 | Announce::Bgp => Some(Way {
                mode: announce,
                by: by(announce),
            }),
            // One node that answers is what a pool has of which nothing is said.
            Announce::Advertised if !self.has_metallb => Some(Way {
                mode: Announce::L2,
                by: Vec::new(),
            }),
            Announce::Advertised => {
                let ways = [Announce::Bgp, Announce::L2].map(|mode| Way { mode, by: by(mode) });
                ways.into_iter().find(|way| !way.by.is_empty())
            }
        }
    }

    fn selects(&self, one: &Advertisement, pool: &str) -> bool {
        let is_any = one.pools.is_empty() && one.pool_selectors.is_empty();
        let labels = self.labels.get(&(one.is_metallb, pool.to_owned()));
        is_any
            || one.pools.contains(pool)
            || labels.is_some_and(|labels| one.pool_selectors.any(labels))
    }

    /// Whether some of them are about routers.
    pub fn has_routers(&self) -> bool {
        let mut all = self.advertisements.iter();
        all.any(|one| one.mode == Announce::Bgp)
    }

    /// The routers of a node, and what they are told. A router or an advertisement that the announcer would refuse is left out, and
    /// reported.
    pub fn routers(
        &self,
        node: &NodeHere<'_>,
        pools: &[(Way<'_>, Vec<IpAddr>)],
        password: impl Fn(&Key) -> Option<String>,
    ) -> Routers {
        let of_node = self
            .peers
            .iter()
            .filter(|one| one.nodes.all_or_any(node.labels));
        let of_node: Vec<&Peer> = of_node.collect();
        let my_asn = of_node.iter().find_map(|peer| peer.my_asn);
        let of_peer = of_node.iter().find_map(|peer| peer.router_id.clone());
        let router_id = node.router_id.clone().or(of_peer);
        let bgp =
            |peers: &[Value]| json!({"router-id": router_id, "my-asn": my_asn, "peers": peers});
        let mut problems = Vec::new();
        let here = self.here(&of_node, bgp, my_asn, &password, &mut problems);
        let mut told = BTreeSet::new();
        if here.is_empty() {
            let bgp = None;
            return Routers {
                bgp,
                told,
                problems,
            };
        }
        let peers: Vec<Value> = here.iter().map(|router| router.words.clone()).collect();
        let mut bgp = bgp(&peers);
        let mut accepted: Vec<Value> = Vec::new();
        // The same with one address of each: advertisements contradict each other for all addresses of a pool, or for none.
        let mut tested: Vec<Value> = Vec::new();
        for (way, addresses) in pools {
            let before = accepted.len();
            for mut one in self.told(way, node.labels, &here) {
                one.insert("addresses".to_owned(), json!(addresses.get(..1)));
                tested.push(Value::Object(one.clone()));
                let mut with = bgp.clone();
                with["advertisements"] = json!(tested);
                if let Some(why) = refusal(with) {
                    tested.pop();
                    problems.push(format!("an advertisement: {why}"));
                    continue;
                }
                one.insert("addresses".to_owned(), json!(addresses));
                accepted.push(Value::Object(one));
            }
            if accepted.len() > before {
                told.extend(addresses);
            } else {
                problems.push(format!(
                    "{} told to no router by this node: what is said of them names routers that are not for it, or is left out",
                    are(addresses.len())
                ));
            }
        }
        if !accepted.is_empty() {
            bgp["advertisements"] = json!(accepted);
        }
        Routers {
            bgp: Some(bgp),
            told,
            problems,
        }
    }

    /// The routers that the announcer takes, each once.
    fn here(
        &self,
        of_node: &[&Peer],
        bgp: impl Fn(&[Value]) -> Value,
        my_asn: Option<u64>,
        password: &impl Fn(&Key) -> Option<String>,
        problems: &mut Vec<String>,
    ) -> Vec<Router> {
        let mut here: Vec<Router> = Vec::new();
        for peer in of_node {
            let Some(words) = self.router(peer, my_asn, password, problems) else {
                continue;
            };
            let name = (peer.is_metallb, peer.name.clone());
            if let Some(same) = here.iter_mut().find(|one| is_same(&one.words, &words)) {
                if differs(&same.words, &words) {
                    problems.push(format!(
                        "router {}: is described otherwise as {}, and that description counts; write the same in both",
                        peer.name, same.words["name"]
                    ));
                }
                same.names.push(name);
                continue;
            }
            let mut all: Vec<Value> = here.iter().map(|one| one.words.clone()).collect();
            all.push(words.clone());
            match refusal(bgp(&all)) {
                Some(why) => problems.push(format!("router {}: {why}", peer.name)),
                None => here.push(Router {
                    names: vec![name],
                    words,
                }),
            }
        }
        here
    }

    /// A router, in the words of the announcer's file; `None`: its password is not known.
    fn router(
        &self,
        peer: &Peer,
        my_asn: Option<u64>,
        password: impl Fn(&Key) -> Option<String>,
        problems: &mut Vec<String>,
    ) -> Option<Value> {
        let mut words = peer.words.clone();
        words.insert("name".to_owned(), json!(peer.name));
        if let Some(asn) = peer.my_asn.filter(|asn| Some(*asn) != my_asn) {
            words.entry("local-asn").or_insert_with(|| json!(asn));
        }
        if let Some(id) = &peer.router_id {
            words.insert("router-id".to_owned(), json!(id));
        }
        if let Some(profile) = &peer.profile {
            match self.profiles.get(profile) {
                Some(bfd) => drop(words.insert("bfd".to_owned(), bfd.clone())),
                None => problems.push(format!(
                    "router {}: there is no BFDProfile {profile}, so it is followed without BFD; make one of that name",
                    peer.name
                )),
            }
        }
        if let Some(secret) = &peer.secret {
            words.insert("password".to_owned(), json!(password(secret)?));
        }
        Some(Value::Object(words))
    }

    /// What the routers of a node are told of the addresses of a pool.
    fn told(
        &self,
        way: &Way<'_>,
        node: &BTreeMap<String, String>,
        routers: &[Router],
    ) -> Vec<Map<String, Value>> {
        if way.by.is_empty() {
            return vec![Map::new()];
        }
        let here = way.by.iter().filter(|one| one.nodes.all_or_any(node));
        let told = here.filter_map(|one| {
            let mut words = one.words.clone();
            let listed = words.get("peers").and_then(Value::as_array);
            let is_listed = |name: &str| {
                listed.is_none_or(|listed| {
                    let mut listed = listed.iter().filter_map(Value::as_str);
                    listed.any(|one| short(one) == name)
                })
            };
            let is_meant = |router: &&Router| {
                let mut names = router.names.iter();
                names.any(|(of, name)| *of == one.is_metallb && is_listed(name))
            };
            let meant = routers.iter().filter(is_meant);
            let peers: Vec<Value> = meant.map(|one| one.words["name"].clone()).collect();
            // None of its routers is for this node.
            if peers.is_empty() {
                return None;
            }
            words.insert("peers".to_owned(), json!(peers));
            let communities = words.get_mut("communities").and_then(Value::as_array_mut);
            for one in communities.into_iter().flatten() {
                let known = one.as_str().and_then(|name| self.communities.get(name));
                if let Some(value) = known {
                    *one = json!(value);
                }
            }
            Some(words)
        });
        told.collect()
    }

    /// The Secrets with passwords of routers.
    pub fn secrets(&self) -> impl Iterator<Item = &Key> {
        self.peers.iter().filter_map(|peer| peer.secret.as_ref())
    }
}

/// Whether two descriptions are of one session: a router takes one from each address.
fn is_same(one: &Value, other: &Value) -> bool {
    let parts = [
        "peer-address",
        "peer-port",
        "interface",
        "vrf",
        "source-address",
    ];
    parts.iter().all(|part| one.get(part) == other.get(part))
}

/// Whether two descriptions of one router say something else, but for its name.
fn differs(one: &Value, other: &Value) -> bool {
    let [mut one, other] = [one, other].map(Clone::clone);
    one["name"] = other["name"].clone();
    one != other
}

/// A number of addresses, in words.
/// So many addresses, and their verb.
pub(crate) fn are(count: usize) -> String {
    match count {
        1 => "1 address is".to_owned(),
        count => format!("{count} addresses are"),
    }
}

/// Why the announcer would refuse this part of its file.
fn refusal(mut bgp: Value) -> Option<String> {
    bgp["bird"] = json!({"config": "bird.conf", "socket": "bird.ctl"});
    let file = json!({"version": 1, "node": "a", "bgp": bgp});
    let problems = parse(file.to_string().as_bytes()).err()?;
    problems.first().map(ToString::to_string)
}

/// A name of a router that the announcer's file may have: a long one is cut, and a hash tells it from others.
fn short(name: &str) -> String {
    let Some(beginning) = name.get(..LONGEST).filter(|_| name.len() > LONGEST) else {
        return name.to_owned();
    };
    let beginning = beginning.get(..LONGEST - 9).unwrap_or(beginning);
    let hash = Sha256::digest(name);
    let hash: String = hash
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{beginning}-{hash}")
}

/// The longest name of a router.
const LONGEST: usize = 48;
