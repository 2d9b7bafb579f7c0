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
    terminal.until(&["Ballast Version: ", ">>> web", ">>> pool"]);
    // Its columns: NAME, W, STATUS, CHECK, ACT and others, of which the last one is STOT.
    terminal.until_row("one ", |one| {
        one[1..].starts_with(&["7", "-", "none", "1"]) && one.ends_with(&["1"])
    });
    terminal.until_row("two ", |two| two.get(2) == Some(&"DRAIN"));
    terminal.until_row("BACKEND", |backend| backend.get(2) == Some(&"UP"));

    for (key, head) in [("2", "LBTOT"), ("3", "5xx"), ("4", "ECONN"), ("1", "QCUR")] {
        terminal.press(&[key]);
        terminal.until(&[head, ">>> pool", "one "]);
    }
    terminal.press(&["2"]);
    terminal.until(&["LBTOT", ">>> pool"]);
    terminal.until_row("one ", |one| one.ends_with(&["4B"]));

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
        // It ends where a second goes by without an answer, which a busy machine may need.
        let hatop = std::fs::read_to_string("/usr/bin/hatop").expect("HATop's program");
        let patient = hatop.replace("CLI_CMD_TIMEOUT = 1\n", "CLI_CMD_TIMEOUT = 30\n");
        assert_ne!(hatop, patient, "HATop's limit has another name");
        let socket = ballast.socket();
        let program = socket.with_file_name("hatop");
        std::fs::write(&program, patient).expect("a file");
        // What HATop says at its end stays on the screen.
        let (program, socket) = (program.display(), socket.display());
        let shell = format!("python3 {program} -s {socket} -i 1; cat");
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

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen shows all of these.
    fn until(&self, words: &[&str]) {
        let shown = support::comes_within(PATIENCE, || {
            let screen = self.screen();
            words.iter().all(|word| screen.contains(word))
        });
        assert!(shown, "no {words:?}:\n{}", self.screen());
    }

    /// Waits until the cells of the first line that begins with `name` are as wanted: a screen may be seen while it is drawn.
    fn until_row(&self, name: &str, wanted: impl Fn(&[&str]) -> bool) {
        let shown = support::comes_within(PATIENCE, || {
            let screen = self.screen();
            let row = screen.lines().find(|line| line.starts_with(name));
            row.is_some_and(|row| wanted(&row.split_whitespace().collect::<Vec<_>>()))
        });
        assert!(shown, "{name} is not as wanted:\n{}", self.screen());
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
