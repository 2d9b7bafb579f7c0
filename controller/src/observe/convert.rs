//! Converts Kubernetes' objects to the parts of [`super::Observed`]. Called for every object of a list or a watch.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use serde_json::Value;

use super::publication::{self, FINALIZER, INGRESS, Publication};
use super::{
    Endpoint, Family, Grant, Key, Material, Node, Port, Protocol, Rival, Service, ServiceKind,
    Slice, SlicePort, Target,
};
use crate::decide;
use crate::request::is_ours;

/// The name of an object of a namespace.
pub(super) fn key(meta: &ObjectMeta) -> Result<Key, String> {
    let name = meta.name.as_deref().filter(|name| !name.is_empty());
    let name = name.ok_or("metadata.name is missing; name it")?;
    let namespace = meta.namespace.as_deref().unwrap_or("default");
    Ok(Key::new(namespace, name))
}

/// The content of a Secret: of its entries only those that are used, and none that is too large to be kept.
pub(super) fn material(from: core::Secret) -> Material {
    let binary = from.data.into_iter().flatten();
    let binary = binary.map(|(name, bytes)| (name, bytes.0));
    // Manifests may have `stringData`; the API server turns it into `data`.
    let text = from.string_data.into_iter().flatten();
    let text = text.map(|(name, text)| (name, text.into_bytes()));
    let mut annotations = from.metadata.annotations.unwrap_or_default();
    Material::allowed(binary.chain(text).collect(), annotations.remove(ALLOW_FROM))
}

/// The part of a ReferenceGrant that lets Services refer to Secrets; `None`: it has no such part. A malformed entry permits
/// nothing.
pub(super) fn grant(from: &Value) -> Option<Grant> {
    let list = |name: &str| from.pointer(&format!("/spec/{name}"))?.as_array();
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let is =
        |value: &&Value, kind: &str| text(value, "group").is_empty() && text(value, "kind") == kind;
    let services = list("from")?.iter().filter(|one| is(one, "Service"));
    let namespaces = services.map(|one| text(one, "namespace"));
    let secrets: Vec<&Value> = list("to")?.iter().filter(|one| is(one, "Secret")).collect();
    let names: BTreeSet<String> = secrets.iter().map(|one| text(one, "name")).collect();
    (!secrets.is_empty()).then(|| Grant {
        from: namespaces.collect(),
        to: (!names.contains("")).then_some(names),
    })
}

pub(crate) fn service(from: core::Service) -> Result<Service, String> {
    let key = key(&from.metadata)?;
    for part in [&key.namespace, &key.name] {
        if !is_label(part) {
            return Err(format!(
                "{part:?} is no name; expected 1 to 63 of the letters a-z 0-9 -"
            ));
        }
    }
    let publication = Publication::of(&from.metadata, from.status.as_ref());
    let allocated = publication::allocated(from.status.as_ref());
    let meta = from.metadata;
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.retain(|key, _| decide::is_read(key));
    let spec = from.spec.unwrap_or_default();
    let selector = spec.selector.into_iter().flatten();
    let selector: Vec<String> = selector
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let balancer = from.status.and_then(|status| status.load_balancer);
    let ingress = balancer.and_then(|balancer| balancer.ingress);
    let ingress = ingress.into_iter().flatten();
    let managers = meta.managed_fields.unwrap_or_default();
    let rival = rival(&managers);
    let of_status =
        |one: &ManagedFieldsEntry| one.subresource.as_deref() == Some("status") && owns_status(one);
    let status_managers = managers.into_iter().filter(of_status);
    let mut finalizers = meta.finalizers.into_iter().flatten();
    let ports = spec.ports.into_iter().flatten().map(port);
    let addresses = spec.cluster_ips.into_iter().flatten();
    let addresses = addresses.chain(spec.cluster_ip);
    let mut cluster_ips: Vec<IpAddr> = Vec::new();
    for address in addresses.filter_map(|text| address(&text)) {
        if !cluster_ips.contains(&address) {
            cluster_ips.push(address);
        }
    }
    Ok(Service {
        key,
        uid: meta.uid.unwrap_or_default(),
        created: meta.creation_timestamp.map(|time| time.0.as_second()),
        annotations,
        labels: meta.labels.unwrap_or_default(),
        selector: selector.join(","),
        requires_both: spec.ip_family_policy.as_deref() == Some("RequireDualStack"),
        kind: kind(spec.type_.as_deref(), spec.external_name)?,
        class: spec.load_balancer_class,
        ports: ports.collect::<Result<_, _>>()?,
        cluster_ips,
        families: families(spec.ip_families, spec.ip_family_policy.as_deref()),
        affinity: (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
            let config = spec.session_affinity_config;
            let client = config.and_then(|config| config.client_ip);
            match client.and_then(|client| client.timeout_seconds) {
                Some(seconds @ 1..=86_400) => seconds.unsigned_abs(),
                _ => 10_800,
            }
        }),
        local: spec.external_traffic_policy.as_deref() == Some("Local"),
        health_check_node_port: spec.health_check_node_port.and_then(some_port),
        source_ranges: spec.load_balancer_source_ranges.unwrap_or_default(),
        load_balancer_ip: spec.load_balancer_ip.filter(|text| !text.is_empty()),
        deleting: meta.deletion_timestamp.is_some(),
        finalizer: finalizers.any(|name| name == FINALIZER),
        ingress: ingress.filter_map(|one| one.ip.or(one.hostname)).collect(),
        status_managers: status_managers.filter_map(|one| one.manager).collect(),
        rival,
        allocated,
        publication,
    })
}

