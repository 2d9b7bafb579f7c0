//! What an endpoint hears of the client before its first byte: the outbound PROXY header.

use ballast_core::pick::Key;
use ballast_core::preamble::{Addresses, Checksum, Extras, Transport, encode_v1, encode_v2};
use ballast_core::service::Service;
use ballast_core::table::{SendProxy, Tlv};

use super::{Caller, Client};
use crate::preamble::destination;

/// The header; empty where none is asked for.
pub(super) fn header(service: &Service, client: &Client<'_>, caller: &Caller) -> Vec<u8> {
    let spec = service.spec();
    let mut header = Vec::new();
    if spec.send_proxy == SendProxy::Off {
        return header;
    }
    let Ok(destination) = destination(client.socket, caller) else {
        return header;
    };
    let addresses = Addresses {
        source: caller.key.client(),
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
    let fresh_id = client.worker.fresh_id();
    let extras = Extras {
        authority: caller
            .authority
            .as_deref()
            .filter(|_| wants(Tlv::Authority)),
        unique_id: wants(Tlv::UniqueId).then(|| caller.unique_id.as_deref().unwrap_or(&fresh_id)),
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
