//! `ballast-controller` and `ballast` in a whole Kubernetes cluster on this machine: a control plane, and two nodes with real
//! kubelets, containers and kube-proxy, in network namespaces of the tests' own. Ballast is installed there as operators install it,
//! from the image that `templates/build-image` makes, and they do what operators do, while clients outside of the cluster count what
//! fails.
//!
//! `cluster` starts it, `node` is the script of a node, `load` are the clients. The programs are found by KUBEBUILDER_ASSETS
//! (`tests/controller/cluster/make` builds them), the image by BALLAST_IMAGE.
//!
//! This file is the test harness: the tests run one after another and share the cluster, and each brings it into the state that it
//! needs. What is missing is a reason to ignore a test, or an error where CI=true; what the machine refuses is always a reason.

use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// At the end of a module: its functions that are tests. One that is left out here is dead code, which clippy reports.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        pub(crate) const TESTS: &[(&str, Test)] =
            &[$((concat!(module_path!(), "::", stringify!($test)), $test)),+];
    };
}

#[allow(dead_code, reason = "only a part of this is used here")]
#[path = "../controlplane/api.rs"]
mod api;
#[allow(dead_code, reason = "only a part of this is used here")]
#[path = "../controlplane/plane.rs"]
mod plane;
#[allow(dead_code, reason = "only a part of this is used here")]
#[path = "../controlplane/process.rs"]
mod process;

mod archive;
mod cluster;
mod load;

mod announced;
mod backends;
mod image;
mod install;
mod operators;
mod updates;

use cluster::Cluster;

/// A test of the cluster, which is its own as long as it runs.
type Test = fn(&mut Cluster);

/// Why something cannot be tested here.
#[derive(Clone)]
pub(crate) enum Unable {
    /// Something is not there that could be.
    Missing(String),
    /// The machine does not permit it.
    Refused(String),
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    // Uninstalling is the last, so that its state need not be made again.
    let tests = [
        install::TESTS,
        backends::TESTS,
        operators::TESTS,
        announced::TESTS,
        updates::TESTS,
    ];
    let of_the_image = image::TESTS
        .iter()
        .map(|&(path, test)| Trial::ignorable_test(name_of(path), move || outcome(test())));
    let of_the_cluster = tests
        .concat()
        .into_iter()
        .map(|(path, test)| Trial::ignorable_test(name_of(path), move || outcome(run(test))));
    let trials = of_the_image.chain(of_the_cluster).collect();
    let code = libtest_mimic::run(&arguments, trials).exit_code();
    // Its processes are gone when this process is.
    shared().take();
    code
}

/// As libtest names a test: without the crate.
fn name_of(path: &str) -> &str {
    path.split_once("::").map_or(path, |(_, name)| name)
}

fn run(test: Test) -> Result<(), Unable> {
    let mut shared = shared();
    let cluster = shared.get_or_insert_with(Cluster::start);
    test(cluster.as_mut().map_err(|unable| unable.clone())?);
    Ok(())
}

fn outcome(done: Result<(), Unable>) -> Result<Completion, Failed> {
    match done {
        Ok(()) => Ok(Completion::Completed),
        Err(Unable::Missing(why)) if support::skip::is_an_error() => {
            Err(format!("CI=true, and this cannot run: {why}").into())
        }
        Err(Unable::Missing(why)) => Ok(Completion::ignored_with(why)),
        Err(Unable::Refused(why)) => Ok(Completion::ignored_with(format!(
            "this machine refuses it: {why}"
        ))),
    }
}

/// The cluster, once a test needed it.
fn shared() -> MutexGuard<'static, Option<Result<Cluster, Unable>>> {
    static SHARED: Mutex<Option<Result<Cluster, Unable>>> = Mutex::new(None);
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}
