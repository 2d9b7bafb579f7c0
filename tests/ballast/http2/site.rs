//! Tables of several services, and a gate at which endpoints wait for the test.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use support::Ballast;

/// A table of one http frontend on any port, with these fields. Each service has a name, more of its fields, and endpoints; it
/// serves the paths below its name, and the first one serves all others, too.
pub(crate) fn table(frontend: &str, services: &[(&str, &str, &[SocketAddr])]) -> String {
    on("127.0.0.1:0", frontend, services)
}

/// The same with this bind.
pub(crate) fn on(bind: &str, frontend: &str, services: &[(&str, &str, &[SocketAddr])]) -> String {
    let (mut routes, mut specs) = (Vec::new(), Vec::new());
    for (name, fields, endpoints) in services {
        let endpoints: Vec<_> = endpoints
            .iter()
            .map(|address| format!("{{address: \"{address}\"}}"))
            .collect();
        let endpoints = endpoints.join(", ");
        routes.push(format!("{{path: /{name}, service: {name}}}"));
        specs.push(format!(
            "{{name: {name}{fields}, endpoints: [{endpoints}]}}"
        ));
    }
    let default = services.first().map_or("", |(name, ..)| name);
    format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"{bind}\"], protocol: http, routes: [{}], default: {{service: {default}}}{frontend}}}]\nservices: [{}]\n",
        routes.join(", "),
        specs.join(", ")
    )
}

/// How many clients are connected to the frontend of [`table`].
pub(crate) fn sessions(ballast: &Ballast) -> u64 {
    let metrics = ballast.metrics();
    let name = "haproxy_frontend_current_sessions{proxy=\"f\"} ";
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    value.expect("a metric").parse().expect("a number")
}

/// The fields of a service whose endpoints speak HTTP/2.
pub(crate) const H2: &str = ", http: {version: h2}";

/// Closed until the test opens it.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        let (is_open, opened) = &*self.0;
        *is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        opened.notify_all();
    }

    /// Waits until it is open, or for a minute: nobody is left behind by a test that has failed.
    pub(crate) fn pass(&self) {
        let (is_open, opened) = &*self.0;
        let is_open = is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = opened.wait_timeout_while(is_open, Duration::from_secs(60), |open| !*open);
        drop(waited);
    }
}
