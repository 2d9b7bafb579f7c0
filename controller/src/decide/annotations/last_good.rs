//! The last good values of a Service's annotations, and the annotation `ballast.dev/last-good` that stores those in use.
//!
//! The annotation has each value once, however many ports use it: Kubernetes limits all annotations of an object to 256 KiB.

use std::collections::BTreeMap;

use crate::observe::{Port, Protocol, Service};

/// By slot: the key of an annotation, and its value.
pub(super) type Memory = BTreeMap<String, (String, String)>;

/// The name under which the last good value of a knob is kept, for a port or for the Service.
pub(in crate::decide) fn slot(name: &str, port: Option<&Port>) -> String {
    match port {
        None => name.to_owned(),
        Some(port) => format!("{name}.{}/{}", port.number, port.protocol.word()),
    }
}

/// Whether a slot belongs to a port, not to the whole Service.
pub(super) fn is_of_a_port(slot: &str) -> bool {
    parts(slot).is_some()
}

/// The last good values in the annotation of a Service; none if the annotation cannot be parsed.
pub(super) fn written(service: &Service) -> Memory {
    let text = service.annotations.get(LAST_GOOD);
    let folded: Option<Memory> = text.and_then(|text| serde_json::from_str(text).ok());
    let mut memory = Memory::new();
    for (slot, value) in folded.unwrap_or_default() {
        match slot.split_once(',') {
            None => {
                memory.insert(slot, value);
            }
            Some((first, others)) => {
                if let Some((name, _)) = parts(first) {
                    let others = others.split(',').map(|port| format!("{name}.{port}"));
                    memory.extend(others.map(|slot| (slot, value.clone())));
                }
                memory.insert(first.to_owned(), value);
            }
        }
    }
    memory
}

/// The annotation for these values: `{"algorithm.80/TCP,81/TCP": [KEY, VALUE]}`. `None`: there are no values.
pub(super) fn text(memory: &Memory) -> Option<String> {
    if memory.is_empty() {
        return None;
    }
    let mut folded: BTreeMap<(&str, &(String, String)), String> = BTreeMap::new();
    for (slot, value) in memory {
        let (name, port) = parts(slot).unwrap_or((slot, ""));
        folded
            .entry((name, value))
            .and_modify(|slots| {
                slots.push(',');
                slots.push_str(port);
            })
            .or_insert_with(|| slot.clone());
    }
    let by_slot: BTreeMap<String, &(String, String)> = folded
        .into_iter()
        .map(|((_, value), slots)| (slots, value))
        .collect();
    serde_json::to_string(&by_slot).ok()
}

/// The knob and the port of a slot: `80/TCP`.
fn parts(slot: &str) -> Option<(&str, &str)> {
    let (name, port) = slot.rsplit_once('.')?;
    let (number, protocol) = port.split_once('/')?;
    let known = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    let is_port = known.iter().any(|known| known.word() == protocol);
    (is_port && number.parse::<u16>().is_ok()).then_some((name, port))
}

/// The annotation that stores the last good values in use.
pub(crate) const LAST_GOOD: &str = "ballast.dev/last-good";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Observed;

    #[test]
    fn a_value_that_several_ports_keep_stands_once() {
        let value = |text: &str| ("ballast.dev/x".to_owned(), text.to_owned());
        let mut memory = Memory::new();
        memory.insert("hostname".to_owned(), value("a.b"));
        memory.insert("serviceloadbalancer/lb.host".to_owned(), value("c"));
        for port in 1..=200 {
            memory.insert(format!("source-ranges.{port}/TCP"), value("10.0.0.0/8"));
            memory.insert(format!("a.b/c.{port}/UDP"), value("10.0.0.0/8"));
        }
        memory.insert("source-ranges.201/TCP".to_owned(), value("10.0.0.0/9"));
        let text = text(&memory).expect("some");
        assert_eq!(text.matches("10.0.0.0/8").count(), 2, "{text}");
        let manifest = serde_json::json!({
            "kind": "Service",
            "metadata": {"name": "a", "annotations": {LAST_GOOD: text}},
        });
        let observed = Observed::of(&manifest.to_string());
        let service = observed.services.values().next().expect("a Service");
        assert_eq!(written(service), memory);
    }
}
