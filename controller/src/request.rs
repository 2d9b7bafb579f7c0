//! How the API server is asked, by everybody who writes to it.

use std::future::Future;
use std::time::Duration;

use kube::api::{PatchParams, PostParams};
use tokio::time::timeout;

/// A request, which may hang.
pub(crate) async fn patiently<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    match timeout(PATIENCE, request).await {
        Ok(result) => result,
        Err(_) => Err(kube::Error::Service("no answer in time".into())),
    }
}

/// How something is created or replaced in our name.
pub(crate) fn post() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// How something is patched in our name.
pub(crate) fn patch() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Somebody else wrote first: it is simply done again.
pub(crate) fn is_lost_race(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Why the API server does not take what was written, if that is what it says: the same again will be refused again.
pub(crate) fn refusal(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let passes = [404, 408, 409, 410, 429].contains(&status.code);
    let is_refused = (400..500).contains(&status.code) && !passes;
    is_refused.then(|| match status.message.is_empty() {
        true => format!("{} {}", status.code, status.reason),
        false => status.message.clone(),
    })
}

/// Who writes, as Kubernetes calls it.
pub(crate) const MANAGER: &str = "ballast-controller";

const PATIENCE: Duration = Duration::from_secs(3);
