//! What a panic ends. In the task of one connection, check or request it ends that one alone, and is counted; over a table
//! or a change by hand, that is refused. In what lives as long as the process it would leave a node that looks ready and does not
//! serve: it ends the process, to be started anew.
//!
//! `runtime` begins to count; threads, accept loops and the like hold a [`Vital`].

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::{self, Display};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{process, thread};

use crate::log;

/// Tasks that ended in a panic.
#[must_use]
pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Counts panics from now on, and says each.
pub(crate) fn count() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            let trace = Backtrace::capture();
            match trace.status() {
                BacktraceStatus::Captured => tracing::error!("{PANICKED}: {panic}\n{trace}"),
                _ => tracing::error!("{PANICKED}: {panic}"),
            }
            // Where there is a log, its thread alone writes to standard error.
            if !tracing::dispatcher::has_been_set() {
                before(panic);
            }
        }));
    });
}

/// Does `work`, and returns `None` if it panicked, which the panic hook counts and logs. For the making of plans: a table or a
/// change by hand that meets a bug is refused, and the plan before it stays in force.
pub(crate) fn survived<T>(work: impl FnOnce() -> T) -> Option<T> {
    panic::catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Does what must not end by a panic. The task is kept twice (so large are futures that take others): where there are
/// thousands of a kind, let each hold a [`Vital`] itself.
pub(crate) async fn vital<T>(what: impl Display, task: impl Future<Output = T>) -> T {
    let _vital = Vital(what);
    task.await
}

/// Held for as long as something goes on without which the process is of no use. Whoever unwinds past it ends the process.
pub(crate) struct Vital<W: Display>(pub(crate) W);

/// What is done where.
pub(crate) struct At<P>(pub(crate) &'static str, pub(crate) P);

impl<P: Display> Display for At<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.0, self.1)
    }
}

impl<W: Display> Drop for Vital<W> {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!(
                "{} ended by this panic, and cannot be done without: the process ends, to be started again",
                self.0
            );
            log::flush(LAST_WORDS);
            process::abort();
        }
    }
}

impl<W: Display> fmt::Debug for Vital<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vital({})", self.0)
    }
}

static PANICS: AtomicU64 = AtomicU64::new(0);
const PANICKED: &str = "a task panicked";
/// For the log to be written before the process aborts. The other threads serve meanwhile.
const LAST_WORDS: Duration = Duration::from_millis(250);

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use tokio::task::spawn_local;
    use tokio::time::sleep;

    use super::*;
    use crate::threads;

    /// Held by a test that counts the panics of its tasks: those of the whole process are counted together.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn what_may_fail_by_itself_ends_nothing_else() {
        let _alone = alone();
        assert_eq!(survived(|| 7), Some(7));
        let broken = || -> u8 { panic!("for the test") };
        assert_eq!(survived(broken), None);
        assert_eq!(survived(|| 8), Some(8));
    }

    #[test]
    fn a_panic_ends_its_task_alone_or_the_process_if_that_cannot_do_without_it() {
        for what in ["task", "thread"] {
            let ended = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "panics::tests::a_process_that_loses_something"])
                .args(["--nocapture"])
                .env(LOSES, what)
                .output()
                .unwrap();
            let said = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{said}");
            assert_eq!(said.matches("for the test").count(), 2, "{said}");
            let out = String::from_utf8(ended.stdout).unwrap();
            assert!(out.contains("goes on"), "{out}");
            assert!(
                said.contains(&format!("the {what} ended by this panic")),
                "{said}"
            );
        }
    }

    /// Nothing but the other process of the test above.
    #[test]
    fn a_process_that_loses_something() {
        let Ok(what) = std::env::var(LOSES) else {
            return;
        };
        let _log = log::begin(log::Format::Text, log::Level::Info).unwrap();
        count();
        let runtime = threads::local_runtime().unwrap();
        runtime.block_on(async {
            let other = spawn_local(vital("the other task", async {
                sleep(Duration::from_millis(1)).await;
                "well"
            }));
            let broken = spawn_local(async { panic!("for the test") });
            assert!(broken.await.unwrap_err().is_panic());
            assert_eq!(other.await.unwrap(), "well");
            assert_eq!(panics(), 1);
        });
        println!("goes on");
        if what == "thread" {
            let lost = threads::start("thread", threads::Pace::Even, |_| panic!("for the test"));
            lost.unwrap().join().unwrap_err();
        }
        runtime.block_on(async {
            let lost = spawn_local(vital("the task", async {
                sleep(Duration::from_millis(1)).await;
                panic!("for the test");
            }));
            lost.await.unwrap();
        });
    }

    const LOSES: &str = "BALLAST_TEST_LOSES";
}
