//! What becomes of tables, as the log and the ack file say it.

use std::fs;

use crate::peers::fresh_address;
use crate::process::{Process, Signal, ack, folder, replace, table};

#[test]
fn sighup_says_a_refusal_again() {
    let folder = folder("version: 1\n");
    let process = Process::run(folder.path(), &[]);
    process.until_said("table applied");
    replace(&folder, "version: 2\n");
    for times in 1..4 {
        process.until("a refusal", || {
            process.err.times("table refused: version") == times
        });
        process.signal(Signal::HUP);
    }
    assert!(
        process
            .metrics()
            .contains("ballast_table_refused_total 1\n")
    );

    fs::remove_file(folder.path().join("table.yaml")).unwrap();
    for times in 1..4 {
        process.until("no table", || process.err.times("no table: ") >= times);
        process.signal(Signal::HUP);
    }
    assert!(!process.has_said("there again"));
    replace(&folder, "version: 1\n");
    process.until_said("the table is there again, which could not be read since 20");
    process.until("the table once more", || {
        process.err.times("there again") == 1
    });
}

#[test]
fn an_answer_that_somebody_removed_or_changed_is_written_again() {
    let folder = folder(&table(&[(fresh_address(), fresh_address())]));
    let process = Process::run(folder.path(), &[]);
    process.until_answers("/readyz", 200);
    let path = folder.path().join("ack.json");
    let answer = fs::read(&path).unwrap();
    let is_back = || fs::read(&path).is_ok_and(|there| there == answer);

    fs::remove_file(&path).unwrap();
    process.until("the answer, within seconds", is_back);

    let of_its_length = "x".repeat(answer.len());
    for other in ["", "something else", &of_its_length] {
        fs::write(&path, other).unwrap();
        process.signal(Signal::HUP);
        process.until("the answer, by SIGHUP", is_back);
    }
    // Also where the table is none.
    replace(&folder, "version: 2\n");
    process.until("a refusal", || {
        ack(folder.path()).is_some_and(|ack| !ack["refused"].is_null())
    });
    fs::write(&path, "").unwrap();
    process.signal(Signal::HUP);
    process.until("the refusal once more", || {
        fs::read(&path).is_ok_and(|there| there.len() > answer.len())
    });
}

#[test]
fn an_answer_that_cannot_be_written_is_said_once_and_written_as_soon_as_it_can_be() {
    let folder = folder("version: 1\n");
    let missing = folder.path().join("missing");
    let path = missing.join("ack.json");
    let process = Process::run(folder.path(), &["--ack", path.to_str().unwrap()]);
    process.until_answers("/readyz", 200);
    for generation in 2..6 {
        replace(&folder, &format!("version: 1\ngeneration: {generation}\n"));
        process.until_said(&format!("generation={generation}"));
    }
    assert_eq!(process.err.times("cannot write the ack"), 1);
    fs::create_dir(&missing).unwrap();
    process.until("the answer", || path.exists());
    assert_eq!(process.err.times("cannot write the ack"), 1);
}
