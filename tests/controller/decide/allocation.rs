//! What Services are given: nobody loses anything by what others do, whatever happens in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ballast_controller::allocation::{Allocation, At, NodePort};
use ballast_controller::decide::{Allotment, Desired, Ingress, Reason, Verdict, decide};
use ballast_controller::observe::{Key, Observed};
use ballast_controller::settings::{Role, Settings};
use ballast_core::table::RoutingTable;
use proptest::prelude::*;

use super::{give, settings};

/// A cluster with two load balancer nodes, and the Services in it.
#[derive(Clone, Default)]
struct Cluster {
    services: BTreeMap<String, Wish>,
    observed: Observed,
    created: u32,
    /// How often Services were edited.
    edited: usize,
    /// Which of [`POOLS`] there are.
    pools: usize,
}

/// What a Service asks for.
#[derive(Clone, Debug, PartialEq)]
struct Wish {
    ports: BTreeSet<u16>,
    annotation: &'static str,
    balanced: bool,
    /// Its age: those of lower numbers are older.
    created: u32,
}

#[derive(Clone, Debug)]
enum Step {
    /// A Service is made, or edited if it exists.
    Apply(u8, BTreeSet<u16>, usize),
    Delete(u8),
    /// Pools are made, edited and deleted.
    Pools(usize),
    /// Another publisher leads: it knows what the statuses say.
    Restart,
}

impl Cluster {
    /// Lets the publisher see the Services, and gives them what it decides.
    fn pass(&mut self) -> Desired {
        let mut observed = Observed::default();
        let mut text = NODES.to_owned() + POOLS[self.pools];
        for (name, wish) in &self.services {
            text.push_str(&wish.manifest(name));
        }
        assert_eq!(observed.take_file("x.yaml", &text), []);
        for (key, service) in &mut observed.services {
            let before = self.observed.services.get(key);
            if let Some(before) = before.filter(|before| before.uid == service.uid) {
                let service = Arc::make_mut(service);
                service.allocated.clone_from(&before.allocated);
                service.ingress.clone_from(&before.ingress);
                service.status_managers.clone_from(&before.status_managers);
            }
        }
        let desired = decide(&observed, &publisher());
        for status in &desired.statuses {
            let Some(service) = observed.services.get_mut(&status.service) else {
                continue;
            };
            let service = Arc::make_mut(service);
            if !matches!(status.allotment, Some(Allotment::Given(_))) {
                service.allocated = None;
            }
            let published = status.ingress.iter().map(|one| match one {
                Ingress::Ip(address) => address.to_string(),
                Ingress::Hostname(name) => name.clone(),
            });
            service.ingress = published.collect();
            service.status_managers.insert("ballast".to_owned());
        }
        give(&mut observed, &publisher(), 1);
        self.observed = observed;
        desired
    }

    /// Decides until nothing more changes: what one Service gives up, another one may get by the next decision.
    fn settle(&mut self) -> Desired {
        for _ in 0..MOST_PASSES {
            let before = self.given();
            let desired = self.pass();
            if self.given() == before {
                return desired;
            }
        }
        panic!("the allocation changes for ever");
    }

    fn given(&self) -> BTreeMap<Key, Allocation> {
        let services = self.observed.services.iter();
        let given = services.filter_map(|(key, service)| {
            Some((key.clone(), service.allocated.clone()?.allocation))
        });
        given.collect()
    }

    fn table(&self, node: &str) -> RoutingTable {
        let desired = decide(&self.observed, &on(node).in_role(Role::Node));
        RoutingTable::clone(&desired.table.expect("a load balancer"))
    }
}

