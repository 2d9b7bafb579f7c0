//! Random tables, applied one after the other: what is kept, what is new, and which sockets are open.
//!
//! Each case simulates a process: it compiles a table, opens and closes the sockets of [`change`], some binds fail, connections
//! begin and end. After every table, everything that a plan guarantees is checked, computed from the tables alone.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::*;
use super::tables::{TableSpec, tables};
use crate::change::{Change, change};
use crate::endpoint::Lease;
use crate::loops::LOOPBACK_ONLY;
use crate::rng::Rng;
use crate::service::{Endpoint, ServiceState};
use crate::table::OnGone;

/// A process that serves one table after the other.
struct Process {
    plan: Plan,
    served: TableSpec,
    bound: BTreeSet<SocketKey>,
    ipv6: bool,
    rng: Rng,
    connections: Vec<Lease>,
    /// Everything that ever existed, kept so that no new allocation has the address of an old one.
    endpoints: Vec<Arc<EndpointState>>,
    frontends: Vec<Arc<FrontendState>>,
    services: Vec<Arc<ServiceState>>,
}

impl Process {
    fn new(ipv6: bool) -> Self {
        Self {
            plan: Plan::default(),
            served: TableSpec {
                frontends: BTreeMap::new(),
                services: BTreeMap::new(),
            },
            bound: BTreeSet::new(),
            ipv6,
            rng: Rng::new(7),
            connections: Vec::new(),
            endpoints: Vec::new(),
            frontends: Vec::new(),
            services: Vec::new(),
        }
    }

    fn compile(&mut self, table: &TableSpec) -> Plan {
        let mut context = CompileContext {
            now: Moment(1000),
            workers: 2,
            ipv6: self.ipv6,
            host: &LOOPBACK_ONLY,
            rng: &mut self.rng,
        };
        compile(table.parsed(), &self.plan, &mut context)
    }

    /// Applies `table`; one of the binds fails if `fails` says so.
    fn serve(&mut self, table: &TableSpec, fails: Option<Index>) {
        let plan = self.compile(table);
        let change = change(&self.bound, &self.plan, &plan);
        self.look_at_sockets(table, &change);
        self.look_at_gone_endpoints(table, &change);
        self.look_at_frontends(table, &plan);
        self.look_at_services(table, &plan);
        self.look_at_nodes(table, &plan);
        self.look_at_what_leaves(&change, &plan);
        let failed = fails
            .filter(|_| !change.open.is_empty())
            .map(|fails| fails.get(&change.open).clone());
        self.bound.extend(
            change
                .open
                .into_iter()
                .filter(|key| Some(key) != failed.as_ref()),
        );
        self.bound.retain(|key| !change.close.contains(key));
        let mut there = table.sockets(self.ipv6);
        if let Some(failed) = failed {
            assert!(there.remove(&failed));
        }
        assert_eq!(self.bound, there);
        self.remember(&plan);
        self.plan = plan;
        self.served = table.clone();
    }

    fn remember(&mut self, plan: &Plan) {
        let services = plan.services.iter();
        self.endpoints.extend(
            services
                .clone()
                .flat_map(|service| service.endpoints())
                .map(|endpoint| Arc::clone(endpoint.live())),
        );
        self.services
            .extend(services.map(|service| Arc::clone(service.state())));
        self.frontends.extend(
            plan.frontends
                .iter()
                .map(|frontend| Arc::clone(&frontend.state)),
        );
    }

    fn look_at_sockets(&self, table: &TableSpec, change: &Change) {
        let wanted = table.sockets(self.ipv6);
        let open: BTreeSet<_> = change.open.iter().cloned().collect();
        let close: BTreeSet<_> = change.close.iter().cloned().collect();
        assert_eq!(
            (open.len(), close.len()),
            (change.open.len(), change.close.len())
        );
        assert_eq!(open, &wanted - &self.bound);
        assert_eq!(close, &self.bound - &wanted);
    }

