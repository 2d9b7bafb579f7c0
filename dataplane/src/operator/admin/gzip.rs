//! Renderings as gzip, for readers that take it: a page of thousands of services is ten times smaller so.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{ACCEPT_ENCODING, HeaderMap};

use crate::stats::{Chunks, Progress};

/// Whether the sender of these headers takes gzip.
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|offer| {
        let (coding, quality) = offer.split_once(';').unwrap_or((offer, ""));
        let quality = quality.trim().to_ascii_lowercase();
        let quality = quality.strip_prefix("q=").unwrap_or("1").parse::<f32>();
        let is_wanted = quality.is_ok_and(|quality| quality > 0.0);
        coding.trim().eq_ignore_ascii_case("gzip") && is_wanted
    })
}

/// The rendering as gzip, piece by piece.
pub(super) fn compressed(mut plain: Chunks) -> Chunks {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    Chunks::new(move |out| {
        // Writing into a vector cannot fail.
        let progress = match plain.next() {
            Some(piece) => {
                encoder.write_all(&piece).ok();
                // Flushed, so that no turn of this thread renders more than one piece.
                encoder.flush().ok();
                Progress::Piece
            }
            None => {
                encoder.try_finish().ok();
                Progress::Over
            }
        };
        out.append(encoder.get_mut());
        progress
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn gzip_is_for_those_who_ask_for_it() {
        for (line, expected) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5, br", true),
            ("gzip; q=1", true),
            ("gzip;q=0", false),
            ("gzip;Q=0", false),
            ("gzip;q=0.000", false),
            ("identity", false),
            ("x-gzip", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(line).unwrap());
            assert_eq!(is_accepted(&headers), expected, "{line}");
        }
        assert!(!is_accepted(&HeaderMap::new()));
    }

    #[test]
    fn what_is_compressed_is_what_was_rendered() {
        let mut left = 10_000_u32;
        let plain = Chunks::new(move |out| {
            out.extend_from_slice(format!("row {left} of many that are alike\n").as_bytes());
            left -= 1;
            if left == 0 {
                Progress::Over
            } else {
                Progress::GoesOn
            }
        });
        let pieces: Vec<_> = compressed(plain).collect();
        // As many turns as the rendering itself takes.
        assert!((5..=7).contains(&pieces.len()), "{}", pieces.len());
        let bytes: Vec<u8> = pieces.into_iter().flat_map(Vec::from).collect();
        assert!(bytes.len() < 100_000, "{}", bytes.len());
        let mut text = String::new();
        GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
        assert_eq!(text.lines().count(), 10_000);
        assert!(text.ends_with("row 1 of many that are alike\n"));
    }
}
