//! Parses service-loadbalancer's `loadbalancer.json`, the file of `--cfg`.

use std::collections::BTreeMap;

use ballast_core::table::Algorithm;
use serde::Deserialize;

use super::algorithm;
use super::tcp_services::{TcpService, TcpServices};

/// The contents of such a file.
#[derive(Debug)]
pub(super) struct Cfg {
    pub(super) algorithm: Option<Algorithm>,
    pub(super) tcp_services: TcpServices,
    pub(super) remarks: Vec<String>,
}

impl Cfg {
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let algorithm = match file.algorithm.as_str() {
            "" => None,
            name => Some(algorithm(name).map_err(|why| format!("algorithm: {name:?} {why}"))?),
        };
        let services = file
            .tcp_services
            .into_iter()
            .map(|(name, port)| {
                TcpService::named(&name, port).map_err(|why| format!("tcpServices: {name:?} {why}"))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let without_effect = [
            ("reloadCmd", file.reload_cmd),
            ("config", file.config),
            ("template", file.template),
        ];
        let remarks = without_effect
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, _)| *key)
            .collect::<Vec<_>>();
        Ok(Self {
            algorithm,
            tcp_services: TcpServices::of(services),
            remarks: match remarks.is_empty() {
                true => Vec::new(),
                false => vec![format!(
                    "--cfg: {} have no effect: there is no haproxy to reload",
                    remarks.join(", ")
                )],
            },
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct File {
    algorithm: String,
    tcp_services: BTreeMap<String, u16>,
    reload_cmd: String,
    config: String,
    template: String,
}
