//! A decision with a memo is that without one, whatever happened before.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::allocation::Allocated;
use crate::decide::{Allotment, Desired, PlanService, Status, Verdict, decide_by, plan_service};
use crate::lease::{Exception, Exceptions, Versions};
use crate::observe::{Key, Lease};
use crate::settings::NodeAddresses;

#[derive(Clone, Debug)]
enum Step {
    /// A Service is made or edited.
    Apply(u8, u16, usize),
    Delete(u8),
    /// Its deletion begins, and its finalizer holds it.
    BeginToDelete(u8),
    /// What was decided is written and remembered, of all Services or of one.
    Write,
    WriteOne(u8),
    /// A Service is written by somebody, and nothing of it changes.
    Touch(u8),
    Abandon(u8),
    Nodes(usize),
    Pools(usize),
    Reservations(usize),
    Labels(usize),
    /// Kinds that cannot be read.
    Unread(usize),
    /// What nodes say in their Leases.
    Leases(usize),
    TakeOver(bool),
    Fallback(bool),
    Slices(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let service = || 0..8u8;
    prop_oneof![
        8 => (service(), 80..86u16, 0..SPECS.len()).prop_map(|(name, port, spec)| Step::Apply(name, port, spec)),
        1 => service().prop_map(Step::Delete),
        1 => service().prop_map(Step::BeginToDelete),
        3 => Just(Step::Write),
        2 => service().prop_map(Step::WriteOne),
        1 => service().prop_map(Step::Touch),
        1 => service().prop_map(Step::Abandon),
        1 => (0..NODES.len()).prop_map(Step::Nodes),
        2 => (0..POOLS.len()).prop_map(Step::Pools),
        1 => (0..RESERVATIONS.len()).prop_map(Step::Reservations),
        1 => (0..LABELS.len()).prop_map(Step::Labels),
        1 => (0..UNREAD.len()).prop_map(Step::Unread),
        1 => (0..4usize).prop_map(Step::Leases),
        1 => any::<bool>().prop_map(Step::TakeOver),
        1 => any::<bool>().prop_map(Step::Fallback),
        1 => any::<bool>().prop_map(Step::Slices),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_decision_with_a_memo_is_that_without_one(history in prop::collection::vec(step(), 1..60)) {
        let mut observed = Observed::of(NODES[0]);
        let mut settings = Settings::without_flags().in_role(Role::Publisher);
        let mut memo = Memo::default();
        for (now, step) in (1..).zip(history) {
            take(step, now, &mut observed, &mut settings);
            let again = decide_by(PLAN, &mut memo, &observed, &settings);
            prop_assert_eq!(again, from_nothing(&observed, &settings));
        }
    }
}

/// Panics over Services with port 85, as a fault of Ballast does: they are left out.
const PLAN: PlanService = |context, names, service| {
    let is_broken = service.ports.iter().any(|port| port.number == 85);
    assert!(
        !is_broken || context.left_out.contains_key(&service.key),
        "a fault"
    );
    plan_service(context, names, service)
};

fn from_nothing(observed: &Observed, settings: &Settings) -> Desired {
    decide_by(PLAN, &mut Memo::default(), observed, settings)
}

fn key(name: u8) -> Key {
    let namespace = if name.is_multiple_of(2) {
        "shop"
    } else {
        "bank"
    };
    Key::new(namespace, &format!("s{name}"))
}

fn take(step: Step, now: i64, observed: &mut Observed, settings: &mut Settings) {
    match step {
        Step::Apply(name, port, spec) => apply(observed, name, port, spec),
        Step::Delete(name) => drop(observed.services.remove(&key(name))),
        Step::BeginToDelete(name) => {
            if let Some(service) = observed.services.get_mut(&key(name)) {
                let service = Arc::make_mut(service);
                service.deleting = true;
                service.finalizer = true;
                service.publication.owned.finalizer = true;
            }
        }
        Step::Write => write(now, observed, settings, |_| true),
        Step::WriteOne(name) => write(now, observed, settings, |one| *one == key(name)),
        Step::Touch(name) => {
            if let Some(service) = observed.services.get_mut(&key(name)) {
                Arc::make_mut(service).publication.version += 1;
            }
        }
        Step::Abandon(name) => {
            if !observed.abandoned.remove(&key(name)) {
                observed.abandoned.insert(key(name));
            }
        }
        Step::Nodes(nodes) => observed.nodes = Observed::of(NODES[nodes]).nodes,
        Step::Pools(pools) => {
            let pools = Observed::of(POOLS[pools]).pools;
            let pools = pools.pools.clone();
            Arc::make_mut(&mut observed.pools).pools = pools;
        }
        Step::Reservations(which) => {
            let pools = Observed::of(RESERVATIONS[which]).pools;
            let reservations = pools.reservations.clone();
            Arc::make_mut(&mut observed.pools).reservations = reservations;
        }
        Step::Labels(which) => {
            let labels = LABELS[which].iter();
            let labels = labels.map(|(name, tier)| {
                let labels = BTreeMap::from([("tier".to_owned(), (*tier).to_owned())]);
                ((*name).to_owned(), labels)
            });
            Arc::make_mut(&mut observed.pools).namespaces = labels.collect();
        }
        Step::Unread(which) => {
            let unread = UNREAD[which].iter().copied().collect();
            Arc::make_mut(&mut observed.pools).unread = unread;
        }
        Step::Leases(which) => say(observed, which),
        Step::TakeOver(is_on) => settings.take_over = is_on,
        Step::Fallback(is_on) => {
            settings.flags.node_addresses = match is_on {
                true => NodeAddresses::Fallback,
                false => NodeAddresses::Never,
            }
        }
        Step::Slices(are_there) => {
            observed.slices.clear();
            if are_there {
                observed.slices = Observed::of(SLICE).slices;
            }
        }
    }
}

/// One that exists keeps its status.
fn apply(observed: &mut Observed, name: u8, port: u16, spec: usize) {
    let Key {
        namespace,
        name: own,
    } = key(name);
    let text = SPECS[spec]
        .replace("NAME", &own)
        .replace("PLACE", &namespace)
        .replace("PORT", &port.to_string());
    let made = Observed::of(&text).services;
    let before = observed.services.get(&key(name)).cloned();
    for (key, mut service) in made {
        let new = Arc::make_mut(&mut service);
        new.uid = own.clone();
        if let Some(before) = &before
            && new.ingress.is_empty()
        {
            new.allocated.clone_from(&before.allocated);
            new.ingress.clone_from(&before.ingress);
            new.status_managers.clone_from(&before.status_managers);
            new.publication = before.publication.clone();
        }
        observed.services.insert(key, service);
    }
}

/// Writes what is decided about these Services into their status, and remembers the last good values.
fn write(
    now: i64,
    observed: &mut Observed,
    settings: &Settings,
    is_written: impl Fn(&Key) -> bool,
) {
    let desired = from_nothing(observed, settings);
    observed.remembered = desired.remembered;
    for status in desired
        .statuses
        .iter()
        .filter(|one| is_written(&one.service))
    {
        let Some(service) = observed.services.get_mut(&status.service) else {
            continue;
        };
        let mut written = Service::clone(service);
        write_one(&mut written, status, now);
        if written != **service {
            *service = Arc::new(written);
        }
    }
}

fn write_one(service: &mut Service, status: &Status, now: i64) {
    if matches!(status.verdict, Verdict::LeftAlone) {
        return;
    }
    let before = service.allocated.take();
    if let Some(Allotment::Given(allocation)) = &status.allotment {
        let since = before.filter(|before| before.allocation.at == allocation.at);
        service.allocated = Some(Allocated {
            allocation: allocation.clone(),
            since: since.map_or(now, |before| before.since),
        });
    }
    if status.verdict != Verdict::Routed {
        let places = status.ingress.iter();
        service.ingress = places.map(ToString::to_string).collect();
        service.status_managers = BTreeSet::from(["ballast".to_owned()]);
    }
}

/// 0: nodes say nothing. Else both serve all, but one has fallen silent, or closes a Service.
fn say(observed: &mut Observed, which: usize) {
    let lease = |closed: Option<u8>| {
        let closed = closed.map(|name| {
            let exception = Exception {
                closed: true,
                ..Exception::default()
            };
            (key(name).to_string(), exception)
        });
        Arc::new(Lease {
            served: Versions::read("rv=99"),
            exceptions: Exceptions {
                services: closed.into_iter().collect(),
                ..Exceptions::default()
            },
            ..Lease::default()
        })
    };
    let live = match which {
        0 => None,
        1 => Some(vec![("lb1", lease(None)), ("lb2", lease(None))]),
        2 => Some(vec![("lb1", lease(Some(0)))]),
        _ => Some(vec![]),
    };
    let named = |list: Vec<(&str, Arc<Lease>)>| {
        let list = list.into_iter();
        list.map(|(node, lease)| (node.to_owned(), lease)).collect()
    };
    observed.silent = match which {
        2 => named(vec![("lb2", lease(Some(1)))]),
        3 => named(vec![("lb1", lease(None)), ("lb2", lease(Some(1)))]),
        _ => BTreeMap::new(),
    };
    observed.leases = live.map(named);
}

const NODES: [&str; 4] = [
    "kind: Node\nmetadata: {name: lb1, labels: {role: loadbalancer}}\nstatus: {addresses: [{type: InternalIP, address: 10.77.1.1}]}\n",
    "kind: Node\nmetadata: {name: lb1, labels: {role: loadbalancer, zone: a}}\nstatus: {addresses: [{type: InternalIP, address: 10.77.1.1}]}\n---\nkind: Node\nmetadata: {name: lb2, labels: {role: loadbalancer}}\nstatus: {addresses: [{type: InternalIP, address: 10.77.1.2}, {type: ExternalIP, address: \"2001:db8::2\"}]}\n",
    "kind: Node\nmetadata: {name: lb2}\n",
    "kind: Node\nmetadata: {name: lb2, labels: {role: loadbalancer}}\nstatus: {addresses: [{type: InternalIP, address: 10.128.0.1}]}\n",
];

const POOLS: [&str; 8] = [
    "kind: Node\nmetadata: {name: unused}\n",
    "kind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: edge}\nspec: {addresses: [10.128.0.0/31]}\n",
    "kind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: edge}\nspec: {addresses: [10.128.0.0/31], namespaces: [bank]}\n",
    "kind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: edge}\nspec: {addresses: [10.128.0.0/30], priority: 9}\n---\nkind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: gold}\nspec: {addresses: [10.129.0.0/31, \"2001:db8:1::/126\"], priority: 1}\n",
    "kind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: edge}\nspec: {addresses: [10.128.0.0/30], priority: 1}\n---\nkind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: gold}\nspec: {addresses: [10.129.0.0/31], autoAssign: false}\n",
    "kind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: gold, creationTimestamp: \"2020-01-01T00:00:00Z\"}\nspec: {addresses: [10.128.0.0/31], serviceSelector: {matchLabels: {tier: a}}}\n---\nkind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: edge}\nspec: {addresses: [10.128.0.0/30], nodeSelector: {matchLabels: {zone: a}}}\n",
    "kind: IPAddressPool\napiVersion: metallb.io/v1beta1\nmetadata: {name: gold, namespace: metallb-system}\nspec: {addresses: [10.128.0.1-10.128.0.3], serviceAllocation: {priority: 5, namespaceSelectors: [{matchLabels: {tier: a}}]}}\n",
    "kind: AddressPool\napiVersion: ballast.dev/v1\nmetadata: {name: edge}\nspec: {addresses: [10.77.1.1-10.77.1.2], reserve: [10.77.1.2]}\n",
];

const RESERVATIONS: [&str; 3] = [
    "kind: Node\nmetadata: {name: unused}\n",
    "kind: AddressReservation\napiVersion: ballast.dev/v1\nmetadata: {name: s0, namespace: shop}\nspec: {addresses: [10.128.0.1]}\n",
    "kind: AddressReservation\napiVersion: ballast.dev/v1\nmetadata: {name: s1, namespace: bank}\nspec: {addresses: [10.128.0.0]}\n---\nkind: AddressReservation\napiVersion: ballast.dev/v1\nmetadata: {name: gone, namespace: shop}\nspec: {addresses: [10.129.0.0]}\n",
];

/// The tier of each namespace.
const LABELS: [&[(&str, &str)]; 3] = [&[], &[("shop", "a")], &[("shop", "b"), ("bank", "a")]];

const UNREAD: [&[(&str, u16)]; 3] = [&[], &[("AddressPool", 503)], &[("Namespace", 403)]];

const SPECS: [&str; 21] = [
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE}\nspec: {type: LoadBalancer, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {ballast.dev/algorithm: random, ballast.dev/address-pool: edge}}\nspec: {type: LoadBalancer, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {ballast.dev/algorithm: wrong, ballast.dev/external-port: wrong}}\nspec: {type: LoadBalancer, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {ballast.dev/node-selector: zone=a}}\nspec: {type: LoadBalancer, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {ballast.dev/canary-of: s0, ballast.dev/canary-weight: \"10\"}}\nspec: {type: LoadBalancer, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {ballast.dev/host: a.example}}\nspec: {ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {ballast.dev/internal: \"true\"}}\nspec: {type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE}\nspec: {type: LoadBalancer, ports: [{port: PORT}]}\nstatus: {loadBalancer: {ingress: [{ip: 10.128.0.1}]}}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE}\nspec: {type: LoadBalancer, loadBalancerClass: other, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {ballast.dev/sharing-key: k}}\nspec: {type: LoadBalancer, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {ballast.dev/sharing-key: k, ballast.dev/address-pool: gold}}\nspec: {type: LoadBalancer, ports: [{name: a, port: PORT}, {name: b, port: 90}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {metallb.io/allow-shared-ip: l}}\nspec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: NAME}, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, labels: {tier: a}}\nspec: {type: LoadBalancer, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {ballast.dev/keep-address: \"true\"}}\nspec: {type: LoadBalancer, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE}\nspec: {type: LoadBalancer, loadBalancerIP: 10.128.0.1, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE}\nspec: {type: LoadBalancer, ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4, IPv6], ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE}\nspec: {type: LoadBalancer, ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4], ports: [{name: a, port: PORT, protocol: UDP}, {name: b, port: 91}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {ballast.dev/load-balancer-ips: 10.77.1.1}}\nspec: {type: LoadBalancer, ports: [{port: PORT, nodePort: 81}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE}\nspec: {type: LoadBalancer, ports: [{name: a, port: PORT}, {name: s, port: 92, protocol: SCTP}, {name: c, port: 1936}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {ballast.dev/load-balancer-ips: wrong, ballast.dev/internal: wrong}}\nspec: {type: LoadBalancer, ports: [{port: PORT}]}\n",
    "kind: Service\nmetadata: {name: NAME, namespace: PLACE, annotations: {ballast.dev/ignore: \"true\"}}\nspec: {type: LoadBalancer, ports: [{port: PORT}]}\n",
];

const SLICE: &str = "kind: EndpointSlice\nmetadata: {name: x, namespace: shop, labels: {kubernetes.io/service-name: s0}}\naddressType: IPv4\nports: [{port: 8080}]\nendpoints: [{addresses: [10.1.1.1]}]\n";
