//! Pages that a flag names by an address: asked for once, and again until they come. Called by [`super::publish`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::{Request, Uri};
use kube::{Client, Config};
use tokio::time::{Instant, timeout};

use crate::decide::{Source, WantedFile};

/// What was fetched, by its address.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pages: BTreeMap<String, Vec<u8>>,
    next: Option<Instant>,
    failures: u32,
}

impl Pages {
    /// A page, once it came.
    #[must_use]
    pub(crate) fn page(&self, url: &str) -> Option<&[u8]> {
        self.pages.get(url).map(Vec::as_slice)
    }

    /// Asks for what is wanted and not there, and says whether everything is.
    pub(super) async fn fetch(&mut self, wanted: &BTreeSet<WantedFile>) -> bool {
        let urls = wanted.iter().filter_map(|file| match &file.from {
            Source::Url(url) => Some(url),
            _ => None,
        });
        let missing: Vec<&String> = urls.filter(|url| !self.pages.contains_key(*url)).collect();
        if missing.is_empty() || self.next.is_some_and(|next| Instant::now() < next) {
            return missing.is_empty();
        }
        let mut is_whole = true;
        for url in missing {
            match get(url).await {
                Ok(page) => {
                    tracing::info!(bytes = page.len(), "--error-page: fetched {url}");
                    self.pages.insert(url.clone(), page);
                }
                Err(why) => {
                    is_whole = false;
                    self.failures += 1;
                    let pause = PAUSE * 2_u32.pow(self.failures.min(6));
                    self.next = Some(Instant::now() + pause);
                    tracing::warn!("--error-page: {url}: {why}; asking again in {pause:?}");
                }
            }
        }
        is_whole
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
    // kube's client asks any server, with the certificates that the host trusts.
    let client = Client::try_from(Config::new(base)).map_err(|error| error.to_string())?;
    let fetch = async {
        let answer = client
            .send(request)
            .await
            .map_err(|error| error.to_string())?;
        if !answer.status().is_success() {
            return Err(format!("answered {}", answer.status()));
        }
        let body = Limited::new(answer.into_body(), LARGEST).collect().await;
        let body = body.map_err(|error| error.to_string())?;
        Ok(body.to_bytes().to_vec())
    };
    timeout(PATIENCE, fetch)
        .await
        .map_err(|_| "no answer in time".to_owned())?
}

const PAUSE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);
const LARGEST: usize = 1 << 20;
