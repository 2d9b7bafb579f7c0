//! Resolves all knobs of one Service port.
//!
//! The knobs, with their aliases in the order of precedence, are declared at the end of this file.

use std::num::NonZeroU32;
use std::time::Duration;

use ballast_core::table::{Algorithm, HostPattern, MaxAge, OnGone, OrOff, Protocol, SendProxy};
use ipnet::IpNet;

use super::annotations::values::{self, Paths, Rewrite};
use super::annotations::{Found, Knob, Lookup, OWN, Reader, slot};
use super::endpoints::goes_by_node;
use super::notice::Reason;
use super::ranges::{Ranges, ranges};
use crate::observe::{self, Key, Port};
use crate::settings::{self, Selector};

/// The options of one port, after precedence, defaults and conflicts.
pub(super) struct PortOptions {
    pub(super) protocol: Protocol,
    pub(super) tls: Tls,
    pub(super) send_proxy: SendProxy,
    pub(super) accept_proxy: Option<Vec<IpNet>>,
    pub(super) algorithm: Algorithm,
    pub(super) cookie: bool,
    pub(super) x_forwarded_off: bool,
    pub(super) timeout_client: Option<OrOff<Duration>>,
    pub(super) timeout_server: Option<OrOff<Duration>>,
    pub(super) timeout_connect: Option<Duration>,
    pub(super) udp_timeout: Option<Duration>,
    pub(super) limit: Option<NonZeroU32>,
    pub(super) ranges: Ranges,
    pub(super) on_removed: OnGone,
    pub(super) hsts: Option<MaxAge>,
    pub(super) redirect_https: bool,
    pub(super) passthrough: Vec<HostPattern>,
    pub(super) target_nodes: Option<Selector>,
}

/// How clients reach a Service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReachedBy {
    /// By a port of the node, of a LoadBalancer.
    OwnPort,
    /// By the shared port, which always speaks HTTP.
    SharedPort,
    /// By a port of `--tcp-services`, which always relays bytes.
    TcpServices,
}

/// Whether a port terminates TLS, and with which certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    /// It does not terminate TLS.
    Plain,
    /// With the certificate of `--ssl-cert`.
    Default,
    /// With the certificate of a Secret.
    Secret(Key),
    /// It should, and no certificate is named that could be used: the port stays closed.
    Closed,
}

impl PortOptions {
    /// Reads all knobs of one port.
    pub(super) fn read(reader: &mut Reader<'_>, port: &Port, by: ReachedBy) -> Self {
        let udp = port.protocol == observe::Protocol::Udp;
        let some = Some(port);
        let (send_proxy, forwarded) = proxy_or_forwarded(reader, port);
        let mut options = Self {
            protocol: if udp { Protocol::Udp } else { Protocol::Tcp },
            tls: Tls::Plain,
            send_proxy,
            accept_proxy: reader
                .knob(&ACCEPT_PROXY, some)
                .and_then(|found| found.value),
            algorithm: reader
                .knob(&ALGORITHM, some)
                .map_or(reader.settings.algorithm, |found| found.value),
            cookie: false,
            x_forwarded_off: forwarded == Some(false),
            timeout_client: value(reader.knob(&TIMEOUT_CLIENT, some)),
            timeout_server: value(reader.knob(&TIMEOUT_SERVER, some)),
            timeout_connect: value(reader.knob(&TIMEOUT_CONNECT, some)),
            udp_timeout: value(reader.knob(&UDP_TIMEOUT, some)),
            limit: reader
                .knob(&CONNECTION_LIMIT, some)
                .and_then(|found| found.value),
            ranges: ranges(reader, port),
            on_removed: value(reader.knob(&ON_REMOVED, some)).unwrap_or(OnGone::Keep),
            hsts: None,
            redirect_https: false,
            passthrough: Vec::new(),
            target_nodes: value(reader.knob(&TARGET_NODES, some))
                .or_else(|| value(reader.knob(&OPENSTACK_NODES, some)))
                .or_else(|| reader.settings.flags.target_node_selector.clone()),
        };
        reader.knob(&TIMEOUT_INSPECT, some);
        options.without_nodes(reader, port);
        match by {
            _ if udp => {
                options.refuse_v1(reader, port);
                note_http_keys(reader, port);
            }
            ReachedBy::OwnPort => options.speak(reader, port, forwarded, false),
            ReachedBy::SharedPort => options.speak(reader, port, forwarded, true),
            ReachedBy::TcpServices => {}
        }
        options
    }

