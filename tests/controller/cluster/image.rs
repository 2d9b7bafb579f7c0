//! The image by itself, without a cluster: what is in it, and that its programs run from it.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::Unable;
use crate::archive::{Buildah, of_ballast};
use crate::process::until;
use support::netns::Namespace;

fn it_is_small_and_says_what_it_is() -> Result<(), Unable> {
    let archive = of_ballast()?;
    let buildah = Buildah::here()?;
    let container = container(&buildah, &archive);
    let said = buildah.run(&["inspect", &container]).expect("an image");
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let config = &said["OCIv1"]["config"];
    assert_eq!(config["User"], "65532:65532", "{config}");
    for (label, value) in [("title", "Ballast"), ("licenses", "Apache-2.0")] {
        let label = format!("org.opencontainers.image.{label}");
        assert_eq!(config["Labels"][label], value, "{config}");
    }
    let size = archive.metadata().expect("a file").len();
    println!("    {:.1} MB", size as f64 / 1e6);
    // What another profile makes is larger, and for a quick look only.
    if env::var_os("PROFILE").is_none_or(|profile| profile == "release") {
        assert!(size < 40_000_000, "{size} bytes");
    }
    Ok(())
}

fn it_serves_as_its_own_user_and_as_root() -> Result<(), Unable> {
    let archive = of_ballast()?;
    let buildah = Buildah::here()?;
    let network = Namespace::make().map_err(Unable::Refused)?;
    let container = container(&buildah, &archive);
    network.within(|| {
        let pod = TcpListener::bind(("127.0.0.1", 8081)).expect("a listener");
        thread::spawn(move || {
            for client in pod.incoming().flatten() {
                echo(client).ok();
            }
        });
        for user in ["65532:65532", "0:0"] {
            let running = Running::start(&buildah, &container, user);
            let mut answer = Vec::new();
            until(&format!("an answer, as {user}"), || {
                let said = say_hello();
                answer = said.unwrap_or_default();
                !answer.is_empty()
            });
            assert_eq!(answer, b"hello", "as {user}");
            running.stop();
        }
    });
    Ok(())
}

/// A new container of the image in this archive.
fn container(buildah: &Buildah, archive: &Path) -> String {
    let source = format!("docker-archive:{}", archive.display());
    buildah.run(&["from", &source]).expect("an image")
}

fn say_hello() -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", 8080))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"hello")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

fn echo(mut client: TcpStream) -> io::Result<()> {
    let mut asked = [0; 5];
    client.read_exact(&mut asked)?;
    client.write_all(&asked)
}

/// `ballast run` in a container, which ends with this.
struct Running {
    buildah: Child,
    _folder: tempfile::TempDir,
}

impl Running {
    /// In the network of this thread, as this user.
    fn start(buildah: &Buildah, container: &str, user: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // For every user.
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), all).expect("a folder");
        fs::write(folder.path().join("table.yaml"), TABLE).expect("a file");
        let volume = format!("{}:/table:ro", folder.path().display());
        let words = [
            "run",
            "--isolation",
            "chroot",
            "--network",
            "host",
            "--user",
            user,
        ];
        let mut command = buildah.command(&words);
        command.args(["--volume", &volume, container, "--"]);
        command.args(["ballast", "run", "--table", "/table"]);
        // buildah's helpers and the program end with its group.
        let command = command.process_group(0).stdin(Stdio::null());
        Self {
            buildah: command.spawn().expect("buildah"),
            _folder: folder,
        }
    }

    fn stop(mut self) {
        self.end(Signal::TERM);
    }

    fn end(&mut self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.buildah), signal).ok();
        self.buildah.wait().ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(Signal::KILL);
    }
}

const TABLE: &str = r#"
version: 1
frontends:
  - {name: hello, bind: ["127.0.0.1:8080"], protocol: tcp, service: hello}
services:
  - {name: hello, endpoints: [{address: "127.0.0.1:8081"}]}
"#;

pub(crate) const TESTS: &[(&str, OfTheImage)] = &[
    (
        "cluster::image::it_is_small_and_says_what_it_is",
        it_is_small_and_says_what_it_is,
    ),
    (
        "cluster::image::it_serves_as_its_own_user_and_as_root",
        it_serves_as_its_own_user_and_as_root,
    ),
];

type OfTheImage = fn() -> Result<(), Unable>;
