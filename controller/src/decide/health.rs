//! Active health checks of a Service port. The annotations of Ballast, OpenStack and Exoscale differ in their defaults.

use std::num::NonZeroU16;
use std::time::Duration;

use ballast_core::table::{Health, HealthMode, Shown};

use super::annotations::values::CheckPort;
use super::annotations::{EXOSCALE, Found, Reader, knobs};
use super::context::Slices;
use super::endpoints::{numbers, target_number, via};
use super::notice::Reason;
use crate::observe::{Port, Protocol};
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
    let at = match reader.knob(&knobs::CHECK_PORT, some) {
        Some(found) => named_port(reader, slices, port, &found)?,
        None if udp && mode != HealthMode::Udp => neighbour(reader, slices, port)?,
        None => None,
    };
    let path = reader.knob(&knobs::CHECK_PATH, some);
    let http = matches!(mode, HealthMode::Http | HealthMode::Https);
    if let Some(path) = path.as_ref().filter(|_| !http) {
        let why = format!("the check is {mode}");
        reader.note_without_effect(std::slice::from_ref(&path.key), &why);
    }
    let said = reader.knob(&knobs::CHECK_INTERVAL, some);
    let interval = said.as_ref().map_or(dialect.interval, |found| found.value);
    let timeout = match reader.knob(&knobs::CHECK_TIMEOUT, some) {
        Some(found) => Some(clamp(reader, port, &found, interval, said.as_ref())),
        // A default is shortened without a Warning.
        None => dialect.timeout.map(|timeout| timeout.min(interval)),
    };
    let rise = reader.value(&knobs::CHECK_RISE, some);
    let fall = reader.value(&knobs::CHECK_FALL, some);
    let codes = reader.value(&knobs::CHECK_CODES, some);
    Some(Health {
        port: at,
        interval,
        timeout,
        rise: rise.unwrap_or(dialect.rise),
        fall: fall.unwrap_or(dialect.fall),
        path: path.filter(|_| http).map(|found| found.value),
        expect: codes.filter(|_| http),
        ..Health::new(mode)
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
    let found = if let Some(mode) = reader.value(&knobs::HEALTH_CHECK, Some(port)) {
        Dialect { mode, ..own }
    } else if let Some(found) = reader.knob(&knobs::OPENSTACK_MONITOR, Some(port)) {
        let mode = match found.value {
            true => HealthMode::Tcp,
            false => HealthMode::Off,
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
    } else {
        exoscale_key(reader)?;
        let mode = reader.value(&knobs::EXOSCALE_MODE, Some(port));
        Dialect {
            mode: mode.unwrap_or(HealthMode::Tcp),
            interval: Duration::from_secs(10),
            timeout: Some(Duration::from_secs(5)),
            fall: 1,
            ..own
        }
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
    let found = reader.knob(&knobs::EXOSCALE_MODE, Some(port));
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

/// The port at which endpoints are checked; `None`: each endpoint's own.
type CheckedPort = Option<NonZeroU16>;

/// The port that is checked if an annotation names one; `None`: no check can be made.
fn named_port(
    reader: &mut Reader<'_>,
    slices: &Slices<'_>,
    port: &Port,
    found: &Found<CheckPort>,
) -> Option<CheckedPort> {
    let service = reader.service;
    let number = match &found.value {
        CheckPort::Name(name) => {
            let other = service.ports.iter().find(|port| port.name == *name);
            if other.is_none() {
                let message = format!(
                    "{}: this Service has no port {name:?}; the check is not made",
                    found.key
                );
                reader.warn(Reason::InvalidAnnotation, message);
            }
            return target(reader, slices, port, other?);
        }
        CheckPort::Number(number) => *number,
    };
    if !found.key.starts_with(EXOSCALE) {
        return Some(NonZeroU16::new(number));
    }
    // Exoscale's annotation has a port of the nodes.
    if service.health_check_node_port == Some(number) {
        let why = "kube-proxy's health port reports the readiness of pods, which counts already";
        no_check(reader, port, why);
        return None;
    }
    let mut ports = service.ports.iter();
    match ports.find(|port| port.node_port == Some(number)) {
        Some(other) => target(reader, slices, port, other),
        None => Some(NonZeroU16::new(number)),
    }
}

/// The port for a TCP check of a UDP port: the TCP port with the same node port or number; `None`: there is none.
fn neighbour(reader: &mut Reader<'_>, slices: &Slices<'_>, port: &Port) -> Option<CheckedPort> {
    let ports = reader.service.ports.iter();
    let mut tcp = ports.filter(|other| other.protocol == Protocol::Tcp);
    let same_node_port =
        |other: &&Port| port.node_port.is_some() && other.node_port == port.node_port;
    let found = tcp.clone().find(same_node_port);
    let found = found.or_else(|| tcp.find(|other| other.number == port.number));
    if found.is_none() {
        let why = "this Service has no TCP port of the same number that could be checked";
        no_check(reader, port, why);
    }
    target(reader, slices, port, found?)
}

/// The port of the endpoints for a Service port; `None`: it is not known.
fn target(
    reader: &mut Reader<'_>,
    slices: &Slices<'_>,
    checked: &Port,
    other: &Port,
) -> Option<CheckedPort> {
    if checked == other {
        return Some(None);
    }
    let number = match via(reader.settings, reader.service) {
        EndpointsVia::ClusterIp => Some(other.number),
        EndpointsVia::NodePort => {
            if other.node_port.is_none() {
                no_check(reader, checked, "it has no node port");
            }
            other.node_port
        }
        EndpointsVia::Pod => {
            let number = pods_number(reader, slices, other);
            if number.is_none() {
                let why = "no endpoint has the number of its target port";
                reader.note_by_node(Reason::NoActiveCheck, without_check(checked, why));
            }
            number
        }
    };
    number.map(NonZeroU16::new)
}

/// The port number of the pods for a Service port.
fn pods_number(reader: &Reader<'_>, slices: &Slices<'_>, other: &Port) -> Option<u16> {
    let slices = slices.of_service(&reader.service.key).iter();
    let seen = slices.flat_map(|slice| numbers(slice, other)).min();
    seen.or_else(|| target_number(other))
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

const EXOSCALE_CHECKS: &str =
    "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-";
