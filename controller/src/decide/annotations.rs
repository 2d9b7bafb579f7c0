//! One Service's annotations, read with their aliases, precedence and last good values.
//!
//! [`Reader::knob`] is the only way to a value: a port's own key, then ours, then the aliases in their fixed order. A bad
//! value is a Warning and leaves the last good one. Used by everything in `decide` that looks at a Service.

pub(super) mod keys;
mod last_good;
pub(super) mod values;

use std::collections::BTreeSet;

use super::notice::{About, Notice, Reason};
use crate::observe::{Observed, Port, Protocol, Service};
use crate::settings::{Compat, Settings};
pub(crate) use last_good::LAST_GOOD;
use last_good::Memory;
pub(super) use last_good::slot;

/// Something that a Service may say, under several names.
pub(super) struct Knob<T: 'static> {
    /// After our prefix; empty where we have no word of our own.
    pub(super) name: &'static str,
    /// Whole keys of other systems, the strongest first.
    pub(super) aliases: &'static [&'static str],
    /// Reads a value, or says why it is none: "is not a number; expected …".
    pub(super) parse: fn(&str) -> Result<T, String>,
}

impl<T> Knob<T> {
    /// What it is remembered by.
    pub(super) fn slot(&self) -> &'static str {
        match (self.name, self.aliases) {
            ("", [alias, ..]) => alias,
            (name, _) => name,
        }
    }
}

/// A value, and which annotation said it.
#[derive(Clone, Debug)]
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) key: String,
}

/// What one look at a knob brought.
pub(super) enum Lookup<T> {
    /// Nobody says anything.
    Silent,
    /// The value that counts.
    Value(Found<T>),
    /// There is a bad value only, and no good one from before.
    Bad,
}

/// Reads the annotations of one Service, and collects what there is to say about them.
pub(super) struct Reader<'a> {
    pub(super) service: &'a Service,
    pub(super) settings: &'a Settings,
    before: Option<&'a Memory>,
    /// The last good values that the annotation has. They come first: every node knows them.
    written: Memory,
    /// Those that are in use.
    in_use: Memory,
    pub(super) memory: Memory,
    has_own: bool,
    pub(super) notices: BTreeSet<Notice>,
    /// Those that follow from what only nodes look at: endpoints, Secrets and names.
    pub(super) node_notices: BTreeSet<Notice>,
    /// Whether what becomes of it depends on other nodes than this one.
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
            before: observed.remembered.get(&service.key),
            written: last_good::written(service),
            in_use: Memory::new(),
            memory: Memory::new(),
            has_own: keys.any(|key| key.starts_with(OWN)),
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
        match self.look(knob, port) {
            Lookup::Value(found) => Some(found),
            Lookup::Silent | Lookup::Bad => None,
        }
    }

    /// The same, for those who must know of bad values.
    pub(super) fn look<T: Clone + PartialEq>(
        &mut self,
        knob: &Knob<T>,
        port: Option<&Port>,
    ) -> Lookup<T> {
        let is_there = |key: &&&str| self.raw(key).is_some();
        let aliases = knob.aliases.iter().filter(is_there);
        let aliases: Vec<String> = aliases.map(|key| (*key).to_owned()).collect();
        let mut keys = self.own_keys(knob.name, port);
        keys.retain(|key| self.service.annotations.contains_key(key));
        if keys.is_empty() && aliases.is_empty() {
            return Lookup::Silent;
        }
        let of_port = keys.len() - usize::from(keys.last() == Some(&format!("{OWN}{}", knob.name)));
        self.conflict(knob, keys.get(..of_port).unwrap_or_default());
        self.conflict(knob, &aliases);
        keys.extend(aliases);
        let slot = slot(knob.slot(), port);
        self.first(knob, keys, &slot)
    }

    /// The first of these annotations that says something good, with the last good value where the strongest is bad.
    pub(super) fn first<T: Clone + PartialEq>(
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
            match self.parse(knob, raw) {
                Ok(value) => {
                    self.memory
                        .insert(slot.to_owned(), (key.clone(), raw.clone()));
                    return Lookup::Value(Found { value, key });
                }
                Err(why) => {
                    let kept = if bad { None } else { self.kept(knob, slot) };
                    bad = true;
                    let then = match &kept {
                        Some(_) => "the last good value stays",
                        None => "it is not used",
                    };
                    self.warn(
                        Reason::InvalidAnnotation,
                        format!("{key}: {} {why}; {then}", shown(raw)),
                    );
                    if let Some(found) = kept {
                        return Lookup::Value(found);
                    }
                }
            }
        }
        if bad { Lookup::Bad } else { Lookup::Silent }
    }

    /// The last good value of a knob, remembered once more.
    pub(super) fn kept<T>(&mut self, knob: &Knob<T>, slot: &str) -> Option<Found<T>> {
        let known = [Some(&self.written), self.before];
        let mut known = known.into_iter().flatten();
        let (value, (key, raw)) = known.find_map(|memory| {
            let (key, raw) = memory.get(slot)?;
            Some((self.parse(knob, raw).ok()?, (key.clone(), raw.clone())))
        })?;
        let remembered = (key.clone(), raw);
        self.in_use.insert(slot.to_owned(), remembered.clone());
        self.memory.insert(slot.to_owned(), remembered);
        Some(Found { value, key })
    }

    /// What a value says. Every port has a copy of its own, and one Service must not fill the memory.
    pub(super) fn parse<T>(&self, knob: &Knob<T>, raw: &str) -> Result<T, String> {
        let ports = self.service.ports.len().max(1);
        match raw.len().saturating_mul(ports) <= LONGEST {
            true => (knob.parse)(raw),
            false => Err(format!("is too long for a Service of {ports} ports")),
        }
    }

    /// Our own keys for a knob, the strongest first.
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

    /// The annotations that say something to a knob of one port, whatever they say.
    pub(super) fn present<T>(&self, knob: &Knob<T>, port: &Port) -> Vec<String> {
        let mut keys = self.own_keys(knob.name, Some(port));
        keys.retain(|key| self.service.annotations.contains_key(key));
        let aliases = knob.aliases.iter().filter(|key| self.raw(key).is_some());
        keys.extend(aliases.map(|key| (*key).to_owned()));
        keys
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

    /// The annotation with the last good values that are in use; `None`: there are none.
    pub(super) fn last_good(&self) -> Option<String> {
        last_good::text(&self.in_use)
    }

    /// Nothing was read for the ports this time, so what was known of them stays known, and written down.
    pub(super) fn keep_ports(&mut self) {
        let of_ports = |(slot, _): &(&String, _)| last_good::is_of_a_port(slot);
        let before = self.before.into_iter().flatten();
        for (slot, known) in self.written.iter().chain(before).filter(of_ports) {
            let place = self.memory.entry(slot.clone());
            place.or_insert_with(|| known.clone());
        }
        for (slot, known) in self.written.iter().filter(of_ports) {
            let place = self.in_use.entry(slot.clone());
            place.or_insert_with(|| known.clone());
        }
    }

    /// Two of one level that differ.
    fn conflict<T: PartialEq>(&mut self, knob: &Knob<T>, keys: &[String]) {
        if keys.len() < 2 {
            return;
        }
        let good = keys.iter().filter_map(|key| {
            let raw = self.service.annotations.get(key)?;
            Some((key, raw, self.parse(knob, raw).ok()?))
        });
        let mut good = good.collect::<Vec<_>>().into_iter();
        let Some((key, raw, value)) = good.next() else {
            return;
        };
        for (other, other_raw, other_value) in good {
            if other_value != value {
                let (raw, other_raw) = (shown(raw), shown(other_raw));
                let message = format!("{key}: {raw} and {other}: {other_raw} differ; {key} counts");
                self.warn(Reason::AnnotationConflict, message);
            }
        }
    }

    pub(super) fn warn(&mut self, reason: Reason, message: impl Into<String>) {
        self.notices
            .insert(Notice::warning(self.about(), reason, message));
    }

    pub(super) fn say(&mut self, reason: Reason, message: impl Into<String>) {
        self.notices
            .insert(Notice::normal(self.about(), reason, message));
    }

    /// A warning about what only nodes look at.
    pub(super) fn warn_by_node(&mut self, reason: Reason, message: impl Into<String>) {
        self.node_notices
            .insert(Notice::warning(self.about(), reason, message));
    }

    /// A remark on what only nodes look at.
    pub(super) fn say_by_node(&mut self, reason: Reason, message: impl Into<String>) {
        self.node_notices
            .insert(Notice::normal(self.about(), reason, message));
    }

    fn about(&self) -> About {
        About::Service(self.service.key.clone())
    }
}

