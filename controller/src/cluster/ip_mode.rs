//! The warning of Services where the API server drops `ipMode`. [`super::status`] finds that out, [`super::events`] writes the
//! events.

use std::borrow::Cow;
use std::collections::BTreeSet;

use tokio::sync::watch;

use crate::decide::{About, Ingress, Kind, Notice, Reason, Verdict};
use crate::reconcile::Decision;

/// Whether it drops the field, and no name is published in place of an address; `None`: it is not known yet.
pub(crate) type LacksIpMode = watch::Receiver<Option<bool>>;

/// The notices of a decision, and one for each Service whose published addresses have no `ipMode`.
pub(super) fn notices(decision: &Decision, lacks_ip_mode: bool) -> Cow<'_, BTreeSet<Notice>> {
    let notices = &decision.desired.notices;
    if !lacks_ip_mode {
        return Cow::Borrowed(notices);
    }
    let is_address = |entry: &Ingress| matches!(entry, Ingress::Ip(_));
    let published = decision.desired.statuses.iter().filter(|status| {
        status.verdict == Verdict::Served && status.ingress.iter().any(is_address)
    });
    let more = published.map(|status| Notice {
        about: About::Service(status.service.clone()),
        kind: Kind::Warning,
        reason: Reason::IPModeUnsupported,
        message: UNSUPPORTED.to_owned(),
    });
    Cow::Owned(notices.iter().cloned().chain(more).collect())
}

const UNSUPPORTED: &str = "the API server drops ipMode (it is older than 1.30): kube-proxy keeps connections from inside the cluster for itself; --ingress-hostname-suffix publishes a name instead";
