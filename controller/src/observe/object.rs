//! The kinds of objects that are watched, and one object as the API server sends it. Used by `reflector`.
//!
//! An object is converted while the response is parsed, so a page of a list holds plain data only. kube's `DeserializeGuard` is not
//! used: it copies every object, and an object with unreadable metadata still fails the whole list.

use std::borrow::Cow;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::leases::LeaseObject;
use super::{Key, Node, Service, Slice, convert};

/// A kind of object that is watched, in the form in which it is stored.
pub(super) trait WatchedKind: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Kubernetes' form.
    type Object: Resource<DynamicType = ()> + DeserializeOwned;
    /// The name of the kind in the log.
    const NAME: &'static str;
    /// The duration of one watch request, in seconds. A connection that died silently is noticed a few seconds after it.
    const WATCH_SECONDS: u32 = 30;
    /// After being denied for so long the kind may be found to be gone; `None`: every API server has it.
    const GOES_AFTER: Option<Duration> = None;
    /// Converts an object; `None`: the object is of no interest.
    fn convert(object: Self::Object) -> Result<Option<Self>, String>;
    /// Takes over what is known by the form of the object `before`.
    fn follow(&mut self, _before: &Self) {}
}

impl WatchedKind for Service {
    type Object = core::Service;
    const NAME: &'static str = "Service";
    fn convert(object: core::Service) -> Result<Option<Self>, String> {
        convert::service(object).map(Some)
    }
    fn follow(&mut self, before: &Self) {
        // A node that has to listen elsewhere for it, or has to begin to, must know this state.
        if self.is_served_as(before) {
            self.publication.allocated_at = before.publication.allocated_at;
        }
    }
}

impl WatchedKind for Slice {
    type Object = discovery::EndpointSlice;
    const NAME: &'static str = "EndpointSlice";
    fn convert(object: discovery::EndpointSlice) -> Result<Option<Self>, String> {
        convert::slice(object)
    }
}

impl WatchedKind for Node {
    type Object = core::Node;
    const NAME: &'static str = "Node";
    fn convert(object: core::Node) -> Result<Option<Self>, String> {
        convert::node(object).map(Some)
    }
}

impl WatchedKind for LeaseObject {
    type Object = coordination::Lease;
    const NAME: &'static str = "Lease";
    // A publisher that misses renewals for long withdraws addresses.
    const WATCH_SECONDS: u32 = 5;
    fn convert(object: coordination::Lease) -> Result<Option<Self>, String> {
        Ok(Some(Self::of(object)))
    }
}

/// An object of a list or a watch, readable or not.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parsed<T> {
    pub(super) key: Key,
    /// The converted object, or the reason for which it cannot be read.
    pub(super) content: Result<Option<T>, String>,
    /// Its resourceVersion.
    pub(super) version: u64,
    meta: ObjectMeta,
}

impl<'de, T: WatchedKind> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(source)?;
        let of_meta = |name: &str| {
            let text = object.pointer(&format!("/metadata/{name}"));
            text.and_then(Value::as_str).map(str::to_owned)
        };
        // The typed object may not exist, so that these fields are read from the untyped one.
        let meta = ObjectMeta {
            name: of_meta("name"),
            namespace: of_meta("namespace"),
            resource_version: of_meta("resourceVersion"),
            ..ObjectMeta::default()
        };
        let key = Key {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        };
        let version = meta.resource_version.as_deref();
        let version: Result<u64, String> = version.map_or(Ok(0), |text| {
            let wrong = |_| format!("metadata.resourceVersion {text:?} is not a decimal number");
            text.parse().map_err(wrong)
        });
        let content = match &version {
            Ok(_) => serde_json::from_value::<T::Object>(object)
                .map_err(|error| error.to_string())
                .and_then(T::convert),
            Err(why) => Err(why.clone()),
        };
        Ok(Self {
            key,
            content,
            version: version.unwrap_or_default(),
            meta,
        })
    }
}

/// A [`kube::Api`] of this type requests the objects of its kind.
impl<T: WatchedKind> Resource for Parsed<T> {
    type DynamicType = ();
    type Scope = <T::Object as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        T::Object::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        T::Object::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        T::Object::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        T::Object::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}
