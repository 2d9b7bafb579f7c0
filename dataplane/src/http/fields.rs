//! Heads of HTTP/2: the fields of the library that speaks it, written and read as core's.

use ballast_core::forward::{Sink, ToEndpoint, request_fields};
use ballast_core::http::{Field, Scheme, may_trail};
use http::uri::{Authority, PathAndQuery};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
};

use super::bridge::Broken;

/// Fields that are being written.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) map: HeaderMap,
    /// `Host`, which is `:authority` in HTTP/2.
    host: Vec<u8>,
    value: Vec<u8>,
}

impl Sink for Fields {
    fn field_with(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        if name.eq_ignore_ascii_case("host") {
            self.host.clear();
            return value(&mut self.host);
        }
        self.value.clear();
        value(&mut self.value);
        // Both come from parsers, which let nothing else pass than what is accepted here.
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_bytes(self.value.trim_ascii()),
        ) {
            self.map.append(name, value);
        }
    }
}

/// Makes the head of a request for an endpoint. `None`: HTTP/2 cannot express its target or host.
pub(super) fn request(to: &ToEndpoint<'_>, scheme: Scheme) -> Option<Request<()>> {
    let mut fields = Fields::default();
    request_fields(&mut fields, to);
    let mut target = Vec::new();
    to.write_target(&mut target);
    let uri = Uri::builder()
        .scheme(scheme.name())
        .authority(Authority::try_from(fields.host.as_slice()).ok()?)
        .path_and_query(PathAndQuery::try_from(target.as_slice()).ok()?);
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(to.request.method.as_bytes()).ok()?;
    *request.uri_mut() = uri.build().ok()?;
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = fields.map;
    Some(request)
}

/// Makes the head of a response for a client.
pub(super) fn response(status: u16, fields: HeaderMap) -> Result<Response<()>, Broken> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).map_err(|_| Broken::Malformed)?;
    *response.version_mut() = Version::HTTP_2;
    *response.headers_mut() = fields;
    Ok(response)
}

/// The fields as core reads them, in the order in which they are kept: fields of one name are together.
pub(super) fn of(map: &HeaderMap) -> Vec<Field<'_>> {
    map.iter()
        .map(|(name, value)| Field {
            name: name.as_str(),
            value: value.as_bytes(),
        })
        .collect()
}

/// The length of the body, if its fields state one.
pub(super) fn length(map: &HeaderMap) -> Option<u64> {
    let length = map.get(http::header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// The trailers of a body of HTTP/1, for HTTP/2.
pub(super) fn trailers(fields: &[Field<'_>]) -> HeaderMap {
    let mut trailers = Fields::default();
    for field in fields.iter().filter(|field| may_trail(field.name)) {
        trailers.field(field.name, field.value);
    }
    trailers.map
}

/// Those of the trailers that may be sent in HTTP/1.
pub(super) fn forwarded_trailers(
    trailers: &HeaderMap,
) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    trailers.iter().filter(|(name, _)| may_trail(name.as_str()))
}
