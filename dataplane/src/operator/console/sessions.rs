//! `show sess`: the connections and flows that there are, asked of each worker and bounded.

use std::net::SocketAddr;
use std::time::Duration;

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::plan::{Plan, Transport};
use ballast_core::text::Append;
use serde::{Serialize, Serializer};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::worker::{Order, SessionInfo, Shared, Whereabouts};

/// A connection or a flow, as it is listed.
#[derive(Debug, Serialize)]
pub(super) struct Connection {
    #[serde(serialize_with = "in_hexadecimal")]
    id: u64,
    client: SocketAddr,
    protocol: &'static str,
    frontend: Option<String>,
    service: Option<String>,
    endpoint: Option<String>,
    seconds: u64,
}

/// The number as `shutdown session` takes it. JSON's numbers are not exact to 64 bits everywhere.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn in_hexadecimal<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{id:#x}"))
}

/// Asks the workers, one after the other, until there are enough. A worker that is gone, or has no time, has none.
pub(super) async fn connections(shared: &Shared) -> Vec<Connection> {
    let mut found = Vec::new();
    let now = shared.clock.now();
    let plan = shared.live.plan();
    for (worker, inbox) in (1_u64..).zip(&shared.inboxes) {
        let most = MOST - found.len();
        if most == 0 {
            break;
        }
        let (done, told) = oneshot::channel();
        if inbox.send(Order::List { most, done }).is_err() {
            continue;
        }
        let Ok(Ok(seen)) = timeout(PATIENCE, told).await else {
            continue;
        };
        let connections = seen.into_iter().map(|seen| Connection {
            id: id(worker, seen.key.transport, seen.number),
            ..connection(&plan, seen, now)
        });
        found.extend(connections);
    }
    found
}

fn connection(plan: &Plan, seen: SessionInfo, now: Moment) -> Connection {
    let whereabouts = seen.whereabouts.as_ref();
    let endpoint = whereabouts.and_then(Whereabouts::endpoint);
    Connection {
        id: 0,
        client: seen.client,
        protocol: match seen.key.transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        },
        frontend: plan
            .frontend(&seen.key)
            .map(|frontend| frontend.name().to_string()),
        service: whereabouts.map(|at| at.service().name().to_owned()),
        endpoint: endpoint.map(|endpoint| name_of(plan, endpoint)),
        seconds: now.since(seen.began).as_secs(),
    }
}

/// The number in the list: 8 bits for the worker, 4 for the kind, 52 for the number that the worker gives.
fn id(worker: u64, transport: Transport, number: u64) -> u64 {
    let kind = u64::from(transport == Transport::Udp);
    worker << 56 | kind << 52 | number
}

/// Ends the connection or flow that is listed with this number. Returns whether there is one.
pub(super) async fn end(shared: &Shared, id: u64) -> bool {
    let transport = match id >> 52 & 0xf {
        0 => Transport::Tcp,
        _ => Transport::Udp,
    };
    let number = id & ((1 << 52) - 1);
    let numbers = (1_u64..).map(|worker| self::id(worker, transport, number));
    for (_, inbox) in numbers
        .zip(&shared.inboxes)
        .filter(|(known, _)| *known == id)
    {
        let (done, told) = oneshot::channel();
        let order = Order::End {
            transport,
            number,
            done,
        };
        if inbox.send(order).is_ok() && matches!(timeout(PATIENCE, told).await, Ok(Ok(true))) {
            return true;
        }
    }
    false
}

/// As the table names it; its address, where it does not or knows it no more.
fn name_of(plan: &Plan, endpoint: &EndpointState) -> String {
    let address = endpoint.address();
    let service = plan.service(endpoint.service().name());
    let specs = service.map(|service| &service.spec().endpoints);
    specs
        .into_iter()
        .flat_map(|specs| specs.iter())
        .find(|spec| spec.address == address)
        .and_then(|spec| spec.name.as_ref())
        .map_or_else(|| address.to_string(), ToString::to_string)
}

/// One line each, in haproxy's form.
pub(super) fn lines(connections: &[Connection], current: u32) -> String {
    let mut out = String::new();
    for connection in connections {
        let version = match connection.client {
            SocketAddr::V4(_) => "v4",
            SocketAddr::V6(_) => "v6",
        };
        let proto = connection.protocol;
        writeln!(
            out,
            "{:#x}: proto={proto}{version} src={} fe={} be={} srv={} age={}",
            connection.id,
            connection.client,
            connection.frontend.as_deref().unwrap_or("<NONE>"),
            connection.service.as_deref().unwrap_or("<NONE>"),
            connection.endpoint.as_deref().unwrap_or("<none>"),
            age(connection.seconds),
        );
    }
    if connections.len() >= MOST {
        writeln!(out, "# only {MOST} of {current} are shown");
    }
    out
}

/// The two largest units: `3s`, `1m3s`, `2h5m`, `4d1h`.
pub(crate) fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// Connections that are listed at most.
pub(super) const MOST: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_its_two_largest_units() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (63, "1m3s"),
            (3600, "1h0m"),
            (7500, "2h5m"),
            (86_400 * 4 + 3700, "4d1h"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn lines_are_haproxys_and_say_when_some_are_missing() {
        let connection = |id| Connection {
            id,
            client: "[2001:db8::1]:5".parse().unwrap(),
            protocol: "tcp",
            frontend: Some("f".into()),
            service: None,
            endpoint: None,
            seconds: 61,
        };
        assert_eq!(
            lines(&[connection(17)], 1),
            "0x11: proto=tcpv6 src=[2001:db8::1]:5 fe=f be=<NONE> srv=<none> age=1m1s\n"
        );
        let many: Vec<Connection> = (0..1000).map(connection).collect();
        let text = lines(&many, 5000);
        assert_eq!(text.lines().last(), Some("# only 1000 of 5000 are shown"));
    }
}
