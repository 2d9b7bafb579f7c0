//! HATop, the terminal program for haproxy's socket, run as its users run it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use support::{Ballast, ask, named_server};

#[test]
fn hatop_shows_services_on_all_its_screens_and_takes_commands() {
    let server = named_server("four");
    let table = format!(
        "version: 1
frontends: [{{name: web, bind: [\"127.0.0.1:0\"], protocol: tcp, service: pool}}]
services:
  - name: pool
    endpoints:
      - {{name: one, address: \"{server}\", weight: 7}}
      - {{name: two, address: \"127.9.0.2:1\", state: draining}}
"
    );
    let ballast = Ballast::serve_with_socket(&table, 1);
    ask(ballast.address()).expect("an answer");
    let Some(terminal) = Terminal::open(&ballast) else {
        return;
    };
    let screen = terminal.until(&[
        "Ballast Version: ",
        ">>> web",
        ">>> pool",
        "one ",
        "two ",
        "BACKEND",
    ]);
    let row = |screen: &str, name: &str| -> Vec<String> {
        let row = screen.lines().find(|line| line.starts_with(name));
        let cells = row.unwrap_or_default().split_whitespace();
        cells.map(ToOwned::to_owned).collect()
    };
    // Its columns: NAME, W, STATUS, CHECK, ACT and others, of which the last one is STOT.
    let one = row(&screen, "one ");
    assert_eq!(one[1..5], ["7", "-", "none", "1"], "{screen}");
    assert_eq!(one.last().map(String::as_str), Some("1"), "{screen}");
    assert_eq!(row(&screen, "two ")[2], "DRAIN", "{screen}");
    assert_eq!(row(&screen, "BACKEND")[2], "UP", "{screen}");

    for (key, head) in [("2", "LBTOT"), ("3", "5xx"), ("4", "ECONN"), ("1", "QCUR")] {
        terminal.press(&[key]);
        terminal.until(&[head, ">>> pool", "one "]);
    }
    terminal.press(&["2"]);
    let traffic = terminal.until(&["LBTOT", ">>> pool"]);
    assert_eq!(row(&traffic, "one ").last().unwrap(), "4B", "{traffic}");

    terminal.press(&["5"]);
    terminal.until(&["haproxy command line"]);
    terminal.press(&["-l", "disable server pool/one"]);
    terminal.press(&["Enter"]);
    terminal.until(&["> disable server pool/one"]);
    terminal.press(&["M-1"]);
    terminal.until(&["MAINT"]);
}

/// HATop in a terminal of its own.
struct Terminal {
    tmux: PathBuf,
}

impl Terminal {
    /// `None`: the programs are not here, and it has been said.
    fn open(ballast: &Ballast) -> Option<Self> {
        for program in ["hatop", "tmux"] {
            let found = Command::new("which").arg(program).output();
            if !found.is_ok_and(|found| found.status.success()) {
                let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
                assert!(!is_ci, "{program} is needed: apt-get install hatop tmux");
                println!("SKIP: no {program} here: apt-get install hatop tmux");
                return None;
            }
        }
        let terminal = Self {
            tmux: ballast.socket().with_file_name("tmux"),
        };
        // What HATop says at its end stays on the screen.
        let shell = format!("hatop -s {} -i 1; cat", ballast.socket().display());
        let begun = [
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "100",
            "-y",
            "30",
        ];
        let begun = begun.into_iter().chain([shell.as_str()]);
        terminal.tmux(&begun.collect::<Vec<_>>());
        Some(terminal)
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen shows all of these.
    fn until(&self, words: &[&str]) -> String {
        let screen = || self.tmux(&["capture-pane", "-p"]);
        let shown = support::found_within(PATIENCE, || {
            Some(screen()).filter(|screen| words.iter().all(|word| screen.contains(word)))
        });
        shown.unwrap_or_else(|| panic!("no {words:?}:\n{}", screen()))
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.env("LC_ALL", "C.UTF-8").arg("-S").arg(&self.tmux);
        let output = tmux.args(words).output().expect("tmux");
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut tmux = Command::new("tmux");
        let end = tmux.arg("-S").arg(&self.tmux).arg("kill-server");
        // One that has ended by itself needs no end.
        end.output().ok();
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
