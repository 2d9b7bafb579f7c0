//! Active health checks of a Service port. The annotations of Ballast, OpenStack and Exoscale differ in their defaults.

use std::num::NonZeroU16;
use std::time::Duration;

use ballast_core::table::{Health, HealthMode, Shown};

use super::annotations::values::{self, CheckPort};
use super::annotations::{EXOSCALE, Found, Knob, Reader};
use super::context::Slices;
use super::endpoints::{numbers, via};
use super::notice::Reason;
use crate::observe::{Port, Protocol, Target};
use crate::settings::EndpointsVia;

/// The check that annotations ask for, if one can be made for the port.
pub(super) fn check(reader: &mut Reader<'_>, slices: &Slices<'_>, port: &Port) -> Option<Health> {
    let some = Some(port);
    let dialect = dialect(reader, port)?;
    let mut mode = dialect.mode;
    let udp = port.protocol == Protocol::Udp;
    if udp && dialect.openstack {
        mode = HealthMode::Udp;
    }
    let at = match reader.knob(&CHECK_PORT, some) {
        Some(found) => named_port(reader, slices, port, &found)?,
        None if udp && mode != HealthMode::Udp => neighbour(reader, slices, port)?,
        None => None,
    };
    let path = reader.knob(&PATH, some);
    let http = matches!(mode, HealthMode::Http | HealthMode::Https);
    if let Some(path) = &path
        && !http
    {
        reader.note(
            Reason::AnnotationIgnored,
            format!("without effect here: {} (the check is {mode})", path.key),
        );
    }
    let said = reader.knob(&INTERVAL, some);
    let interval = said.as_ref().map_or(dialect.interval, |found| found.value);
    let timeout = match reader.knob(&TIMEOUT, some) {
        Some(found) => Some(clamp(reader, port, &found, interval, said.as_ref())),
        // A default is shortened without a Warning.
        None => dialect.timeout.map(|timeout| timeout.min(interval)),
    };
    Some(Health {
        mode,
        port: at,
        interval,
        fast_interval: None,
        timeout,
        rise: reader
            .knob(&RISE, some)
            .map_or(dialect.rise, |found| found.value),
        fall: reader
            .knob(&FALL, some)
            .map_or(dialect.fall, |found| found.value),
        method: None,
        path: path.filter(|_| http).map(|found| found.value),
        host: None,
        expect: reader
            .knob(&CODES, some)
            .filter(|_| http)
            .map(|found| found.value),
        body: None,
        send: None,
        answer: None,
        tls: None,
    })
}

/// Whose annotations ask for the check, and their defaults.
struct Dialect {
    mode: HealthMode,
    openstack: bool,
    interval: Duration,
    timeout: Option<Duration>,
    rise: u8,
    fall: u8,
}

/// Our own annotations count first, then OpenStack's, then Exoscale's.
fn dialect(reader: &mut Reader<'_>, port: &Port) -> Option<Dialect> {
    let own = Dialect {
        mode: HealthMode::Tcp,
        openstack: false,
        interval: Duration::from_secs(2),
        timeout: None,
        rise: 2,
        fall: 3,
    };
    let found = if let Some(found) = reader.knob(&MODE, Some(port)) {
        Dialect {
            mode: found.value,
            ..own
        }
    } else if let Some(found) = reader.knob(&MONITOR, Some(port)) {
        let mode = if found.value {
            HealthMode::Tcp
        } else {
            HealthMode::Off
        };
        warn_of_exoscale(reader, port, &found.key, mode);
        Dialect {
            mode,
            openstack: true,
            interval: Duration::from_secs(5),
            timeout: Some(Duration::from_secs(3)),
            rise: 1,
            fall: 3,
        }
    } else if exoscale_key(reader).is_some() {
        Dialect {
            mode: reader
                .knob(&EXOSCALE_MODE, Some(port))
                .map_or(HealthMode::Tcp, |found| found.value),
            interval: Duration::from_secs(10),
            timeout: Some(Duration::from_secs(5)),
            fall: 1,
            ..own
        }
    } else {
        return None;
    };
    (found.mode != HealthMode::Off).then_some(found)
}

