//! The local ports for the sockets of UDP flows, as the kernel is configured.
//!
//! Read once, when the process starts. TCP connections leave the choice of the port to the kernel, which shares ports between
//! connections by itself.

use std::fs;

use ballast_core::flow::PortRange;

/// Reads the ports for UDP flows. Logs how many flows each of `workers` may have by these ports, and by its share of
/// descriptors.
pub(crate) fn local(by_descriptors: usize, workers: usize) -> PortRange {
    let read = |name: &str| {
        let file = format!("/proc/sys/net/ipv4/{name}");
        fs::read_to_string(&file).unwrap_or_else(|error| {
            tracing::warn!("{file} cannot be read, the kernel's default is assumed: {error}");
            String::new()
        })
    };
    let range = PortRange::new(
        &read("ip_local_port_range"),
        &read("ip_local_reserved_ports"),
    );
    let (by_ports, explanation) = (range.flows(workers), range.explain());
    tracing::info!(
        "at most {} UDP flows by descriptors, {by_descriptors} a worker; to one endpoint from one source address at most {}, {by_ports} a worker: {explanation}",
        by_descriptors * workers,
        by_ports * workers,
    );
    if range.usable() < workers {
        tracing::warn!(
            "{} local ports are too few for {workers} workers: some serve no UDP; widen net.ipv4.ip_local_port_range, or lower --threads",
            range.usable()
        );
    }
    range
}
