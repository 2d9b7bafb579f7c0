//! Redirects that lead clients back to the route that redirected them.
//!
//! A client is followed from route to route as a browser follows redirects: over the routes of its frontend, and to other
//! frontends at its address by scheme and port. In doubt there is no loop: a route with `when` or `source-ranges` may treat the
//! client differently the next time, and a host that no route names may be another server's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::http::{Host, Request, Scheme, Version};
use crate::route::{Index, Redirect};
use crate::table::{
    Bind, Frontend, HostPattern, PathMatch, Problem, Protocol, Route, RoutingTable,
};

/// A problem for each redirect by which some clients come back to it, in the order of the table.
#[must_use]
pub fn of_redirects(table: &RoutingTable) -> Vec<Problem> {
    let mut all = table.frontends.iter().flat_map(routes_of);
    if !all.any(|route| route.redirect.is_some()) {
        return Vec::new();
    }
    let followed = Followed::new(table);
    followed
        .places()
        .filter_map(|at| followed.problem(at))
        .collect()
}

/// All routes of a frontend, the default as the last one.
fn routes_of(frontend: &Frontend) -> impl Iterator<Item = &Route> {
    frontend.routes.iter().chain(frontend.default.as_deref())
}

/// A route: the index of its frontend, and its own among all routes of the frontend.
type Place = (usize, usize);

/// The routes by which clients are followed.
struct Followed<'t> {
    /// By the index of the frontend. `None`: it has no routes of requests.
    frontends: Vec<Option<Routes<'t>>>,
    /// The frontends that listen at each port, by their addresses. The key says whether they speak TLS.
    listening: BTreeMap<(bool, u16), BTreeMap<IpAddr, usize>>,
}

impl<'t> Followed<'t> {
    fn new(table: &'t RoutingTable) -> Self {
        let frontends: Vec<Option<Routes<'_>>> = table.frontends.iter().map(Routes::of).collect();
        let mut listening: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for (at, routes) in frontends.iter().enumerate() {
            for (routes, bind) in routes
                .iter()
                .flat_map(|one| one.binds().map(move |b| (one, b)))
            {
                let at_port = listening.entry((routes.is_secure(), bind.port()));
                let at_port = at_port.or_default();
                at_port.extend(addresses(bind).map(|address| (address, at)));
            }
        }
        Self {
            frontends,
            listening,
        }
    }

    /// The frontend that a client of another one reaches at the same address. `None`: no frontend of the table is known to be
    /// the one.
    fn beside(&self, own: usize, scheme: Scheme, port: u16) -> Option<usize> {
        let at_port = self.listening.get(&(scheme == Scheme::Https, port))?;
        let own = &self.routes(own)?.addresses;
        let mut found = own.iter().flat_map(|address| {
            let one = at_port.get(address);
            let any = at_port.get(&any_of(*address));
            // A client of every address may have come to each of theirs.
            let all = address.is_unspecified().then(|| at_port.values().take(2));
            one.into_iter().chain(any).chain(all.into_iter().flatten())
        });
        let first = found.next()?;
        found.all(|other| other == first).then_some(*first)
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        let frontends = self.frontends.iter().enumerate();
        frontends.flat_map(|(at, routes)| {
            let count = routes.iter().map(|routes| routes.all.len()).sum();
            (0..count).map(move |route| (at, route))
        })
    }

