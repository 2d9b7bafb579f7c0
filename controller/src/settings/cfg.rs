//! Parses service-loadbalancer's `loadbalancer.json`, the file of `--cfg`.

use std::collections::BTreeMap;

use ballast_core::table::Algorithm;
use serde::Deserialize;

use super::algorithm;
use super::tcp_services::TcpService;

/// The contents of such a file.
#[derive(Debug)]
pub(super) struct Cfg {
    pub(super) algorithm: Option<Algorithm>,
    pub(super) tcp_services: Vec<TcpService>,
    pub(super) remark: Option<String>,
}

impl Cfg {
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let algorithm = match file.algorithm.as_str() {
            "" => None,
            name => Some(algorithm(name).map_err(|why| format!("algorithm: {name:?} {why}"))?),
        };
        let services = file.tcp_services.iter().map(|(name, port)| {
            TcpService::named(name, *port).map_err(|why| format!("tcpServices: {name:?} {why}"))
        });
        let tcp_services = services.collect::<Result<_, _>>()?;
        let mut without_effect = vec![
            ("reloadCmd", file.reload_cmd),
            ("config", file.config),
            ("template", file.template),
        ];
        without_effect.retain(|(_, value)| !value.is_empty());
        let keys: Vec<&str> = without_effect.iter().map(|(key, _)| *key).collect();
        let remark = (!keys.is_empty()).then(|| {
            let keys = keys.join(", ");
            format!("--cfg: {keys} have no effect: there is no haproxy to reload")
        });
        Ok(Self {
            algorithm,
            tcp_services,
            remark,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    algorithm: String,
    tcp_services: BTreeMap<String, u16>,
    reload_cmd: String,
    config: String,
    template: String,
}
