//! resolv.conf(5) and hosts(5). Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use hickory_resolver::Hosts;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use resolv_conf::ScopedIp;

use super::Resolved;

/// The name servers, and how they are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) servers: Vec<SocketAddr>,
    pub(super) search: Vec<String>,
    /// The timeout of one request to one server.
    pub(super) timeout: Duration,
    pub(super) attempts: u32,
}

impl Config {
    /// Reads a resolv.conf. Without a server in it, the server of this host is used.
    pub(super) fn read(text: &str) -> Self {
        let (read, _unknown) = resolv_conf::Config::parse_with_errors(text.as_bytes());
        let addresses = read.nameservers.iter().filter_map(|server| match server {
            ScopedIp::V4(address) => Some(IpAddr::V4(*address)),
            ScopedIp::V6(address, None) => Some(IpAddr::V6(*address)),
            // A scope (fe80::1%eth0) needs the number of an interface.
            ScopedIp::V6(_, Some(_)) => None,
        });
        let mut servers: Vec<_> = addresses.take(MOST_SERVERS).collect();
        if servers.is_empty() {
            servers.push(Ipv4Addr::LOCALHOST.into());
        }
        let servers = servers.into_iter();
        let search = read.get_last_search_or_domain();
        let search = search.map(|domain| domain.trim_end_matches('.').to_owned());
        Self {
            servers: servers
                .map(|address| SocketAddr::new(address, 53))
                .collect(),
            search: search.filter(|domain| !domain.is_empty()).collect(),
            timeout: match text.contains("timeout:") {
                true => Duration::from_secs(read.timeout.clamp(1, 5).into()),
                false => TIMEOUT,
            },
            attempts: read.attempts.clamp(1, 5),
        }
    }

    /// The names to ask for, one after the other.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        let mut candidates = vec![name.trim_end_matches('.').to_owned()];
        if !name.contains('.') {
            let searched = self.search.iter().map(|domain| format!("{name}.{domain}"));
            candidates.extend(searched);
        }
        candidates
    }
}

/// The addresses of a name in a hosts file, if it is there.
pub(super) fn in_hosts(text: &str, name: &str) -> Option<Resolved> {
    let mut hosts = Hosts::default();
    hosts.read_hosts_conf(text.as_bytes()).ok()?;
    let name = Name::from_ascii(name).ok()?;
    let of_family = |kind| {
        let lookup = hosts.lookup_static_host(&Query::query(name.clone(), kind));
        let records = lookup.iter().flat_map(|lookup| lookup.answers());
        Some(records.filter_map(|record| record.data.ip_addr()).collect())
    };
    let found = Resolved {
        v4: of_family(RecordType::A),
        v6: of_family(RecordType::AAAA),
        ttl: HOSTS_TTL,
    };
    (!found.addresses().is_empty()).then_some(found)
}

const MOST_SERVERS: usize = 3;
/// Shorter than the default of resolv.conf(5), so that a silent server delays the next one less.
const TIMEOUT: Duration = Duration::from_secs(2);
const HOSTS_TTL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolv_conf_is_read() {
        let text = "# made by hand
nameserver 10.0.0.10
nameserver fd00::10
nameserver fe80::1%eth0
nameserver 10.0.0.11
nameserver 10.0.0.12
domain one.example
search shop.svc.cluster.local. cluster.local
options ndots:5 timeout:1 attempts:3 edns0 timeout:x
";
        let expected = Config {
            servers: ["10.0.0.10:53", "[fd00::10]:53", "10.0.0.11:53"]
                .map(|server| server.parse().unwrap())
                .into(),
            search: ["shop.svc.cluster.local", "cluster.local"]
                .map(str::to_owned)
                .into(),
            timeout: Duration::from_secs(1),
            attempts: 3,
        };
        assert_eq!(Config::read(text), expected);
    }

    #[test]
    fn without_a_server_the_one_of_this_host_is_asked() {
        let servers = Config::read("options timeout:900\n").servers;
        assert_eq!(servers, ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn only_a_name_without_a_dot_is_searched_for() {
        let config = Config::read("search a.example b.example\n");
        let cases: [(&str, &[&str]); 4] = [
            ("db", &["db", "db.a.example", "db.b.example"]),
            ("db.", &["db"]),
            ("db.c.example", &["db.c.example"]),
            ("db.c.example.", &["db.c.example"]),
        ];
        for (name, expected) in cases {
            assert_eq!(config.candidates(name), expected, "{name}");
        }
    }

    #[test]
    fn a_hosts_file_is_read() {
        let text = "127.0.0.1 localhost\n::1\tlocalhost ip6-localhost # and more: db\n10.0.0.1 x DB db.example\nnonsense db\n";
        let cases: [(&str, Option<&[&str]>); 4] = [
            ("localhost", Some(&["127.0.0.1", "::1"])),
            ("db.", Some(&["10.0.0.1"])),
            ("db.example", Some(&["10.0.0.1"])),
            ("example", None),
        ];
        for (name, expected) in cases {
            let expected: Option<Vec<IpAddr>> =
                expected.map(|list| list.iter().map(|text| text.parse().unwrap()).collect());
            let found = in_hosts(text, name).map(|found| found.addresses());
            assert_eq!(found, expected, "{name}");
        }
    }
}
