//! What routers are told: the configuration that BIRD 2 is to have. The session is BIRD's; a route is in its table exactly while this
//! node can serve the address.

mod control;
mod routes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

pub use control::{Reply, Sessions, Taken, read_reply, read_sessions};
pub use routes::Routes;

use crate::file::{Advertisement, Bfd, Bgp, Community, Peer};
use crate::key::digest_of;

/// The configuration for these addresses, which this node can serve. The same addresses in any order give the same text.
#[must_use]
pub fn configuration(bgp: &Bgp, addresses: &[IpAddr]) -> String {
    let all = [Advertisement::default()];
    let advertisements = match bgp.advertisements.is_empty() {
        true => &all[..],
        false => &bgp.advertisements,
    };
    let prefixes = advertisements.iter().flat_map(|one| {
        let of_it = addresses.iter().filter(|address| one.is_of(**address));
        of_it.map(|address| prefix(*address, one))
    });
    let prefixes: BTreeSet<IpNet> = prefixes.collect();
    let mut text = format!("router id {};\n", bgp.router_id);
    text.push_str("\nprotocol device {\n}\n");
    if bgp.peers.iter().any(|peer| peer.bfd.is_some()) {
        text.push_str("\nprotocol bfd {\n}\n");
    }
    for which in ["ipv4", "ipv6"] {
        let prefixes = prefixes.iter().filter(|one| family(one.addr()) == which);
        text.push_str(&routes(which, &prefixes.collect::<Vec<_>>()));
    }
    for peer in &bgp.peers {
        let export = exported(peer, advertisements, addresses);
        text.push_str(&session(bgp, peer, &export));
    }
    let mark = digest_of(text.as_bytes());
    format!("{HEAD}log stderr all;\ndefine {MARK} = \"{mark}\";\n{text}")
}

/// The mark of a configuration: a constant in it, by which BIRD says whether it is the one that BIRD runs by.
#[must_use]
pub fn mark_of(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    lines.find_map(|line| {
        let rest = line.strip_prefix("define ")?.strip_prefix(MARK)?;
        rest.strip_prefix(" = \"")?.strip_suffix("\";")
    })
}

/// The routes in a configuration that an earlier process wrote. In one of somebody else there are none.
#[must_use]
pub fn routes_in(text: &str) -> Vec<IpNet> {
    let own = text.strip_prefix(HEAD).unwrap_or_default();
    let routes = own.lines().filter_map(|line| {
        let route = line.strip_prefix(ROUTE)?.strip_suffix(BLACKHOLE)?;
        route.parse().ok()
    });
    routes.collect()
}

/// Whether the peer is told of the address, if this node can serve it.
#[must_use]
pub fn is_told(bgp: &Bgp, peer: &Peer, address: IpAddr) -> bool {
    let mut advertisements = bgp.advertisements.iter();
    // One session has routes of one family: those of the other need a next hop that it does not know.
    address.is_ipv4() == peer.peer_address.is_ipv4()
        && (bgp.advertisements.is_empty()
            || advertisements.any(|one| one.is_for(&peer.name) && one.is_of(address)))
}

/// The attributes that an advertisement adds to a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Marks {
    local_pref: Option<u32>,
    communities: BTreeSet<Community>,
}

/// The prefixes that the peer is told, by what is added to them. Several advertisements of one prefix are one with the communities of
/// all.
fn exported(
    peer: &Peer,
    advertisements: &[Advertisement],
    addresses: &[IpAddr],
) -> BTreeMap<Marks, BTreeSet<IpNet>> {
    let mut marks: BTreeMap<IpNet, Marks> = BTreeMap::new();
    // One session has routes of one family: those of the other need a next hop that it does not know.
    let addresses = addresses
        .iter()
        .filter(|address| address.is_ipv4() == peer.peer_address.is_ipv4());
    for address in addresses {
        let told = advertisements.iter().filter(|one| one.is_for(&peer.name));
        for one in told.filter(|one| one.is_of(*address)) {
            let mark = marks.entry(prefix(*address, one)).or_default();
            mark.local_pref = mark.local_pref.or(one.local_pref);
            mark.communities.extend(&one.communities);
        }
    }
    let mut exported: BTreeMap<Marks, BTreeSet<IpNet>> = BTreeMap::new();
    for (prefix, marks) in marks {
        exported.entry(marks).or_default().insert(prefix);
    }
    exported
}

/// The prefix that stands for the address.
fn prefix(address: IpAddr, advertisement: &Advertisement) -> IpNet {
    let length = match address {
        IpAddr::V4(_) => advertisement.aggregation_length,
        IpAddr::V6(_) => advertisement.aggregation_length_v6,
    };
    // The file has lengths that the families have.
    IpNet::new(address, length).map_or_else(|_| address.into(), |net| net.trunc())
}

