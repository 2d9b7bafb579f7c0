//! What a route asks of requests beside their host and path.

use crate::http::FieldKind;

use super::super::reach::Header;
use super::super::{HeaderMatch, When};
use super::{Inspection, twice};

impl Inspection<'_> {
    pub(super) fn when(&mut self, at: &str, when: &When) {
        let at = format!("{at}.when");
        if *when == When::default() {
            let remedy = "add method, headers or query, or remove it";
            return self.report(at, "asks for nothing", remedy);
        }
        self.stand_once(format_args!("{at}.method"), &when.method);
        for (index, header) in when.headers.iter().enumerate() {
            self.header(&format!("{at}.headers[{index}]"), header);
        }
        let headers: Vec<Header<'_>> = when.headers.iter().map(Header::of).collect();
        for (index, earlier) in twice(headers.iter().map(Some)) {
            self.report(
                format_args!("{at}.headers[{index}]"),
                format!("asks for the same as headers[{earlier}]"),
                "keep one of them",
            );
        }
        let names = when.query.iter().map(|parameter| Some(&*parameter.name));
        for (index, earlier) in twice(names) {
            self.report(
                format_args!("{at}.query[{index}].name"),
                format!("is the name of query[{earlier}] already"),
                "keep one of them; of several parameters with one name the first one counts",
            );
        }
    }

    fn header(&mut self, at: &str, header: &HeaderMatch) {
        let there = [
            (header.value.is_some(), "value"),
            (header.prefix.is_some(), "prefix"),
            (header.present, "present"),
            (header.absent, "absent"),
        ];
        let there = there.iter().filter(|(there, _)| *there);
        let named: Vec<&str> = there.map(|(_, name)| *name).collect();
        let why = match named.as_slice() {
            [_] => None,
            [] => Some("asks for nothing".to_owned()),
            several => Some(format!("has {} at once", several.join(" and "))),
        };
        if let Some(why) = why {
            let remedy = "expected exactly one of value, prefix, present: true and absent: true";
            self.report(at, why, remedy);
        }
        if FieldKind::of(&header.name) == FieldKind::Host {
            self.report(
                format_args!("{at}.name"),
                "the host of a request is not matched as a field",
                "use host of the route",
            );
        }
        if header
            .prefix
            .as_deref()
            .is_some_and(|it| it.trim().is_empty())
        {
            self.report(
                format_args!("{at}.prefix"),
                "every value begins with nothing",
                "use present: true",
            );
        }
    }
}
