//! The renderings themselves, read by whoever reads them today.

use std::collections::BTreeSet;

use ballast::stats::{self, Selection};

use crate::stats::names::FAMILIES;
use crate::stats::readers::{exporter, families, octavia};
use crate::stats::{csv, metrics, text, varied};
use support::{Ballast, ask, get};

#[test]
fn haproxy_exporter_can_read_every_field() {
    let ballast = Ballast::serve(&varied(), 1);
    let (series, failures) = exporter(&csv(&ballast, "/;csv"));
    assert_eq!(failures, 0);
    for (name, value) in [
        ("haproxy_frontend_current_sessions{frontend=open}", 0.0),
        ("haproxy_frontend_limit_sessions{frontend=open}", 77.0),
        ("haproxy_backend_up{backend=pool:a}", 1.0),
        ("haproxy_backend_up{backend=gone}", 0.0),
        ("haproxy_backend_weight{backend=pool:a}", 3.0),
        ("haproxy_server_up{backend=pool:a,server=10.0.0.1:1}", 1.0),
        ("haproxy_server_up{backend=pool:a,server=drained}", 1.0),
        ("haproxy_server_up{backend=pool:a,server=off}", 0.0),
        (
            "haproxy_server_limit_sessions{backend=pool:a,server=10.0.0.1:1}",
            9.0,
        ),
        (
            "haproxy_backend_http_total_time_average_seconds{backend=pool:a}",
            0.0,
        ),
    ] {
        assert_eq!(series.get(name), Some(&value), "{name}");
    }
}

#[test]
fn octavia_can_read_pools_and_members() {
    let ballast = Ballast::serve(&varied(), 1);
    let pools = octavia(&csv(&ballast, "/;csv?scope=pool"));
    let (status, members) = &pools["pool"];
    assert_eq!(status, "UP");
    let members: Vec<(&str, &str)> = members
        .iter()
        .map(|(name, status)| (&**name, &**status))
        .collect();
    assert_eq!(
        members,
        [
            ("10.0.0.1:1", "no check"),
            ("[2001:db8::1]:1", "no check"),
            ("drained", "DRAIN"),
            ("light", "no check"),
            ("off", "MAINT"),
        ]
    );
}

#[test]
fn metrics_are_what_a_strict_scraper_takes() {
    let ballast = Ballast::serve(&varied(), 2);
    let all = families(&metrics(&ballast, "")).unwrap();
    for (family, kind) in FAMILIES {
        assert_eq!(
            all.get(*family).map(|family| &*family.kind),
            Some(*kind),
            "{family}"
        );
    }
    let value = |family: &str, labels: &str| all[family].series[&format!("{family}{{{labels}}}")];
    assert_eq!(value("haproxy_frontend_status", "proxy=open,state=UP"), 1.0);
    assert_eq!(
        value("haproxy_frontend_status", "proxy=idle,state=DOWN"),
        1.0
    );
    assert_eq!(
        value(
            "haproxy_server_status",
            "proxy=pool:a,server=off,state=MAINT"
        ),
        1.0
    );
    assert_eq!(
        value("haproxy_server_status", "proxy=pool:a,server=off,state=UP"),
        0.0
    );
    assert_eq!(
        value(
            "haproxy_server_backup",
            "proxy=pool:a,server=[2001:db8::1]:1"
        ),
        1.0
    );
    assert_eq!(value("haproxy_backend_active_servers", "proxy=pool:a"), 1.0);
    for name in ["agg_server_status", "agg_server_check_status"] {
        let family = format!("haproxy_backend_{name}");
        assert_eq!(value(&family, "proxy=pool:a,state=UP"), 3.0, "{name}");
        let series = all[&family].series.iter();
        let endpoints: f64 = series
            .filter(|(labels, _)| labels.contains("proxy=pool:a,"))
            .map(|(_, count)| count)
            .sum();
        assert_eq!(endpoints, 5.0, "{name}: each endpoint in one state");
    }
    assert_eq!(
        value("haproxy_backend_limit_sessions", "proxy=pool:a"),
        77.0
    );
    assert_eq!(
        value(
            "ballast_connections_refused_total",
            "frontend=open,reason=queue-full,label_app=a\"b\\c,label_who=me"
        ),
        0.0,
        "labels of the table, unescaped again"
    );
    assert!(
        !all.contains_key("haproxy_server_check_status"),
        "nothing is checked"
    );
    assert!(
        !all.contains_key("haproxy_frontend_intercepted_requests_total"),
        "no http"
    );
}

#[test]
fn metrics_can_be_asked_for_in_part() {
    let ballast = Ballast::serve(&varied(), 1);
    let all = families(&metrics(&ballast, "")).unwrap();
    let mut parts = BTreeSet::new();
    for kind in ["global", "frontend", "backend", "server", "listener"] {
        let part = families(&metrics(&ballast, &format!("scope={kind}"))).unwrap();
        parts.extend(part.into_keys());
    }
    assert_eq!(parts, all.keys().cloned().collect());
    assert_eq!(metrics(&ballast, "scope="), "");
    assert!(!metrics(&ballast, "scope=server&no-maint").contains("\"off\""));
    let one = families(&metrics(&ballast, "scope=frontend&scope=OPEN")).unwrap();
    assert_eq!(one["haproxy_frontend_sessions_total"].series.len(), 1);
}

