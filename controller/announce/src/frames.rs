//! Frames of ARP (RFC 826, 5227) and of neighbour discovery (RFC 4861, 4862), whole with their Ethernet header: built, and read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A hardware address.
pub type Mac = [u8; 6];

/// The question whether any host has the address, asked without claiming it: an ARP probe (RFC 5227, 2.1.1), or a neighbour
/// solicitation of duplicate address detection (RFC 4862, 5.4.2).
#[must_use]
pub fn probe(mac: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp(mac, REQUEST, Ipv4Addr::UNSPECIFIED, [0; 6], address),
        IpAddr::V6(address) => {
            let group = solicited_node(address);
            let head = [SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
            let message = [&head[..], &address.octets()].concat();
            ipv6(mac, Ipv6Addr::UNSPECIFIED, group, message)
        }
    }
}

/// What tells all hosts that the address is here now: a gratuitous ARP request and reply, or an unsolicited neighbour advertisement
/// that overrides what they know (RFC 4861, 7.2.6).
#[must_use]
pub fn announcement(mac: Mac, address: IpAddr) -> Vec<Vec<u8>> {
    match address {
        IpAddr::V4(address) => vec![
            arp(mac, REQUEST, address, [0; 6], address),
            // RFC 5944, 4.6: in a gratuitous reply the target is the sender as well.
            arp(mac, REPLY, address, mac, address),
        ],
        IpAddr::V6(address) => {
            let head = [ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
            let option = [TARGET_LINK_LAYER, 1];
            let message = [&head[..], &address.octets(), &option, &mac].concat();
            vec![ipv6(mac, address, ALL_NODES, message)]
        }
    }
}

/// A host that says that it has an address, or asks whether it may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub address: IpAddr,
    /// The host.
    pub mac: Mac,
    /// Whether it only asks, as [`probe`] does.
    pub is_question: bool,
}

/// The claim or the question in a frame; `None` if the frame has neither.
#[must_use]
pub fn claim(frame: &[u8]) -> Option<Claim> {
    let (header, rest) = frame.split_first_chunk::<14>()?;
    let [_, _, _, _, _, _, a, b, c, d, e, f, high, low] = *header;
    match [high, low] {
        ARP => claim_of_arp(rest),
        IPV6 => claim_of_icmp(rest, [a, b, c, d, e, f]),
        _ => None,
    }
}

fn claim_of_arp(packet: &[u8]) -> Option<Claim> {
    let rest = packet.strip_prefix(&ARP_OF_ETHERNET)?;
    let (operation, rest) = rest.split_first_chunk::<2>()?;
    let (mac, rest) = rest.split_first_chunk::<6>()?;
    let (sender, rest) = rest.split_first_chunk::<4>()?;
    let sender = Ipv4Addr::from(*sender);
    let is_question = sender.is_unspecified();
    let address = match (*operation, is_question) {
        (REQUEST, true) => Ipv4Addr::from(*rest.get(6..)?.first_chunk::<4>()?),
        (REQUEST | REPLY, false) => sender,
        _ => return None,
    };
    Some(Claim {
        address: address.into(),
        mac: *mac,
        is_question,
    })
}

/// What an advertisement claims, or a solicitation of duplicate address detection asks. That has no sender but the frame's.
fn claim_of_icmp(packet: &[u8], sender: Mac) -> Option<Claim> {
    let (header, rest) = packet.split_first_chunk::<40>()?;
    let [version, _, _, _, high, low, ICMPV6, 255, addresses @ ..] = header else {
        return None;
    };
    let message = rest.get(..usize::from(u16::from_be_bytes([*high, *low])))?;
    if version >> 4 != 6 || checksum(addresses, message) != 0 {
        return None;
    }
    let (head, rest) = message.split_first_chunk::<8>()?;
    let (target, options) = rest.split_first_chunk::<16>()?;
    let is_question = match head {
        [SOLICITATION, 0, ..] if addresses.starts_with(&[0; 16]) => true,
        [ADVERTISEMENT, 0, ..] => false,
        _ => return None,
    };
    Some(Claim {
        address: Ipv6Addr::from(*target).into(),
        mac: if is_question {
            sender
        } else {
            target_of(options)?
        },
        is_question,
    })
}

/// The hardware address among the options of an advertisement.
fn target_of(mut options: &[u8]) -> Option<Mac> {
    while let [_, length, ..] = *options {
        let option = options
            .get(..usize::from(length) * 8)
            .filter(|_| length > 0)?;
        if let [TARGET_LINK_LAYER, 1, mac @ ..] = option {
            return mac.try_into().ok();
        }
        options = options.get(usize::from(length) * 8..)?;
    }
    None
}

fn arp(mac: Mac, operation: [u8; 2], sender: Ipv4Addr, target: Mac, address: Ipv4Addr) -> Vec<u8> {
    [
        &BROADCAST[..],
        &mac,
        &ARP,
        &ARP_OF_ETHERNET,
        &operation,
        &mac,
        &sender.octets(),
        &target,
        &address.octets(),
    ]
    .concat()
}

