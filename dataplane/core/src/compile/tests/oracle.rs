//! Properties that hold for any tables, one after the other. The tests of this crate and the fuzz target `compile` include this file.
//!
//! A text is tables with a line `---` between them: JSON where it begins with a brace, else YAML.

use std::collections::BTreeSet;

use super::{
    CompileContext, Format, Key, LOOPBACK_ONLY, Listens, Moment, Plan, Rng, RoutingTable,
    SocketKey, Tried, change, compile, table,
};

/// Panics where a promise of compiling or of choosing is broken. Returns how many of the tables were valid.
pub(super) fn check(text: &[u8]) -> usize {
    let Ok(text) = str::from_utf8(text) else {
        return 0;
    };
    let mut process = Process {
        plan: Plan::default(),
        bound: BTreeSet::new(),
        rng: Rng::new(1),
        now: Moment(1),
    };
    let tables = text.split("\n---\n").filter_map(|text| {
        let is_json = text.trim_start().starts_with('{');
        let format = if is_json { Format::Json } else { Format::Yaml };
        table::parse(text.as_bytes(), format).ok()
    });
    tables.map(|table| process.serve(&table)).count()
}

/// What `apply` holds.
struct Process {
    plan: Plan,
    bound: BTreeSet<SocketKey>,
    rng: Rng,
    now: Moment,
}

impl Process {
    fn serve(&mut self, table: &RoutingTable) {
        self.apply(table);
        let before: Vec<_> = self.plan.services().to_vec();
        let changed = self.apply(table);
        assert!(!changed, "the same table again changes something");
        let after = self.plan.services();
        assert_eq!(before.len(), after.len());
        let mut pairs = before.iter().zip(after);
        assert!(pairs.all(|(one, other)| std::sync::Arc::ptr_eq(one, other)));
        self.choose();
    }

    /// Compiles the table, and opens and closes what it asks for. Returns whether anything was.
    fn apply(&mut self, table: &RoutingTable) -> bool {
        self.now = Moment(self.now.0 + 1_000_000_000);
        let mut context = CompileContext {
            now: self.now,
            workers: 2,
            ipv6: true,
            host: &LOOPBACK_ONLY,
            rng: &mut self.rng,
        };
        let plan = compile(table.clone(), &self.plan, &mut context);
        let change = change(&self.bound, &self.plan, &plan);
        assert!(change.open.iter().all(|key| !self.bound.contains(key)));
        assert!(change.close.iter().all(|key| self.bound.contains(key)));
        self.bound.extend(change.open.iter().cloned());
        self.bound.retain(|key| !change.close.contains(key));
        let listening = plan.frontends().iter();
        let listening = listening.filter(|frontend| frontend.listens() == Listens::Yes);
        let wanted: BTreeSet<_> = listening
            .flat_map(|one| one.sockets().iter().cloned())
            .collect();
        assert_eq!(self.bound, wanted);
        assert_eq!(plan.frontends().len(), table.frontends.len());
        assert_eq!(plan.services().len(), table.services.len());
        for (service, spec) in plan.services().iter().zip(&table.services) {
            assert_eq!(service.spec().name, spec.name);
            assert_eq!(service.endpoints().len(), spec.endpoints.len());
        }
        self.plan = plan;
        !(change.open.is_empty() && change.close.is_empty() && change.gone_endpoints.is_empty())
    }

    /// Every service gives a few clients an endpoint of its own, within the limits of each, or says why it does not.
    fn choose(&mut self) {
        for service in self.plan.services() {
            let mut leases = Vec::new();
            for client in 0..8_u8 {
                let key = Key::new(([192, 0, 2, client], 1_000).into());
                let picked = service.pick(&key, &Tried::default(), self.now, &mut self.rng);
                leases.extend(picked.map(|picked| picked.lease));
            }
            let mut counted = 0;
            for endpoint in service.endpoints() {
                let in_flight = endpoint.live().in_flight();
                assert!(
                    endpoint
                        .max_connections()
                        .is_none_or(|most| in_flight <= most)
                );
                counted += in_flight as usize;
            }
            assert_eq!(
                counted,
                leases.len(),
                "connections that no endpoint of it has"
            );
            drop(leases);
            assert_eq!(service.state().current(), 0);
        }
    }
}
