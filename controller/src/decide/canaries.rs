//! Which Services are canaries of others, and which clients each asks for: `ballast.dev/canary-of`.

use std::collections::BTreeMap;

use ballast_core::table::HeaderMatch;

use super::annotations::{Reader, knobs, quoted};
use super::fault::Fault;
use super::names;
use super::notice::{About, Notice, Reason};
use super::status::is_foreign;
use crate::observe::{Key, Observed, Service, ServiceKind};
use crate::settings::Settings;

/// A Service that gets a part of the clients of another one.
pub(super) struct Canary<'a> {
    pub(super) service: &'a Service,
    /// How many of 100 connections or requests it gets.
    pub(super) weight: Option<u32>,
    /// The requests that it gets whatever its weight.
    pub(super) header: Option<HeaderMatch>,
}

/// The canaries of each Service, oldest first.
#[derive(Default)]
pub(super) struct Canaries<'a>(BTreeMap<Key, Vec<Canary<'a>>>);

impl<'a> Canaries<'a> {
    /// Finds the canaries that take part, and warns of what keeps others from it. What is wrong with a value by itself is told
    /// when the plan of the canary reads it.
    pub(super) fn of(
        observed: &'a Observed,
        settings: &'a Settings,
        left_out: &BTreeMap<Key, Fault>,
        notices: &mut Vec<Notice>,
    ) -> Self {
        let may_be_one = |service: &&Service| {
            asks(service)
                && settings.looks_at(&service.key.namespace)
                && !service.deleting
                && !observed.waiting.contains(&service.key)
                && !left_out.contains_key(&service.key)
                && (service.kind != ServiceKind::LoadBalancer
                    || (settings.takes(service.class.as_deref()) && !is_foreign(service)))
        };
        let services = observed.services.values().map(|service| &**service);
        let mut services: Vec<&Service> = services.filter(may_be_one).collect();
        services.sort_by(|one, other| one.age().cmp(&other.age()));
        let mut found = Self::default();
        for service in services {
            let mut reader = Reader::new(service, observed, settings);
            if reader.is_on(&knobs::IGNORE, None) {
                continue;
            }
            let Some((target, mut canary)) = read(&mut reader) else {
                continue;
            };
            let mut warnings = Vec::new();
            if let Some(why) = refused(&target, observed, settings) {
                warnings.push(why);
            } else {
                let others = found.0.entry(target.clone()).or_default();
                canary.beside(others, &target, &mut warnings);
                if canary.weight.is_some() || canary.header.is_some() {
                    others.push(canary);
                }
            }
            notices.extend(warnings.into_iter().map(|(reason, message)| {
                Notice::warning(About::Service(service.key.clone()), reason, message)
            }));
        }
        found
    }

    pub(super) fn of_service(&self, key: &Key) -> &[Canary<'a>] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    /// What a Service gets of another one, for its status; `None`: it takes no part.
    pub(super) fn told(&self, target: &Key, service: &Service) -> Option<String> {
        let mut canaries = self.of_service(target).iter();
        let canary = canaries.find(|one| one.service.key == service.key)?;
        let weight = canary.weight.map(|weight| format!(", weight {weight}"));
        let header = canary.header.as_ref();
        let header = header.map(|header| format!(", header {}", shown(header)));
        let shares = [weight, header].into_iter().flatten().collect::<String>();
        Some(format!("a canary of {target}{shares}"))
    }
}

/// Whether an annotation makes the Service a canary.
pub(super) fn asks(service: &Service) -> bool {
    service.annotations.contains_key(OF)
}

/// What the annotations of a Service say: of which Service it is a canary, and of which share.
pub(super) fn read<'a>(reader: &mut Reader<'a>) -> Option<(Key, Canary<'a>)> {
    let service = reader.service;
    if !asks(service) {
        let why = format!("there is no {OF}");
        reader.without_effect(&["canary-weight", "canary-header"], &why);
        return None;
    }
    let of = reader.value(&knobs::CANARY_OF, None);
    let weight = reader.value(&knobs::CANARY_WEIGHT, None);
    let header = reader.value(&knobs::CANARY_HEADER, None);
    if !service.annotations.contains_key(WEIGHT) && !service.annotations.contains_key(HEADER) {
        let message =
            format!("{OF}: neither {WEIGHT} nor {HEADER} says what it gets; it gets nothing");
        reader.warn(Reason::InvalidAnnotation, message);
    }
    let canary = Canary {
        service,
        weight,
        header,
    };
    Some((Key::new(&service.key.namespace, &of?), canary))
}

/// The reason for which a Service can have no canary.
fn refused(target: &Key, observed: &Observed, settings: &Settings) -> Option<(Reason, String)> {
    let service = observed.services.get(target);
    let is_served = service.is_some_and(|service| match service.kind {
        ServiceKind::LoadBalancer => settings.takes(service.class.as_deref()),
        _ => names::contends(service, observed, settings),
    });
    if service.is_some_and(|service| asks(service)) {
        let message = format!(
            "{OF}: {target} is a canary itself, and can have none; this Service gets nothing"
        );
        return Some((Reason::InvalidAnnotation, message));
    }
    let message = format!(
        "{OF}: there is no Service {target} that Ballast serves; this Service gets nothing"
    );
    (!is_served).then_some((Reason::NoSuchService, message))
}

impl Canary<'_> {
    /// Takes away what older canaries of the same Service have already.
    fn beside(&mut self, others: &[Self], target: &Key, warnings: &mut Vec<(Reason, String)>) {
        if others.len() >= MOST {
            let message =
                format!("{OF}: {target} has {MOST} canaries already; this Service gets nothing");
            warnings.push((Reason::InvalidAnnotation, message));
            (self.weight, self.header) = (None, None);
        }
        let taken: u32 = others.iter().filter_map(|other| other.weight).sum();
        if let Some(weight) = self.weight.filter(|weight| taken + weight > 100) {
            let message = format!(
                "{WEIGHT}: older canaries of {target} have {taken} of 100 already, so there is no room for {weight}; this Service gets no share"
            );
            warnings.push((Reason::AnnotationConflict, message));
            self.weight = None;
        }
        let is_same = |other: &&Self| match (&self.header, &other.header) {
            (Some(ours), Some(theirs)) => {
                ours.name.eq_ignore_ascii_case(&theirs.name) && ours.value == theirs.value
            }
            _ => false,
        };
        if let Some(other) = others.iter().find(is_same)
            && let Some(header) = self.header.take()
        {
            let header = quoted(&shown(&header));
            let message = format!(
                "{HEADER}: {header} leads to {} already, which is older; it is not used",
                other.service.key
            );
            warnings.push((Reason::AnnotationConflict, message));
        }
    }
}

fn shown(header: &HeaderMatch) -> String {
    format!(
        "{}={}",
        &*header.name,
        header.value.as_deref().unwrap_or_default()
    )
}

/// The most canaries of one Service.
const MOST: usize = 10;

pub(super) const OF: &str = "ballast.dev/canary-of";

const WEIGHT: &str = "ballast.dev/canary-weight";

pub(super) const HEADER: &str = "ballast.dev/canary-header";
