//! Reads the annotations of one Service, with their aliases, precedence and last good values.
//!
//! Every value is read by [`Reader::knob`] or [`Reader::lookup`]: our key for one port counts first, then our key for the
//! Service, then the aliases in a fixed order. An invalid value makes a Warning event, and the last good value stays in use.

pub(super) mod keys;
pub(super) mod knobs;
mod last_good;
pub(super) mod values;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::notice::{About, Notice, Reason};
use crate::observe::{Observed, Port, Protocol, Service};
use crate::settings::{Compat, Settings};
pub(crate) use last_good::LAST_GOOD;
use last_good::Memory;
pub(super) use last_good::slot;

/// A setting that Services have as an annotation, under our own key and keys of other systems.
pub(super) struct Knob<T: 'static> {
    /// The name after our prefix; empty if only other systems have such a key.
    pub(super) name: &'static str,
    /// Whole keys of other systems, in order of precedence.
    pub(super) aliases: &'static [&'static str],
    /// Parses a value; the error completes a sentence that begins with the value: "is not a number; expected …".
    pub(super) parse: fn(&str) -> Result<T, String>,
}

impl<T> Knob<T> {
    /// The name under which its last good value is kept.
    pub(super) fn slot(&self) -> &'static str {
        match (self.name, self.aliases) {
            ("", [alias, ..]) => alias,
            (name, _) => name,
        }
    }
}

/// A value, and the key of the annotation that it was read from.
#[derive(Clone, Debug)]
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) key: String,
}

/// The result of looking a knob up.
pub(super) enum Lookup<T> {
    /// No annotation sets it.
    Absent,
    /// The value in force.
    Value(Found<T>),
    /// Only invalid values are set, and no last good value is known.
    Bad,
}

