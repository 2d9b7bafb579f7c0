//! `ballast`: what operators see of HTTP: access lines in haproxy's `httplog` form and as JSON, counters in CSV and metrics, `show
//! sess`.

mod httplog;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::stats::readers::rows;
use ballast::stats::{self, Selection};
use httplog::Line;
use support::peers::{End, hear};
use support::raw::{self, DATA, END_HEADERS, END_STREAM, HEADERS, encode, frame};
use support::{Ballast, connect, nobody, server};

/// A data plane whose access lines go to a syslog server of the test's own.
struct Logged {
    ballast: Ballast,
    syslog: UdpSocket,
}

impl Logged {
    fn serve(form: &str, frontend: &str, services: &str) -> Self {
        let syslog = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        syslog
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("an option");
        let to = syslog.local_addr().expect("an address");
        let table = format!(
            "version: 1\nlog: {{access: {form}, to: [\"udp:{to}\"]}}\nfrontends:\n  - {{name: web, bind: [\"127.0.0.1:0\"], protocol: http, {frontend}}}\nservices:\n{services}"
        );
        Self {
            ballast: Ballast::serve(&table, 1),
            syslog,
        }
    }

    /// The next line, without its syslog header.
    fn text(&self) -> String {
        let mut bytes = [0; 64 << 10];
        let read = self.syslog.recv(&mut bytes).expect("a line");
        let text = String::from_utf8(bytes[..read].to_vec()).expect("text");
        let (header, line) = text.split_once("]: ").expect("a header");
        assert!(header.starts_with("<134>"), "{header}");
        line.to_owned()
    }

    fn line(&self) -> Line {
        let text = self.text();
        Line::parse(&text).unwrap_or_else(|| panic!("not a line of httplog: {text}"))
    }

    fn connect(&self) -> TcpStream {
        self.ballast.connect()
    }

    /// Sends this on a connection of its own, and returns all that comes back.
    fn ask(&self, request: &str) -> String {
        let mut client = self.connect();
        client.write_all(request.as_bytes()).expect("a request");
        let mut answer = Vec::new();
        // A reset is an answer too.
        client.read_to_end(&mut answer).ok();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: shop.example.com\r\nConnection: close\r\n\r\n"
        ))
    }

    fn number(&self, proxy: &str, row: &str, column: &str) -> u64 {
        let text = self.cell(proxy, row, column);
        text.parse()
            .unwrap_or_else(|_| panic!("{proxy}/{row} {column}: {text:?}"))
    }

    fn cell(&self, proxy: &str, row: &str, column: &str) -> String {
        let stats = self.ballast.running.stats();
        let chunks = stats::csv(stats.snapshot(), Selection::of_page("/;csv"));
        let csv = String::from_utf8(chunks.flatten().collect()).expect("text");
        rows(&csv)[&(proxy.to_owned(), row.to_owned())][column].clone()
    }
}

/// Reads one head of a request, and returns it.
fn head(client: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// An endpoint that answers each request with this.
fn endpoint(answer: &'static str) -> SocketAddr {
    server(
        move |mut client| {
            while head(&mut client).is_some() && client.write_all(answer.as_bytes()).is_ok() {}
        },
    )
}

/// An endpoint of HTTP/2 that sends more than its head states, with the head.
fn broken_frames() -> SocketAddr {
    let endpoint = raw::Endpoint::scripted(&[], |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            let fields = encode(&[(":status", "200"), ("content-length", "3")]);
            let head = frame(HEADERS, END_HEADERS, heard.stream, &fields);
            let body = frame(DATA, END_STREAM, heard.stream, b"hello");
            raw.send(&[head, body].concat());
        }
    });
    endpoint.address
}

const BROKEN_CHUNK: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn service(name: &str, more: &str, address: SocketAddr) -> String {
    format!("  - {{name: {name}, endpoints: [{{name: one, address: \"{address}\"}}]{more}}}\n")
}

