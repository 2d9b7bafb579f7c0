//! What a node's Lease says is not served there as decided. At most 64 KiB: each namespace has an equal share of the room.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a node alone knows, and the publisher has to know: what is not served there as decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exceptions {
    /// By Service, as `NAMESPACE/NAME`.
    #[serde(skip_serializing_if = "is_default")]
    pub services: BTreeMap<String, Exception>,
    /// About the node itself.
    #[serde(skip_serializing_if = "is_default")]
    pub node: Vec<Message>,
    /// How many Services have messages, or exceptions, that found no place here.
    #[serde(skip_serializing_if = "is_default")]
    pub more: usize,
}

/// What a node says about one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exception {
    /// A port of it does not listen there as it should.
    #[serde(skip_serializing_if = "is_default")]
    pub closed: bool,
    /// The Service is for endpoints on the node itself, and none of these is ready.
    #[serde(skip_serializing_if = "is_default")]
    pub idle: bool,
    /// It is not served yet, since its lookups are not done. What is published stays.
    #[serde(skip_serializing_if = "is_default")]
    pub pending: bool,
    /// Events to write.
    #[serde(skip_serializing_if = "is_default")]
    pub messages: Vec<Message>,
}

/// An event that a node wants to have written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Message {
    /// Whether it is a Warning.
    #[serde(default)]
    pub warning: bool,
    pub reason: String,
    pub text: String,
}

impl Exceptions {
    /// What an annotation says; nothing where it cannot be read.
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Whether nothing is known about a Service there, since the exceptions of its namespace found no place.
    pub(crate) fn hides(&self, namespace: &str) -> bool {
        let hidden = [every(namespace), every("*")];
        hidden.iter().any(|name| self.services.contains_key(name))
    }

    /// As JSON of at most [`LARGEST`] bytes.
    pub(crate) fn write(mut self) -> String {
        if size_of(&self) > LARGEST {
            self.shorten();
        }
        if self == Self::default() {
            return String::new();
        }
        serde_json::to_string(&self).unwrap_or_default()
    }

    /// Leaves out what finds no place. Each namespace has an equal share of the room, and what small ones leave of theirs goes to
    /// the others. Messages go first, since no Service suffers from that. A namespace of which exceptions are left out is named
    /// with all its Services: none of them is published by this node for the first time.
    fn shorten(&mut self) {
        let mut namespaces: BTreeMap<String, BTreeMap<String, Exception>> = BTreeMap::new();
        for (service, exception) in std::mem::take(&mut self.services) {
            let namespace = service
                .split_once('/')
                .map_or("", |(namespace, _)| namespace);
            let own = namespaces.entry(namespace.to_owned()).or_default();
            own.insert(service, exception);
        }
        let mut by_size: Vec<(usize, String, BTreeMap<String, Exception>)> = namespaces
            .into_iter()
            .map(|(namespace, own)| (size_of(&own), namespace, own))
            .collect();
        by_size.sort_by_key(|(size, ..)| *size);
        let mut room = LARGEST.saturating_sub(size_of(&self.node) + ROOM);
        let mut rest = by_size.len();
        for (_, namespace, own) in by_size {
            let share = room / rest;
            rest -= 1;
            room -= self.add(&namespace, own, share);
        }
        if size_of(&self.services) > LARGEST - ROOM {
            // Not even the namespaces find place.
            self.services.retain(|name, _| !name.ends_with("/*"));
            let closed = Exception {
                closed: true,
                ..Exception::default()
            };
            self.services.insert(every("*"), closed);
        }
        self.node.push(Message {
            warning: true,
            reason: UNSERVED.to_owned(),
            text: format!(
                "the warnings of {} Services find no place in this node's Lease: `ballast-controller plan` with the flags of this node lists them",
                self.more
            ),
        });
    }

