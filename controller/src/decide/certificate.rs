//! The certificate of a port that terminates TLS, and whether the Service may use the Secret that has it.

use super::annotations::Reader;
use super::context::Context;
use super::files::{self, WantedFile};
use super::notice::Reason;
use super::options::{PortOptions, Tls};
use super::service_plan::ServicePlan;
use crate::observe::{Key, Port, Secret, Service};
use crate::settings::Role;

/// Whether a port can be served, and with which certificate.
pub(super) enum Termination {
    /// Not by any Secret: the port is not planned at all.
    Unserved,
    /// The Secret cannot be used now: the port is claimed and stays closed.
    Closed,
    /// With this certificate; `None`: TLS is not terminated here.
    Open(Option<ballast_core::table::Certificate>),
}

/// Finds the certificate of a port.
pub(super) fn certificate(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    options: &PortOptions,
    port: &Port,
    plan: &mut ServicePlan,
) -> Termination {
    let key = match &options.tls {
        Tls::Plain => return Termination::Open(None),
        Tls::Closed => return Termination::Unserved,
        Tls::Default => return Termination::Open(Some(WantedFile::default_certificate())),
        Tls::Secret(key) => key,
    };
    if context.settings.role == Role::Publisher {
        // Only nodes read Secrets; they report those that they cannot use.
        return Termination::Open(None);
    }
    plan.wanted.secrets.insert(key.clone());
    let found = context.observed.secrets.get(key);
    if found != Some(&Secret::Forbidden) && !may_use(context, reader.service, key, found, plan) {
        refuse_reference(context, reader, key, port);
        return Termination::Closed;
    }
    let why = match found {
        Some(Secret::Readable(material)) => match files::flaw(material) {
            Some(flaw) => flaw.to_owned(),
            None => {
                let (certificate, wanted) = WantedFile::of_secret(key);
                plan.files.extend(wanted);
                return Termination::Open(Some(certificate));
            }
        },
        Some(Secret::Forbidden) => {
            let (of_secret, own) = (&key.namespace, &context.settings.own_namespace);
            format!(
                "may not be read; allow it with: kubectl create rolebinding ballast-tls --namespace={of_secret} --clusterrole=ballast-tls --serviceaccount={own}:ballast"
            )
        }
        None if !is_read(context, key) => {
            "could not be read yet: the API server does not answer".to_owned()
        }
        None => "does not exist".to_owned(),
    };
    let message = format!("port {} stays closed: Secret {key} {why}", port.number);
    reader.warn_by_node(Reason::SecretUnreadable, message);
    Termination::Closed
}

/// Whether it is known what the Secret has, or that there is none.
pub(super) fn is_read(context: &Context<'_>, key: &Key) -> bool {
    !looks_up(context) || context.observed.looked_up.secrets.contains(key)
}

/// Whether a Service may use a Secret: one of its own namespace, or one that permits it. The ReferenceGrants are looked up only
/// where the Secret itself does not permit it.
fn may_use(
    context: &Context<'_>,
    service: &Service,
    key: &Key,
    found: Option<&Secret>,
    plan: &mut ServicePlan,
) -> bool {
    let from = &service.key.namespace;
    if key.namespace == *from {
        return true;
    }
    if let Some(Secret::Readable(material)) = found
        && material.allows(from)
    {
        return true;
    }
    if is_read(context, key) {
        plan.wanted.grants.insert(key.namespace.clone());
    }
    let grants = context.observed.grants.get(&key.namespace);
    let mut grants = grants.into_iter().flatten();
    grants.any(|grant| grant.permits(from, &key.name))
}

/// Warns of a Secret that the Service may not use. The message does not tell whether the Secret exists: that is known to its own
/// namespace only.
fn refuse_reference(context: &Context<'_>, reader: &mut Reader<'_>, key: &Key, port: &Port) {
    let from = &reader.service.key.namespace;
    let looked_up = &context.observed.looked_up;
    let is_known = looked_up.secrets.contains(key) && looked_up.grants.contains(&key.namespace);
    let why = match looks_up(context) && !is_known {
        true => "whether it permits that is not known yet".to_owned(),
        false => format!(
            "it must have the annotation ballast.dev/allow-from: \"{from}\", or a ReferenceGrant there must permit Services of {from}"
        ),
    };
    let message = format!(
        "port {} stays closed: Secret {key} is of another namespace, which does not permit its use from {from}; {why}",
        port.number
    );
    reader.warn_by_node(Reason::RefNotPermitted, message);
}

/// Whether Secrets and ReferenceGrants are looked up one by one. A folder of manifests has all of them from the start.
fn looks_up(context: &Context<'_>) -> bool {
    context.settings.role == Role::Node || context.observed.leases.is_some()
}
