//! The binds that do not listen as the table asks, for the ack and for the log.

use std::collections::HashSet;

use ballast_core::ack::{Exception, ExceptionState, IN_PART};
use ballast_core::plan::{Listens, Plan};
use ballast_core::table::Bind;

use super::sockets::Sockets;
use crate::net::tls;

/// All exceptions, in the order of the table.
pub(super) fn collect(plan: &Plan, tls: &tls::Configs, sockets: &Sockets) -> Vec<Exception> {
    let mut exceptions = Vec::new();
    for frontend in plan.frontends() {
        let mut add = |bind, state, why: String| {
            exceptions.push(Exception {
                frontend: frontend.name().clone(),
                bind,
                state,
                why,
            });
        };
        match frontend.listens() {
            Listens::Idle => {
                let why =
                    "its service has no endpoint that may be used, so connections are refused";
                frontend
                    .binds()
                    .iter()
                    .for_each(|bind| add(*bind, ExceptionState::Idle, why.into()));
            }
            Listens::Closed => {
                let why = "an operator has closed it by hand (disable frontend), so connections are refused";
                frontend
                    .binds()
                    .iter()
                    .for_each(|bind| add(*bind, ExceptionState::Idle, why.into()));
            }
            Listens::Yes => {
                for problem in tls.problems(frontend.spec()) {
                    let why = match problem.served {
                        Some(served) => format!("{IN_PART}{}; {served}", problem.why),
                        None => problem.why,
                    };
                    let binds = frontend.binds().iter();
                    binds.for_each(|bind| add(*bind, ExceptionState::Failed, why.clone()));
                }
                for key in frontend.sockets() {
                    let bind = Bind::Exact(key.address);
                    if let Some(why) = sockets.why_not(key) {
                        add(bind, ExceptionState::Failed, why.to_owned());
                    } else if sockets.is_foreign(key) {
                        let why = format!(
                            "this node does not hold {} now; it is served as soon as it does",
                            key.address.ip()
                        );
                        add(bind, ExceptionState::NotLocal, why);
                    }
                }
            }
        }
    }
    exceptions
}

/// Logs the exceptions of `now` that are not in `before`: where there is no ack file, nothing else reports them. A bind that
/// `sockets` could not make was logged when that failed.
pub(super) fn log_new(before: &[Exception], now: &[Exception], sockets: &Sockets) {
    let known: HashSet<_> = before.iter().map(identity).collect();
    let logged: HashSet<&str> = sockets.failures().collect();
    let mut omitted = 0;
    let new = now.iter().filter(|exception| {
        !known.contains(&identity(exception)) && !logged.contains(&*exception.why)
    });
    for (count, exception) in new.enumerate() {
        if count >= MAX_LINES {
            omitted += 1;
            continue;
        }
        let Exception {
            frontend,
            bind,
            state,
            why,
        } = exception;
        if why.starts_with(IN_PART) {
            tracing::warn!("frontend {frontend}, bind {bind}: {why}");
        } else {
            tracing::warn!("frontend {frontend}, bind {bind}: {state}: {why}");
        }
    }
    if omitted > 0 {
        tracing::warn!("... and {omitted} more binds that do not listen; the ack names them all");
    }
}

fn identity(exception: &Exception) -> (&str, Bind, &str) {
    (&exception.frontend, exception.bind, &exception.why)
}

/// The most lines for one table. A cluster may have thousands of services without endpoints.
const MAX_LINES: usize = 20;
