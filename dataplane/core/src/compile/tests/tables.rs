//! Small random tables, and what they ask for, derived from their fields alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use crate::plan::{SocketKey, Transport};
use crate::table::{self, Format, RoutingTable};

/// A frontend of the table; the key of the map is its name.
#[derive(Clone, Debug)]
pub(super) struct FrontendSpec {
    pub(super) protocol: &'static str,
    pub(super) tls: bool,
    pub(super) binds: Vec<&'static str>,
    pub(super) service: Index,
}

#[derive(Clone, Debug)]
pub(super) struct ServiceSpec {
    pub(super) words: &'static str,
    pub(super) endpoints: BTreeMap<&'static str, EndpointSpec>,
    pub(super) reversed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct EndpointSpec {
    pub(super) state: &'static str,
    pub(super) node: Option<&'static str>,
    pub(super) weight: u16,
}

#[derive(Clone, Debug)]
pub(super) struct TableSpec {
    pub(super) frontends: BTreeMap<&'static str, FrontendSpec>,
    pub(super) services: BTreeMap<&'static str, ServiceSpec>,
}

const FRONTENDS: &[&str] = &["f0", "f1", "f2", "f3"];
const SERVICES: &[&str] = &["s0", "s1", "s2"];
const ADDRESSES: &[&str] = &[
    "10.0.0.1:80",
    "10.0.0.2:80",
    "10.0.0.3:80",
    "[2001:db8::1]:80",
];
const NODES: &[&str] = &["n0", "n1", "n2"];
const BINDS: &[&str] = &[
    "*:1",
    "127.0.0.1:2",
    "[::1]:2",
    "*:3",
    "127.0.0.1:0",
    "*:0",
    "[::]:4",
];
const SERVICE_WORDS: &[&str] = &[
    "",
    "",
    "",
    "algorithm: first,",
    "on-removed: close,",
    "tls: {insecure: true},",
    "retries: 1, on-removed: keep,",
];

fn endpoint() -> impl Strategy<Value = EndpointSpec> {
    (
        select(vec!["ready", "ready", "backup", "draining", "disabled"]),
        option::of(select(NODES)),
        select(vec![0_u16, 1, 7]),
    )
        .prop_map(|(state, node, weight)| EndpointSpec {
            state,
            node,
            weight,
        })
}

fn service() -> impl Strategy<Value = ServiceSpec> {
    let endpoints = subsequence(ADDRESSES, 0..=ADDRESSES.len());
    (
        select(SERVICE_WORDS),
        endpoints,
        vec(endpoint(), ADDRESSES.len()),
        any::<bool>(),
    )
        .prop_map(|(words, addresses, endpoints, reversed)| ServiceSpec {
            words,
            endpoints: addresses.into_iter().zip(endpoints).collect(),
            reversed,
        })
}

fn frontend() -> impl Strategy<Value = FrontendSpec> {
    (
        select(vec!["tcp", "tcp", "tcp", "tcp", "udp", "http", "tls"]),
        prop::bool::weighted(0.1),
        subsequence(BINDS, 1..=2),
        any::<Index>(),
    )
        .prop_map(|(protocol, tls, binds, service)| FrontendSpec {
            protocol,
            tls: tls && protocol == "tcp",
            binds,
            service,
        })
}

/// A table without two frontends at one address: the later one is left out.
fn table() -> impl Strategy<Value = TableSpec> {
    (
        subsequence(FRONTENDS, 0..=FRONTENDS.len()),
        vec(frontend(), FRONTENDS.len()),
        subsequence(SERVICES, 0..=SERVICES.len()),
        vec(service(), SERVICES.len()),
    )
        .prop_map(|(frontends, frontend_specs, services, service_specs)| {
            let mut taken = BTreeSet::new();
            let services: BTreeMap<_, _> = services.into_iter().zip(service_specs).collect();
            let frontends = frontends
                .into_iter()
                .zip(frontend_specs)
                .filter(|(_, frontend)| {
                    let udp = frontend.protocol == "udp";
                    let free = frontend
                        .binds
                        .iter()
                        .all(|bind| bind.ends_with(":0") || !taken.contains(&(udp, *bind)));
                    if free {
                        taken.extend(frontend.binds.iter().map(|bind| (udp, *bind)));
                    }
                    free && !services.is_empty()
                })
                .collect();
            TableSpec {
                frontends,
                services,
            }
        })
}

/// Sometimes a table differs from the previous one in one service only, as most real ones do.
pub(super) fn tables() -> impl Strategy<Value = Vec<TableSpec>> {
    let step = (table(), select(SERVICES), any::<bool>());
    vec(step, 2..6).prop_map(|steps| {
        let mut tables: Vec<TableSpec> = Vec::new();
        for (table, name, small) in steps {
            match (tables.last(), small) {
                (Some(before), true) => {
                    let mut next = before.clone();
                    if let (Some(there), Some(new)) =
                        (next.services.get_mut(name), table.services.get(name))
                    {
                        *there = new.clone();
                    }
                    tables.push(next);
                }
                _ => tables.push(table),
            }
        }
        tables
    })
}

impl TableSpec {
    pub(super) fn yaml(&self) -> String {
        let mut yaml = String::from("version: 1\nfrontends:\n");
        for (name, frontend) in &self.frontends {
            let FrontendSpec {
                protocol,
                tls,
                binds,
                ..
            } = frontend;
            let service = self.service_of(frontend);
            let leads = match *protocol {
                "tcp" | "udp" => format!("service: {service}"),
                _ => format!("default: {{service: {service}}}"),
            };
            let tls = if *tls {
                ", tls: {certificates: [{cert: c}]}"
            } else {
                ""
            };
            writeln!(
                yaml,
                "- {{name: {name}, protocol: {protocol}, bind: {binds:?}, {leads}{tls}}}"
            )
            .unwrap();
        }
        yaml.push_str(if self.frontends.is_empty() {
            "  []\nservices:\n"
        } else {
            "services:\n"
        });
        for (name, service) in &self.services {
            let mut endpoints: Vec<String> = service
                .endpoints
                .iter()
                .map(|(address, endpoint)| {
                    let EndpointSpec {
                        state,
                        node,
                        weight,
                    } = endpoint;
                    let node = node.map_or(String::new(), |node| format!(", node: {node}"));
                    format!("{{address: '{address}', state: {state}, weight: {weight}{node}}}")
                })
                .collect();
            if service.reversed {
                endpoints.reverse();
            }
            let endpoints = endpoints.join(", ");
            writeln!(
                yaml,
                "- {{name: {name}, {} endpoints: [{endpoints}]}}",
                service.words
            )
            .unwrap();
        }
        yaml.push_str(if self.services.is_empty() {
            "  []\n"
        } else {
            ""
        });
        yaml
    }