impl Wish {
    fn manifest(&self, name: &str) -> String {
        let namespace = namespace(name);
        let kind = if self.balanced {
            "LoadBalancer"
        } else {
            "ClusterIP"
        };
        let ports = self
            .ports
            .iter()
            .map(|port| format!("{{name: p{port}, port: {port}}}"));
        let ports = ports.collect::<Vec<_>>().join(", ");
        // Between routes the oldest Service wins: here each has its own.
        let annotation = self.annotation.replace("/docs", &format!("/{name}"));
        let created = self.created;
        format!(
            "---\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}, uid: u{created}, annotations: {{{annotation}}}, creationTimestamp: '2026-01-01T00:{:02}:{:02}Z'}}\nspec: {{type: {kind}, ports: [{ports}]}}\n",
            created / 60,
            created % 60
        )
    }
}

fn namespace(name: &str) -> &'static str {
    if name < "s4" { "shop" } else { "bank" }
}

fn publisher() -> Settings {
    on("lb1").in_role(Role::Publisher)
}

fn on(node: &str) -> Settings {
    settings(&[format!("--node-name={node}")]).expect("settings")
}

fn step() -> impl Strategy<Value = Step> {
    let ports = prop::collection::btree_set(prop::sample::select(&[80_u16, 81, 82, 443][..]), 1..3);
    let annotation = 0..ANNOTATIONS.len();
    prop_oneof![
        6 => (0_u8..8, ports, annotation).prop_map(|(name, ports, annotation)| Step::Apply(name, ports, annotation)),
        2 => (0_u8..8).prop_map(Step::Delete),
        2 => (0..POOLS.len()).prop_map(Step::Pools),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_given_stays_whatever_others_do(steps in prop::collection::vec(step(), 1..25)) {
        let mut cluster = Cluster::default();
        for step in steps {
            let before = cluster.given();
            let mut touched = None;
            match &step {
                Step::Apply(name, ports, annotation) => {
                    let name = format!("s{name}");
                    cluster.created += 1;
                    let created = cluster.services.get(&name).map(|wish| wish.created);
                    cluster.edited += usize::from(created.is_some());
                    let wish = Wish {
                        ports: ports.clone(),
                        annotation: ANNOTATIONS[*annotation],
                        balanced: !ANNOTATIONS[*annotation].contains("path"),
                        created: created.unwrap_or(cluster.created),
                    };
                    touched = Some(Key::new(namespace(&name), &name));
                    cluster.services.insert(name, wish);
                }
                Step::Delete(name) => {
                    let name = format!("s{name}");
                    touched = Some(Key::new(namespace(&name), &name));
                    cluster.services.remove(&name);
                }
                Step::Pools(pools) => cluster.pools = *pools,
                Step::Restart => {}
            }
            let desired = cluster.settle();
            let after = cluster.given();
            for (key, given) in &before {
                if touched.as_ref() == Some(key) {
                    continue;
                }
                let annotation = cluster.services[&key.name].annotation;
                if given.pool.is_none() && annotation.contains("address-pool") {
                    // It has addresses of nodes until there is the pool that it names.
                    continue;
                }
                // It keeps what it has, and may get what it waited for.
                let now = after.get(key);
                let now = now.unwrap_or_else(|| panic!("{key} lost {given} by {step:?}"));
                prop_assert_eq!(&now.at, &given.at);
                prop_assert!(now.ports.is_superset(&given.ports), "{} {} {:?}", key, now, step);
                prop_assert!(now.routes.is_superset(&given.routes), "{} {} {:?}", key, now, step);
            }
            no_port_twice(&cluster, &after)?;
            no_address_twice(&cluster, &after)?;
            reasons(&desired)?;
            // Another leader, which reads the statuses alone, gives the same.
            cluster.settle();
            prop_assert_eq!(cluster.given(), after);
        }
    }
}

/// No two Services have one port of an address of a pool, and none is at an address of another without its key.
fn no_address_twice(
    cluster: &Cluster,
    given: &BTreeMap<Key, Allocation>,
) -> Result<(), TestCaseError> {
    let mut ports = BTreeSet::new();
    let mut keys = BTreeMap::new();
    for (key, allocation) in given {
        let (Some(_), At::Addresses(addresses)) = (&allocation.pool, &allocation.at) else {
            continue;
        };
        let annotation = cluster.services[&key.name].annotation;
        let sharing = annotation.contains("sharing-key").then_some(annotation);
        for address in addresses {
            for port in &allocation.ports {
                prop_assert!(
                    ports.insert((*address, *port)),
                    "{} {} twice",
                    address,
                    port
                );
            }
            let first: &mut Vec<_> = keys.entry(*address).or_default();
            first.push((key.clone(), sharing));
        }
    }
    for (address, holders) in keys.iter().filter(|(_, holders)| holders.len() > 1) {
        // One that gave its key up keeps the address.
        let with_key = holders.iter().filter(|(_, sharing)| sharing.is_some());
        prop_assert!(
            with_key.count() + cluster.edited >= holders.len(),
            "{}: {:?}",
            address,
            holders
        );
    }
    Ok(())
}

/// No node has two Services at one port, and each node serves all that was given on it.
fn no_port_twice(
    cluster: &Cluster,
    given: &BTreeMap<Key, Allocation>,
) -> Result<(), TestCaseError> {
    for node in ["lb1", "lb2"] {
        let table = cluster.table(node);
        let mut seen = BTreeSet::new();
        for frontend in table.frontends.iter() {
            for bind in frontend.bind.iter() {
                prop_assert!(seen.insert(bind.to_string()), "{} twice on {}", bind, node);
            }
        }
        for (key, allocation) in given.iter().filter(|(_, one)| one.at == At::Node) {
            let wish = &cluster.services[&key.name];
            if wish.annotation.contains("node-selector") && !wish.annotation.ends_with(node) {
                continue;
            }
            if is_taken(cluster, given, key, node) {
                continue;
            }
            for NodePort { number, .. } in &allocation.ports {
                let name = format!("{key}:{number}").replace('/', ".");
                let mut frontends = table.frontends.iter();
                prop_assert!(
                    frontends.any(|one| *one.name == *name),
                    "{} on {}",
                    name,
                    node
                );
            }
        }
    }
    Ok(())
}

/// Whether another Service that this node serves was given a port of this one: both were given it at different nodes.
fn is_taken(cluster: &Cluster, given: &BTreeMap<Key, Allocation>, key: &Key, node: &str) -> bool {
    let is_here = |name: &str| {
        let annotation = cluster.services[name].annotation;
        !annotation.contains("node-selector") || annotation.ends_with(node)
    };
    let own = &given[key];
    given.iter().any(|(other, allocation)| {
        other != key && is_here(&other.name) && !allocation.ports.is_disjoint(&own.ports)
    })
}

/// Whatever waits says why.
fn reasons(desired: &Desired) -> Result<(), TestCaseError> {
    for status in &desired.statuses {
        if status.verdict == Verdict::Pending {
            prop_assert!(!status.why.is_empty());
            let has_no_port = match &status.allotment {
                Some(Allotment::Failed(_)) => true,
                // It keeps the addresses of a pool while others have every port that it asks for.
                Some(Allotment::Given(kept)) => kept.pool.is_some() && kept.ports.is_empty(),
                None => false,
            };
            prop_assert!(has_no_port, "{:?}", status);
            let mut notices = desired.notices.iter();
            prop_assert!(notices.any(|notice| notice.reason == Reason::AllocationFailed));
        }
    }
    Ok(())
}

#[test]
fn an_older_service_that_adds_a_port_of_a_younger_one_keeps_what_it_has_and_gets_the_reason() {
    let mut cluster = Cluster::default();
    let wish = |ports: &[u16], created| Wish {
        ports: ports.iter().copied().collect(),
        annotation: "",
        balanced: true,
        created,
    };
    cluster.services.insert("s0".to_owned(), wish(&[80], 0));
    cluster.services.insert("s5".to_owned(), wish(&[8443], 1));
    cluster.settle();
    cluster
        .services
        .insert("s0".to_owned(), wish(&[80, 8443], 0));
    let desired = cluster.settle();
    let notices: Vec<String> = desired.notices.iter().map(ToString::to_string).collect();
    assert_eq!(
        notices,
        [
            "Warning AllocationFailed service shop/s0: Failed to allocate port 8443/TCP for \"shop/s0\": it is taken by bank/s5; the Service keeps its other ports"
        ]
    );
    let table = cluster.table("lb1");
    let names: Vec<&str> = table.frontends.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["bank.s5:8443", "shop.s0:80"]);
    // The port comes as soon as it is free.
    cluster.services.remove("s5");
    cluster.settle();
    let given = &cluster.given()[&Key::new("shop", "s0")];
    assert_eq!(given.to_string(), "addresses=node ports=80/TCP,8443/TCP");
}

