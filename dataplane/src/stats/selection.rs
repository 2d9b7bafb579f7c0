//! What of a snapshot is asked for, in the words of haproxy's addresses.

use super::snapshot::{EndpointStats, FrontendStats, ServiceStats, Snapshot, StatusKind};

/// A form of the stats page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Html,
    /// `;csv`
    Csv,
    /// `;json`
    Json,
    /// `;json-schema`
    Schema,
    /// `;typed`
    Typed,
}

impl Form {
    /// The form that this address asks for: `/;csv;norefresh`, `/haproxy?stats;json`. `None` where it is no address
    /// of the page.
    #[must_use]
    pub fn of(address: &str) -> Option<Self> {
        let rest = address
            .strip_prefix("/haproxy?stats")
            .or_else(|| address.strip_prefix('/'))?;
        let is_page = rest.is_empty() || rest.starts_with([';', '?']);
        is_page.then(|| {
            let mut words = rest.split([';', '?', '&']);
            words
                .find_map(|word| match word {
                    "csv" => Some(Self::Csv),
                    "json" => Some(Self::Json),
                    "json-schema" => Some(Self::Schema),
                    "typed" => Some(Self::Typed),
                    _ => None,
                })
                .unwrap_or(Self::Html)
        })
    }
}

/// What of a snapshot is asked for. By default everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Kinds of metrics; `None`: all.
    kinds: Option<Kinds>,
    /// Parts of proxies' names, in lower case; one of them is enough.
    names: Vec<Box<str>>,
    /// Without endpoints that are down.
    pub only_up: bool,
    /// Without endpoints that no client gets.
    pub no_maintenance: bool,
    /// Whether the typed form explains its columns.
    pub described: bool,
    proxy: Proxy,
    /// The number of the only endpoint in a service; `None`: all.
    sid: Option<u32>,
}

/// Which frontends and services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    #[default]
    Any,
    /// Those of this name.
    Named(Box<str>),
    /// The one of this number.
    Numbered(u32),
}

/// Kinds of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    pub global: bool,
    pub frontend: bool,
    pub backend: bool,
    pub server: bool,
}

impl Selection {
    /// What an address of the page asks for: `;up`, `;no-maint`, `?scope=` with a part of a name.
    pub fn of_page(address: &str) -> Self {
        let mut selection = Self::default();
        for word in address.split([';', '?', '&']) {
            match word {
                "up" => selection.only_up = true,
                "no-maint" => selection.no_maintenance = true,
                _ => {
                    if let Some(scope) = word.strip_prefix("scope=") {
                        selection.names = name_part(scope).into_iter().collect();
                    }
                }
            }
        }
        selection
    }

    /// What a query of `/metrics` asks for: `scope=` with a kind, `*`, nothing, or a part of a name, repeatable and in
    /// order; `no-maint`.
    pub fn of_metrics(query: &str) -> Self {
        let mut selection = Self::default();
        for word in query.split('&') {
            if matches!(word, "no-maint" | "no-maint=") {
                selection.no_maintenance = true;
            }
            if let Some(scope) = word.strip_prefix("scope=") {
                selection.scope(scope);
            }
        }
        selection
    }

    /// What haproxy's `show stat` with three arguments asks for: a proxy, which of frontends, services and endpoints,
    /// and the number of an endpoint.
    pub fn of_objects(proxy: Proxy, kinds: [bool; 3], sid: Option<u32>) -> Self {
        let [frontend, backend, server] = kinds;
        Self {
            kinds: Some(Kinds {
                global: false,
                frontend,
                backend,
                server,
            }),
            proxy,
            sid,
            ..Self::default()
        }
    }

    fn scope(&mut self, scope: &str) {
        let kinds = &mut self.kinds;
        match scope {
            "" => *kinds = Some(Kinds::default()),
            "*" | "%2A" | "%2a" => *kinds = Some(Kinds::ALL),
            "global" => kinds.get_or_insert_default().global = true,
            "frontend" => kinds.get_or_insert_default().frontend = true,
            "backend" => kinds.get_or_insert_default().backend = true,
            "server" => kinds.get_or_insert_default().server = true,
            // There are none here, but asking is no mistake.
            "listener" | "sticktable" => {
                kinds.get_or_insert_default();
            }
            name => self.names.extend(name_part(name)),
        }
    }

    /// Which kinds of metrics.
    #[must_use]
    pub fn kinds(&self) -> Kinds {
        self.kinds.unwrap_or(Kinds::ALL)
    }

    pub(super) fn frontends(&self, snapshot: &Snapshot) -> Vec<usize> {
        let name = |frontend: &FrontendStats| {
            self.takes_name(&frontend.name) && self.takes_proxy(&frontend.name, frontend.iid)
        };
        places(&snapshot.frontends, name)
    }

