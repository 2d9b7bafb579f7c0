//! Which addresses of pools the network is to lead to load balancer nodes, and which nodes may have each: what `run` writes for the
//! announcer, but for what the data plane of this node acknowledges.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ballast_announce::file::{LARGEST, MOST_ADDRESSES};
use serde::Serialize;
use serde_json::Value;

use super::certificate;
use super::context::Context;
use super::endpoints;
use super::grant::Grant;
use super::nodes::{self, ThisNode};
use super::notice::{About, Notice, Reason};
use super::site::ListenAt;
use crate::observe::{Family, Key, Node, Secret};
use crate::pools::{self, Announce, Announcements, NodeHere, Routers, Way};
use crate::settings::Selector;

/// The addresses that are announced, and the nodes whose announcers are members.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
pub struct Announced {
    /// Where the announcers of the other nodes reach this node.
    #[serde(skip)]
    pub at: Option<IpAddr>,
    /// Where they are: the load balancer nodes with an internal address of the same family.
    #[serde(skip)]
    pub peers: Vec<IpAddr>,
    /// In the order of the addresses.
    pub addresses: Vec<AnnouncedAddress>,
    /// The part `bgp` of the announcer's file, but for the files of BIRD. It may have passwords.
    #[serde(skip)]
    pub bgp: Option<Value>,
    /// Whether passwords of routers are still to be read.
    #[serde(skip)]
    pub lacks_passwords: bool,
}

/// An address of a pool that Services of this decision have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnnouncedAddress {
    pub address: IpAddr,
    pub mode: Mode,
    /// The interfaces of this node that may carry it; none: any that fits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// The nodes that may have it; none on a host without Kubernetes, which is the only one that it knows.
    pub nodes: Arc<[String]>,
    /// Whether no other node can serve more Services of this address, as far as endpoints decide it.
    pub is_best_here: bool,
    /// The Services at it, of which some port is open on this node.
    pub services: Vec<Key>,
}

/// How the network learns where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    L2,
    Bgp,
}

/// No password is shown.
impl fmt::Debug for Announced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.addresses).finish()
    }
}

