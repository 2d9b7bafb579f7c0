//! The words for algorithms, of `--balance-algorithm`, loadbalancer.json and annotations.

use ballast_core::table::Algorithm;

/// Parses an algorithm, in the words of every system whose annotations are read.
///
/// # Errors
/// The word names no algorithm.
pub fn algorithm(text: &str) -> Result<Algorithm, String> {
    Ok(match text.trim() {
        "round-robin" | "roundrobin" | "ROUND_ROBIN" => Algorithm::RoundRobin,
        "least-connections" | "leastconn" | "LEAST_CONNECTIONS" => Algorithm::LeastConnections,
        "source-hash" | "source" | "maglev" | "maglev-hash" | "SOURCE_IP" => Algorithm::SourceHash,
        "source-port-hash" | "SOURCE_IP_PORT" => Algorithm::SourcePortHash,
        "random" => Algorithm::Random,
        "first" => Algorithm::First,
        _ => {
            return Err("is not an algorithm; expected round-robin, least-connections, source-hash, source-port-hash, random or first".to_owned());
        }
    })
}