/// A frame with an ICMPv6 message to a group, its checksum filled in.
fn ipv6(mac: Mac, from: Ipv6Addr, to: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let addresses = [from.octets(), to.octets()].concat();
    let sum = checksum(&addresses, &message).to_be_bytes();
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&sum);
    }
    let [.., a, b, c, d] = to.octets();
    let length = u16::try_from(message.len()).unwrap_or_default();
    [
        &[0x33, 0x33, a, b, c, d][..],
        &mac,
        &IPV6,
        &[0x60, 0, 0, 0],
        &length.to_be_bytes(),
        &[ICMPV6, 255],
        &addresses,
        &message,
    ]
    .concat()
}

/// The checksum of ICMPv6 over the pseudo header and the message (RFC 4443, 2.3): 0 for a message with the right one in it.
fn checksum(addresses: &[u8], message: &[u8]) -> u16 {
    let length = u32::try_from(message.len())
        .unwrap_or_default()
        .to_be_bytes();
    let parts = [addresses, &length, &[0, 0, 0, ICMPV6], message];
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words
        .map(|word| {
            let high = u32::from(word.first().copied().unwrap_or_default());
            let low = u32::from(word.get(1).copied().unwrap_or_default());
            high << 8 | low
        })
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).unwrap_or_default()
}

/// The group that all hosts with the address listen to (RFC 4291, 2.7.1).
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let low = u16::from_be_bytes([b, c]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), low)
}

const BROADCAST: Mac = [0xff; 6];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Ethernet, IPv4, and the lengths of their addresses.
const ARP_OF_ETHERNET: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const REPLY: [u8; 2] = [0, 2];
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const OVERRIDE: u8 = 0x20;
const TARGET_LINK_LAYER: u8 = 2;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 1];

    fn hex(frame: &[u8]) -> String {
        frame.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn v4() -> IpAddr {
        "192.0.2.10".parse().unwrap()
    }

    fn v6() -> IpAddr {
        "2001:db8::12:3456".parse().unwrap()
    }

    /// The bytes are those that the RFCs ask for, written out by hand.
    #[test]
    fn frames_are_those_of_the_rfcs_byte_by_byte() {
        let ether = "ffffffffffff020000000001".to_owned() + "0806" + "0001080006040001";
        let sender = "020000000001";
        assert_eq!(
            hex(&probe(MAC, v4())),
            format!("{ether}{sender}00000000000000000000c000020a")
        );
        let [request, reply] = &announcement(MAC, v4())[..] else {
            panic!("two frames");
        };
        assert_eq!(
            hex(request),
            format!("{ether}{sender}c000020a000000000000c000020a")
        );
        let ether = ether.replace("06040001", "06040002");
        assert_eq!(
            hex(reply),
            format!("{ether}{sender}c000020a{sender}c000020a")
        );

        let target = "20010db8000000000000000000123456";
        assert_eq!(
            hex(&probe(MAC, v6())),
            format!(
                "3333ff12345602000000000186dd600000000018 3aff {} ff0200000000000000000001ff123456 8700{}00000000{target}",
                "0".repeat(32),
                "e41e"
            )
            .replace(' ', "")
        );
        assert_eq!(
            hex(&announcement(MAC, v6())[0]),
            format!(
                "33330000000102000000000186dd600000000020 3aff {target} ff020000000000000000000000000001 8800{}20000000{target} 0201020000000001",
                "905c"
            )
            .replace(' ', "")
        );
    }

    #[test]
    fn an_announcement_is_a_claim_and_a_probe_is_a_question() {
        for address in [v4(), v6()] {
            let expected = |is_question| Claim {
                address,
                mac: MAC,
                is_question,
            };
            assert_eq!(claim(&probe(MAC, address)), Some(expected(true)));
            for frame in announcement(MAC, address) {
                assert_eq!(claim(&frame), Some(expected(false)));
            }
        }
        // One that looks for a neighbour asks for nothing.
        let target = "2001:db8::12:3456".parse().unwrap();
        let message = [
            &[SOLICITATION, 0, 0, 0, 0, 0, 0, 0][..],
            &Ipv6Addr::octets(&target),
        ];
        let from = "2001:db8::1".parse().unwrap();
        let frame = ipv6(MAC, from, solicited_node(target), message.concat());
        assert_eq!(claim(&frame), None);
    }

    #[test]
    fn no_frame_that_is_cut_or_changed_panics_and_a_changed_advertisement_claims_nothing() {
        for address in [v4(), v6()] {
            for frame in [announcement(MAC, address), vec![probe(MAC, address)]].concat() {
                for length in 0..frame.len() {
                    let found = claim(&frame[..length]);
                    assert!(found.is_none() || address.is_ipv4());
                }
                for bit in 14 * 8..frame.len() * 8 {
                    let mut changed = frame.clone();
                    changed[bit / 8] ^= 1 << (bit % 8);
                    let found = claim(&changed);
                    // The traffic class and the flow label are under no checksum.
                    let is_free = (112..116).contains(&bit) || (120..144).contains(&bit);
                    if address.is_ipv6() && !is_free {
                        assert_eq!(found, None, "bit {bit}");
                    }
                }
            }
        }
    }
}
