//! Events about keys that have no effect: deprecated keys, keys that only a cloud can follow, and unknown keys of our own prefix.

use super::{ANTREA, EXOSCALE, METALLB, METALLB_DEPRECATED, OPENSTACK, OWN, Reader};
use crate::decide::notice::Reason;

impl Reader<'_> {
    /// Adds one event for each kind of key without effect.
    pub(in crate::decide) fn note_keys_without_effect(&mut self) {
        self.deprecated();
        self.ignored();
        self.unknown();
    }

    fn deprecated(&mut self) {
        let keys: Vec<String> = self
            .service
            .annotations
            .keys()
            .filter(|key| key.starts_with(METALLB_DEPRECATED) && self.reads(key))
            // MetalLB itself writes this key; users cannot rename it.
            .filter(|key| !key.ends_with("/ip-allocated-from-pool"))
            .cloned()
            .collect();
        for key in keys {
            let new = key.replacen(METALLB_DEPRECATED, METALLB, 1);
            self.warn(
                Reason::DeprecatedAnnotation,
                format!("{key} is deprecated; use {new}"),
            );
        }
    }

    fn ignored(&mut self) {
        let keys = self.service.annotations.iter().filter_map(|(key, value)| {
            let why = meaningless(key, value)?;
            self.reads(key).then(|| format!("{key} ({why})"))
        });
        let keys: Vec<String> = keys.collect();
        if !keys.is_empty() {
            self.note(
                Reason::AnnotationIgnored,
                format!("without effect here: {}", keys.join(", ")),
            );
        }
    }

    /// Warns of keys with our prefix that do not exist, or not for a port.
    fn unknown(&mut self) {
        let own: Vec<&str> = self
            .service
            .annotations
            .keys()
            .filter_map(|key| key.strip_prefix(OWN))
            .collect();
        for key in own {
            let (name, port) = match key.rsplit_once('.') {
                Some((name, port)) => (name, Some(port)),
                None => (key, None),
            };
            if !KNOWN.contains(&name) {
                self.warn(
                    Reason::InvalidAnnotation,
                    format!("{OWN}{key} is not a key of Ballast; it is ignored"),
                );
                continue;
            }
            let Some(port) = port else { continue };
            if WHOLE.contains(&name) {
                self.warn(Reason::InvalidAnnotation, format!("{OWN}{key}: {name} is set for a whole Service, not for one port; it is ignored"));
            } else if !self.has_port(port) {
                self.warn(
                    Reason::InvalidAnnotation,
                    format!("{OWN}{key}: this Service has no port {port}; it is ignored"),
                );
            }
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
        let keys: Vec<&str> = keys.map(String::as_str).collect();
        if !keys.is_empty() {
            let message = format!("without effect here: {} ({why})", keys.join(", "));
            self.note(Reason::AnnotationIgnored, message);
        }
    }

    fn has_port(&self, text: &str) -> bool {
        use crate::observe::Protocol;
        let (number, udp) = match text.strip_suffix("-udp") {
            Some(number) => (number, true),
            None => (text, false),
        };
        let number: Option<u16> = number.parse().ok();
        self.service
            .ports
            .iter()
            .any(|port| Some(port.number) == number && (!udp || port.protocol == Protocol::Udp))
    }
}

/// The reason for which a key has no effect on bare metal; `None`: it has one, or is not known.
fn meaningless(key: &str, value: &str) -> Option<&'static str> {
    const CLOUD: &str = "only a cloud has it";
    if let Some(rest) = key.strip_prefix(OPENSTACK) {
        return match rest {
            "floating-network-id"
            | "floating-subnet"
            | "floating-subnet-id"
            | "floating-subnet-tags"
            | "subnet-id"
            | "network-id"
            | "member-subnet-id"
            | "port-id"
            | "flavor-id"
            | "availability-zone" => Some(CLOUD),
            "timeout-tcp-inspect" => Some("Ballast does not inspect TCP"),
            _ => None,
        };
    }
    if let Some(rest) = key.strip_prefix(EXOSCALE) {
        return match rest {
            "service-instancepool-id"
            | "sks-cluster-name"
            | "service-sks-nodepool-name"
            | "zone" => Some(CLOUD),
            "external" => Some("Ballast manages no load balancer of the cloud"),
            _ => None,
        };
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
    match key {
        "svccontroller.k3s.cattle.io/tolerations"
        | "svccontroller.k3s.cattle.io/priorityclassname" => Some("Ballast creates no pods"),
        _ if key.strip_prefix(OWN).is_some_and(|rest| {
            rest == "timeout-inspect" || rest.starts_with("timeout-inspect.")
        }) =>
        {
            Some("Ballast does not inspect TCP")
        }
        _ => None,
    }
}

/// The names that may follow our prefix.
const KNOWN: &[&str] = &[
    "accept-proxy",
    "address-pool",
    "algorithm",
    "connection-limit",
    "cookie-sticky-session",
    "description",
    "display-name",
    "external-port",
    "external-traffic-policy-mode",
    "health-check",
    "health-check-codes",
    "health-check-fall",
    "health-check-interval",
    "health-check-path",
    "health-check-port",
    "health-check-rise",
    "health-check-timeout",
    "host",
    "hostname",
    "hsts",
    "ignore",
    "internal",
    "keep-address",
    "last-good",
    "load-balancer-ips",
    "mode",
    "node-selector",
    "on-endpoint-removed",
    "path",
    "proxy-protocol",
    "redirect-https",
    "rewrite",
    "sharing-key",
    "source-ranges",
    "sslTerm",
    "take-over",
    "target-node-selector",
    "timeout-client",
    "timeout-connect",
    "timeout-inspect",
    "timeout-server",
    "tls-passthrough",
    "tls-secret",
    "told",
    "udp-timeout",
    "x-forwarded-for",
];

/// Those of them that hold for a whole Service and not for one port.
const WHOLE: &[&str] = &[
    "address-pool",
    "external-traffic-policy-mode",
    "hostname",
    "ignore",
    "internal",
    "keep-address",
    "last-good",
    "load-balancer-ips",
    "node-selector",
    "sharing-key",
    "take-over",
    "told",
];
