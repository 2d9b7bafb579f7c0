//! The admin address: /healthz, /readyz, /metrics and /addresses.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::ack::{Ack, Refused, State};
use crate::bgp::Sessions;
use crate::file::Mode;
use crate::membership::Probes;
use crate::node::Counters;

/// The state that the admin address shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    pub(super) ack: Option<Ack>,
    /// The name of this node.
    pub(super) node: String,
    /// The routers of the file, by name.
    pub(super) routers: BTreeMap<String, Router>,
    pub(super) members: (usize, usize),
    pub(super) counters: Counters,
    pub(super) probes: Option<Probes>,
    pub(super) sessions: Sessions,
}

/// A router of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Router {
    pub(super) at: SocketAddr,
    pub(super) has_bfd: bool,
}

impl Shown {
    /// Whether the session with the router stands. Where BIRD does not answer, none does.
    fn is_up(&self, name: &str) -> bool {
        let session = self.sessions.peers.get(name);
        session.is_some_and(|(stands, _)| *stands)
    }

    /// Whether BFD sees it.
    fn is_seen(&self, router: &Router) -> bool {
        let seen = self.sessions.bfd.get(&router.at.ip());
        seen.copied().unwrap_or_default()
    }
}

/// Answers for ever.
pub(super) async fn serve(
    listener: TcpListener,
    shown: watch::Receiver<Arc<Shown>>,
    has_metallb_names: bool,
) {
    // Clients that send no request, or do not read, keep nobody out: the oldest one gives way.
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        open.retain(|client| !client.is_finished());
        if open.len() >= MOST
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let shown = shown.clone();
        let client = tokio::spawn(async move {
            let service = service_fn(|request| {
                let shown = Arc::clone(&shown.borrow());
                async move { Ok::<_, Infallible>(answer(&request, &shown, has_metallb_names)) }
            });
            let mut server = http1::Builder::new();
            let server = server
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(5));
            let connection = server
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            tokio::time::timeout(Duration::from_secs(10), connection)
                .await
                .ok();
        });
        open.push_back(client.abort_handle());
    }
}