    pub(super) fn services(&self, snapshot: &Snapshot) -> Vec<usize> {
        let name = |service: &ServiceStats| {
            self.takes_name(&service.name) && self.takes_proxy(&service.name, service.iid)
        };
        places(&snapshot.services, name)
    }

    fn takes_proxy(&self, name: &str, iid: u32) -> bool {
        match &self.proxy {
            Proxy::Any => true,
            Proxy::Named(only) => **only == *name,
            Proxy::Numbered(only) => *only == iid,
        }
    }

    /// Whether an endpoint is not filtered out.
    pub(crate) fn takes_endpoint(&self, endpoint: &EndpointStats) -> bool {
        if self.sid.is_some_and(|sid| sid != endpoint.sid) {
            return false;
        }
        match endpoint.status.kind {
            StatusKind::Maintenance => !self.no_maintenance && !self.only_up,
            // One that is coming up is shown.
            StatusKind::Down => !self.only_up || endpoint.status.progress.is_some(),
            StatusKind::Unchecked
            | StatusKind::Up
            | StatusKind::Draining
            | StatusKind::Stopping => true,
        }
    }

    /// Whether a frontend or service of this name is not filtered out.
    pub(crate) fn takes_name(&self, name: &str) -> bool {
        let contains = |part: &str| {
            name.as_bytes()
                .windows(part.len())
                .any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
        };
        self.names.is_empty() || self.names.iter().any(|part| contains(part))
    }
}

impl Kinds {
    const ALL: Self = Self {
        global: true,
        frontend: true,
        backend: true,
        server: true,
    };
}

/// A part of a name as haproxy takes it: no more than 20 letters of it count, and one that no name has makes it none.
fn name_part(scope: &str) -> Option<Box<str>> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "_.:-".contains(letter);
    let part: String = scope.chars().take(LONGEST_PART).collect();
    (!part.is_empty() && part.chars().all(is_letter)).then(|| part.into())
}

fn places<T>(all: &[T], takes: impl Fn(&T) -> bool) -> Vec<usize> {
    let taken = all.iter().enumerate().filter(|(_, one)| takes(one));
    taken.map(|(place, _)| place).collect()
}

const LONGEST_PART: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_address_of_the_page_is_understood() {
        for (address, form) in [
            ("/", Some(Form::Html)),
            ("/;csv", Some(Form::Csv)),
            ("/;csv;norefresh", Some(Form::Csv)),
            ("/;norefresh;csv", Some(Form::Csv)),
            ("/haproxy?stats;csv", Some(Form::Csv)),
            ("/haproxy?stats", Some(Form::Html)),
            ("/haproxy?stats;json;up", Some(Form::Json)),
            ("/;json", Some(Form::Json)),
            ("/;typed", Some(Form::Typed)),
            ("/;json-schema", Some(Form::Schema)),
            ("/?scope=csv", Some(Form::Html)),
            ("/?scope=web;csv", Some(Form::Csv)),
            ("/metrics", None),
            ("/csv", None),
        ] {
            assert_eq!(Form::of(address), form, "{address}");
        }
    }

    #[test]
    fn a_page_is_filtered_by_name_and_by_status() {
        let selection = Selection::of_page("/;csv;up;no-maint?scope=My");
        assert!(selection.only_up && selection.no_maintenance);
        assert!(selection.takes_name("mysql") && selection.takes_name("a-mY"));
        assert!(!selection.takes_name("m"));
        for everything in ["/;csv", "/?scope=", "/?scope=a%20b", "/?scope=<b>"] {
            assert!(
                Selection::of_page(everything).takes_name("x"),
                "{everything}"
            );
        }
        let long = Selection::of_page("/?scope=abcdefghijklmnopqrstuvwxyz");
        assert!(long.takes_name("0abcdefghijklmnopqrst0"));
    }

    #[test]
    fn scopes_of_metrics_add_up_in_their_order() {
        let kinds = |query| Selection::of_metrics(query).kinds();
        assert_eq!(kinds(""), Kinds::ALL);
        assert_eq!(kinds("no-maint"), Kinds::ALL);
        assert_eq!(kinds("scope="), Kinds::default());
        assert_eq!(kinds("scope=server&scope=*"), Kinds::ALL);
        assert_eq!(kinds("scope=listener"), Kinds::default());
        let server = Kinds {
            server: true,
            ..Kinds::default()
        };
        assert_eq!(kinds("scope=*&scope=&scope=server"), server);
        let named = Selection::of_metrics("scope=server&scope=my&scope=web&no-maint");
        assert_eq!(named.kinds(), server);
        assert!(named.takes_name("mysql") && named.takes_name("webby") && named.no_maintenance);
        assert!(!named.takes_name("dns"));
    }
}