/// Whether a manager of the status has written a field that is still there. A controller that took back all that it had written
/// keeps an entry.
fn owns_status(entry: &ManagedFieldsEntry) -> bool {
    let Some(fields) = &entry.fields_v1 else {
        return true;
    };
    let status = fields.0.pointer("/f:status").and_then(Value::as_object);
    status.is_some_and(|status| !status.is_empty())
}

/// The other controller that wrote the published addresses of a Service last.
fn rival(entries: &[ManagedFieldsEntry]) -> Option<Rival> {
    let publishes = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields.pointer(INGRESS).is_some())
    };
    let others = entries.iter().filter(|entry| !is_ours(entry));
    let rivals = others.filter(publishes).filter_map(|entry| {
        let manager = entry.manager.clone()?;
        let written = entry.time.as_ref().map(|time| time.0.as_second());
        Some(Rival { manager, written })
    });
    rivals.max_by_key(|rival| rival.written)
}

/// The API server accepts no other names. The names in the table are unambiguous only with these.
fn is_label(text: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=63).contains(&text.len()) && text.bytes().all(allowed)
}

fn kind(word: Option<&str>, external_name: Option<String>) -> Result<ServiceKind, String> {
    match word {
        None | Some("" | "ClusterIP") => Ok(ServiceKind::ClusterIp),
        Some("NodePort") => Ok(ServiceKind::NodePort),
        Some("LoadBalancer") => Ok(ServiceKind::LoadBalancer),
        Some("ExternalName") => Ok(ServiceKind::ExternalName(external_name.unwrap_or_default())),
        Some(other) => Err(format!(
            "spec.type: {other:?} is no type of Service; expected LoadBalancer, ClusterIP, NodePort or ExternalName"
        )),
    }
}

fn families(listed: Option<Vec<String>>, policy: Option<&str>) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for word in listed.into_iter().flatten() {
        let family = match word.as_str() {
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            _ => continue,
        };
        if !families.contains(&family) {
            families.push(family);
        }
    }
    match policy {
        Some("PreferDualStack" | "RequireDualStack") if families.is_empty() => {
            vec![Family::V4, Family::V6]
        }
        _ => families,
    }
}

fn port(from: core::ServicePort) -> Result<Port, String> {
    let wrong = || format!("spec.ports: {} is no port; expected 1 to 65535", from.port);
    let number = some_port(from.port).ok_or_else(wrong)?;
    Ok(Port {
        name: from.name.unwrap_or_default(),
        number,
        protocol: protocol(from.protocol.as_deref())?,
        target: match from.target_port {
            Some(IntOrString::Int(target)) => {
                some_port(target).map_or(Target::Number(number), Target::Number)
            }
            Some(IntOrString::String(name)) => {
                name.parse().map_or(Target::Name(name), Target::Number)
            }
            None => Target::Number(number),
        },
        node_port: from.node_port.and_then(some_port),
        app_protocol: from.app_protocol,
    })
}

