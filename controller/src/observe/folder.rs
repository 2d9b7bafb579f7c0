//! A folder of manifests as [`Observed`]: read once by `plan --manifests` and by the golden tests, followed by
//! `run --manifests`.

mod following;
mod kept;
mod typed;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs, io};

use ballast_core::table::{Problem, located, nearest};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::pools::{expected_version, there_already};
use super::{Observed, Secret, convert};
use crate::decide::is_foreign;
pub use following::watch;
pub use kept::Kept;
use typed::{typed, unknown_keys};

/// Something wrong with a document of a file, or with a file as a whole. The other documents count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadDocument {
    pub file: String,
    /// The number of the document in the file, from 1. `None`: it is about the file.
    pub document: Option<usize>,
    /// Line and column in the file, the place in the object, what is wrong and what would be right.
    pub why: String,
    /// The document counts all the same: a key of it is not known, or an object is of a kind that is not read.
    pub is_remark: bool,
}

impl BadDocument {
    fn of_file(file: &str, why: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            document: None,
            why: why.into(),
            is_remark: false,
        }
    }
}

impl fmt::Display for BadDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.document {
            Some(number) => write!(f, "{}, document {number}: {}", self.file, self.why),
            None => write!(f, "{}: {}", self.file, self.why),
        }
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
            Ok(text) => {
                let wrong = seen.take_file(&file, &text);
                let is_bad = !is_readable(&wrong);
                bad.extend(wrong);
                if is_bad {
                    bad.push(BadDocument::of_file(&file, READ_ONCE));
                }
            }
            Err(_) => bad.push(BadDocument::of_file(&file, NOT_UTF8)),
        }
    }
    Ok((seen, bad))
}

fn is_manifest(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("yaml" | "yml" | "json")) && !path.is_dir()
}

/// Whether every document of a file counts.
fn is_readable(bad: &[BadDocument]) -> bool {
    bad.iter().all(|document| document.is_remark)
}

impl Observed {
    /// Adds the objects of one file. Returns what is wrong with it.
    pub fn take_file(&mut self, file: &str, text: &str) -> Vec<BadDocument> {
        let mut bad = Vec::new();
        for (index, document) in documents(text).into_iter().enumerate() {
            let mut said = Said::default();
            match serde_saphyr::from_str_with_options(&document.text, yaml_options()) {
                Ok(value) => self.take(value, "", &mut said),
                Err(error) => said.wrong.push(document.not_yaml(&error)),
            }
            for (problems, is_remark) in [(said.wrong, false), (said.remarks, true)] {
                bad.extend(document.located(&problems).map(|why| BadDocument {
                    file: file.to_owned(),
                    document: Some(index + 1),
                    why,
                    is_remark,
                }));
            }
        }
        bad
    }

    /// Takes an object; it stands at this place of its document.
    fn take(&mut self, value: Value, at: &str, said: &mut Said) {
        let kind = value
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let kind = kind.to_lowercase();
        if let Err(wrong) = self.take_object(value, at, said) {
            said.wrong.push(wrong.problem(at, &kind));
        }
    }