#[test]
fn bytes_of_a_response_count_while_it_goes_on_and_when_it_is_cut() {
    let half = server(|mut client| {
        head(&mut client);
        let begin = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n{}",
            "x".repeat(1000)
        );
        client.write_all(begin.as_bytes()).ok();
        // The rest does not come.
        client.read_exact(&mut [0]).ok();
    });
    let logged = Logged::serve("haproxy", "default: {service: s}", &service("s", "", half));
    let mut client = logged.connect();
    write!(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    head(&mut client).unwrap();
    client.read_exact(&mut [0; 1000]).unwrap();
    for (proxy, row) in [("web", "FRONTEND"), ("s", "one"), ("s", "BACKEND")] {
        logged
            .ballast
            .until(|_| logged.number(proxy, row, "bout") >= 1000);
        assert!(logged.number(proxy, row, "bin") > 0, "{proxy}/{row}");
    }
    let shared = logged.ballast.running.shared();
    let plan = shared.live.plan();
    let one = plan.services()[0].endpoints()[0].live();
    shared.cut(vec![Arc::clone(one)]);
    let line = logged.text();
    let parsed = Line::parse(&line).unwrap();
    assert_eq!(parsed.letters, "KD--", "{line}");
    assert!(parsed.bytes >= 1000, "{line}");
}

/// Of one that is broken from the start the client is given nothing.
#[test]
fn a_response_that_turns_out_to_be_broken_is_no_clean_end() {
    let (go, going) = mpsc::channel::<()>();
    let going = Arc::new(Mutex::new(going));
    let late = server(move |mut client| {
        head(&mut client);
        let begin = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
        client.write_all(begin).ok();
        going.lock().expect("no panic").recv().ok();
        client.write_all(b"zz\r\n").ok();
    });
    let services = [
        service("late", "", late),
        service("chunk", "", endpoint(BROKEN_CHUNK)),
    ];
    let routes = "routes: [{path: /chunk, service: chunk}], default: {service: late}";
    let logged = Logged::serve("haproxy", routes, &services.concat());
    let mut client = logged.connect();
    write!(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(head(&mut client).unwrap().starts_with("HTTP/1.1 200 "));
    client.read_exact(&mut [0; 10]).unwrap();
    go.send(()).unwrap();
    let (rest, end) = hear(&mut client);
    assert_eq!(
        (rest.escape_ascii().to_string(), end),
        (String::new(), End::Reset)
    );
    let line = logged.line();
    assert_eq!((line.status, &*line.letters), (200, "PD--"), "{line:?}");

    let answer = logged.get("/chunk");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let line = logged.line();
    assert_eq!((line.status, &*line.letters), (502, "PH--"), "{line:?}");
    for (service, responses, aborts) in [("late", 1, 1), ("chunk", 0, 0)] {
        for row in ["one", "BACKEND"] {
            for (column, number) in [
                ("eresp", 1),
                ("econ", 0),
                ("hrsp_2xx", responses),
                ("srv_abrt", aborts),
            ] {
                let counted = logged.number(service, row, column);
                assert_eq!(counted, number, "{service}/{row} {column}");
            }
        }
    }
    assert_eq!(logged.number("web", "FRONTEND", "hrsp_5xx"), 1);
}

/// Its line names the service that it went to, and has the time that it waited for the first one.
#[test]
fn a_request_that_is_routed_anew_is_one_line() {
    let (go, going) = mpsc::channel::<()>();
    let going = Arc::new(Mutex::new(going));
    let slow = server(move |mut client| {
        head(&mut client);
        going.lock().expect("no panic").recv().ok();
        client.write_all(HELLO.as_bytes()).ok();
    });
    let full = format!(
        "  - {{name: s, timeouts: {{queue: 60s}}, endpoints: [{{address: \"{slow}\", max-connections: 1}}]}}\n"
    );
    let logged = Logged::serve("haproxy", "default: {service: s}", &full);
    let shared = logged.ballast.running.shared();
    let queue = || shared.live.plan().services()[0].state().queue().len();
    let mut clients = [logged.connect(), logged.connect(), logged.connect()];
    for (waiting, (client, path)) in clients.iter_mut().zip(["first", "t", "none"]).enumerate() {
        write!(client, "GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        logged.ballast.until(|_| {
            queue() == waiting && logged.number("web", "FRONTEND", "req_tot") == waiting as u64 + 1
        });
    }
    support::pause(Duration::from_millis(100));
    let to = logged.syslog.local_addr().unwrap();
    logged.ballast.swap(&format!(
        "version: 1\nlog: {{access: haproxy, to: [\"udp:{to}\"]}}\nfrontends:\n  - {{name: web, bind: [\"127.0.0.1:0\"], protocol: http, routes: [{{path: /t, service: t}}]}}\nservices:\n{}",
        service("t", "", endpoint(HELLO))
    ));
    let mut lines = [logged.line(), logged.line()];
    lines.sort_by_key(|line| line.status);
    let [served, refused] = &lines;
    assert_eq!((&*served.service, &*served.server), ("t", "one"));
    assert_eq!((served.status, &*served.letters), (200, "----"));
    assert!(served.times[1] >= 100, "{served:?}");
    assert!(served.times[4] >= served.times[1], "{served:?}");
    assert_eq!((&*refused.service, &*refused.server), ("web", "<NOSRV>"));
    assert_eq!(
        (refused.status, refused.times[1] >= 100),
        (404, true),
        "{refused:?}"
    );
    assert_eq!(logged.number("web", "FRONTEND", "req_tot"), 3);
    go.send(()).unwrap();
    clients[0].read_exact(&mut [0; HELLO.len()]).unwrap();
}

