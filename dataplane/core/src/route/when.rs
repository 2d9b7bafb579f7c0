//! What a route asks of requests in addition to their host and path.

use crate::http::Request;
use crate::table::{self, HeaderMatch};

/// What must hold of a request: all of it.
#[derive(Debug)]
pub(super) struct When {
    /// The method is one of these, if there are any.
    methods: Box<[Box<str>]>,
    headers: Box<[Header]>,
    /// The names and values of parameters.
    query: Box<[(Box<str>, Box<str>)]>,
}

/// What must hold of the fields of one name.
#[derive(Debug)]
struct Header {
    name: Box<str>,
    test: Test,
}

#[derive(Debug)]
enum Test {
    Value(Box<str>),
    Prefix(Box<str>),
    Present,
    Absent,
}

/// How much is asked for. Of routes for one path the greatest is looked at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    headers: usize,
    method: bool,
    query: usize,
}

impl Rank {
    pub(super) fn of(when: Option<&table::When>) -> Self {
        when.map_or_else(Self::default, |when| Self {
            headers: when.headers.len(),
            method: !when.method.is_empty(),
            query: when.query.len(),
        })
    }
}

impl When {
    pub(super) fn new(when: &table::When) -> Self {
        let query = when.query.iter();
        Self {
            methods: when.method.iter().map(|method| (**method).into()).collect(),
            headers: when.headers.iter().map(Header::new).collect(),
            query: query
                .map(|one| ((*one.name).into(), (*one.value).into()))
                .collect(),
        }
    }

    /// Whether all of it holds.
    pub(super) fn holds(&self, request: &Request<'_>) -> bool {
        let mut methods = self.methods.iter();
        let has = |(name, value): &(Box<str>, Box<str>)| {
            parameter(request.query, name).is_some_and(|sent| *sent == **value)
        };
        (self.methods.is_empty() || methods.any(|method| **method == *request.method))
            && self.headers.iter().all(|header| header.holds(request))
            && self.query.iter().all(has)
    }
}

impl Header {
    fn new(header: &HeaderMatch) -> Self {
        let trimmed = |text: &str| text.trim().into();
        let test = match (&header.value, &header.prefix) {
            (Some(value), _) => Test::Value(trimmed(value)),
            (None, Some(prefix)) => Test::Prefix(trimmed(prefix)),
            (None, None) if header.absent => Test::Absent,
            // A valid table asks for nothing else.
            (None, None) => Test::Present,
        };
        Self {
            name: (*header.name).into(),
            test,
        }
    }

    fn holds(&self, request: &Request<'_>) -> bool {
        let fields = request.fields.iter();
        let of_name = fields.filter(|field| field.name.eq_ignore_ascii_case(&self.name));
        let mut values = of_name.map(|field| field.value.trim_ascii());
        match &self.test {
            Test::Value(value) => values.any(|sent| sent == value.as_bytes()),
            Test::Prefix(prefix) => values.any(|sent| sent.starts_with(prefix.as_bytes())),
            Test::Present => values.next().is_some(),
            Test::Absent => values.next().is_none(),
        }
    }
}

/// The value of the first parameter of this name, as it was sent. One without an equals sign has an empty value.
fn parameter<'q>(query: Option<&'q str>, name: &str) -> Option<&'q str> {
    query?.split('&').find_map(|parameter| {
        let (own, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        (own == name).then_some(value)
    })
}
