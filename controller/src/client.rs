//! A client of the API server, by flags. Made once in a process.

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::settings::{ClusterFlags, WrongFlag};

/// A client of the cluster that the flags mean.
pub(crate) async fn client(flags: &ClusterFlags) -> Result<Client, WrongFlag> {
    let by_kubeconfig = flags.by_kubeconfig()?;
    let mut config = match by_kubeconfig {
        true => from_kubeconfig(flags).await?,
        false => Config::incluster().map_err(|error| {
            let why = format!("is not given, and this is no pod of a cluster ({error}); name a kubeconfig, such as ~/.kube/config");
            WrongFlag::new("--kubeconfig", why)
        })?,
    };
    config.connect_timeout = Some(CONNECT);
    // Every caller makes its own retries, with a pause that fits it.
    config.default_retry = false;
    let flag = match by_kubeconfig {
        true => "--kubeconfig",
        false => "--use-kubernetes-cluster-service",
    };
    Client::try_from(config).map_err(|error| WrongFlag::new(flag, error))
}

async fn from_kubeconfig(flags: &ClusterFlags) -> Result<Config, WrongFlag> {
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        ..KubeConfigOptions::default()
    };
    let kubeconfig = match &flags.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let kubeconfig = kubeconfig.map_err(|error| WrongFlag::new("--kubeconfig", error))?;
    if let Some(name) = &flags.context
        && !kubeconfig.contexts.iter().any(|one| one.name == *name)
    {
        let known = kubeconfig.contexts.iter().map(|one| one.name.as_str());
        let known = known.collect::<Vec<_>>().join(", ");
        let why = format!("{name:?} is not in the kubeconfig; it has {known}");
        return Err(WrongFlag::new("--context", why));
    }
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| WrongFlag::new("--kubeconfig", error))
}

const CONNECT: Duration = Duration::from_secs(5);
