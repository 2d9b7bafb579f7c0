//! `ballast`: tables on the disk, however they are written, and the answer beside them.

mod pace;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ballast::config::Admin;
use ballast::{Config, Running};
use ballast_core::ack::Ack;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use support::crowd::serve_as;
use support::skip::undecided;
use support::{Ballast, ask, get, named_server, nobody, table};
use tempfile::TempDir;

#[test]
fn an_edit_in_place_is_seen() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(&table("", "", &[named_server("a")]), 1);
    fs::write(ballast.table_path(), table("", "", &[named_server("b")])).unwrap();
    ballast.until(|ballast| ask(ballast.address()).unwrap() == "b");
}

#[test]
fn edits_in_place_of_one_length_are_all_seen() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(&numbered(100), 1);
    for generation in 101..160 {
        fs::write(ballast.table_path(), numbered(generation)).unwrap();
        ballast.until(|ballast| served(ballast) == Some(generation));
    }
}

#[test]
fn the_swap_of_a_config_map_is_seen() {
    let _turn = crate::turn();
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (named_server("old"), named_server("new"));
    for (version, server) in [("..1", old), ("..2", new)] {
        fs::create_dir(folder.path().join(version)).unwrap();
        fs::write(
            folder.path().join(version).join("table.yaml"),
            table("", "", &[server]),
        )
        .unwrap();
    }
    symlink("..1", folder.path().join("..data")).unwrap();
    symlink("..data/table.yaml", folder.path().join("table.yaml")).unwrap();
    let ballast = serve_as("", 1, |settings| settings.table = folder.path().into());
    assert_eq!(ask(ballast.address()).unwrap(), "old");
    // As the kubelet does it: the link to the whole folder is replaced, the table's own link stays.
    symlink("..2", folder.path().join("..data_tmp")).unwrap();
    fs::rename(
        folder.path().join("..data_tmp"),
        folder.path().join("..data"),
    )
    .unwrap();
    fs::remove_dir_all(folder.path().join("..1")).unwrap();
    let begun = Instant::now();
    ballast.until(|ballast| ask(ballast.address()).unwrap() == "new");
    println!("seen after {:?}", begun.elapsed());
}

#[test]
fn a_table_of_json_takes_over_when_the_one_of_yaml_is_gone() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(&table("", "", &[named_server("yaml")]), 1);
    let server = named_server("json");
    let json = format!(
        r#"{{"version": 1, "generation": 7, "frontends": [{{"name": "f", "bind": ["127.0.0.1:0"], "protocol": "tcp", "service": "s"}}], "services": [{{"name": "s", "endpoints": [{{"address": "{server}"}}]}}]}}"#
    );
    fs::write(ballast.table_path().with_extension("json"), json).unwrap();
    // While there are two, neither is the table: what is served stays.
    let before = ballast.ack();
    assert_eq!(ask(ballast.address()).unwrap(), "yaml");
    assert_eq!(ballast.ack(), before);
    fs::remove_file(ballast.table_path()).unwrap();
    ballast.until(|ballast| served(ballast) == Some(7));
    assert_eq!(ask(ballast.address()).unwrap(), "json");
}

#[test]
fn a_table_that_is_being_written_is_read_again_and_not_refused() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(&numbered(1), 1);
    let mut in_time = 0;
    for generation in 2..40 {
        let whole = numbered(generation);
        let (half, _) = whole.split_at(whole.len() - 9);
        let begun = Instant::now();
        fs::write(ballast.table_path(), half).unwrap();
        support::pause(Duration::from_millis(50));
        fs::write(ballast.table_path(), &whole).unwrap();
        let took = begun.elapsed();
        ballast.until(|ballast| served(ballast) == Some(generation));
        // On a machine so busy that this thread was late, a refusal in between is right.
        if took < Duration::from_millis(150) {
            in_time += 1;
        } else {
            println!("the editor took {took:?}");
        }
        if in_time == 5 {
            assert!(
                ballast
                    .metrics()
                    .contains("ballast_table_refused_total 0\n")
            );
            return;
        }
        if refused(&ballast) > 0 {
            return undecided("the machine is too busy to write half a file in time");
        }
    }
}

#[test]
fn half_a_table_is_refused_and_the_whole_one_then_served() {
    let _turn = crate::turn();
    for (whole, extension) in [
        (numbered(2), "yaml"),
        (
            "{\"version\": 1, \"generation\": 2, \"frontends\": [], \"services\": []}".into(),
            "json",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table").with_extension(extension);
        fs::write(
            &path,
            whole
                .replace("generation: 2", "generation: 1")
                .replace("\"generation\": 2", "\"generation\": 1"),
        )
        .unwrap();
        let ballast = serve_as("", 1, |settings| settings.table = folder.path().into());
        assert_eq!(served(&ballast), Some(1));
        let (half, _) = whole.split_at(whole.len() - 9);
        fs::write(&path, half).unwrap();
        ballast.until(|ballast| ballast.ack().is_some_and(|ack| ack.refused.is_some()));
        assert_eq!(refused(&ballast), 1);
        let ack = ballast.ack().unwrap();
        assert_eq!(ack.served.unwrap().generation, Some(1), "{extension}");
        let refused = ack.refused.unwrap();
        assert_eq!(refused.generation, None, "{extension}: it did not parse");
        assert_eq!(refused.problems.len(), 1, "{:?}", refused.problems);
        fs::write(&path, &whole).unwrap();
        ballast.until(|ballast| served(ballast) == Some(2));
        assert_eq!(ballast.ack().unwrap().refused, None);
    }
}

#[test]
fn the_same_table_written_again_is_ignored() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(&numbered(1), 1);
    for _ in 0..20 {
        let draft = ballast.table_path().with_extension("draft");
        fs::write(&draft, numbered(1)).unwrap();
        fs::rename(draft, ballast.table_path()).unwrap();
        support::pause(Duration::from_millis(5));
    }
    ballast.swap(&numbered(2));
    assert_eq!(swaps(&ballast), 2);
}

