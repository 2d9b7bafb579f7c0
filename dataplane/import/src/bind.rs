//! `bind` lines: addresses, and what their connections must begin with.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ballast_core::table::{
    Bind, Certificate, ClientAuth, ClientAuthMode, FrontendTls, List, TlsVersion, UnknownName,
};

use super::acl::lines_of;
use super::importer::Importer;
use super::keywords::{Place, with_values};
use super::server::{family, in_brackets};
use super::services::file;
use super::units::{no_port, port};
use super::versions::Versions;
use super::words::Line;

/// A `bind` line.
#[derive(Clone, Debug, Default)]
pub(super) struct BindLine {
    pub(super) line: Line,
    pub(super) binds: Vec<Bind>,
    pub(super) way: Way,
}

/// What connections of a bind begin with: binds of one way are one frontend of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) accept_proxy: bool,
    pub(super) tls: Option<Tls>,
}

/// TLS that ends at a bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) table: FrontendTls,
    pub(super) ticket_keys: Option<String>,
}

/// Which files haproxy reads beside a certificate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    /// The one with its key, where it has none itself.
    pub(super) key: bool,
    /// The one with an answer of OCSP.
    pub(super) ocsp: bool,
    /// Whether their ending stands in place of `.crt`, and not behind it.
    pub(super) replaces_crt: bool,
}

impl Default for Beside {
    fn default() -> Self {
        Self {
            key: true,
            ocsp: true,
            replaces_crt: false,
        }
    }
}

/// What the words behind an address say, before it is known whether TLS ends there.
#[derive(Default)]
struct Said<'l> {
    accept_proxy: bool,
    is_tls: bool,
    certificates: Vec<String>,
    alpn: &'l str,
    versions: Versions,
    is_strict: bool,
    ticket_keys: Option<String>,
    /// `None`: no client is asked for a certificate.
    verify: Option<&'l str>,
    ca: Option<&'l str>,
    revoked: bool,
}