    pub(super) fn service_of(&self, frontend: &FrontendSpec) -> &'static str {
        let names: Vec<_> = self.services.keys().copied().collect();
        names[frontend.service.index(names.len())]
    }

    pub(super) fn parsed(&self) -> RoutingTable {
        table::parse(self.yaml().as_bytes(), Format::Yaml)
            .unwrap_or_else(|problems| panic!("{}\n{problems}", self.yaml()))
    }

    /// The expected sockets, derived from the table alone.
    pub(super) fn sockets(&self, ipv6: bool) -> BTreeSet<SocketKey> {
        let mut sockets = BTreeSet::new();
        for (name, frontend) in &self.frontends {
            let service = &self.services[self.service_of(frontend)];
            let answers_by_itself = !matches!(frontend.protocol, "tcp" | "udp");
            let has_endpoint = service
                .endpoints
                .values()
                .any(|endpoint| endpoint.state != "disabled");
            if !answers_by_itself && !has_endpoint {
                continue;
            }
            for bind in &frontend.binds {
                let addresses = match bind.strip_prefix("*:") {
                    Some(port) if ipv6 => vec![format!("0.0.0.0:{port}"), format!("[::]:{port}")],
                    Some(port) => vec![format!("0.0.0.0:{port}")],
                    None => vec![(*bind).to_owned()],
                };
                sockets.extend(addresses.into_iter().map(|address| SocketKey {
                    transport: match frontend.protocol {
                        "udp" => Transport::Udp,
                        _ => Transport::Tcp,
                    },
                    address: address.parse().unwrap(),
                    asked_by: bind.ends_with(":0").then(|| name.parse().unwrap()),
                }));
            }
        }
        sockets
    }

    pub(super) fn endpoints(&self) -> BTreeSet<(String, SocketAddr)> {
        self.services
            .iter()
            .flat_map(|(name, service)| {
                let addresses = service.endpoints.keys();
                addresses.map(|address| ((*name).to_owned(), address.parse().unwrap()))
            })
            .collect()
    }

    pub(super) fn nodes(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, service) in &self.services {
            let here: BTreeSet<&str> = service
                .endpoints
                .values()
                .filter_map(|endpoint| endpoint.node)
                .collect();
            for node in here {
                nodes.entry(node).or_default().push(name);
            }
        }
        nodes
    }
}