#[test]
fn a_table_that_comes_while_another_is_read_is_not_missed() {
    let _turn = crate::turn();
    let many: Vec<_> = (1..=200)
        .map(|host| format!("{{address: \"127.0.0.{host}:9\"}}"))
        .collect();
    let many: String = (0..40)
        .map(|name| format!("  - {{name: s{name}, endpoints: [{}]}}\n", many.join(", ")))
        .collect();
    // Every other one names a file, so that there is something new to watch.
    let table = |generation: u64| {
        let file = format!(
            "ticket-keys: {}\n",
            if generation.is_multiple_of(2) {
                "a"
            } else {
                "b"
            }
        );
        format!("{file}{}{many}", numbered(generation))
    };
    let ballast = Ballast::serve(&table(1), 1);
    let replace = |generation| {
        let draft = ballast.table_path().with_extension("draft");
        fs::write(&draft, table(generation)).unwrap();
        fs::rename(draft, ballast.table_path()).unwrap();
    };
    for generation in (2..20).step_by(2) {
        replace(generation);
        support::pause(Duration::from_millis(generation * 5));
        replace(generation + 1);
        ballast.until(|ballast| served(ballast) == Some(generation + 1));
    }
}

#[test]
fn a_file_that_the_table_names_is_watched_wherever_it_is() {
    let _turn = crate::turn();
    let elsewhere = tempfile::tempdir().unwrap();
    for file in [None, Some(elsewhere.path().join("tickets.key"))] {
        let beside = file.is_none();
        let name = file.clone().unwrap_or_else(|| "tickets.key".into());
        let ballast = Ballast::serve(
            &format!("{}ticket-keys: {}\n", numbered(1), name.display()),
            1,
        );
        let file = file.unwrap_or_else(|| ballast.table_path().with_file_name("tickets.key"));
        // It is missing at first: its coming is a change too.
        for content in ["one", "two, and longer"] {
            let (before, begun) = (digest(&ballast), Instant::now());
            fs::write(&file, content).unwrap();
            ballast.until(|ballast| digest(ballast) != before);
            println!(
                "beside the table: {beside}, served after {:?}",
                begun.elapsed()
            );
        }
        fs::remove_file(&file).unwrap();
        assert_eq!(refused(&ballast), 0);
    }
}

#[test]
fn the_answer_is_written_only_when_it_is_another_one() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(&numbered(1), 1);
    let path = ballast.table_path().with_file_name("ack.json");
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let first = inode(&path);
    assert_eq!(on_disk(&path), ballast.ack().unwrap());
    for again in 1..=3 {
        drop(ballast.running.reread());
        ballast.until(|ballast| swaps(ballast) == 1 + again);
    }
    assert_eq!(inode(&path), first, "nothing has changed");
    ballast.swap(&numbered(2));
    ballast.until(|_| on_disk(&path) == ballast.ack().unwrap());
    assert_ne!(inode(&path), first);
}

#[test]
fn a_table_that_never_was_good_answers_that_nothing_is_served() {
    let _turn = crate::turn();
    let (folder, running) = waiting();
    let admin = running.admin()[0];
    assert!(get(admin, "/healthz").0.contains("200"));
    assert!(get(admin, "/readyz").0.contains("503"));
    let path = folder.path().join("ack.json");
    assert!(!path.exists(), "a folder without a table is only logged");

    let bad = "version: 1\ngeneration: 5\nfrontends: [{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: nowhere}]\n";
    fs::write(folder.path().join("table.yaml"), bad).unwrap();
    support::until("an answer", || path.exists());
    let ack = on_disk(&path);
    assert_eq!(ack.served, None);
    assert_eq!(ack.exceptions, []);
    let problems = ack.refused.unwrap().problems;
    assert_eq!(problems[0].at, "frontends[0].service");
    assert!(get(admin, "/readyz").0.contains("503"));

    fs::write(folder.path().join("table.yaml"), numbered(6)).unwrap();
    support::until("a served table", || on_disk(&path).served.is_some());
    let ack = on_disk(&path);
    assert_eq!(ack.served.unwrap().generation, Some(6));
    assert_eq!(ack.refused, None);
    assert!(get(admin, "/readyz").0.contains("200"));
}