    fn take_object(&mut self, mut value: Value, at: &str, said: &mut Said) -> Result<(), Wrong> {
        if value.is_null() {
            return Ok(());
        }
        fill_annotations(&mut value);
        let remarks = &mut said.remarks;
        let kind = value.get("kind").and_then(Value::as_str).ok_or(
            "kind is missing; write kind and apiVersion, as in kind: Service and apiVersion: v1",
        )?;
        match kind {
            "Service" => {
                let service = convert::service(typed(&value, at, remarks)?)?;
                // No controller writes the statuses of the manifests in a folder.
                if is_foreign(&service) {
                    self.abandoned.insert(service.key.clone());
                }
                put(&mut self.services, service.key.clone(), Arc::new(service))
            }
            "EndpointSlice" => {
                let slice: k8s_openapi::api::discovery::v1::EndpointSlice =
                    typed(&value, at, remarks)?;
                let key = convert::key(&slice.metadata)?;
                match convert::slice(slice)? {
                    Some(slice) => put(&mut self.slices, key, Arc::new(slice)),
                    None => Ok(()),
                }
            }
            "Node" => {
                let node = convert::node(typed(&value, at, remarks)?)?;
                put(&mut self.nodes, node.name.clone(), node)
            }
            "Secret" => {
                let secret: k8s_openapi::api::core::v1::Secret = typed(&value, at, remarks)?;
                let key = convert::key(&secret.metadata)?;
                let material = convert::material(secret);
                put(&mut self.secrets, key, Secret::Readable(material))
            }
            "ReferenceGrant" => {
                let meta = value.get("metadata").unwrap_or(&Value::Null);
                let meta: ObjectMeta = typed(meta, &inside(at, "metadata"), remarks)?;
                let namespace = convert::key(&meta)?.namespace;
                if let Some(grant) = convert::grant(&value) {
                    self.grants.entry(namespace).or_default().push(grant);
                }
                Ok(())
            }
            "Namespace" => {
                let namespace: k8s_openapi::api::core::v1::Namespace = typed(&value, at, remarks)?;
                let labels = namespace.metadata.labels.unwrap_or_default();
                let name = namespace
                    .metadata
                    .name
                    .ok_or("metadata.name is missing; name it")?;
                put(&mut Arc::make_mut(&mut self.pools).namespaces, name, labels)
            }
            "AddressPool" | "IPAddressPool" | "ExternalIPPool" | "AddressReservation"
            | "Announcement" | "L2Advertisement" | "BGPAdvertisement" | "BGPPeer" | "Community"
            | "BFDProfile" => {
                if let Some(expected) = expected_version(&value) {
                    remarks.push(of_another_version(&value, at, &expected)?);
                    return Ok(());
                }
                remarks.extend(unknown_keys(&value, at));
                Ok(Arc::make_mut(&mut self.pools).take(&value)?)
            }
            list if is_list(list) => self.take_list(value, at, said),
            _ => {
                let remark = passed_over(&value);
                remarks.extend(remark.map(|(why, remedy)| Problem::new(at, why, remedy)));
                Ok(())
            }
        }
    }

    fn take_list(&mut self, mut list: Value, at: &str, said: &mut Said) -> Result<(), Wrong> {
        let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
            return Err("items is missing; write the objects of the list there".into());
        };
        for (index, item) in items.into_iter().enumerate() {
            self.take(item, &inside(at, &format!("items[{index}]")), said);
        }
        Ok(())
    }
}

/// An annotation without a value is empty, as an API server reads it.
fn fill_annotations(object: &mut Value) {
    let annotations = object.pointer_mut("/metadata/annotations");
    let values = annotations.and_then(Value::as_object_mut);
    for one in values.into_iter().flat_map(|all| all.values_mut()) {
        if one.is_null() {
            *one = Value::String(String::new());
        }
    }
}

/// Whether a kind is a list of objects of one that is read, or of any.
fn is_list(kind: &str) -> bool {
    let of = kind.strip_suffix("List");
    kind == "List" || of.is_some_and(|of| READ.contains(&of))
}

/// The place of a part.
fn inside(at: &str, part: &str) -> String {
    match at {
        "" => part.to_owned(),
        at => format!("{at}.{part}"),
    }
}

/// The mistakes of a document, and the remarks about what counts all the same.
#[derive(Default)]
struct Said {
    wrong: Vec<Problem>,
    remarks: Vec<Problem>,
}

/// Why an object cannot be taken: the place, if it is known better than that of the object, and the reason with the remedy behind a
/// semicolon.
struct Wrong {
    at: Option<String>,
    why: String,
}

impl Wrong {
    fn problem(self, at: &str, kind: &str) -> Problem {
        let (why, remedy) = match (self.why.split_once("; "), &self.at) {
            (Some((why, remedy)), _) => (why, remedy.to_owned()),
            (None, Some(_)) if self.why.ends_with("expected a string") => {
                (&*self.why, "write it in quotes".to_owned())
            }
            (None, Some(place)) => {
                let keys = place.strip_prefix(at).unwrap_or(place).split('.');
                let keys = keys.map(|key| key.split('[').next().unwrap_or(key));
                let mut path = vec![kind];
                path.extend(keys.filter(|key| !key.is_empty()));
                let path = path.join(".");
                (&*self.why, format!("kubectl explain {path} has its form"))
            }
            (None, None) => (&*self.why, "correct it".to_owned()),
        };
        Problem::new(self.at.as_deref().unwrap_or(at), why, remedy)
    }
}

impl From<String> for Wrong {
    fn from(why: String) -> Self {
        Self { at: None, why }
    }
}

impl From<&str> for Wrong {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}

