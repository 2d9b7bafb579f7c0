//! The framing table, told to haproxy and nginx as well. Prints where Ballast refuses what they forward, and the other way round.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::http::framing::MALFORMED;
use crate::http::wire::{Endpoint, Wire, table};
use support::peers::alone;
use support::skip::skip;
use support::{Ballast, free_port};

/// Unusual, and understood by everybody in the same way.
const UNUSUAL: &[&[u8]] = &[
    b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
    b"get / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET //x/%2e%2e?/? HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /{|}\"<>\\^` HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /a/../b HTTP/1.1\r\nHost: a\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 005\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\t5\t\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ChunKed\r\n\r\n5;a=\"b;c\"\r\nhello\r\n000\r\nX: y\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: \xff\r\nX:\r\n!#$%&'*+-.^_`|~: y\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
];

/// Ends every connection that gets so far.
const LAST: &[u8] = b"GET /admin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    /// The status of the first answer; 0: none.
    status: u16,
    /// How many requests reached the endpoint, the last one not counted.
    forwarded: usize,
    /// Whether the last one did.
    went_on: bool,
}

fn verdict(proxy: SocketAddr, endpoint: &Endpoint, bytes: &[u8]) -> Verdict {
    let before = endpoint.heard().len();
    let mut client = Wire::to(proxy);
    client.patience(Duration::from_secs(3));
    std::io::Write::write_all(&mut client.stream, &[bytes, LAST].concat()).ok();
    let (heard, _) = client.rest();
    let status = heard
        .strip_prefix(b"HTTP/1.")
        .and_then(|rest| std::str::from_utf8(rest.get(2..5)?).ok()?.parse().ok());
    let heard = endpoint.heard().split_off(before);
    let last = heard.iter().filter(|one| one.target() == "/admin").count();
    Verdict {
        status: status.unwrap_or(0),
        forwarded: heard.len() - last,
        went_on: last > 0,
    }
}

#[test]
fn ballast_is_at_least_as_strict_as_haproxy_and_nginx() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(&table(", timeouts: {request: 1s}", "", &[&endpoint]), 1);
    let own: Vec<_> = rows()
        .map(|bytes| verdict(ballast.address(), &endpoint, bytes))
        .collect();
    for (own, bytes) in own.iter().zip(rows()) {
        let is_malformed = MALFORMED.iter().any(|(malformed, _)| *malformed == bytes);
        let text = bytes.escape_ascii();
        assert_eq!(
            own.forwarded == 0 && !own.went_on,
            is_malformed,
            "{text}: {own:?}"
        );
    }
    for start in [Peer::haproxy, Peer::nginx] {
        let peer_endpoint = Endpoint::saying("served");
        let Some(peer) = start(peer_endpoint.address) else {
            continue;
        };
        let (mut stricter, mut laxer) = (0, 0);
        for (own, bytes) in own.iter().zip(rows()) {
            let other = verdict(peer.address, &peer_endpoint, bytes);
            let (refuses, other_refuses) = (own.forwarded == 0, other.forwarded == 0);
            let word = match (refuses, other_refuses) {
                (true, false) => "stricter than",
                (false, true) => "laxer than",
                _ if refuses && other.went_on => "ends the connection, unlike",
                _ => continue,
            };
            stricter += usize::from(refuses);
            laxer += usize::from(!refuses);
            println!(
                "{word} {}: {} {} (there {}, {} forwarded{})",
                peer.name,
                own.status,
                bytes.escape_ascii(),
                other.status,
                other.forwarded,
                if other.went_on {
                    ", and the next one"
                } else {
                    ""
                },
            );
        }
        println!(
            "{}: Ballast is stricter in {stricter} rows and laxer in {laxer}",
            peer.name
        );
        assert!(stricter > 0, "{} forwards nothing of this?", peer.name);
    }
}

fn rows() -> impl Iterator<Item = &'static [u8]> {
    let malformed = MALFORMED.iter().map(|(bytes, _)| *bytes);
    malformed.chain(UNUSUAL.iter().copied())
}

/// Another proxy in front of an endpoint.
struct Peer {
    name: &'static str,
    address: SocketAddr,
    process: Child,
    _folder: TempDir,
}

impl Peer {
    fn haproxy(endpoint: SocketAddr) -> Option<Self> {
        Self::start("haproxy", &["-db", "-f"], |listen, _| {
            format!(
                "defaults
  mode http
  timeout connect 2s
  timeout client 1s
  timeout server 2s
  timeout http-request 1s
listen f
  bind {listen}
  server s {endpoint}
"
            )
        })
    }

    fn nginx(endpoint: SocketAddr) -> Option<Self> {
        Self::start("nginx", &["-e", "stderr", "-c"], |listen, folder| {
            let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .iter()
                .map(|name| format!("{name}_temp_path {folder}/{name};\n"))
                .collect();
            format!(
                "daemon off;
master_process off;
pid {folder}/pid;
events {{}}
http {{
  access_log off;
  {temporary}
  client_header_timeout 1s;
  client_body_timeout 1s;
  keepalive_timeout 1s;
  server {{
    listen {listen};
    location / {{
      proxy_pass http://{endpoint};
      proxy_http_version 1.1;
      proxy_request_buffering off;
    }}
  }}
}}
"
            )
        })
    }

    /// Starts the program with a configuration for this address and folder.
    fn start(
        name: &'static str,
        args: &[&str],
        configuration: impl Fn(SocketAddr, &str) -> String,
    ) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let path = folder.path().to_str().expect("a name in UTF-8");
        let file = format!("{path}/configuration");
        fs::write(&file, configuration(address, path)).expect("a file");
        let starting = alone();
        let process = Command::new(name)
            .args(args)
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        drop(starting);
        let process = match process {
            Ok(process) => process,
            Err(error) => {
                skip(&format!("{name}: {error} (apt-get install {name})"));
                return None;
            }
        };
        let peer = Self {
            name,
            address,
            process,
            _folder: folder,
        };
        support::until(format_args!("{name} listens"), || {
            TcpStream::connect(address).is_ok()
        });
        Some(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