    /// Notes selectors of target nodes on a Service whose endpoints are not limited by node.
    fn without_nodes(&self, reader: &mut Reader<'_>, port: &Port) {
        let mut keys = reader.present_keys(&TARGET_NODES, port);
        keys.extend(reader.present_keys(&OPENSTACK_NODES, port));
        if !keys.is_empty() && !goes_by_node(reader.settings, reader.service) {
            let message = format!(
                "without effect here: {} (traffic goes by node with externalTrafficPolicy Local, or --endpoints-via=nodeport)",
                keys.join(", ")
            );
            reader.note(Reason::AnnotationIgnored, message);
        }
    }

    /// Refuses version 1 of the PROXY protocol for UDP, which has version 2 only.
    fn refuse_v1(&mut self, reader: &mut Reader<'_>, port: &Port) {
        if self.send_proxy == SendProxy::V1 {
            self.send_proxy = SendProxy::Off;
            let message = format!(
                "version 1 of the PROXY protocol has no form for UDP port {}; no header is sent; use v2",
                port.number
            );
            reader.warn(Reason::InvalidAnnotation, message);
        }
    }

    /// Resolves the protocol of a TCP port, and whether the port terminates TLS.
    fn speak(
        &mut self,
        reader: &mut Reader<'_>,
        port: &Port,
        forwarded: Option<bool>,
        shared: bool,
    ) {
        let some = Some(port);
        let cookie = reader.knob(&COOKIE, some).filter(|found| found.value);
        let asked = reader.knob(&MODE, some);
        let passed = reader.knob(&TLS_PASSTHROUGH, some);
        let sealed = match shared {
            true => passed.as_ref().map(|found| found.key.clone()),
            false => asked
                .as_ref()
                .filter(|found| found.value == Protocol::Tls)
                .map(|found| found.key.clone()),
        };
        let (tls, tls_is_http) = match &sealed {
            Some(by) => passed_through_tls(reader, port, by),
            None => tls(reader, port),
        };
        self.tls = tls;
        self.hsts = value(reader.knob(&HSTS, some));
        self.redirect_https = reader
            .knob(&REDIRECT_HTTPS, some)
            .is_some_and(|found| found.value);
        self.passthrough = value(passed).unwrap_or_default();
        let http = forwarded == Some(true) || cookie.is_some() || tls_is_http;
        let secure = self.tls != Tls::Plain;
        self.protocol = match asked.as_ref().map(|found| found.value) {
            _ if shared && sealed.is_some() => Protocol::Tls,
            _ if shared && secure => Protocol::Https,
            _ if shared => Protocol::Http,
            Some(Protocol::Http) if secure => Protocol::Https,
            Some(Protocol::Https) if !secure => {
                self.default_certificate(reader, port);
                Protocol::Https
            }
            Some(protocol) => protocol,
            None if http && secure => Protocol::Https,
            None if http => Protocol::Http,
            None => Protocol::Tcp,
        };
        self.cookie = cookie.is_some() && self.protocol.is_http();
        if http && !self.protocol.is_http() {
            let by = match (sealed.filter(|_| shared), asked) {
                (Some(by), _) => by,
                (None, Some(asked)) => format!("{}: {}", asked.key, asked.value),
                (None, None) => String::new(),
            };
            let message = format!(
                "annotations of HTTP have no effect on port {} with {by}; they are ignored",
                port.number
            );
            reader.warn(Reason::AnnotationConflict, message);
        }
        if !shared {
            self.without_effect(reader, port);
        }
        if !self.passthrough.is_empty() && self.protocol != Protocol::Tls {
            let message = format!(
                "{OWN}tls-passthrough: port {} does not have mode tls; it is ignored",
                port.number
            );
            reader.warn(Reason::InvalidAnnotation, message);
            self.passthrough.clear();
        }
    }

