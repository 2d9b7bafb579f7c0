//! Apply without workers.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ballast_core::overrides::OverrideChange;
use ballast_core::table::State;
use tokio::sync::oneshot;

use super::*;
use crate::access::AccessLog;
use crate::os::limits::{Budget, Room};
use crate::os::threads;
use crate::process::config::Config;

/// An apply that serves the table in this folder, and the channel of its admin addresses.
fn apply_in(folder: &Path) -> (Apply, watch::Receiver<Option<Wanted>>) {
    let (access, _records) = AccessLog::new();
    let (sender, overrides) = mpsc::unbounded_channel();
    let room = Room::new(Budget::in_force(), 1, None, Some(10));
    let (shared, _inboxes) = Shared::new(room, 1, access, sender, None);
    let (admin, wanted) = watch::channel(None);
    let table = folder.join("table.yaml");
    let config = ApplyConfig {
        command_line: CommandLine::of(&Config::new(table.clone())),
        table,
        first: None,
        ack: None,
        instance: "test".to_owned(),
        rng: Rng::new(1),
        admin,
        overrides,
        inheritance: Inheritance {
            sockets: None,
            taken: CancellationToken::new(),
            failed: None,
            lend_requests: mpsc::unbounded_channel().1,
            succession: Succession::new(),
            freezes: mpsc::unbounded_channel().1,
        },
    };
    (Apply::new(shared, config), wanted)
}

fn many_services() -> String {
    let mut table = String::from("version: 1\nservices:\n");
    for service in 0..100 {
        writeln!(
            table,
            "  - {{name: s{service}, endpoints: [{{address: '127.0.0.1:80'}}]}}"
        )
        .unwrap();
    }
    table
}

/// Changes the weight of the endpoint of `s0` by a plan that `make` makes, and returns the result.
async fn change_weight(
    apply: &mut Apply,
    weight: u16,
    make: impl FnOnce(&Plan, Overrides, &mut CompileContext<'_>) -> Plan,
) -> Result<(), OverrideError> {
    let (done, told) = oneshot::channel();
    let plan = apply.shared.live.plan();
    let service = plan.services()[0].spec().name.clone();
    let change = OverrideChange::Weight(service, endpoint(), Some(weight));
    let request = OverrideRequest {
        changes: vec![change],
        done,
    };
    apply.revise(request, make).await;
    told.await.unwrap()
}

fn endpoint() -> std::net::SocketAddr {
    "127.0.0.1:80".parse().unwrap()
}

#[test]
fn a_change_by_hand_that_panics_is_refused_and_the_plan_stays() {
    let _alone = panics::tests::one_at_a_time();
    panics::install_hook();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("table.yaml"), many_services()).unwrap();
    threads::local_runtime().unwrap().block_on(async {
        let (mut apply, _wanted) = apply_in(folder.path());
        apply.read_table(true).await;
        assert_eq!(change_weight(&mut apply, 7, revise).await, Ok(()));
        let before = apply.shared.live.plan();
        assert_eq!(before.services().len(), 100);
        let panics_before = panics::panics();

        let answer = change_weight(&mut apply, 9, |_, _, _| panic!("for the test")).await;
        assert_eq!(answer, Err(OverrideError::Panicked));
        assert_eq!(panics::panics(), panics_before + 1);
        assert!(Arc::ptr_eq(&before, &apply.shared.live.plan()));
        let over = before.overrides().of_endpoint("s0", &endpoint());
        assert_eq!((over.weight, over.state), (Some(7), None::<State>));

        assert_eq!(change_weight(&mut apply, 11, revise).await, Ok(()));
        let now = apply.shared.live.plan();
        assert_eq!(now.services()[0].endpoints()[0].weight(), 11);
    });
}