    /// Adds what finds place of the exceptions of a namespace. Returns the bytes that they take.
    fn add(&mut self, namespace: &str, own: BTreeMap<String, Exception>, share: usize) -> usize {
        let hidden = every(namespace);
        let mut left = share.saturating_sub(hidden.len() + HIDDEN);
        let mut messages = Vec::new();
        for (service, mut exception) in own {
            let said = std::mem::take(&mut exception.messages);
            if !said.is_empty() {
                messages.push((service.clone(), said));
            }
            let size = size_of(&exception) + service.len() + BETWEEN;
            if is_default(&exception) {
                continue;
            }
            if size <= left {
                left -= size;
                self.services.insert(service, exception);
            } else {
                self.more += 1;
                let closed = Exception {
                    closed: true,
                    ..Exception::default()
                };
                self.services.insert(hidden.clone(), closed);
            }
        }
        for (service, said) in messages {
            let size = size_of(&said) + service.len() + BETWEEN;
            if size <= left {
                left -= size;
                self.services.entry(service).or_default().messages = said;
            } else {
                self.more += 1;
            }
        }
        share - left
    }
}

/// All Services of a namespace, in the place of one of them.
fn every(namespace: &str) -> String {
    format!("{namespace}/*")
}

fn size_of(part: &impl Serialize) -> usize {
    serde_json::to_string(part).map_or(usize::MAX / 2, |text| text.len())
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Bytes of exceptions in one Lease.
const LARGEST: usize = 64 << 10;
/// Of these, the bytes that are not messages or Services: the names of the parts, and the message about what was left out.
const ROOM: usize = 512;
/// The bytes between the parts of a Service: quotes, braces and the names of the parts.
const BETWEEN: usize = 20;
/// The bytes beside the name of a namespace whose exceptions found no place.
const HIDDEN: usize = 40;
/// The reason that cloud controllers use for an event about what is not served.
pub(crate) const UNSERVED: &str = "SyncLoadBalancerFailed";

#[cfg(test)]
mod tests {
    use super::*;

    /// Closed Services, each with a message of 1,000 bytes, as a publisher reads them: `many` of the namespace `shop` beside three
    /// of another.
    fn read_of_closed(many: usize) -> Exceptions {
        let exception = Exception {
            closed: true,
            messages: vec![Message {
                warning: true,
                reason: "R".to_owned(),
                text: "x".repeat(1000),
            }],
            ..Exception::default()
        };
        let names = (0..many).map(|number| format!("shop/s{number:05}"));
        let names = names.chain((0..3).map(|number| format!("zoo/s{number}")));
        let all = Exceptions {
            services: names.map(|name| (name, exception.clone())).collect(),
            ..Exceptions::default()
        };
        let text = all.write();
        assert!(text.len() <= LARGEST, "{} bytes", text.len());
        Exceptions::read(&text)
    }

    #[test]
    fn messages_that_find_no_place_hide_no_service() {
        let few = read_of_closed(10);
        assert_eq!((few.more, few.node.len()), (0, 0));
        let read = read_of_closed(500);
        assert_eq!(read.services.len(), 503);
        assert!(read.services.values().all(|service| service.closed));
        let told = read.services.values();
        let told = told.filter(|service| !service.messages.is_empty()).count();
        assert!(told > 30, "{told}");
        assert_eq!(
            told + read.more,
            503,
            "each of those without a message counts once"
        );
        assert!(!read.hides("shop") && !read.hides("zoo"));
        let text = &read.node[0].text;
        assert!(
            text.contains(&format!("of {} Services", read.more)),
            "{text}"
        );
    }

    #[test]
    fn one_namespace_with_thousands_takes_no_room_of_another() {
        let read = read_of_closed(5000);
        assert!(read.services.len() > 1000, "{}", read.services.len());
        assert!(read.hides("shop") && !read.hides("zoo"));
        for number in 0..3 {
            let exception = &read.services[&format!("zoo/s{number}")];
            assert!(exception.closed && !exception.messages.is_empty());
        }
        assert_eq!(Exceptions::default().write(), "");
    }

    #[test]
    fn a_service_that_is_served_and_has_a_message_without_place_is_no_exception() {
        let messages = vec![Message {
            warning: true,
            reason: "R".to_owned(),
            text: "x".repeat(LARGEST),
        }];
        let exception = Exception {
            messages,
            ..Exception::default()
        };
        let all = Exceptions {
            services: [("shop/web".to_owned(), exception)].into(),
            ..Exceptions::default()
        };
        let read = Exceptions::read(&all.write());
        assert_eq!((read.services.len(), read.more), (0, 1));
        assert!(!read.hides("shop"));
    }
}
