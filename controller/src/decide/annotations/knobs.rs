//! Every annotation that is read: the name after `ballast.dev/`, the keys of other systems in the order of precedence, and the
//! parser of the value.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use ballast_core::table::{
    Algorithm, Expect, HeaderMatch, HealthMode, HostPattern, List, MaxAge, OnGone, OrOff, Protocol,
    SendProxy, Target,
};
use ipnet::IpNet;

use super::Knob;
use super::values::{self, CheckPort, Paths, Rewrite};
use crate::settings::{self, Selector};

/// A knob without the type of its values.
pub(super) struct AnyKnob {
    pub(super) name: &'static str,
    pub(super) aliases: &'static [&'static str],
    /// Why a value cannot be read.
    pub(super) flaw: fn(&str) -> Option<String>,
}

/// All knobs.
pub(super) fn all() -> impl Iterator<Item = &'static AnyKnob> {
    OF_SERVICES.iter().chain(OF_PORTS)
}

/// Declares knobs, and a list of them.
macro_rules! knobs {
    ($list:ident: $( $(#[$doc:meta])* $constant:ident: $type:ty = $name:literal [$($alias:expr),*] $parse:path; )*) => {
        pub(super) const $list: &[AnyKnob] = &[$(AnyKnob {
            name: $name,
            aliases: &[$($alias),*],
            flaw: |raw| $parse(raw).err(),
        }),*];
        $(
            $(#[$doc])*
            pub(in crate::decide) const $constant: Knob<$type> = Knob {
                name: $name,
                aliases: &[$($alias),*],
                parse: $parse,
            };
        )*
    };
}

pub(in crate::decide) const OPENSTACK_TLS: &str =
    "loadbalancer.openstack.org/default-tls-container-ref";

knobs! { OF_SERVICES:
    IGNORE: bool = "ignore" ["kube-vip.io/ignore"] values::boolean;
    TAKE_OVER: bool = "take-over" [] values::boolean;
    INTERNAL: bool = "internal" ["service.beta.kubernetes.io/openstack-internal-load-balancer"] values::boolean;
    HOSTNAME: Vec<String> = "hostname" ["loadbalancer.openstack.org/hostname", "kube-vip.io/loadbalancerHostname"] values::hostnames;
    ADDRESSES: Vec<IpAddr> = "load-balancer-ips" [
        "metallb.io/loadBalancerIPs",
        "metallb.universe.tf/loadBalancerIPs",
        "kube-vip.io/loadbalancerIPs",
        "lbipam.cilium.io/ips"
    ] values::addresses;
    LB_NODES: Selector = "node-selector" [] values::selector;
    LOCAL_MODE: bool = "external-traffic-policy-mode" [] values::strict;
    /// The pools, the preferred one first. OpenStack's class is the pool of that name.
    POOL: Vec<String> = "address-pool" [
        "metallb.io/address-pool",
        "metallb.universe.tf/address-pool",
        "service.antrea.io/external-ip-pool",
        "loadbalancer.openstack.org/class",
        "purelb.io/service-group"
    ] values::pools;
    /// Keys that other controllers write on every Service are no aliases.
    SHARING: String = "sharing-key" [
        "metallb.io/allow-shared-ip",
        "metallb.universe.tf/allow-shared-ip",
        "lbipam.cilium.io/sharing-key"
    ] values::word;
    CANARY_OF: String = "canary-of" [] values::service;
    CANARY_WEIGHT: u32 = "canary-weight" [] values::percent;
    CANARY_HEADER: HeaderMatch = "canary-header" [] values::header;
    KEEP_ADDRESS: bool = "keep-address" ["loadbalancer.openstack.org/keep-floatingip"] values::boolean;
    EXOSCALE_EXTERNAL: bool = "" ["service.beta.kubernetes.io/exoscale-loadbalancer-external"] values::boolean;
    ANTREA_SHARED: bool = "" ["service.antrea.io/allow-shared-load-balancer-ip"] values::boolean;
    CONTRIB_HOST: Vec<HostPattern> = "" ["serviceloadbalancer/lb.host"] values::hosts;
    ACL_MATCH: Paths = "" ["serviceloadbalancer/lb.aclMatch"] values::paths;
}

knobs! { OF_PORTS:
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
    /// The order of precedence of source ranges is not that of other knobs: see [`crate::decide`]'s `ranges`.
    SOURCE_RANGES: Option<List<IpNet>> = "source-ranges" [] values::ranges;
    TARGET_NODES: Selector = "target-node-selector" [] values::selector;
    /// The same setting in OpenStack's syntax.
    OPENSTACK_NODES: Selector = "" ["loadbalancer.openstack.org/node-selector"] values::openstack_selector;
    EXTERNAL_PORT: Vec<(Option<u16>, u16)> = "external-port" [] values::external_port;
    ON_REMOVED: OnGone = "on-endpoint-removed" [] values::on_gone;
    DESCRIPTION: String = "description" ["service.beta.kubernetes.io/exoscale-loadbalancer-description"] values::line;
    DISPLAY_NAME: String = "display-name" ["service.beta.kubernetes.io/exoscale-loadbalancer-name"] values::line;
    SERVICE_DESCRIPTION: String = "description" ["service.beta.kubernetes.io/exoscale-loadbalancer-service-description"] values::line;
    SERVICE_NAME: String = "display-name" ["service.beta.kubernetes.io/exoscale-loadbalancer-service-name"] values::line;

    // HTTP and TLS
    MODE: Protocol = "mode" [] values::mode;
    HOST: Vec<HostPattern> = "host" [] values::hosts;
    PATH: Paths = "path" [] values::paths;
    REWRITE: Rewrite = "rewrite" [] values::rewrite;
    TLS_SECRET: (Option<String>, String) = "tls-secret" [OPENSTACK_TLS] values::secret;
    SSL_TERM: bool = "sslTerm" ["serviceloadbalancer/lb.sslTerm"] values::boolean;
    TLS_PASSTHROUGH: Vec<HostPattern> = "tls-passthrough" [] values::hosts;
    REDIRECT_HTTPS: bool = "redirect-https" [] values::boolean;
    HSTS: MaxAge = "hsts" [] values::max_age;
    X_FORWARDED_FOR: bool = "x-forwarded-for" ["loadbalancer.openstack.org/x-forwarded-for"] values::boolean;

    // Health checks
    HEALTH_CHECK: HealthMode = "health-check" [] values::health_mode;
    OPENSTACK_MONITOR: bool = "" ["loadbalancer.openstack.org/enable-health-monitor"] values::boolean;
    EXOSCALE_MODE: HealthMode = "" ["service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-mode"] values::health_mode;
    CHECK_PORT: CheckPort = "health-check-port" ["service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-port"] values::check_port;
    CHECK_PATH: Target = "health-check-path" ["service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-uri"] values::target;
    CHECK_CODES: Expect = "health-check-codes" [] values::expect;
    CHECK_INTERVAL: Duration = "health-check-interval" [
        "loadbalancer.openstack.org/health-monitor-delay",
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-interval"
    ] values::check_time;
    CHECK_TIMEOUT: Duration = "health-check-timeout" [
        "loadbalancer.openstack.org/health-monitor-timeout",
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-timeout"
    ] values::check_time;
    CHECK_FALL: u8 = "health-check-fall" [
        "loadbalancer.openstack.org/health-monitor-max-retries-down",
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-retries"
    ] values::fall;
    CHECK_RISE: u8 = "health-check-rise" ["loadbalancer.openstack.org/health-monitor-max-retries"] values::rise;
}
