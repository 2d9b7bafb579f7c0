//! The names of Leases, and the annotations by which a node's Lease says what that node serves.
//!
//! Written by `node::lease` and `cluster::leader`, read by `observe`, compared by `decide`.
//!
//! # What is served, in buckets
//!
//! Every frontend belongs to an owner: what its name says before the port. All ports of one Service have one owner. What an
//! owner listens at on a node is one number ([`Binds`]). Owners are spread over [`BUCKETS`] buckets by their names, and a bucket
//! is the sum of its owners' numbers. A node reports all buckets, and the numbers of the owners that changed recently: so a
//! Service is known to be served when its own number is reported, or its whole bucket is as expected, whatever happens to other
//! Services meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The Lease of the publisher that leads.
pub(crate) const LEADER: &str = "ballast-leader";
/// The annotation with [`Served`].
pub(crate) const SERVED: &str = "ballast.dev/served";
/// The annotation with [`Exceptions`], as JSON.
pub(crate) const EXCEPTIONS: &str = "ballast.dev/exceptions";
/// The annotation with a hash of the settings by which ports are given to Services.
pub(crate) const SETTINGS: &str = "ballast.dev/settings";
/// The annotation with [`OwnPorts`].
pub(crate) const PORTS: &str = "ballast.dev/ports";
/// The annotation with the publisher's [`SETTINGS`], on the Lease of a node that had others. The publisher writes it.
pub(crate) const PUBLISHER_SETTINGS: &str = "ballast.dev/publisher-settings";
/// The label that says whose Lease it is.
pub(crate) const ROLE: &str = "ballast.dev/role";
/// The value of [`ROLE`] in a node's Lease.
pub(crate) const NODE: &str = "node";

/// How many buckets owners are spread over.
pub const BUCKETS: usize = 64;

/// What every owner listens at on one node, as one number each.
pub type Binds = BTreeMap<String, u64>;

/// The number of an owner that listens at these: lines of a frontend's name and a bind.
pub fn number(mut lines: Vec<String>) -> u64 {
    lines.sort();
    let mut hasher = Sha256::new();
    for line in lines {
        hasher.update(line);
        hasher.update("\n");
    }
    first_eight(&hasher.finalize())
}

pub fn owner(frontend: &str) -> &str {
    let parts = frontend.rsplit_once(':');
    parts.map_or(frontend, |(owner, _)| owner)
}

pub fn bucket_of(owner: &str) -> usize {
    let hash = first_eight(&Sha256::digest(owner));
    usize::try_from(hash % BUCKETS as u64).unwrap_or_default()
}