    fn routes(&self, frontend: usize) -> Option<&Routes<'_>> {
        self.frontends.get(frontend)?.as_ref()
    }

    fn problem(&self, at: Place) -> Option<Problem> {
        let way = self.circle(at)?;
        let others: Vec<String> = way.iter().map(|place| self.name(*place)).collect();
        let over = match &*others {
            [] => String::new(),
            others => format!(" over {}", others.join(" and ")),
        };
        Some(Problem::new(
            format!("{}.redirect", self.name(at)),
            format!("leads to this route again{over}, so that clients go round in circles"),
            "change scheme, host, port or path",
        ))
    }

    fn name(&self, (frontend, route): Place) -> String {
        let listed = self
            .routes(frontend)
            .map(|routes| routes.frontend.routes.len());
        if listed.is_some_and(|listed| route < listed) {
            format!("frontends[{frontend}].routes[{route}]")
        } else {
            format!("frontends[{frontend}].default")
        }
    }

    /// The routes over which a client comes back to this one. `None`: no client is known to come back.
    fn circle(&self, at: Place) -> Option<Vec<Place>> {
        let clients = self.routes(at.0)?.clients(at)?;
        clients.into_iter().find_map(|client| {
            let way = self.way(client)?;
            let (first, rest) = way.split_first()?;
            let again = rest.iter().position(|place| *place == at)?;
            (*first == at).then(|| rest.iter().take(again).copied().collect())
        })
    }

    /// The routes that a client sees one after the other. `None`: it arrives somewhere, or perhaps does.
    fn way(&self, mut client: Client) -> Option<Vec<Place>> {
        let mut way = Vec::new();
        for _ in 0..MOST_REDIRECTS {
            let routes = self.routes(client.frontend)?;
            let (route, prefix_length) = routes.find(&client)?;
            way.push((client.frontend, route));
            let location = routes.location(route, prefix_length, &client)?;
            client = self.next(&client, location)?;
        }
        Some(way)
    }

    /// The client with its next request, if that comes to a frontend of the table.
    fn next(&self, client: &Client, location: Location) -> Option<Client> {
        let Location {
            url,
            port,
            is_moved,
        } = location;
        let Url { scheme, host, path } = Url::parse(&url)?;
        let own = self.routes(client.frontend)?;
        let scheme = scheme.unwrap_or(own.scheme);
        let (host, named) = match host {
            Some(host) => (Host::parse(host)?, true),
            None => (
                Host {
                    name: &client.host,
                    port: client.port,
                },
                false,
            ),
        };
        let port = port.or(host.port);
        let stays = scheme == own.scheme && (!named || port.is_some() && port == client.port);
        let frontend = if stays {
            client.frontend
        } else {
            let port_of_url = port.unwrap_or_else(|| scheme.default_port());
            let found = self.beside(client.frontend, scheme, port_of_url);
            // The usual port, if no frontend of the table has it, leads here by another program.
            let comes_by_another = port.is_none() && client.port.is_none() && scheme == own.scheme;
            found.or_else(|| comes_by_another.then_some(client.frontend))?
        };
        let is_new = named && !host.name.eq_ignore_ascii_case(&client.host);
        if is_new && is_moved && !self.routes(frontend)?.names(host.name) {
            return None;
        }
        if path.len() > LONGEST_PATH {
            return None;
        }
        Some(Client {
            frontend,
            host: host.name.to_ascii_lowercase(),
            port,
            path: path.to_owned(),
        })
    }
}

/// The routes of one frontend.
struct Routes<'t> {
    frontend: &'t Frontend,
    scheme: Scheme,
    /// All routes in the order of the table.
    all: Vec<&'t Route>,
    /// The routes as if all conditions held: a client may be one for whom they do.
    index: Index,
    /// For each route in `index`, its place in `all`.
    places: Vec<usize>,
    /// The addresses at which it listens. Empty where they are many: then no client is followed to another frontend.
    addresses: BTreeSet<IpAddr>,
    /// The hosts that routes name: exactly, and those below which all are meant.
    hosts: BTreeSet<&'t str>,
    under: BTreeSet<&'t str>,
}

