//! Reads pools and reservations from Kubernetes' objects. A part that cannot be read is a [`Problem`], and takes no other part away.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use serde_json::Value;

use super::pool::{Announce, Listed, Pool, Problem, ProblemKind, Selectors, Source};
use super::range::AddressRange;
use crate::observe::{Family, Key};
use crate::settings::Selector;

/// Reads an AddressPool, an IPAddressPool or an ExternalIPPool; `None`: the object is of another kind, or has no name.
pub fn pool(object: &Value) -> Option<Pool> {
    let source = source(object)?;
    let mut reader = Reader::of(object);
    let mut pool = reader.common(source)?;
    match source {
        Source::Ballast => reader.ballast(&mut pool),
        Source::MetalLb => reader.metallb(&mut pool),
        Source::Antrea => reader.antrea(&mut pool),
    }
    if pool.ranges.is_empty() && reader.problems.is_empty() {
        let at = match source {
            Source::Antrea => "spec.ipRanges",
            _ => "spec.addresses",
        };
        let text = "pool has no prefixes defined; add a range such as 192.0.2.0/26";
        reader.problem(ProblemKind::NoRanges, at, text.to_owned());
    }
    pool.problems = reader.problems;
    Some(pool)
}

/// Addresses that are kept for the Service of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub service: Key,
    pub created: Option<i64>,
    pub addresses: Vec<IpAddr>,
}

/// Reads an AddressReservation; `None`: the object is of another kind, or has no name. Addresses that cannot be read are left out:
/// the API server takes none.
pub fn reservation(object: &Value) -> Option<Reservation> {
    let is = ("ballast.dev/v1", "AddressReservation");
    if (object["apiVersion"].as_str()?, object["kind"].as_str()?) != is {
        return None;
    }
    let addresses = object.pointer("/spec/addresses").and_then(Value::as_array);
    let addresses = addresses.into_iter().flatten().filter_map(Value::as_str);
    let addresses = addresses.filter_map(|text| text.parse::<IpAddr>().ok());
    let namespace = object.pointer("/metadata/namespace");
    let namespace = namespace.and_then(Value::as_str).unwrap_or("default");
    Some(Reservation {
        service: Key::new(namespace, object.pointer("/metadata/name")?.as_str()?),
        created: created(object),
        addresses: addresses.map(|address| address.to_canonical()).collect(),
    })
}

fn source(object: &Value) -> Option<Source> {
    match (object["apiVersion"].as_str()?, object["kind"].as_str()?) {
        ("ballast.dev/v1", "AddressPool") => Some(Source::Ballast),
        ("metallb.io/v1beta1", "IPAddressPool") => Some(Source::MetalLb),
        ("crd.antrea.io/v1beta1", "ExternalIPPool") => Some(Source::Antrea),
        _ => None,
    }
}

fn created(object: &Value) -> Option<i64> {
    let time = object.pointer("/metadata/creationTimestamp")?;
    let time: Time = serde_json::from_value(time.clone()).ok()?;
    Some(time.0.as_second())
}

