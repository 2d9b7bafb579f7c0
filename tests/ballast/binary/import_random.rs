//! Random configurations, imported: haproxy and Ballast with the imported table answer alike. SEED replays a run.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ballast_core::rng::Rng;
use socket2::{Domain, Socket, Type};

use crate::import::{head_of, is_there};
use crate::peers::{connect, fresh_ip, server};
use crate::process::{Process, ballast, command};
use support::skip::skip;

/// Each round is one configuration of many frontends; the rounds end with the time.
#[test]
fn random_configurations_are_served_as_by_haproxy() {
    if !is_there("haproxy") {
        return skip("haproxy is not installed: nothing to compare with");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = now.as_secs();
    let seed = std::env::var("SEED").map_or(now, |seed| seed.parse().expect("a number"));
    println!("SEED={seed}");
    let begin = Instant::now();
    let servers = Servers::begin();
    let mut seen = Seen::default();
    for round in 0..ROUNDS {
        Round::any(seed.wrapping_add(round), &servers).compare(&mut seen);
        if begin.elapsed() > LONGEST {
            break;
        }
    }
    println!(
        "{} frontends were alike, {} had lines that were left out",
        seen.alike, seen.told
    );
    assert!(seen.differ.is_empty(), "{}", seen.differ.join("\n"));
    assert!(
        seen.alike > seen.told,
        "SEED={seed}: too little is compared"
    );
}

/// What the comparison has seen of frontends.
#[derive(Default)]
struct Seen {
    alike: usize,
    /// They have lines that were left out.
    told: usize,
    differ: Vec<String>,
}

/// One configuration.
struct Round {
    seed: u64,
    at: Ipv4Addr,
    cases: Vec<Case>,
}

/// A frontend, its backend, and another one that some requests are sent to.
struct Case {
    port: u16,
    is_http: bool,
    frontend: Vec<String>,
    backend: Vec<String>,
    other: Vec<String>,
    /// Whether the endpoint passes its check; `None`: it has none.
    is_up: Option<bool>,
}

/// What a program says to each question.
type Answers = BTreeMap<String, String>;

impl Round {
    fn any(seed: u64, servers: &Servers) -> Self {
        let mut rng = Rng::new(seed);
        let cases = (0..CASES).map(|index| Case::any(&mut rng, 18_000 + index, servers));
        Self {
            seed,
            at: fresh_ip(),
            cases: cases.collect(),
        }
    }

    fn compare(&self, seen: &mut Seen) {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("haproxy.cfg");
        let (text, begins) = self.configuration();
        fs::write(&source, &text).unwrap();
        let mut haproxy = command("haproxy");
        let process = Process::spawn(haproxy.arg("-db").arg("-f").arg(&source));
        process.until("haproxy listens", || {
            connect(SocketAddr::from((self.at, 18_000))).is_ok()
        });
        let expected: Vec<Answers> = self.cases.iter().map(|case| case.ask(self.at)).collect();
        drop(process);

        let table = folder.path().join("table.yaml");
        let imported = ballast([Path::new("import"), &source, Path::new("-o"), &table]);
        assert!(matches!(imported.code, Some(0 | 2)), "{imported:?}");
        let left_out: Vec<usize> = imported
            .err
            .lines()
            .filter(|line| line.contains(": left out: ") || line.contains(": differs: "))
            .filter_map(|line| line.split(':').nth(1)?.parse().ok())
            .collect();
        let process = Process::run(&table, &[]);
        process.until_answers("/readyz", 200);
        for (index, case) in self.cases.iter().enumerate() {
            let (first, last) = (begins[index], begins[index + 1]);
            if left_out.iter().any(|line| (first..last).contains(line)) {
                seen.told += 1;
                continue;
            }
            let answers = case.ask(self.at);
            let mut all = expected[index].iter();
            let Some((question, answer)) =
                all.find(|(question, answer)| !is_same(answer, &answers[*question]))
            else {
                seen.alike += 1;
                continue;
            };
            seen.differ.push(format!(
                "SEED={}: {question}\nhaproxy: {answer}\nballast: {}\n{}",
                self.seed,
                answers[question],
                case.text(index, self.at)
            ));
        }
    }

    /// The text, and the lines where the cases begin, with the line behind the last one.
    fn configuration(&self) -> (String, Vec<usize>) {
        let mut text = String::from(
            "defaults\n timeout connect 2s\n timeout client 10s\n timeout server 10s\n",
        );
        let mut begins = Vec::new();
        for (index, case) in self.cases.iter().enumerate() {
            begins.push(text.lines().count() + 1);
            text.push_str(&case.text(index, self.at));
        }
        begins.push(text.lines().count() + 1);
        (text, begins)
    }
}

impl Case {
    fn any(rng: &mut Rng, port: u16, servers: &Servers) -> Self {
        let is_http = rng.below(4) > 0;
        let (mut frontend, mut backend) = (Vec::new(), Vec::new());
        for _ in 0..rng.below(4) {
            frontend.push(tcp_request(rng, port));
        }
        if is_http {
            for _ in 0..rng.below(4) {
                frontend.push(rule(rng));
            }
            for _ in 0..rng.below(3) {
                frontend.push(edit(rng, true));
                backend.push(edit(rng, false));
            }
        }
        let mut check = None;
        if rng.below(4) == 0 {
            let (lines, is_up) = checks(rng, is_http);
            backend.extend(lines);
            check = Some(is_up);
        }
        let server = match is_http {
            true => servers.http,
            false => servers.greeter,
        };
        let mut other = Vec::new();
        if is_http && check.is_none() {
            for _ in 0..rng.below(3) {
                let name = format!("o{port}");
                frontend.push(format!("use_backend {name} {}", chosen(rng, port)));
            }
            for _ in 0..rng.below(3) {
                other.push(rule(rng));
            }
            other.push("http-response set-header X-Via other".into());
            let disabled = of(rng, &["", "", "", " disabled"]);
            other.push(format!("server s {server}{disabled}"));
        }
        let checked = check.map_or("", |_| " check inter 100 rise 1 fall 1");
        backend.push(format!("server s {server}{checked}"));
        Self {
            port,
            is_http,
            frontend,
            backend,
            other,
            is_up: check,
        }
    }

    fn text(&self, index: usize, at: Ipv4Addr) -> String {
        let mode = if self.is_http { "http" } else { "tcp" };
        format!(
            "frontend f{index}\n bind {at}:{port}\n mode {mode}\n {}\n default_backend b{index}\nbackend b{index}\n mode {mode}\n {}\nbackend o{port}\n mode {mode}\n {}\n",
            self.frontend.join("\n "),
            self.backend.join("\n "),
            self.other.join("\n "),
            port = self.port,
        )
    }

    /// The answers, once the endpoint is as its check makes it.
    fn ask(&self, at: Ipv4Addr) -> Answers {
        let address = SocketAddr::from((at, self.port));
        let begin = Instant::now();
        loop {
            let answers = self.answers(address);
            let is_early = |answer: &String| match self.is_up {
                None => false,
                Some(true) => answer.starts_with("503"),
                Some(false) => answer.starts_with("200") || answer == "hello",
            };
            let waits = answers.values().any(is_early);
            if !waits || begin.elapsed() > Duration::from_secs(10) {
                return answers;
            }
        }
    }

    fn answers(&self, address: SocketAddr) -> Answers {
        let mut answers = Answers::new();
        for client in CLIENTS {
            if !self.is_http {
                answers.insert(client.into(), said(address, client, ""));
                continue;
            }
            let old = "GET /x HTTP/1.0\r\nX-A: client\r\n\r\n";
            let question = format!("{client} without a host");
            answers.insert(question, shown(&said(address, client, old)));
            for (host, path) in REQUESTS {
                let question = format!("{client} {host} {path}");
                let request = format!(
                    "GET {path} HTTP/1.1\r\nHost: {host}\r\nX-A: client\r\nConnection: close\r\n\r\n"
                );
                answers.insert(question, shown(&said(address, client, &request)));
            }
        }
        answers
    }
}

fn tcp_request(rng: &mut Rng, port: u16) -> String {
    let stage = of(rng, &["connection", "session", "content"]);
    let action = of(rng, &["accept", "reject"]);
    let condition = match rng.below(8) {
        0 => String::new(),
        _ => {
            let word = of(rng, &["if", "if", "unless"]);
            let mut all = client(rng, port);
            if rng.below(3) == 0 {
                let or = of(rng, &["or ", ""]);
                all = format!("{all} {or}{}", client(rng, port));
            }
            format!(" {word} {all}")
        }
    };
    format!("tcp-request {stage} {action}{condition}")
}

/// An ACL about the client or the port.
fn client(rng: &mut Rng, port: u16) -> String {
    let not = of(rng, &["", "", "!"]);
    match rng.below(4) {
        0 => format!(
            "{not}{{ dst_port {} }}",
            port + u16::from(rng.below(2) == 0)
        ),
        _ => format!(
            "{not}{{ src {} }}",
            of(
                rng,
                &[
                    "127.0.0.2",
                    "127.0.0.2 127.0.0.3",
                    "127.0.0.0/8",
                    "127.0.0.64/26",
                    "10.0.0.0/8"
                ]
            )
        ),
    }
}

/// A denial or a redirect.
fn rule(rng: &mut Rng) -> String {
    let path = of(
        rng,
        &[
            "path /x",
            "path_beg /x",
            "path -i /Y",
            "hdr(host) -i b.example",
            "path_beg /",
        ],
    );
    let not = of(rng, &["", "", "", "!"]);
    let condition = format!("if {not}{{ {path} }}");
    match rng.below(6) {
        0 => format!("http-request deny {condition}"),
        1 => format!(
            "http-request deny deny_status {} {condition}",
            of(rng, &["404", "429", "500"])
        ),
        2 => format!("http-request deny {condition} {}", client(rng, 1)),
        _ => {
            let keyword = of(rng, &["redirect", "http-request redirect"]);
            let target = of(
                rng,
                &[
                    "location /new",
                    "location /new?a=b",
                    "location https://w.example/z",
                    "prefix https://w.example",
                    "scheme https",
                ],
            );
            let code = of(
                rng,
                &["", " code 301", " code 303", " code 307", " code 308"],
            );
            let drop = of(rng, &["", "", " drop-query"]);
            format!("{keyword} {target}{code}{drop} {condition}")
        }
    }
}

/// Which requests another backend gets.
fn chosen(rng: &mut Rng, port: u16) -> String {
    let path = of(rng, &["path /x", "path_beg /x", "hdr(host) -i b.example"]);
    let word = of(rng, &["if", "if", "unless"]);
    match rng.below(10) {
        0 => format!("{word} {}", client(rng, port)),
        1 => format!("{word} {{ {path} }} {}", client(rng, port)),
        _ => format!("{word} {{ {path} }}"),
    }
}

/// A header rule.
fn edit(rng: &mut Rng, of_frontend: bool) -> String {
    let keywords: &[&str] = match of_frontend {
        true => &["http-request", "http-response", "http-after-response"],
        false => &["http-request", "http-response"],
    };
    let keyword = of(rng, keywords);
    let name = of(rng, &["X-A", "X-B", "X-Of"]);
    match rng.below(3) {
        0 => format!("{keyword} set-header {name} {}", rng.below(9)),
        1 => format!("{keyword} add-header {name} {}", rng.below(9)),
        _ => format!("{keyword} del-header {name}"),
    }
}

/// Lines of a check, and whether the endpoint passes it.
fn checks(rng: &mut Rng, is_http: bool) -> (Vec<String>, bool) {
    let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    if !is_http {
        return match rng.below(3) {
            0 => (Vec::new(), true),
            1 => (
                lines(&["option tcp-check", "tcp-check expect string ello"]),
                true,
            ),
            _ => (
                lines(&["option tcp-check", "tcp-check expect string nobody"]),
                false,
            ),
        };
    }
    match rng.below(6) {
        0 => (Vec::new(), true),
        1 => (lines(&["option httpchk GET /up"]), true),
        2 => (lines(&["option httpchk GET /down"]), false),
        3 => (
            lines(&["option httpchk GET /down", "http-check expect status 500"]),
            true,
        ),
        4 => (
            lines(&["option httpchk GET /up", "http-check expect string /up"]),
            true,
        ),
        _ => (
            lines(&["option httpchk GET /up", "http-check expect ! status 200"]),
            false,
        ),
    }
}

fn of<'t>(rng: &mut Rng, items: &[&'t str]) -> &'t str {
    let index = rng.below(u64::try_from(items.len()).unwrap());
    items[usize::try_from(index).unwrap()]
}