/// Also by an edit that leaves it no port of its own: then it has its address, and waits.
#[test]
fn an_older_service_takes_no_port_from_one_that_shares_its_address() {
    let mut cluster = Cluster {
        pools: 1,
        ..Cluster::default()
    };
    let wish = |port, created| Wish {
        ports: BTreeSet::from([port]),
        annotation: "ballast.dev/sharing-key: k",
        balanced: true,
        created,
    };
    let [older, younger] = [Key::new("shop", "s0"), Key::new("bank", "s5")];
    let given = |cluster: &Cluster, key| cluster.given().get(key).map(ToString::to_string);
    cluster.services.insert("s0".to_owned(), wish(81, 0));
    cluster.settle();
    cluster.services.insert("s5".to_owned(), wish(82, 1));
    cluster.settle();
    let alone = "addresses=192.0.2.1 pool=edge";
    for (key, port) in [(&older, 81), (&younger, 82)] {
        let text = given(&cluster, key);
        assert_eq!(text, Some(format!("{alone} ports={port}/TCP")));
    }
    for (edited, created, port) in [("s0", 0, 82), ("s5", 1, 81)] {
        let before = cluster.clone();
        cluster
            .services
            .insert(edited.to_owned(), wish(port, created));
        // By several decisions, each of which reads the statuses that the one before wrote.
        for _ in 0..3 {
            let desired = cluster.settle();
            reasons(&desired).expect("a reason");
            let (edited, other) = match created {
                0 => (&older, &younger),
                _ => (&younger, &older),
            };
            assert_eq!(given(&cluster, edited).as_deref(), Some(alone));
            assert_eq!(given(&cluster, other), given(&before, other));
            let mut statuses = desired.statuses.iter();
            let status = statuses.find(|one| one.service == *edited).expect("it");
            assert_eq!(status.verdict, Verdict::Pending);
            assert!(status.ingress.is_empty());
        }
        cluster = before;
    }
}