impl Announced {
    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

/// The announced addresses, the notices about them for owners and operators, and the Secrets with passwords of routers.
pub(super) struct Outcome {
    pub(super) announced: Announced,
    pub(super) notices: Vec<Notice>,
    pub(super) secrets: BTreeSet<Key>,
}

/// Finds the addresses of these Services that are announced. Every node finds the same addresses, each with the same nodes.
pub(super) fn announced(context: &Context<'_>, grants: &[Grant]) -> Outcome {
    let objects = context.observed.pools.announcing.iter();
    let unread = &context.observed.pools.unread;
    let announcements = Announcements::read(objects.map(|object| &**object), unread);
    let mut notices = Vec::new();
    let found = find(context, &announcements, grants, &mut notices);
    let (at, peers) = members(context);
    let Routers {
        bgp,
        told,
        problems,
    } = routers(context, &announcements, &found);
    let problems = announcements.problems.iter().chain(&problems);
    notices.extend(problems.map(|problem| about_objects(problem.clone())));
    let own = own_labels(context);
    let is_host = matches!(context.nodes.here, ThisNode::Standalone);
    let addresses = found.into_iter().filter_map(|(address, found)| {
        let nodes = found.nodes()?;
        let is_somewhere = is_host || !nodes.1.is_empty();
        let mode = match found.way.mode {
            // Where no advertisement names an address, the announcer would tell it to all routers.
            Announce::Bgp if !told.contains(&address) => return None,
            Announce::Bgp => Mode::Bgp,
            _ => Mode::L2,
        };
        is_somewhere.then(|| AnnouncedAddress {
            address,
            mode,
            interfaces: found.way.interfaces(own),
            // Without an address of its own, this node cannot agree with others who has which address.
            is_best_here: is_host || at.is_some() && found.is_best_here(context, &nodes),
            services: found.open_here(context),
            nodes: nodes.1,
        })
    });
    let mut addresses: Vec<AnnouncedAddress> = addresses.collect();
    // Every node leaves out the same ones.
    let rest = addresses.split_off(fitting(&addresses));
    if !rest.is_empty() {
        notices.push(about_objects(format!(
            "{} addresses are announced by no node: {TOO_MANY}; give some pools `announce: none`, or fewer nodes",
            rest.len()
        )));
        let rest: BTreeSet<IpAddr> = rest.iter().map(|one| one.address).collect();
        notices.extend(grants.iter().filter_map(|grant| left_out(grant, &rest)));
    }
    let announced = Announced {
        at,
        peers,
        addresses,
        bgp,
        lacks_passwords: announcements
            .secrets()
            .any(|secret| !context.observed.looked_up.secrets.contains(secret)),
    };
    Outcome {
        announced,
        notices,
        secrets: announcements.secrets().cloned().collect(),
    }
}

/// How many of the addresses an announcer takes: a file that is too large would be refused whole, and what was announced before would
/// stay. What differs from node to node, as interfaces, is not weighed.
fn fitting(addresses: &[AnnouncedAddress]) -> usize {
    let sizes = addresses.iter().map(|one| {
        let names = one.nodes.iter().map(|name| name.len() + QUOTES);
        AROUND_NODES + names.sum::<usize>()
    });
    let ends = sizes.scan(0, |end, size| {
        *end += size;
        Some(*end)
    });
    let fitting = ends.take_while(|end| *end <= MOST_BYTES);
    fitting.take(MOST_ADDRESSES).count()
}

/// The bytes of the file that the addresses may take, each with its nodes. The rest is for interfaces, routers and members.
const MOST_BYTES: usize = LARGEST / 4 * 3;
/// The most bytes of an address without its nodes, and of a node around its name.
const AROUND_NODES: usize = 120;
const QUOTES: usize = 3;
const TOO_MANY: &str = "an announcer takes at most 10,000 addresses, fewer where each may be on many nodes with long names";

/// The addresses, each with the Services that have it.
fn find<'a>(
    context: &Context<'a>,
    announcements: &'a Announcements,
    grants: &'a [Grant],
    notices: &mut Vec<Notice>,
) -> BTreeMap<IpAddr, Found<'a>> {
    let mut selected = Selected(Vec::new());
    let mut ways: BTreeMap<(&str, Announce), Option<Way<'a>>> = BTreeMap::new();
    let mut found: BTreeMap<IpAddr, Found<'a>> = BTreeMap::new();
    let of_nodes = context.observed.nodes.values().flat_map(|node| {
        let addresses = node.internal.iter().chain(&node.external);
        addresses.map(move |address| (*address, &*node.name))
    });
    let of_nodes: BTreeMap<IpAddr, &str> = of_nodes.collect();
    for grant in grants.iter().filter(|grant| grant.has_ports()) {
        let Some(site) = &grant.site else { continue };
        let (ListenAt::Pool(addresses), Some(pool)) = (&site.at, &site.pool) else {
            continue;
        };
        let way = ways.entry((&pool.name, pool.announce));
        let way = way.or_insert_with(|| announcements.way(&pool.name, pool.announce));
        let Some(way) = way else {
            if pool.announce == Announce::Advertised {
                notices.push(not_selected(grant, &pool.name));
            }
            continue;
        };
        let nodes = selected.nodes(context, site.chosen.as_ref(), way);
        // A loopback address never leaves its host, and the announcer refuses a file that has one.
        for address in addresses.iter().filter(|address| !address.is_loopback()) {
            if let Some(node) = of_nodes.get(address) {
                notices.push(of_a_node(grant, *address, node));
                continue;
            }
            let new = || Found {
                way: way.clone(),
                grants: Vec::new(),
            };
            let found = found.entry(*address).or_insert_with(new);
            found.grants.push((grant, nodes.clone()));
        }
    }
    found
}

fn not_selected(grant: &Grant, pool: &str) -> Notice {
    let message = format!(
        "the addresses of pool {pool} are not announced: no L2Advertisement and no BGPAdvertisement is for it; add its name to `ipAddressPools` of one"
    );
    let about = About::Service(grant.service().key.clone());
    Notice::warning(about, Reason::NotAnnounced, message)
}

