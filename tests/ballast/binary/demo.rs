//! `ballast demo`: what it prints is true.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::peers::get;
use crate::process::{BALLAST, Process, Signal, command};

#[test]
fn what_the_demo_prints_can_be_done_and_nothing_is_left() {
    let mut demo = Demo::start();
    assert_eq!(demo.curls.len(), 3, "{}", demo.process.out.text());
    assert_eq!(demo.hears(0), BTreeSet::from(BACKENDS.map(String::from)));
    let (status, metrics) = demo.curl(1);
    assert_eq!(status, 200);
    assert!(metrics.contains("haproxy_frontend_connections_total{proxy=\"hello\"}"));
    assert_eq!(demo.curl(2).0, 200);
    let page = format!("Open  http://{}/  in a browser", demo.curls[1].0);
    assert!(demo.process.out.text().contains(&page), "{page}");
    let (status, page) = get(demo.curls[1].0, "/").expect("the page");
    assert_eq!(status, 200);
    assert!(page.contains("<title>Statistics Report for Ballast"));

    demo.process.signal(Signal::INT);
    assert_eq!(demo.process.ends(), Some(0));
    assert_eq!(fs::read_dir(demo.temporary.path()).unwrap().count(), 0);
}

#[test]
fn the_table_of_the_demo_can_be_changed() {
    let demo = Demo::start();
    let text = fs::read_to_string(&demo.table).unwrap();
    let one = text
        .lines()
        .filter(|line| !line.contains("name: two"))
        .collect::<Vec<_>>()
        .join("\n");
    fs::write(&demo.table, one).unwrap();
    demo.process.until("only one", || {
        demo.hears(0) == BTreeSet::from([BACKENDS[0].into()])
    });

    fs::write(&demo.table, text.replace("round-robin", "ruond-robin")).unwrap();
    demo.process.until_said("did you mean round-robin?");
    assert_eq!(demo.hears(0), BTreeSet::from([BACKENDS[0].into()]));

    fs::write(&demo.table, text).unwrap();
    demo.process
        .until("both again", || demo.hears(0).len() == 2);
}

#[test]
fn two_demos_run_side_by_side() {
    let demos = [Demo::start(), Demo::start()];
    for demo in &demos {
        assert_eq!(demo.hears(0).len(), 2);
        assert_eq!(demo.curl(2).0, 200);
    }
}

struct Demo {
    process: Process,
    /// Addresses and paths of the lines to try.
    curls: Vec<(SocketAddr, String)>,
    table: PathBuf,
    temporary: TempDir,
}

impl Demo {
    fn start() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut demo = command(BALLAST);
        let process = Process::spawn(demo.arg("demo").env("TMPDIR", temporary.path()));
        process.until("the last line", || {
            process.out.text().contains("Ctrl-C ends")
        });
        let text = process.out.text();
        let curls = text
            .lines()
            .filter_map(|line| {
                let url = line.trim().strip_prefix("curl http://")?;
                let (address, rest) = url.split_once('/')?;
                let path = format!("/{}", rest.split(' ').next()?);
                Some((address.parse().unwrap(), path))
            })
            .collect();
        let table = text
            .lines()
            .find_map(|line| line.strip_prefix("The table is ")?.split(": ").next())
            .unwrap()
            .into();
        let demo = Self {
            process,
            curls,
            table,
            temporary,
        };
        demo.process.until_said("table applied");
        demo
    }

    fn curl(&self, line: usize) -> (u16, String) {
        let (address, path) = &self.curls[line];
        get(*address, path).unwrap()
    }

    /// Who answers when it is tried again and again.
    fn hears(&self, line: usize) -> BTreeSet<String> {
        (0..4)
            .map(|_| {
                let (status, body) = self.curl(line);
                assert_eq!(status, 200);
                body
            })
            .collect()
    }
}

const BACKENDS: [&str; 2] = ["hello from backend one\n", "hello from backend two\n"];
