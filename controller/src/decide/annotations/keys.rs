//! Events about keys that have no effect: deprecated keys, keys that only a cloud can follow, and unknown keys of our own prefix.

use ballast_core::table::nearest;

use super::knobs::{self, AnyKnob, OF_PORTS, OF_SERVICES};
use super::{ANTREA, EXOSCALE, METALLB, METALLB_DEPRECATED, OPENSTACK, OWN, Reader, quoted};
use crate::decide::notice::{Notice, Reason};
use crate::observe::Protocol;

impl Reader<'_> {
    /// Adds one event for each kind of key without effect.
    pub(in crate::decide) fn note_keys_without_effect(&mut self) {
        self.deprecated();
        self.ignored();
        self.unknown();
    }

    fn deprecated(&mut self) {
        for key in self.service.annotations.keys() {
            // MetalLB itself writes this key; users cannot rename it.
            let is_output = key.ends_with("/ip-allocated-from-pool");
            if key.starts_with(METALLB_DEPRECATED) && self.reads(key) && !is_output {
                let new = key.replacen(METALLB_DEPRECATED, METALLB, 1);
                let message = format!("{key} is deprecated; use {new}");
                self.warn(Reason::DeprecatedAnnotation, message);
            }
        }
    }

    fn ignored(&mut self) {
        let keys = self.service.annotations.iter().filter_map(|(key, value)| {
            let why = meaningless(key, value)?;
            self.reads(key).then(|| format!("{key} ({why})"))
        });
        let keys: Vec<String> = keys.collect();
        self.note_without_effect(&keys, "");
    }

    /// Warns of keys with our prefix that do not exist, or not for a port.
    fn unknown(&mut self) {
        let keys = self.service.annotations.keys();
        for key in keys.filter_map(|key| key.strip_prefix(OWN)) {
            let (name, port) = match key.rsplit_once('.') {
                Some((name, port)) => (name, Some(port)),
                None => (key, None),
            };
            let is_among = |knobs: &[AnyKnob]| knobs.iter().any(|knob| knob.name == name);
            let is_of_service = is_among(OF_SERVICES) || OUTPUTS.contains(&name);
            let message = match port {
                _ if name.is_empty() || !(is_of_service || is_among(OF_PORTS)) => {
                    let known = knobs::all().map(|knob| knob.name);
                    let meant = match nearest(name, known) {
                        Some(meant) => format!(" (did you mean {OWN}{meant}?)"),
                        None => String::new(),
                    };
                    format!("{OWN}{key} is not a key of Ballast{meant}; it is ignored")
                }
                Some(_) if is_of_service => format!(
                    "{OWN}{key}: {name} is set for a whole Service, not for one port; it is ignored"
                ),
                Some(port) if !self.has_port(port) => {
                    format!("{OWN}{key}: this Service has no port {port}; it is ignored")
                }
                _ => continue,
            };
            self.warn(Reason::InvalidAnnotation, message);
        }
    }

    /// Adds an event that these knobs, for the Service or for a port, have no effect on this Service.
    pub(in crate::decide) fn without_effect(&mut self, names: &[&str], why: &str) {
        let is_one = |key: &&String| {
            let rest = key.strip_prefix(OWN).unwrap_or_default();
            let name = rest.split_once('.').map_or(rest, |(name, _)| name);
            names.contains(&name)
        };
        let keys = self.service.annotations.keys().filter(is_one);
        let keys: Vec<String> = keys.cloned().collect();
        self.note_without_effect(&keys, why);
    }

    /// Adds an event that these keys have no effect. `why` is empty if each key has its own reason.
    pub(in crate::decide) fn note_without_effect(&mut self, keys: &[String], why: &str) {
        if keys.is_empty() {
            return;
        }
        let why = match why {
            "" => String::new(),
            why => format!(" ({why})"),
        };
        let message = format!("without effect here: {}{why}", keys.join(", "));
        self.note(Reason::AnnotationIgnored, message);
    }

    /// Warns of values that cannot be read, of the keys that were not read because the Service is not served: its owner learns of all
    /// mistakes at once.
    pub(in crate::decide) fn warn_of_what_is_not_read(&mut self) {
        for (key, raw) in &self.service.annotations {
            let own = key.strip_prefix(OWN);
            let own = own.map(|name| name.split_once('.').map_or(name, |(name, _)| name));
            let is_of = |knob: &&AnyKnob| match own {
                Some(own) => knob.name == own,
                None => knob.aliases.contains(&key.as_str()),
            };
            let knob = knobs::all().find(is_of).filter(|_| self.reads(key));
            let said = format!("{key}: {} ", quoted(raw));
            let is_said = |notice: &Notice| notice.message.starts_with(&said);
            if let Some(why) = knob.and_then(|knob| (knob.flaw)(raw))
                && !self.notices.iter().any(is_said)
            {
                let message = format!("{said}{why}; it is not used");
                self.warn(Reason::InvalidAnnotation, message);
            }
        }
    }

    fn has_port(&self, text: &str) -> bool {
        let (number, udp) = match text.strip_suffix("-udp") {
            Some(number) => (number, true),
            None => (text, false),
        };
        let number: Option<u16> = number.parse().ok();
        let mut ports = self.service.ports.iter();
        ports.any(|port| Some(port.number) == number && (!udp || port.protocol == Protocol::Udp))
    }
}

/// The reason for which a key has no effect on bare metal; `None`: it has one, or is not known.
fn meaningless(key: &str, value: &str) -> Option<&'static str> {
    if let Some(rest) = key.strip_prefix(OWN) {
        return (rest.split('.').next() == Some("timeout-inspect")).then_some(NO_INSPECTION);
    }
    if let Some(rest) = key.strip_prefix(ANTREA) {
        return match (rest, value) {
            ("load-balancer-mode", "dsr") => Some("nat used"),
            ("load-balancer-mode", _) => Some("traffic is always relayed"),
            _ => None,
        };
    }
    if let Some(rest) = key.strip_prefix("kube-vip.io/") {
        return (!matches!(rest, "loadbalancerIPs" | "loadbalancerHostname" | "ignore"))
            .then_some("it configures kube-vip itself");
    }
    let mut all = MEANINGLESS.iter();
    let found = all.find(|(prefix, keys, _)| {
        let rest = key.strip_prefix(prefix);
        rest.is_some_and(|rest| keys.split(' ').any(|key| key == rest))
    });
    found.map(|(_, _, why)| *why)
}

const NO_INSPECTION: &str = "Ballast does not inspect TCP";

/// A prefix, what follows it in keys that have no effect, and the reason.
const MEANINGLESS: &[(&str, &str, &str)] = &[
    (
        OPENSTACK,
        "floating-network-id floating-subnet floating-subnet-id floating-subnet-tags subnet-id network-id member-subnet-id port-id flavor-id availability-zone",
        "only a cloud has it",
    ),
    (OPENSTACK, "timeout-tcp-inspect", NO_INSPECTION),
    (
        EXOSCALE,
        "service-instancepool-id sks-cluster-name service-sks-nodepool-name zone",
        "only a cloud has it",
    ),
    (
        EXOSCALE,
        "external",
        "Ballast manages no load balancer of the cloud",
    ),
    (
        "",
        "svccontroller.k3s.cattle.io/tolerations",
        "Ballast creates no pods",
    ),
    (
        "",
        "svccontroller.k3s.cattle.io/priorityclassname",
        "Ballast creates no pods",
    ),
];

/// What Ballast itself writes.
const OUTPUTS: &[&str] = &["last-good"];