impl<'t> Routes<'t> {
    fn of(frontend: &'t Frontend) -> Option<Self> {
        let scheme = match frontend.protocol {
            Protocol::Http => Scheme::Http,
            Protocol::Https => Scheme::Https,
            _ => return None,
        };
        // Of routes that are equal but for their conditions the first one counts: one with conditions.
        let mut listed: Vec<(usize, &Route)> = frontend.routes.iter().enumerate().collect();
        listed.sort_by_key(|(_, route)| route.when.is_none());
        let unconditional: Vec<Route> = listed
            .iter()
            .map(|(_, route)| Route {
                host: route.host.clone(),
                path: route.path.clone(),
                r#match: route.r#match,
                ignore_case: route.ignore_case,
                ..Route::default()
            })
            .collect();
        let mut addresses: BTreeSet<IpAddr> = frontend.bind.iter().flat_map(addresses).collect();
        if addresses.len() > MOST_ADDRESSES {
            addresses.clear();
        }
        let (mut hosts, mut under) = (BTreeSet::new(), BTreeSet::new());
        for pattern in frontend
            .routes
            .iter()
            .filter_map(|route| route.host.as_ref())
        {
            match pattern {
                HostPattern::Exact(name) => hosts.insert(&**name),
                HostPattern::Under(name) => under.insert(&**name),
            };
        }
        Some(Self {
            frontend,
            scheme,
            all: routes_of(frontend).collect(),
            index: Index::new(&unconditional.iter().collect::<Vec<_>>(), None),
            places: listed.iter().map(|(place, _)| *place).collect(),
            addresses,
            hosts,
            under,
        })
    }

    fn binds(&self) -> impl Iterator<Item = &'t Bind> {
        self.frontend.bind.iter()
    }

    fn is_secure(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// Whether a route is for this host, and not for any host.
    fn names(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let mut above = host
            .match_indices('.')
            .filter_map(|(at, _)| host.get(at + 1..));
        self.hosts.contains(&*host) || above.any(|name| self.under.contains(name))
    }

    /// Clients that ask for what this route redirects: for its path, and for one below it.
    fn clients(&self, (frontend, route): Place) -> Option<Vec<Client>> {
        let route = self.all.get(route)?;
        route.redirect.as_ref()?;
        let host = match &route.host {
            Some(HostPattern::Exact(name)) => name.to_string(),
            Some(HostPattern::Under(name)) => format!("any.{name}"),
            None => ANY_HOST.to_owned(),
        };
        let path = route.path();
        let below = format!("{}/{ANY_SEGMENT}", path.trim_end_matches('/'));
        let below = (route.r#match != PathMatch::Exact).then_some(below);
        let paths = std::iter::once(path.to_owned()).chain(below);
        let client = |path| Client {
            frontend,
            host: host.clone(),
            port: None,
            path,
        };
        Some(paths.map(client).collect())
    }

    /// The route of this client, and the number of bytes of the path that it matched.
    fn find(&self, client: &Client) -> Option<(usize, usize)> {
        match self.index.find(&client.request()) {
            Some((route, prefix_length)) => Some((*self.places.get(route)?, prefix_length)),
            None => Some((self.frontend.routes.len(), 0)),
        }
    }

    /// Where this route sends the client. `None`: it does not redirect, or not always.
    fn location(&self, route: usize, prefix_length: usize, client: &Client) -> Option<Location> {
        let route = self.all.get(route)?;
        if route.when.is_some() || route.source_ranges.is_some() {
            return None;
        }
        let redirect = route.redirect.as_deref()?;
        let mut url = Vec::new();
        let request = client.request();
        Redirect::new(redirect).write_location(&mut url, &request, prefix_length, self.scheme)?;
        Some(Location {
            url: String::from_utf8(url).ok()?,
            port: redirect.port.map(std::num::NonZeroU16::get),
            is_moved: redirect.path.is_some()
                || redirect.prefix.is_some()
                || redirect.location.is_some(),
        })
    }
}

/// A client, and what it asks for.
struct Client {
    frontend: usize,
    host: String,
    /// The port of its URL, if it has one. Without one the usual port of the scheme leads to the frontend, perhaps by others.
    port: Option<u16>,
    path: String,
}

impl Client {
    fn request(&self) -> Request<'_> {
        Request {
            method: "GET",
            path: &self.path,
            query: None,
            host: Some(Host {
                name: &self.host,
                port: self.port,
            }),
            version: Version::Http11,
            fields: &[],
        }
    }
}

/// Where a client is sent.
struct Location {
    url: String,
    /// The port that the redirect names, which the URL may leave out.
    port: Option<u16>,
    /// Whether the path becomes another one.
    is_moved: bool,
}

