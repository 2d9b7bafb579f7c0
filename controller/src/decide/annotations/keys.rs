//! Keys that are not knobs: what only a cloud can do, what waits for pools, what nobody knows.

use super::{A, E, M, M_OLD, O, OWN, Reader};
use crate::decide::notice::Reason;

impl Reader<'_> {
    /// Says once what is noted and has no effect here.
    pub(in crate::decide) fn remark(&mut self) {
        self.deprecated();
        self.ignored();
        self.unknown();
    }

    fn deprecated(&mut self) {
        let keys: Vec<String> = self
            .service
            .annotations
            .keys()
            .filter(|key| key.starts_with(M_OLD) && self.reads(key))
            // MetalLB's own word to us, which nobody can change.
            .filter(|key| !key.ends_with("/ip-allocated-from-pool"))
            .cloned()
            .collect();
        for key in keys {
            let new = key.replacen(M_OLD, M, 1);
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
            self.say(
                Reason::AnnotationIgnored,
                format!("without effect here: {}", keys.join(", ")),
            );
        }
    }

    /// Our own keys that nobody reads.
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
                    format!("{OWN}{key} is no key of Ballast's; it is ignored"),
                );
                continue;
            }
            let Some(port) = port else { continue };
            if WHOLE.contains(&name) {
                self.warn(Reason::InvalidAnnotation, format!("{OWN}{key}: {name} is said of a whole Service, not of a port; it is ignored"));
            } else if !self.has_port(port) {
                self.warn(
                    Reason::InvalidAnnotation,
                    format!("{OWN}{key}: this Service has no port {port}; it is ignored"),
                );
            }
        }
    }

    /// Says once that knobs of ours, by their names or for a port, have no effect on this Service.
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
            self.say(Reason::AnnotationIgnored, message);
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

/// Why a key of another system has no effect on bare metal.
fn meaningless(key: &str, value: &str) -> Option<&'static str> {
    const CLOUD: &str = "only a cloud has that";
    if let Some(rest) = key.strip_prefix(O) {
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
            "timeout-tcp-inspect" => Some("nothing is inspected"),
            _ => None,
        };
    }
    if let Some(rest) = key.strip_prefix(E) {
        return match rest {
            "service-instancepool-id"
            | "sks-cluster-name"
            | "service-sks-nodepool-name"
            | "zone" => Some(CLOUD),
            "external" => Some("the cloud's load balancer is not touched"),
            _ => None,
        };
    }
    if let Some(rest) = key.strip_prefix(A) {
        return match (rest, value) {
            ("load-balancer-mode", "dsr") => Some("nat used"),
            ("load-balancer-mode", _) => Some("traffic is always relayed"),
            _ => None,
        };
    }
    if let Some(rest) = key.strip_prefix("kube-vip.io/") {
        return (!matches!(rest, "loadbalancerIPs" | "loadbalancerHostname" | "ignore"))
            .then_some("kube-vip's own");
    }
    match key {
        "svccontroller.k3s.cattle.io/tolerations"
        | "svccontroller.k3s.cattle.io/priorityclassname" => Some("no pods are made"),
        _ if key.strip_prefix(OWN).is_some_and(|rest| {
            rest == "timeout-inspect" || rest.starts_with("timeout-inspect.")
        }) =>
        {
            Some("nothing is inspected")
        }
        _ => None,
    }
}

/// What may stand behind our prefix.
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

/// Those of them that no single port can have.
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