#[test]
fn each_request_of_a_kept_connection_is_a_line() {
    let logged = Logged::serve(
        "haproxy",
        "default: {service: s}",
        &service("s", "", endpoint(HELLO)),
    );
    let mut client = logged.connect();
    let from = client.local_addr().unwrap().to_string();
    for number in 0..3 {
        write!(client, "GET /{number}?a=b HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        client.read_exact(&mut [0; HELLO.len()]).unwrap();
        let line = logged.line();
        assert_eq!(line.client, from);
        assert_eq!(
            (&*line.frontend, &*line.service, &*line.server),
            ("web", "s", "one")
        );
        assert_eq!(line.request, format!("GET /{number}?a=b HTTP/1.1"));
        assert_eq!(
            (line.status, line.bytes, &*line.letters),
            (200, HELLO.len() as u64, "----")
        );
        assert!(line.times.iter().all(|time| *time >= 0), "{line:?}");
        assert_eq!(line.connections, [1, 1, 1, 1, 0]);
    }
    // A connection that sends nothing has no line, nor has the end of a kept one.
    drop(client);
    drop(logged.connect());
    logged.get("/last");
    assert_eq!(logged.line().request, "GET /last HTTP/1.1");
}

#[test]
fn each_end_has_its_letters() {
    let silent = server(|mut client| {
        head(&mut client);
        support::pause(Duration::from_secs(30));
    });
    let early = server(|mut client| drop(head(&mut client)));
    let short = server(|mut client| {
        head(&mut client);
        client
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello")
            .ok();
    });
    let services = [
        service("ok", "", endpoint(HELLO)),
        "  - {name: none, endpoints: []}\n".into(),
        service("dead", ", retries: 0", nobody()),
        service("silent", ", timeouts: {server: 100ms}", silent),
        service("early", "", early),
        service("short", "", short),
        service("garbage", "", endpoint("hello\r\n\r\n")),
        service("chunk", "", endpoint(BROKEN_CHUNK)),
        service("frames", ", http: {version: h2}", broken_frames()),
    ];
    let routes = "timeouts: {request: 200ms}, routes: [{path: /redirect, redirect: {path: /x}}, {path: /own, status: 200}, {path: /denied, source-ranges: [\"192.0.2.0/24\"], service: ok}, {path: /none, service: none}, {path: /dead, service: dead}, {path: /silent, service: silent}, {path: /early, service: early}, {path: /short, service: short}, {path: /garbage, service: garbage}, {path: /chunk, service: chunk}, {path: /frames, service: frames}], default: {service: ok}";
    let logged = Logged::serve("haproxy", routes, &services.concat());
    for (path, place, status, letters, none) in [
        ("/", "ok/one", 200, "----", [false; 4]),
        (
            "/redirect",
            "web/<NOSRV>",
            301,
            "LR--",
            [false, true, true, true],
        ),
        (
            "/own",
            "web/<NOSRV>",
            200,
            "LR--",
            [false, true, true, true],
        ),
        (
            "/denied",
            "web/<NOSRV>",
            403,
            "PR--",
            [false, true, true, true],
        ),
        (
            "/none",
            "none/<NOSRV>",
            503,
            "SC--",
            [false, true, true, true],
        ),
        ("/dead", "dead/one", 502, "SC--", [false, false, true, true]),
        (
            "/silent",
            "silent/one",
            504,
            "sH--",
            [false, false, false, true],
        ),
        (
            "/early",
            "early/one",
            502,
            "SH--",
            [false, false, false, true],
        ),
        ("/short", "short/one", 200, "SD--", [false; 4]),
        (
            "/garbage",
            "garbage/one",
            502,
            "PH--",
            [false, false, false, true],
        ),
        (
            "/chunk",
            "chunk/one",
            502,
            "PH--",
            [false, false, false, true],
        ),
        (
            "/frames",
            "frames/one",
            502,
            "PH--",
            [false, false, false, true],
        ),
    ] {
        let answer = logged.get(path);
        let line = logged.line();
        assert_eq!(format!("{}/{}", line.service, line.server), place, "{path}");
        assert_eq!((line.status, &*line.letters), (status, letters), "{path}");
        assert_eq!(line.bytes, answer.len() as u64, "{path}: {answer}");
        let [receiving, queued, connecting, responding, total] = line.times;
        let times = [receiving, queued, connecting, responding].map(|time| time == -1);
        // A service without endpoints is looked for one without a wait.
        if path != "/none" {
            assert_eq!(times, none, "{path}: {line:?}");
        }
        assert!(total >= 0);
    }
    for (request, status, letters) in [
        (
            "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n",
            400,
            "PR--",
        ),
        ("GET / HT", 408, "cR--"),
    ] {
        let answer = logged.ask(request);
        let line = logged.line();
        assert_eq!((line.status, &*line.letters), (status, letters), "{answer}");
        assert_eq!(line.request, "<BADREQ>");
        assert_eq!(format!("{}/{}", line.service, line.server), "web/<NOSRV>");
        assert_eq!(line.times[..4], [-1; 4]);
    }
    let mut client = logged.connect();
    client.write_all(b"GET / HT").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let line = logged.line();
    assert_eq!((line.status, &*line.letters), (-1, "CR--"));
    let mut client = logged.connect();
    client
        .write_all(b"GET /silent HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    logged
        .ballast
        .until(|_| logged.number("silent", "BACKEND", "scur") == 1);
    socket2::SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(client);
    let line = logged.line();
    assert_eq!((line.status, &*line.letters), (-1, "CH--"));
}

#[test]
fn a_page_counts_as_what_happened_whatever_its_status() {
    let logged = Logged::serve(
        "haproxy",
        "errors: {503: {status: 200}}, routes: [{path: /none, service: none}, {path: /denied, source-ranges: [\"192.0.2.0/24\"], denied: {status: 404}, service: none}]",
        "  - {name: none, endpoints: []}\n",
    );
    // haproxy 2.6 logs and counts 503 for an `errorfile 503` that holds 200, and 404 for `deny deny_status 404`.
    for (path, sent, status, letters) in [
        ("/none", "HTTP/1.1 200 OK\r\n", 503, "SC--"),
        ("/denied", "HTTP/1.1 404 Not Found\r\n", 404, "PR--"),
    ] {
        let answer = logged.get(path);
        assert!(answer.starts_with(sent), "{answer}");
        let line = logged.line();
        assert_eq!((line.status, &*line.letters), (status, letters), "{path}");
    }
    for (column, count) in [
        ("hrsp_2xx", 0),
        ("hrsp_4xx", 1),
        ("hrsp_5xx", 1),
        ("dreq", 1),
    ] {
        assert_eq!(logged.number("web", "FRONTEND", column), count, "{column}");
    }
}

#[test]
fn a_request_that_is_cut_has_a_line() {
    let stuck = server(|mut client| {
        head(&mut client);
        client
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello")
            .ok();
        support::pause(Duration::from_secs(30));
    });
    let logged = Logged::serve("haproxy", "default: {service: s}", &service("s", "", stuck));
    let mut client = logged.connect();
    client
        .write_all(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    client.read_exact(&mut [0; 40]).unwrap();
    let shared = logged.ballast.running.shared();
    let plan = shared.live.plan();
    shared.cut(vec![Arc::clone(plan.services()[0].endpoints()[0].live())]);
    let line = logged.line();
    assert_eq!((line.status, &*line.letters), (200, "KD--"));
}

#[test]
fn json_has_the_method_the_path_the_host_and_the_status() {
    let logged = Logged::serve(
        "json",
        "routes: [{path: /a, service: s, rewrite: /}]",
        &service("s", "", endpoint(HELLO)),
    );
    logged.get("/a/b?c=\"d\"");
    let text = logged.text();
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (key, value) in [
        ("frontend", "web"),
        ("service", "s"),
        ("server", "one"),
        ("method", "GET"),
        ("path", "/a/b?c=\"d\""),
        ("host", "shop.example.com"),
        ("termination", "----"),
    ] {
        assert_eq!(line[key], value, "{text}");
    }
    assert_eq!(line["status"], 200);
    assert_eq!(
        line["bytes_out"],
        HELLO.len() + "Connection: close\r\n".len()
    );
    logged.get("/nowhere");
    let text = logged.text();
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["status"], 404);
    assert!(line["service"].is_null() && line["server"].is_null());
}

#[test]
fn quotes_and_cookies_in_lines() {
    let affinity = ", affinity: {cookie: SERVERID}";
    let logged = Logged::serve(
        "haproxy",
        "default: {service: s}",
        &service("s", affinity, endpoint(HELLO)),
    );
    let answer = logged.get("/\"%0a\"");
    let line = logged.line();
    assert_eq!(line.request, "GET /#22%0a#22 HTTP/1.1");
    assert_eq!(line.letters, "--NI");
    let (_, cookie) = answer.split_once("SERVERID=").expect("a cookie");
    let cookie = cookie.split([';', '\r']).next().unwrap();
    for (cookie, letters) in [(cookie, "--VN"), ("nonsense", "--II")] {
        logged.ask(&format!(
            "GET / HTTP/1.1\r\nHost: x\r\nCookie: SERVERID={cookie}\r\nConnection: close\r\n\r\n"
        ));
        let line = logged.line();
        assert_eq!(line.letters, letters, "{line:?}");
    }
}

/// What haproxy 2.6 writes, asked the same.
#[test]
fn the_letters_of_cookies_are_haproxys() {
    let (good, refused) = (endpoint(HELLO), nobody());
    let services = format!(
        "  - {{name: s, affinity: {{cookie: C}}, endpoints: [{{address: \"{good}\"}}, {{address: \"192.0.2.1:1\", state: disabled}}, {{address: \"{refused}\", weight: 0}}]}}\n  - {{name: down, affinity: {{cookie: C}}, endpoints: [{{address: \"192.0.2.1:1\", state: disabled}}]}}\n  - {{name: refused, retries: 1, affinity: {{cookie: C}}, endpoints: [{{address: \"{refused}\"}}]}}\n{}{}",
        service(
            "early",
            ", affinity: {cookie: C}",
            server(|mut client| drop(head(&mut client)))
        ),
        service("plain", "", good),
    );
    let routes = "routes: [{path: /s, service: s}, {path: /down, service: down}, {path: /refused, service: refused}, {path: /early, service: early}, {path: /plain, service: plain}, {path: /to, redirect: {path: /x}}]";
    let logged = Logged::serve("haproxy", routes, &services);
    let plan = logged.ballast.running.shared().live.plan();
    let of = |service: &str, endpoint: usize| {
        let mut services = plan.services().iter();
        let found = services.find(|one| *one.spec().name == *service).unwrap();
        format!("C={}", found.cookie_value(endpoint).unwrap())
    };
    let unknown = "C=0123456789abcdef";
    for (path, cookies, letters) in [
        ("/s", "", "--NI"),
        ("/s", "c=nonsense; C", "--NI"),
        ("/s", &*of("s", 0), "--VN"),
        ("/s", &*format!("C=nonsense; {}", of("s", 0)), "--VN"),
        ("/s", "C=nonsense", "--II"),
        ("/s", "C=", "--II"),
        ("/s", unknown, "--II"),
        ("/s", &*of("s", 1), "--DI"),
        ("/s", &*of("s", 2), "--DI"),
        ("/down", "", "SCNN"),
        ("/down", unknown, "SCIN"),
        ("/down", &*of("down", 0), "SCDN"),
        ("/refused", "", "SCNN"),
        ("/refused", "C=nonsense", "SCIN"),
        ("/refused", &*of("refused", 0), "SCVN"),
        ("/early", "", "SHNN"),
        ("/early", &*of("early", 0), "SHVN"),
        ("/plain", unknown, "----"),
        ("/to", unknown, "LR--"),
        ("/nowhere", unknown, "LR--"),
    ] {
        logged.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nCookie: {cookies}\r\nConnection: close\r\n\r\n"
        ));
        assert_eq!(logged.line().letters, letters, "{path} {cookies}");
    }
}

