//! What is kept of one kind of object: the last good form of each. Used by `cluster`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Key;
use super::arrived::{Arrived, Kind};
use super::reflect::Event;

/// Objects by name.
#[derive(Debug)]
pub(super) struct Store<T> {
    objects: BTreeMap<Key, Arc<T>>,
    /// Where objects were not listed yet; `None` stands for everywhere.
    awaited: BTreeSet<Option<String>>,
    /// What is wrong with objects, as it was logged.
    wrong: BTreeMap<Key, String>,
}

impl<T: Kind> Store<T> {
    /// Nothing yet, and complete once everything in `places` was listed.
    pub(super) fn new(places: impl IntoIterator<Item = Option<String>>) -> Self {
        Self {
            objects: BTreeMap::new(),
            awaited: places.into_iter().collect(),
            wrong: BTreeMap::new(),
        }
    }

    /// Whether everything was listed once.
    pub(super) fn is_complete(&self) -> bool {
        self.awaited.is_empty()
    }

    /// The objects.
    pub(super) fn objects(&self) -> &BTreeMap<Key, Arc<T>> {
        &self.objects
    }

    /// Takes in what happened; says whether anything that is kept changed by it.
    pub(super) fn take(&mut self, event: Event<T>) -> bool {
        match event {
            Event::Listed(place, list) => {
                let awaited = self.awaited.remove(&place);
                let there: BTreeSet<Key> = list.iter().map(|object| object.key.clone()).collect();
                let in_place =
                    |key: &Key| place.as_ref().is_none_or(|place| key.namespace == *place);
                let before = self.objects.len();
                self.objects
                    .retain(|key, _| !in_place(key) || there.contains(key));
                self.wrong
                    .retain(|key, _| !in_place(key) || there.contains(key));
                let mut changed = awaited || self.objects.len() != before;
                for object in list {
                    changed |= self.put(object);
                }
                changed
            }
            Event::Changed(object) => self.put(*object),
            Event::Gone(key) => {
                self.wrong.remove(&key);
                self.objects.remove(&key).is_some()
            }
        }
    }

    fn put(&mut self, object: Arrived<T>) -> bool {
        let Arrived { key, said, .. } = object;
        let said = match said {
            Ok(said) => said,
            Err(why) => {
                self.note(key, why);
                return false;
            }
        };
        self.wrong.remove(&key);
        match said {
            Some(new) if self.objects.get(&key).is_some_and(|old| **old == new) => false,
            Some(new) => {
                self.objects.insert(key, Arc::new(new));
                true
            }
            None => self.objects.remove(&key).is_some(),
        }
    }

    /// Once, until it is another mistake.
    fn note(&mut self, key: Key, why: String) {
        if self.wrong.get(&key) == Some(&why) {
            return;
        }
        let stays = match self.objects.contains_key(&key) {
            true => "; its last good form stays",
            false => "",
        };
        let Key { namespace, name } = &key;
        tracing::warn!(
            kind = T::NAME,
            namespace,
            name,
            "cannot be understood: {why}{stays}"
        );
        self.wrong.insert(key, why);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Service;
    use super::*;

    fn arrived(object: Value) -> Arrived<Service> {
        serde_json::from_value(object).expect("every object arrives")
    }

    fn service(namespace: &str, name: &str, class: &str) -> Value {
        json!({
            "metadata": {"namespace": namespace, "name": name, "resourceVersion": "1"},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "ports": [{"port": 80}]},
        })
    }

    fn listed(place: Option<&str>, list: &[Value]) -> Event<Service> {
        let list = list.iter().cloned().map(arrived).collect();
        on_a_node(Event::Listed(place.map(str::to_owned), list))
    }

    fn changed(object: Value) -> Event<Service> {
        on_a_node(Event::Changed(Box::new(arrived(object))))
    }

    /// As a node keeps it. The publisher keeps the version too, by which it knows what its own writes have become.
    fn on_a_node(mut event: Event<Service>) -> Event<Service> {
        event.change(Service::forget_publication);
        event
    }

    fn classes(store: &Store<Service>) -> Vec<String> {
        let each = store.objects().iter();
        each.map(|(key, service)| format!("{key} {}", service.class.as_deref().unwrap_or_default()))
            .collect()
    }

    #[test]
    fn it_is_complete_when_every_place_was_listed() {
        let places = ["a", "b"].map(|place| Some(place.to_owned()));
        let mut store = Store::<Service>::new(places);
        assert!(!store.is_complete());
        assert!(store.take(listed(Some("a"), &[service("a", "web", "x")])));
        assert!(!store.is_complete());
        assert!(store.take(listed(Some("b"), &[])));
        assert!(store.is_complete());
        assert_eq!(classes(&store), ["a/web x"]);
    }

    #[test]
    fn a_list_replaces_its_own_place_only() {
        let places = ["a", "b"].map(|place| Some(place.to_owned()));
        let mut store = Store::new(places);
        store.take(listed(
            Some("a"),
            &[service("a", "web", "x"), service("a", "old", "x")],
        ));
        store.take(listed(Some("b"), &[service("b", "web", "y")]));
        assert!(store.take(listed(Some("a"), &[service("a", "web", "x")])));
        assert_eq!(classes(&store), ["a/web x", "b/web y"]);
        assert!(!store.take(listed(Some("a"), &[service("a", "web", "x")])));
    }

    #[test]
    fn what_means_nothing_changes_nothing() {
        let mut store = Store::new([None]);
        store.take(listed(None, &[service("a", "web", "x")]));
        let mut touched = service("a", "web", "x");
        touched["metadata"]["resourceVersion"] = json!("2");
        touched["metadata"]["labels"] = json!({"touched": "yes"});
        assert!(!store.take(changed(touched)));
        assert!(store.take(changed(service("a", "web", "y"))));
        assert!(!store.take(Event::Gone(Key::new("a", "other"))));
        assert!(store.take(Event::Gone(Key::new("a", "web"))));
        assert!(store.objects().is_empty());
    }

    #[test]
    fn a_bad_object_keeps_its_last_good_form() {
        let mut store = Store::new([None]);
        let mut bad = service("a", "bad", "x");
        bad["spec"]["ports"] = json!([{"port": "eighty"}]);
        store.take(listed(None, &[bad.clone(), service("a", "web", "x")]));
        assert_eq!(classes(&store), ["a/web x"]);
        assert!(store.take(changed(service("a", "bad", "x"))));
        assert!(!store.take(changed(bad.clone())));
        assert!(!store.take(listed(None, &[bad, service("a", "web", "x")])));
        assert_eq!(classes(&store), ["a/bad x", "a/web x"]);
    }
}