/// The answer to a request that comes from the address `client`.
fn said(address: SocketAddr, client: &str, request: &str) -> String {
    let ask = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        let client: IpAddr = client.parse().unwrap();
        socket.bind(&SocketAddr::from((client, 0)).into())?;
        socket.connect(&address.into())?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, io::Error>(answer)
    };
    ask().unwrap_or_default()
}

/// Status, location, fields of the tests' own and, where the endpoint has answered, its body.
fn shown(answer: &str) -> String {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return answer.into();
    };
    let status = head.split(' ').nth(1).unwrap_or_default();
    let mut fields: Vec<String> = head
        .lines()
        .map(str::to_ascii_lowercase)
        .filter(|line| line.starts_with("x-") || line.starts_with("location: "))
        .collect();
    fields.sort();
    let body = if status == "200" { body } else { "" };
    format!("{status} {} {body}", fields.join(", "))
}

/// Whether both programs answered alike. Where haproxy denies a client, Ballast may also reset its connection. haproxy redirects to no
/// host where the request names none, and Ballast refuses such a request.
fn is_same(haproxy: &str, ballast: &str) -> bool {
    let is_denial = |answer: &str| answer.is_empty() || answer.starts_with("403");
    let leads_nowhere = haproxy.contains("location: https:///") && ballast.starts_with("400");
    haproxy == ballast || ballast.is_empty() && is_denial(haproxy) || leads_nowhere
}

