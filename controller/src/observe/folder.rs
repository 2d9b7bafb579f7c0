//! A folder of manifests as [`Observed`]: read once by `plan --manifests` and by the golden tests, followed by
//! `run --manifests`.

mod following;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs, io};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Observed, Secret, convert};
use crate::decide::is_foreign;
pub use following::watch;

/// A document that cannot be read, or whose kind users may expect to be read. The other documents count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadDocument {
    pub file: String,
    /// The number of the document in the file, from 1.
    pub document: usize,
    pub why: String,
    /// It is no mistake: only its kind is not read.
    pub is_passed_over: bool,
}

impl fmt::Display for BadDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}: {}", self.file, self.document, self.why)
    }
}

/// Reads every `.yaml`, `.yml` and `.json` of a folder, in the order of their names.
pub fn read_folder(folder: &Path) -> io::Result<(Observed, Vec<BadDocument>)> {
    let mut files = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    files.sort();
    let mut seen = Observed::default();
    let mut bad = Vec::new();
    for path in files.iter().filter(|path| is_manifest(path)) {
        let file = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match String::from_utf8(fs::read(path)?) {
            Ok(text) => bad.extend(seen.take_file(&file, &text)),
            Err(_) => bad.push(BadDocument {
                file,
                document: 1,
                why: "is not UTF-8".to_owned(),
                is_passed_over: false,
            }),
        }
    }
    Ok((seen, bad))
}

fn is_manifest(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("yaml" | "yml" | "json")) && !path.is_dir()
}

impl Observed {
    /// Adds the objects of one file. Returns the documents that cannot be read.
    pub fn take_file(&mut self, file: &str, text: &str) -> Vec<BadDocument> {
        let mut bad = Vec::new();
        for (index, document) in documents(text).into_iter().enumerate() {
            let mut add = |why, is_passed_over| {
                bad.push(BadDocument {
                    file: file.to_owned(),
                    document: index + 1,
                    why,
                    is_passed_over,
                });
            };
            let taken = serde_saphyr::from_str_with_options::<Value>(&document, yaml_options())
                .map_err(|error| first_line(&error.to_string()))
                .and_then(|value| {
                    for one in items(&value) {
                        if let Some(why) = passed_over(one) {
                            add(why, true);
                        }
                    }
                    self.take(value)
                });
            if let Err(why) = taken {
                add(why, false);
            }
        }
        bad
    }

    fn take(&mut self, mut value: Value) -> Result<(), String> {
        if value.is_null() {
            return Ok(());
        }
        let annotations = value.pointer_mut("/metadata/annotations");
        let values = annotations.and_then(Value::as_object_mut);
        for one in values.into_iter().flat_map(|all| all.values_mut()) {
            // As an API server reads a key without a value.
            if one.is_null() {
                *one = Value::String(String::new());
            }
        }
        let kind = value
            .get("kind")
            .and_then(Value::as_str)
            .ok_or("kind is missing")?;
        match kind {
            "Service" => {
                let service = convert::service(typed(value)?)?;
                // No controller writes the statuses of the manifests in a folder.
                if is_foreign(&service) {
                    self.abandoned.insert(service.key.clone());
                }
                put(&mut self.services, service.key.clone(), Arc::new(service))
            }
            "EndpointSlice" => {
                let slice: k8s_openapi::api::discovery::v1::EndpointSlice = typed(value)?;
                let key = convert::key(&slice.metadata)?;
                match convert::slice(slice)? {
                    Some(slice) => put(&mut self.slices, key, Arc::new(slice)),
                    None => Ok(()),
                }
            }
            "Node" => {
                let node = convert::node(typed(value)?)?;
                put(&mut self.nodes, node.name.clone(), node)
            }
            "Secret" => {
                let secret: k8s_openapi::api::core::v1::Secret = typed(value)?;
                let key = convert::key(&secret.metadata)?;
                let material = convert::material(secret);
                put(&mut self.secrets, key, Secret::Readable(material))
            }
            "ReferenceGrant" => {
                let meta: ObjectMeta = typed(value.get("metadata").cloned().unwrap_or_default())?;
                let namespace = convert::key(&meta)?.namespace;
                if let Some(grant) = convert::grant(&value) {
                    self.grants.entry(namespace).or_default().push(grant);
                }
                Ok(())
            }
            "Namespace" => {
                let namespace: k8s_openapi::api::core::v1::Namespace = typed(value)?;
                let labels = namespace.metadata.labels.unwrap_or_default();
                let name = namespace.metadata.name.ok_or("metadata.name is missing")?;
                put(&mut Arc::make_mut(&mut self.pools).namespaces, name, labels)
            }
            "AddressPool" | "IPAddressPool" | "ExternalIPPool" | "AddressReservation"
            | "Announcement" | "L2Advertisement" | "BGPAdvertisement" | "BGPPeer" | "Community"
            | "BFDProfile" => Arc::make_mut(&mut self.pools).take(&value).map(drop),
            "List"
            | "ServiceList"
            | "EndpointSliceList"
            | "NodeList"
            | "SecretList"
            | "ReferenceGrantList"
            | "NamespaceList"
            | "AddressPoolList"
            | "IPAddressPoolList"
            | "ExternalIPPoolList"
            | "AddressReservationList"
            | "AnnouncementList"
            | "L2AdvertisementList"
            | "BGPAdvertisementList"
            | "BGPPeerList"
            | "CommunityList"
            | "BFDProfileList" => self.take_list(value),
            _ => Ok(()),
        }
    }