#[test]
fn requests_and_responses_are_counted_at_every_place() {
    let services = [
        service("ok", "", endpoint(HELLO)),
        service(
            "odd",
            "",
            endpoint("HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n"),
        ),
        service(
            "gone",
            "",
            endpoint("HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n"),
        ),
        service("early", "", server(|mut client| drop(head(&mut client)))),
        "  - {name: none, endpoints: []}\n".into(),
    ];
    let routes = "routes: [{path: /redirect, redirect: {path: /x}}, {path: /denied, source-ranges: [\"192.0.2.0/24\"], service: ok}, {path: /odd, service: odd}, {path: /gone, service: gone}, {path: /early, service: early}, {path: /none, service: none}, {path: /ok, service: ok}]";
    let logged = Logged::serve("off", routes, &services.concat());
    let mut bytes_in = 0;
    let mut bytes_out = 0;
    for path in [
        "/ok",
        "/ok/2",
        "/redirect",
        "/denied",
        "/odd",
        "/gone",
        "/early",
        "/none",
        "/nowhere",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        bytes_in += request.len() as u64;
        bytes_out += logged.ask(&request).len() as u64;
    }
    let bad = "GET / HTTP/9.9\r\n\r\n";
    bytes_in += bad.len() as u64;
    bytes_out += logged.ask(bad).len() as u64;
    logged
        .ballast
        .until(|_| logged.number("web", "FRONTEND", "scur") == 0);
    for (proxy, row, column, expected) in [
        ("web", "FRONTEND", "req_tot", 10),
        ("web", "FRONTEND", "stot", 10),
        ("web", "FRONTEND", "h1sess", 10),
        ("web", "FRONTEND", "h1req", 10),
        ("web", "FRONTEND", "sess_other", 0),
        ("web", "FRONTEND", "hrsp_1xx", 0),
        ("web", "FRONTEND", "hrsp_2xx", 2),
        ("web", "FRONTEND", "hrsp_3xx", 1),
        ("web", "FRONTEND", "hrsp_4xx", 3),
        ("web", "FRONTEND", "hrsp_5xx", 3),
        ("web", "FRONTEND", "hrsp_other", 1),
        ("web", "FRONTEND", "intercepted", 2),
        ("web", "FRONTEND", "dreq", 1),
        ("web", "FRONTEND", "ereq", 1),
        ("web", "FRONTEND", "comp_in", 0),
        ("web", "FRONTEND", "bin", bytes_in),
        ("web", "FRONTEND", "bout", bytes_out),
        ("ok", "one", "hrsp_2xx", 2),
        ("ok", "one", "stot", 2),
        ("ok", "one", "lbtot", 2),
        ("ok", "one", "req_tot", 2),
        ("ok", "BACKEND", "hrsp_2xx", 2),
        ("ok", "BACKEND", "req_tot", 2),
        ("odd", "BACKEND", "hrsp_other", 1),
        ("odd", "one", "req_tot", 1),
        ("gone", "one", "hrsp_4xx", 1),
        ("gone", "one", "req_tot", 1),
        ("early", "one", "eresp", 1),
        ("early", "one", "srv_abrt", 0),
        ("early", "one", "hrsp_5xx", 0),
        ("early", "one", "req_tot", 0),
        ("early", "BACKEND", "req_tot", 1),
        ("none", "BACKEND", "econ", 1),
        ("none", "BACKEND", "hrsp_5xx", 0),
    ] {
        assert_eq!(
            logged.number(proxy, row, column),
            expected,
            "{proxy}/{row} {column}"
        );
    }
    for row in ["BACKEND", "one"] {
        assert_eq!(logged.cell("ok", row, "mode"), "http");
        assert_eq!(logged.cell("ok", row, "h1req"), "");
    }
    assert_eq!(
        logged.number("ok", "one", "connect") + logged.number("ok", "one", "reuse"),
        2
    );
    metrics(&logged);
    snapshot(&logged);
    // One request was denied. Another one was bad, and one found no endpoint.
    let page = support::get(logged.ballast.running.admin()[0], "/").1;
    let (_, row) = page.split_once("name=\"web/Frontend\"").expect("a row");
    let (row, _) = row.split_once("</tr>").expect("a row");
    let [denied, errors] = [
        "<td class=\"n w\"><em class=\"warn\">1</em></td>",
        "<td class=\"n\"><em class=\"warn\">2</em></td>",
    ];
    assert!(row.ends_with(&[denied, errors].concat()), "{row}");
}