fn of_a_node(grant: &Grant, address: IpAddr, node: &str) -> Notice {
    let message = format!(
        "{address} is not announced: it is an address of node {node}, which would lose it to another node; list it in `reserve` of its pool, and make the Service anew"
    );
    let about = About::Service(grant.service().key.clone());
    Notice::warning(about, Reason::NotAnnounced, message)
}

/// What the owner of a Service reads that has addresses beyond those which an announcer takes.
fn left_out(grant: &Grant, rest: &BTreeSet<IpAddr>) -> Option<Notice> {
    let ListenAt::Pool(addresses) = &grant.site.as_ref()?.at else {
        return None;
    };
    let its = addresses.iter().filter(|one| rest.contains(*one));
    let its: Vec<String> = its.map(ToString::to_string).collect();
    let about = About::Service(grant.service().key.clone());
    (grant.has_ports() && !its.is_empty()).then(|| {
        let message = format!(
            "no node announces {}: {TOO_MANY}, of which the lowest are taken; ask the operator to give some pools `announce: none`",
            its.join(", ")
        );
        Notice::warning(about, Reason::NotAnnounced, message)
    })
}

fn about_objects(problem: String) -> Notice {
    Notice::warning(
        About::Flag("--announce-file"),
        Reason::NotAnnounced,
        problem,
    )
}

/// The routers of this node, if there are any and something is told to routers.
fn routers(
    context: &Context<'_>,
    announcements: &Announcements,
    found: &BTreeMap<IpAddr, Found<'_>>,
) -> Routers {
    let mut pools: Vec<(Way<'_>, Vec<IpAddr>)> = Vec::new();
    let of_routers = found
        .iter()
        .filter(|(_, found)| found.way.mode == Announce::Bgp);
    for (address, found) in of_routers {
        match pools.iter_mut().find(|(way, _)| *way == found.way) {
            Some((_, addresses)) => addresses.push(*address),
            None => pools.push((found.way.clone(), vec![*address])),
        }
    }
    if pools.is_empty() && !announcements.has_routers() {
        return Routers::default();
    }
    let observed = context.observed;
    let password = |key: &Key| match observed.secrets.get(key) {
        Some(Secret::Readable(material)) => {
            let password = material.entry("password")?;
            String::from_utf8(password.to_vec()).ok()
        }
        _ => None,
    };
    let own = match context.nodes.here {
        ThisNode::LoadBalancer(node) => nodes::first(&node.internal, Family::V4),
        ThisNode::Standalone | ThisNode::NotSelected => None,
    };
    let here = NodeHere {
        labels: own_labels(context),
        router_id: own.map(|own| own.to_string()),
    };
    let mut routers = announcements.routers(&here, &pools, password);
    let problems = &mut routers.problems;
    for secret in announcements.secrets() {
        if certificate::is_read(context, secret) && password(secret).is_none() {
            problems.push(format!(
                "a router is left out: the Secret {secret} cannot be read, or has no text `password`; bind the role ballast-tls in its namespace"
            ));
        }
    }
    if routers.bgp.is_none() && !pools.is_empty() {
        let count = pools.iter().map(|(_, addresses)| addresses.len()).sum();
        problems.push(format!(
            "{} told to no router by this node: no BGPPeer, and no router of an Announcement, is for it and complete",
            pools::are(count)
        ));
    }
    routers
}

/// The labels of this node.
fn own_labels<'a>(context: &Context<'a>) -> &'a BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    match context.nodes.here {
        ThisNode::LoadBalancer(node) => &node.labels,
        ThisNode::Standalone | ThisNode::NotSelected => &NONE,
    }
}

