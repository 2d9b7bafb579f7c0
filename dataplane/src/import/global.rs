//! The `global` section: what is a flag of `ballast run`, and what Ballast needs no word for.

use super::importer::Importer;
use super::keywords::{Keyword, of_global};
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
                    Ok(())
                }
                other => Err(format!(
                    "{other:?} has no counterpart: the runtime socket is a unix socket; use --socket PATH"
                )),
            },
            "stats" => Ok(()),
            // Known before the lines are cut.
            "setenv" | "presetenv" => Ok(()),
            keyword => match of_global(keyword) {
                Some(Keyword::Needless) => Ok(()),
                Some(Keyword::Noted(why)) => {
                    self.report.note(line, why);
                    Ok(())
                }
                Some(Keyword::Missing) => Err(format!("`{keyword}` has no counterpart; remove it")),
                None => {
                    self.unknown_word(line, keyword, super::keywords::GLOBAL_WORDS);
                    Ok(())
                }
            },
        }
    }

    fn flag(&mut self, line: &Line, flag: String) {
        self.report
            .note(line, format!("a flag of `ballast run`: {flag}"));
        self.report.flag(flag);
    }
}
