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
            "log" if value == "global" => Ok(()),
            "log" => self.log(line),
            "crt-base" => {
                self.crt_base = Some(value.into());
                Ok(())
            }
            "ca-base" => {
                self.ca_base = Some(value.into());
                Ok(())
            }
            "maxconn" => {
                let most = number().ok_or("has no number; write one")?;
                self.flag(line, format!("--max-connections {most}"));
                Ok(())
            }
            "nbthread" => {
                let threads = number().ok_or("has no number; write one")?;
                self.flag(line, format!("--threads {}", threads.min(256)));
                Ok(())
            }
            "hard-stop-after" => {
                let time = time(value).ok_or("has no time; write one such as 30s")?;
                let seconds = fitting(time).as_secs().max(1);
                self.flag(line, format!("--drain-timeout {seconds}s"));
                Ok(())
            }
            "stats" if value == "socket" => match line.word(2) {
                path if path.starts_with('/') => {
                    self.flag(line, format!("--socket {path}"));
                    let restricts = ["mode", "uid", "gid", "user", "group", "level"];
                    if line
                        .from(3)
                        .iter()
                        .any(|word| restricts.contains(&word.as_str()))
                    {
                        self.report.note(line, "the socket has mode 0600: Ballast's own user and root may open it, and do everything at it");
                    }
                    Ok(())
                }
                other => Err(format!(
                    "{other:?} has no counterpart: the runtime socket is a unix socket; use --socket PATH"
                )),
            },
            "stats" => Ok(()),
            "ssl-default-bind-options" => {
                let words: Vec<&str> = line.from(1).iter().map(String::as_str).collect();
                self.only_v13 = words
                    .windows(2)
                    .any(|pair| pair == ["ssl-min-ver", "TLSv1.3"])
                    || words
                        .iter()
                        .any(|word| matches!(*word, "no-tlsv12" | "force-tlsv13"));
                self.report.note(line, TLS_WORDS);
                Ok(())
            }
            // Known before the lines are cut.
            "setenv" | "presetenv" => Ok(()),
            keyword if keyword.starts_with("tune.") => {
                self.report
                    .note(line, "Ballast sizes its buffers by itself");
                Ok(())
            }
            keyword => {
                self.keyword(line, Place::Global, keyword, "");
                Ok(())
            }
        }
    }

    fn flag(&mut self, line: &Line, flag: String) {
        self.report
            .note(line, format!("a flag of `ballast run`: {flag}"));
        self.report.flag(flag);
    }
}