/// Where the announcers reach this node, and the others.
fn members(context: &Context<'_>) -> (Option<IpAddr>, Vec<IpAddr>) {
    let own = context.settings.flags.node_name.as_deref();
    let own = match context.nodes.here {
        ThisNode::LoadBalancer(node) => Some(node),
        // The announcer of a node that is no load balancer any more goes on as a member, and holds nothing.
        ThisNode::NotSelected => own.and_then(|own| context.observed.nodes.get(own)),
        ThisNode::Standalone => None,
    };
    let Some(own) = own else {
        return (None, Vec::new());
    };
    let others = context.nodes.selected(None).into_iter();
    let others: Vec<_> = others.filter(|node| node.name != own.name).collect();
    // All nodes choose the same family, however each lists its addresses: the first one that all of them have.
    let has = |node: &Node, family| nodes::first(&node.internal, family).is_some();
    let is_shared =
        |family: &Family| has(own, *family) && others.iter().all(|node| has(node, *family));
    let shared = [Family::V4, Family::V6].into_iter().find(is_shared);
    let own_first = || own.internal.first().map(|first| Family::of(*first));
    let Some(family) = shared.or_else(own_first) else {
        return (None, Vec::new());
    };
    let Some(at) = nodes::first(&own.internal, family) else {
        return (None, Vec::new());
    };
    let peers = others
        .iter()
        .filter_map(|node| nodes::first(&node.internal, family));
    let mut peers: Vec<IpAddr> = peers.filter(|peer| *peer != at).collect();
    peers.sort_unstable();
    peers.dedup();
    (Some(at), peers)
}

/// The nodes of each selector, found once: thousands of addresses have the same ones.
struct Selected<'a>(Vec<(Option<Selector>, Way<'a>, Nodes<'a>)>);

/// Some nodes, and their names.
#[derive(Clone)]
struct Nodes<'a>(Arc<[&'a Node]>, Arc<[String]>);

impl<'a> Nodes<'a> {
    fn of(nodes: impl Iterator<Item = &'a Node>) -> Self {
        let nodes: Arc<[&Node]> = nodes.collect();
        let names = nodes.iter().map(|node| node.name.clone()).collect();
        Self(nodes, names)
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|node| node.name == name)
    }
}

impl<'a> Selected<'a> {
    fn nodes(
        &mut self,
        context: &Context<'a>,
        chosen: Option<&Selector>,
        way: &Way<'a>,
    ) -> Nodes<'a> {
        let is_known =
            |(of, by, _): &&(Option<Selector>, Way<'_>, _)| of.as_ref() == chosen && by == way;
        if let Some((.., nodes)) = self.0.iter().find(is_known) {
            return nodes.clone();
        }
        let nodes = context.nodes.selected(chosen).into_iter();
        let nodes =
            nodes.filter(|node| nodes::may_hold_addresses(node) && way.is_for(&node.labels));
        let nodes = Nodes::of(nodes);
        self.0.push((chosen.cloned(), way.clone(), nodes.clone()));
        nodes
    }
}

/// An address, and the Services that have it, each with the nodes that it chooses.
struct Found<'a> {
    way: Way<'a>,
    grants: Vec<(&'a Grant, Nodes<'a>)>,
}

impl<'a> Found<'a> {
    /// The nodes that most of the Services choose: all of them, unless Services with one address choose different nodes.
    fn nodes(&self) -> Option<Nodes<'a>> {
        let (_, first) = self.grants.first()?;
        if self
            .grants
            .iter()
            .all(|(_, one)| Arc::ptr_eq(&one.1, &first.1))
        {
            return Some(first.clone());
        }
        let mut all: BTreeMap<&str, (&'a Node, usize)> = BTreeMap::new();
        for node in self.grants.iter().flat_map(|(_, nodes)| nodes.0.iter()) {
            all.entry(&node.name).or_insert((node, 0)).1 += 1;
        }
        let most = all.values().map(|(_, count)| *count).max()?;
        let chosen = all.into_values().filter(|(_, count)| *count == most);
        Some(Nodes::of(chosen.map(|(node, _)| node)))
    }

