//! The PROXY header that is sent to an endpoint, before a connection's bytes or in front of datagrams.

use ballast_core::preamble::{Addresses, Extras, Ssl, Transport, encode_v1, encode_v2};
use ballast_core::service::Service;
use ballast_core::table::{SendProxy, Tlv};

use crate::net::tls::Session;
use crate::worker::{Connection, ProxyInfo, Worker};

/// The header for a client; empty if the service does not ask for one, or if the addresses are unknown. `info` is what another
/// proxy said of the client, or what it asked for; `tls` is how it uses TLS, if that ends here.
pub(crate) fn header(
    worker: &Worker,
    service: &Service,
    transport: Transport,
    addresses: impl FnOnce() -> Option<Addresses>,
    info: Option<&ProxyInfo>,
    tls: Option<Ssl<'_>>,
) -> Vec<u8> {
    let spec = service.spec();
    let mut header = Vec::new();
    if spec.send_proxy == SendProxy::Off {
        return header;
    }
    let Some(addresses) = addresses() else {
        return header;
    };
    // Version 1 does not support datagrams.
    if spec.send_proxy == SendProxy::V1 && transport == Transport::Tcp {
        encode_v1(addresses, &mut header);
        return header;
    }
    let authority = info.and_then(|info| info.authority.as_deref());
    let known_id = info.and_then(|info| info.unique_id.as_deref());
    let fresh_id = worker.fresh_id();
    let extras = Extras {
        authority: authority.filter(|_| spec.sends(Tlv::Authority)),
        unique_id: spec
            .sends(Tlv::UniqueId)
            .then(|| known_id.unwrap_or(&fresh_id)),
        ssl: tls.filter(|_| spec.sends(Tlv::Ssl)),
        has_checksum: spec.sends(Tlv::Crc32c),
    };
    encode_v2(addresses, transport, &extras, &mut header);
    header
}

impl Connection {
    /// The PROXY header for an endpoint of this service; empty if the service does not ask for one.
    pub(crate) fn proxy_header(&self, service: &Service) -> Vec<u8> {
        header(
            &self.worker,
            service,
            Transport::Tcp,
            || self.addresses(),
            self.proxy_info.as_deref(),
            self.socket.session().map(Session::ssl),
        )
    }
}