impl Importer<'_> {
    /// Reads a `bind` line; an error means that the whole line is left out.
    pub(super) fn bind(&mut self, line: &Line) -> Result<BindLine, String> {
        let v6_only = line.from(2).iter().any(|word| word == "v6only");
        let mut binds = Vec::new();
        let mut wrong = None;
        for part in line.word(1).split(',') {
            match self.bind_addresses(line, part, v6_only) {
                Ok(more) => binds.extend(more),
                Err(why) => wrong = Some(why),
            }
        }
        if binds.is_empty() {
            return Err(wrong.unwrap_or_else(|| "has no address; write one such as *:80".into()));
        }
        self.binds += binds.len();
        if self.binds > MOST_BINDS {
            return Err(format!(
                "the binds before it have {MOST_BINDS} addresses already, and a table has no more; divide the configuration"
            ));
        }
        if let Some(why) = wrong {
            self.report.left_out(line, why);
        }
        let way = self.way(line)?;
        Ok(BindLine {
            line: line.clone(),
            binds,
            way,
        })
    }

    fn bind_addresses(
        &mut self,
        line: &Line,
        text: &str,
        v6_only: bool,
    ) -> Result<Vec<Bind>, String> {
        let (v6, rest) = family(text)?;
        let Some((host, ports)) = rest.rsplit_once(':') else {
            return Err(format!("{text:?} has no port; write it as ADDRESS:PORT"));
        };
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let (Ok(first), Ok(last)) = (port(first), port(last)) else {
            return Err(no_port(ports));
        };
        if first == 0 || last < first {
            return Err(format!(
                "{ports:?} is no range of ports; expected the lower one first, from 1 on"
            ));
        }
        if last - first >= MOST_PORTS {
            return Err(format!(
                "{ports:?} are too many ports for one table; expected at most {MOST_PORTS}"
            ));
        }
        let host = in_brackets(host).unwrap_or(host);
        let (ip, is_any) = match host {
            "" | "*" if v6 != Some(true) => (Ipv4Addr::UNSPECIFIED.into(), false),
            "" | "*" | "::" => (Ipv6Addr::UNSPECIFIED.into(), !v6_only),
            host => (self.address(line, host, v6)?.0, false),
        };
        let bind = |port: u16| match is_any {
            true => Bind::Any { port },
            false => Bind::Exact(SocketAddr::new(ip, port)),
        };
        Ok((first..=last).map(bind).collect())
    }

    fn way(&mut self, line: &Line) -> Result<Way, String> {
        let mut said = Said {
            versions: self.versions,
            ..Said::default()
        };
        for (word, value) in with_values(line.from(2), Place::Bind) {
            if !said.versions.take(word, value) {
                self.bind_word(line, word, value, &mut said)?;
            }
        }
        if said.versions != self.versions {
            self.unlike(line, said.versions, said.versions);
        }
        let accept_proxy = said.accept_proxy;
        let tls = said.is_tls.then(|| self.tls(line, said)).transpose()?;
        Ok(Way { accept_proxy, tls })
    }

    fn bind_word<'l>(
        &mut self,
        line: &Line,
        word: &str,
        value: &'l str,
        said: &mut Said<'l>,
    ) -> Result<(), String> {
        match word {
            "accept-proxy" => said.accept_proxy = true,
            "ssl" => said.is_tls = true,
            "crt" => said.certificates.extend(self.certificates(line, value)?),
            "crt-list" => said
                .certificates
                .extend(self.certificate_list(line, value)?),
            "ca-file" => said.ca = Some(value),
            "crl-file" => said.revoked = true,
            "interface" => {
                return Err(format!(
                    "`interface {value}`: Ballast binds to an address, whichever interface clients come by; write an address that only {value} has, without this word"
                ));
            }
            "namespace" => {
                return Err(format!(
                    "`namespace {value}`: Ballast binds in the network namespace that it runs in; start one in {value}, with a table of its own"
                ));
            }
            "verify" => said.verify = Some(value).filter(|mode| *mode != "none"),
            "alpn" => said.alpn = value,
            "strict-sni" => said.is_strict = true,
            "tls-ticket-keys" => said.ticket_keys = Some(self.world.absolute(value)),
            _ => self.keyword(line, Place::Bind, word, value),
        }
        Ok(())
    }

    /// TLS of a bind, with the certificates that clients must show.
    fn tls(&mut self, line: &Line, said: Said<'_>) -> Result<Tls, String> {
        let mut client_auth = None;
        match (said.verify, said.ca) {
            (None, None) => {}
            (None, Some(_)) => {
                self.report.note(line, "without `verify` haproxy asks no client for a certificate, and neither does Ballast");
            }
            (Some(verify), None) => {
                return Err(format!(
                    "`verify {verify}` has no ca-file, and without one nobody can be verified; name it"
                ));
            }
            (Some(_), Some("@system-ca")) => {
                return Err("`ca-file @system-ca` names no file by which clients could be verified; name the system's, such as /etc/ssl/certs/ca-certificates.crt".into());
            }
            (Some(_), Some(_)) if said.revoked => {
                return Err("`crl-file`: Ballast reads no list of revoked certificates, and would let their owners in; remove the word once none of these certificates is valid any more".into());
            }
            (Some(mode), Some(ca)) => {
                self.report.note(line, "Ballast tells endpoints the name of the client's certificate in X-SSL-Client-DN, in place of what the client sent there");
                client_auth = Some(ClientAuth {
                    ca: file(&self.below(self.ca_base.as_deref(), ca)),
                    mode: match mode {
                        "optional" => ClientAuthMode::Optional,
                        _ => ClientAuthMode::Required,
                    },
                    header: None,
                });
            }
        }
        if said.certificates.is_empty() {
            return Err("`ssl` has no certificate; name one by crt".into());
        }
        let unknown_name = match said.is_strict {
            true => UnknownName::Refuse,
            false => UnknownName::Default,
        };
        let certificates = said.certificates.iter();
        let certificates = certificates.map(|path| self.certificate(path));
        let alpn: Vec<_> = said
            .alpn
            .split(',')
            .filter_map(|name| name.parse().ok())
            .collect();
        let table = FrontendTls {
            certificates: certificates.collect(),
            unknown_name,
            no_name: unknown_name,
            min_version: match said.versions.are_v13_alone() {
                true => TlsVersion::V13,
                false => TlsVersion::V12,
            },
            alpn: (!alpn.is_empty()).then(|| List::new(alpn)),
            client_auth,
        };
        Ok(Tls {
            table,
            ticket_keys: said.ticket_keys,
        })
    }

    /// A certificate with the key and the answer of OCSP that haproxy reads from files beside it.
    fn certificate(&self, path: &str) -> Certificate {
        let pem = self.world.read(path).unwrap_or_default();
        let has_key = String::from_utf8_lossy(&pem).contains("PRIVATE KEY-----");
        let base = path.strip_suffix(".crt");
        let base = base.filter(|_| self.beside.replaces_crt).unwrap_or(path);
        let beside = |is_read: bool, ending: &str| {
            let beside = format!("{base}.{ending}");
            (is_read && self.world.read(&beside).is_ok()).then(|| file(&beside))
        };
        Certificate {
            cert: file(path),
            key: beside(self.beside.key && !has_key, "key"),
            ocsp: beside(self.beside.ocsp, "ocsp"),
            hosts: None,
        }
    }

    /// The PEM files of a `crt`: itself, or those of a folder.
    fn certificates(&mut self, line: &Line, path: &str) -> Result<Vec<String>, String> {
        if path.is_empty() {
            return Err("`crt` names no file; name one".into());
        }
        let path = self.below(self.crt_base.as_deref(), path);
        let Some(names) = self.world.folder(&path) else {
            return Ok(vec![path]);
        };
        let is_certificate = |name: &&String| {
            let endings = [".key", ".ocsp", ".sctl", ".issuer"];
            !name.starts_with('.') && !endings.iter().any(|ending| name.ends_with(ending))
        };
        let names = names.iter().filter(is_certificate);
        let files = names.map(|name| format!("{}/{name}", path.trim_end_matches('/')));
        let files: Vec<String> = files.collect();
        if files.is_empty() {
            return Err(format!("{path} has no certificate; put one there"));
        }
        let why = format!("a table names each certificate: those that are in {path} now");
        self.report.note(line, why);
        Ok(files)
    }

    fn certificate_list(&mut self, line: &Line, path: &str) -> Result<Vec<String>, String> {
        let mut files = Vec::new();
        for entry in lines_of(&self.read_file_named(path)?) {
            let mut words = entry.split_whitespace();
            let file = words.next().unwrap_or_default();
            let rest: Vec<&str> = words.collect();
            let verifies = rest.iter().position(|word| word.ends_with("verify"));
            if verifies.is_some_and(|at| {
                let mode = rest.get(at + 1).map(|mode| mode.trim_end_matches(']'));
                mode != Some("none")
            }) {
                return Err(format!(
                    "{file} of {path} asks clients for certificates, which Ballast does for all names of a bind or for none; give it a bind with `verify` and ca-file of its own"
                ));
            }
            if !rest.is_empty() {
                self.report.left_out(line, format!("{file} of {path} has options or names behind it; Ballast takes a certificate's names from itself, and serves those, too, that the list keeps out of it"));
            }
            files.push(self.below(self.crt_base.as_deref(), file));
        }
        Ok(files)
    }

    /// A path, below the base where it is relative.
    pub(super) fn below(&self, base: Option<&str>, path: &str) -> String {
        match base {
            Some(base) if !path.starts_with('/') => self
                .world
                .absolute(&format!("{}/{path}", base.trim_end_matches('/'))),
            _ => self.world.absolute(path),
        }
    }
}

/// Ports of one `bind`.
const MOST_PORTS: u16 = 4096;
/// Addresses of all binds together.
const MOST_BINDS: usize = 50_000;