fn first_eight(hash: &[u8]) -> u64 {
    let bytes = hash.first_chunk::<8>().copied().unwrap_or_default();
    u64::from_be_bytes(bytes)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets([u64; BUCKETS]);

impl Default for Buckets {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Buckets {
    /// The sums of the numbers of these owners.
    pub fn of(binds: &Binds) -> Self {
        let mut buckets = Self::default();
        for (owner, number) in binds {
            buckets.add(owner, *number);
        }
        buckets
    }

    /// Adds the number of one more owner.
    pub fn add(&mut self, owner: &str, number: u64) {
        if let Some(bucket) = self.0.get_mut(bucket_of(owner)) {
            *bucket = bucket.wrapping_add(number);
        }
    }

    /// The bucket that an owner is in.
    pub fn of_owner(&self, owner: &str) -> u64 {
        self.0.get(bucket_of(owner)).copied().unwrap_or_default()
    }
}

/// What a node says that it serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// `None`: nothing is known, and nothing is published by it.
    pub buckets: Option<Buckets>,
    /// The numbers of owners that changed recently.
    pub recent: BTreeSet<u64>,
}

impl Served {
    /// A node that serves these, and nothing of it changed recently.
    pub fn of(binds: &Binds) -> Self {
        Self {
            buckets: Some(Buckets::of(binds)),
            recent: BTreeSet::new(),
        }
    }

    /// Adds to the bucket of an owner, if the buckets are known.
    fn add(&mut self, owner: &str, number: u64) {
        if let Some(buckets) = &mut self.buckets {
            buckets.add(owner, number);
        }
    }

    /// Whether it says that an owner listens as expected: at what has this `number`, in a bucket that is `expected`.
    pub fn confirms(&self, owner: &str, number: Option<u64>, expected: &Buckets) -> bool {
        let of_bucket = |buckets: Buckets| buckets.of_owner(owner) == expected.of_owner(owner);
        self.buckets.is_some_and(of_bucket) || number.is_some_and(|it| self.recent.contains(&it))
    }

    /// What an annotation says; nothing where it cannot be read.
    pub fn read(text: &str) -> Self {
        let mut words = text.split_ascii_whitespace();
        let buckets = words.next().and_then(|word| {
            let mut buckets = Buckets::default();
            if word.len() != BUCKETS * DIGITS {
                return None;
            }
            for (index, bucket) in buckets.0.iter_mut().enumerate() {
                let digits = word.get(index * DIGITS..(index + 1) * DIGITS)?;
                *bucket = u64::from_str_radix(digits, 16).ok()?;
            }
            Some(buckets)
        });
        let recent = words.filter_map(|word| u64::from_str_radix(word, 16).ok());
        Self {
            recent: buckets.map_or_else(BTreeSet::new, |_| recent.take(MOST_RECENT).collect()),
            buckets,
        }
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(buckets) = &self.buckets else {
            return Ok(());
        };
        for bucket in buckets.0 {
            write!(f, "{bucket:016x}")?;
        }
        for number in &self.recent {
            write!(f, " {number:016x}")?;
        }
        Ok(())
    }
}

/// The TCP ports that a node keeps for itself, and the use of each: `stats=1936,controller=1937`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnPorts(BTreeMap<u16, String>);

impl OwnPorts {
    /// These ports, each with its use.
    pub fn of<'a>(ports: impl IntoIterator<Item = (&'a str, u16)>) -> Self {
        let ports = ports.into_iter();
        Self(ports.map(|(what, port)| (port, what.to_owned())).collect())
    }

    /// What an annotation says; nothing where it cannot be read.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let entries = text.split(',').filter_map(|entry| entry.split_once('='));
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        let entries = entries.filter(|(what, _)| {
            (1..=LONGEST_USE).contains(&what.len()) && what.bytes().all(is_letter)
        });
        let entries = entries.filter_map(|(what, port)| Some((what, port.parse().ok()?)));
        Self::of(entries.take(MOST_OWN_PORTS))
    }

    /// The use of a port, if the node keeps it.
    #[must_use]
    pub fn get(&self, port: u16) -> Option<&str> {
        self.0.get(&port).map(String::as_str)
    }
}

impl fmt::Display for OwnPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (port, what)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{what}={port}")?;
        }
        Ok(())
    }
}

/// What a node alone knows, and the publisher has to know: what is not served there as decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exceptions {
    /// By Service, as `NAMESPACE/NAME`.
    #[serde(skip_serializing_if = "is_default")]
    pub services: BTreeMap<String, Exception>,
    /// About the node itself.
    #[serde(skip_serializing_if = "is_default")]
    pub node: Vec<Message>,
    /// How many Services have messages, or exceptions, that found no place here.
    #[serde(skip_serializing_if = "is_default")]
    pub more: usize,
}

/// What a node says about one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exception {
    /// A port of it does not listen there as it should.
    #[serde(skip_serializing_if = "is_default")]
    pub closed: bool,
    /// The Service is for endpoints on the node itself, and none of these is ready.
    #[serde(skip_serializing_if = "is_default")]
    pub idle: bool,
    /// Events to write.
    #[serde(skip_serializing_if = "is_default")]
    pub messages: Vec<Message>,
}

/// An event that a node wants to have written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Message {
    /// Whether it is a Warning.
    #[serde(default)]
    pub warning: bool,
    pub reason: String,
    pub text: String,
}

