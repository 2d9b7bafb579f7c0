//! Merge patches of YAML documents, by which a case shows only its difference from another case.
//!
//! A map is merged key by key, and `null` removes a key. A list of [`KEYED`] is merged item by item, stays sorted by that key,
//! and `$patch: delete` removes an item. Every other value replaces the old one.

use serde_json::{Map, Value};

/// The lists that are merged item by item, and the key by which items correspond.
const KEYED: [(&str, &str); 3] = [
    ("frontends", "name"),
    ("services", "name"),
    ("statuses", "service"),
];

/// Changes `target` by `patch`.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let (Value::Object(target), Value::Object(patch)) = (&mut *target, patch) else {
        *target = patch.clone();
        return;
    };
    for (key, change) in patch {
        let old = target.entry(key).or_insert(Value::Null);
        match (keyed(key), &mut *old, change) {
            (_, _, Value::Null) => {
                target.remove(key);
            }
            (Some(id), Value::Array(items), Value::Array(changes)) => {
                merge_items(id, items, changes);
            }
            _ => merge(old, change),
        }
    }
}

/// The smallest patch that [`merge`] turns `old` into `new` with; `None` if they are equal.
pub(crate) fn patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return Some(new.clone());
    };
    let mut changes = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        changes.insert(key.clone(), Value::Null);
    }
    for (key, new) in new {
        let change = match (keyed(key), old.get(key), new) {
            (Some(id), Some(Value::Array(old)), Value::Array(new)) => item_patches(id, old, new),
            (_, Some(old), new) => patch(old, new),
            (_, None, new) => Some(new.clone()),
        };
        changes.extend(change.map(|change| (key.clone(), change)));
    }
    Some(Value::Object(changes))
}

/// Whether a document or an item removes its counterpart.
pub(crate) fn deletes(patch: &Value) -> bool {
    patch.get("$patch").is_some_and(|word| word == "delete")
}

fn merge_items(id: &str, items: &mut Vec<Value>, changes: &[Value]) {
    for change in changes {
        let old = items.iter().position(|item| item[id] == change[id]);
        match old {
            Some(at) if deletes(change) => drop(items.remove(at)),
            Some(at) => merge(&mut items[at], change),
            None => items.push(change.clone()),
        }
    }
    items.sort_by(|a, b| a[id].as_str().cmp(&b[id].as_str()));
}

fn item_patches(id: &str, old: &[Value], new: &[Value]) -> Option<Value> {
    let counterpart = |items: &'_ [Value], of: &Value| {
        let found = items.iter().find(|item| item[id] == of[id]);
        found.cloned()
    };
    let named = |item: &Value, mut change: Value| {
        change[id] = item[id].clone();
        change
    };
    let gone = old
        .iter()
        .filter(|item| counterpart(new, item).is_none())
        .map(|item| named(item, serde_json::json!({"$patch": "delete"})));
    let changed = new.iter().filter_map(|item| match counterpart(old, item) {
        Some(old) => Some(named(item, patch(&old, item)?)),
        None => Some(item.clone()),
    });
    let changes: Vec<Value> = gone.chain(changed).collect();
    (!changes.is_empty()).then_some(Value::Array(changes))
}

fn keyed(list: &str) -> Option<&'static str> {
    let (_, id) = KEYED.iter().find(|(name, _)| *name == list)?;
    Some(id)
}
