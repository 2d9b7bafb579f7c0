//! Compiles services for tests from short descriptions.

use std::cell::RefCell;

use super::*;

/// A service of the table in JSON; the name and the version need not be said.
pub(crate) fn spec(json: &str) -> Arc<table::Service> {
    let mut value: serde_json::Value = serde_json::from_str(json).unwrap();
    value["name"] = "s".into();
    Arc::new(serde_json::from_value(value).unwrap())
}

/// A service with endpoints `127.0.0.1:1`, `:2` and so on; `rest` is the inside of each one's JSON.
pub(crate) fn spec_of(service: &str, rest: &[&str]) -> Arc<table::Service> {
    let endpoints: Vec<String> = rest
        .iter()
        .enumerate()
        .map(|(index, rest)| {
            let comma = if rest.is_empty() { "" } else { ", " };
            format!(r#"{{"address": "127.0.0.1:{}"{comma}{rest}}}"#, index + 1)
        })
        .collect();
    let comma = if service.is_empty() { "" } else { ", " };
    spec(&format!(
        r#"{{"endpoints": [{}]{comma}{service}}}"#,
        endpoints.join(", ")
    ))
}

/// The state that the plans of one process share.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) nodes: RefCell<FxHashMap<String, Arc<Node>>>,
    pub(crate) gone: FxHashMap<SocketAddr, Arc<EndpointState>>,
    pub(crate) over: FxHashMap<SocketAddr, Override>,
    pub(crate) closing: Vec<usize>,
}

impl Process {
    pub(crate) fn compile(
        &self,
        spec: Arc<table::Service>,
        previous: Option<&Service>,
        now: Moment,
    ) -> Service {
        let mut node = |name: &str| {
            let mut nodes = self.nodes.borrow_mut();
            Arc::clone(
                nodes
                    .entry(name.to_owned())
                    .or_insert_with(|| Arc::new(Node::new(name))),
            )
        };
        let mut context = ServiceContext {
            now,
            workers: 2,
            node: &mut node,
            left: &|_| {
                let mut gone = self.gone.values();
                gone.next().map(|gone| Arc::clone(gone.service()))
            },
            gone: &|_, address| self.gone.get(address).cloned(),
            over: &|_, address| self.over.get(address).copied().unwrap_or_default(),
            moved: None,
            closing: &self.closing,
        };
        Service::compile(spec, previous, &mut context)
    }
}

/// A service of the first plan of a process.
pub(crate) fn service(service: &str, rest: &[&str]) -> Service {
    Process::default().compile(spec_of(service, rest), None, Moment(0))
}

/// The same with this many plain endpoints.
pub(crate) fn service_of(service: &str, endpoints: usize) -> Service {
    self::service(service, &vec![""; endpoints])
}
