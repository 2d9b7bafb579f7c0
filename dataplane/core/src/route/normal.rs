//! Other forms of a path that many endpoints take for the same: what clients may write to get around a route.
//!
//! Unreserved characters are the same with and without `%XX` (RFC 3986, section 2.3); dot segments lead to another path (section
//! 5.2.4); most file systems and frameworks take several slashes for one. Reserved characters stay as they were sent: for an
//! endpoint that decodes `%2f`, too, no proxy can know which path it means.

/// Calls `is_it` with each other form of `path` until that returns true, and returns whether it did. A path that is normal has no
/// other form: it is read once, and nothing is allocated.
pub(super) fn other_forms(path: &str, is_it: impl Fn(&str) -> bool) -> bool {
    if is_normal(path.as_bytes()) {
        return false;
    }
    let decoded = decoded(path);
    let merged_first = without_dots(&decoded, Slashes::MergedFirst);
    if is_it(&merged_first) {
        return true;
    }
    // `/a//../b` is `/b` where slashes are merged first, and `/a/b` where they are merged last.
    let merged_last = without_dots(&decoded, Slashes::MergedLast);
    merged_last != merged_first && is_it(&merged_last)
}

/// Whether the path has no unreserved character as `%XX`, no two slashes in a row and no dot segment.
fn is_normal(path: &[u8]) -> bool {
    let mut previous = 0;
    path.iter().enumerate().all(|(at, byte)| {
        let before = std::mem::replace(&mut previous, *byte);
        let rest = || &path[at + 1..];
        match byte {
            b'%' => unreserved(rest()).is_none(),
            b'/' => before != b'/',
            b'.' if before == b'/' => {
                !matches!(rest(), [] | [b'/', ..] | [b'.'] | [b'.', b'/', ..])
            }
            _ => true,
        }
    })
}

/// The path with its unreserved characters decoded.
fn decoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((plain, encoded)) = rest.split_once('%') {
        out.push_str(plain);
        (out, rest) = match unreserved(encoded.as_bytes()) {
            Some(letter) => (
                out + letter.encode_utf8(&mut [0; 4]),
                encoded.get(2..).unwrap_or(""),
            ),
            None => (out + "%", encoded),
        };
    }
    out + rest
}

/// The unreserved character of the two hexadecimal digits that this text begins with.
fn unreserved(text: &[u8]) -> Option<char> {
    let digit = |place: usize| char::from(*text.get(place)?).to_digit(16);
    let letter = char::from_u32(digit(0)? << 4 | digit(1)?)?;
    (letter.is_ascii_alphanumeric() || "-._~".contains(letter)).then_some(letter)
}

/// When several slashes in a row become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slashes {
    /// Before dot segments are removed.
    MergedFirst,
    /// After that.
    MergedLast,
}

/// The path without dot segments and without two slashes in a row.
fn without_dots(path: &str, slashes: Slashes) -> String {
    let Some(relative) = path.strip_prefix('/') else {
        return path.to_owned();
    };
    let mut out = String::with_capacity(path.len());
    // Whether the last segment is empty, or a dot segment, which leaves a slash at the end.
    let mut is_folder = false;
    for segment in relative.split('/') {
        is_folder = matches!(segment, "" | "." | "..");
        match segment {
            "." => {}
            ".." => out.truncate(out.rfind('/').unwrap_or(0)),
            "" if slashes == Slashes::MergedFirst => {}
            segment => {
                out.push('/');
                out.push_str(segment);
            }
        }
    }
    if is_folder || out.is_empty() {
        out.push('/');
    }
    let mut previous = ' ';
    out.retain(|letter| std::mem::replace(&mut previous, letter) != '/' || letter != '/');
    out
}

#[cfg(test)]
mod tests;