#[test]
fn json_has_haproxys_shape() {
    let ballast = Ballast::serve(&varied(), 1);
    let stats = ballast.running.stats();
    let snapshot = stats.snapshot();
    let text = text(stats::json(snapshot, Selection::default()));
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 4 + 6 + 3);
    let first = &rows[0][0];
    assert_eq!(
        *first,
        serde_json::json!({
            "objType": "Frontend", "proxyId": first["proxyId"], "id": 0,
            "field": {"pos": 0, "name": "pxname"}, "processNum": 1,
            "tags": {"origin": "Key", "nature": "Name", "scope": "Service"},
            "value": {"type": "str", "value": "open"},
        })
    );
    for field in rows.iter().flat_map(|row| row.as_array().unwrap()) {
        let value = &field["value"];
        let is_text = value["type"] == "str";
        assert_eq!(value["value"].is_string(), is_text, "{field}");
        let words = ["origin", "nature", "scope"].map(|word| field["tags"][word].as_str());
        assert!(
            words
                .iter()
                .all(|word| word.is_some_and(|word| word != "Unknown")),
            "{field}"
        );
    }
}

#[test]
fn typed_lines_have_haproxys_shape() {
    let ballast = Ballast::serve(&varied(), 1);
    let stats = ballast.running.stats();
    let typed = text(stats::typed(stats.snapshot(), Selection::default()));
    let iid = typed.split('.').nth(1).unwrap();
    assert!(
        typed.starts_with(&format!("F.{iid}.0.0.pxname.1:KNSV:str:open\n")),
        "{typed}"
    );
    assert!(typed.contains(".17.status.1:SGPV:str:MAINT\n"), "{typed}");
    assert!(typed.contains(".55.lastsess.1:MAPV:s32:-1\n"), "{typed}");
}

#[test]
fn the_pages_data_names_everything() {
    let ballast = Ballast::serve(&varied(), 1);
    ask(ballast.address()).ok();
    let stats = ballast.running.stats();
    let text = text(stats::api(stats.snapshot(), Selection::default()));
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["info"]["generation"], 7);
    assert_eq!(all["info"]["ready"], true);
    assert_eq!(all["frontends"][0]["labels"]["app"], "a\"b\\c");
    assert_eq!(all["frontends"][0]["protocol"], "tcp");
    assert_eq!(all["services"][0]["name"], "pool:a");
    assert_eq!(all["services"][0]["algorithm"], "least-connections");
    assert_eq!(all["services"][0]["limit"], 77);
    for (place, status) in ["UP", "EMPTY", "DOWN"].into_iter().enumerate() {
        assert_eq!(all["services"][place]["status"], status, "{place}");
    }
    let endpoints = all["services"][0]["endpoints"].as_array().unwrap();
    assert_eq!(endpoints.len(), 5);
    assert_eq!(endpoints[0]["address"], "10.0.0.1:1");
    assert_eq!(endpoints[0]["node"], "w1");
    assert_eq!(endpoints[2]["status"], "MAINT");
    let one = stats::api(stats.snapshot(), Selection::of_page("/?scope=gone"));
    let one: serde_json::Value = serde_json::from_str(&crate::stats::text(one)).unwrap();
    assert_eq!(one["frontends"].as_array().unwrap().len(), 0);
    assert_eq!(one["services"].as_array().unwrap().len(), 1);
}

#[test]
fn every_form_is_answered_at_its_address() {
    let ballast = Ballast::serve(&varied(), 1);
    let admin = ballast.running.admin()[0];
    for address in ["/;csv", "/;csv;norefresh", "/haproxy?stats;csv"] {
        let (status, body) = get(admin, address);
        assert_eq!(status, "HTTP/1.1 200 OK", "{address}");
        assert!(body.starts_with("# pxname,"), "{address}: {body}");
        assert_eq!(body.lines().count(), 1 + 4 + 6 + 3, "{address}");
    }
    let (_, body) = get(admin, "/;csv;up;no-maint?scope=gone");
    assert_eq!(body.lines().count(), 1 + 1);
    for address in [
        "/;json?scope=gone",
        "/api/snapshot?scope=gone",
        "/haproxy?stats;json?scope=gone",
    ] {
        let (status, body) = get(admin, address);
        assert_eq!(status, "HTTP/1.1 200 OK", "{address}");
        serde_json::from_str::<serde_json::Value>(&body).expect(address);
    }
    let (_, body) = get(admin, "/;json");
    assert!(
        body.ends_with("]]\n\r\n0\r\n\r\n"),
        "a large one comes in pieces"
    );
    let (_, body) = get(admin, "/metrics?scope=server&scope=pool");
    families(&body).unwrap();
    assert!(body.starts_with("# HELP haproxy_server_"), "{body}");
    let (status, body) = get(admin, "/nowhere");
    assert_eq!(status, "HTTP/1.1 404 Not Found");
    assert!(body.contains("/;csv"), "{body}");
}

#[test]
fn no_piece_of_a_rendering_is_large_and_slow_readers_share_snapshots() {
    let services: Vec<String> = (0..20)
        .map(|service| {
            let endpoints: Vec<String> = (1..=100)
                .map(|port| format!("{{address: \"10.0.{service}.1:{port}\"}}"))
                .collect();
            format!(
                "{{name: s{service}, endpoints: [{}]}}",
                endpoints.join(", ")
            )
        })
        .collect();
    let ballast = Ballast::serve(
        &format!("version: 1\nservices: [{}]\n", services.join(", ")),
        1,
    );
    let stats = ballast.running.stats();
    let snapshot = || stats.snapshot();
    for chunks in [
        stats::csv(snapshot(), Selection::default()),
        stats::json(snapshot(), Selection::default()),
        stats::metrics(snapshot(), Selection::default()),
    ] {
        let sizes: Vec<usize> = chunks.map(|chunk| chunk.len()).collect();
        assert!(sizes.len() > 5, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size < 100_000), "{sizes:?}");
    }
    let held: Vec<_> = (0..50).map(|_| snapshot()).collect();
    let different: BTreeSet<_> = held.iter().map(std::sync::Arc::as_ptr).collect();
    assert!(different.len() <= 8, "{}", different.len());
}
