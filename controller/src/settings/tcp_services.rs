//! The value of `--tcp-services`.

use std::str::FromStr;

/// One Service port that gets a port of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpService {
    /// Its namespace; `None`: the Service that owns the bare name.
    pub namespace: Option<String>,
    pub name: String,
    pub port: u16,
    /// The port of the node at which it listens.
    pub external: u16,
}

impl TcpService {
    pub(super) fn named(name: &str, port: u16) -> Result<Self, String> {
        let (namespace, name) = match name.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, name),
        };
        let is_good = |part: &str| !part.is_empty() && !part.contains('/');
        if !is_good(name) || !namespace.is_none_or(is_good) || port == 0 {
            return Err(FORM.to_owned());
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            port,
            external: port,
        })
    }

    fn read(text: &str) -> Result<Self, String> {
        let (inner, external) = match text.split_once('@') {
            Some((inner, external)) => (inner, Some(external)),
            None => (text, None),
        };
        let wrong = || format!("{text:?} {FORM}");
        let (name, port) = inner.rsplit_once(':').ok_or_else(wrong)?;
        let mut service =
            Self::named(name, parse_port(port).ok_or_else(wrong)?).map_err(|_| wrong())?;
        if let Some(external) = external {
            service.external = parse_port(external).ok_or_else(wrong)?;
        }
        Ok(service)
    }
}

/// All entries of `--tcp-services`, in the order of the flag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpServices(pub Vec<TcpService>);

impl TcpServices {
    /// Adds the entries of Services that have none yet.
    pub(super) fn merge(&mut self, mut others: Vec<TcpService>) {
        let named = |service: &TcpService| (service.namespace.clone(), service.name.clone());
        let known: Vec<_> = self.0.iter().map(named).collect();
        others.retain(|other| !known.contains(&named(other)));
        self.0.extend(others);
    }
}

impl FromStr for TcpServices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim);
        let mut services: Vec<TcpService> = Vec::new();
        for part in parts.filter(|part| !part.is_empty()) {
            let service = TcpService::read(part)?;
            let mut others = services.iter();
            if let Some(other) = others.find(|other| other.external == service.external) {
                return Err(format!(
                    "port {} is given to {} and {}",
                    service.external, other.name, service.name
                ));
            }
            services.push(service);
        }
        Ok(Self(services))
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

const FORM: &str = "is not name:port, namespace/name:port or name:port@external";
