//! Properties that hold for any routes and any request. The tests of this crate and the fuzz target `route` include this file.
//!
//! A text is lines of words: first `HOST PATH` of a request, then `HOST PATH MATCH` of each route. A host of `-` is none or any,
//! and a `MATCH` that begins with `i` ignores case. More words behind those of the request are its method (the first one), its
//! header fields (`NAME:VALUE`) and its query (`?QUERY`); more words behind those of a route are what it asks for: `m=METHOD`,
//! `h=NAME:VALUE`, `h^NAME:PREFIX`, `h+NAME` (there is such a field), `h-NAME` (there is none) and `q=NAME=VALUE`.

use super::{
    CompileContext, Field, Format, Host, LOOPBACK_ONLY, Moment, Plan, Request, Rng, Serves, Target,
    Version, compile, parse,
};

/// Panics where another route is found than the best of all that match, or where the order of routes has a meaning that do not ask
/// for equally much. Returns false if the text does not hold a request and routes that a table may have.
pub(super) fn check(text: &str) -> bool {
    let mut lines = text.lines();
    let Some(asked) = lines.next().and_then(Asked::new) else {
        return false;
    };
    let Some(mut routes) = lines.map(Written::new).collect::<Option<Vec<_>>>() else {
        return false;
    };
    for _ in 0..2 {
        let best = routes
            .iter()
            .rev()
            .filter(|route| route.wants(&asked))
            .filter_map(|route| Some((route.rank(asked.host, asked.path)?, route)))
            // Of equal ones the last: the first in the table.
            .max_by(|one, other| one.0.cmp(&other.0))
            .map(|(_, route)| (route.id(), route.prefix_length()));
        let Some(found) = found(&routes, &asked) else {
            return false;
        };
        let expected = best.unwrap_or_else(|| ("404".to_owned(), 0));
        assert_eq!(found, expected);
        routes.reverse();
    }
    true
}

/// The route that is found, and the length of what it matched.
fn found(routes: &[Written<'_>], asked: &Asked<'_>) -> Option<(String, usize)> {
    let routes: Vec<_> = routes.iter().map(Written::json).collect();
    let frontend =
        serde_json::json!({"name": "f", "bind": ["*:80"], "protocol": "http", "routes": routes});
    let table = serde_json::json!({"version": 1, "frontends": [frontend]});
    let table = parse(table.to_string().as_bytes(), Format::Json).ok()?;
    let mut context = CompileContext {
        now: Moment(1),
        workers: 1,
        ipv6: true,
        host: &LOOPBACK_ONLY,
        rng: &mut Rng::new(1),
    };
    let plan = compile(table, &Plan::default(), &mut context);
    let Serves::Http(http) = plan.frontends().first()?.serves() else {
        panic!("it is http");
    };
    let fields = asked.fields.iter();
    let fields: Vec<Field<'_>> = fields
        .map(|(name, value)| Field {
            name,
            value: value.as_bytes(),
        })
        .collect();
    let matched = http.routes().find(&Request {
        method: asked.method,
        path: asked.path,
        query: asked.query,
        host: (asked.host != "-").then_some(Host {
            name: asked.host,
            port: None,
        }),
        version: Version::Http11,
        fields: &fields,
    });
    let Target::Answer(answer) = &matched.route.target else {
        panic!("every route is an answer");
    };
    let id = match &answer.content_type {
        Some(id) => id.to_string(),
        None => answer.status.to_string(),
    };
    Some((id, matched.prefix_length))
}

/// A request as the text has it.
struct Asked<'t> {
    host: &'t str,
    path: &'t str,
    method: &'t str,
    fields: Vec<(&'t str, &'t str)>,
    query: Option<&'t str>,
}

impl<'t> Asked<'t> {
    fn new(line: &'t str) -> Option<Self> {
        let mut words = line.split(' ');
        let (host, path) = (words.next()?, words.next()?);
        let mut asked = Self {
            host,
            path,
            method: words.next().unwrap_or("GET"),
            fields: Vec::new(),
            query: None,
        };
        for word in words {
            match word.strip_prefix('?') {
                Some(query) => asked.query = Some(query),
                None => asked.fields.push(word.split_once(':')?),
            }
        }
        // No path is asked for by OPTIONS *.
        (path != "*").then_some(asked)
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &'t str> {
        let fields = self.fields.iter();
        let of_name = fields.filter(move |(own, _)| own.eq_ignore_ascii_case(name));
        of_name.map(|(_, value)| value.trim())
    }
}

