//! What a node listens at, as one hash: of a table, and of the tables that all live nodes should have.
//!
//! A node's Lease says the hash of what is served there ([`served`]); `decide` compares it with its own ([`Expected`]).

use std::collections::BTreeMap;
use std::fmt::Write;

use ballast_core::table::{Bind, Name, RoutingTable};
use sha2::{Digest, Sha256};

use super::nodes::{Here, may_be_published};
use super::place::Site;
use super::table::{HTTP, HTTPS, Shared};
use super::{Asked, World};
use crate::settings::HTTPS_PORT;

/// The SHA-256, in hex, of what a table listens at: a line `FRONTEND BIND` for each bind of each frontend, sorted.
#[must_use]
pub fn served(table: &RoutingTable) -> String {
    let lines = table
        .frontends
        .iter()
        .flat_map(|frontend| frontend.bind.iter().map(|bind| line(&frontend.name, bind)));
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    hash(lines.iter())
}

/// What [`served`] says of each live node's table, by node.
pub(super) struct Expected(BTreeMap<String, String>);

impl Expected {
    /// Without deciding again for each node: tables differ by what is not [`Site::EVERYWHERE`] alone.
    pub(super) fn of(world: &World<'_>, shared: Shared, asked: &[Asked<'_>]) -> Self {
        let Some(leases) = &world.observed.leases else {
            return Self(BTreeMap::new());
        };
        let mut nodes = world.nodes.chosen(None);
        nodes.retain(|node| may_be_published(node) && leases.contains_key(&node.name));
        let mut lines = shared_lines(world, shared);
        for one in asked {
            let site = one
                .place
                .as_ref()
                .map_or(&Site::EVERYWHERE, |place| &place.site);
            for offer in &one.offers {
                let (name, port) = (&offer.frontend.name, offer.claim.port);
                if site.is_everywhere() {
                    lines.push((line(name, &Bind::Any { port }), None));
                    continue;
                }
                for (index, node) in nodes.iter().enumerate() {
                    let binds = site.binds(Here::Serves(node), port);
                    lines.extend(binds.iter().map(|bind| (line(name, bind), Some(index))));
                }
            }
        }
        lines.sort();
        let is_same = lines.iter().all(|(_, only_on)| only_on.is_none());
        let of_all = is_same.then(|| hash(lines.iter().map(|(line, _)| line)));
        let hashes = nodes.iter().enumerate().map(|(index, node)| {
            let here =
                |(_, only_on): &&(String, Option<usize>)| only_on.is_none_or(|only| only == index);
            let hash = || hash(lines.iter().filter(here).map(|(line, _)| line));
            (node.name.clone(), of_all.clone().unwrap_or_else(hash))
        });
        Self(hashes.collect())
    }

    pub(super) fn of_node(&self, node: &str) -> Option<&String> {
        self.0.get(node)
    }
}

/// Those of the shared ports, which are on every node.
fn shared_lines(world: &World<'_>, shared: Shared) -> Vec<(String, Option<usize>)> {
    let http_port = world.settings.flags.http_port;
    let ports = [
        (shared.http, HTTP, http_port),
        (shared.https, HTTPS, HTTPS_PORT),
    ];
    let there = ports.into_iter().filter(|(is_there, ..)| *is_there);
    there
        .filter_map(|(_, name, port)| Some((line(&name.parse().ok()?, &Bind::Any { port }), None)))
        .collect()
}

fn line(frontend: &Name, bind: &Bind) -> String {
    format!("{frontend} {bind}\n")
}

fn hash<'a>(lines: impl Iterator<Item = &'a String>) -> String {
    let mut hasher = Sha256::new();
    for line in lines {
        hasher.update(line);
    }
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        // A String takes everything.
        _ = write!(hex, "{byte:02x}");
    }
    hex
}