/// The parts of a URL, without its query.
struct Url<'u> {
    scheme: Option<Scheme>,
    /// With its port.
    host: Option<&'u str>,
    path: &'u str,
}

impl<'u> Url<'u> {
    /// `None`: it is none of HTTP, or relative to the path of the request.
    fn parse(url: &'u str) -> Option<Self> {
        let schemes = [Scheme::Http, Scheme::Https];
        let whole = schemes.into_iter().find_map(|scheme| {
            let rest = url.strip_prefix(scheme.name())?.strip_prefix("://")?;
            Some((Some(scheme), rest))
        });
        let whole = whole.or_else(|| Some((None, url.strip_prefix("//")?)));
        let (scheme, host, path) = match whole {
            Some((scheme, rest)) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (host, path) = rest.split_at_checked(end)?;
                (scheme, Some(host), path)
            }
            None if url.starts_with('/') => (None, None, url),
            None => return None,
        };
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let path = if path.is_empty() { "/" } else { path };
        Some(Self { scheme, host, path })
    }
}

/// The addresses that clients of a bind may have connected to: those of `*` are `0.0.0.0` and `[::]`.
fn addresses(bind: &Bind) -> impl Iterator<Item = IpAddr> {
    let (one, other) = match bind {
        Bind::Any { .. } => (
            Ipv4Addr::UNSPECIFIED.into(),
            Some(Ipv6Addr::UNSPECIFIED.into()),
        ),
        Bind::Exact(address) => (address.ip(), None),
    };
    std::iter::once(one).chain(other)
}

