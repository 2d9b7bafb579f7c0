//! Plans a Service of type LoadBalancer: a port of the node for every port of the Service.

use std::sync::Arc;

use ballast_core::table::Text;

use super::annotations::{Reader, knobs};
use super::canaries;
use super::certificate::{Termination, certificate};
use super::context::Context;
use super::endpoints::warn_of_slices;
use super::health;
use super::nodes::ThisNode;
use super::notice::Reason;
use super::options::{PortOptions, ReachedBy};
use super::parts::{backend, frontend, parts, qualified};
use super::placement::{self, Placement};
use super::ports::served_ports;
use super::ranges::Ranges;
use super::route_limit::RouteLimit;
use super::service_plan::{PortPlan, ServicePlan};
use super::status::{Allotment, PortError, Status, Verdict, is_foreign, must_be_released};
use crate::allocation::NodePort;
use crate::observe::{Port, Protocol, Service};

/// Plans a LoadBalancer of our class.
pub(super) fn plan(context: &Context<'_>, service: &Arc<Service>) -> ServicePlan {
    let mut reader = Reader::new(service, context.observed, context.settings);
    if reader.is_on(&knobs::IGNORE, None) {
        let why = "an annotation says to ignore it";
        let status = match must_be_released(service, context.settings) {
            true => Status::released(service, why, context.settings),
            false => Status::left_alone(service, why),
        };
        return ServicePlan::nothing(service, status).left_alone_by(reader);
    }
    let mut taken_from = None;
    if is_foreign(service) {
        let is_wanted = reader.is_on(&knobs::TAKE_OVER, None) || context.settings.take_over;
        if !is_wanted || !context.observed.abandoned.contains(&service.key) {
            return foreign(service);
        }
        taken_from = Some(writer(service).to_owned());
    }
    reader.note_keys_without_effect();
    warn_of_slices(context, &mut reader);
    canaries::read(&mut reader);
    let why = "a LoadBalancer has ports of its own; hosts and paths are for other Services, behind the shared port";
    reader.without_effect(&["host", "path", "rewrite"], why);
    let mut plan = ServicePlan::nothing(service, Status::new(service, Verdict::Served, ""));
    match placement::find(context, &mut reader) {
        Err(unplaced) => {
            reader.keep_last_good_of_ports();
            plan.status = match unplaced.is_left_alone {
                true => Status::left_alone(service, unplaced.why),
                false => Status {
                    allotment: Some(Allotment::Failed(unplaced.why.clone())),
                    ..Status::pending(service, unplaced.why)
                },
            };
            plan.asks_at = unplaced.asks_at;
        }
        Ok((place, asked)) => {
            let mut limit = RouteLimit::of(context.settings);
            for port in served_ports(&mut reader) {
                plan_port(context, &mut reader, &place, port, &mut limit, &mut plan);
            }
            limit.warn(&mut reader);
            if plan.ports.iter().all(|port| port.closed) {
                let port_errors = std::mem::take(&mut plan.status.port_errors);
                plan.status = Status {
                    port_errors,
                    ..Status::pending(service, "none of its ports can be served")
                };
            }
            plan.placement = Some(place);
            plan.asked = asked;
        }
    }
    plan.drop_doubles();
    plan.find_unread();
    let planned = plan.ports.iter().map(|port| port.port);
    let ports = planned.chain(plan.unread.iter().copied()).collect();
    if let Some(asked) = &mut plan.asked {
        asked.complete(context, ports);
    }
    plan.status.taken_from = taken_from;
    plan.with_findings(reader)
}

/// The plan of a Service without a class that another controller publishes.
fn foreign(service: &Arc<Service>) -> ServicePlan {
    let status = Status::left_alone(service, "another controller publishes it");
    let mut plan = ServicePlan::nothing(service, status);
    let writer = writer(service);
    let message = format!(
        "{writer} publishes this Service at {}, so Ballast does not touch it; to have it published by Ballast once {writer} has not written its status for a minute: \"ballast-controller publish --take-over\", or the annotation ballast.dev/take-over: \"true\" on this Service",
        service.ingress.join(", ")
    );
    plan.warn(Reason::ForeignStatus, message);
    plan
}