    fn look_at_gone_endpoints(&self, table: &TableSpec, change: &Change) {
        let gone: BTreeMap<(String, SocketAddr), OnGone> = change
            .gone_endpoints
            .iter()
            .map(|gone| {
                let service = self.plan.service(gone.endpoint.service().name()).unwrap();
                let is_there = |endpoint: &Endpoint| Arc::ptr_eq(endpoint.live(), &gone.endpoint);
                assert!(service.endpoints().iter().any(is_there));
                (
                    (service.spec().name.to_string(), gone.endpoint.address()),
                    gone.connections,
                )
            })
            .collect();
        assert_eq!(gone.len(), change.gone_endpoints.len());
        let expected: BTreeMap<_, _> = (&self.served.endpoints() - &table.endpoints())
            .into_iter()
            .map(|(service, address)| {
                let closes = self.served.services[service.as_str()]
                    .words
                    .contains("on-removed: close");
                (
                    (service, address),
                    if closes { OnGone::Close } else { OnGone::Keep },
                )
            })
            .collect();
        assert_eq!(gone, expected);
    }

    fn look_at_frontends(&self, table: &TableSpec, plan: &Plan) {
        let names: Vec<&str> = plan
            .frontends
            .iter()
            .map(|frontend| &**frontend.name())
            .collect();
        assert_eq!(names, table.frontends.keys().copied().collect::<Vec<_>>());
        let mut sockets = 0;
        for frontend in &plan.frontends {
            let before = self
                .plan
                .frontends
                .iter()
                .find(|before| before.name == frontend.name);
            match before {
                Some(before) => assert!(Arc::ptr_eq(&before.state, &frontend.state)),
                None => assert!(
                    !self
                        .frontends
                        .iter()
                        .any(|old| Arc::ptr_eq(old, &frontend.state))
                ),
            }
            if let Serves::Tcp(backends) | Serves::Udp(backends) = &frontend.serves {
                let service = backends.services().next().unwrap();
                assert!(Arc::ptr_eq(
                    service,
                    plan.service(service.state().name()).unwrap()
                ));
                assert_eq!(
                    service.state().name(),
                    table.service_of(&table.frontends[&**frontend.name()])
                );
            }
            for socket in frontend.sockets() {
                assert!(Arc::ptr_eq(plan.frontend(socket).unwrap(), frontend));
                sockets += 1;
            }
        }
        assert_eq!(plan.by_socket.len(), sockets);
    }

    fn look_at_services(&self, table: &TableSpec, plan: &Plan) {
        let names: Vec<&str> = plan
            .services
            .iter()
            .map(|service| service.state().name())
            .collect();
        assert_eq!(names, table.services.keys().copied().collect::<Vec<_>>());
        assert_eq!(plan.by_name.len(), plan.services.len());
        let parsed = table.parsed();
        for (service, spec) in plan.services.iter().zip(&parsed.services) {
            assert_eq!(**service.spec(), *spec);
            let before = self.plan.service(&spec.name);
            let same = before.is_some_and(|before| before.spec() == service.spec());
            let shared = before.is_some_and(|before| Arc::ptr_eq(before, service));
            assert_eq!(shared, same, "what is the same is shared, and nothing else");
            self.look_at_endpoints(service, before);
        }
    }

    fn look_at_endpoints(&self, service: &Arc<Service>, before: Option<&Arc<Service>>) {
        let name = service.state().name();
        let held = |address: SocketAddr| {
            let mut held = self.connections.iter().map(Lease::endpoint);
            held.find(|endpoint| {
                endpoint.address() == address && Arc::ptr_eq(endpoint.service(), service.state())
            })
        };
        let held_by_name = self
            .connections
            .iter()
            .map(|lease| lease.endpoint().service())
            .find(|state| state.name() == name);
        match before {
            Some(before) => assert!(Arc::ptr_eq(before.state(), service.state())),
            None => match held_by_name {
                Some(held) => assert!(Arc::ptr_eq(held, service.state())),
                None => assert!(
                    !self
                        .services
                        .iter()
                        .any(|old| Arc::ptr_eq(old, service.state())),
                    "only connections keep a service that is gone"
                ),
            },
        }
        for (endpoint, spec) in service.endpoints().iter().zip(&service.spec().endpoints) {
            assert_eq!(
                (endpoint.address(), endpoint.weight(), endpoint.state()),
                (spec.address, spec.weight, spec.state)
            );
            assert!(Arc::ptr_eq(endpoint.live().service(), service.state()));
            let was = before
                .into_iter()
                .flat_map(|before| before.endpoints())
                .find(|was| was.address() == spec.address);
            match (was, held(spec.address)) {
                (Some(was), _) => assert!(Arc::ptr_eq(was.live(), endpoint.live())),
                (None, Some(held)) => assert!(
                    Arc::ptr_eq(held, endpoint.live()),
                    "it has connections still"
                ),
                (None, None) => assert!(
                    !self
                        .endpoints
                        .iter()
                        .any(|old| Arc::ptr_eq(old, endpoint.live()))
                ),
            }
        }
    }

