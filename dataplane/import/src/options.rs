//! `option` and `stats` lines of a section.

use super::check::{Kind, Tcp};
use super::importer::Importer;
use super::keywords::{Place, is_known, is_other_check, with_values};
use super::proxy::Proxy;
use super::words::Line;

impl Importer<'_> {
    /// Reads `option …`, or `no option …` where it is not `on`.
    pub(super) fn option(
        &mut self,
        line: &Line,
        words: &[String],
        on: bool,
        proxy: &mut Proxy,
    ) -> Result<(), String> {
        let name = words.first().map(String::as_str).unwrap_or_default();
        let words = words.get(1..).unwrap_or_default();
        let check = &mut proxy.check;
        match name {
            "forwardfor" => self.option_forwardfor(line, words, on, proxy)?,
            "httpchk" if on => self.option_httpchk(line, check),
            "tcp-check" if on => check.by_tcp(),
            "httpchk" | "tcp-check" => check.kind = Kind::Connects,
            "redis-check" if on => {
                check.kind = Kind::fixed(b"*1\r\n$4\r\nPING\r\n", b"+PONG");
            }
            "smtpchk" if on => {
                check.kind = Kind::fixed(b"", b"220");
                let why = "the greeting 220 is awaited; no HELO is sent";
                self.report.note(line, why);
            }
            "ssl-hello-chk" if on => {
                check.kind = Kind::Fixed(Tcp::default());
                let why = "the check connects; that a TLS greeting is answered is not looked at";
                self.report.differs(line, why);
            }
            _ if on && is_other_check(name) => {
                check.kind = Kind::Fixed(Tcp::default());
                self.keyword(line, Place::Option, name, "");
            }
            "http-server-close" => proxy.closes = on,
            "http-keep-alive" if on => proxy.closes = false,
            "httpclose" | "forceclose" if on => {
                proxy.closes = true;
                return Err("a connection of a client stays open for its next request, for timeouts.keep-alive; those of endpoints are closed behind each request, as with http-server-close (http.reuse: never)".into());
            }
            "httpclose" | "forceclose" => proxy.closes = false,
            "http-restrict-req-hdr-names"
                if on && matches!(words.first().map(String::as_str), Some("delete" | "reject")) =>
            {
                self.report.left_out(line, "fields whose names have other characters than letters, digits and `-`, such as X_A, reach the endpoints, and are no reason to refuse a request");
            }
            "allbackups" => proxy.all_backups = on,
            "redispatch" => proxy.redispatches = on,
            _ if !on && is_known(Place::Option, name) => {}
            _ => self.keyword(line, Place::Option, name, ""),
        }
        Ok(())
    }

    fn option_forwardfor(
        &mut self,
        line: &Line,
        words: &[String],
        on: bool,
        proxy: &mut Proxy,
    ) -> Result<(), String> {
        proxy.forwarded_for = on.then(|| line.clone());
        for (word, value) in with_values(words, Place::ForwardFor) {
            match word {
                "except" => {
                    let why = format!("the client's address is added for {value} too");
                    self.report.differs(line, why);
                }
                "header" => {
                    let lost = Self::withheld(line, value, proxy);
                    return Err(format!(
                        "the header {value} has no counterpart, {lost}; Ballast writes X-Forwarded-For"
                    ));
                }
                "if-none" => {
                    let why = "the client's address is added behind those that are there";
                    self.report.differs(line, why);
                }
                other => self.unknown_word(line, Place::ForwardFor, other),
            }
        }
        Ok(())
    }

    /// Reads `stats …`.
    pub(super) fn stats(&mut self, line: &Line, proxy: &mut Proxy) -> Result<(), String> {
        match line.word(1) {
            "uri" if line.word(2) != "/" => {
                proxy.stats_uri = Some(line.word(2).into());
                let why = format!(
                    "the page is at / of its address, and not at {:?}",
                    line.word(2)
                );
                self.report.differs(line, why);
            }
            "uri" => proxy.stats_uri = Some("/".into()),
            "enable" => {}
            "auth" => {
                proxy.stats_users = Some(line.clone());
                proxy.stats = Some(line.clone());
                return Err("passwords do not stand in a table; write `user:password` into a file and name it by --stats-auth-file. Until then only this host sees the page".into());
            }
            "admin" => self.report.left_out(
                line,
                "the page changes things only for an admin of --stats-auth-file; name one",
            ),
            "scope" | "http-request" => {
                proxy.stats_users = Some(line.clone());
                self.report.left_out(line, "stats.source-ranges and --stats-auth-file say who may see the page; write one of them. Until then only this host sees the page");
            }
            other => {
                self.keyword(line, Place::Stats, other, "");
                return Ok(());
            }
        }
        proxy.stats = Some(line.clone());
        Ok(())
    }
}
