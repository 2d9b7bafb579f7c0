//! Routes: which requests, or TLS connections, go where, and what is changed on their way.

use std::num::NonZeroU16;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{List, OrMap, Within, is_default, number, shown_as_written};
use super::host::{HostPattern, Scheme, UrlPath};
use super::http::{ErrorPage, HeaderEdits};
use super::leaf::AsText;
use super::text::{Alpn, File, Name, Parameter, ParameterValue, Token, Value};

/// Which requests, or TLS connections, go where. Exactly one of `service`, `backends`, `redirect` and `status` must be there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Route {
    /// A name for its metrics, unique among the routes of its frontend. Absent: they call it by host and path.
    #[serde(skip_serializing_if = "is_default")]
    pub name: Option<Name>,
    /// The host of the requests. Absent: any host.
    #[serde(skip_serializing_if = "is_default")]
    pub host: Option<HostPattern>,
    /// The path of the requests. Default: /.
    #[serde(skip_serializing_if = "is_default")]
    pub path: Option<UrlPath>,
    /// How `path` is compared. Default: segment.
    #[serde(skip_serializing_if = "is_default")]
    pub r#match: PathMatch,
    /// Whether upper and lower case are the same in `path`. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub ignore_case: bool,
    /// What must hold of a request beside its host and path. Absent: nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub when: Option<Box<When>>,
    /// Clients that may use this route, beside the frontend's own ranges. Absent: everybody.
    #[serde(
        with = "AsText::<Option<List<IpNet>>>",
        skip_serializing_if = "is_default"
    )]
    pub source_ranges: Option<List<IpNet>>,
    /// The answer to clients outside of `source-ranges`. Absent: 403, with its page.
    #[serde(skip_serializing_if = "is_default")]
    pub denied: Option<Box<ErrorPage>>,
    /// For connections that are passed on unopened: the client must offer one of these protocols (ALPN).
    #[serde(skip_serializing_if = "is_default")]
    pub alpn: Option<List<Alpn>>,
    /// https: the connection is passed on unopened. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub passthrough: bool,
    /// The name of the service that gets the requests.
    #[serde(skip_serializing_if = "is_default")]
    pub service: Option<Name>,
    /// Several services that share the requests by weight, in place of `service`.
    #[serde(skip_serializing_if = "is_default")]
    pub backends: List<Backend>,
    /// What is changed in the heads of requests, before the edits of the backend and of the service.
    #[serde(skip_serializing_if = "is_default")]
    pub request_headers: Option<Box<HeaderEdits>>,
    /// Edits of the header fields of answers, after those of the service and of the backend. A redirect or `status` of this route is edited, too.
    #[serde(skip_serializing_if = "is_default")]
    pub response_headers: Option<Box<HeaderEdits>>,
    /// What endpoints are asked for instead: a path in place of the part that matched, or a map. Absent: nothing is changed.
    #[serde(skip_serializing_if = "is_default")]
    pub rewrite: Option<OrMap<UrlPath, Box<Rewrite>>>,
    /// Whether Location and the Path of Set-Cookie are changed back in answers. Default: true where `rewrite` is set.
    #[serde(skip_serializing_if = "is_default")]
    pub map_back: Option<bool>,
    /// How long a request may take, from its first byte to the last one of its answer. Absent: as long as it goes on.
    #[serde(
        with = "AsText::<Option<Duration>>",
        skip_serializing_if = "is_default"
    )]
    pub timeout: Option<Duration>,
    /// The client is sent elsewhere.
    #[serde(skip_serializing_if = "is_default")]
    pub redirect: Option<Box<Redirect>>,
    /// Ballast answers by itself, with this status.
    #[serde(with = "Within::<200, 599>", skip_serializing_if = "is_default")]
    pub status: Option<u16>,
    /// A file with the body of that answer.
    #[serde(skip_serializing_if = "is_default")]
    pub body_file: Option<File>,
    /// The Content-Type of that body.
    #[serde(skip_serializing_if = "is_default")]
    pub content_type: Option<Value>,
}

impl Route {
    /// The path that requests must match.
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or("/")
    }

    /// Every service that this route names, as often as it names it.
    pub fn services(&self) -> impl Iterator<Item = &Name> {
        let backends = self.backends.iter().map(|backend| &backend.service);
        self.service.iter().chain(backends)
    }

    /// What endpoints are asked for instead; `None`: nothing is changed.
    #[must_use]
    pub fn rewrite(&self) -> Option<Rewrite> {
        match self.rewrite.as_ref()? {
            OrMap::Value(prefix) => Some(Rewrite {
                prefix: Some(prefix.clone()),
                ..Rewrite::default()
            }),
            OrMap::Map(rewrite) => Some(Rewrite::clone(rewrite)),
        }
    }

    /// Whether Location and the Path of Set-Cookie are mapped back in answers.
    #[must_use]
    pub fn maps_back(&self) -> bool {
        self.map_back.unwrap_or_else(|| self.rewrite.is_some())
    }
}

