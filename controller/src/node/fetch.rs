//! Downloads the pages that a flag names by a URL, in a task of its own, so that no table waits for them. Read by [`super::table`].

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{Request, Uri};
use kube::{Client, Config};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::decide::Source;
use crate::reconcile::{Decision, Decisions};

/// The downloaded pages, by URL.
#[derive(Debug, Default)]
pub(crate) struct Pages(BTreeMap<String, Vec<u8>>);

impl Pages {
    /// A page, once it was downloaded.
    pub(crate) fn page(&self, url: &str) -> Option<&[u8]> {
        self.0.get(url).map(Vec::as_slice)
    }

    /// The URL of a page that a decision wants and that was not downloaded yet.
    fn missing(&self, decision: Option<&Decision>) -> Option<String> {
        let files = decision.into_iter().flat_map(|one| &one.desired.files);
        let mut urls = files.filter_map(|file| match &file.from {
            Source::Url(url) => Some(url),
            _ => None,
        });
        urls.find(|url| !self.0.contains_key(*url)).cloned()
    }
}

/// Downloads every page that decisions want, once, until the reconcile loop ends.
pub(crate) async fn follow(mut decisions: Decisions, pages: watch::Sender<Pages>) {
    let mut failures = 0;
    let mut not_before = Instant::now();
    loop {
        let missing = {
            let decision = decisions.borrow_and_update();
            pages.borrow().missing(decision.as_ref())
        };
        if let Some(url) = &missing
            && Instant::now() >= not_before
        {
            match get(url).await {
                Ok(page) => {
                    tracing::info!(bytes = page.len(), "--error-page: fetched {url}");
                    failures = 0;
                    pages.send_modify(|pages| {
                        pages.0.insert(url.clone(), page);
                    });
                    continue;
                }
                Err(why) => {
                    failures += 1;
                    let pause = PAUSE * 2_u32.pow(failures.min(6));
                    not_before = Instant::now() + pause;
                    tracing::warn!("--error-page: {url}: {why}; asking again in {pause:?}");
                }
            }
        }
        tokio::select! {
            changed = decisions.changed() => if changed.is_err() {
                return;
            },
            () = sleep_until(not_before), if missing.is_some() => {}
        }
    }
}

async fn get(url: &str) -> Result<Vec<u8>, String> {
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path).body(kube::client::Body::empty());
    let request = request.map_err(|error| error.to_string())?;
    let base = format!(
        "{}://{}/",
        uri.scheme_str().unwrap_or("http"),
        uri.authority().map_or("", |authority| authority.as_str())
    );
    let base: Uri = base.parse().map_err(|error| format!("{error}"))?;
    // kube's client works with any server, and trusts the certificates that the host trusts.
    let client = Client::try_from(Config::new(base)).map_err(|error| error.to_string())?;
    let fetch = async {
        let answer = client.send(request).await;
        let answer = answer.map_err(|error| error.to_string())?;
        if !answer.status().is_success() {
            return Err(format!("answered {}", answer.status()));
        }
        let body = Limited::new(answer.into_body(), LARGEST).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => "is larger than 1 MiB".to_owned(),
            false => error.to_string(),
        })?;
        Ok(body.to_bytes().to_vec())
    };
    let fetched = timeout(PATIENCE, fetch).await;
    fetched.map_err(|_| "no answer in time".to_owned())?
}

const PAUSE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);
const LARGEST: usize = 1 << 20;