    fn look_at_nodes(&self, table: &TableSpec, plan: &Plan) {
        let expected = table.nodes();
        assert_eq!(
            plan.nodes
                .keys()
                .map(|name| &**name)
                .collect::<BTreeSet<_>>(),
            expected.keys().copied().collect()
        );
        for (name, on) in &plan.nodes {
            let services: Vec<&str> = on
                .services
                .iter()
                .map(|index| plan.services[*index].state().name())
                .collect();
            assert_eq!(services, expected[&**name]);
            if let Some(before) = self.plan.nodes.get(name) {
                assert!(Arc::ptr_eq(&before.node, &on.node));
            }
        }
        let endpoints = plan.services.iter().flat_map(|service| service.endpoints());
        for node in endpoints.filter_map(|endpoint| endpoint.node()) {
            assert!(Arc::ptr_eq(node, &plan.nodes[node.name()].node));
        }
    }

    /// Outside of its table, a plan holds only what still has connections, and what was removed by this very table.
    fn look_at_what_leaves(&self, change: &Change, plan: &Plan) {
        let mut expected: BTreeSet<_> = change
            .gone_endpoints
            .iter()
            .map(|gone| Arc::as_ptr(&gone.endpoint))
            .collect();
        expected.extend(
            self.connections
                .iter()
                .map(|lease| Arc::as_ptr(lease.endpoint())),
        );
        for service in &plan.services {
            for endpoint in service.endpoints() {
                expected.remove(&Arc::as_ptr(endpoint.live()));
            }
        }
        let leaving: BTreeSet<_> = plan.leaving.iter().map(Arc::as_ptr).collect();
        assert_eq!(leaving.len(), plan.leaving.len());
        assert_eq!(leaving, expected);
    }
}

/// What happens between two tables.
#[derive(Clone, Debug)]
enum Event {
    Connect(Index),
    End(Index),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    vec(
        prop_oneof![
            any::<Index>().prop_map(Event::Connect),
            any::<Index>().prop_map(Event::End)
        ],
        0..5,
    )
}

fn cases() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn whatever_tables_follow_each_other_identity_carries_what_is_known(
        tables in tables(),
        events in vec(events(), 6),
        fails in vec(option::weighted(0.3, any::<Index>()), 6),
        ipv6 in any::<bool>(),
    ) {
        let mut process = Process::new(ipv6);
        for ((table, events), fails) in tables.iter().zip(events).zip(fails) {
            process.serve(table, fails);
            for event in events {
                let plan = &process.plan;
                let endpoints: Vec<_> = plan.services.iter().flat_map(|service| service.endpoints()).collect();
                match event {
                    Event::Connect(which) if !endpoints.is_empty() => {
                        process.connections.push(which.get(&endpoints).live().lease(u32::MAX).unwrap());
                    }
                    Event::End(which) if !process.connections.is_empty() => {
                        let which = which.index(process.connections.len());
                        drop(process.connections.remove(which));
                    }
                    _ => {}
                }
            }
        }
        // Applying the same table again changes nothing.
        let table = process.served.clone();
        process.bound = table.sockets(ipv6);
        let again = process.compile(&table);
        let change = change(&process.bound, &process.plan, &again);
        prop_assert!(change.open.is_empty() && change.close.is_empty() && change.gone_endpoints.is_empty());
        prop_assert!(process.plan.services.iter().zip(&again.services).all(|(old, new)| Arc::ptr_eq(old, new)));
        // In the end, no endpoint counts a connection.
        process.connections.clear();
        prop_assert!(process.endpoints.iter().all(|endpoint| endpoint.in_flight() == 0));
    }
}
