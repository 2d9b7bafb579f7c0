//! `--wait`: starts a process while its predecessor is still ending and holds what this one needs.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ballast::StartError;
use tokio::time::timeout;

use crate::signals::Signals;

/// How long to wait for the end of the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Forever,
    For(Duration),
}

impl Wait {
    pub(crate) fn parse(word: &str) -> Result<Self, String> {
        if word == FOREVER {
            return Ok(Self::Forever);
        }
        crate::cli::duration(word).map(Self::For)
    }

    fn left(self, began: Instant) -> Duration {
        match self {
            Self::Forever => Duration::MAX,
            Self::For(limit) => limit.saturating_sub(began.elapsed()),
        }
    }
}

/// Calls `begin` until no ending process is in its way. `None`: a signal asked for the end meanwhile.
pub(crate) fn begin<T>(
    signals: &mut Signals,
    wait: Option<Wait>,
    mut begin: impl FnMut() -> Result<T, StartError>,
) -> anyhow::Result<Option<T>> {
    let began = Instant::now();
    let mut released: Option<Instant> = None;
    loop {
        match (begin(), wait) {
            (Ok(begun), _) => return Ok(Some(begun)),
            (Err(StartError::Ending(other)), Some(wait)) => {
                if released.is_none() {
                    tracing::info!("waiting: {other}");
                }
                let left = wait.left(began);
                match signals.wait_for(async { timeout(left, other.over()).await }) {
                    None => return Ok(None),
                    Some(Err(_)) => bail!("{other}; that took longer than --wait allows"),
                    Some(Ok(over)) => over.with_context(|| format!("{other}; cannot wait"))?,
                }
                released = Some(Instant::now());
            }
            // The kernel closes the descriptors of an ended process one after the other.
            (Err(error), _)
                if error.may_pass() && released.is_some_and(|at| at.elapsed() < RELEASE_TIME) =>
            {
                thread::sleep(RETRY_INTERVAL);
            }
            (Err(error), _) => return Err(error.into()),
        }
    }
}

/// What `--wait` without a value means.
pub(crate) const FOREVER: &str = "forever";
/// Time for the kernel to close all descriptors of an ended process.
const RELEASE_TIME: Duration = Duration::from_secs(1);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
