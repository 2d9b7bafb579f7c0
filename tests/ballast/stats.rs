//! `ballast`: what operators see: CSV, Prometheus and JSON of a running data plane, read as today's tools read them.

mod datagrams;
mod names;
pub(crate) mod readers;
mod renderings;
mod schema;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use ballast::stats::{self, Chunks, Of, Selection};
use readers::{Rows, records, rows};
use socket2::SockRef;
use support::{Ballast, ask, echo_server, named_server, nobody, server, table};

#[test]
fn the_header_is_haproxys_to_the_letter() {
    let csv = csv(&Ballast::serve("version: 1\n", 1), "/;csv");
    assert_eq!(csv, format!("{HEADER}\n"));
}

#[test]
fn every_line_has_119_fields_and_ends_as_the_header_does() {
    let ballast = Ballast::serve(&varied(), 2);
    let csv = csv(&ballast, "/;csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], HEADER);
    assert_eq!(lines.len(), 1 + 4 + 6 + 3);
    for line in &lines {
        assert!(line.ends_with(",-,"), "{line}");
    }
    for record in records(&csv).unwrap() {
        assert_eq!(record.len(), 121, "119 columns, the dash, and nothing");
        assert_eq!(&record[119..], ["-", ""]);
    }
}

#[test]
fn the_words_for_states_are_true() {
    let ballast = Ballast::serve(&varied(), 1);
    let rows = rows(&csv(&ballast, "/;csv"));
    let status = |proxy: &str, server: &str| row(&rows, proxy, server)["status"].clone();
    assert_eq!(status("open", "FRONTEND"), "OPEN");
    assert_eq!(status("idle", "FRONTEND"), "STOP");
    assert_eq!(status("later", "FRONTEND"), "STOP");
    assert_eq!(status("pool:a", "10.0.0.1:1"), "no check");
    assert_eq!(status("pool:a", "drained"), "DRAIN");
    assert_eq!(status("pool:a", "off"), "MAINT");
    assert_eq!(status("pool:a", "[2001:db8::1]:1"), "no check");
    assert_eq!(status("pool:a", "BACKEND"), "UP");
    assert_eq!(status("none", "BACKEND"), "UP", "nobody is meant to serve");
    assert_eq!(status("gone", "BACKEND"), "DOWN", "whoever is there is off");
}

#[test]
fn what_the_table_says_stands_in_its_columns() {
    let ballast = Ballast::serve(&varied(), 1);
    let rows = rows(&csv(&ballast, "/;csv"));
    for (proxy, server, column, value) in [
        ("open", "FRONTEND", "slim", "77"),
        ("open", "FRONTEND", "rate_lim", "55"),
        ("open", "FRONTEND", "mode", "tcp"),
        ("later", "FRONTEND", "mode", "udp"),
        ("idle", "FRONTEND", "rate_lim", "0"),
        ("open", "FRONTEND", "pid", "1"),
        ("open", "FRONTEND", "sid", "0"),
        ("open", "FRONTEND", "econ", ""),
        ("pool:a", "BACKEND", "algo", "leastconn"),
        ("pool:a", "BACKEND", "act", "1"),
        ("pool:a", "BACKEND", "bck", "1"),
        ("pool:a", "BACKEND", "weight", "3"),
        ("pool:a", "BACKEND", "uweight", "3"),
        ("pool:a", "BACKEND", "lastsess", "-1"),
        ("pool:a", "BACKEND", "type", "1"),
        ("pool:a", "BACKEND", "slim", "77"),
        ("gone", "BACKEND", "slim", "9"),
        ("pool:a", "10.0.0.1:1", "weight", "3"),
        ("pool:a", "10.0.0.1:1", "type", "2"),
        ("pool:a", "10.0.0.1:1", "act", "1"),
        ("pool:a", "10.0.0.1:1", "slim", "9"),
        ("pool:a", "10.0.0.1:1", "addr", "10.0.0.1:1"),
        ("pool:a", "10.0.0.1:1", "mode", "tcp"),
        ("pool:a", "10.0.0.1:1", "check_status", ""),
        ("pool:a", "10.0.0.1:1", "chkfail", ""),
        ("pool:a", "[2001:db8::1]:1", "bck", "1"),
        ("pool:a", "[2001:db8::1]:1", "addr", "[2001:db8::1]:1"),
        ("none", "BACKEND", "mode", "udp"),
    ] {
        assert_eq!(
            row(&rows, proxy, server)[column],
            value,
            "{proxy}/{server} {column}"
        );
    }
}

#[test]
fn selections_hide_what_they_are_asked_to_hide() {
    let ballast = Ballast::serve(&varied(), 1);
    let shown = |address: &str| -> BTreeSet<String> {
        let rows = rows(&csv(&ballast, address));
        rows.keys().map(|(px, sv)| format!("{px}/{sv}")).collect()
    };
    let all = shown("/;csv");
    let up = shown("/;csv;up");
    let hidden: Vec<&String> = all.difference(&up).collect();
    assert_eq!(hidden, ["gone/9.9.9.9:9", "pool:a/off"]);
    assert_eq!(shown("/;csv;no-maint"), up);
    let pool = [
        "pool:a/10.0.0.1:1",
        "pool:a/BACKEND",
        "pool:a/[2001:db8::1]:1",
        "pool:a/drained",
        "pool:a/light",
        "pool:a/off",
    ];
    assert_eq!(shown("/;csv?scope=POOL"), pool.map(String::from).into());
    assert_eq!(shown("/?scope=no$such;csv"), all);
    let rows = rows(&csv(&ballast, "/;csv;up"));
    assert_eq!(row(&rows, "pool:a", "BACKEND")["status"], "UP (4/5)");
    assert_eq!(row(&rows, "gone", "BACKEND")["status"], "DOWN (0/1)");
}

#[test]
fn a_service_is_the_sum_of_its_endpoints_even_when_one_leaves() {
    let (a, b, c) = (named_server("a"), echo_server(), named_server("c"));
    let ballast = Ballast::serve(&table("", "", &[a, b, c]), 2);
    for _ in 0..9 {
        let mut client = ballast.connect();
        client.write_all(b"hello").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    let before = rows(&csv(&ballast, "/;csv"));
    for column in SUMMED {
        let servers: u64 = [a, b, c]
            .map(|address| number(&before, "s", &address.to_string(), column))
            .iter()
            .sum();
        assert_eq!(servers, number(&before, "s", "BACKEND", column), "{column}");
    }
    assert_eq!(number(&before, "s", "BACKEND", "stot"), 9);
    assert_eq!(number(&before, "f", "FRONTEND", "stot"), 9);
    assert_eq!(number(&before, "f", "FRONTEND", "bin"), 45);
    assert_eq!(number(&before, "s", "BACKEND", "bin"), 45);
    assert_eq!(number(&before, "s", &b.to_string(), "bout"), 15);
    ballast.swap(&table("", "", &[a]));
    let after = rows(&csv(&ballast, "/;csv"));
    assert!(!after.contains_key(&("s".into(), b.to_string())));
    for column in SUMMED {
        assert_eq!(
            number(&before, "s", "BACKEND", column),
            number(&after, "s", "BACKEND", column),
            "{column}"
        );
    }
}

#[test]
fn numbers_stay_with_their_names() {
    let named = |endpoints: &[&str]| {
        let endpoints: Vec<String> = endpoints
            .iter()
            .map(|address| format!("{{address: \"{address}\"}}"))
            .collect();
        format!(
            "version: 1\nfrontends: [{{name: x, bind: [\"127.0.0.1:0\"], protocol: tcp, service: x}}]\nservices: [{{name: y}}, {{name: x, endpoints: [{}]}}]\n",
            endpoints.join(", ")
        )
    };
    let ballast = Ballast::serve(&named(&["10.0.0.1:1", "10.0.0.2:1"]), 1);
    let before = rows(&csv(&ballast, "/;csv"));
    let id = |rows: &Rows, server: &str, column: &str| number(rows, "x", server, column);
    let iids: BTreeSet<u64> = [
        id(&before, "FRONTEND", "iid"),
        id(&before, "BACKEND", "iid"),
        number(&before, "y", "BACKEND", "iid"),
    ]
    .into();
    assert_eq!(iids.len(), 3, "all different");
    ballast.swap(&named(&["10.0.0.3:1", "10.0.0.2:1"]));
    let after = rows(&csv(&ballast, "/;csv"));
    for (server, column) in [
        ("FRONTEND", "iid"),
        ("BACKEND", "iid"),
        ("10.0.0.2:1", "sid"),
    ] {
        assert_eq!(
            id(&before, server, column),
            id(&after, server, column),
            "{server}"
        );
    }
    let sids: BTreeSet<u64> = [
        id(&before, "10.0.0.1:1", "sid"),
        id(&before, "10.0.0.2:1", "sid"),
        id(&after, "10.0.0.3:1", "sid"),
    ]
    .into();
    assert_eq!(sids.len(), 3, "nobody inherits a number");
}

#[test]
fn errors_are_counted_where_they_belong() {
    let rude = server(|mut client| {
        client.read_exact(&mut [0]).ok();
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).ok();
    });
    let ballast = Ballast::serve(
        &table(
            ", accept-proxy: {from: [\"127.0.0.1/32\"]}",
            "",
            &[nobody(), rude],
        ),
        1,
    );
    let said = |text: &[u8]| {
        let mut client = ballast.connect();
        client.write_all(text).unwrap();
        client.read_to_end(&mut Vec::new()).ok();
    };
    said(b"GET / HTTP/1.0\r\n\r\n");
    drop(ballast.connect());
    for _ in 0..4 {
        said(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n?");
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    let rows = await_rows(&ballast, |rows| {
        number(rows, "f", "FRONTEND", "conn_tot") == 6
            && number(rows, "s", "BACKEND", "srv_abrt") == 4
    });
    let rude = rude.to_string();
    let of = |server: &str, column: &str| number(&rows, "s", server, column);
    assert_eq!(
        number(&rows, "f", "FRONTEND", "ereq"),
        1,
        "a port probe is none"
    );
    assert_eq!(number(&rows, "f", "FRONTEND", "stot"), 4);
    assert_eq!((of(&rude, "srv_abrt"), of(&rude, "eresp")), (4, 4));
    assert_eq!((of(&rude, "stot"), of(&rude, "cli_abrt")), (4, 0));
    assert_eq!(of("BACKEND", "econ"), of("BACKEND", "wredis"));
    assert_eq!(of("BACKEND", "connect"), 4 + of("BACKEND", "econ"));
    assert!(of("BACKEND", "econ") >= 1);
    assert_eq!(of("BACKEND", "eresp"), 4);
}

#[test]
fn who_finds_nobody_is_an_error_of_the_service_alone() {
    let draining = format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s}}]\nservices: [{{name: s, endpoints: [{{address: \"{}\", state: draining}}]}}]\n",
        nobody()
    );
    let ballast = Ballast::serve(&draining, 1);
    assert!(ask(ballast.address()).is_err());
    let rows = await_rows(&ballast, |rows| number(rows, "s", "BACKEND", "econ") == 1);
    assert_eq!(number(&rows, "s", "BACKEND", "stot"), 1);
    assert_eq!(number(&rows, "s", "BACKEND", "connect"), 0);
    assert_eq!(row(&rows, "s", "BACKEND")["status"], "DOWN");
    let ballast = Ballast::serve(&table("", "", &[nobody()]), 1);
    assert!(ask(ballast.address()).is_err());
    let rows = await_rows(&ballast, |rows| number(rows, "s", "BACKEND", "econ") == 4);
    assert_eq!(number(&rows, "s", "BACKEND", "connect"), 4);
    assert_eq!(number(&rows, "s", "BACKEND", "wretr"), 3);
    assert_eq!(
        number(&rows, "s", "BACKEND", "wredis"),
        0,
        "there was nobody else"
    );
}

#[test]
fn an_endpoint_that_is_kept_out_is_down() {
    let dead = nobody();
    let ballast = Ballast::serve(
        &table(
            "",
            ", ejection: {failures: 1, first: 10m, longest: 10m}",
            &[dead, named_server("b")],
        ),
        1,
    );
    for _ in 0..2 {
        ask(ballast.address()).unwrap();
    }
    let rows = await_rows(&ballast, |rows| {
        row(rows, "s", &dead.to_string())["status"] == "DOWN"
    });
    assert_eq!(row(&rows, "s", "BACKEND")["status"], "UP");
    assert_eq!(number(&rows, "s", "BACKEND", "act"), 1);
}

#[test]
fn a_denied_client_is_one_denied_connection() {
    let table = table(", source-ranges: [\"192.0.2.0/24\"]", "", &[echo_server()]);
    let ballast = Ballast::serve(&table, 1);
    assert!(ask(ballast.address()).is_err());
    let rows = await_rows(&ballast, |rows| number(rows, "f", "FRONTEND", "dcon") == 1);
    assert_eq!(number(&rows, "f", "FRONTEND", "conn_tot"), 1);
    assert_eq!(number(&rows, "f", "FRONTEND", "stot"), 0);
}

#[test]
fn peaks_rates_and_history_tell_what_happened() {
    let ballast = Ballast::serve(&table("", "", &[echo_server(), echo_server()]), 2);
    let mut clients: Vec<_> = (0..6).map(|_| ballast.connect()).collect();
    for client in &mut clients {
        client.write_all(b"12345").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
    }
    let rows = rows(&csv(&ballast, "/;csv"));
    assert_eq!(number(&rows, "s", "BACKEND", "scur"), 6);
    assert_eq!(number(&rows, "f", "FRONTEND", "scur"), 6);
    drop(clients);
    ballast.until(|ballast| ballast.in_flight() == 0);
    let rows = await_rows(&ballast, |rows| {
        number(rows, "f", "FRONTEND", "rate_max") > 0
            && number(rows, "s", "BACKEND", "rate_max") > 0
    });
    assert_eq!(number(&rows, "s", "BACKEND", "smax"), 6);
    assert_eq!(number(&rows, "f", "FRONTEND", "smax"), 6);
    assert!(number(&rows, "f", "FRONTEND", "conn_rate_max") > 0);
    let stats = ballast.running.stats();
    let moved = |history: Vec<stats::Second>| {
        let sum = |of: fn(&stats::Second) -> u64| history.iter().map(of).sum::<u64>();
        assert_eq!(history.len(), 600);
        // A second that came late stands for up to one and a half: two thirds of all are sure.
        (sum(|second| second.sessions) >= 4) && sum(|second| second.bytes_in) >= 20
    };
    ballast.until(|_| moved(stats.history(Of::Frontend("f")).unwrap()));
    ballast.until(|_| moved(stats.history(Of::Service("s")).unwrap()));
    assert!(stats.history(Of::Service("f")).is_none());
}

#[test]
fn a_frontend_that_leaves_and_comes_back_counts_once_for_the_process() {
    let endpoint = echo_server();
    let with = table("", "", &[endpoint]);
    let without = |generation: u8| {
        format!(
            "version: 1\ngeneration: {generation}\nservices: [{{name: s, endpoints: [{{address: \"{endpoint}\"}}]}}]\n"
        )
    };
    let ballast = Ballast::serve(&with, 2);
    let counted = || {
        let stats = ballast.running.stats();
        let process = &stats.snapshot().process;
        (process.sessions, process.bytes_out)
    };
    let echo = |client: &mut std::net::TcpStream| {
        client.write_all(b"12345").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
    };
    let mut first = ballast.connect();
    echo(&mut first);
    ballast.until(|_| counted().0 == 1);
    let state = {
        let plan = ballast.running.shared().live.plan();
        Arc::downgrade(plan.frontends()[0].state())
    };
    ballast.swap(&without(1));
    echo(&mut first);
    assert_eq!(counted().0, 1);
    ballast.swap(&with);
    let mut second = ballast.connect();
    echo(&mut second);
    assert_eq!(counted().0, 2);
    drop((first, second));
    ballast.until(|ballast| ballast.in_flight() == 0);
    ballast.until(|_| counted() == (2, 15));
    // One that nobody can come back to is forgotten, but not what it counted.
    ballast.swap(&without(2));
    ballast.swap(&without(3));
    ballast.until(|_| state.upgrade().is_none());
    assert_eq!(counted(), (2, 15));
}

/// Every state and protocol that there is.
fn varied() -> String {
    r#"
version: 1
generation: 7
frontends:
  - {name: open, bind: ["127.0.0.1:0"], protocol: tcp, service: "pool:a", max-connections: 77, max-connection-rate: 55, labels: {app: 'a"b\c', who: me}}
  - {name: idle, bind: ["127.0.0.2:0"], protocol: tcp, service: gone}
  - {name: later, bind: ["127.0.0.3:0"], protocol: udp, service: none}
  - {name: last, bind: ["127.0.0.4:0"], protocol: tcp, service: gone}
services:
  - name: "pool:a"
    algorithm: least-connections
    endpoints:
      - {address: "10.0.0.1:1", weight: 3, max-connections: 9, node: w1}
      - {name: drained, address: "10.0.0.2:1", state: draining}
      - {name: "off", address: "10.0.0.3:1", state: disabled}
      - {address: "[2001:db8::1]:1", state: backup}
      - {name: light, address: "10.0.0.4:1", weight: 0}
  - {name: none}
  - {name: gone, endpoints: [{address: "9.9.9.9:9", state: disabled, max-connections: 9}]}
"#
    .into()
}

fn csv(ballast: &Ballast, address: &str) -> String {
    let stats = ballast.running.stats();
    let snapshot = stats.snapshot();
    text(stats::csv(snapshot, Selection::of_page(address)))
}

fn metrics(ballast: &Ballast, query: &str) -> String {
    let stats = ballast.running.stats();
    let snapshot = stats.snapshot();
    text(stats::metrics(snapshot, Selection::of_metrics(query)))
}

fn text(chunks: Chunks) -> String {
    String::from_utf8(chunks.flatten().collect()).expect("text")
}

fn await_rows(ballast: &Ballast, come: impl Fn(&Rows) -> bool) -> Rows {
    let now = |ballast: &Ballast| rows(&csv(ballast, "/;csv"));
    ballast.until(|ballast| come(&now(ballast)));
    now(ballast)
}

fn row<'a>(
    rows: &'a Rows,
    proxy: &str,
    server: &str,
) -> &'a std::collections::BTreeMap<String, String> {
    rows.get(&(proxy.to_owned(), server.to_owned()))
        .unwrap_or_else(|| panic!("no {proxy}/{server}"))
}

fn number(rows: &Rows, proxy: &str, server: &str, column: &str) -> u64 {
    row(rows, proxy, server)[column].parse().expect(column)
}

/// Columns of a service that are the sum over its endpoints.
const SUMMED: [&str; 14] = [
    "scur", "stot", "bin", "bout", "econ", "eresp", "wretr", "wredis", "lbtot", "cli_abrt",
    "srv_abrt", "connect", "reqbin", "resbout",
];

const HEADER: &str = "# pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,wretr,wredis,status,weight,act,bck,chkfail,chkdown,lastchg,downtime,qlimit,pid,iid,sid,throttle,lbtot,tracked,type,rate,rate_lim,rate_max,check_status,check_code,check_duration,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,hrsp_other,hanafail,req_rate,req_rate_max,req_tot,cli_abrt,srv_abrt,comp_in,comp_out,comp_byp,comp_rsp,lastsess,last_chk,last_agt,qtime,ctime,rtime,ttime,agent_status,agent_code,agent_duration,check_desc,agent_desc,check_rise,check_fall,check_health,agent_rise,agent_fall,agent_health,addr,cookie,mode,algo,conn_rate,conn_rate_max,conn_tot,intercepted,dcon,dses,wrew,connect,reuse,cache_lookups,cache_hits,srv_icur,src_ilim,qtime_max,ctime_max,rtime_max,ttime_max,eint,idle_conn_cur,safe_conn_cur,used_conn_cur,need_conn_est,uweight,agg_server_status,agg_server_check_status,agg_check_status,srid,sess_other,h1sess,h2sess,h3sess,req_other,h1req,h2req,h3req,proto,priv_idle_cur,reqbin,reqbout,resbin,resbout,cache_hint_hits,-,";
