//! How a route changes the path of a request, and how a path in the answer is changed back.
//!
//! Each written path has exactly one slash at its beginning: after a second one, the rest would be read as the name of a host.

use super::table::{PathMatch, Route};

/// The replacement of the part of a path that a route matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    to: Box<str>,
    matches: PathMatch,
}

impl Rewrite {
    /// The rewriting of this route, to the path `to`.
    pub(crate) fn new(to: &str, route: &Route) -> Self {
        Self {
            to: format!("/{}", to.trim_start_matches('/')).into(),
            matches: match route.r#match {
                // The match ends with a slash, so it always ends between two segments.
                PathMatch::Begins if route.path().ends_with('/') => PathMatch::Segment,
                kind => kind,
            },
        }
    }

    /// Writes the path of the request to the endpoint. `path` is the client's, `prefix_length` that of
    /// [`Matched`](super::Matched). The `*` of `OPTIONS *` stays.
    pub fn write_path(&self, out: &mut Vec<u8>, path: &str, prefix_length: usize) {
        match path {
            "*" => out.push(b'*'),
            path => join(
                out,
                self.to.as_bytes(),
                path.get(prefix_length..).unwrap_or_default().as_bytes(),
            ),
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
        let is_folder = self.to.ends_with('/');
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
        let folder = self.to.strip_suffix('/').unwrap_or(&self.to);
        let below = match self.matches {
            PathMatch::Exact if path == self.to.as_bytes() => Some(&b""[..]),
            PathMatch::Exact => None,
            PathMatch::Segment => path.strip_prefix(folder.as_bytes()).filter(is_segment_end),
            PathMatch::Begins => path
                .strip_prefix(folder.as_bytes())
                .filter(|rest| folder.len() == self.to.len() || is_segment_end(rest)),
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
    let first = without_slashes(first);
    out.push(b'/');
    out.extend_from_slice(first);
    out.extend_from_slice(match first.last() {
        None | Some(b'/') => without_slashes(rest),
        Some(_) => rest,
    });
}

fn without_slashes(path: &[u8]) -> &[u8] {
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    path.get(slashes..).unwrap_or_default()
}

#[cfg(test)]
mod tests;
