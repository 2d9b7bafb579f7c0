//! One object as it comes from the API server: converted at once, and never the end of a watch. Used by `reflect`.

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

use super::leases::Renewal;
use super::{Key, Node, Service, Slice, convert};

/// A kind of object that is watched, in the form in which it is kept.
pub(super) trait Kind: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Kubernetes' form.
    type Object: Resource<DynamicType = ()> + DeserializeOwned;
    /// For the log.
    const NAME: &'static str;
    /// How long nothing happens at most, once something did; where nobody knows, a day may pass.
    const BEATS: Option<Duration> = None;
    /// From the one to the other; `None`: nothing that is looked at.
    fn convert(object: Self::Object) -> Result<Option<Self>, String>;
}

impl Kind for Service {
    type Object = core::Service;
    const NAME: &'static str = "Service";
    fn convert(object: core::Service) -> Result<Option<Self>, String> {
        convert::service(object).map(Some)
    }
}

impl Kind for Slice {
    type Object = discovery::EndpointSlice;
    const NAME: &'static str = "EndpointSlice";
    fn convert(object: discovery::EndpointSlice) -> Result<Option<Self>, String> {
        convert::slice(object)
    }
}

impl Kind for Node {
    type Object = core::Node;
    const NAME: &'static str = "Node";
    fn convert(object: core::Node) -> Result<Option<Self>, String> {
        convert::node(object).map(Some)
    }
}

impl Kind for Renewal {
    type Object = coordination::Lease;
    const NAME: &'static str = "Lease";
    // Renewals come every 3 s, of each node and of the leader.
    const BEATS: Option<Duration> = Some(Duration::from_secs(10));
    fn convert(object: coordination::Lease) -> Result<Option<Self>, String> {
        Ok(Some(Self::of(object)))
    }
}

/// An object that came, understood or not.
#[derive(Clone, Debug)]
pub(super) struct Arrived<T> {
    pub(super) key: Key,
    /// What it says, or what is wrong with it.
    pub(super) said: Result<Option<T>, String>,
    meta: ObjectMeta,
}

impl<T> Arrived<T> {
    /// Its version.
    pub(super) fn version(&self) -> &str {
        self.meta.resource_version.as_deref().unwrap_or_default()
    }
}

impl<'de, T: Kind> Deserialize<'de> for Arrived<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(source)?;
        let of_meta = |name: &str| {
            let text = object.pointer(&format!("/metadata/{name}"));
            text.and_then(Value::as_str).map(str::to_owned)
        };
        // Not from the typed object, which may be impossible.
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
        let said = serde_json::from_value::<T::Object>(object)
            .map_err(|error| error.to_string())
            .and_then(T::convert);
        Ok(Self { key, said, meta })
    }
}

/// So that an [`kube::Api`] gives these.
impl<T: Kind> Resource for Arrived<T> {
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
