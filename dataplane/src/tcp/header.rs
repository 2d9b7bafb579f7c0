//! The PROXY header that is sent to an endpoint before the client's bytes.

use ballast_core::pick::Key;
use ballast_core::preamble::{Addresses, Checksum, Extras, Transport, encode_v1, encode_v2};
use ballast_core::service::Service;
use ballast_core::table::{SendProxy, Tlv};

use super::connection::Connection;

/// The header; empty if the service does not ask for one.
pub(super) fn header(service: &Service, connection: &Connection) -> Vec<u8> {
    let spec = service.spec();
    let mut header = Vec::new();
    if spec.send_proxy == SendProxy::Off {
        return header;
    }
    let Ok(destination) = connection.destination() else {
        return header;
    };
    let addresses = Addresses {
        source: connection.key.client(),
        destination: Key::new(destination).client(),
    };
    if spec.send_proxy == SendProxy::V1 {
        encode_v1(addresses, &mut header);
        return header;
    }
    let wants = |tlv| match &spec.send_proxy_tlvs {
        Some(tlvs) => tlvs.contains(&tlv),
        None => tlv == Tlv::Authority,
    };
    let proxy_info = connection.proxy_info.as_deref();
    let authority = proxy_info.and_then(|proxy_info| proxy_info.authority.as_deref());
    let known_id = proxy_info.and_then(|proxy_info| proxy_info.unique_id.as_deref());
    let fresh_id = connection.worker.fresh_id();
    let extras = Extras {
        authority: authority.filter(|_| wants(Tlv::Authority)),
        unique_id: wants(Tlv::UniqueId).then(|| known_id.unwrap_or(&fresh_id)),
        ssl: None,
        checksum: if wants(Tlv::Crc32c) {
            Checksum::Crc32c
        } else {
            Checksum::Absent
        },
    };
    encode_v2(addresses, Transport::Stream, &extras, &mut header);
    header
}