#[test]
fn routes_that_have_a_shared_port_keep_it_from_a_service_that_is_older_and_asks_later() {
    let mut cluster = Cluster::default();
    let balanced = |ports: &[u16]| Wish {
        ports: ports.iter().copied().collect(),
        annotation: "",
        balanced: true,
        created: 0,
    };
    let routed = Wish {
        ports: BTreeSet::from([8080]),
        annotation: "ballast.dev/path: /docs",
        balanced: false,
        created: 1,
    };
    cluster.services.insert("s0".to_owned(), balanced(&[81]));
    cluster.services.insert("s5".to_owned(), routed.clone());
    cluster.settle();
    let docs = Key::new("bank", "s5");
    assert_eq!(
        cluster.given()[&docs].to_string(),
        "addresses=node routes=80/TCP"
    );
    cluster
        .services
        .insert("s0".to_owned(), balanced(&[80, 81]));
    cluster.settle();
    assert_eq!(
        cluster.given()[&docs].to_string(),
        "addresses=node routes=80/TCP"
    );
    let web = &cluster.given()[&Key::new("shop", "s0")];
    assert_eq!(web.to_string(), "addresses=node ports=81/TCP");
    // And the other way round.
    cluster.services.remove("s5");
    cluster.settle();
    cluster.services.insert("s5".to_owned(), routed);
    let desired = cluster.settle();
    assert_eq!(cluster.given().get(&docs), None);
    let status = desired.statuses.iter().find(|one| one.service == docs);
    let why = status.map(|status| status.why.as_str());
    assert_eq!(why, Some("port 80/TCP is taken by shop/s0"));
}

