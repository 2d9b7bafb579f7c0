//! `ballast-controller release`: takes back what Ballast wrote to Services, so that nothing of it is left when it is gone. Run
//! once, when every publisher has ended.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::api::{ListParams, Patch};
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use super::status::take_back;
use crate::client;
use crate::cluster::leader::LEASE;
use crate::lease;
use crate::request::{self, is_lost_race, patiently};
use crate::settings::ClusterFlags;

/// Everything that `release` is told.
#[derive(Clone, Debug, Args)]
pub struct ReleaseFlags {
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// Say what would be taken back, and take nothing
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub dry: bool,
    /// A namespace to look at; repeatable [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// The class whose Services are ours [default: Services without one]
    #[arg(long, value_name = "CLASS")]
    pub lb_class: Option<String>,
    /// Take back Services without a class beside those of --lb-class
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub default_class: bool,
    /// The namespace that the controllers ran in [default: that of the kubeconfig's context, or of the pod]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    pub own_namespace: Option<String>,
}

/// Takes everything back, and says what.
///
/// # Errors
/// The cluster cannot be reached, a controller still writes, or a Service cannot be written.
pub fn release(flags: &ReleaseFlags) -> anyhow::Result<()> {
    flags.cluster.by_kubeconfig()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot begin")?;
    runtime.block_on(async {
        let client = client::client(&flags.cluster).await?;
        if !flags.dry {
            let configured = client.default_namespace();
            let namespace = flags.own_namespace.as_deref().unwrap_or(configured);
            no_publisher_leads(&client, namespace).await?;
        }
        all(&client, flags).await
    })
}

/// A publisher that leads would write everything again.
async fn no_publisher_leads(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let begun = Instant::now();
    let mut seen = None;
    loop {
        let found = patiently(leases.get_opt(lease::LEADER));
        let found = found.await.context("cannot read the leader's Lease")?;
        let Some(lease) = found else { return Ok(()) };
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        let Some(holder) = holder.filter(|holder| !holder.is_empty()) else {
            return Ok(());
        };
        let version = lease.metadata.resource_version;
        if *seen.get_or_insert_with(|| version.clone()) != version {
            bail!("the publisher {holder} still writes to Services; end all of them first");
        }
        if begun.elapsed() >= LEASE {
            // It died with the Lease in its hands.
            return Ok(());
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn all(client: &Client, flags: &ReleaseFlags) -> anyhow::Result<()> {
    let (mut released, mut failed) = (0, 0);
    let places: Vec<Api<Service>> = match flags.namespace.as_slice() {
        [] => vec![Api::all(client.clone())],
        named => named
            .iter()
            .map(|name| Api::namespaced(client.clone(), name))
            .collect(),
    };
    for place in places {
        let mut services = Vec::new();
        let listed = request::list(&place, ListParams::default(), |service| {
            services.push(service);
        });
        listed.await.context("cannot list Services")?;
        for service in services {
            let meta = &service.metadata;
            let (Some(namespace), Some(name)) = (meta.namespace.clone(), meta.name.clone()) else {
                continue;
            };
            if take_back(&service).is_none() {
                continue;
            }
            if let Some(why) = foreign(&service, flags) {
                println!("{namespace}/{name}: left alone: {why}");
                continue;
            }
            let services = Api::namespaced(client.clone(), &namespace);
            match one(&services, &name, service, flags.dry).await {
                Ok(said) => {
                    released += 1;
                    print!("{namespace}/{name}:{said}");
                }
                Err(error) => {
                    failed += 1;
                    println!("{namespace}/{name}: cannot be written: {error}");
                }
            }
        }
    }
    match flags.dry {
        true => println!("{released} Services would be given back; nothing was changed"),
        false => println!("{released} Services given back"),
    }
    match failed {
        0 => Ok(()),
        failed => bail!("{failed} Services are not given back whole; run this again"),
    }
}

/// Why a Service that carries something of Ballast's is none of those that these flags mean.
fn foreign(service: &Service, flags: &ReleaseFlags) -> Option<String> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() != Some("LoadBalancer") {
        return None;
    }
    match &spec.load_balancer_class {
        Some(class) if flags.lb_class.as_ref() == Some(class) => None,
        Some(class) => Some(format!("its class is {class}; --lb-class={class} means it")),
        None if flags.default_class || flags.lb_class.is_none() => None,
        None => Some("it has no class; --default-class means it".to_owned()),
    }
}

/// Takes back what one Service carries, its status first; says what, a line each.
async fn one(
    services: &Api<Service>,
    name: &str,
    mut live: Service,
    dry: bool,
) -> Result<String, kube::Error> {
    let mut said = String::new();
    let mut tries = 0;
    while let Some(back) = take_back(&live) {
        if said.is_empty() {
            for what in &back.what {
                // A String takes everything.
                _ = write!(said, "\n  {what}");
            }
            said.push('\n');
        }
        if dry {
            break;
        }
        let params = request::patch();
        let written = match (&back.status, &back.object) {
            (Some(status), _) => {
                let patch = Patch::Merge(status);
                patiently(services.patch_status(name, &params, &patch)).await
            }
            (None, Some(object)) => {
                let patch = Patch::Merge(object);
                patiently(services.patch(name, &params, &patch)).await
            }
            (None, None) => break,
        };
        live = match written {
            Ok(written) => written,
            Err(error) if is_lost_race(&error) && tries < TRIES => {
                tries += 1;
                match patiently(services.get_opt(name)).await? {
                    Some(live) => live,
                    None => break,
                }
            }
            // It was to be deleted, and is.
            Err(kube::Error::Api(status)) if status.code == 404 => break,
            Err(error) => return Err(error),
        };
    }
    Ok(said)
}

const TRIES: usize = 5;
const LOOK_EVERY: Duration = Duration::from_millis(500);
