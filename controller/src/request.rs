//! How the API server is asked, by everybody who writes to it.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use kube::Api;
use kube::api::{ListParams, PatchParams, PostParams};
use serde::de::DeserializeOwned;
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

/// Takes in every object that `asked` means, page by page.
pub(crate) async fn list<K>(
    api: &Api<K>,
    asked: ListParams,
    mut take: impl FnMut(K),
) -> Result<(), kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut asked = asked.limit(PAGE);
    loop {
        let page = patiently(api.list(&asked)).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => asked = asked.continue_token(&token),
            None => return Ok(()),
        }
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

/// Whether a field manager is this program.
pub(crate) fn is_ours(manager: &str) -> bool {
    [MANAGER, EARLIER_MANAGER].contains(&manager)
}

/// The field manager of everything that is written.
pub(crate) const MANAGER: &str = "ballast";
/// That of earlier builds.
const EARLIER_MANAGER: &str = "ballast-controller";
/// The reporting controller of events.
pub(crate) const REPORTER: &str = "ballast-controller";

/// Objects a page.
const PAGE: u32 = 500;
const PATIENCE: Duration = Duration::from_secs(3);
