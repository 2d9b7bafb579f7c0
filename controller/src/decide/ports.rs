//! Which ports of a Service are served: the first ones, up to --max-ports-per-service.

use std::collections::BTreeSet;

use super::annotations::Reader;
use super::notice::Reason;
use crate::observe::{Port, Protocol};

/// The ports of a Service that are served: the first ones, in the order of the spec. A Warning names the others.
pub(super) fn served_ports<'a>(reader: &mut Reader<'a>) -> &'a [Port] {
    let ports = &reader.service.ports;
    let most = usize::from(reader.settings.flags.max_ports_per_service);
    let Some((served, others)) = ports
        .split_at_checked(most)
        .filter(|(_, others)| !others.is_empty())
    else {
        return ports;
    };
    let message = format!(
        "this Service has {} ports, and at most {most} of one Service are served (--max-ports-per-service); not served: {}",
        ports.len(),
        port_ranges(others)
    );
    reader.warn(Reason::TooManyPorts, message);
    served
}

/// The numbers of ports, as ranges: `257-5000/TCP, 53/UDP`.
fn port_ranges(ports: &[Port]) -> String {
    let numbers = ports.iter().map(|port| (port.protocol, port.number));
    let numbers: BTreeSet<(Protocol, u16)> = numbers.collect();
    let mut ranges: Vec<(Protocol, u16, u16)> = Vec::new();
    for (protocol, number) in numbers {
        match ranges.last_mut() {
            Some((of, _, last)) if *of == protocol && last.checked_add(1) == Some(number) => {
                *last = number;
            }
            _ => ranges.push((protocol, number, number)),
        }
    }
    let words = ranges
        .into_iter()
        .map(|(protocol, first, last)| match first == last {
            true => format!("{first}/{}", protocol.word()),
            false => format!("{first}-{last}/{}", protocol.word()),
        });
    words.collect::<Vec<_>>().join(", ")
}