/// A table of our own with static routes. Blackholes: BIRD tells the peers this node as the next hop, and nothing goes to the kernel.
fn routes(family: &str, prefixes: &[&IpNet]) -> String {
    let routes = prefixes
        .iter()
        .map(|prefix| format!("{ROUTE}{prefix}{BLACKHOLE}\n"));
    let routes: String = routes.collect();
    format!(
        "
{family} table ballast_{family};
protocol static ballast_static_{family} {{
    {family} {{ table ballast_{family}; }};
{routes}}}
"
    )
}

fn session(bgp: &Bgp, peer: &Peer, export: &BTreeMap<Marks, BTreeSet<IpNet>>) -> String {
    let family = family(peer.peer_address);
    let source = peer
        .source_address
        .map(|source| format!("{source} "))
        .unwrap_or_default();
    let own = peer.local_asn.unwrap_or(bgp.my_asn);
    let keepalive = peer.keepalive_time.unwrap_or(peer.hold_time / 3);
    let seconds = |time: Duration| time.as_secs().max(1);
    // Without a hold time nothing has to keep the session alive.
    let has_end = !peer.hold_time.is_zero();
    let options = [
        Some(format!("local {source}as {own};")),
        Some(format!(
            "neighbor {} port {} as {};",
            peer.peer_address, peer.peer_port, peer.peer_asn
        )),
        peer.interface
            .as_ref()
            .map(|name| format!("interface \"{name}\";")),
        peer.router_id.map(|id| format!("router id {id};")),
        Some(
            if peer.multihop {
                "multihop;"
            } else {
                "direct;"
            }
            .to_owned(),
        ),
        peer.vrf.as_ref().map(|name| format!("vrf \"{name}\";")),
        Some(format!("hold time {};", peer.hold_time.as_secs())),
        has_end.then(|| format!("keepalive time {};", seconds(keepalive))),
        peer.connect_time.map(seconds).map(|time| {
            format!(
                "connect delay time 1; connect retry time {time}; error wait time {time}, {time};"
            )
        }),
        peer.password
            .as_ref()
            .map(|password| format!("password \"{}\";", password.text())),
        peer.graceful_restart
            .then(|| "graceful restart on;".to_owned()),
        peer.bfd.as_ref().map(bfd_of),
    ];
    let mut text = format!("\nprotocol bgp '{PREFIX}{}' {{\n", peer.name);
    for option in options.into_iter().flatten() {
        text.push_str(&format!("    {option}\n"));
    }
    text.push_str(&format!(
        "    {family} {{
        table ballast_{family};
        import none;
        export filter {{
{}            reject;
        }};
    }};
}}
",
        filter(export)
    ));
    text
}

fn filter(export: &BTreeMap<Marks, BTreeSet<IpNet>>) -> String {
    let mut text = String::new();
    for (marks, prefixes) in export {
        let prefixes: Vec<String> = prefixes.iter().map(IpNet::to_string).collect();
        let preference = marks.local_pref.map(|it| format!("bgp_local_pref = {it};"));
        let communities = marks
            .communities
            .iter()
            .map(|it| format!("{};", added(*it)));
        let then: Vec<String> = preference.into_iter().chain(communities).collect();
        text.push_str(&format!(
            "            if net ~ [ {} ] then {{\n",
            prefixes.join(", ")
        ));
        for line in then.iter().map(String::as_str).chain(["accept;"]) {
            text.push_str(&format!("                {line}\n"));
        }
        text.push_str("            }\n");
    }
    text
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ipv4" } else { "ipv6" }
}

fn bfd_of(bfd: &Bfd) -> String {
    let millis = |time: Duration| time.as_millis();
    format!(
        "bfd {{ min rx interval {} ms; min tx interval {} ms; multiplier {}; passive {}; }};",
        millis(bfd.receive_interval),
        millis(bfd.transmit_interval),
        bfd.detect_multiplier,
        if bfd.passive_mode { "on" } else { "off" }
    )
}

fn added(community: Community) -> String {
    match community {
        Community::Standard(one, two) => format!("bgp_community.add(({one}, {two}))"),
        Community::Large(one, two, three) => {
            format!("bgp_large_community.add(({one}, {two}, {three}))")
        }
    }
}

/// The beginning of the names of sessions in BIRD.
pub const PREFIX: &str = "ballast.";

/// The name of the mark of a configuration.
pub(crate) const MARK: &str = "mark_of_ballast";

const HEAD: &str =
    "# Written by ballast-controller announce, and written again when anything changes.\n";
const ROUTE: &str = "    route ";
const BLACKHOLE: &str = " blackhole;";
