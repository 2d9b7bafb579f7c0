//! Listening sockets that systemd keeps (`FileDescriptorStoreMax=`), so that they outlive a process that is killed: clients that
//! come meanwhile wait in their queues for the next start, and are not refused.
//!
//! The process sends copies of what it has bound, and takes a copy back when it closes an address in order. What it is started with
//! is what the process before had when it was killed.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use ballast_core::plan::{SocketKey, Transport};
use rustix::cmsg_space;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use socket2::{Socket, Type};

use crate::os::sys;

/// The sockets that systemd keeps for this process.
#[derive(Debug, Default)]
pub(crate) struct FdStore {
    is_on: bool,
}

impl FdStore {
    /// The store, if systemd has one for this service, and what it has kept of a process that was killed.
    pub(crate) fn open() -> (Self, BTreeMap<SocketKey, Vec<Socket>>) {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let store = Self {
            is_on: is_set(MOST) && is_set("NOTIFY_SOCKET"),
        };
        let mut kept: BTreeMap<SocketKey, Vec<Socket>> = BTreeMap::new();
        for (descriptor, name) in sys::passed_descriptors() {
            let socket = Socket::from(descriptor);
            // Others are none of ours.
            if name.starts_with(PREFIX)
                && let Some(key) = key_of(&socket)
            {
                kept.entry(key).or_default().push(socket);
            }
        }
        if !kept.is_empty() {
            let count: usize = kept.values().map(Vec::len).sum();
            tracing::info!(
                "systemd has kept {count} sockets of a process that did not end in order: clients have waited there"
            );
        }
        (store, kept)
    }

    /// Has systemd keep these sockets of one address.
    pub(crate) fn keep(&self, key: &SocketKey, sockets: &[Arc<Socket>]) {
        // The port of one with port 0 is another one after each start.
        if !self.is_on || key.asked_by.is_some() {
            return;
        }
        // Without polling: an error of a datagram is no reason to close a socket.
        let words = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={}\n", name(key));
        for batch in sockets.chunks(BATCH) {
            let descriptors: Vec<_> = batch.iter().map(|socket| socket.as_fd()).collect();
            if let Err(error) = send(&words, &descriptors) {
                tracing::warn!(address = %key, %error, "systemd cannot keep a socket: after a crash clients are refused until the next start");
            }
        }
    }

    /// Has systemd close its copies of the sockets of one address.
    pub(crate) fn forget(&self, key: &SocketKey) {
        if !self.is_on || key.asked_by.is_some() {
            return;
        }
        let words = format!("FDSTOREREMOVE=1\nFDNAME={}\n", name(key));
        if let Err(error) = send(&words, &[]) {
            tracing::warn!(address = %key, %error, "systemd still keeps a socket that is closed: clients of this address wait in vain until the service ends");
        }
    }
}

fn key_of(socket: &Socket) -> Option<SocketKey> {
    let transport = match socket.r#type().ok()? {
        Type::STREAM => Transport::Tcp,
        Type::DGRAM => Transport::Udp,
        _ => return None,
    };
    Some(SocketKey {
        transport,
        address: socket.local_addr().ok()?.as_socket()?,
        asked_by: None,
    })
}

/// A name without colons, which separate names in what systemd says.
fn name(key: &SocketKey) -> String {
    let transport = match key.transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    };
    let address = key.address.to_string().replace(':', "_");
    format!("{PREFIX}{transport}-{address}")
}

fn send(words: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let to = UnixDatagram::unbound()?;
    match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            to.connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)?;
        }
        None => to.connect(&path)?,
    }
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(BATCH))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let bytes = [IoSlice::new(words.as_bytes())];
    // A manager that does not read must not hold up a table.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(&to, &bytes, &mut control, flags)?;
    Ok(())
}

/// Set by systemd 254 or later, and by the unit for older ones: how many descriptors are kept.
const MOST: &str = "FDSTORE";
const PREFIX: &str = "ballast-";
/// The kernel takes no more by one message.
const BATCH: usize = 253;
