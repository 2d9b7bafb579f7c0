//! The state of an import: what is known of the whole file, and the helpers that all keywords use.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ballast_core::table::LogTarget;

use super::bind::Beside;
use super::report::{Places, Report, listed};
use super::units::port;
use super::versions::Versions;
use super::words::Line;
use super::world::World;

/// The state of an import.
pub(super) struct Importer<'w> {
    pub(super) world: &'w dyn World,
    pub(super) report: Report,
    pub(super) places: Places,
    pub(super) crt_base: Option<String>,
    pub(super) ca_base: Option<String>,
    /// The versions of TLS that binds speak, where they do not say otherwise.
    pub(super) versions: Versions,
    /// The files that are read beside certificates.
    pub(super) beside: Beside,
    /// Whether servers are verified whose line does not say it.
    pub(super) verifies_servers: bool,
    pub(super) log_targets: Vec<LogTarget>,
    pub(super) ticket_keys: Option<String>,
    /// Whether files can be written beside the table.
    pub(super) has_folder: bool,
    /// Whether some request gets to a `use_backend`, by the number of its line.
    pub(super) reached: HashMap<usize, bool>,
    /// Lines whose exceptions from a denial cannot be looked at, so that they deny more than in haproxy.
    pub(super) spared_nobody: HashSet<usize>,
    /// Lines that let some clients through and are left out.
    pub(super) lost_allows: HashSet<usize>,
    /// Lines that lead requests to a backend, and are left out in part; whether because a list of clients cannot be read.
    pub(super) lost_choices: HashMap<usize, bool>,
    /// Names of sections that are disabled.
    pub(super) disabled: HashSet<String>,
    /// Backends whose endpoints are told the client's address in `X-Forwarded-For`.
    pub(super) told_clients: HashSet<String>,
    /// Words so far that nothing knows.
    pub(super) unknown_words: usize,
    /// Addresses of all binds so far.
    pub(super) binds: usize,
    /// Files to write beside the table, by their relative paths.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

impl<'w> Importer<'w> {
    pub(super) fn new(world: &'w dyn World, has_folder: bool) -> Self {
        Self {
            world,
            report: Report::default(),
            places: Places::default(),
            crt_base: None,
            ca_base: None,
            versions: Versions::default(),
            beside: Beside::default(),
            verifies_servers: true,
            log_targets: Vec::new(),
            ticket_keys: None,
            has_folder,
            reached: HashMap::new(),
            spared_nobody: HashSet::new(),
            lost_allows: HashSet::new(),
            lost_choices: HashMap::new(),
            disabled: HashSet::new(),
            told_clients: HashSet::new(),
            unknown_words: 0,
            binds: 0,
            files: Vec::new(),
        }
    }

    /// The bytes of a file that a line names.
    pub(super) fn read_file_named(&self, path: &str) -> Result<Vec<u8>, String> {
        let bytes = self.world.read(path);
        bytes.map_err(|why| format!("{path} cannot be read: {why}"))
    }

    /// The address of a host, and whether it is a name that was resolved. `v6` asks for one family.
    pub(super) fn address(
        &mut self,
        line: &Line,
        host: &str,
        v6: Option<bool>,
    ) -> Result<(IpAddr, bool), String> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok((address.to_canonical(), false));
        }
        let addresses = self.resolved(host)?;
        let mut fitting = addresses
            .iter()
            .filter(|address| v6.is_none_or(|v6| address.is_ipv6() == v6));
        let Some(first) = fitting.next() else {
            return Err(format!(
                "the name {host} has no address of this family; write its address"
            ));
        };
        let others = listed(fitting);
        if !others.is_empty() {
            let why =
                format!("{host} is {first}, which is taken, as haproxy takes one, and {others}");
            self.report.note(line, why);
        }
        Ok((first.to_canonical(), true))
    }

    /// All addresses of a name, which is resolved once.
    pub(super) fn resolved(&mut self, host: &str) -> Result<Vec<IpAddr>, String> {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_of_name) {
            return Err(format!(
                "{host:?} is neither an address nor a name; write one"
            ));
        }
        if let Some(known) = self.report.names.get(host) {
            return Ok(known.clone());
        }
        let found = self.world.addresses(host).map_err(|why| {
            format!("the name {host} does not resolve ({why}); write its address")
        })?;
        self.report.names.insert(host.into(), found.clone());
        Ok(found)
    }

    /// `log ADDRESS …` of `global` or of a proxy.
    pub(super) fn log(&mut self, line: &Line) -> Result<(), String> {
        let text = line.word(1);
        let target = match text {
            "stdout" | "stderr" | "fd@1" | "fd@2" => LogTarget::Stdout,
            path if path.starts_with('/') || path.starts_with("unix@") => {
                let path = path.strip_prefix("unix@").unwrap_or(path);
                format!("unix:{path}")
                    .parse()
                    .map_err(|_| format!("{path:?} is no path of a socket; write one"))?
            }
            "" => return Err("has no target; expected `log ADDRESS FACILITY`".into()),
            other if other.starts_with("ring@") || other.starts_with("tcp") => {
                return Err(format!(
                    "{other} has no counterpart; access lines go to stdout, unix:PATH or udp:IP:PORT"
                ));
            }
            other => {
                let bare = other
                    .strip_prefix("udp@")
                    .or_else(|| other.strip_prefix("ipv4@"))
                    .unwrap_or(other);
                let (host, port) = match bare.rsplit_once(':') {
                    Some((host, text)) if bare.parse::<IpAddr>().is_err() => (host, port(text)?),
                    _ => (bare, 514),
                };
                let (address, _) = self.address(line, host, None)?;
                LogTarget::Udp((address, port).into())
            }
        };
        let mut words = line.from(2).iter().map(String::as_str);
        let facility = words.find(|word| FACILITIES.contains(word));
        // Access lines are `info`.
        if let Some(level) = words.next().filter(|level| MORE_SEVERE.contains(level)) {
            let why = format!(
                "lines of requests have level info, so that haproxy writes none of them there with {level}, and neither does Ballast"
            );
            self.report.note(line, why);
            return Ok(());
        }
        if !self.log_targets.contains(&target) {
            self.log_targets.push(target);
        }
        if facility.is_some_and(|facility| facility != "local0") {
            let why = "syslog lines of Ballast have the facility local0";
            self.report.note(line, why);
        }
        Ok(())
    }
}

/// Levels that leave access lines out.
const MORE_SEVERE: &[&str] = &["emerg", "alert", "crit", "err", "warning", "notice"];

const FACILITIES: &[&str] = &[
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "auth2",
    "ftp", "ntp", "audit", "alert", "cron2", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
