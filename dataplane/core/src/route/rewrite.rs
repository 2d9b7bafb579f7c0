//! How a route changes the path and the host of a request, and how a path in the answer is changed back.
//!
//! Each written path has exactly one slash at its beginning: after a second one, the rest would be read as the name of a host.

use super::table::{self, HostPattern, PathMatch, Route};

/// What endpoints are asked for instead of what the client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// `None`: the path is not changed.
    path: Option<NewPath>,
    host: Option<Box<str>>,
}

/// The replacement of a path, or of the part of it that a route matched.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NewPath {
    to: Box<str>,
    replaces: Replaced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replaced {
    /// The part that was matched in this way.
    Matched(PathMatch),
    /// The whole path.
    Whole,
}

impl Rewrite {
    /// The rewriting of this route.
    pub(crate) fn new(to: &table::Rewrite, route: &Route) -> Self {
        let matched = Replaced::Matched(match route.r#match {
            // The match ends with a slash, so it always ends between two segments.
            PathMatch::Begins if route.path().ends_with('/') => PathMatch::Segment,
            kind => kind,
        });
        let new = |to: &str, replaces| NewPath {
            to: format!("/{}", to.trim_start_matches('/')).into(),
            replaces,
        };
        Self {
            path: match (&to.path, &to.prefix) {
                (Some(whole), _) => Some(new(whole, Replaced::Whole)),
                (None, Some(prefix)) => Some(new(prefix, matched)),
                (None, None) => None,
            },
            host: match &to.host {
                Some(HostPattern::Exact(host)) => Some(host.clone()),
                // A valid table has no wildcard here.
                Some(HostPattern::Under(_)) | None => None,
            },
        }
    }

    /// The host that endpoints are asked for; `None`: the client's.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Whether the path is changed.
    #[must_use]
    pub fn changes_path(&self) -> bool {
        self.path.is_some()
    }

    /// Writes the path of the request to the endpoint. `path` is the client's, `prefix_length` that of
    /// [`Matched`](super::Matched). The `*` of `OPTIONS *` stays.
    pub fn write_path(&self, out: &mut Vec<u8>, path: &str, prefix_length: usize) {
        match &self.path {
            Some(NewPath { to, replaces }) if path != "*" => {
                let rest = match replaces {
                    Replaced::Whole => "",
                    Replaced::Matched(_) => path.get(prefix_length..).unwrap_or_default(),
                };
                join(out, to.as_bytes(), rest.as_bytes());
            }
            Some(_) | None => out.extend_from_slice(path.as_bytes()),
        }
    }

    /// Writes the path by which a client reaches this `path` of the endpoint, and returns true. Writes nothing and returns false
    /// for a path that [`write_path`](Self::write_path) never makes, and for one without a slash at its beginning.
    ///
    /// `prefix` is the part of the request's path that matched: [`Matched::prefix`](super::Matched::prefix).
    pub fn map_back_path(&self, out: &mut Vec<u8>, prefix: &str, path: &[u8]) -> bool {
        self.map_back(out, prefix, path, |rest| rest)
    }

    /// The same for the path of a cookie. For the folder `/svc` this is `/svc` and not `/svc/`: browsers would not send a cookie
    /// with the path `/svc/` in a request for `/svc`.
    pub fn map_back_cookie_path(&self, out: &mut Vec<u8>, prefix: &str, path: &[u8]) -> bool {
        let is_folder = self.path.as_ref().is_some_and(|new| new.to.ends_with('/'));
        self.map_back(out, prefix, path, |rest| match rest {
            b"/" if is_folder => b"",
            rest => rest,
        })
    }

    fn map_back(
        &self,
        out: &mut Vec<u8>,
        prefix: &str,
        path: &[u8],
        rest: impl Fn(&[u8]) -> &[u8],
    ) -> bool {
        let Some(NewPath { to, replaces }) = &self.path else {
            out.extend_from_slice(path);
            return path.starts_with(b"/");
        };
        let folder = to.strip_suffix('/').unwrap_or(to);
        let below = match replaces {
            Replaced::Whole | Replaced::Matched(PathMatch::Exact) => {
                (path == to.as_bytes()).then_some(&b""[..])
            }
            Replaced::Matched(PathMatch::Segment) => {
                path.strip_prefix(folder.as_bytes()).filter(is_segment_end)
            }
            Replaced::Matched(PathMatch::Begins) => path
                .strip_prefix(folder.as_bytes())
                .filter(|rest| folder.len() == to.len() || is_segment_end(rest)),
        };
        let below = below.filter(|_| path.starts_with(b"/"));
        if let Some(below) = below {
            join(out, prefix.as_bytes(), rest(below));
        }
        below.is_some()
    }
}

fn is_segment_end(rest: &&[u8]) -> bool {
    rest.is_empty() || rest.starts_with(b"/")
}

/// Writes `first` and `rest` as one path with one slash at its beginning. Where `first` ends with a slash, `rest` adds none.
fn join(out: &mut Vec<u8>, first: &[u8], rest: &[u8]) {
    for part in joined(first, rest) {
        out.extend_from_slice(part);
    }
}

/// The parts of that path.
pub(super) fn joined<'p>(first: &'p [u8], rest: &'p [u8]) -> [&'p [u8]; 3] {
    let first = without_slashes(first);
    let rest = match first.last() {
        None | Some(b'/') => without_slashes(rest),
        Some(_) => rest,
    };
    [b"/", first, rest]
}

fn without_slashes(mut path: &[u8]) -> &[u8] {
    while let Some(rest) = path.strip_prefix(b"/") {
        path = rest;
    }
    path
}

#[cfg(test)]
mod tests;