    /// Notes keys that have no effect with the protocol of a port.
    fn without_effect(&self, reader: &mut Reader<'_>, port: &Port) {
        let mut keys = Vec::new();
        if self.hsts.is_some() && self.protocol != Protocol::Https {
            keys.push(format!(
                "{OWN}hsts (port {} is {}, not https)",
                port.number, self.protocol
            ));
        }
        if self.redirect_https && self.protocol != Protocol::Http {
            keys.push(format!(
                "{OWN}redirect-https (port {} is {}, not http)",
                port.number, self.protocol
            ));
        }
        if !keys.is_empty() {
            reader.note(
                Reason::AnnotationIgnored,
                format!("without effect here: {}", keys.join(", ")),
            );
        }
    }

    /// The certificate for `mode: https` without a Secret.
    fn default_certificate(&mut self, reader: &mut Reader<'_>, port: &Port) {
        self.tls = match reader.settings.flags.ssl_cert {
            Some(_) => Tls::Default,
            None => Tls::Closed,
        };
        if self.tls == Tls::Closed {
            let message = format!(
                "port {} has mode https and no certificate: set {OWN}tls-secret, or --ssl-cert; it stays closed",
                port.number
            );
            reader.warn(Reason::InvalidAnnotation, message);
        }
    }
}

/// Notes keys of HTTP and TLS for a UDP port, or for a Service that has UDP ports only.
fn note_http_keys(reader: &mut Reader<'_>, port: &Port) {
    let mut ports = reader.service.ports.iter();
    let only_udp = ports.all(|port| port.protocol == observe::Protocol::Udp);
    let keys = [
        reader.present_keys(&MODE, port),
        reader.present_keys(&COOKIE, port),
        reader.present_keys(&X_FORWARDED_FOR, port),
        reader.present_keys(&TLS_SECRET, port),
        reader.present_keys(&SSL_TERM, port),
        reader.present_keys(&TLS_PASSTHROUGH, port),
        reader.present_keys(&REDIRECT_HTTPS, port),
        reader.present_keys(&HSTS, port),
    ];
    let of_port = [format!(".{}-udp", port.number), format!(".{}", port.number)];
    let is_meant = |key: &String| only_udp || of_port.iter().any(|end| key.ends_with(end));
    let keys: Vec<String> = keys.into_iter().flatten().filter(is_meant).collect();
    if !keys.is_empty() {
        let message = format!(
            "without effect here: {} (UDP carries neither HTTP nor TLS)",
            keys.join(", ")
        );
        reader.note(Reason::AnnotationIgnored, message);
    }
}

/// The PROXY header and X-Forwarded-For, which exclude one another. If both are set, the last good values of both stay.
fn proxy_or_forwarded(reader: &mut Reader<'_>, port: &Port) -> (SendProxy, Option<bool>) {
    let some = Some(port);
    let proxy_slot = slot(PROXY_PROTOCOL.name, some);
    let forwarded_slot = slot(X_FORWARDED_FOR.name, some);
    let proxy = reader.knob(&PROXY_PROTOCOL, some);
    let forwarded = reader
        .knob(&X_FORWARDED_FOR, some)
        .filter(|_| port.protocol == observe::Protocol::Tcp);
    let (Some(header), Some(forward)) = (&proxy, &forwarded) else {
        return (
            proxy.map_or(SendProxy::Off, |found| found.value),
            value(forwarded),
        );
    };
    if header.value == SendProxy::Off || !forward.value {
        return (header.value, Some(forward.value));
    }
    let message = format!(
        "{} and {} cannot be used together; port {} stays as it was",
        header.key, forward.key, port.number
    );
    reader.memory.remove(&proxy_slot);
    reader.memory.remove(&forwarded_slot);
    let proxy = reader.remembered(&PROXY_PROTOCOL, &proxy_slot);
    let forwarded = reader.remembered(&X_FORWARDED_FOR, &forwarded_slot);
    reader.warn(Reason::AnnotationConflict, message);
    (
        proxy.map_or(SendProxy::Off, |found| found.value),
        value(forwarded),
    )
}

