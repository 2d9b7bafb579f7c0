//! The `global` section: what is a flag of `ballast run`, and what Ballast needs no word for.

use super::importer::Importer;
use super::keywords::{Place, with_values};
use super::units::{fitting, time};
use super::versions::Versions;
use super::words::Line;

impl Importer<'_> {
    /// Reads a line of `global`.
    pub(super) fn global(&mut self, line: &Line) -> Result<(), String> {
        let value = line.word(1);
        let number = || value.parse::<u32>().ok().filter(|number| *number > 0);
        match line.word(0) {
            "log" if value == "global" => {}
            "log" => self.log(line)?,
            "crt-base" => self.crt_base = Some(value.into()),
            "ca-base" => self.ca_base = Some(value.into()),
            "maxconn" => {
                let most = number().ok_or("has no number; write one")?;
                self.flag(line, format!("--max-connections {most}"));
            }
            "nbthread" => {
                let threads = number().ok_or("has no number; write one")?;
                self.flag(line, format!("--threads {}", threads.min(256)));
            }
            "hard-stop-after" => {
                let time = time(value).ok_or("has no time; write one such as 30s")?;
                let seconds = fitting(time).as_secs().max(1);
                self.flag(line, format!("--drain-timeout {seconds}s"));
            }
            "stats" if value == "socket" => self.socket(line)?,
            "ssl-default-bind-options" => {
                self.versions = self.tls_options(line, Place::Bind);
                self.unlike(line, self.versions, self.versions);
                let why = "Ballast speaks TLS 1.2 and 1.3 alone";
                self.report.note(line, why);
            }
            "ssl-load-extra-files" => {
                let has = |word: &str| line.from(1).iter().any(|it| it == word || it == "all");
                (self.beside.key, self.beside.ocsp) = (has("key"), has("ocsp"));
            }
            "ssl-load-extra-del-ext" => self.beside.replaces_crt = true,
            "ssl-default-server-options" => {
                let versions = self.tls_options(line, Place::Server);
                self.unlike(line, versions, Versions::default());
            }
            "ssl-server-verify" if matches!(value, "none" | "required") => {
                self.verifies_servers = value == "required";
            }
            // `setenv` is known before the lines are cut.
            "stats" | "setenv" | "presetenv" => {}
            "tune.ssl.default-dh-param" => {
                let why = "TLS of Ballast agrees on keys by elliptic curves alone, which need no such number";
                self.report.note(line, why);
            }
            keyword if keyword.starts_with("tune.") => {
                let why = "Ballast sizes its buffers by itself";
                self.report.note(line, why);
            }
            keyword => self.keyword(line, Place::Global, keyword, ""),
        }
        Ok(())
    }

    /// The versions that the options of a line permit, with remarks about the other options.
    fn tls_options(&mut self, line: &Line, place: Place) -> Versions {
        let mut versions = Versions::default();
        for (word, value) in with_values(line.from(1), place) {
            if !versions.take(word, value) {
                self.keyword(line, place, word, value);
            }
        }
        versions
    }

    /// Tells what of the versions that a line permits Ballast does not follow, which speaks those of `spoken`.
    pub(super) fn unlike(&mut self, line: &Line, said: Versions, spoken: Versions) {
        if let Some(why) = said.unlike(spoken) {
            let why = format!("{why}: Ballast has TLS 1.2 and 1.3, or at a bind 1.3 alone");
            self.report.differs(line, why);
        }
    }

    /// `stats socket PATH …`
    fn socket(&mut self, line: &Line) -> Result<(), String> {
        let path = line.word(2);
        if !path.starts_with('/') {
            return Err(format!(
                "{path:?} has no counterpart: the runtime socket is a unix socket; use --socket PATH"
            ));
        }
        let of = |names: &[&str]| {
            let words = line.from(3);
            let at = words
                .iter()
                .position(|word| names.contains(&word.as_str()))?;
            words.get(at + 1).map(String::as_str)
        };
        let level = of(&["level"]).unwrap_or("operator");
        let (kind, mut flags) = match level {
            "admin" => ("socket", format!("--socket {path}")),
            _ => (
                "monitor",
                format!("--monitor-socket {path} --monitor-level {level}"),
            ),
        };
        let first = flags.split(' ').next().unwrap_or_default();
        let mut known = self.report.flags.iter();
        if known.any(|known| known.split(' ').next() == Some(first)) {
            return Err(format!(
                "a line before it names the {first} already, and there is one of each; remove one of the two"
            ));
        }
        let usual = if kind == "socket" { "600" } else { "660" };
        let mode = of(&["mode"]).map(|mode| mode.trim_start_matches('0'));
        match mode.filter(|mode| *mode != usual) {
            Some(mode) if kind == "socket" && is_mode(mode) => {
                flags.push_str(&format!(" --socket-mode {mode}"));
            }
            Some(_) => self
                .report
                .note(line, format!("the file of the socket has mode 0{usual}")),
            None => {}
        }
        if let Some(group) = of(&["group", "gid"]) {
            flags.push_str(&format!(" --{kind}-group {group}"));
        }
        if of(&["user", "uid"]).is_some() {
            let why = "the file of the socket belongs to the user that Ballast runs as";
            self.report.note(line, why);
        }
        self.flag(line, flags);
        Ok(())
    }

    fn flag(&mut self, line: &Line, flag: String) {
        let why = format!("a flag of `ballast run`: {flag}");
        self.report.note(line, why);
        self.report.flag(flag);
    }
}

fn is_mode(mode: &str) -> bool {
    mode.len() == 3 && mode.bytes().all(|digit| (b'0'..=b'7').contains(&digit))
}