/// An EndpointSlice; `None`: it belongs to no Service.
pub(super) fn slice(from: discovery::EndpointSlice) -> Result<Option<Slice>, String> {
    let key = key(&from.metadata)?;
    let labels = from.metadata.labels.as_ref();
    let Some(service) = labels.and_then(|labels| labels.get(SERVICE_NAME)) else {
        return Ok(None);
    };
    let family = match from.address_type.as_str() {
        "IPv4" => Some(Family::V4),
        "IPv6" => Some(Family::V6),
        "FQDN" => None,
        other => {
            return Err(format!(
                "addressType: {other:?} is no type of address; expected IPv4, IPv6 or FQDN"
            ));
        }
    };
    let ports = from.ports.into_iter().flatten().map(|port| {
        Ok(SlicePort {
            name: port.name.unwrap_or_default(),
            number: port.port.and_then(some_port),
            protocol: protocol(port.protocol.as_deref())?,
        })
    });
    let endpoints = from.endpoints.into_iter().flatten();
    Ok(Some(Slice {
        service: Key::new(&key.namespace, service),
        family,
        ports: ports.collect::<Result<_, String>>()?,
        endpoints: endpoints.map(|one| endpoint(one, family)).collect(),
    }))
}

/// An endpoint. Absent conditions mean: ready, serving, not terminating.
fn endpoint(from: discovery::Endpoint, family: Option<Family>) -> Endpoint {
    let conditions = from.conditions.unwrap_or_default();
    let terminating = conditions.terminating.unwrap_or(false);
    let first = from.addresses.first().and_then(|text| address(text));
    Endpoint {
        address: first.filter(|address| Some(Family::of(*address)) == family),
        ready: conditions.ready.unwrap_or(true) && !terminating,
        serving: conditions.serving.unwrap_or(true),
        terminating,
        node: from.node_name,
        zone: from.zone,
    }
}

pub(super) fn node(from: core::Node) -> Result<Node, String> {
    let name = key(&from.metadata)?.name;
    let spec = from.spec.unwrap_or_default();
    let status = from.status.unwrap_or_default();
    let addresses = status.addresses.unwrap_or_default();
    let of = |kind: &str| -> Vec<IpAddr> {
        let of_kind = addresses.iter().filter(|one| one.type_ == kind);
        of_kind.filter_map(|one| address(&one.address)).collect()
    };
    let taints = spec.taints.into_iter().flatten();
    let mut conditions = status.conditions.into_iter().flatten();
    Ok(Node {
        name,
        internal: of("InternalIP"),
        external: of("ExternalIP"),
        labels: from.metadata.labels.unwrap_or_default(),
        taints: taints.map(|taint| taint.key).collect(),
        network_unavailable: conditions
            .any(|one| one.type_ == "NetworkUnavailable" && one.status == "True"),
    })
}

/// An IPv4-mapped IPv6 address is the IPv4 address, as in the table.
fn address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    Some(address.to_canonical())
}

fn protocol(word: Option<&str>) -> Result<Protocol, String> {
    match word {
        None | Some("" | "TCP") => Ok(Protocol::Tcp),
        Some("UDP") => Ok(Protocol::Udp),
        Some("SCTP") => Ok(Protocol::Sctp),
        Some(other) => Err(format!(
            "{other:?} is no protocol of Services; expected TCP, UDP or SCTP"
        )),
    }
}

fn some_port(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port > 0)
}

/// The annotation of a Secret with the namespaces whose Services may use it.
const ALLOW_FROM: &str = "ballast.dev/allow-from";

/// The label of an EndpointSlice with the name of its Service.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn of_a_secret_only_the_entries_that_are_used_are_kept_and_none_that_is_too_large() {
        let entries = [
            ("tls.crt", Material::LARGEST),
            ("tls.key", Material::LARGEST + 1),
            ("backup.tar", 900 << 10),
        ];
        let bytes = |(name, size): (&str, usize)| (name.to_owned(), ByteString(vec![b'x'; size]));
        let secret = core::Secret {
            data: Some(entries.into_iter().map(bytes).collect()),
            string_data: Some(BTreeMap::from([("more".to_owned(), "text".to_owned())])),
            ..core::Secret::default()
        };
        let material = material(secret);
        let kept = |name| material.entry(name).map(<[u8]>::len);
        assert_eq!(kept("tls.crt"), Some(Material::LARGEST));
        assert_eq!(material.too_large("tls.key"), Some(Material::LARGEST + 1));
        for name in ["tls.key", "backup.tar", "more"] {
            assert_eq!(kept(name), None, "{name}");
        }
    }
}