/// Reads the parts of an object, and notes what is wrong with them.
pub(super) struct Reader<'a> {
    object: &'a Value,
    pub(super) problems: Vec<Problem>,
    /// Whether the object is not used, because of a problem.
    pub(super) is_left_out: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn of(object: &'a Value) -> Self {
        Self {
            object,
            problems: Vec::new(),
            is_left_out: false,
        }
    }

    /// A pool with what every kind has, and the defaults of the rest.
    fn common(&self, source: Source) -> Option<Pool> {
        Some(Pool {
            name: self.at("metadata.name")?.as_str()?.to_owned(),
            source,
            created: created(self.object),
            ranges: Vec::new(),
            reserve: Vec::new(),
            auto_assign: true,
            priority: None,
            avoid_buggy: false,
            namespaces: BTreeSet::new(),
            namespace_selectors: Selectors::default(),
            service_selectors: Selectors::default(),
            node_selectors: Selectors::default(),
            internal: self
                .object
                .pointer("/metadata/labels/ballast.dev~1internal")
                .is_some_and(|value| value == "true"),
            announce: match source {
                Source::MetalLb => Announce::Advertised,
                Source::Ballast | Source::Antrea => Announce::L2,
            },
            problems: Vec::new(),
        })
    }

    fn ballast(&mut self, pool: &mut Pool) {
        pool.ranges = self.ranges("spec.addresses");
        for (at, text) in self.texts("spec.reserve") {
            match AddressRange::parse(text) {
                Ok(range) => pool.reserve.push(range),
                Err(why) => self.problem(ProblemKind::BadRange, &at, format!("{text:?} {why}")),
            }
        }
        pool.auto_assign = self.flag("spec.autoAssign", true);
        pool.priority = self.priority("spec.priority");
        pool.avoid_buggy = self.flag("spec.avoidBuggyIPs", false);
        pool.namespaces = self.names("spec.namespaces");
        pool.namespace_selectors = self.selector("spec.namespaceSelector");
        pool.service_selectors = self.selector("spec.serviceSelector");
        pool.node_selectors = self.selector("spec.nodeSelector");
        pool.announce = self.announce("spec.announce.mode");
    }

    /// The namespace of an IPAddressPool is MetalLB's own, and says nothing about who may use it.
    fn metallb(&mut self, pool: &mut Pool) {
        pool.ranges = self.ranges("spec.addresses");
        pool.auto_assign = self.flag("spec.autoAssign", true);
        pool.avoid_buggy = self.flag("spec.avoidBuggyIPs", false);
        pool.priority = self.priority("spec.serviceAllocation.priority");
        pool.namespaces = self.names("spec.serviceAllocation.namespaces");
        pool.namespace_selectors = self.selectors("spec.serviceAllocation.namespaceSelectors");
        pool.service_selectors = self.selectors("spec.serviceAllocation.serviceSelectors");
    }

    /// An ExternalIPPool gives to Services that name it only: it also has the addresses of Egress.
    fn antrea(&mut self, pool: &mut Pool) {
        pool.auto_assign = false;
        pool.node_selectors = self.selector("spec.nodeSelector");
        for (index, one) in self.list("spec.ipRanges").iter().enumerate() {
            let at = format!("spec.ipRanges[{index}]");
            let word = |name: &str| one[name].as_str();
            let (text, range, is_cidr) = match (word("cidr"), word("start"), word("end")) {
                (Some(cidr), _, _) => (cidr.to_owned(), AddressRange::from_cidr(cidr), true),
                (None, Some(start), Some(end)) => {
                    let range = AddressRange::from_ends(start, end);
                    (format!("{start}-{end}"), range, false)
                }
                _ => {
                    let text = "has neither cidr nor start and end; write one of the two";
                    self.problem(ProblemKind::BadRange, &at, text.to_owned());
                    continue;
                }
            };
            pool.ranges.extend(self.listed(at, text, range, is_cidr));
        }
    }

    fn ranges(&mut self, path: &str) -> Vec<Listed> {
        let texts = self.texts(path).into_iter();
        let ranges = texts.filter_map(|(at, text)| {
            let range = match text.contains(['/', '-']) {
                true => AddressRange::parse(text),
                false => Err(
                    "is no range; write a CIDR or IP-IP, for one address IP/32 or IP/128"
                        .to_owned(),
                ),
            };
            self.listed(at, text.to_owned(), range, false)
        });
        ranges.collect()
    }

    fn listed(
        &mut self,
        at: String,
        text: String,
        range: Result<AddressRange, String>,
        without_ends: bool,
    ) -> Option<Listed> {
        let range = range.and_then(|range| match is_usable(range) {
            true => Ok(range),
            false => Err("has addresses that no host can hold (unspecified, link-local or multicast); leave them out".to_owned()),
        });
        match range {
            Ok(range) => Some(Listed {
                given: match without_ends {
                    true => range.without_ends(),
                    false => Some(range),
                },
                at,
                text,
                range,
            }),
            Err(why) => {
                self.problem(ProblemKind::BadRange, &at, format!("{text:?} {why}"));
                None
            }
        }
    }

    /// One selector. An empty one restricts nothing.
    pub(super) fn selector(&mut self, path: &str) -> Selectors {
        let mut selectors = Selectors::default();
        if let Some(value) = self.at(path)
            && value.as_object().is_none_or(|object| !object.is_empty())
        {
            self.add_selector(&mut selectors, path, value);
        }
        selectors
    }

    /// A list of them, of which an empty one selects everything, as everywhere in Kubernetes.
    pub(super) fn selectors(&mut self, path: &str) -> Selectors {
        let mut selectors = Selectors::default();
        for (index, value) in self.list(path).iter().enumerate() {
            self.add_selector(&mut selectors, &format!("{path}[{index}]"), value);
        }
        selectors
    }

    fn add_selector(&mut self, selectors: &mut Selectors, at: &str, value: &Value) {
        let read = serde_json::from_value::<LabelSelector>(value.clone());
        let read = read.map_err(|error| error.to_string());
        match read.and_then(Selector::try_from) {
            Ok(selector) => selectors.selectors.push(selector),
            Err(why) => {
                selectors.broken = true;
                let text = format!(
                    "is no label selector, and selects nothing: {why}; write matchLabels or matchExpressions"
                );
                self.problem(ProblemKind::BadSelector, at, text);
            }
        }
    }

    fn announce(&mut self, path: &str) -> Announce {
        let word = self
            .at(path)
            .map(|value| value.as_str().unwrap_or_default());
        match word.map(Announce::read) {
            None => Announce::L2,
            // It is a word of what Services were given, and none of a pool.
            Some(Some(mode)) if mode != Announce::Advertised => mode,
            Some(_) => {
                let text = "is no mode, so l2 is used; write l2, bgp or none";
                self.problem(ProblemKind::BadValue, path, text.to_owned());
                Announce::L2
            }
        }
    }

    /// 0 is no priority, as in MetalLB.
    fn priority(&mut self, path: &str) -> Option<u32> {
        let value = self.at(path)?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        if number.is_none() {
            let text = "is no priority, so the pool comes last; write a number from 1";
            self.problem(ProblemKind::BadValue, path, text.to_owned());
        }
        number.filter(|number| *number > 0)
    }

    fn flag(&mut self, path: &str, default: bool) -> bool {
        match self.at(path).map(Value::as_bool) {
            None => default,
            Some(Some(flag)) => flag,
            Some(None) => {
                let text = format!(
                    "is neither true nor false, so {default} is used; write one of the two"
                );
                self.problem(ProblemKind::BadValue, path, text);
                default
            }
        }
    }

    /// The names of a list. What is no text stays as a name that nothing has, so that the list does not become empty.
    pub(super) fn names(&mut self, path: &str) -> BTreeSet<String> {
        let listed = self.list(path).len();
        let texts = self.texts(path);
        let unreadable = (texts.len() < listed).then(String::new);
        let names = texts.into_iter().map(|(_, name)| name.to_owned());
        names.chain(unreadable).collect()
    }

    /// The texts of a list, each with its place.
    pub(super) fn texts(&mut self, path: &str) -> Vec<(String, &'a str)> {
        let mut texts = Vec::new();
        for (index, value) in self.list(path).iter().enumerate() {
            let at = format!("{path}[{index}]");
            match value.as_str() {
                Some(text) => texts.push((at, text)),
                None => {
                    let text = "is no text; put it into quotes".to_owned();
                    self.problem(ProblemKind::BadValue, &at, text);
                }
            }
        }
        texts
    }

    pub(super) fn list(&self, path: &str) -> &'a [Value] {
        let list = self.at(path).and_then(Value::as_array);
        list.map(Vec::as_slice).unwrap_or_default()
    }

    /// The value at a path with dots; null counts as absent.
    pub(super) fn at(&self, path: &str) -> Option<&'a Value> {
        let mut steps = path.split('.');
        let value = steps.try_fold(self.object, |value, step| value.get(step))?;
        (!value.is_null()).then_some(value)
    }

    pub(super) fn problem(&mut self, kind: ProblemKind, at: &str, text: String) {
        self.problems.push(Problem {
            kind,
            at: at.to_owned(),
            text,
        });
    }
}

/// Whether a host can hold every address of a range, and others reach it from beyond the link.
/// Loopback addresses count as usable: on one host, clients of that host reach them.
fn is_usable(range: AddressRange) -> bool {
    let unusable: &[&str] = match range.family() {
        Family::V4 => &["0.0.0.0/8", "224.0.0.0/3"],
        Family::V6 => &["::/128", "fe80::/10", "ff00::/8"],
    };
    let unusable = unusable.iter().map(|text| AddressRange::from_cidr(text));
    unusable
        .flatten()
        .all(|other| range.common(other).is_none())
}
