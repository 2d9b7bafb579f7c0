//! `ballast-controller` and `ballast` against a real kube-apiserver and etcd, in network namespaces of the tests' own.
//!
//! `plane` starts API servers, `corner` gives each test its own part of one, `node` is a load balancer node in it with both
//! programs running, `publisher` runs the controller's other role, `proxy` fails between these and the API server, `api` speaks to
//! it as a person with kubectl would. The programs of the control plane are found by KUBEBUILDER_ASSETS;
//! `tests/controller/controlplane/make` builds them.
//!
//! This file is the test harness: where there is no control plane, each test is reported as ignored, with the reason. Its
//! command line is that of every other test, but what tests print is not captured.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// At the end of a module: its functions that are tests. One that is left out here is dead code, which clippy reports.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        pub(crate) const TESTS: &[(&str, fn())] =
            &[$((concat!(module_path!(), "::", stringify!($test)), $test)),+];
    };
}

mod api;
mod backends;
mod corner;
mod node;
mod plane;
mod process;
mod proxy;
mod publisher;
mod scene;

mod announcing;
mod class;
mod ending;
mod events;
mod faults;
mod figures;
mod forms;
mod http;
mod kinds;
mod leaders;
mod manifests;
mod moves;
mod pool_kinds;
mod pools;
mod publish;
mod restored;
mod rights;
mod routers;
mod status;
mod traffic;
mod trouble;
mod whole_path;

fn main() -> ExitCode {
    let tests = [
        announcing::TESTS,
        class::TESTS,
        ending::TESTS,
        events::TESTS,
        faults::TESTS,
        &figures::tests(),
        forms::TESTS,
        http::TESTS,
        kinds::TESTS,
        leaders::TESTS,
        manifests::TESTS,
        moves::TESTS,
        pool_kinds::TESTS,
        pools::TESTS,
        publish::TESTS,
        restored::TESTS,
        rights::TESTS,
        routers::TESTS,
        status::TESTS,
        traffic::TESTS,
        trouble::TESTS,
        whole_path::TESTS,
    ];
    let trials = tests.concat().into_iter().map(|(path, test)| {
        // As libtest names it: without the crate.
        let name = path.split_once("::").map_or(path, |(_, name)| name);
        Trial::ignorable_test(name, move || run(test))
    });
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials.collect());
    match figures::are_held() {
        true => conclusion.exit_code(),
        false => ExitCode::FAILURE,
    }
}

fn run(test: fn()) -> Result<Completion, Failed> {
    match plane::Yard::made() {
        Ok(_) => {
            test();
            Ok(Completion::Completed)
        }
        Err(why) if support::skip::is_an_error() => {
            Err(format!("CI=true, and this cannot run: {why}").into())
        }
        Err(why) => Ok(Completion::ignored_with(why)),
    }
}