/// How the path of a route is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a way to match")]
pub enum PathMatch {
    /// This path and everything below it.
    #[default]
    Segment,
    /// This path alone.
    Exact,
    /// Everything that begins with this text (haproxy's path_beg).
    Begins,
}

shown_as_written!(PathMatch);

/// What must hold of a request beside its host and path: all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct When {
    /// The method is one of these. Absent: any method.
    #[serde(skip_serializing_if = "is_default")]
    pub method: List<Token>,
    /// What holds of the header fields.
    #[serde(skip_serializing_if = "is_default")]
    pub headers: List<HeaderMatch>,
    /// What holds of the parameters of the query.
    #[serde(skip_serializing_if = "is_default")]
    pub query: List<QueryMatch>,
}

/// What must hold of the header fields of one name. Exactly one of `value`, `prefix`, `present` and `absent` must be there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HeaderMatch {
    /// The name of the field, in any case.
    pub name: Token,
    /// One of these fields has exactly this value.
    #[serde(default, skip_serializing_if = "is_default")]
    pub value: Option<Value>,
    /// The value of one of these fields begins so.
    #[serde(default, skip_serializing_if = "is_default")]
    pub prefix: Option<Value>,
    /// There is such a field, whatever its value. Default: false.
    #[serde(default, skip_serializing_if = "is_default")]
    pub present: bool,
    /// There is no such field. Default: false.
    #[serde(default, skip_serializing_if = "is_default")]
    pub absent: bool,
}

/// What must hold of one parameter of the query. Of several with this name the first one counts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct QueryMatch {
    /// The name of the parameter, as it is sent.
    pub name: Parameter,
    /// Its value, as it is sent.
    pub value: ParameterValue,
}

/// A service that gets a share of the clients or requests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Backend {
    /// The name of the service.
    pub service: Name,
    /// Its share, in relation to the weights of the others; 0: only clients that have affinity. Default: 1.
    #[serde(
        with = "Within::<0, 1_000_000>",
        default = "number::<1, u32>",
        skip_serializing_if = "is_one"
    )]
    pub weight: u32,
    /// What is changed in the heads of its requests, after the edits of the route.
    #[serde(default, skip_serializing_if = "is_default")]
    pub request_headers: Option<Box<HeaderEdits>>,
    /// What is changed in the heads of its answers, before the edits of the route.
    #[serde(default, skip_serializing_if = "is_default")]
    pub response_headers: Option<Box<HeaderEdits>>,
}

fn is_one(weight: &u32) -> bool {
    *weight == 1
}

/// What endpoints are asked for instead. At least one field must be there, and not both `prefix` and `path`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rewrite {
    /// What replaces the part of the path that matched.
    #[serde(skip_serializing_if = "is_default")]
    pub prefix: Option<UrlPath>,
    /// What replaces the whole path. The query stays.
    #[serde(skip_serializing_if = "is_default")]
    pub path: Option<UrlPath>,
    /// What replaces the host, without *.
    #[serde(skip_serializing_if = "is_default")]
    pub host: Option<HostPattern>,
}

/// Where a client is sent instead. What is absent stays as the client asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Redirect {
    /// The whole Location, as it is sent, such as `/new` or `https://example.com/x?y=z`. It stands alone, or beside `status`.
    #[serde(skip_serializing_if = "is_default")]
    pub location: Option<Value>,
    /// http or https.
    #[serde(skip_serializing_if = "is_default")]
    pub scheme: Option<Scheme>,
    /// Another host, without *.
    #[serde(skip_serializing_if = "is_default")]
    pub host: Option<HostPattern>,
    /// Another port. Default: the usual one of `scheme`, where that is given.
    #[serde(skip_serializing_if = "is_default")]
    pub port: Option<NonZeroU16>,
    /// What replaces the whole path. The query stays.
    #[serde(skip_serializing_if = "is_default")]
    pub path: Option<UrlPath>,
    /// What replaces the part of the path that matched, in place of `path`. The query stays.
    #[serde(skip_serializing_if = "is_default")]
    pub prefix: Option<UrlPath>,
    /// Whether the query is left out. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub drop_query: bool,
    /// Whether the Location begins with its path, without scheme and host. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub relative: bool,
    /// One of 301, 302, 303, 307 and 308. Default: 301 for GET and HEAD, else 308.
    #[serde(skip_serializing_if = "is_default")]
    pub status: Option<u16>,
}