impl From<(String, String)> for Wrong {
    fn from((at, why): (String, String)) -> Self {
        Self { at: Some(at), why }
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

fn put<K: Ord + fmt::Display, V>(map: &mut BTreeMap<K, V>, key: K, value: V) -> Result<(), Wrong> {
    match map.entry(key) {
        Entry::Vacant(free) => {
            free.insert(value);
            Ok(())
        }
        Entry::Occupied(taken) => Err(there_already(taken.key()).into()),
    }
}

/// The remark about an object of another system whose kind has the name of one that is read. One of the same system is a mistake.
fn of_another_version(object: &Value, at: &str, expected: &str) -> Result<Problem, Wrong> {
    let text = |key| object.get(key).and_then(Value::as_str);
    let kind = text("kind").unwrap_or_default();
    let Some(version) = text("apiVersion") else {
        return Err(format!("apiVersion is missing; write {expected}").into());
    };
    let group = |version| str::split_once(version, '/').map(|(group, _)| group);
    if group(version) == group(expected) {
        let why = format!("{version:?} is no version of {kind} that is read; write {expected}");
        return Err((inside(at, "apiVersion"), why).into());
    }
    let why = format!("{kind} of {version} is not read");
    let remedy = format!("the {kind} that is read is of {expected}");
    Ok(Problem::new(at, why, remedy))
}

/// Why an object that users may expect to be read is not, and what to do.
fn passed_over(object: &Value) -> Option<(String, String)> {
    let kind = object.get("kind")?.as_str()?;
    let remedy = match (kind, nearest(kind, READ)) {
        ("Endpoints", _) => "write an EndpointSlice".to_owned(),
        ("Ingress", _) => "write its hosts and paths as annotations of the Service".to_owned(),
        (_, Some(near)) => format!("did you mean kind: {near}?"),
        (_, None) => return None,
    };
    let text = |place| object.pointer(place).and_then(Value::as_str);
    let namespace = text("/metadata/namespace").unwrap_or("default");
    let name = text("/metadata/name").unwrap_or("without a name");
    Some((format!("{kind} {namespace}/{name} is not read"), remedy))
}

/// A document of a file.
struct Document {
    /// The lines of the file before it.
    line: usize,
    text: String,
}

impl Document {
    fn not_yaml(&self, error: &serde_saphyr::Error) -> Problem {
        let at = error.location().map(|place| {
            let line = u64::try_from(self.line).unwrap_or(0) + place.line();
            format!("line {line}, column {}", place.column())
        });
        let words = error.to_string();
        let why = words.split(['\n']).next().unwrap_or_default();
        let why = why.split(" at line ").next().unwrap_or_default();
        let remedy = "correct it there, or in the lines above";
        Problem::new(
            at.unwrap_or_default(),
            format!("cannot be read as YAML: {why}"),
            remedy,
        )
    }

    /// The problems as lines, each with its position in the file.
    fn located(&self, problems: &[Problem]) -> impl Iterator<Item = String> + use<> {
        let lines = match problems {
            [] => Vec::new(),
            some => located(("\n".repeat(self.line) + &self.text).as_bytes(), some),
        };
        lines.into_iter()
    }
}

/// The documents of a file, each parsed separately, so that a broken one affects no other.
fn documents(text: &str) -> Vec<Document> {
    let begin = |line, text: &str| Document {
        line,
        text: text.to_owned(),
    };
    let mut documents = vec![begin(0, "")];
    for (number, line) in text.lines().enumerate() {
        let rest = line
            .strip_prefix("---")
            .filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        if let Some(rest) = rest {
            documents.push(begin(number, rest));
        } else if let Some(last) = documents.last_mut() {
            last.text.push_str(line);
        }
        if let Some(last) = documents.last_mut() {
            last.text.push('\n');
        }
    }
    let is_not_empty = |document: &Document| {
        let mut lines = document.text.lines().map(str::trim);
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

const NODES: usize = 8 << 20;

/// The largest document, in bytes.
const LARGEST: usize = 256 << 20;

/// The kinds that are read.
const READ: [&str; 17] = [
    "Service",
    "EndpointSlice",
    "Node",
    "Secret",
    "ReferenceGrant",
    "Namespace",
    "List",
    "AddressPool",
    "AddressReservation",
    "Announcement",
    "IPAddressPool",
    "ExternalIPPool",
    "L2Advertisement",
    "BGPAdvertisement",
    "BGPPeer",
    "Community",
    "BFDProfile",
];

const NOT_UTF8: &str = "is not UTF-8; save it as UTF-8";
/// What becomes of a file with mistakes that is read once.
const READ_ONCE: &str = "a controller that has read the file before keeps its last good content; here the documents count that can be read";