/// The certificate that annotations name for a port, and whether they make the port HTTP.
fn tls(reader: &mut Reader<'_>, port: &Port) -> (Tls, bool) {
    let default = reader
        .knob(&SSL_TERM, Some(port))
        .filter(|found| found.value);
    match reader.lookup(&TLS_SECRET, Some(port)) {
        Lookup::Value(found) => {
            let http = found.key == OPENSTACK_TLS || default.is_some();
            let key = Key::in_namespace(&reader.service.key.namespace, &found.value);
            (Tls::Secret(key), http)
        }
        Lookup::Bad => {
            let message = format!(
                "port {} stays closed: it is never served without its certificate",
                port.number
            );
            reader.warn(Reason::SecretUnreadable, message);
            (
                Tls::Closed,
                reader.raw(OPENSTACK_TLS).is_some() || default.is_some(),
            )
        }
        Lookup::Absent => match (default, &reader.settings.flags.ssl_cert) {
            (None, _) => (Tls::Plain, false),
            (Some(_), Some(_)) => (Tls::Default, true),
            (Some(found), None) => {
                let message = format!(
                    "{}: there is no --ssl-cert; port {} stays closed",
                    found.key, port.number
                );
                reader.warn(Reason::InvalidAnnotation, message);
                (Tls::Closed, true)
            }
        },
    }
}

/// Notes certificates of a port that relays TLS without decrypting it.
fn passed_through_tls(reader: &mut Reader<'_>, port: &Port, by: &str) -> (Tls, bool) {
    let mut keys = reader.present_keys(&TLS_SECRET, port);
    let default = reader.knob(&SSL_TERM, Some(port));
    keys.extend(default.filter(|found| found.value).map(|found| found.key));
    if !keys.is_empty() {
        let message = format!(
            "without effect here: {} (with {by}, port {} relays TLS without decrypting it)",
            keys.join(", "),
            port.number
        );
        reader.note(Reason::AnnotationIgnored, message);
    }
    (Tls::Plain, false)
}

fn value<T>(found: Option<Found<T>>) -> Option<T> {
    found.map(|found| found.value)
}