/// Reads the annotations of one Service, and collects the events about them.
pub(super) struct Reader<'a> {
    pub(super) service: &'a Service,
    pub(super) settings: &'a Settings,
    before: Option<&'a Memory>,
    /// The last good values out of the annotation `ballast.dev/last-good`. They count before remembered ones, since all nodes see
    /// the same.
    written: Memory,
    /// The last good values that are in use now.
    in_use: Memory,
    pub(super) memory: Memory,
    /// Whether what is remembered was looked at: else the same is read whatever that is.
    pub(super) looks_back: bool,
    has_own: bool,
    /// Whether a value could not be read, and no last good value is known in its place.
    pub(super) has_unread: bool,
    pub(super) notices: BTreeSet<Notice>,
    /// Events that follow from what only nodes read: endpoints, Secrets and resolved names.
    pub(super) node_notices: BTreeSet<Notice>,
    /// Whether the decision about the Service depends on other Nodes than this one.
    pub(super) needs_nodes: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        service: &'a Service,
        observed: &'a Observed,
        settings: &'a Settings,
    ) -> Self {
        let mut keys = service.annotations.keys();
        Self {
            service,
            settings,
            before: observed.remembered.get(&service.key).map(Arc::as_ref),
            written: last_good::written(service),
            in_use: Memory::new(),
            memory: Memory::new(),
            looks_back: false,
            has_own: keys.any(|key| key.starts_with(OWN)),
            has_unread: false,
            notices: BTreeSet::new(),
            node_notices: BTreeSet::new(),
            needs_nodes: false,
        }
    }

    /// The value of a knob for one port, or for the Service as a whole.
    pub(super) fn knob<T: Clone + PartialEq>(
        &mut self,
        knob: &Knob<T>,
        port: Option<&Port>,
    ) -> Option<Found<T>> {
        match self.lookup(knob, port) {
            Lookup::Value(found) => Some(found),
            Lookup::Absent | Lookup::Bad => None,
        }
    }

    /// The value alone.
    pub(super) fn value<T: Clone + PartialEq>(
        &mut self,
        knob: &Knob<T>,
        port: Option<&Port>,
    ) -> Option<T> {
        self.knob(knob, port).map(|found| found.value)
    }

    /// Whether a knob is set to true.
    pub(super) fn is_on(&mut self, knob: &Knob<bool>, port: Option<&Port>) -> bool {
        self.value(knob, port) == Some(true)
    }

    /// The value of a knob, for callers that treat an invalid value and no value differently.
    pub(super) fn lookup<T: Clone + PartialEq>(
        &mut self,
        knob: &Knob<T>,
        port: Option<&Port>,
    ) -> Lookup<T> {
        debug_assert!(knob.aliases.iter().all(|key| is_read(key)));
        let aliases = self.aliases(knob);
        let mut keys = self.own_keys(knob.name, port);
        keys.retain(|key| self.service.annotations.contains_key(key));
        if keys.is_empty() && aliases.is_empty() {
            return Lookup::Absent;
        }
        let of_port = keys.len() - usize::from(keys.last() == Some(&format!("{OWN}{}", knob.name)));
        let of_port = keys.get(..of_port).unwrap_or_default().to_vec();
        keys.extend(aliases.iter().cloned());
        let slot = slot(knob.slot(), port);
        let found = self.first_valid(knob, keys, &slot);
        if let Lookup::Value(found) = &found {
            self.conflict(knob, &of_port, &found.key);
            self.conflict(knob, &aliases, &found.key);
        }
        found
    }

    /// The first valid value of these annotations. If the first annotation is invalid, its last good value counts.
    pub(super) fn first_valid<T: Clone + PartialEq>(
        &mut self,
        knob: &Knob<T>,
        keys: Vec<String>,
        slot: &str,
    ) -> Lookup<T> {
        let mut bad = false;
        for key in keys {
            let Some(raw) = self.service.annotations.get(&key) else {
                continue;
            };
            let why = match self.parse(knob, raw) {
                Ok(value) => {
                    let good = (key.clone(), raw.clone());
                    self.memory.insert(slot.to_owned(), good);
                    return Lookup::Value(Found { value, key });
                }
                Err(why) => why,
            };
            let kept = match bad {
                true => None,
                false => self.remembered(knob, slot),
            };
            bad = true;
            let then = match kept {
                Some(_) => "the last good value stays",
                None => "it is not used",
            };
            let message = format!("{key}: {} {why}; {then}", quoted(raw));
            self.warn(Reason::InvalidAnnotation, message);
            if let Some(found) = kept {
                return Lookup::Value(found);
            }
        }
        self.has_unread |= bad;
        if bad { Lookup::Bad } else { Lookup::Absent }
    }

    /// The last good value of a knob, if one is known. It stays remembered.
    pub(super) fn remembered<T>(&mut self, knob: &Knob<T>, slot: &str) -> Option<Found<T>> {
        self.looks_back = true;
        let known = [Some(&self.written), self.before];
        let mut known = known.into_iter().flatten();
        let (value, known) = known.find_map(|memory| {
            let known = memory.get(slot)?;
            Some((self.parse(knob, &known.1).ok()?, known.clone()))
        })?;
        let key = known.0.clone();
        self.in_use.insert(slot.to_owned(), known.clone());
        self.memory.insert(slot.to_owned(), known);
        Some(Found { value, key })
    }

    /// Parses a value. Its length is limited: every port gets a copy, and one Service must not fill the memory.
    pub(super) fn parse<T>(&self, knob: &Knob<T>, raw: &str) -> Result<T, String> {
        let ports = self.service.ports.len().max(1);
        match raw.len().saturating_mul(ports) <= LONGEST {
            true => (knob.parse)(raw),
            false => Err(format!("is too long for a Service of {ports} ports")),
        }
    }

    /// Our own keys for a knob, in order of precedence.
    pub(super) fn own_keys(&self, name: &str, port: Option<&Port>) -> Vec<String> {
        let mut keys = Vec::new();
        if name.is_empty() || !self.has_own {
            return keys;
        }
        if let Some(port) = port {
            let number = port.number;
            if port.protocol == Protocol::Udp {
                keys.push(format!("{OWN}{name}.{number}-udp"));
            }
            let alone = |other: &Port| other.number != number || other.protocol == Protocol::Udp;
            if port.protocol != Protocol::Udp || self.service.ports.iter().all(alone) {
                keys.push(format!("{OWN}{name}.{number}"));
            }
        }
        keys.push(format!("{OWN}{name}"));
        keys
    }

    /// The keys that set a knob of one port, with valid values or not.
    pub(super) fn present_keys<T>(&self, knob: &Knob<T>, port: &Port) -> Vec<String> {
        let mut keys = self.own_keys(knob.name, Some(port));
        keys.retain(|key| self.service.annotations.contains_key(key));
        keys.extend(self.aliases(knob));
        keys
    }

    /// The keys of other systems for a knob that are there and read, in order of precedence.
    fn aliases<T>(&self, knob: &Knob<T>) -> Vec<String> {
        let aliases = knob.aliases.iter().filter(|key| self.raw(key).is_some());
        aliases.map(|key| (*key).to_owned()).collect()
    }

    /// Whether the annotations of the family that a key belongs to are read.
    pub(super) fn reads(&self, key: &str) -> bool {
        family(key).is_none_or(|family| self.settings.reads(family))
    }

    /// The value of an annotation, if its family is read.
    pub(super) fn raw(&self, key: &str) -> Option<&'a str> {
        let value = self.service.annotations.get(key)?;
        self.reads(key).then_some(value.as_str())
    }

    /// The value of `ballast.dev/last-good` for the last good values in use; `None`: none is in use.
    pub(super) fn last_good(&self) -> Option<String> {
        last_good::text(&self.in_use)
    }

    /// Keeps the last good values of all ports, for a Service whose ports were not read in this decision, and warns of bad ones.
    pub(super) fn keep_last_good_of_ports(&mut self) {
        self.warn_of_what_is_not_read();
        self.looks_back = true;
        let of_ports = |(slot, _): &(&String, _)| last_good::is_of_a_port(slot);
        let before = self.before.into_iter().flatten();
        for (slot, known) in self.written.iter().chain(before).filter(of_ports) {
            let place = self.memory.entry(slot.clone());
            place.or_insert_with(|| known.clone());
        }
        let written = self.written.iter().filter(of_ports);
        for (slot, known) in written {
            let place = self.in_use.entry(slot.clone());
            place.or_insert_with(|| known.clone());
        }
    }

    /// Warns of annotations of the same precedence whose values differ. `winner` is the one that counts of all precedences.
    fn conflict<T: PartialEq>(&mut self, knob: &Knob<T>, keys: &[String], winner: &str) {
        let annotations = &self.service.annotations;
        let mut good = keys.iter().filter_map(|key| {
            let raw = annotations.get(key)?;
            Some((key, raw, self.parse(knob, raw).ok()?))
        });
        let Some((key, raw, value)) = good.next() else {
            return;
        };
        let others = good.filter(|(_, _, other)| *other != value);
        let messages = others.map(|(other, other_raw, _)| {
            let (raw, other_raw) = (quoted(raw), quoted(other_raw));
            format!("{key}: {raw} and {other}: {other_raw} differ; {winner} counts")
        });
        for message in messages.collect::<Vec<_>>() {
            self.warn(Reason::AnnotationConflict, message);
        }
    }

    pub(super) fn warn(&mut self, reason: Reason, message: impl Into<String>) {
        self.notices
            .insert(Notice::warning(self.about(), reason, message));
    }

    pub(super) fn note(&mut self, reason: Reason, message: impl Into<String>) {
        self.notices
            .insert(Notice::normal(self.about(), reason, message));
    }

    /// Adds a Warning about what only nodes read.
    pub(super) fn warn_by_node(&mut self, reason: Reason, message: impl Into<String>) {
        self.node_notices
            .insert(Notice::warning(self.about(), reason, message));
    }

    /// Adds a Normal event about what only nodes read.
    pub(super) fn note_by_node(&mut self, reason: Reason, message: impl Into<String>) {
        self.node_notices
            .insert(Notice::normal(self.about(), reason, message));
    }

    fn about(&self) -> About {
        About::Service(self.service.key.clone())
    }
}

