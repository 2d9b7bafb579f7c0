//! Authentication of requests to the admin side by their credentials, and the check that a post was sent by the page itself and not by
//! another site through the browser of a user.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN, REFERER};

use crate::operator::admin::auth::{Auth, Role, Unproven};

/// The user who sent a request.
#[derive(Clone, Debug)]
pub(super) struct User {
    /// `None`: the process asks for no credentials.
    pub(super) name: Option<Arc<str>>,
    pub(super) may_change: bool,
}

/// The user whose credentials are in these headers of a request from this address.
pub(super) async fn user(
    auth: Option<&Auth>,
    headers: &HeaderMap,
    from: SocketAddr,
) -> Result<User, Unproven> {
    let Some(auth) = auth else {
        return Ok(User {
            name: None,
            may_change: false,
        });
    };
    let credentials = headers.get(AUTHORIZATION);
    let credentials = credentials.and_then(|credentials| credentials.to_str().ok());
    let person = auth
        .identify(credentials.ok_or(Unproven::Wrong)?, from)
        .await?;
    Ok(User {
        name: Some(person.name),
        may_change: person.role == Role::Admin,
    })
}

/// Whether the page itself sent this post. Browsers name the origin of a post, and no other site can make them name a
/// wrong one; a post without an origin is not accepted either.
pub(super) fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if headers
        .get(SEC_FETCH_SITE)
        .is_some_and(|site| site != "same-origin")
    {
        return false;
    }
    // A header that is there twice, or that is no text, is no browser's.
    if [HOST, ORIGIN, REFERER]
        .iter()
        .any(|name| headers.get_all(name).iter().count() > 1)
    {
        return false;
    }
    let (Some(host), Some(from)) = (
        text(HOST),
        if headers.contains_key(ORIGIN) {
            text(ORIGIN)
        } else {
            text(REFERER)
        },
    ) else {
        return false;
    };
    let Some((scheme, rest)) = from.split_once("://") else {
        return false;
    };
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = |authority: &str| {
        let authority = authority.to_ascii_lowercase();
        match authority.strip_suffix(port) {
            Some(host) => host.to_owned(),
            None => authority,
        }
    };
    !authority.is_empty() && plain(authority) == plain(host)
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn is_own(headers: &[(&'static str, &'static str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| {
            map.append(name, value);
        });
        is_same_origin(&map)
    }

    #[test]
    fn only_posts_of_the_page_itself_are_its_own() {
        let (host, own) = (("host", "lb:1936"), ("origin", "http://lb:1936"));
        for headers in [
            &[host, own][..],
            &[host, ("origin", "http://LB:1936")],
            &[host, own, ("sec-fetch-site", "same-origin")],
            &[host, ("referer", "http://lb:1936/;st=DONE?q=x")],
            &[("host", "lb"), ("origin", "http://lb:80")],
            &[("host", "lb"), ("origin", "https://lb")],
            &[("host", "lb:443"), ("origin", "https://lb")],
            &[("host", "[::1]:1936"), ("origin", "http://[::1]:1936")],
        ] {
            assert!(is_own(headers), "{headers:?}");
        }
        for headers in [
            &[host][..],
            &[own],
            &[host, ("origin", "null")],
            &[host, ("origin", "http://evil")],
            &[host, ("origin", "http://lb:1937")],
            &[host, ("origin", "http://lb")],
            &[host, ("origin", "http://lb:1936.evil")],
            &[host, ("origin", "ftp://lb:1936")],
            &[host, ("referer", "http://evil/http://lb:1936/")],
            &[host, ("referer", "http://evil@lb:1936/")],
            &[host, own, ("sec-fetch-site", "cross-site")],
            &[host, own, ("sec-fetch-site", "same-site")],
            &[host, own, ("sec-fetch-site", "none")],
            &[host, own, ("origin", "http://evil")],
            &[
                host,
                ("origin", "http://evil"),
                ("referer", "http://lb:1936/"),
            ],
            &[("host", ""), ("origin", "http://")],
        ] {
            assert!(!is_own(headers), "{headers:?}");
        }
    }
}
