//! Random rules: the compiled routes of the table send every request where haproxy's rules do.

use std::net::IpAddr;

use ballast_core::http::{Host, Request, Version};
use ballast_core::plan::Serves;
use ballast_core::route::Target;

use super::{CompileContext, Format, HostAddresses, Moment, Plan, Rng, compile, import, parse};

#[test]
fn routes_send_requests_where_rules_send_them() {
    for seed in 1..300_u64 {
        let mut rng = Rng::new(seed);
        let rules: Vec<Rule> = (0..1 + below(&mut rng, 7))
            .map(|_| Rule::any(&mut rng))
            .collect();
        let text = configuration(&rules);
        let imported = import(&text);
        let table = parse(imported.table.as_bytes(), Format::Yaml).expect("a good table");
        // Clients that are denied everywhere are so as they connect.
        let connecting = table
            .frontends
            .first()
            .and_then(|frontend| frontend.source_ranges.clone());
        let host = HostAddresses::default();
        let mut context = CompileContext {
            now: Moment(0),
            workers: 1,
            ipv6: false,
            host: &host,
            rng: &mut rng,
        };
        let plan = compile(table, &Plan::default(), &mut context);
        let frontend = plan.frontends().first().expect("a frontend");
        let Serves::Http(http) = frontend.serves() else {
            panic!("{text}");
        };
        for host in HOSTS {
            for path in PATHS {
                for client in CLIENTS {
                    let request = Request {
                        method: "GET",
                        path,
                        query: None,
                        host: Host::parse(host),
                        version: Version::Http11,
                        fields: &[],
                    };
                    let route = &http.routes().find(&request).route;
                    let address: IpAddr = client.parse().expect("an address");
                    let connects = connecting
                        .as_ref()
                        .is_none_or(|ranges| ranges.iter().any(|range| range.contains(&address)));
                    let admitted = connects
                        && route
                            .sources
                            .as_ref()
                            .is_none_or(|ranges| ranges.contains(address));
                    let went = match &route.target {
                        Target::Forward(forward) if admitted => {
                            let service = forward.backends.services().next();
                            service
                                .map(|one| one.spec().name.to_string())
                                .unwrap_or_default()
                        }
                        Target::Answer(answer) if admitted => answer.status.to_string(),
                        Target::Redirect(_) if admitted => "redirect".into(),
                        _ => "403".into(),
                    };
                    let expected = expected(&rules, host, path, client);
                    assert_eq!(
                        went, expected,
                        "seed {seed}: {client} {host}{path}\n{text}\n{}",
                        imported.table
                    );
                }
            }
        }
    }
}

/// One line of the frontend.
struct Rule {
    action: &'static str,
    host: Option<(bool, &'static str)>,
    path: Option<(bool, &'static str, &'static str)>,
    client: Option<(bool, &'static str)>,
}

impl Rule {
    fn any(rng: &mut Rng) -> Self {
        let action = *of(
            rng,
            &[
                "use_backend a",
                "use_backend b",
                "use_backend c",
                "http-request deny",
                "http-request redirect scheme https",
                "http-request allow",
            ],
        );
        let some = |rng: &mut Rng, share: u64| below(rng, 10) < share;
        let negated = |rng: &mut Rng| below(rng, 4) == 0;
        Self {
            action,
            host: some(rng, 5).then(|| {
                (
                    negated(rng),
                    *of(rng, &["a.example", "b.example", ".example", ".b.example"]),
                )
            }),
            path: some(rng, 6).then(|| {
                (
                    negated(rng),
                    *of(rng, &["path_beg", "path"]),
                    *of(rng, &["/", "/a", "/a/b", "/ab", "/c"]),
                )
            }),
            // A route does not choose by the client's address, and `allow` is no choice.
            client: (action == "http-request deny" && some(rng, 6)).then(|| {
                (
                    negated(rng),
                    *of(rng, &["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"]),
                )
            }),
        }
    }

    fn condition(&self) -> String {
        let sign = |negated: bool| if negated { "!" } else { "" };
        let mut words = Vec::new();
        if let Some((negated, host)) = self.host {
            let criterion = if host.starts_with('.') {
                "hdr_end(host)"
            } else {
                "hdr(host)"
            };
            words.push(format!("{}{{ {criterion} -i {host} }}", sign(negated)));
        }
        if let Some((negated, criterion, path)) = self.path {
            words.push(format!("{}{{ {criterion} {path} }}", sign(negated)));
        }
        if let Some((negated, client)) = self.client {
            words.push(format!("{}{{ src {client} }}", sign(negated)));
        }
        match words.is_empty() {
            true => String::new(),
            false => format!(" if {}", words.join(" ")),
        }
    }

    fn fits(&self, host: &str, path: &str, client: &str) -> bool {
        let host_fits = self.host.is_none_or(|(negated, pattern)| {
            negated
                != match pattern.starts_with('.') {
                    true => host.ends_with(pattern),
                    false => host == pattern,
                }
        });
        let path_fits = self.path.is_none_or(|(negated, criterion, pattern)| {
            negated
                != match criterion {
                    "path_beg" => path.starts_with(pattern),
                    _ => path == pattern,
                }
        });
        let client_fits = self.client.is_none_or(|(negated, net)| {
            let net: ipnet::IpNet = net.parse().expect("a net");
            negated != net.contains(&client.parse::<IpAddr>().expect("an address"))
        });
        host_fits && path_fits && client_fits
    }
}

/// haproxy's way: `http-request` rules in order, then `use_backend` ones, then the default.
fn expected(rules: &[Rule], host: &str, path: &str, client: &str) -> String {
    let fitting = || rules.iter().filter(|rule| rule.fits(host, path, client));
    let first = fitting().find(|rule| rule.action.starts_with("http-request"));
    match first.map(|rule| rule.action) {
        Some("http-request deny") => return "403".into(),
        Some("http-request redirect scheme https") => return "redirect".into(),
        _ => {}
    }
    let backend = fitting().find_map(|rule| rule.action.strip_prefix("use_backend "));
    backend.unwrap_or("default").into()
}

fn configuration(rules: &[Rule]) -> String {
    let mut text = String::from("defaults\n mode http\nfrontend f\n bind 127.0.0.1:80\n");
    for rule in rules {
        text.push_str(&format!(" {}{}\n", rule.action, rule.condition()));
    }
    text.push_str(" default_backend default\n");
    for (index, name) in ["a", "b", "c", "default"].iter().enumerate() {
        text.push_str(&format!(
            "backend {name}\n server s 10.0.0.{}:80\n",
            index + 1
        ));
    }
    text
}

fn below(rng: &mut Rng, limit: u64) -> u64 {
    rng.below(limit)
}

fn of<'a, T>(rng: &mut Rng, items: &'a [T]) -> &'a T {
    let length = u64::try_from(items.len()).expect("few");
    let index = usize::try_from(below(rng, length)).expect("small");
    &items[index]
}

const HOSTS: [&str; 5] = [
    "a.example",
    "b.example",
    "x.b.example",
    "c.example",
    "other.test",
];
const PATHS: [&str; 9] = [
    "/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/abc", "/c", "/d",
];
const CLIENTS: [&str; 4] = ["10.0.0.1", "10.1.0.1", "192.0.2.1", "2001:db8::1"];
