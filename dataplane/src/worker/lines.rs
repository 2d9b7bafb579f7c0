//! The access lines of one worker that were rendered and not handed over yet.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_core::table::Access;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::access::{Dates, Record, render};
use crate::os::clock::Micros;
use crate::worker::{Shared, Worker};

/// The buffer of one worker. Dropping it hands over what it holds.
#[derive(Debug)]
pub(crate) struct Lines {
    shared: Arc<Shared>,
    batch: RefCell<Batch>,
    /// Notified when the first line of a batch was added.
    begun: Notify,
}

#[derive(Debug, Default)]
struct Batch {
    text: String,
    count: u64,
    dates: Dates,
    /// One moment by both clocks, read when the batch began.
    clocks: (Micros, Option<SystemTime>),
}

impl Lines {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            batch: RefCell::default(),
            begun: Notify::new(),
        }
    }

    /// Renders a line.
    pub(crate) fn add(&self, record: &Record<'_>) {
        let form = self.shared.access.form();
        if form == Access::Off {
            return;
        }
        let mut batch = self.batch.borrow_mut();
        let batch = &mut *batch;
        if batch.text.is_empty() {
            batch.text.reserve(BATCH + SPARE);
            batch.clocks = (self.shared.clock.precisely(), Some(SystemTime::now()));
            self.begun.notify_one();
        }
        let began = batch.system_time(record.began);
        let date = batch.dates.at(began, form);
        render(record, form, date, &mut batch.text);
        batch.text.push('\n');
        batch.count += 1;
        if batch.text.len() >= BATCH {
            self.hand_over(batch);
        }
    }

    fn hand_over(&self, batch: &mut Batch) {
        let lines = std::mem::take(&mut batch.text);
        let count = std::mem::take(&mut batch.count);
        if count > 0 {
            self.shared.access.write(lines, count);
        }
    }
}

impl Batch {
    fn system_time(&self, moment: Micros) -> SystemTime {
        let (read, time) = self.clocks;
        let time = time.unwrap_or(SystemTime::UNIX_EPOCH);
        let time = time.checked_sub(read.since(moment));
        time.unwrap_or(SystemTime::UNIX_EPOCH) + moment.since(read)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let mut batch = self.batch.take();
        self.hand_over(&mut batch);
    }
}

/// Hands over lines that would otherwise wait for more.
pub(crate) async fn hand_over_in_time(worker: Rc<Worker>) {
    let lines = &worker.lines;
    loop {
        lines.begun.notified().await;
        sleep(LONGEST_WAIT).await;
        lines.hand_over(&mut lines.batch.borrow_mut());
    }
}

/// A batch of this many bytes is handed over at once.
const BATCH: usize = 32 * 1024;
/// Room for the line that makes a batch complete.
const SPARE: usize = 1024;
/// The longest that a line waits for others.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use ballast_core::table;
    use tokio::sync::mpsc;

    use super::*;
    use crate::access::{AccessLog, Writer};
    use crate::os::limits::{Budget, Room};

    fn shared(form: Access) -> (Arc<Shared>, Writer) {
        let (access, writer) = AccessLog::new();
        let (sender, _overrides) = mpsc::unbounded_channel();
        let room = Room::new(Budget::in_force(), 1, None, Some(10));
        let (shared, _inboxes) = Shared::new(room, 1, access, sender, None);
        let log = table::Log {
            access: form,
            ..table::Log::default()
        };
        shared.access.follow(&log, std::path::Path::new("."));
        (shared, writer)
    }

    #[test]
    fn lines_are_handed_over_when_there_are_many_and_at_the_end() {
        let (shared, writer) = shared(Access::Haproxy);
        let lines = Lines::new(&shared);
        let mut added = 0;
        let batch = loop {
            lines.add(&Record::example());
            added += 1;
            if let Some(batch) = writer.next_lines() {
                break batch;
            }
        };
        assert!((BATCH..BATCH + SPARE).contains(&batch.len()));
        assert_eq!(batch.lines().count(), added);
        assert!(batch.ends_with("\"\n"));
        lines.add(&Record::example());
        assert_eq!(writer.next_lines(), None);
        drop(lines);
        assert_eq!(
            writer.next_lines().map(|last| last.lines().count()),
            Some(1)
        );
        assert_eq!(shared.access.dropped(), 0);
    }

    #[test]
    fn a_worker_never_waits_and_each_line_that_is_lost_is_counted() {
        let (shared, _nobody_reads) = shared(Access::Json);
        let lines = Lines::new(&shared);
        while shared.access.dropped() == 0 {
            lines.add(&Record::example());
        }
        let a_batch = shared.access.dropped();
        assert!(a_batch > 10, "{a_batch}");
        for _ in 0..a_batch {
            lines.add(&Record::example());
        }
        assert_eq!(shared.access.dropped(), 2 * a_batch);
    }

    #[test]
    fn no_line_is_rendered_that_nobody_wants() {
        let (shared, writer) = shared(Access::Off);
        let lines = Lines::new(&shared);
        lines.add(&Record::example());
        drop(lines);
        assert_eq!(writer.next_lines(), None);
    }

    #[test]
    fn dates_are_of_the_moments_of_requests() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let batch = Batch {
            clocks: (Micros::from(5_000_000), Some(time)),
            ..Batch::default()
        };
        let at = |micros| batch.system_time(Micros::from(micros));
        assert_eq!(at(4_000_000), time - Duration::from_secs(1));
        assert_eq!(at(5_500_000), time + Duration::from_millis(500));
    }
}
