//! What a panic ends. A panic in the task of one connection, check or request ends only that task, and is counted. A panic
//! while a table or an override is compiled refuses that table or override. A panic in a task that lives as long as the process
//! would leave a node that looks ready and does not serve, so it ends the process, which is to be restarted.
//!
//! `runtime` installs the panic hook; threads, accept loops and similar tasks hold a [`Vital`].

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::{self, Display};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{process, thread};

use crate::os::log;

/// The number of tasks that panicked.
pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Installs the panic hook, which counts and logs panics.
pub(crate) fn install_hook() {
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
            // If there is a log, only its thread writes to standard error.
            if !tracing::dispatcher::has_been_set() {
                before(panic);
            }
        }));
    });
}

/// Runs `work`. Returns `None` if it panicked; the panic hook counts and logs that. Used where plans are compiled: a table or
/// an override that meets a bug is refused, and the previous plan stays in force.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Option<T> {
    panic::catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Runs a task that must not panic. The future is stored twice (a future that takes another one by value is that large), so
/// where there are thousands of a kind, each should hold a [`Vital`] itself.
pub(crate) async fn vital<T>(what: impl Display, task: impl Future<Output = T>) -> T {
    let _vital = Vital(what);
    task.await
}

/// Held by a task without which the process is of no use. A panic that unwinds past it ends the process.
pub(crate) struct Vital<W: Display>(pub(crate) W);

/// An activity and its place, for the log.
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
/// Time for the log to be written before the process aborts. The other threads serve meanwhile.
const LAST_WORDS: Duration = Duration::from_millis(250);

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::{Mutex, MutexGuard};

    use tokio::task::spawn_local;
    use tokio::time::sleep;

    use super::*;
    use crate::os::threads;

    /// Held by a test that counts panics, because the panics of the whole process are counted together.
    pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
        static LOCK: Mutex<()> = Mutex::new(());
        threads::lock(&LOCK)
    }

    #[test]
    fn what_may_fail_by_itself_ends_nothing_else() {
        let _alone = one_at_a_time();
        assert_eq!(catch(|| 7), Some(7));
        let broken = || -> u8 { panic!("for the test") };
        assert_eq!(catch(broken), None);
        assert_eq!(catch(|| 8), Some(8));
    }

    #[test]
    fn a_panic_ends_its_task_alone_or_the_process_if_that_cannot_do_without_it() {
        for what in ["task", "thread"] {
            let ended = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "os::panics::tests::a_process_that_loses_something",
                ])
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

    /// Runs as the child process of the test above.
    #[test]
    fn a_process_that_loses_something() {
        let Ok(what) = std::env::var(LOSES) else {
            return;
        };
        let _log = log::begin(log::Format::Text, log::Level::Info).unwrap();
        install_hook();
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
