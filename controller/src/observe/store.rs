//! The last readable form of every object of one kind. Used by `cluster`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Resource;

use super::Key;
use super::object::{Parsed, WatchedKind};
use super::reflector::Event;

/// Objects by name.
#[derive(Debug)]
pub(super) struct Store<T> {
    objects: BTreeMap<Key, Arc<T>>,
    /// The namespaces that were not listed yet; `None` stands for all namespaces.
    awaited: BTreeSet<Option<String>>,
    /// The objects that cannot be read: their versions, and the reasons as they were logged.
    unreadable: BTreeMap<Key, (u64, String)>,
}

impl<T: WatchedKind> Store<T> {
    /// An empty store, complete once every one of `namespaces` was listed.
    pub(super) fn new(namespaces: impl IntoIterator<Item = Option<String>>) -> Self {
        Self {
            objects: BTreeMap::new(),
            awaited: namespaces.into_iter().collect(),
            unreadable: BTreeMap::new(),
        }
    }

    /// Whether every namespace was listed once.
    pub(super) fn is_complete(&self) -> bool {
        self.awaited.is_empty()
    }

    pub(super) fn objects(&self) -> &BTreeMap<Key, Arc<T>> {
        &self.objects
    }

    /// The versions of the objects that cannot be read.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = (&Key, u64)> {
        let each = self.unreadable.iter();
        each.map(|(key, (version, _))| (key, *version))
    }

    /// Applies an event. Returns whether the store changed.
    pub(super) fn apply(&mut self, event: Event<T>) -> bool {
        match event {
            Event::Listed(namespace, listed, _) => {
                let awaited = self.awaited.remove(&namespace);
                let stays = |key: &Key| {
                    let is_of_list = namespace.as_ref().is_none_or(|one| key.namespace == *one);
                    !is_of_list || listed.contains(key)
                };
                let before = self.objects.len();
                self.objects.retain(|key, _| stays(key));
                self.unreadable.retain(|key, _| stays(key));
                awaited || self.objects.len() != before
            }
            Event::Changed(object) => self.put(*object),
            Event::Deleted(key, _) => {
                self.unreadable.remove(&key);
                self.objects.remove(&key).is_some()
            }
        }
    }

    fn put(&mut self, object: Parsed<T>) -> bool {
        // Objects of lists have no `version`.
        let version = object.meta().resource_version.as_deref();
        let version = version.and_then(|text| text.parse().ok());
        let Parsed { key, content, .. } = object;
        let content = match content {
            Ok(content) => content,
            Err(why) => {
                self.note_unreadable(key, version.unwrap_or_default(), why);
                return false;
            }
        };
        self.unreadable.remove(&key);
        let old = self.objects.get(&key);
        let content = content.map(|mut new| {
            old.inspect(|old| new.follow(old));
            new
        });
        match content {
            Some(new) if self.objects.get(&key).is_some_and(|old| **old == new) => false,
            Some(new) => {
                self.objects.insert(key, Arc::new(new));
                true
            }
            None => self.objects.remove(&key).is_some(),
        }
    }

    /// Logs the reason once, until it changes.
    fn note_unreadable(&mut self, key: Key, version: u64, why: String) {
        if let Some((known, before)) = self.unreadable.get_mut(&key)
            && *before == why
        {
            *known = version;
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
        self.unreadable.insert(key, (version, why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Service;
    use super::*;

    /// An object as a node keeps it. The publisher keeps its version too, by which it knows the newest state.
    fn parsed(object: Value) -> Parsed<Service> {
        let mut parsed: Parsed<Service> =
            serde_json::from_value(object).expect("every object is parsed");
        if let Ok(Some(service)) = &mut parsed.content {
            service.forget_publication();
        }
        parsed
    }

    fn service(namespace: &str, name: &str, class: &str) -> Value {
        json!({
            "metadata": {"namespace": namespace, "name": name, "resourceVersion": "1"},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "ports": [{"port": 80}]},
        })
    }

    /// Applies the events of a whole list.
    fn list(store: &mut Store<Service>, namespace: Option<&str>, list: &[Value]) -> bool {
        let mut is_changed = false;
        let mut names = BTreeSet::new();
        for object in list.iter().cloned().map(parsed) {
            names.insert(object.key.clone());
            is_changed |= store.apply(Event::Changed(Box::new(object)));
        }
        store.apply(Event::Listed(namespace.map(str::to_owned), names, 0)) || is_changed
    }

    fn changed(object: Value) -> Event<Service> {
        Event::Changed(Box::new(parsed(object)))
    }

    fn classes(store: &Store<Service>) -> Vec<String> {
        let each = store.objects().iter();
        each.map(|(key, service)| format!("{key} {}", service.class.as_deref().unwrap_or_default()))
            .collect()
    }

    #[test]
    fn it_is_complete_when_every_namespace_was_listed() {
        let namespaces = ["a", "b"].map(|name| Some(name.to_owned()));
        let mut store = Store::<Service>::new(namespaces);
        assert!(!store.is_complete());
        assert!(list(&mut store, Some("a"), &[service("a", "web", "x")]));
        assert!(!store.is_complete());
        assert!(list(&mut store, Some("b"), &[]));
        assert!(store.is_complete());
        assert_eq!(classes(&store), ["a/web x"]);
    }

    #[test]
    fn a_list_replaces_its_own_namespace_only() {
        let namespaces = ["a", "b"].map(|name| Some(name.to_owned()));
        let mut store = Store::new(namespaces);
        list(
            &mut store,
            Some("a"),
            &[service("a", "web", "x"), service("a", "old", "x")],
        );
        list(&mut store, Some("b"), &[service("b", "web", "y")]);
        assert!(list(&mut store, Some("a"), &[service("a", "web", "x")]));
        assert_eq!(classes(&store), ["a/web x", "b/web y"]);
        assert!(!list(&mut store, Some("a"), &[service("a", "web", "x")]));
    }

    #[test]
    fn what_means_nothing_changes_nothing() {
        let mut store = Store::new([None]);
        list(&mut store, None, &[service("a", "web", "x")]);
        let mut touched = service("a", "web", "x");
        touched["metadata"]["resourceVersion"] = json!("2");
        touched["metadata"]["labels"] = json!({"touched": "yes"});
        touched["metadata"]["annotations"] = json!({"example.com/touched": "yes"});
        assert!(!store.apply(changed(touched)));
        assert!(store.apply(changed(service("a", "web", "y"))));
        assert!(!store.apply(Event::Deleted(Key::new("a", "other"), 0)));
        assert!(store.apply(Event::Deleted(Key::new("a", "web"), 0)));
        assert!(store.objects().is_empty());
    }

    #[test]
    fn a_bad_object_keeps_its_last_good_form() {
        let mut store = Store::new([None]);
        let mut bad = service("a", "bad", "x");
        bad["spec"]["ports"] = json!([{"port": "eighty"}]);
        list(&mut store, None, &[bad.clone(), service("a", "web", "x")]);
        assert_eq!(classes(&store), ["a/web x"]);
        assert!(store.apply(changed(service("a", "bad", "x"))));
        assert!(!store.apply(changed(bad.clone())));
        assert!(!list(&mut store, None, &[bad, service("a", "web", "x")]));
        assert_eq!(classes(&store), ["a/bad x", "a/web x"]);
    }
}
