//! Where lines go: standard output, a syslog socket, a syslog server.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process;
use std::time::SystemTime;

use ballast_core::table::LogTarget;

use super::line::SyslogDate;

/// All places of one table.
#[derive(Debug)]
pub(super) struct Sinks {
    sinks: Vec<Sink>,
    /// Lines for standard output that are not written yet.
    lines: String,
    datagram: String,
    failed: u64,
}

#[derive(Debug)]
enum Sink {
    Stdout,
    Unix(UnixDatagram, PathBuf),
    Udp(UdpSocket, SocketAddr),
}

impl Sinks {
    /// Opens them. What cannot be opened is said, and left out.
    pub(super) fn open(targets: &[LogTarget], folder: &Path) -> Self {
        let open = |target: &LogTarget| {
            Sink::open(target, folder)
                .inspect_err(|error| tracing::error!("log.to: {target}: {error}"))
                .ok()
        };
        Self {
            sinks: targets.iter().filter_map(open).collect(),
            lines: String::new(),
            datagram: String::new(),
            failed: 0,
        }
    }

    /// Writes one line to all of them.
    pub(super) fn line(&mut self, render: impl FnOnce(&mut String)) {
        self.datagram.clear();
        // Writing into a string cannot fail.
        write!(
            self.datagram,
            "<134>{} ballast[{}]: ",
            SyslogDate(SystemTime::now()),
            process::id()
        )
        .unwrap_or_default();
        let head = self.datagram.len();
        render(&mut self.datagram);
        for sink in &self.sinks {
            let written = match sink {
                Sink::Stdout => {
                    self.lines
                        .push_str(self.datagram.get(head..).unwrap_or_default());
                    self.lines.push('\n');
                    continue;
                }
                Sink::Unix(socket, path) => socket.send_to(self.datagram.as_bytes(), path),
                Sink::Udp(socket, address) => socket.send_to(self.datagram.as_bytes(), *address),
            };
            self.failed += u64::from(written.is_err());
        }
    }

    /// Writes what is kept for standard output.
    pub(super) fn flush(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let mut stdout = io::stdout().lock();
        let written = stdout
            .write_all(self.lines.as_bytes())
            .and_then(|()| stdout.flush());
        if written.is_err() {
            self.failed += self.lines.lines().count() as u64;
        }
        self.lines.clear();
    }

    /// Lines that could not be written since the last call.
    pub(super) fn take_failed(&mut self) -> u64 {
        std::mem::take(&mut self.failed)
    }
}

impl Sink {
    fn open(target: &LogTarget, folder: &Path) -> io::Result<Self> {
        Ok(match target {
            LogTarget::Stdout => Self::Stdout,
            LogTarget::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                // A reader that does not read costs its lines, not everybody's.
                socket.set_nonblocking(true)?;
                Self::Unix(socket, folder.join(&**path))
            }
            LogTarget::Udp(address) => {
                let any: IpAddr = match address {
                    SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                let socket = UdpSocket::bind((any, 0))?;
                socket.set_nonblocking(true)?;
                Self::Udp(socket, *address)
            }
        })
    }
}