#[test]
fn a_refused_table_says_its_generation_and_each_new_one_is_written() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(&numbered(1), 1);
    let path = ballast.table_path().with_file_name("ack.json");
    for generation in 2..5 {
        ballast.swap(&format!("{}nonsense: true\n", numbered(generation)));
        support::until("the answer", || {
            on_disk(&path)
                .refused
                .is_some_and(|refused| refused.generation == Some(generation))
        });
        assert_eq!(refused(&ballast), generation - 1);
        assert_eq!(served(&ballast), Some(1));
    }
    // Back to what is served: that is a success.
    ballast.swap(&numbered(1));
    support::until("no refusal", || on_disk(&path).refused.is_none());
    assert_eq!(served(&ballast), Some(1));
}

#[test]
fn every_process_has_an_instance_of_its_own() {
    let _turn = crate::turn();
    let instance = || Ballast::serve(&numbered(1), 1).ack().unwrap().instance;
    let (one, other) = (instance(), instance());
    assert!(!one.is_empty());
    assert_ne!(one, other);
}

/// A table whose text has one length for all generations of as many digits.
fn numbered(generation: u64) -> String {
    format!(
        "generation: {generation}\n{}",
        table("", "", &[([127, 0, 0, 1], 9).into()])
    )
}

/// Where the answer cannot be written, for as long as nobody reads it.
#[test]
fn who_finds_it_ready_finds_the_answer_too() {
    let _turn = crate::turn();
    let (folder, running) = waiting();
    let status = &running.shared().status;
    let draft = folder.path().join("ack.json.tmp");
    mknodat(CWD, &draft, FileType::Fifo, Mode::RWXU, 0).unwrap();
    fs::write(
        folder.path().join("table.yaml"),
        table("", "", &[named_server("a")]),
    )
    .unwrap();
    support::until("a socket", || !status.listening().is_empty());
    let address = *status.listening().values().next().unwrap();
    assert_eq!(ask(address).unwrap(), "a", "it serves");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        assert!(!status.is_ready());
        assert!(get(running.admin()[0], "/readyz").0.contains("503"));
    }
    let said = fs::read(&draft).unwrap();
    assert!(String::from_utf8(said).unwrap().contains("\"served\":{"));
    support::until("it is ready", || status.is_ready());
    assert!(status.ack().is_some_and(|ack| ack.served.is_some()));
}

#[test]
fn an_end_does_not_wait_for_an_answer_that_cannot_be_written() {
    let _turn = crate::turn();
    let folder = tempfile::tempdir().unwrap();
    let running = ballast::start(Config {
        threads: Some(1),
        admin: Admin::At(vec![nobody()]),
        drain_timeout: Duration::from_millis(100),
        ..Config::new(folder.path().into())
    })
    .unwrap();
    let draft = folder.path().join("ack.json.tmp");
    mknodat(CWD, &draft, FileType::Fifo, Mode::RWXU, 0).unwrap();
    fs::write(folder.path().join("table.yaml"), numbered(1)).unwrap();
    support::until("the table", || {
        running.shared().live.plan().generation() == Some(1)
    });
    let (told, ended) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        told.send(runtime.block_on(running.stop())).unwrap();
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(20)).unwrap(), 0);
}

#[test]
fn a_named_file_that_is_a_pipe_or_too_large_holds_nothing_up() {
    let _turn = crate::turn();
    let elsewhere = tempfile::tempdir().unwrap();
    let (pipe, large) = (
        elsewhere.path().join("pipe"),
        elsewhere.path().join("large"),
    );
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    File::create(&large).unwrap().set_len(1 << 40).unwrap();
    for name in [&pipe, &large, elsewhere.path(), Path::new("/dev/zero")] {
        let ballast = Ballast::serve(
            &format!("{}ticket-keys: {}\n", numbered(1), name.display()),
            1,
        );
        assert_eq!(served(&ballast), Some(1));
        ballast.swap(&numbered(2));
    }
}

#[test]
fn a_table_that_is_a_pipe_is_no_table() {
    let _turn = crate::turn();
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("table.yaml");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let refused = ballast::start(Config::new(pipe)).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("table.yaml: is a pipe, not a file; ")
    );
}

/// A process whose folder has no table yet.
fn waiting() -> (TempDir, Running) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = ballast::start(Config {
        threads: Some(1),
        admin: Admin::At(vec![nobody()]),
        ..Config::new(folder.path().into())
    })
    .expect("a start");
    (folder, running)
}

fn on_disk(path: &Path) -> Ack {
    serde_json::from_slice(&fs::read(path).expect("an ack")).expect("a whole ack")
}

fn served(ballast: &Ballast) -> Option<u64> {
    ballast.ack()?.served?.generation
}

fn digest(ballast: &Ballast) -> String {
    let ack = ballast.ack().expect("an ack");
    ack.served.expect("a table").digest
}

fn refused(ballast: &Ballast) -> u64 {
    ballast
        .running
        .shared()
        .status
        .refused
        .load(Ordering::Relaxed)
}

fn swaps(ballast: &Ballast) -> u64 {
    ballast.running.shared().status.swaps().count
}
