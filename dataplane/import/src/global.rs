//! The `global` section: what is a flag of `ballast run`, and what Ballast needs no word for.

use super::importer::Importer;
use super::keywords::{Place, TLS_WORDS};
use super::units::{fitting, time};
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
                let words: Vec<&str> = line.from(1).iter().map(String::as_str).collect();
                let mut pairs = words.windows(2);
                self.only_v13 = pairs.any(|pair| pair == ["ssl-min-ver", "TLSv1.3"])
                    || words.contains(&"no-tlsv12")
                    || words.contains(&"force-tlsv13");
                self.report.note(line, TLS_WORDS);
            }
            "ssl-server-verify" if matches!(value, "none" | "required") => {
                self.verifies_servers = value == "required";
            }
            // `setenv` is known before the lines are cut.
            "stats" | "setenv" | "presetenv" => {}
            keyword if keyword.starts_with("tune.") => {
                let why = "Ballast sizes its buffers by itself";
                self.report.note(line, why);
            }
            keyword => self.keyword(line, Place::Global, keyword, ""),
        }
        Ok(())
    }

    /// `stats socket PATH …`
    fn socket(&mut self, line: &Line) -> Result<(), String> {
        let path = line.word(2);
        if !path.starts_with('/') {
            return Err(format!(
                "{path:?} has no counterpart: the runtime socket is a unix socket; use --socket PATH"
            ));
        }
        self.flag(line, format!("--socket {path}"));
        let restricts = ["mode", "uid", "gid", "user", "group", "level"];
        let mut words = line.from(3).iter();
        if words.any(|word| restricts.contains(&word.as_str())) {
            self.report.note(line, "the socket has mode 0600: Ballast's own user and root may open it, and do everything at it");
        }
        Ok(())
    }

    fn flag(&mut self, line: &Line, flag: String) {
        self.report
            .note(line, format!("a flag of `ballast run`: {flag}"));
        self.report.flag(flag);
    }
}