/// A value as messages have it.
pub(super) fn shown(raw: &str) -> String {
    match raw.char_indices().nth(SHOWN) {
        None => format!("{raw:?}"),
        Some((end, _)) => format!("{:?}…", raw.get(..end).unwrap_or_default()),
    }
}

/// Whose annotation it is, where it is one that can be switched off.
fn family(key: &str) -> Option<Compat> {
    let families = [
        (O, Compat::Openstack),
        (INTERNAL, Compat::Openstack),
        (E, Compat::Exoscale),
        (A, Compat::Antrea),
        (M, Compat::Metallb),
        (M_OLD, Compat::Metallb),
        (C, Compat::Contrib),
    ];
    let found = families.iter().find(|(prefix, _)| key.starts_with(prefix));
    found.map(|(_, family)| *family)
}

/// Of one value, for all ports together.
const LONGEST: usize = 1 << 20;

/// Letters of a value in a message.
const SHOWN: usize = 200;

/// Our own prefix.
pub(super) const OWN: &str = "ballast.dev/";

pub(super) const O: &str = "loadbalancer.openstack.org/";

/// What we say to OpenStack's users: where a Service is.
pub(crate) const ADDRESS: &str = "loadbalancer.openstack.org/load-balancer-address";

/// And what others may call it by; theirs, where it is not its UID.
pub(crate) const ID: &str = "loadbalancer.openstack.org/load-balancer-id";

/// What people were told; whoever writes events writes it.
pub(crate) const TOLD: &str = "ballast.dev/told";

pub(super) const E: &str = "service.beta.kubernetes.io/exoscale-loadbalancer-";

pub(super) const A: &str = "service.antrea.io/";

pub(super) const M: &str = "metallb.io/";

pub(super) const M_OLD: &str = "metallb.universe.tf/";

pub(super) const C: &str = "serviceloadbalancer/lb.";

/// The one of OpenStack's that has another prefix.
pub(super) const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// Everybody's.
pub(super) const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
