//! `ballast demo`: the embedded default table in front of two small backends, to look at without a file or a right.
//!
//! Begun by `main`. Everything between table and relay is what `ballast run` does.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_core::text::Append;

use crate::os::log;
use crate::process::config::{Admin, Config};
use crate::process::start_error::StartError;
use crate::runtime::{Running, start};

/// Starts the backends and serves the table. Prints what can be tried. The folder holds the table, and goes when it is
/// dropped.
pub fn begin() -> Result<(Running, Folder), StartError> {
    let backends = [backend("one")?, backend("two")?];
    let folder = Folder::make()?;
    let table = folder.path.join("table.yaml");
    let port = free_port()?;
    let text = TABLE
        .replace("PORT", &port.to_string())
        .replace("ONE", &backends[0].to_string())
        .replace("TWO", &backends[1].to_string());
    fs::write(&table, text)?;
    let serve = |port| {
        start(Config {
            admin: Admin::At(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]),
            ..Config::new(table.clone())
        })
    };
    // Where the usual admin port is another one's, any will do.
    let running = match serve(ADMIN_PORT) {
        Err(StartError::Held { .. } | StartError::Admin(..)) => serve(free_port()?)?,
        other => other?,
    };
    let mut words = String::new();
    announce(&mut words, &backends, port, &running, &table);
    log::stdout()?.add(words.as_bytes());
    Ok((running, folder))
}

fn announce(
    out: &mut String,
    backends: &[SocketAddr; 2],
    port: u16,
    running: &Running,
    table: &Path,
) {
    writeln!(
        out,
        "Ballast serves 127.0.0.1:{port}, and sends its clients in turn to two backends of its own:"
    );
    writeln!(out, "  one  {}    two  {}", backends[0], backends[1]);
    writeln!(out);
    for admin in running.admin() {
        writeln!(
            out,
            "  Open  http://{admin}/  in a browser: the page shows clients, endpoints and the last ten minutes."
        );
    }
    writeln!(out);
    let mut tries = vec![(
        format!("http://127.0.0.1:{port}/"),
        "again and again: one and two take turns",
    )];
    for admin in running.admin() {
        tries.push((format!("http://{admin}/metrics"), "what was counted"));
        tries.push((
            format!("http://{admin}/readyz"),
            "whether a table is served",
        ));
    }
    for (url, what) in tries {
        writeln!(out, "  curl {url:<32} {what}");
    }
    writeln!(out);
    writeln!(
        out,
        "The table is {}: change it, save it, and it is live.",
        table.display()
    );
    writeln!(out, "Ctrl-C ends, and removes it.");
}

/// A folder of this process alone. It is removed when this is dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    fn make() -> io::Result<Self> {
        // No other user can have made it before, or look into it.
        let name = format!("ballast-demo-{:016x}", RandomState::new().hash_one(0));
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, "cannot remove {}", self.path.display());
        }
    }
}

/// A backend that answers every request with its name.
fn backend(name: &'static str) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::Builder::new()
        .name(format!("backend-{name}"))
        .spawn(move || {
            for client in listener.incoming().flatten() {
                // One that says nothing does not keep others waiting.
                let answer = move || {
                    if let Err(error) = answer(client, name) {
                        tracing::debug!(%error, "backend {name}");
                    }
                };
                if let Err(error) = std::thread::Builder::new().spawn(answer) {
                    tracing::warn!(%error, "backend {name} cannot answer");
                }
            }
        })?;
    Ok(address)
}

fn answer(mut client: TcpStream, name: &str) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    let mut request = [0; 4096];
    if client.read(&mut request)? == 0 {
        return Ok(());
    }
    let body = format!("hello from backend {name}\n");
    write!(
        client,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    client.shutdown(Shutdown::Write)?;
    // To close with bytes unread would be a reset, and the client might lose the answer.
    io::copy(&mut client.take(MOST_READ), &mut io::sink())?;
    Ok(())
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

const TABLE: &str = include_str!("../../../templates/demo.yaml");
const ADMIN_PORT: u16 = 1936;
/// How long a backend waits for more of a request.
const PATIENCE: Duration = Duration::from_secs(1);
const MOST_READ: u64 = 1 << 20;