const fn any_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Browsers give up after this many redirects.
const MOST_REDIRECTS: usize = 20;
/// A path that grows beyond this many bytes arrives at servers that refuse it.
const LONGEST_PATH: usize = 4096;
/// The most addresses of one frontend by which clients are followed to others.
const MOST_ADDRESSES: usize = 16;
/// A host that no table names.
const ANY_HOST: &str = "any-host.invalid";
const ANY_SEGMENT: &str = "~any";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Format, parse};

    fn routes(of: &[&str]) -> String {
        match of {
            [] => "{status: 404}".into(),
            of => of.join(", "),
        }
    }

    /// A table with an http frontend at these addresses and an https one, each with its routes.
    fn found(http: &str, of_http: &[&str], https: &str, of_https: &[&str]) -> Vec<String> {
        let table = format!(
            "version: 1
frontends:
  - {{name: f, bind: [{http}], protocol: http, routes: [{}]}}
  - {{name: g, bind: [{https}], protocol: https, tls: {{certificates: [{{cert: x}}]}}, routes: [{}]}}
services: [{{name: s, endpoints: []}}]
",
            routes(of_http),
            routes(of_https)
        );
        let table = parse(table.as_bytes(), Format::Yaml).unwrap();
        let found = of_redirects(&table).into_iter();
        found.map(|found| found.at).collect()
    }

    #[test]
    fn a_redirect_that_comes_back_is_told() {
        for (protocol, routes, told) in [
            ("https", &["{redirect: {scheme: https}}"][..], &[0][..]),
            ("http", &["{redirect: {scheme: https}}"], &[]),
            ("http", &["{redirect: {scheme: http}}"], &[0]),
            ("http", &["{redirect: {port: 8080}}"], &[0]),
            ("http", &["{redirect: {port: 8081}}"], &[]),
            ("http", &["{redirect: {port: 80}}"], &[]),
            ("http", &["{host: a.test, redirect: {host: a.test}}"], &[0]),
            ("http", &["{host: a.test, redirect: {host: b.test}}"], &[]),
            (
                "http",
                &["{host: \"*.a.test\", redirect: {host: b.test}}"],
                &[],
            ),
            // A client of b.a.test is sent to b.a.test again.
            (
                "http",
                &["{host: \"*.a.test\", redirect: {host: b.a.test}}"],
                &[0],
            ),
            ("http", &["{redirect: {host: a.test}}"], &[0]),
            // Perhaps another server's.
            ("http", &["{redirect: {host: a.test, path: /x}}"], &[]),
            (
                "http",
                &["{redirect: {host: a.test}}", "{host: a.test, service: s}"],
                &[],
            ),
            ("http", &["{path: /a, redirect: {path: /a}}"], &[0]),
            ("http", &["{path: /a, redirect: {path: /b}}"], &[]),
            ("http", &["{path: /a, redirect: {prefix: /a}}"], &[0]),
            (
                "http",
                &["{path: /r, match: exact, redirect: {location: /z}}"],
                &[],
            ),
            (
                "http",
                &["{path: /r, redirect: {location: \"/r?a=b\"}}"],
                &[0],
            ),
            (
                "http",
                &["{redirect: {location: \"https://a.test/\"}}"],
                &[],
            ),
            ("http", &["{redirect: {location: \"//a.test/\"}}"], &[]),
            (
                "http",
                &[
                    "{redirect: {path: /}}",
                    "{path: /, match: exact, service: s}",
                ],
                &[],
            ),
            (
                "http",
                &["{path: /a, when: {method: [GET]}, redirect: {path: /a}}"],
                &[],
            ),
            // Below its own prefix.
            ("http", &["{path: /a, redirect: {path: /a/b}}"], &[0]),
            ("http", &["{path: /a, redirect: {path: /a/}}"], &[0]),
            (
                "http",
                &["{path: /a, match: exact, redirect: {path: /a/}}"],
                &[],
            ),
            ("http", &["{path: /a, redirect: {prefix: /a/b}}"], &[0]),
            (
                "http",
                &["{path: /a, match: begins, redirect: {path: /ab}}"],
                &[0],
            ),
            ("http", &["{redirect: {prefix: /app}}"], &[0]),
            (
                "http",
                &["{redirect: {prefix: /app}}", "{path: /app, service: s}"],
                &[],
            ),
            (
                "http",
                &[
                    "{path: /a, redirect: {prefix: /a/b}}",
                    "{path: /a/b/b, service: s}",
                ],
                // A client of /a arrives. So does a client of /a/x, which becomes /a/b/x, and then /a/b/b/x.
                &[],
            ),
            (
                "http",
                &[
                    "{path: /a, redirect: {path: /a/b}}",
                    "{path: /a/b, status: 404}",
                ],
                &[],
            ),
            (
                "http",
                &["{path: /A, ignore-case: true, redirect: {path: /a/x}}"],
                &[0],
            ),
            // Over two routes, and over three; what leads into a loop is none.
            (
                "http",
                &[
                    "{path: /a, redirect: {path: /b}}",
                    "{path: /b, redirect: {path: /a}}",
                ],
                &[0, 1],
            ),
            (
                "http",
                &[
                    "{path: /c, redirect: {path: /a}}",
                    "{path: /a, redirect: {path: /b}}",
                    "{path: /b, redirect: {location: /a}}",
                ],
                &[1, 2],
            ),
            (
                "http",
                &[
                    "{host: a.test, redirect: {host: www.a.test}}",
                    "{host: www.a.test, redirect: {host: a.test}}",
                ],
                &[0, 1],
            ),
            // One of them knows who came once.
            (
                "http",
                &[
                    "{path: /a, redirect: {path: /a}}",
                    "{path: /a, when: {headers: [{name: cookie, present: true}]}, service: s}",
                ],
                &[],
            ),
            (
                "http",
                &[
                    "{path: /a, redirect: {path: /b}}",
                    "{path: /b, source-ranges: [10.0.0.0/8], redirect: {path: /a}}",
                ],
                &[],
            ),
        ] {
            let expected = told.iter().map(|at| match protocol {
                "http" => format!("frontends[0].routes[{at}].redirect"),
                _ => format!("frontends[1].routes[{at}].redirect"),
            });
            let found = match protocol {
                "http" => found("\"*:8080\"", routes, "\"*:8443\"", &[]),
                _ => found("\"*:8080\"", &[], "\"*:8443\"", routes),
            };
            assert_eq!(found, expected.collect::<Vec<_>>(), "{routes:?}");
        }
    }

    #[test]
    fn a_loop_over_two_frontends_is_told_where_their_ports_lead_there() {
        let (to_https, to_http) = ("{redirect: {scheme: https}}", "{redirect: {scheme: http}}");
        let both = [
            "frontends[0].routes[0].redirect",
            "frontends[1].routes[0].redirect",
        ];
        let told = found("\"*:80\"", &[to_https], "\"*:443\"", &[to_http]);
        assert_eq!(told, both);
        let told = found("\"*:80\"", &[to_https], "\"*:8443\"", &[to_http]);
        assert_eq!(told, [""; 0], "another program may have port 443");
        let (to_https, to_http) = (
            "{redirect: {scheme: https, port: 8443}}",
            "{redirect: {scheme: http, port: 8080}}",
        );
        let told = found("\"*:8080\"", &[to_https], "\"*:8443\"", &[to_http]);
        assert_eq!(told, both);
        let told = found(
            "\"*:80\"",
            &["{redirect: {scheme: https}}"],
            "\"*:443\"",
            &["{service: s}"],
        );
        assert_eq!(told, [""; 0]);
    }

    #[test]
    fn clients_are_followed_to_frontends_at_their_own_address_only() {
        let (to_https, to_http) = ("{redirect: {scheme: https}}", "{redirect: {scheme: http}}");
        let found = |http: &str, https: &str| found(http, &[to_https], https, &[to_http]).len();
        for (http, https, loops) in [
            ("\"192.0.2.1:80\"", "\"192.0.2.1:443\"", 2),
            ("\"192.0.2.1:80\"", "\"192.0.2.2:443\"", 0),
            ("\"192.0.2.1:80\"", "\"*:443\"", 2),
            ("\"192.0.2.1:80\"", "\"[::]:443\"", 0),
        ] {
            assert_eq!(found(http, https), loops, "{http} {https}");
        }
        // Another frontend has the usual port, to which this one sends.
        let table = "version: 1
frontends:
  - {name: old, bind: [\"*:8080\"], protocol: http, routes: [{redirect: {scheme: http}}]}
  - {name: new, bind: [\"*:80\"], protocol: http, routes: [{status: 404}]}
services: []
";
        let found = of_redirects(&parse(table.as_bytes(), Format::Yaml).unwrap());
        assert_eq!(found.len(), 0, "{found:?}");
    }

    #[test]
    fn many_redirects_are_followed_in_time() {
        let routes = (0..4_000).map(|at| {
            let next = at + 1;
            format!("{{host: h{at}.test, redirect: {{host: h{next}.test, path: /}}}}")
        });
        let frontends = (1..4_000).map(|port| {
            let next = port + 1;
            format!("{{name: f{port}, bind: [\"*:{port}\"], protocol: http, routes: [{{redirect: {{port: {next}}}}}]}}")
        });
        let hosts = routes.collect::<Vec<_>>().join(", ");
        let hosts = format!("{{name: h, bind: [\"*:9000\"], protocol: http, routes: [{hosts}]}}");
        let all: Vec<String> = frontends.chain([hosts]).collect();
        let table = format!(
            "version: 1\nfrontends: [{}]\nservices: []\n",
            all.join(", ")
        );
        let table = parse(table.as_bytes(), Format::Yaml).unwrap();
        let begun = std::time::Instant::now();
        assert_eq!(of_redirects(&table).len(), 0);
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }

    #[test]
    fn the_way_back_and_the_default_are_named() {
        let table = "version: 1
frontends:
  - {name: f, bind: [\"*:80\"], protocol: http, routes: [{path: /b, redirect: {path: /}}], default: {redirect: {path: /b}}}
services: []
";
        let found = of_redirects(&parse(table.as_bytes(), Format::Yaml).unwrap());
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "frontends[0].routes[0].redirect: leads to this route again over frontends[0].default, so that clients go round in circles; \
                 change scheme, host, port or path",
                "frontends[0].default.redirect: leads to this route again over frontends[0].routes[0], so that clients go round in circles; \
                 change scheme, host, port or path",
            ]
        );
    }
}