/// The first of Exoscale's keys about checks. Any of them asks for a check.
fn exoscale_key<'a>(reader: &Reader<'a>) -> Option<&'a str> {
    let mut keys = reader.service.annotations.keys();
    let key = keys.find(|key| key.starts_with(EXOSCALE_CHECKS) && reader.reads(key))?;
    Some(key)
}

/// Warns if Exoscale's keys ask for another check than OpenStack's, which is made.
fn warn_of_exoscale(reader: &mut Reader<'_>, port: &Port, openstack: &str, mode: HealthMode) {
    let Some(any) = exoscale_key(reader) else {
        return;
    };
    let found = reader.knob(&EXOSCALE_MODE, Some(port));
    let (key, other) = match &found {
        Some(found) => (found.key.as_str(), found.value),
        None => (any, HealthMode::Tcp),
    };
    if other != mode {
        let message = format!(
            "{openstack} (check: {mode}) and {key} (check: {other}) differ; {openstack} counts"
        );
        reader.warn(Reason::AnnotationConflict, message);
    }
}

/// The port that is checked if an annotation names one. The outer `None`: no check can be made.
#[expect(
    clippy::option_option,
    reason = "no check at all, one at the endpoint's own port, or one at another"
)]
fn named_port(
    reader: &mut Reader<'_>,
    slices: &Slices<'_>,
    port: &Port,
    found: &Found<CheckPort>,
) -> Option<Option<NonZeroU16>> {
    let service = reader.service;
    let number = match &found.value {
        CheckPort::Name(name) => {
            let other = service.ports.iter().find(|port| port.name == *name);
            let Some(other) = other else {
                let message = format!(
                    "{}: this Service has no port {name:?}; the check is not made",
                    found.key
                );
                reader.warn(Reason::InvalidAnnotation, message);
                return None;
            };
            return target(reader, slices, port, other);
        }
        CheckPort::Number(number) => *number,
    };
    if !found.key.starts_with(EXOSCALE) {
        return Some(NonZeroU16::new(number));
    }
    // Exoscale's annotation has a port of the nodes.
    if service.health_check_node_port == Some(number) {
        no_check(
            reader,
            port,
            "kube-proxy's health port reports the readiness of pods, which counts already",
        );
        return None;
    }
    match service
        .ports
        .iter()
        .find(|port| port.node_port == Some(number))
    {
        Some(other) => target(reader, slices, port, other),
        None => Some(NonZeroU16::new(number)),
    }
}

/// The port for a TCP check of a UDP port: the TCP port with the same node port or number.
#[expect(
    clippy::option_option,
    reason = "no check at all, one at the endpoint's own port, or one at another"
)]
fn neighbour(
    reader: &mut Reader<'_>,
    slices: &Slices<'_>,
    port: &Port,
) -> Option<Option<NonZeroU16>> {
    let mut tcp = reader
        .service
        .ports
        .iter()
        .filter(|other| other.protocol == Protocol::Tcp);
    let same_node_port =
        |other: &&Port| port.node_port.is_some() && other.node_port == port.node_port;
    let found = tcp
        .clone()
        .find(same_node_port)
        .or_else(|| tcp.find(|other| other.number == port.number));
    match found {
        Some(other) => target(reader, slices, port, other),
        None => {
            no_check(
                reader,
                port,
                "this Service has no TCP port of the same number that could be checked",
            );
            None
        }
    }
}