/// One endpoint for each mode.
struct Servers {
    http: SocketAddr,
    greeter: SocketAddr,
}

impl Servers {
    fn begin() -> Self {
        let http = server(|mut client| {
            let Some(head) = head_of(&mut client) else {
                return;
            };
            let head = head.to_ascii_lowercase();
            let mut fields: Vec<&str> =
                head.lines().filter(|line| line.starts_with("x-")).collect();
            fields.sort_unstable();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let status = if path == "/down" {
                "500 Down"
            } else {
                "200 OK"
            };
            let body = format!("{path} {}", fields.join(", "));
            write!(client, "HTTP/1.1 {status}\r\nX-Of: endpoint\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).ok();
        });
        let greeter = server(|mut client| drop(client.write_all(b"hello")));
        Self { http, greeter }
    }
}

const CLIENTS: [&str; 3] = ["127.0.0.2", "127.0.0.3", "127.0.0.66"];
const REQUESTS: [(&str, &str); 5] = [
    ("a.example", "/"),
    ("a.example", "/x"),
    ("a.example", "/x/y?q=1"),
    ("b.example", "/Y"),
    ("b.example", "/z"),
];
/// Frontends of a configuration.
const CASES: u16 = 40;
/// Configurations of a run.
const ROUNDS: u64 = 4;
/// The time after which no further configuration is begun.
const LONGEST: Duration = Duration::from_secs(15);