    /// Whether this node can serve as many of the Services as any other: an address is where all of them can be served, else where
    /// most can. Endpoints decide it for the Services of which each node serves only the endpoints on itself.
    fn is_best_here(&self, context: &Context<'_>, nodes: &Nodes<'_>) -> bool {
        let ThisNode::LoadBalancer(own) = context.nodes.here else {
            return false;
        };
        let is_strict = |grant: &Grant| {
            let place = grant.plan.placement.as_ref();
            place.is_some_and(|place| place.strict)
        };
        let grants = self.grants.iter().map(|(grant, _)| *grant);
        let (strict, others): (Vec<&Grant>, Vec<&Grant>) = grants.partition(|one| is_strict(one));
        let serving = strict.iter().map(|grant| {
            let slices = context.slices.of_service(&grant.service().key);
            endpoints::serving(slices, &nodes.0)
        });
        let serving: Vec<BTreeSet<&str>> = serving.collect();
        let served = |node: &Node| {
            let here = serving.iter().filter(|of| of.contains(&*node.name));
            others.len() + here.count()
        };
        let here = served(own);
        let is_most = || nodes.0.iter().all(|node| served(node) <= here);
        nodes.has(&own.name) && here > 0 && (strict.is_empty() || is_most())
    }

    fn open_here(&self, context: &Context<'_>) -> Vec<Key> {
        let open = self.grants.iter().filter(|(grant, _)| {
            let mut here = grant.here(context);
            here.any(|port| !port.is_closed && !port.binds.is_empty())
        });
        open.map(|(grant, _)| grant.service().key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::decide::decide;
    use crate::observe::Observed;
    use crate::settings::Settings;

    #[test]
    fn a_file_of_as_many_addresses_as_are_kept_is_taken() {
        use super::{AnnouncedAddress, LARGEST, MOST_ADDRESSES, Mode, fitting};
        use ballast_announce::file::parse;
        use serde_json::json;

        let names = |count: u32| {
            (0..count).map(|number| format!("ip-10-0-{number:03}-3.eu-central-1.compute.internal"))
        };
        for (count, kept) in [(8, MOST_ADDRESSES), (24, MOST_ADDRESSES), (100, 2_665)] {
            let one = |number: u32| AnnouncedAddress {
                address: std::net::Ipv6Addr::from(u128::MAX - u128::from(number) - (0xff << 120))
                    .into(),
                mode: Mode::Bgp,
                interfaces: Vec::new(),
                nodes: names(count).collect(),
                is_best_here: false,
                services: Vec::new(),
            };
            let all: Vec<_> = (0..10_001).map(one).collect();
            assert_eq!(fitting(&all), kept, "{count} nodes");
            let addresses = all.iter().take(kept).map(|one| {
                json!({"address": one.address, "mode": "l2", "nodes": one.nodes, "ready": false})
            });
            let addresses: Vec<_> = addresses.collect();
            let text = json!({"version": 1, "node": "a", "addresses": addresses}).to_string();
            assert!(text.len() <= LARGEST);
            let file = parse(text.as_bytes()).expect("a file");
            assert_eq!(file.addresses.len(), kept);
        }
    }

    #[test]
    fn who_owns_a_service_reads_that_its_address_is_one_too_many() {
        let mut manifests = "kind: Node
metadata: {name: edge1, labels: {role: loadbalancer}}
status: {addresses: [{type: InternalIP, address: 10.0.0.1}]}
---
kind: AddressPool
apiVersion: ballast.dev/v1
metadata: {name: edge}
spec: {addresses: [192.168.0.0/16]}
"
        .to_owned();
        for number in 0..=super::MOST_ADDRESSES {
            manifests.push_str(&format!(
                "---\n{{kind: Service, metadata: {{name: s{number:05}, namespace: shop}}, spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}}}\n"
            ));
        }
        let mut settings = Settings::without_flags();
        settings.flags.node_name = Some("edge1".to_owned());
        let desired = decide(&Observed::of(&manifests), &settings);
        assert_eq!(desired.announced.addresses.len(), super::MOST_ADDRESSES);
        let told = desired.notices.iter().chain(&desired.report.notices);
        let told: Vec<_> = told
            .filter(|notice| notice.message.contains("192.168.39.16:"))
            .collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(format!("{told:?}").contains("s10000"), "{told:?}");
    }
}