fn answer<B>(
    request: &Request<B>,
    shown: &Shown,
    has_metallb_names: bool,
) -> Response<Full<Bytes>> {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let is_ready = shown
        .ack
        .as_ref()
        .is_some_and(|ack| ack.file_digest.is_some());
    let (status, text) = match request.uri().path() {
        _ if !is_read => (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
        "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" if is_ready => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => (
            StatusCode::SERVICE_UNAVAILABLE,
            "no file is in force\n".to_owned(),
        ),
        "/metrics" => {
            let more = has_metallb_names.then(|| metallb_metrics(shown));
            let text = metrics(shown) + &more.unwrap_or_default();
            (StatusCode::OK, text)
        }
        "/addresses" => (
            StatusCode::OK,
            shown
                .ack
                .as_ref()
                .map(|ack| table(ack, since_1970()))
                .unwrap_or_default(),
        ),
        _ => (
            StatusCode::NOT_FOUND,
            "known are /healthz, /readyz, /metrics and /addresses\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}

fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The addresses as people read them: the address first, then its owner, then what it is on this node and for how long. `now` is
/// the time since 1970.
#[must_use]
pub fn table(ack: &Ack, now: Duration) -> String {
    let mut rows = vec![["ADDRESS", "OWNER", "HERE", "FOR", "DETAIL"].map(str::to_owned)];
    for one in &ack.addresses {
        rows.push([
            one.address.to_string(),
            one.owner.clone().unwrap_or_else(|| "-".to_owned()),
            one.state.word().to_owned(),
            age(now.saturating_sub(Duration::from_millis(one.since))),
            one.detail.clone(),
        ]);
    }
    let width = |column: usize| {
        let lengths = rows
            .iter()
            .filter_map(|row| row.get(column).map(String::len));
        lengths.max().unwrap_or_default()
    };
    let (first, second, third, fourth) = (width(0), width(1), width(2), width(3));
    let lines = rows.iter().map(|[address, owner, here, age, detail]| {
        let line =
            format!("{address:first$}  {owner:second$}  {here:third$}  {age:>fourth$}  {detail}");
        format!("{}\n", line.trim_end())
    });
    lines.chain(ack.refused.iter().map(refused)).collect()
}

/// What the table says of a file that is refused.
fn refused(refused: &Refused) -> String {
    let problems = refused.problems.iter();
    let problems = problems.map(|one| format!("  {}\n", format!("{} {}", one.at, one.why).trim()));
    format!(
        "\nThe file that is there is refused, and an earlier one counts, if there was one:\n{}",
        problems.collect::<String>()
    )
}

/// As kubectl shows how old something is.
fn age(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds}s"),
        seconds @ ..7200 => format!("{}m", seconds / 60),
        seconds @ ..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

fn metrics(shown: &Shown) -> String {
    let statuses = shown.ack.iter().flat_map(|ack| &ack.addresses);
    let announced = statuses.map(|status| {
        let mode = status.mode.unwrap_or(Mode::L2).word();
        let labels = format!("{{address=\"{}\",mode=\"{mode}\"}}", status.address);
        (labels, u64::from(status.state == State::Held))
    });
    let (alive, dead) = shown.members;
    let members = [("alive", alive), ("dead", dead)];
    let members = members.map(|(state, count)| (one("state", state), count as u64));
    let is_refused = shown.ack.as_ref().is_some_and(|ack| ack.refused.is_some());
    let counters = &shown.counters;
    let moves = counters.moves.iter();
    let moves = moves.map(|(reason, count)| (one("reason", reason), *count));
    let dropped = counters.dropped.iter();
    let dropped = dropped.map(|(why, count)| (one("reason", why.word()), *count));
    let routers = || shown.routers.iter();
    let peers = routers().map(|(name, _)| (one("peer", name), u64::from(shown.is_up(name))));
    let bfd = routers().filter(|(_, router)| router.has_bfd);
    let bfd = bfd.map(|(name, router)| (one("peer", name), u64::from(shown.is_seen(router))));
    [
        family(ANNOUNCED, announced),
        family(FILE_REFUSED, [(String::new(), u64::from(is_refused))]),
        family(MEMBERS, members),
        shown.probes.as_ref().map(histogram).unwrap_or_default(),
        family(MOVES, moves),
        family(CONFLICTS, [(String::new(), counters.conflicts)]),
        family(DROPPED, dropped),
        family(SESSION_UP, peers),
        family(BFD_UP, bfd),
    ]
    .concat()
}

/// The same under the names of MetalLB's speaker, for dashboards that use them.
fn metallb_metrics(shown: &Shown) -> String {
    let peers = shown.routers.iter();
    let peers = peers.map(|(name, router)| {
        let at = router.at.to_string();
        (one("peer", &at), u64::from(shown.is_up(name)))
    });
    let statuses = shown.ack.iter().flat_map(|ack| &ack.addresses);
    let held = statuses.filter(|status| status.state == State::Held);
    let announced = held.map(|status| {
        let protocol = match status.mode {
            Some(Mode::Bgp) => "bgp",
            Some(Mode::L2) | None => "layer2",
        };
        let (node, ip) = (&shown.node, status.address);
        let labels = format!("{{protocol=\"{protocol}\",node=\"{node}\",ip=\"{ip}\"}}");
        (labels, 1)
    });
    [
        family(METALLB_SESSION_UP, peers),
        family(METALLB_ANNOUNCED, announced),
    ]
    .concat()
}

/// How long members took to answer, as a histogram.
fn histogram(probes: &Probes) -> String {
    let mut text = family(PROBES, []);
    let name = PROBES.0;
    let mut below = 0;
    for (bound, count) in Probes::BOUNDS.iter().zip(&probes.counts) {
        below += count;
        // Writing to a String cannot fail.
        writeln!(text, "{name}_bucket{{le=\"0.{bound:03}\"}} {below}").ok();
    }
    let (count, sum) = (probes.count, probes.sum.as_secs_f64());
    writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}").ok();
    writeln!(text, "{name}_sum {sum}\n{name}_count {count}").ok();
    text
}

/// A label.
fn one(name: &str, value: &str) -> String {
    format!("{{{name}=\"{value}\"}}")
}

/// A family in the text format of Prometheus.
fn family(
    (name, kind, help): (&str, &str, &str),
    samples: impl IntoIterator<Item = (String, u64)>,
) -> String {
    let mut text = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    for (labels, value) in samples {
        // Writing to a String cannot fail.
        writeln!(text, "{name}{labels} {value}").ok();
    }
    text
}

const ANNOUNCED: (&str, &str, &str) = (
    "ballast_announced",
    "gauge",
    "Whether this node announces the address.",
);
const FILE_REFUSED: (&str, &str, &str) = (
    "ballast_announce_file_refused",
    "gauge",
    "Whether the file that is there is refused.",
);
const MEMBERS: (&str, &str, &str) = ("ballast_members", "gauge", "Members, with this one.");
const PROBES: (&str, &str, &str) = (
    "ballast_member_probe_seconds",
    "histogram",
    "How long members took to answer this one's probes.",
);
const MOVES: (&str, &str, &str) = (
    "ballast_address_moves_total",
    "counter",
    "Addresses that this node took and gave up.",
);
const CONFLICTS: (&str, &str, &str) = (
    "ballast_arp_conflicts_total",
    "counter",
    "Frames of hosts that are no members and claim an address.",
);
const DROPPED: (&str, &str, &str) = (
    "ballast_member_datagrams_dropped_total",
    "counter",
    "Datagrams that were dropped.",
);
const SESSION_UP: (&str, &str, &str) = (
    "ballast_bgp_session_up",
    "gauge",
    "Whether the session with the router stands.",
);
const BFD_UP: (&str, &str, &str) = (
    "ballast_bgp_bfd_up",
    "gauge",
    "Whether BFD sees the router.",
);

const METALLB_SESSION_UP: (&str, &str, &str) = (
    "metallb_bgp_session_up",
    "gauge",
    "BGP session state (1 is up, 0 is down).",
);
const METALLB_ANNOUNCED: (&str, &str, &str) = (
    "metallb_speaker_announced",
    "gauge",
    "Addresses that this node announces.",
);

/// Where the admin address is, as the flag has it.
pub fn parse(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "none" => Ok(None),
        _ => text
            .parse()
            .map(Some)
            .map_err(|_| "expected IP:PORT or none".to_owned()),
    }
}

/// Clients at a time.
const MOST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::Status;

    fn shown() -> Shown {
        let status = |address: &str, state, owner: Option<&str>| Status {
            address: address.parse().unwrap(),
            state,
            owner: owner.map(str::to_owned),
            since: 0,
            detail: String::new(),
            mode: Some(Mode::L2),
        };
        Shown {
            ack: Some(Ack {
                version: 1,
                file_digest: Some("sha256:ab".to_owned()),
                refused: None,
                addresses: vec![
                    status("192.0.2.10", State::Held, Some("edge1")),
                    status("2001:db8::10", State::NotReady, None),
                ],
            }),
            members: (2, 1),
            probes: Some(Probes::default()),
            ..Shown::default()
        }
    }

    #[test]
    fn the_table_has_the_address_first_and_then_its_owner() {
        let ack = shown().ack.unwrap();
        let expected = "ADDRESS       OWNER  HERE       FOR  DETAIL\n192.0.2.10    edge1  held        2h\n2001:db8::10  -      not-ready   2h\n";
        assert_eq!(table(&ack, Duration::from_secs(7_300)), expected);
        let wrong = crate::ack::Wrong {
            at: "node".to_owned(),
            why: "is empty; write a name".to_owned(),
        };
        let problems = vec![wrong];
        let refused = Ack {
            refused: Some(Refused { problems }),
            ..ack
        };
        let shown = table(&refused, Duration::from_secs(7_300));
        assert!(shown.starts_with(expected), "{shown}");
        assert!(
            shown.ends_with("  node is empty; write a name\n"),
            "{shown}"
        );
    }

    /// The first one has BFD.
    fn routers() -> BTreeMap<String, Router> {
        let routers = [
            ("tor", "10.0.0.254:179", true),
            ("core", "[2001:db8::1]:1790", false),
        ];
        let routers = routers.map(|(name, at, has_bfd)| {
            let at = at.parse().unwrap();
            (name.to_owned(), Router { at, has_bfd })
        });
        routers.into()
    }

    /// Each router of the file has its lines under its name, also where BIRD does not run.
    #[test]
    fn a_router_of_which_nothing_is_known_is_down() {
        let mut shown = shown();
        shown.routers = routers();
        let lines = |shown: &Shown| {
            let text = metrics(shown);
            let lines = text.lines().filter(|line| line.starts_with("ballast_bgp_"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let line = |metric: &str, peer: &str, value: u8| {
            format!("ballast_bgp_{metric}_up{{peer=\"{peer}\"}} {value}")
        };
        let down = [
            line("session", "core", 0),
            line("session", "tor", 0),
            line("bfd", "tor", 0),
        ];
        assert_eq!(lines(&shown), down);
        let up = |name: &str| (name.to_owned(), (true, "Established".to_owned()));
        // One that is not in the file any more has none.
        shown.sessions.peers = [up("tor"), up("another")].into();
        shown.sessions.bfd = [("10.0.0.254".parse().unwrap(), true)].into();
        let up = [
            line("session", "core", 0),
            line("session", "tor", 1),
            line("bfd", "tor", 1),
        ];
        assert_eq!(lines(&shown), up);
    }

    #[test]
    fn the_names_of_metallb_are_beside_ours() {
        let mut shown = shown();
        shown.node = "edge1".to_owned();
        shown.routers = routers();
        let peer = ("tor".to_owned(), (true, "Established".to_owned()));
        shown.sessions.peers.extend([peer]);
        let text = metallb_metrics(&shown);
        for line in [
            "metallb_bgp_session_up{peer=\"10.0.0.254:179\"} 1",
            "metallb_bgp_session_up{peer=\"[2001:db8::1]:1790\"} 0",
            "metallb_speaker_announced{protocol=\"layer2\",node=\"edge1\",ip=\"192.0.2.10\"} 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{text}");
        }
        // Only what is announced has a line, as of MetalLB.
        assert!(!text.contains("2001:db8::10"), "{text}");
    }

    #[tokio::test]
    async fn clients_that_say_nothing_keep_nobody_out() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        use tokio::net::TcpStream;

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (_shown, shows) = watch::channel(Arc::new(shown()));
        tokio::spawn(serve(listener, shows, false));
        let mut silent = Vec::new();
        for _ in 0..3 * MOST {
            silent.push(TcpStream::connect(at).await.unwrap());
        }
        let mut asking = TcpStream::connect(at).await.unwrap();
        asking
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        let answered = asking.read_to_string(&mut answer);
        let second = Duration::from_secs(1);
        tokio::time::timeout(second, answered)
            .await
            .unwrap()
            .unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    #[test]
    fn each_path_has_its_answer() {
        let ask = |path: &str, shown: &Shown| {
            let request = Request::builder().uri(path).body(()).unwrap();
            answer(&request, shown, false).status().as_u16()
        };
        for (path, before, after) in [
            ("/healthz", 200, 200),
            ("/readyz", 503, 200),
            ("/metrics", 200, 200),
            ("/addresses", 200, 200),
            ("/", 404, 404),
        ] {
            assert_eq!(ask(path, &Shown::default()), before, "{path}");
            assert_eq!(ask(path, &shown()), after, "{path}");
        }
        let post = Request::builder()
            .method("POST")
            .uri("/healthz")
            .body(())
            .unwrap();
        assert_eq!(answer(&post, &shown(), false).status(), 405);
        let text = metrics(&shown());
        assert!(
            text.contains("\nballast_announced{address=\"192.0.2.10\",mode=\"l2\"} 1\n"),
            "{text}"
        );
        assert!(
            text.contains("\nballast_members{state=\"dead\"} 1\n"),
            "{text}"
        );
        assert!(
            text.contains("\nballast_member_probe_seconds_bucket{le=\"0.005\"} 0\n"),
            "{text}"
        );
    }
}