    fn take_list(&mut self, mut list: Value) -> Result<(), String> {
        let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
            return Err("items is missing".to_owned());
        };
        let wrong = items.into_iter().enumerate().filter_map(|(index, item)| {
            Some(format!("items[{index}]: {}", self.take(item).err()?))
        });
        let wrong: Vec<String> = wrong.collect();
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(wrong.join("; ")),
        }
    }
}

#[cfg(test)]
impl Observed {
    /// The objects of manifests that can all be read.
    pub(crate) fn of(manifests: &str) -> Self {
        let mut observed = Self::default();
        assert_eq!(observed.take_file("a.yaml", manifests), []);
        observed
    }
}

fn put<K: Ord + fmt::Display, V>(map: &mut BTreeMap<K, V>, key: K, value: V) -> Result<(), String> {
    match map.entry(key) {
        Entry::Vacant(free) => {
            free.insert(value);
            Ok(())
        }
        Entry::Occupied(taken) => Err(format!(
            "{} was there already; the first one counts",
            taken.key()
        )),
    }
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// The items of a list, or the object itself.
fn items(value: &Value) -> &[Value] {
    match value.get("items") {
        Some(Value::Array(items)) => items,
        _ => std::slice::from_ref(value),
    }
}

/// Why an object that users may expect to be read is not.
fn passed_over(object: &Value) -> Option<String> {
    let kind = object.get("kind")?.as_str()?;
    let remedy = match kind {
        "Endpoints" => "write an EndpointSlice",
        "Ingress" => "write its hosts and paths as annotations of the Service",
        _ => return None,
    };
    let text = |place| object.pointer(place).and_then(Value::as_str);
    let namespace = text("/metadata/namespace").unwrap_or("default");
    let name = text("/metadata/name").unwrap_or("without a name");
    Some(format!("{kind} {namespace}/{name} is not read; {remedy}"))
}

/// The documents of a file, each parsed separately, so that a broken one affects no other.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        let rest = line
            .strip_prefix("---")
            .filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        if let Some(rest) = rest {
            documents.push(rest.to_owned());
        } else if let Some(last) = documents.last_mut() {
            last.push_str(line);
        }
        if let Some(last) = documents.last_mut() {
            last.push('\n');
        }
    }
    let is_not_empty = |document: &String| {
        let mut lines = document.lines().map(str::trim);
        lines.any(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with('%'))
    };
    documents.retain(is_not_empty);
    documents
}

/// YAML 1.2, as for the table: `off` and `y` are words. The limits allow lists of whole clusters.
fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2 * NODES,
            max_nodes: NODES,
            max_total_scalar_bytes: LARGEST,
            max_documents: 1,
            max_depth: 64,
        },
        strict_booleans: true,
        underscored_numbers_as_strings: true,
        leading_zero_numbers_as_strings: true,
        with_snippet: false,
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

const NODES: usize = 8 << 20;

/// The largest document, in bytes.
const LARGEST: usize = 256 << 20;