/// The name of the controller that publishes a Service, if its field manager is known.
fn writer(service: &Service) -> &str {
    let rival = service.rival.as_ref();
    rival.map_or("another controller", |rival| &rival.manager)
}

/// Plans one port of a Service.
fn plan_port(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    place: &Placement,
    port: &Port,
    limit: &mut RouteLimit,
    plan: &mut ServicePlan,
) {
    if port.protocol == Protocol::Sctp {
        reader.warn(Reason::SyncLoadBalancerFailed, format!("Error syncing load balancer: port {}/SCTP is not served; Ballast speaks TCP and UDP", port.number));
        plan.status
            .port_errors
            .push(PortError::unsupported(port.number, port.protocol));
        return;
    }
    let mut options = PortOptions::read(reader, port, ReachedBy::OwnPort);
    if !options.passthrough.is_empty() {
        let hosts = std::mem::take(&mut options.passthrough);
        let count = hosts.len();
        // The source ranges of a port of its own stand once.
        options.passthrough = limit.admit(port.number, 0, hosts, count);
        if options.passthrough.is_empty() {
            return;
        }
    }
    let check = health::check(reader, &context.slices, port);
    let external = external(reader, port);
    let (front_text, back_text) = descriptions(reader, port);
    if options.ranges == Ranges::Closed {
        return;
    }
    let (certificate, closed) = match certificate(context, reader, &options, port, plan) {
        Termination::Unserved => return,
        Termination::Closed => (None, true),
        Termination::Open(certificate) => (certificate, false),
    };
    let service = reader.service;
    let Some(name) = qualified(&service.key, port) else {
        return;
    };
    let only_on = match context.nodes.here {
        ThisNode::LoadBalancer(node) if place.strict => Some(&*node.name),
        _ => None,
    };
    let parts = context.needs_parts(&service.key).then(|| {
        let backend = backend(
            context, plan, &name, back_text, port, &options, check, only_on,
        );
        let frontend = frontend(&name, front_text, &service.key, &options, certificate);
        parts(context, plan, frontend, backend, port, &options, only_on)
    });
    plan.ports.push(PortPlan {
        port: NodePort::of(external, port.protocol),
        name,
        parts,
        closed,
    });
}

/// The port of the node at which a Service port listens.
fn external(reader: &mut Reader<'_>, port: &Port) -> u16 {
    let Some(found) = reader.knob(&knobs::EXTERNAL_PORT, Some(port)) else {
        return port.number;
    };
    let whole = !found.key.contains(&format!(".{}", port.number));
    match found.value.as_slice() {
        [(None, _)] if whole && reader.service.ports.len() > 1 => {
            let message = format!(
                "{}: this Service has several ports; say 80:8080, 443:8443; it is ignored",
                found.key
            );
            reader.warn(Reason::InvalidAnnotation, message);
            port.number
        }
        [(None, external)] => *external,
        map => {
            let mut map = map.iter();
            let found = map.find(|(inner, _)| *inner == Some(port.number));
            found.map_or(port.number, |(_, external)| *external)
        }
    }
}

/// The descriptions of the frontend and of the table's service. Exoscale's annotations for the latter count only if the Service
/// has one port.
fn descriptions(reader: &mut Reader<'_>, port: &Port) -> (Option<Text>, Option<Text>) {
    let some = Some(port);
    let name = reader.value(&knobs::DISPLAY_NAME, some);
    let description = reader.value(&knobs::DESCRIPTION, some);
    let front = text(name.clone(), description.clone());
    if reader.service.ports.len() > 1 {
        return (front.clone(), front);
    }
    let of_service = reader.value(&knobs::SERVICE_NAME, some);
    let description_of_service = reader.value(&knobs::SERVICE_DESCRIPTION, some);
    let back = text(of_service.or(name), description_of_service.or(description));
    (front, back)
}

fn text(name: Option<String>, description: Option<String>) -> Option<Text> {
    let parts = [name, description].into_iter().flatten();
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    parts.join(": ").parse().ok().filter(|_| !parts.is_empty())
}
