//! The options of one Service port: its knobs after precedence, defaults and conflicts.

use std::num::NonZeroU32;
use std::time::Duration;

use ballast_core::table::{Algorithm, HostPattern, MaxAge, OnGone, OrOff, Protocol, SendProxy};
use ipnet::IpNet;

use super::annotations::{Lookup, OWN, Reader, knobs, slot};
use super::endpoints::goes_by_node;
use super::notice::Reason;
use super::ranges::{Ranges, ranges};
use crate::observe::{self, Key, Port};
use crate::settings::Selector;

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
    /// The port does not terminate TLS.
    Plain,
    /// With the certificate of `--ssl-cert`.
    Default,
    /// With the certificate of a Secret.
    Secret(Key),
    /// The port terminates TLS, and no certificate is named that could be used: it stays closed.
    Closed,
}

impl PortOptions {
    /// Reads all knobs of one port.
    pub(super) fn read(reader: &mut Reader<'_>, port: &Port, by: ReachedBy) -> Self {
        let udp = port.protocol == observe::Protocol::Udp;
        let some = Some(port);
        let (send_proxy, forwarded) = proxy_or_forwarded(reader, port);
        let algorithm = reader.value(&knobs::ALGORITHM, some);
        let on_removed = reader.value(&knobs::ON_REMOVED, some);
        let target_nodes = reader.value(&knobs::TARGET_NODES, some);
        let target_nodes = target_nodes.or_else(|| reader.value(&knobs::OPENSTACK_NODES, some));
        let flags = &reader.settings.flags;
        let mut options = Self {
            protocol: if udp { Protocol::Udp } else { Protocol::Tcp },
            tls: Tls::Plain,
            send_proxy,
            accept_proxy: reader.value(&knobs::ACCEPT_PROXY, some).flatten(),
            algorithm: algorithm.unwrap_or(reader.settings.algorithm),
            cookie: false,
            x_forwarded_off: forwarded == Some(false),
            timeout_client: reader.value(&knobs::TIMEOUT_CLIENT, some),
            timeout_server: reader.value(&knobs::TIMEOUT_SERVER, some),
            timeout_connect: reader.value(&knobs::TIMEOUT_CONNECT, some),
            udp_timeout: reader.value(&knobs::UDP_TIMEOUT, some),
            limit: reader.value(&knobs::CONNECTION_LIMIT, some).flatten(),
            ranges: ranges(reader, port),
            on_removed: on_removed.unwrap_or(OnGone::Keep),
            hsts: None,
            redirect_https: false,
            passthrough: Vec::new(),
            target_nodes: target_nodes.or_else(|| flags.target_node_selector.clone()),
        };
        reader.knob(&knobs::TIMEOUT_INSPECT, some);
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
        let mut keys = reader.present_keys(&knobs::TARGET_NODES, port);
        keys.extend(reader.present_keys(&knobs::OPENSTACK_NODES, port));
        if !goes_by_node(reader.settings, reader.service) {
            let why = "traffic goes by node with externalTrafficPolicy Local, or --endpoints-via=nodeport";
            reader.note_without_effect(&keys, why);
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
        let cookie = reader.is_on(&knobs::COOKIE, some);
        let asked = reader.knob(&knobs::MODE, some);
        let passed = reader.knob(&knobs::TLS_PASSTHROUGH, some);
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
        self.hsts = reader.value(&knobs::HSTS, some);
        self.redirect_https = reader.is_on(&knobs::REDIRECT_HTTPS, some);
        self.passthrough = passed.map(|found| found.value).unwrap_or_default();
        let http = forwarded == Some(true) || cookie || tls_is_http;
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
        self.cookie = cookie && self.protocol.is_http();
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
        let (number, protocol) = (port.number, self.protocol);
        let mut keys = Vec::new();
        if self.hsts.is_some() && protocol != Protocol::Https {
            keys.push(format!(
                "{OWN}hsts (port {number} is {protocol}, not https)"
            ));
        }
        if self.redirect_https && protocol != Protocol::Http {
            keys.push(format!(
                "{OWN}redirect-https (port {number} is {protocol}, not http)"
            ));
        }
        reader.note_without_effect(&keys, "");
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
        reader.present_keys(&knobs::MODE, port),
        reader.present_keys(&knobs::COOKIE, port),
        reader.present_keys(&knobs::X_FORWARDED_FOR, port),
        reader.present_keys(&knobs::TLS_SECRET, port),
        reader.present_keys(&knobs::SSL_TERM, port),
        reader.present_keys(&knobs::TLS_PASSTHROUGH, port),
        reader.present_keys(&knobs::REDIRECT_HTTPS, port),
        reader.present_keys(&knobs::HSTS, port),
    ];
    let of_port = [format!(".{}-udp", port.number), format!(".{}", port.number)];
    let is_meant = |key: &String| only_udp || of_port.iter().any(|end| key.ends_with(end));
    let keys: Vec<String> = keys.concat().into_iter().filter(is_meant).collect();
    reader.note_without_effect(&keys, "UDP carries neither HTTP nor TLS");
}

/// The PROXY header and X-Forwarded-For, which exclude one another. If both are set, the last good values of both stay.
fn proxy_or_forwarded(reader: &mut Reader<'_>, port: &Port) -> (SendProxy, Option<bool>) {
    let some = Some(port);
    let is_tcp = port.protocol == observe::Protocol::Tcp;
    let mut proxy = reader.knob(&knobs::PROXY_PROTOCOL, some);
    let mut forwarded = reader
        .knob(&knobs::X_FORWARDED_FOR, some)
        .filter(|_| is_tcp);
    if let (Some(header), Some(forward)) = (&proxy, &forwarded)
        && header.value != SendProxy::Off
        && forward.value
    {
        let message = format!(
            "{} and {} cannot be used together; port {} stays as it was",
            header.key, forward.key, port.number
        );
        reader.warn(Reason::AnnotationConflict, message);
        let proxy_slot = slot(knobs::PROXY_PROTOCOL.name, some);
        let forwarded_slot = slot(knobs::X_FORWARDED_FOR.name, some);
        reader.memory.remove(&proxy_slot);
        reader.memory.remove(&forwarded_slot);
        proxy = reader.remembered(&knobs::PROXY_PROTOCOL, &proxy_slot);
        forwarded = reader.remembered(&knobs::X_FORWARDED_FOR, &forwarded_slot);
    }
    (
        proxy.map_or(SendProxy::Off, |found| found.value),
        forwarded.map(|found| found.value),
    )
}

/// The certificate that annotations name for a port, and whether they make the port HTTP.
fn tls(reader: &mut Reader<'_>, port: &Port) -> (Tls, bool) {
    let default = reader.knob(&knobs::SSL_TERM, Some(port));
    let default = default.filter(|found| found.value);
    match reader.lookup(&knobs::TLS_SECRET, Some(port)) {
        Lookup::Value(found) => {
            let http = found.key == knobs::OPENSTACK_TLS || default.is_some();
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
                reader.raw(knobs::OPENSTACK_TLS).is_some() || default.is_some(),
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
    let mut keys = reader.present_keys(&knobs::TLS_SECRET, port);
    let default = reader.knob(&knobs::SSL_TERM, Some(port));
    keys.extend(default.filter(|found| found.value).map(|found| found.key));
    let why = format!(
        "with {by}, port {} relays TLS without decrypting it",
        port.number
    );
    reader.note_without_effect(&keys, &why);
    (Tls::Plain, false)
}