impl Exceptions {
    /// What an annotation says; nothing where it cannot be read.
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// As JSON of at most [`LARGEST`] bytes.
    pub(crate) fn write(mut self, served: &mut Served) -> String {
        if size_of(&self) > LARGEST {
            self.shorten(served);
        }
        if self == Self::default() {
            return String::new();
        }
        serde_json::to_string(&self).unwrap_or_default()
    }

    /// Leaves out what finds no place: the messages of Services first, because other Services do not suffer from that. The bucket of
    /// a Service that is left out altogether says nothing any more: an address is never published by an exception that was left out.
    fn shorten(&mut self, served: &mut Served) {
        let mut left = LARGEST.saturating_sub(size_of(&self.node) + ROOM);
        self.services.retain(|service, exception| {
            let bare = Exception {
                messages: Vec::new(),
                ..*exception
            };
            if is_default(&bare) {
                return true;
            }
            let size = size_of(&bare) + service.len() + BETWEEN;
            let fits = size <= left;
            match fits {
                true => left -= size,
                false => {
                    self.more += 1;
                    // One more than it is, which no publisher expects.
                    served.add(&service.replacen('/', ".", 1), 1);
                }
            }
            fits
        });
        let with_messages = self.services.iter_mut();
        for (service, exception) in with_messages.filter(|(_, one)| !one.messages.is_empty()) {
            let size = size_of(&exception.messages) + service.len() + BETWEEN;
            match size <= left {
                true => left -= size,
                false => {
                    self.more += 1;
                    exception.messages.clear();
                }
            }
        }
        self.services.retain(|_, exception| !is_default(exception));
        self.node.push(Message {
            warning: true,
            reason: UNSERVED.to_owned(),
            text: format!(
                "the warnings of {} Services find no place in this node's Lease: `ballast-controller plan` with the flags of this node lists them",
                self.more
            ),
        });
    }
}