/// A value as messages show it: in quotes, and shortened.
pub(super) fn quoted(raw: &str) -> String {
    match raw.char_indices().nth(SHOWN) {
        None => format!("{raw:?}"),
        Some((end, _)) => format!("{:?}…", raw.get(..end).unwrap_or_default()),
    }
}

/// The family of annotations that a key belongs to, if `--compat` can switch it off.
fn family(key: &str) -> Option<Compat> {
    let families = [
        (OPENSTACK, Compat::Openstack),
        (INTERNAL, Compat::Openstack),
        (EXOSCALE, Compat::Exoscale),
        (ANTREA, Compat::Antrea),
        (METALLB, Compat::Metallb),
        (METALLB_DEPRECATED, Compat::Metallb),
        (CONTRIB, Compat::Contrib),
    ];
    let found = families.iter().find(|(prefix, _)| key.starts_with(prefix));
    found.map(|(_, family)| *family)
}

/// Whether an annotation means anything to Ballast. All others are dropped when a Service is observed: a change of one causes no
/// decision.
pub(crate) fn is_read(key: &str) -> bool {
    let prefixes = [
        OWN,
        OPENSTACK,
        // Exoscale's, one of OpenStack's, and Kubernetes' own source ranges.
        "service.beta.kubernetes.io/",
        ANTREA,
        METALLB,
        METALLB_DEPRECATED,
        CONTRIB,
        "kube-vip.io/",
        "lbipam.cilium.io/",
        "purelb.io/",
        "svccontroller.k3s.cattle.io/",
    ];
    prefixes.iter().any(|prefix| key.starts_with(prefix))
}

/// The most bytes of one value, times the ports that it is copied to.
const LONGEST: usize = 1 << 20;

/// The most letters of a value in a message.
const SHOWN: usize = 200;

/// The prefix of Ballast's own annotations.
pub(super) const OWN: &str = "ballast.dev/";

pub(super) const OPENSTACK: &str = "loadbalancer.openstack.org/";

/// The annotation that tells users of OpenStack the published address.
pub(crate) const ADDRESS: &str = "loadbalancer.openstack.org/load-balancer-address";

/// The annotation with an ID for users of OpenStack. We write the UID of the Service; any other value is the user's own.
pub(crate) const ID: &str = "loadbalancer.openstack.org/load-balancer-id";

pub(super) const EXOSCALE: &str = "service.beta.kubernetes.io/exoscale-loadbalancer-";

pub(super) const ANTREA: &str = "service.antrea.io/";

pub(super) const METALLB: &str = "metallb.io/";

pub(super) const METALLB_DEPRECATED: &str = "metallb.universe.tf/";

pub(super) const CONTRIB: &str = "serviceloadbalancer/lb.";

/// The only key of OpenStack with another prefix.
pub(super) const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// The source ranges' annotation of Kubernetes itself.
pub(super) const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
