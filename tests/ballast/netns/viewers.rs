//! Who may see the page: by `stats.source-ranges`, by an auth file, and by neither.

use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ballast::config::Admin;

use crate::admin::client::{ANNA, Answer, Request, USERS, connect};
use support::Ballast;
use support::crowd::serve_as;
use support::netns::Namespace;
use support::skip::skip;

/// A namespace that holds addresses of the internet: who asks one of them comes from it, too.
fn edge() -> Option<Namespace> {
    let edge = match Namespace::make() {
        Ok(edge) => edge,
        Err(why) => {
            skip(&format!("no network namespaces: {why}"));
            return None;
        }
    };
    for (family, address) in [
        ("-4", format!("{PUBLIC}/24")),
        ("-6", format!("{PUBLIC6}/64 nodad")),
    ] {
        edge.ip(&format!("{family} address add {address} dev lo"));
    }
    edge.ip("address add 10.9.9.9/32 dev lo");
    edge.ip("address add 100.64.9.9/32 dev lo");
    Some(edge)
}

fn ask(host: impl Into<IpAddr>, path: &str, person: Option<(&str, &str)>) -> Answer {
    let stream = connect(SocketAddr::from((host.into(), PORT))).expect("somebody listens");
    Request::new("GET", path).credentials(person).over(stream)
}

fn table(ranges: &str) -> String {
    format!("version: 1\nstats: {{bind: [\"*:{PORT}\"]{ranges}}}\n")
}

#[test]
fn without_ranges_the_internet_sees_health_and_nothing_else() {
    let Some(edge) = edge() else {
        return;
    };
    edge.within(|| {
        let _ballast =
            Ballast::serve_from_table(&table(&format!(", healthz: [\"{PUBLIC}:1937\"]")));
        for path in LOOKS {
            for stranger in [IpAddr::from(PUBLIC), IpAddr::from(PUBLIC6)] {
                let got = ask(stranger, path, None);
                assert_eq!(got.status, 403, "{path} for {stranger}");
                let begins = format!("{stranger} may not see this: ");
                assert!(got.body.starts_with(&begins), "{}", got.body);
                for remedy in ["stats.source-ranges", "--stats-auth-file"] {
                    assert!(got.body.contains(remedy), "{}", got.body);
                }
            }
            if path == "/events" {
                continue;
            }
            for own in [
                IpAddr::from([127, 0, 0, 1]),
                IpAddr::from([10, 9, 9, 9]),
                IpAddr::from([100, 64, 9, 9]),
                IpAddr::from(Ipv6Addr::LOCALHOST),
            ] {
                assert_eq!(ask(own, path, None).status, 200, "{path} for {own}");
            }
        }
        for path in ["/healthz", "/readyz"] {
            assert_eq!(ask(PUBLIC, path, None).status, 200, "{path}");
            assert_eq!(ask(PUBLIC6, path, None).status, 200, "{path}");
        }
        let health = connect(SocketAddr::from((PUBLIC, 1937))).expect("somebody listens");
        assert_eq!(Request::new("GET", "/healthz").over(health).status, 200);
        let post = connect(SocketAddr::from((PUBLIC, PORT))).expect("somebody listens");
        assert_eq!(Request::bare_form("/", "s=x").over(post).status, 403);
    });
}

#[test]
fn ranges_say_exactly_who_sees_the_page_and_follow_the_table() {
    let Some(edge) = edge() else {
        return;
    };
    edge.within(|| {
        let ballast = Ballast::serve_from_table(&table(", source-ranges: [\"198.51.100.0/24\"]"));
        let statuses = || {
            [
                IpAddr::from(PUBLIC),
                IpAddr::from(PUBLIC6),
                IpAddr::from([127, 0, 0, 1]),
                IpAddr::from([10, 9, 9, 9]),
            ]
            .map(|host| ask(host, "/metrics", None).status)
        };
        assert_eq!(statuses(), [200, 403, 403, 403]);
        let why = ask([127, 0, 0, 1], "/", None).body;
        assert!(
            why.contains("in none of the table's stats.source-ranges"),
            "{why}"
        );

        // Who listens to events when the right to look goes hears no more of them.
        let mut events = connect(SocketAddr::from((PUBLIC, PORT))).expect("somebody listens");
        Request::new("GET", "/events").write(&mut events);
        let mut begin = [0; 15];
        events.read_exact(&mut begin).expect("events");
        assert_eq!(begin, *b"HTTP/1.1 200 OK");
        ballast.swap(&table(
            ", source-ranges: [\"10.0.0.0/8\", \"2001:db8::/32\"]",
        ));
        ballast.until(|_| statuses() == [403, 200, 403, 200]);
        events.read_to_end(&mut Vec::new()).expect("an end");
        ballast.swap(&table(""));
        ballast.until(|_| statuses() == [403, 403, 200, 200]);
    });
}

#[test]
fn an_auth_file_guards_the_page_for_everybody_and_ranges_hold_beside_it() {
    let Some(edge) = edge() else {
        return;
    };
    edge.within(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let users = folder.path().join("users");
        fs::write(&users, USERS).expect("a file");
        let ballast = serve_as(&table(""), 1, |config| {
            config.admin = Admin::FromTable;
            config.stats_auth_file = Some(users.clone());
        });
        assert_eq!(ask(PUBLIC, "/", None).status, 401);
        assert_eq!(ask(PUBLIC, "/", Some(("anna", "wrong"))).status, 401);
        assert_eq!(ask(PUBLIC, "/", Some(ANNA)).status, 200);
        assert_eq!(ask(PUBLIC, "/healthz", None).status, 200);

        ballast.swap(&table(", source-ranges: [\"10.0.0.0/8\"]"));
        ballast.until(|_| ask(PUBLIC, "/", Some(ANNA)).status == 403);
        assert_eq!(ask(PUBLIC, "/", None).status, 403);
        assert_eq!(ask([10, 9, 9, 9], "/", None).status, 401);
        assert_eq!(ask([10, 9, 9, 9], "/", Some(ANNA)).status, 200);
        assert_eq!(ask(PUBLIC, "/readyz", None).status, 200);
    });
}

const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const PUBLIC6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const PORT: u16 = 1936;
/// Everything but health.
const LOOKS: [&str; 8] = [
    "/",
    "/;csv",
    "/haproxy?stats;csv",
    "/;json",
    "/;json-schema",
    "/metrics",
    "/api/snapshot",
    "/events",
];
