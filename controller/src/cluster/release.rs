//! `ballast-controller release`: removes what Ballast wrote to Services, for an uninstallation. It runs once, when every
//! publisher has ended.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use super::status::{self, DesiredStatus};
use crate::client;
use crate::cluster::leader::{self, LEASE, LOOK_EVERY, LeaseState};
use crate::lease;
use crate::observe;
use crate::request::{self, is_outdated, patiently};
use crate::settings::ClusterFlags;

/// The flags of `release`.
#[derive(Clone, Debug, Args)]
pub struct ReleaseFlags {
    /// The API server, and the account there.
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

/// Removes everything, and prints what.
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
    let (mut silence, mut unanswered) = (Silence::default(), 0);
    loop {
        let found = patiently(leases.get_opt(lease::LEADER)).await;
        if let Err(kube::Error::Service(_)) = found
            && unanswered < TRIES
        {
            unanswered += 1;
            continue;
        }
        let found = found.context("cannot read the leader's Lease")?;
        let Some(lease) = found else { return Ok(()) };
        match silence.look(begun.elapsed(), leader::state(&lease)) {
            Heard::Nobody => return Ok(()),
            Heard::Publisher(holder) => {
                bail!("the publisher {holder} still writes to Services; end all of them first")
            }
            Heard::NotYet => sleep(READ_EVERY).await,
        }
    }
}

/// For how long nobody has written the leader's Lease.
#[derive(Debug, Default)]
struct Silence(Option<(LeaseState, Duration)>);

/// What is known of publishers.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    NotYet,
    Nobody,
    /// The name of the one that has written the Lease.
    Publisher(String),
}

impl Silence {
    /// Considers a state of the Lease that was read at this time.
    fn look(&mut self, now: Duration, lease: LeaseState) -> Heard {
        match &self.0 {
            Some((seen, since)) if *seen == lease => {
                let enough = match lease.holder.is_empty() {
                    true => GIVEN_BACK,
                    // The holder may have died without giving the Lease back.
                    false => LEASE,
                };
                match now >= *since + enough {
                    true => Heard::Nobody,
                    false => Heard::NotYet,
                }
            }
            Some(_) if !lease.holder.is_empty() => Heard::Publisher(lease.holder),
            _ => {
                self.0 = Some((lease, now));
                Heard::NotYet
            }
        }
    }
}

async fn all(client: &Client, flags: &ReleaseFlags) -> anyhow::Result<()> {
    let (mut released, mut failed) = (0, 0);
    let places: Vec<Api<Service>> = match flags.namespace.as_slice() {
        [] => vec![Api::all(client.clone())],
        named => {
            let of = |name: &String| Api::namespaced(client.clone(), name);
            named.iter().map(of).collect()
        }
    };
    for place in places {
        let mut services = Vec::new();
        let listed = request::list(&place, ListParams::default(), |one| services.push(one));
        listed.await.context("cannot list Services")?;
        for live in services {
            let (Some(namespace), Some(name)) = (&live.metadata.namespace, &live.metadata.name)
            else {
                continue;
            };
            let called = format!("{namespace}/{name}");
            let why = foreign(&live, flags);
            let Ok(service) = observe::service(live) else {
                continue;
            };
            let desired = DesiredStatus::released(&service);
            let parts = desired.removes(&service);
            if parts.is_empty() {
                continue;
            }
            if let Some(why) = why {
                println!("{called}: left alone: {why}");
                continue;
            }
            let written = match flags.dry {
                true => Ok(()),
                false => one(client, service, desired).await,
            };
            match written {
                Ok(()) => {
                    released += 1;
                    println!("{called}:\n  {}", parts.join("\n  "));
                }
                Err(error) => {
                    failed += 1;
                    println!("{called}: cannot be written: {error}");
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

/// Removes what one Service has of ours, the published addresses first.
async fn one(
    client: &Client,
    mut service: observe::Service,
    mut desired: DesiredStatus,
) -> Result<(), kube::Error> {
    let services: Api<Service> = Api::namespaced(client.clone(), &service.key.namespace);
    let name = service.key.name.clone();
    let mut tries = 0;
    loop {
        let error = match status::release(client, service, desired).await {
            Err(error) if is_outdated(&error) && tries < TRIES => error,
            result => return result,
        };
        tries += 1;
        let Some(live) = patiently(services.get_opt(&name)).await? else {
            // Its deletion waited for the finalizer.
            return Ok(());
        };
        let Ok(newer) = observe::service(live) else {
            return Err(error);
        };
        desired = DesiredStatus::released(&newer);
        service = newer;
    }
}

const TRIES: usize = 5;
const READ_EVERY: Duration = Duration::from_millis(500);
/// A Lease that was given back and is as it was for so long has no candidate: one that waits would have taken it.
const GIVEN_BACK: Duration = Duration::from_secs(3 * LOOK_EVERY.as_secs());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_are_gone_when_nobody_writes_the_lease_for_as_long_as_one_would_wait() {
        use Heard::*;
        let other = || Publisher("b".to_owned());
        let stories: [&[(u64, &str, &str, Heard)]; 4] = [
            // It was given back, and nobody took it.
            &[
                (0, "", "1", NotYet),
                (2_999, "", "1", NotYet),
                (3_000, "", "1", Nobody),
            ],
            // One that waited took it.
            &[(0, "", "1", NotYet), (500, "b", "2", other())],
            // It is renewed.
            &[(0, "b", "1", NotYet), (2_000, "b", "2", other())],
            // The holder ends, which is seen: the one that waits for it has its time from then.
            &[
                (0, "a", "1", NotYet),
                (10_500, "", "2", NotYet),
                (13_000, "", "2", NotYet),
                (13_500, "", "2", Nobody),
            ],
        ];
        for story in stories {
            let mut silence = Silence::default();
            for (millis, holder, version, heard) in story {
                let lease = LeaseState {
                    holder: (*holder).to_owned(),
                    version: (*version).to_owned(),
                };
                let now = Duration::from_millis(*millis);
                assert_eq!(silence.look(now, lease), *heard, "{millis} of {story:?}");
            }
        }
        // Its holder has died.
        let mut silence = Silence::default();
        let dead = LeaseState {
            holder: "a".to_owned(),
            version: "1".to_owned(),
        };
        assert_eq!(silence.look(Duration::ZERO, dead.clone()), NotYet);
        assert_eq!(silence.look(LEASE, dead), Nobody);
    }
}