fn metrics(logged: &Logged) {
    let stats = logged.ballast.running.stats();
    let snapshot = stats.snapshot();
    let chunks = stats::metrics(snapshot, Selection::of_metrics(""));
    let metrics = String::from_utf8(chunks.flatten().collect()).expect("text");
    for line in [
        "haproxy_frontend_http_requests_total{proxy=\"web\"} 10\n",
        "haproxy_frontend_http_responses_total{proxy=\"web\",code=\"3xx\"} 1\n",
        "haproxy_frontend_http_responses_total{proxy=\"web\",code=\"other\"} 1\n",
        "haproxy_frontend_intercepted_requests_total{proxy=\"web\"} 2\n",
        "haproxy_frontend_requests_denied_total{proxy=\"web\"} 1\n",
        "haproxy_backend_http_requests_total{proxy=\"ok\"} 2\n",
        "haproxy_backend_http_responses_total{proxy=\"ok\",code=\"2xx\"} 2\n",
        "haproxy_server_http_responses_total{proxy=\"gone\",server=\"one\",code=\"4xx\"} 1\n",
        "haproxy_process_requests_total 10\n",
        "# TYPE ballast_http_request_seconds histogram\n",
        "ballast_http_request_seconds_bucket{service=\"ok\",le=\"+Inf\"} 2\n",
        "ballast_http_request_seconds_count{service=\"ok\"} 2\n",
        "ballast_http_request_seconds_count{service=\"none\"} 1\n",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
    let families = crate::stats::readers::families(&metrics).expect("metrics that can be parsed");
    // haproxy has the requests of a server in its CSV alone.
    assert!(!families.contains_key("haproxy_server_http_requests_total"));
    assert_eq!(families["ballast_http_request_seconds"].kind, "histogram");
    let buckets = metrics
        .lines()
        .filter(|line| line.starts_with("ballast_http_request_seconds_bucket{service=\"ok\""))
        .map(|line| line.rsplit(' ').next().expect("a value").parse::<u64>());
    let buckets: Vec<u64> = buckets.collect::<Result<_, _>>().expect("numbers");
    assert!(buckets.len() == 15 && buckets.is_sorted(), "{buckets:?}");
}

fn snapshot(logged: &Logged) {
    let (_, text) = support::get(logged.ballast.running.admin()[0], "/api/snapshot");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let http = &value["frontends"][0]["http"];
    assert_eq!(http["requests"], 10);
    assert_eq!(http["responses"]["4xx"], 3);
    assert_eq!(http["intercepted"], 2);
    assert_eq!(http["malformed"], 1);
    let ok = &value["services"][0];
    assert_eq!(ok["responses"]["2xx"], 2);
    assert_eq!(ok["endpoints"][0]["responses"]["2xx"], 2);
    let (_, page) = support::get(logged.ballast.running.admin()[0], "/");
    assert!(page.contains("<h2>HTTP</h2>"));
}

#[test]
fn a_tcp_frontend_has_no_columns_of_http() {
    let ballast = Ballast::serve(&support::table("", "", &[support::named_server("a")]), 1);
    support::ask(ballast.address()).unwrap();
    let stats = ballast.running.stats();
    let chunks = stats::csv(stats.snapshot(), Selection::of_page("/;csv"));
    let csv = String::from_utf8(chunks.flatten().collect()).unwrap();
    let rows = rows(&csv);
    for ((_, name), row) in &rows {
        for column in [
            "hrsp_2xx",
            "hrsp_other",
            "req_tot",
            "req_rate",
            "h1sess",
            "h1req",
        ] {
            assert_eq!(row[column], "", "{name} {column}");
        }
    }
    let metrics = ballast.metrics();
    assert!(!metrics.contains("http_responses_total"));
    assert!(!metrics.contains("ballast_http_request_seconds"));
    assert!(metrics.contains("haproxy_process_requests_total 1\n"));
}

#[test]
fn traceparent_and_tracestate_pass_untouched() {
    let (seen, received) = mpsc::channel();
    let address = server(move |mut client| {
        while let Some(head) = head(&mut client) {
            seen.send(head).ok();
            client.write_all(HELLO.as_bytes()).ok();
        }
    });
    let logged = Logged::serve("off", "default: {service: s}", &service("s", "", address));
    let trace = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntracestate: a=b,c=d\r\n";
    logged.ask(&format!(
        "GET / HTTP/1.1\r\nHost: x\r\n{trace}Connection: close\r\n\r\n"
    ));
    let head = received.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(head.contains(trace), "{head}");
}

#[test]
fn sessions_are_listed_with_the_endpoint_of_the_request_that_is_served() {
    let (go_on, held) = mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let slow = server(move |mut client| {
        while head(&mut client).is_some() {
            held.lock().expect("a lock").recv().ok();
            client.write_all(HELLO.as_bytes()).ok();
        }
    });
    let table = format!(
        "version: 1\nfrontends:\n  - {{name: web, bind: [\"127.0.0.1:0\"], protocol: http, default: {{service: s}}}}\nservices:\n{}",
        service("s", "", slow)
    );
    let ballast = Ballast::serve_with_socket(&table, 1);
    let sessions = || {
        let mut socket =
            std::os::unix::net::UnixStream::connect(ballast.socket()).expect("a socket");
        socket.write_all(b"show sess\n").expect("a command");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let mut client = connect(ballast.address());
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    ballast.until(|_| sessions().contains(" fe=web be=s srv=one "));
    go_on.send(()).unwrap();
    client.read_exact(&mut [0; HELLO.len()]).unwrap();
    ballast.until(|_| sessions().contains(" fe=web be=<NONE> srv=<none> "));
}
