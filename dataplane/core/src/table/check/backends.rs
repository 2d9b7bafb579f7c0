//! What the services that share a frontend or a route mean together.

use super::super::Backend;
use super::{Inspection, twice};

impl Inspection<'_> {
    /// `no_heads` says why no head of a message can be changed there, if that is so. It is given the name of the field.
    pub(super) fn backends(
        &mut self,
        at: &str,
        backends: &[Backend],
        no_heads: &dyn Fn(&str) -> Option<String>,
    ) {
        if backends.is_empty() {
            return;
        }
        for (index, _) in twice(backends.iter().map(|backend| Some(&backend.service))) {
            if let Some(backend) = backends.get(index) {
                self.report(
                    format_args!("{at}.backends[{index}].service"),
                    format!("{} stands here twice", backend.service),
                    "keep one of them; weight gives it a larger share",
                );
            }
        }
        if backends.iter().all(|backend| backend.weight == 0) {
            self.report(
                format_args!("{at}.backends"),
                "every weight is 0, so nobody is served",
                "give one of them a weight of 1 or more",
            );
        }
        for (index, backend) in backends.iter().enumerate() {
            for (edits, field) in [
                (&backend.request_headers, "request-headers"),
                (&backend.response_headers, "response-headers"),
            ] {
                let Some(edits) = edits else { continue };
                let place = format!("{at}.backends[{index}].{field}");
                match no_heads(field) {
                    Some(why) => self.report(place, why, "remove it"),
                    None => self.header_edits(&place, edits),
                }
            }
        }
    }
}
