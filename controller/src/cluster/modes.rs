//! What people are told where the API server drops `ipMode`. Found out by [`super::status`], told by [`super::events`].

use std::borrow::Cow;
use std::collections::BTreeSet;

use tokio::sync::watch;

use crate::decide::{About, Ingress, Kind, Notice, Reason, Verdict};
use crate::reconcile::Decision;

/// Whether it drops the mode, and no name is published in place of an address; `None`: it is not known yet.
pub(crate) type Modes = watch::Receiver<Option<bool>>;

/// The notices of a decision, and one for each Service whose published addresses have no mode.
pub(super) fn notices(decision: &Decision, drops_modes: bool) -> Cow<'_, BTreeSet<Notice>> {
    let notices = &decision.desired.notices;
    if !drops_modes {
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