fn size_of(part: &impl Serialize) -> usize {
    serde_json::to_string(part).map_or(usize::MAX / 2, |text| text.len())
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A hash of settings, in hex.
pub(crate) fn hash_of_settings(text: &str) -> String {
    format!("{:016x}", first_eight(&Sha256::digest(text)))
}

pub(crate) fn of_node(node: &str) -> String {
    match format!("{PREFIX}{node}") {
        // A node may have any name, this one as well.
        taken if taken == LEADER => NODE_LEADER.to_owned(),
        name if name.len() > LONGEST => shortened(&name),
        name => name,
    }
}

/// The node whose Lease has this name, if it is a node's. The name alone does not tell a node whose name had to be shortened;
/// the holder of that Lease does.
pub(crate) fn node_of<'a>(lease: &'a str, holder: Option<&'a str>) -> Option<&'a str> {
    match lease {
        LEADER => None,
        NODE_LEADER => LEADER.strip_prefix(PREFIX),
        name => {
            let holder = holder.filter(|node| name.len() > SHORTENED && of_node(node) == name);
            holder.or_else(|| name.strip_prefix(PREFIX))
        }
    }
}

/// A name that is too long for an object: its beginning and a hash of the whole.
pub(crate) fn shortened(name: &str) -> String {
    // Node names are ASCII.
    let beginning = name.get(..SHORTENED).unwrap_or_default();
    // A dash may not follow a dot.
    let mut shortened = format!("{}-", beginning.trim_end_matches(['.', '-']));
    for byte in Sha256::digest(name).iter().take(HASHED) {
        // A String takes everything.
        _ = write!(shortened, "{byte:02x}");
    }
    shortened
}

const PREFIX: &str = "ballast-";
const NODE_LEADER: &str = "ballast.leader";
/// Of a number in hex.
const DIGITS: usize = 16;
/// Numbers of owners in one Lease.
pub(crate) const MOST_RECENT: usize = 512;
/// Bytes of exceptions in one Lease.
const LARGEST: usize = 64 << 10;
/// Of these, the bytes that are not messages or Services: the names of the parts, and the message about what was left out.
const ROOM: usize = 512;
/// The bytes between the parts of a Service: quotes, braces and the names of the parts.
const BETWEEN: usize = 20;
/// The reason that cloud controllers use for an event about what is not served.
pub(crate) const UNSERVED: &str = "SyncLoadBalancerFailed";
/// Ports in the annotation [`PORTS`], and the bytes of the use of one.
const MOST_OWN_PORTS: usize = 8;
const LONGEST_USE: usize = 20;
/// The most bytes that the name of an object has; the name of a Node may have as many.
const LONGEST: usize = 253;
/// How much of a name that is too long stays, in bytes.
const SHORTENED: usize = 180;
/// Bytes of the hash.
const HASHED: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn binds(owners: &[(&str, u64)]) -> Binds {
        let owners = owners.iter();
        let binds = owners.map(|(owner, number)| ((*owner).to_owned(), *number));
        binds.collect()
    }

    #[test]
    fn every_node_has_a_lease_of_its_own_and_none_is_the_leaders() {
        for node in ["edge-1", "leader", "leader.example.com", "a.b"] {
            let lease = of_node(node);
            assert_ne!(lease, LEADER, "{node}");
            for holder in [None, Some(""), Some(node), Some("another")] {
                assert_eq!(node_of(&lease, holder), Some(node));
            }
        }
        for other in [LEADER, "kube-scheduler", "ballast", "ballast.other"] {
            assert_eq!(node_of(other, None), None, "{other}");
        }
    }

    #[test]
    fn ports_of_one_service_have_one_owner() {
        assert_eq!(owner("shop.web:80"), "shop.web");
        assert_eq!(owner("shop.web:53-udp"), "shop.web");
        assert_eq!(owner("http"), "http");
    }

    #[test]
    fn a_service_is_confirmed_by_its_bucket_or_by_its_own_number() {
        let expected = Buckets::of(&binds(&[("shop.a", 7), ("shop.b", 9)]));
        let as_expected = Served::of(&binds(&[("shop.b", 9), ("shop.a", 7)]));
        assert!(as_expected.confirms("shop.a", Some(7), &expected));
        // Another owner of the bucket is another one meanwhile.
        let neighbour = (0..).map(|number| format!("shop.n{number}"));
        let is_near = |name: &String| bucket_of(name) == bucket_of("shop.a");
        let neighbour = neighbour.into_iter().find(is_near).unwrap();
        let mut moved = Served::of(&binds(&[("shop.a", 7), ("shop.b", 9), (&neighbour, 1)]));
        assert!(!moved.confirms("shop.a", Some(7), &expected));
        moved.recent.insert(7);
        assert!(moved.confirms("shop.a", Some(7), &expected));
        assert!(!moved.confirms("shop.a", Some(8), &expected));
        assert!(!Served::default().confirms("shop.a", Some(0), &Buckets::default()));
    }

    #[test]
    fn what_is_served_is_read_as_it_was_written() {
        let mut served = Served::of(&binds(&[("shop.a", u64::MAX), ("shop.b", 1)]));
        assert_eq!(Served::read(&served.to_string()), served);
        served.recent.extend([1, u64::MAX]);
        assert_eq!(Served::read(&served.to_string()), served);
        assert_eq!(Served::default().to_string(), "");
        for bad in ["", "abc", "0 1", &"g".repeat(BUCKETS * DIGITS)] {
            assert_eq!(Served::read(bad), Served::default(), "{bad}");
        }
    }

    #[test]
    fn own_ports_are_read_as_they_were_written() {
        let ports = OwnPorts::of([("stats", 1936), ("controller", 5000)]);
        assert_eq!(ports.to_string(), "stats=1936,controller=5000");
        assert_eq!(OwnPorts::read(&ports.to_string()), ports);
        assert_eq!(ports.get(5000), Some("controller"));
        assert_eq!(ports.get(80), None);
        for bad in ["", "80", "=80", "stats=x", "stats=70000", "St ats=80"] {
            assert_eq!(OwnPorts::read(bad), OwnPorts::default(), "{bad}");
        }
        let many = (1..1000_u16).map(|port| format!("a={port}"));
        let many = many.collect::<Vec<_>>().join(",");
        assert_eq!(OwnPorts::read(&many).0.len(), MOST_OWN_PORTS);
    }

    /// So many closed Services, each with a message of 1,000 bytes, as a publisher reads them, and what is served beside them.
    fn read_of_closed(count: usize) -> (Exceptions, Served) {
        let exception = Exception {
            closed: true,
            messages: vec![Message {
                warning: true,
                reason: "R".to_owned(),
                text: "x".repeat(1000),
            }],
            ..Exception::default()
        };
        let services = (0..count).map(|number| (format!("shop/s{number:05}"), exception.clone()));
        let all = Exceptions {
            services: services.collect(),
            ..Exceptions::default()
        };
        let mut served = Served::of(&Binds::new());
        let text = all.write(&mut served);
        assert!(text.len() <= LARGEST, "{} bytes", text.len());
        (Exceptions::read(&text), served)
    }

    #[test]
    fn messages_that_find_no_place_do_not_concern_other_services() {
        let (few, served) = read_of_closed(10);
        assert_eq!((few.more, few.node.len()), (0, 0));
        assert_eq!(served, Served::of(&Binds::new()));
        let (read, served) = read_of_closed(500);
        assert_eq!(read.services.len(), 500);
        assert!(read.services.values().all(|service| service.closed));
        let told = read.services.values();
        let told = told.filter(|service| !service.messages.is_empty()).count();
        assert!(told > 30, "{told}");
        assert_eq!(told + read.more, 500);
        assert_eq!(served, Served::of(&Binds::new()), "every bucket holds");
        let text = &read.node[0].text;
        assert!(
            text.contains(&format!("of {} Services", read.more)),
            "{text}"
        );
    }

    #[test]
    fn exceptions_that_find_no_place_spoil_the_bucket_of_their_service() {
        let (read, served) = read_of_closed(3000);
        assert!(read.services.len() > 1000, "{}", read.services.len());
        assert_eq!(read.more, 3000);
        let expected = Buckets::default();
        assert!(!served.confirms("shop.s02999", None, &expected));
        let mut served = Served::of(&Binds::new());
        assert_eq!(Exceptions::default().write(&mut served), "");
    }

    #[test]
    fn a_service_that_is_served_and_has_a_message_without_place_is_no_exception() {
        let messages = vec![Message {
            warning: true,
            reason: "R".to_owned(),
            text: "x".repeat(LARGEST),
        }];
        let exception = Exception {
            messages,
            ..Exception::default()
        };
        let all = Exceptions {
            services: [("shop/web".to_owned(), exception)].into(),
            ..Exceptions::default()
        };
        let mut served = Served::of(&Binds::new());
        let read = Exceptions::read(&all.write(&mut served));
        assert_eq!((read.services.len(), read.more), (0, 1));
        assert_eq!(served, Served::of(&Binds::new()));
    }

    #[test]
    fn a_node_with_a_name_of_any_length_has_a_lease() {
        let node = |last: &str| format!("{}{last}", "a.".repeat(125));
        let names = [node("b"), node("c"), "x".repeat(253), "x".repeat(245)];
        let mut seen = Vec::new();
        for node in &names {
            let lease = of_node(node);
            assert!(lease.len() <= 253, "{} bytes", lease.len());
            let is_label =
                |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
            assert!(lease.split('.').all(is_label), "{lease}");
            assert_eq!(node_of(&lease, Some(node)), Some(&**node));
            assert!(!seen.contains(&lease), "{lease}");
            seen.push(lease);
        }
        assert_eq!(
            of_node(&"x".repeat(245)).len(),
            253,
            "as it is, while it fits"
        );
    }
}
