//! The ack of the announcer that runs beside this process, as the page shows it. It is read when somebody looks at the page, on the
//! admin thread, and bounded: whatever stands at the path costs no client anything.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ballast_core::announce_ack::{Ack, State};

use crate::os::files::{self, Fault, allow};

/// Where the ack is, and what stood there a moment ago.
#[derive(Debug)]
pub(crate) struct AnnouncerAck {
    path: PathBuf,
    /// All readers of the page share it.
    recent: RefCell<Option<(Instant, Arc<Announced>)>>,
}

/// What the announcer says.
#[derive(Debug)]
pub(super) struct Announced {
    /// Its addresses in the order of the page. `Err`: why it is not known, for the page.
    pub(super) ack: Result<Ack, String>,
    /// How long ago the announcer showed last that it runs.
    pub(super) age: Duration,
    /// Milliseconds since 1970 when it was read.
    pub(super) now: u64,
}

impl AnnouncerAck {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self {
            path,
            recent: RefCell::new(None),
        }
    }

    /// What the announcer says, at most half a second ago.
    pub(super) fn read(&self) -> Arc<Announced> {
        let mut recent = self.recent.borrow_mut();
        match &*recent {
            Some((read, announced)) if read.elapsed() < SHARED_FOR => Arc::clone(announced),
            _ => {
                let announced = Arc::new(Announced::read(&self.path));
                *recent = Some((Instant::now(), Arc::clone(&announced)));
                announced
            }
        }
    }
}

impl Announced {
    fn read(path: &Path) -> Self {
        let now = SystemTime::now();
        let written = fs::metadata(path).and_then(|about| about.modified());
        let age = written.map(|written| now.duration_since(written).unwrap_or_default());
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            ack: ack(path),
            age: age.unwrap_or_default(),
            now: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Whether the announcer that wrote it does not run any more.
    pub(super) fn is_old(&self) -> bool {
        self.age > Ack::OLDEST
    }
}

fn ack(path: &Path) -> Result<Ack, String> {
    let place = path.display();
    let bytes = files::read_at_most(LARGEST, path).map_err(|fault| match fault {
        Fault::Unreadable(error) if error.kind() == std::io::ErrorKind::NotFound => format!(
            "{place} is not there: see that the announcer of this host runs, and that its --ack is the path of --announce-ack"
        ),
        Fault::Unreadable(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("{place}: {error}; {}; a folder that was made after the start of this process is outside of its sandbox until it starts again", allow())
        }
        fault => format!("{place}: {fault}; name the announcer's ack by --announce-ack"),
    })?;
    let not_one = || {
        format!("{place} is no ack of an announcer; name the path of its --ack by --announce-ack")
    };
    let mut ack: Ack = serde_json::from_slice(&bytes).map_err(|_| not_one())?;
    if ack.version != Ack::VERSION {
        return Err(format!(
            "{place} is of version {}, and this page reads version {}; run both programs in the same version",
            ack.version,
            Ack::VERSION
        ));
    }
    // Those that need a look first; among those of one state the order of the file stays.
    ack.addresses.sort_by_key(|one| match one.state {
        State::Conflict => 0,
        State::NoInterface => 1,
        State::NotReady => 2,
        State::Held => 3,
        State::NotOurs => 4,
    });
    Ok(ack)
}

const SHARED_FOR: Duration = Duration::from_millis(500);
/// As many addresses as an announcer takes, and more.
const LARGEST: u64 = 8 << 20;