macro_rules! knobs {
    ($( $(#[$doc:meta])* $constant:ident: $type:ty = $name:literal [$($alias:expr),*] $parse:path; )*) => { $(
        $(#[$doc])*
        pub(super) const $constant: Knob<$type> = Knob {
            name: $name,
            aliases: &[$($alias),*],
            parse: $parse,
        };
    )* };
}

const OPENSTACK_TLS: &str = "loadbalancer.openstack.org/default-tls-container-ref";

knobs! {
    PROXY_PROTOCOL: SendProxy = "proxy-protocol" ["loadbalancer.openstack.org/proxy-protocol"] values::send_proxy;
    ACCEPT_PROXY: Option<Vec<IpNet>> = "accept-proxy" [] values::accept_proxy;
    ALGORITHM: Algorithm = "algorithm" [
        "loadbalancer.openstack.org/lb-method",
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-strategy",
        "serviceloadbalancer/lb.algorithm"
    ] settings::algorithm;
    COOKIE: bool = "cookie-sticky-session" ["serviceloadbalancer/lb.cookie-sticky-session"] values::boolean;
    TIMEOUT_CLIENT: OrOff<Duration> = "timeout-client" ["loadbalancer.openstack.org/timeout-client-data"] values::idle;
    TIMEOUT_SERVER: OrOff<Duration> = "timeout-server" ["loadbalancer.openstack.org/timeout-member-data"] values::idle;
    TIMEOUT_CONNECT: Duration = "timeout-connect" ["loadbalancer.openstack.org/timeout-member-connect"] values::connect;
    TIMEOUT_INSPECT: u32 = "timeout-inspect" ["loadbalancer.openstack.org/timeout-tcp-inspect"] values::millis;
    UDP_TIMEOUT: Duration = "udp-timeout" [] values::duration;
    CONNECTION_LIMIT: Option<NonZeroU32> = "connection-limit" ["loadbalancer.openstack.org/connection-limit"] values::limit;
    INTERNAL: bool = "internal" ["service.beta.kubernetes.io/openstack-internal-load-balancer"] values::boolean;
    HOSTNAME: Vec<String> = "hostname" ["loadbalancer.openstack.org/hostname", "kube-vip.io/loadbalancerHostname"] values::hostnames;
    ADDRESSES: Vec<std::net::IpAddr> = "load-balancer-ips" [
        "metallb.io/loadBalancerIPs",
        "metallb.universe.tf/loadBalancerIPs",
        "kube-vip.io/loadbalancerIPs",
        "lbipam.cilium.io/ips"
    ] values::addresses;
    LB_NODES: Selector = "node-selector" [] values::selector;
    TARGET_NODES: Selector = "target-node-selector" [] values::selector;
    /// The same setting in OpenStack's syntax.
    OPENSTACK_NODES: Selector = "" ["loadbalancer.openstack.org/node-selector"] values::openstack_selector;
    LOCAL_MODE: bool = "external-traffic-policy-mode" [] values::strict;
    HOST: Vec<HostPattern> = "host" [] values::hosts;
    CONTRIB_HOST: Vec<HostPattern> = "" ["serviceloadbalancer/lb.host"] values::hosts;
    PATH: Paths = "path" [] values::paths;
    ACL_MATCH: Paths = "" ["serviceloadbalancer/lb.aclMatch"] values::paths;
    REWRITE: Rewrite = "rewrite" [] values::rewrite;
    TLS_SECRET: (Option<String>, String) = "tls-secret" [OPENSTACK_TLS] values::secret;
    SSL_TERM: bool = "sslTerm" ["serviceloadbalancer/lb.sslTerm"] values::boolean;
    TLS_PASSTHROUGH: Vec<HostPattern> = "tls-passthrough" [] values::hosts;
    REDIRECT_HTTPS: bool = "redirect-https" [] values::boolean;
    HSTS: MaxAge = "hsts" [] values::max_age;
    X_FORWARDED_FOR: bool = "x-forwarded-for" ["loadbalancer.openstack.org/x-forwarded-for"] values::boolean;
    MODE: Protocol = "mode" [] values::mode;
    EXTERNAL_PORT: Vec<(Option<u16>, u16)> = "external-port" [] values::external_port;
    ON_REMOVED: OnGone = "on-endpoint-removed" [] values::on_gone;
    IGNORE: bool = "ignore" ["kube-vip.io/ignore"] values::boolean;
    TAKE_OVER: bool = "take-over" [] values::boolean;
    /// OpenStack's `class` is no alias: it does not name a pool.
    POOL: String = "address-pool" [
        "metallb.io/address-pool",
        "metallb.universe.tf/address-pool",
        "service.antrea.io/external-ip-pool"
    ] values::word;
    /// Keys that other controllers write on every Service are no aliases.
    SHARING: String = "sharing-key" [
        "metallb.io/allow-shared-ip",
        "metallb.universe.tf/allow-shared-ip",
        "lbipam.cilium.io/sharing-key"
    ] values::word;
    KEEP_ADDRESS: bool = "keep-address" ["loadbalancer.openstack.org/keep-floatingip"] values::boolean;
    EXOSCALE_EXTERNAL: bool = "" ["service.beta.kubernetes.io/exoscale-loadbalancer-external"] values::boolean;
    ANTREA_SHARED: bool = "" ["service.antrea.io/allow-shared-load-balancer-ip"] values::boolean;
    DESCRIPTION: String = "description" ["service.beta.kubernetes.io/exoscale-loadbalancer-description"] values::line;
    DISPLAY_NAME: String = "display-name" ["service.beta.kubernetes.io/exoscale-loadbalancer-name"] values::line;
    SERVICE_DESCRIPTION: String = "description" ["service.beta.kubernetes.io/exoscale-loadbalancer-service-description"] values::line;
    SERVICE_NAME: String = "display-name" ["service.beta.kubernetes.io/exoscale-loadbalancer-service-name"] values::line;
}
