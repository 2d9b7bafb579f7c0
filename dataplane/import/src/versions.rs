//! Versions of TLS that a line permits: `ssl-min-ver`, `no-tlsv12` and their like.

/// The versions from one to another one, as places in [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Versions {
    least: usize,
    most: usize,
}

/// What Ballast speaks, and haproxy where no line says it.
impl Default for Versions {
    fn default() -> Self {
        Self { least: 3, most: 4 }
    }
}

impl Versions {
    /// Takes a word with its value; `false`: it is none about versions.
    pub(super) fn take(&mut self, word: &str, value: &str) -> bool {
        let (action, name) = match word {
            "ssl-min-ver" | "ssl-max-ver" => (word, value),
            _ => word.split_once('-').unwrap_or_default(),
        };
        let name = name.to_ascii_lowercase().replace('.', "");
        let Some(at) = NAMES.iter().position(|known| *known == name) else {
            return false;
        };
        match action {
            "ssl-min-ver" => self.least = at,
            "ssl-max-ver" => self.most = at,
            "force" => (self.least, self.most) = (at, at),
            "no" if at == self.least => self.least += 1,
            "no" if at == self.most => self.most = at.saturating_sub(1),
            "no" => {}
            _ => return false,
        }
        true
    }

    pub(super) fn are_v13_alone(self) -> bool {
        self.least >= 4
    }

    /// What of these versions Ballast does not follow, which speaks those from `least` on.
    pub(super) fn unlike(self, least: Self) -> Option<&'static str> {
        match (self.least, self.most) {
            (..=2, _) => Some("older versions than TLS 1.2 are not spoken"),
            (_, ..=3) => Some("TLS 1.3 is spoken, too"),
            (4.., _) if !least.are_v13_alone() => Some("TLS 1.2 is spoken, too"),
            _ => None,
        }
    }
}

const NAMES: [&str; 5] = ["sslv3", "tlsv10", "tlsv11", "tlsv12", "tlsv13"];