/// What a route asks for.
enum Want<'t> {
    Method(&'t str),
    Value(&'t str, &'t str),
    Prefix(&'t str, &'t str),
    Present(&'t str),
    Absent(&'t str),
    Parameter(&'t str, &'t str),
}

impl<'t> Want<'t> {
    fn new(word: &'t str) -> Option<Self> {
        Some(match word.split_at_checked(2)? {
            ("m=", method) => Self::Method(method),
            ("h=", field) => {
                let (name, value) = field.split_once(':')?;
                Self::Value(name, value)
            }
            ("h^", field) => {
                let (name, prefix) = field.split_once(':')?;
                Self::Prefix(name, prefix)
            }
            ("h+", name) => Self::Present(name),
            ("h-", name) => Self::Absent(name),
            ("q=", parameter) => {
                let (name, value) = parameter.split_once('=')?;
                Self::Parameter(name, value)
            }
            _ => return None,
        })
    }

    fn holds(&self, asked: &Asked<'_>) -> bool {
        match self {
            // Of several methods one is enough.
            Self::Method(_) => true,
            Self::Value(name, value) => asked.values(name).any(|own| own == value.trim()),
            Self::Prefix(name, prefix) => {
                asked.values(name).any(|own| own.starts_with(prefix.trim()))
            }
            Self::Present(name) => asked.values(name).next().is_some(),
            Self::Absent(name) => asked.values(name).next().is_none(),
            Self::Parameter(name, value) => {
                let query = asked.query.unwrap_or("&");
                let mut parameters = query
                    .split('&')
                    .map(|one| one.split_once('=').unwrap_or((one, "")));
                parameters.find(|(own, _)| own == name) == Some((name, value))
            }
        }
    }
}

/// A route as the text has it.
struct Written<'t> {
    host: &'t str,
    path: &'t str,
    kind: &'t str,
    ignores_case: bool,
    words: Vec<&'t str>,
    wants: Vec<Want<'t>>,
}

impl<'t> Written<'t> {
    fn new(line: &'t str) -> Option<Self> {
        let mut words = line.split(' ');
        let (host, path, kind) = (words.next()?, words.next()?, words.next()?);
        let sensitive = kind.strip_prefix('i');
        let words: Vec<&str> = words.collect();
        let wants = words.iter().map(|word| Want::new(word));
        Some(Self {
            host,
            path,
            kind: sensitive.unwrap_or(kind),
            ignores_case: sensitive.is_some(),
            wants: wants.collect::<Option<_>>()?,
            words,
        })
    }

    fn id(&self) -> String {
        let case = if self.ignores_case { "i" } else { "" };
        let wants = self.words.join(" ");
        format!("{} {} {case}{} {wants}", self.host, self.path, self.kind)
            .trim_end()
            .to_owned()
    }

    fn json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({
            "path": self.path, "match": self.kind, "ignore-case": self.ignores_case, "status": 200, "content-type": self.id(),
        });
        if self.host != "-" {
            json["host"] = self.host.into();
        }
        for want in &self.wants {
            let (list, item) = match want {
                Want::Method(method) => ("method", serde_json::json!(method)),
                Want::Value(name, value) => {
                    ("headers", serde_json::json!({"name": name, "value": value}))
                }
                Want::Prefix(name, prefix) => (
                    "headers",
                    serde_json::json!({"name": name, "prefix": prefix}),
                ),
                Want::Present(name) => (
                    "headers",
                    serde_json::json!({"name": name, "present": true}),
                ),
                Want::Absent(name) => {
                    ("headers", serde_json::json!({"name": name, "absent": true}))
                }
                Want::Parameter(name, value) => {
                    ("query", serde_json::json!({"name": name, "value": value}))
                }
            };
            match json["when"][list].as_array_mut() {
                Some(items) => items.push(item),
                None => json["when"][list] = vec![item].into(),
            }
        }
        json
    }

    fn prefix_length(&self) -> usize {
        let is_below = self.kind != "exact" && self.path.ends_with('/');
        self.path.len() - usize::from(is_below)
    }

    /// Whether the request has what the route asks for.
    fn wants(&self, asked: &Asked<'_>) -> bool {
        let methods = self.wants.iter().filter_map(|want| match want {
            Want::Method(method) => Some(*method),
            _ => None,
        });
        let methods: Vec<&str> = methods.collect();
        (methods.is_empty() || methods.contains(&asked.method))
            && self.wants.iter().all(|want| want.holds(asked))
    }

    fn count(&self, test: impl Fn(&Want<'_>) -> bool) -> usize {
        self.wants.iter().filter(|want| test(want)).count()
    }

    /// How well it matches: exact host, length of the host; exact path, length of the path, whole segments, case; header fields,
    /// method, parameters. `None`: not.
    fn rank(&self, host: &str, path: &str) -> Option<impl Ord + use<>> {
        let plain = |host: &str| host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let (own, host) = (plain(self.host), plain(host));
        let by_host = match own.strip_prefix('*') {
            None if own == "-" => (false, 0),
            None => (own == host && host.len() <= 253).then_some((true, 0))?,
            Some(above) => {
                let is_under =
                    host.ends_with(above) && (above.len() + 1..=253).contains(&host.len());
                is_under.then_some((false, above.len()))?
            }
        };
        let (own, path) = if self.ignores_case {
            (self.path.to_ascii_lowercase(), path.to_ascii_lowercase())
        } else {
            (self.path.to_owned(), path.to_owned())
        };
        let rest = path.strip_prefix(&own)?;
        let matches = match self.kind {
            "exact" => rest.is_empty(),
            "segment" => rest.is_empty() || rest.starts_with('/') || own.ends_with('/'),
            _ => true,
        };
        let is_parameter = |want: &Want<'_>| matches!(want, Want::Parameter(..));
        let is_method = |want: &Want<'_>| matches!(want, Want::Method(_));
        let is_field = |want: &Want<'_>| !is_parameter(want) && !is_method(want);
        matches.then_some((
            by_host,
            self.kind == "exact",
            own.len(),
            (self.kind == "segment", !self.ignores_case),
            self.count(is_field),
            self.count(is_method) > 0,
            self.count(is_parameter),
        ))
    }
}