/// The port of the endpoints for a Service port; the inner `None`: the endpoint's own port.
#[expect(
    clippy::option_option,
    reason = "no check at all, one at the endpoint's own port, or one at another"
)]
fn target(
    reader: &mut Reader<'_>,
    slices: &Slices<'_>,
    checked: &Port,
    other: &Port,
) -> Option<Option<NonZeroU16>> {
    if checked == other {
        return Some(None);
    }
    let via = via(reader.settings, reader.service);
    let number = match via {
        EndpointsVia::Pod => pods_number(reader, slices, other),
        EndpointsVia::NodePort => other.node_port,
        EndpointsVia::ClusterIp => Some(other.number),
    };
    if number.is_none() {
        match other.node_port {
            None if via == EndpointsVia::NodePort => {
                no_check(reader, checked, "it has no node port");
            }
            _ => {
                let message =
                    without_check(checked, "no endpoint has the number of its target port");
                reader.note_by_node(Reason::NoActiveCheck, message);
            }
        }
    }
    number.map(NonZeroU16::new)
}

/// The port number of the pods for a Service port.
fn pods_number(reader: &Reader<'_>, slices: &Slices<'_>, other: &Port) -> Option<u16> {
    let seen = slices
        .of_service(&reader.service.key)
        .iter()
        .flat_map(|slice| numbers(slice, other))
        .min();
    seen.or(match other.target {
        Target::Number(number) => Some(number),
        Target::Name(_) => None,
    })
}

fn no_check(reader: &mut Reader<'_>, port: &Port, why: &str) {
    reader.note(Reason::NoActiveCheck, without_check(port, why));
}

fn without_check(port: &Port, why: &str) -> String {
    format!(
        "port {}/{} has no active check: {why}; readiness decides",
        port.number,
        port.protocol.word()
    )
}

fn clamp(
    reader: &mut Reader<'_>,
    port: &Port,
    timeout: &Found<Duration>,
    interval: Duration,
    said: Option<&Found<Duration>>,
) -> Duration {
    if timeout.value > interval {
        let by = said.map_or("the default", |found| &found.key);
        let message = format!(
            "{}: {} is above the interval of the checks of port {}/{} ({}, {by}); the interval is used instead",
            timeout.key,
            Shown(timeout.value),
            port.number,
            port.protocol.word(),
            Shown(interval),
        );
        reader.warn(Reason::InvalidAnnotation, message);
    }
    timeout.value.min(interval)
}

const MODE: Knob<HealthMode> = Knob {
    name: "health-check",
    aliases: &[],
    parse: values::health_mode,
};

const MONITOR: Knob<bool> = Knob {
    name: "",
    aliases: &["loadbalancer.openstack.org/enable-health-monitor"],
    parse: values::boolean,
};

const EXOSCALE_MODE: Knob<HealthMode> = Knob {
    name: "",
    aliases: &["service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-mode"],
    parse: values::health_mode,
};

const CHECK_PORT: Knob<CheckPort> = Knob {
    name: "health-check-port",
    aliases: &["service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-port"],
    parse: values::check_port,
};

const PATH: Knob<ballast_core::table::Target> = Knob {
    name: "health-check-path",
    aliases: &["service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-uri"],
    parse: values::target,
};

const CODES: Knob<ballast_core::table::Expect> = Knob {
    name: "health-check-codes",
    aliases: &[],
    parse: values::expect,
};

const INTERVAL: Knob<Duration> = Knob {
    name: "health-check-interval",
    aliases: &[
        "loadbalancer.openstack.org/health-monitor-delay",
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-interval",
    ],
    parse: values::check_time,
};

const TIMEOUT: Knob<Duration> = Knob {
    name: "health-check-timeout",
    aliases: &[
        "loadbalancer.openstack.org/health-monitor-timeout",
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-timeout",
    ],
    parse: values::check_time,
};

const FALL: Knob<u8> = Knob {
    name: "health-check-fall",
    aliases: &[
        "loadbalancer.openstack.org/health-monitor-max-retries-down",
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-retries",
    ],
    parse: values::fall,
};

const RISE: Knob<u8> = Knob {
    name: "health-check-rise",
    aliases: &["loadbalancer.openstack.org/health-monitor-max-retries"],
    parse: values::rise,
};

const EXOSCALE_CHECKS: &str =
    "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-";
