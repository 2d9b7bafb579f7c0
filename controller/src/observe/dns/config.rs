//! resolv.conf(5) and hosts(5), as far as they matter. Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Whom to ask, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) servers: Vec<SocketAddr>,
    pub(super) search: Vec<String>,
    /// For each server and try.
    pub(super) timeout: Duration,
    pub(super) attempts: u32,
}

impl Config {
    /// What a resolv.conf says; without a server, it is the one on this host.
    pub(super) fn read(text: &str) -> Self {
        let mut config = Self {
            servers: Vec::new(),
            search: Vec::new(),
            timeout: Duration::from_secs(2),
            attempts: 2,
        };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") if config.servers.len() < MOST_SERVERS => {
                    // A scope (fe80::1%eth0) needs the number of an interface: such a server is left out.
                    let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    config
                        .servers
                        .extend(address.map(|address| SocketAddr::new(address, 53)));
                }
                // The last one counts.
                Some("search" | "domain") => {
                    let domains = words.map(|domain| domain.trim_end_matches('.').to_owned());
                    config.search = domains.filter(|domain| !domain.is_empty()).collect();
                }
                Some("options") => words.for_each(|word| config.option(word)),
                _ => {}
            }
        }
        if config.servers.is_empty() {
            config
                .servers
                .push(SocketAddr::from((Ipv4Addr::LOCALHOST, 53)));
        }
        config
    }

    fn option(&mut self, word: &str) {
        let Some((name, value)) = word.split_once(':') else {
            return;
        };
        let Ok(value) = value.parse::<u32>() else {
            return;
        };
        match name {
            "timeout" => self.timeout = Duration::from_secs(value.clamp(1, 5).into()),
            "attempts" => self.attempts = value.clamp(1, 5),
            _ => {}
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

/// What a hosts file says of a name, if anything.
pub(super) fn in_hosts(text: &str, name: &str) -> Option<Vec<IpAddr>> {
    let name = name.trim_end_matches('.');
    let mut found = Vec::new();
    for line in text.lines() {
        let entry = line.split('#').next().unwrap_or_default();
        let mut words = entry.split_whitespace();
        let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
        if let Some(address) = address
            && words.any(|word| word.eq_ignore_ascii_case(name))
        {
            found.push(address);
        }
    }
    (!found.is_empty()).then_some(found)
}

const MOST_SERVERS: usize = 3;

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
            assert_eq!(in_hosts(text, name), expected, "{name}");
        }
    }
}
