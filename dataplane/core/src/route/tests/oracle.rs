//! Properties that hold for any routes and any request. The tests of this crate and the fuzz target `route` include this file.
//!
//! A text is lines of words: first `HOST PATH` of a request, then `HOST PATH MATCH` of each route. A host of `-` is none or any,
//! and a `MATCH` that begins with `i` ignores case.

use super::{
    CompileContext, Format, Host, LOOPBACK_ONLY, Moment, Plan, Rng, Serves, Target, compile, parse,
};

/// Panics where another route is found than the best of all that match, or where the order of the routes has a meaning.
/// Returns false if the text does not hold a request and routes that a table may have.
pub(super) fn check(text: &str) -> bool {
    let mut lines = text.lines();
    let Some((host, path)) = lines.next().and_then(|line| line.split_once(' ')) else {
        return false;
    };
    // No path is asked for by OPTIONS *.
    if path.contains(' ') || path == "*" {
        return false;
    }
    let Some(mut routes) = lines.map(Written::new).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let best = routes
        .iter()
        .filter_map(|route| Some((route.rank(host, path)?, route)))
        .max_by(|one, other| one.0.cmp(&other.0))
        .map(|(_, route)| (route.id(), route.prefix_length()));
    for _ in 0..2 {
        let Some(found) = found(&routes, host, path) else {
            return false;
        };
        let expected = best.clone().unwrap_or_else(|| ("404".to_owned(), 0));
        assert_eq!(found, expected);
        routes.reverse();
    }
    true
}

/// The route that is found, and the length of what it matched.
fn found(routes: &[Written<'_>], host: &str, path: &str) -> Option<(String, usize)> {
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
    let host = (host != "-").then_some(Host {
        name: host,
        port: None,
    });
    let matched = http.routes().find(host, path);
    let Target::Answer(answer) = &matched.route.target else {
        panic!("every route is an answer");
    };
    let id = match &answer.content_type {
        Some(id) => id.to_string(),
        None => answer.status.to_string(),
    };
    Some((id, matched.prefix_length))
}

/// A route as the text has it.
struct Written<'t> {
    host: &'t str,
    path: &'t str,
    kind: &'t str,
    ignores_case: bool,
}

impl<'t> Written<'t> {
    fn new(line: &'t str) -> Option<Self> {
        let (host, rest) = line.split_once(' ')?;
        let (path, kind) = rest.split_once(' ')?;
        let sensitive = kind.strip_prefix('i');
        Some(Self {
            host,
            path,
            kind: sensitive.unwrap_or(kind),
            ignores_case: sensitive.is_some(),
        })
    }

    fn id(&self) -> String {
        let case = if self.ignores_case { "i" } else { "" };
        format!("{} {} {case}{}", self.host, self.path, self.kind)
    }

    fn json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({
            "path": self.path, "match": self.kind, "ignore-case": self.ignores_case, "status": 200, "content-type": self.id(),
        });
        if self.host != "-" {
            json["host"] = self.host.into();
        }
        json
    }

    fn prefix_length(&self) -> usize {
        let is_below = self.kind != "exact" && self.path.ends_with('/');
        self.path.len() - usize::from(is_below)
    }

    /// How well it matches: exact host, length of the host; exact path, length of the path, whole segments, case. `None`: not.
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
        let (own, path) = match self.ignores_case {
            true => (self.path.to_ascii_lowercase(), path.to_ascii_lowercase()),
            false => (self.path.to_owned(), path.to_owned()),
        };
        let rest = path.strip_prefix(&own)?;
        let matches = match self.kind {
            "exact" => rest.is_empty(),
            "segment" => rest.is_empty() || rest.starts_with('/') || own.ends_with('/'),
            _ => true,
        };
        matches.then_some((
            by_host,
            self.kind == "exact",
            own.len(),
            self.kind == "segment",
            !self.ignores_case,
        ))
    }
}
