//! The addresses that the table of an earlier process has for ExternalName Services. They are served until a name is resolved for the
//! first time, so that a controller that begins beside a dead name server leaves no gap.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Key, Observed, Service, ServiceKind};

/// The addresses of the earlier table that are of use still.
#[derive(Clone, Debug, Default)]
pub struct Earlier {
    addresses: BTreeMap<Key, Vec<IpAddr>>,
    /// The names of the Services when they were seen first; `None` until then.
    names: Option<BTreeMap<Key, String>>,
}

impl Earlier {
    /// The addresses that an earlier table has for each Service.
    pub(crate) fn new(addresses: BTreeMap<Key, Vec<IpAddr>>) -> Self {
        Self {
            addresses,
            names: None,
        }
    }

    /// The addresses that stay with these Services. Those of a Service are forgotten once its name is resolved, or is another one.
    pub(super) fn that_stay(&mut self, observed: &Observed) -> BTreeMap<Key, Vec<IpAddr>> {
        let name_of = |key: &Key| observed.services.get(key).and_then(external_name);
        let names = self.names.get_or_insert_with(|| {
            let keys = self.addresses.keys();
            let names = keys.filter_map(|key| Some((key.clone(), name_of(key)?.to_owned())));
            names.collect()
        });
        names.retain(|key, name| {
            let is_resolved = observed
                .resolved
                .get(name)
                .is_some_and(|all| !all.is_empty());
            name_of(key) == Some(name) && !is_resolved
        });
        self.addresses.retain(|key, _| names.contains_key(key));
        self.addresses.clone()
    }
}

pub(super) fn external_name(service: &Arc<Service>) -> Option<&str> {
    match &service.kind {
        ServiceKind::ExternalName(name) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(external_name: &str) -> Observed {
        Observed::of(&format!(
            "kind: Service
metadata: {{name: db, namespace: shop}}
spec: {{type: ExternalName, externalName: {external_name}, ports: [{{port: 3306}}]}}
---
kind: Service
metadata: {{name: web, namespace: shop}}
spec: {{ports: [{{port: 80}}]}}
"
        ))
    }

    #[test]
    fn earlier_addresses_stay_until_the_name_is_resolved_and_never_come_back() {
        let address: IpAddr = [192, 0, 2, 1].into();
        let key = |name: &str| Key::new("shop", name);
        let all = ["db", "web", "gone"].map(|name| (key(name), vec![address]));
        let all = BTreeMap::from(all);
        let that_stay = BTreeMap::from([(key("db"), vec![address])]);
        let mut before = seen("db.example.com");

        let mut earlier = Earlier::new(all.clone());
        assert_eq!(earlier.that_stay(&before), that_stay);
        let name = || "db.example.com".to_owned();
        before.resolved.insert(name(), Vec::new());
        assert_eq!(earlier.that_stay(&before), that_stay, "it failed");
        before.resolved.insert(name(), vec![address]);
        assert_eq!(earlier.that_stay(&before), BTreeMap::new());
        before.resolved.clear();
        assert_eq!(earlier.that_stay(&before), BTreeMap::new());

        // Addresses of one name are not another one's.
        let mut earlier = Earlier::new(all);
        assert_eq!(earlier.that_stay(&seen("db.example.com")), that_stay);
        let other = seen("other.example.com");
        assert_eq!(earlier.that_stay(&other), BTreeMap::new());
    }
}