#[test]
fn a_value_that_cannot_be_read_costs_routes_no_shared_port() {
    let mut cluster = Cluster::default();
    let routed = |annotation| Wish {
        ports: BTreeSet::from([8080]),
        annotation,
        balanced: false,
        created: 1,
    };
    let balanced = Wish {
        ports: BTreeSet::from([80]),
        annotation: "",
        balanced: true,
        created: 0,
    };
    let docs = Key::new("bank", "s5");
    let given = "addresses=node routes=80/TCP";
    cluster
        .services
        .insert("s5".to_owned(), routed("ballast.dev/path: /docs"));
    cluster.settle();
    assert_eq!(cluster.given()[&docs].to_string(), given);
    let typo = "ballast.dev/path: /docs, ballast.dev/source-ranges: 10.0.0.0/x";
    cluster.services.insert("s5".to_owned(), routed(typo));
    cluster.services.insert("s0".to_owned(), balanced);
    let desired = cluster.settle();
    assert_eq!(cluster.given()[&docs].to_string(), given);
    let status = desired.statuses.iter().find(|one| one.service == docs);
    assert_eq!(status.map(|status| status.verdict), Some(Verdict::Routed));
    let web = Key::new("shop", "s0");
    assert_eq!(cluster.given().get(&web), None, "the port is not free");
    // An annotation that asks for something else gives it up.
    let gone = "ballast.dev/source-ranges: 10.0.0.0/8";
    cluster.services.insert("s5".to_owned(), routed(gone));
    cluster.settle();
    assert_eq!(
        cluster.given()[&web].to_string(),
        "addresses=node ports=80/TCP"
    );
}

#[test]
fn an_internal_service_keeps_no_shared_port_for_a_value_that_cannot_be_read() {
    let mut cluster = Cluster::default();
    let routed = |annotation| Wish {
        ports: BTreeSet::from([8080]),
        annotation,
        balanced: false,
        created: 1,
    };
    let (docs, web) = (Key::new("bank", "s5"), Key::new("shop", "s0"));
    cluster
        .services
        .insert("s5".to_owned(), routed("ballast.dev/host: a.test"));
    cluster.settle();
    assert!(cluster.given().contains_key(&docs));
    let balanced = Wish {
        ports: BTreeSet::from([80]),
        annotation: "",
        balanced: true,
        created: 0,
    };
    cluster.services.insert("s0".to_owned(), balanced);
    let unread = "ballast.dev/host: a.test, ballast.dev/internal: perhaps";
    let internal = "ballast.dev/host: a.test, ballast.dev/internal: 'true', ballast.dev/canary-of: web, ballast.dev/canary-weight: lots";
    for (annotation, keeps) in [(unread, true), (internal, false)] {
        cluster.services.insert("s5".to_owned(), routed(annotation));
        cluster.settle();
        assert_eq!(cluster.given().contains_key(&docs), keeps, "{annotation}");
        assert_eq!(cluster.given().contains_key(&web), !keeps, "{annotation}");
    }
}

#[test]
fn a_value_that_cannot_be_read_costs_a_service_no_port() {
    let mut cluster = Cluster::default();
    let wish = |annotation, created| Wish {
        ports: BTreeSet::from([80, 81]),
        annotation,
        balanced: true,
        created,
    };
    cluster.services.insert("s0".to_owned(), wish("", 1));
    cluster.settle();
    // Older, and of another namespace.
    cluster.services.insert("s5".to_owned(), wish("", 0));
    let broken = "ballast.dev/source-ranges: 10.0.0/8";
    cluster.services.insert("s0".to_owned(), wish(broken, 1));
    for _ in 0..2 {
        cluster.settle();
        let given = cluster.given();
        let of = |namespace, name| {
            given
                .get(&Key::new(namespace, name))
                .map(ToString::to_string)
        };
        assert_eq!(
            of("shop", "s0").as_deref(),
            Some("addresses=node ports=80/TCP,81/TCP")
        );
        assert_eq!(of("bank", "s5"), None);
    }
    cluster.services.insert("s0".to_owned(), wish("", 1));
    cluster.settle();
    assert_eq!(cluster.table("lb1").frontends.len(), 2);
}

