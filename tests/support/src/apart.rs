//! A data plane in a process of its own, whose memory, processor time and limits are nobody else's.
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::Ballast;
use crate::peers::{alone, processor_time};

/// A running process. A test that starts one begins with [`Apart::is_served_here`].
pub struct Apart {
    process: Child,
    pub address: SocketAddr,
    pub admin: SocketAddr,
}

impl Apart {
    /// Runs the test of this name in another process, where it serves this table. `before` are words of the shell in front of the
    /// program.
    pub fn start(test: &str, table: &str, before: &str) -> Self {
        let alone = alone();
        let mut process = Command::new("sh")
            .args(["-c", &format!("{before} exec \"$0\" \"$@\"")])
            .arg(env::current_exe().expect("a program"))
            .args([test, "--exact", "--nocapture"])
            .env(TABLE_TO_SERVE, table)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        drop(alone);
        let mut said = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let line = said
            .find_map(|line| Some(line.ok()?.split_once("serving ")?.1.to_owned()))
            .expect("the addresses");
        // What it says later must find room.
        thread::spawn(move || said.for_each(drop));
        let (address, admin) = line.split_once(' ').expect("two addresses");
        Self {
            process,
            address: address.parse().expect("an address"),
            admin: admin.parse().expect("an address"),
        }
    }

    /// Whether this is the other process. It has served then until its test had no more use for it, or was gone.
    pub fn is_served_here() -> bool {
        let Ok(table) = env::var(TABLE_TO_SERVE) else {
            return false;
        };
        let ballast = Ballast::serve(&table, 1);
        println!(
            "serving {} {}",
            ballast.address(),
            ballast.running.admin()[0]
        );
        std::io::stdin()
            .read_to_end(&mut Vec::new())
            .expect("a read");
        true
    }

    /// Its resident memory in bytes.
    pub fn resident(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<usize>().ok());
        kilobytes.expect("a number") << 10
    }

    /// The processor time that it has used, to 10 ms.
    pub fn cpu(&self) -> Duration {
        processor_time(&format!("/proc/{}/stat", self.process.id()))
    }

    /// Ends it in order.
    pub fn end(&mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().expect("its end").success());
    }
}

const TABLE_TO_SERVE: &str = "BALLAST_TEST_TABLE";
