//! The PROXY header that an endpoint is sent before the client's bytes.

use ballast_core::pick::Key;
use ballast_core::preamble::{Addresses, Checksum, Extras, Transport, encode_v1, encode_v2};
use ballast_core::service::Service;
use ballast_core::table::{SendProxy, Tlv};

use super::connection::Connection;

/// The header; empty where the service asks for none.
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
    let introduced = connection.introduced.as_deref();
    let authority = introduced.and_then(|introduced| introduced.authority.as_deref());
    let known_id = introduced.and_then(|introduced| introduced.unique_id.as_deref());
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
