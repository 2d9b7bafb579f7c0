//! Which clients are denied: by the route of the path as it came, and by that of what the path means.

use std::net::IpAddr;

use super::*;

const FRIEND: &str = "192.0.2.1";
const STRANGER: &str = "198.51.100.1";

/// Whether a client gets through, and by which route: its status; or that of the route that denies it.
fn decided(routes: &HttpRoutes, request: &Request<'_>, client: &str) -> Result<u16, u16> {
    let client: IpAddr = client.parse().unwrap();
    let status = |route: &Route| match &route.target {
        Target::Answer(answer) => answer.status,
        _ => 0,
    };
    match routes.decide(request, client) {
        Decision::To(found) => Ok(status(found.route)),
        Decision::Denied(by) => Err(status(by)),
    }
}

fn of(routes: &str) -> HttpRoutes {
    compiled(&frontend(&format!("protocol: http, {routes}")))
}

#[test]
fn no_other_spelling_of_a_path_gets_around_its_source_ranges() {
    let routes = of("routes: [
        {path: /admin, source-ranges: [192.0.2.0/24], status: 201},
        {path: /x, status: 202},
        {status: 200},
    ]");
    for path in [
        "/admin",
        "/admin/",
        "/admin/x",
        "//admin",
        "///admin",
        "/./admin",
        "/././admin",
        "/../admin",
        "/../../admin",
        "/x/../admin",
        "/x/y/../../admin",
        "/x/..//admin",
        "/x//../admin",
        "/x//..//../admin",
        "/%61dmin",
        "/%61%64%6d%69%6e",
        "/%61%64%6D%69%6E/x",
        "/adm%69n",
        "/%2e/admin",
        "/%2e%2e/admin",
        "/x/%2e%2e/admin",
        "/x/.%2E/admin",
        "/x/%2e./%61dmin",
        "//x//../..//admin//y",
        "/admin/.",
        "/admin/x/..",
        "/admin//",
        "/./admin/%7euser",
    ] {
        let request = get("a.org", path);
        assert!(decided(&routes, &request, STRANGER).is_err(), "{path}");
        assert!(decided(&routes, &request, FRIEND).is_ok(), "{path}");
    }
    for (path, status) in [
        ("/", 200),
        ("/ADMIN", 200),
        ("/admin%2f", 200),
        ("/admin%2Fx", 200),
        ("/x/..%2fadmin", 202),
        ("/%2fadmin", 200),
        ("/%2561dmin", 200),
        ("/%2", 200),
        ("/%zzadmin", 200),
        ("/%", 200),
        ("/x%", 200),
        ("/admin.", 200),
        ("/admin..", 200),
        ("/.admin", 200),
        ("/..admin", 200),
        ("/...", 200),
        ("/.../admin", 200),
        ("/administrator", 200),
        ("/x/admin", 202),
        ("/caf%C3%A9", 200),
        ("/x/../y", 202),
        ("*", 200),
    ] {
        let request = get("a.org", path);
        assert_eq!(decided(&routes, &request, STRANGER), Ok(status), "{path}");
    }
}

#[test]
fn a_client_must_be_welcome_at_both_routes() {
    // Both routes are guarded, each for others.
    let routes = of("routes: [
        {path: /admin, source-ranges: [192.0.2.0/24], status: 201},
        {path: //admin, source-ranges: [198.51.100.0/24], status: 202},
        {path: /open, status: 203},
    ], default: {source-ranges: [192.0.2.0/24, 198.51.100.0/24], status: 204}");
    let ask = |path, client| decided(&routes, &get("a.org", path), client);
    assert_eq!(ask("/admin", FRIEND), Ok(201));
    assert_eq!(ask("/admin", STRANGER), Err(201));
    assert_eq!(ask("//admin", FRIEND), Err(202));
    assert_eq!(ask("//admin", STRANGER), Err(201));
    assert_eq!(ask("//open", FRIEND), Ok(204));
    assert_eq!(ask("//open", "203.0.113.1"), Err(204));
    // What leads to the default once it is normal is guarded as well.
    assert_eq!(ask("/open/../x", "203.0.113.1"), Err(204));
    assert_eq!(ask("/open/x", "203.0.113.1"), Ok(203));
}

#[test]
fn case_hosts_and_conditions_are_those_of_the_request() {
    let routes = of("routes: [
        {path: /admin, ignore-case: true, source-ranges: [192.0.2.0/24], status: 201},
        {host: b.org, path: /admin, status: 202},
        {path: /put, when: {method: [PUT]}, source-ranges: [192.0.2.0/24], status: 203},
        {status: 200},
    ]");
    let ask = |host, path| decided(&routes, &get(host, path), STRANGER);
    assert_eq!(ask("a.org", "/ADMIN"), Err(201));
    assert_eq!(ask("a.org", "//%41dMiN"), Err(201));
    assert_eq!(ask("b.org", "//admin"), Ok(200));
    assert_eq!(ask("b.org", "//ADMIN"), Err(201));
    assert_eq!(ask("a.org", "//put"), Ok(200));
    let put = Request {
        method: "PUT",
        ..get("a.org", "//put")
    };
    assert_eq!(decided(&routes, &put, STRANGER), Err(203));
    assert_eq!(decided(&routes, &put, FRIEND), Ok(200));
}

#[test]
fn slashes_may_be_merged_first_or_last() {
    let routes = of("routes: [
        {path: /a/admin, source-ranges: [192.0.2.0/24], status: 201},
        {status: 200},
    ]");
    let ask = |path| decided(&routes, &get("a.org", path), STRANGER);
    // To an endpoint that keeps empty segments this is /a/admin.
    assert_eq!(ask("/a//../admin"), Err(201));
    assert_eq!(ask("/a/b//../admin"), Err(201));
    assert_eq!(ask("/a/b/../admin"), Err(201));
    assert_eq!(ask("/a/../admin"), Ok(200));
}