#[test]
fn services_that_meet_on_a_node_later_are_served_there_by_who_has_the_port_longer() {
    let mut cluster = Cluster::default();
    let wish = |annotation, created| Wish {
        ports: BTreeSet::from([80]),
        annotation,
        balanced: true,
        created,
    };
    let selector = [
        "ballast.dev/node-selector: only=lb1",
        "ballast.dev/node-selector: only=lb2",
    ];
    cluster
        .services
        .insert("s0".to_owned(), wish(selector[0], 0));
    cluster
        .services
        .insert("s1".to_owned(), wish(selector[1], 1));
    cluster.settle();
    let since = |cluster: &mut Cluster, name: &str, since| {
        let service = cluster
            .observed
            .services
            .get_mut(&Key::new("shop", name))
            .expect("it");
        Arc::make_mut(service)
            .allocated
            .as_mut()
            .expect("ports")
            .since = since;
    };
    since(&mut cluster, "s0", 20);
    since(&mut cluster, "s1", 10);
    cluster.services.insert("s0".to_owned(), wish("", 0));
    for name in ["s0", "s1"] {
        let of = |cluster: &Cluster| cluster.given().get(&Key::new("shop", name)).cloned();
        let before = of(&cluster);
        cluster.settle();
        assert_eq!(of(&cluster), before);
        since(&mut cluster, "s0", 20);
        since(&mut cluster, "s1", 10);
    }
    let names = |node| -> Vec<String> {
        let table = cluster.table(node);
        let names = table.frontends.iter().map(|one| one.name.to_string());
        names.collect()
    };
    assert_eq!(names("lb1"), ["shop.s0:80"]);
    assert_eq!(names("lb2"), ["shop.s1:80"]);
    let here = decide(&cluster.observed, &on("lb2").in_role(Role::Node));
    assert_eq!(here.report.closed, BTreeSet::from([Key::new("shop", "s0")]));
}

const MOST_PASSES: usize = 4;

const ANNOTATIONS: &[&str] = &[
    "",
    "",
    "ballast.dev/internal: 'true'",
    "ballast.dev/node-selector: only=lb2",
    "ballast.dev/node-selector: only=lb1",
    "ballast.dev/load-balancer-ips: 10.77.1.2",
    "ballast.dev/path: /docs",
    "ballast.dev/address-pool: edge",
    "ballast.dev/address-pool: gold",
    "ballast.dev/load-balancer-ips: 192.0.2.2",
    "ballast.dev/sharing-key: k",
    "ballast.dev/sharing-key: k",
];

/// None; one; that one with less and another one; one with other addresses.
const POOLS: &[&str] = &[
    "",
    "---\nkind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: edge}\nspec: {addresses: [192.0.2.1-192.0.2.4]}\n",
    "---\nkind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: edge}\nspec: {addresses: [192.0.2.1-192.0.2.2]}\n---\nkind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: gold}\nspec: {addresses: [192.0.2.4-192.0.2.5], autoAssign: false}\n",
    "---\nkind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: edge}\nspec: {addresses: [192.0.2.3-192.0.2.6], namespaces: [bank]}\n",
];

const NODES: &str = "kind: Node
metadata: {name: lb1, labels: {role: loadbalancer, only: lb1}}
status: {addresses: [{type: InternalIP, address: 10.77.1.1}, {type: ExternalIP, address: 192.0.2.1}]}
---
kind: Node
metadata: {name: lb2, labels: {role: loadbalancer, only: lb2}}
status: {addresses: [{type: InternalIP, address: 10.77.1.2}, {type: ExternalIP, address: 192.0.2.2}]}
";
