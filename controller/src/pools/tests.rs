//! Pools as manifests have them, and Services in one line each.
//!
//! A Service is written `NAMESPACE/NAME PORT,PORT/udp WORD=VALUE… -> RESULT`. `=` begins a line whose Service holds the result
//! already; in other lines the result is what it is given, or `refused: TEXT`.

mod announcing;
mod giving;
mod objects;
mod ranges;
mod statuses;
mod taking;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::{Ask, Families, Held, Pool, Pools, Refusal, Taken, Terms, give, read};
use crate::allocation::NodePort;
use crate::observe::{Family, Key};

pub(super) fn object(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"))
}

/// A pool of one of the systems: `NAME BIRTH {spec}`, the birth a second of the first minute of 2026.
pub(super) fn pool(kind: &str, text: &str) -> Pool {
    let mut words = text.splitn(3, ' ');
    let mut word = || words.next().expect("NAME BIRTH {spec}");
    let (name, birth, spec) = (word(), word(), word());
    let version = match kind {
        "AddressPool" => "ballast.dev/v1",
        "IPAddressPool" => "metallb.io/v1beta1",
        _ => "crd.antrea.io/v1beta1",
    };
    let yaml = format!(
        "{{apiVersion: {version}, kind: {kind}, metadata: {{name: {name}, creationTimestamp: '2026-01-01T00:00:{birth}Z'}}, spec: {spec}}}"
    );
    read::pool(&object(&yaml)).expect("a pool")
}

/// AddressPools, one in a line.
pub(super) fn pools(lines: &str) -> Pools {
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    Pools::new(lines.map(|line| pool("AddressPool", line)).collect())
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().expect(text)
}

pub(super) fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').expect("NAMESPACE/NAME");
    Key::new(namespace, name)
}

fn ports(text: &str) -> BTreeSet<NodePort> {
    let ports = text.split(',').map(|port| match port.split_once('/') {
        Some((number, _)) => (number, true),
        None => (port, false),
    });
    let ports = ports.map(|(number, udp)| NodePort {
        number: number.parse().expect("a port"),
        udp,
    });
    ports.collect()
}

/// The Service of a line, before the arrow.
pub(super) fn ask(line: &str) -> Ask {
    let mut words = line.split_whitespace();
    let service = key(words.next().expect("a Service"));
    let mut ask = Ask {
        uid: service.to_string(),
        service,
        created: Some(0),
        labels: BTreeMap::new(),
        namespace_labels: BTreeMap::new(),
        families: Families::Single(Family::V4),
        requested: Vec::new(),
        pools: Vec::new(),
        sharing: None,
        strict: None,
        internal: false,
        ports: ports(words.next().expect("ports")),
    };
    for word in words {
        let (word, value) = word.split_once('=').unwrap_or((word, ""));
        let texts = || value.split(',').map(str::to_owned);
        let labels = || {
            value
                .split_once(':')
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
        };
        match word {
            "born" => ask.created = Some(value.parse().expect("a second")),
            "want" => ask.requested = texts().map(|text| ip(&text)).collect(),
            "pool" => ask.pools = texts().collect(),
            "key" => ask.sharing = Some(value.to_owned()),
            "strict" => ask.strict = Some(value.to_owned()),
            "label" => ask.labels.extend(labels()),
            "ns-label" => ask.namespace_labels.extend(labels()),
            "internal" => ask.internal = true,
            "any" => ask.families = Families::Any,
            "v6" => ask.families = Families::Single(Family::V6),
            "prefer" => ask.families = Families::Prefer(Family::V4),
            "prefer6" => ask.families = Families::Prefer(Family::V6),
            "require" => ask.families = Families::Require(Family::V4),
            _ => panic!("{word}"),
        }
    }
    ask
}

/// What a Service holds, from `ADDRESS,ADDRESS POOL ports`.
pub(super) fn held(ask: &Ask, result: &str) -> Held {
    let mut words = result.split_whitespace();
    let addresses = words.next().expect("addresses").split(',').map(ip);
    Held {
        addresses: addresses.collect(),
        pool: words.next().unwrap_or_default().to_owned(),
        ports: words.next().map_or_else(|| ask.ports.clone(), ports),
        terms: Terms::of(ask),
        since: ask.created,
    }
}

/// Follows the lines, one Service after the other.
#[track_caller]
pub(super) fn follow(pools: &Pools, taken: &mut Taken, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (begin, wanted) = line.split_once(" -> ").expect("an arrow");
        if let Some(begin) = begin.strip_prefix("= ") {
            let ask = ask(begin);
            taken.take(ask.service.clone(), held(&ask, wanted));
            continue;
        }
        let ask = ask(begin);
        let found = match give(pools, taken, &ask) {
            Ok(given) => {
                let text = words(&given.addresses, &given.pool, &given.refused);
                let part = given.ports.len() < ask.ports.len();
                assert_eq!(
                    part,
                    given.refused.iter().any(is_of_a_port),
                    "{line}: {given:?}"
                );
                taken.take(
                    ask.service.clone(),
                    Held {
                        addresses: given.addresses,
                        pool: given.pool,
                        ports: given.ports,
                        terms: Terms::of(&ask),
                        since: ask.created,
                    },
                );
                text
            }
            Err(refusal) => {
                taken.free(&ask.service);
                format!("refused: {refusal}")
            }
        };
        assert_eq!(found, wanted, "{line}");
    }
}

fn is_of_a_port(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::PortTaken(..) | Refusal::OwnPort(..))
}

fn words(addresses: &[IpAddr], pool: &str, refused: &[Refusal]) -> String {
    let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    let refused = refused.iter().map(|one| format!("; {one}"));
    format!(
        "{} {pool}{}",
        addresses.join(","),
        refused.collect::<String>()
    )
}
