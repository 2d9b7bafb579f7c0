//! One line of a `defaults`, `frontend`, `listen` or `backend` section.

use ballast_core::table::{Algorithm, Reuse};

use super::condition::{Rule, split};
use super::importer::Importer;
use super::keywords::{Place, is_known, with_values};
use super::pages::{errorfile, http_error};
use super::proxy::{Does, Of, Proxy, Stick};
use super::rules::{replace_request, tcp_request};
use super::units::{fitting, some_time, time};
use super::words::Line;

impl Importer<'_> {
    /// Reads a line into the section. An error is why it is left out.
    pub(super) fn line(&mut self, line: &Line, proxy: &mut Proxy) -> Result<(), String> {
        let value = line.word(1);
        match line.word(0) {
            "mode" => proxy.is_http = is_http(value)?,
            "bind" => proxy.binds.push(self.bind(line)?),
            "server" => {
                let server = self.server(line, &proxy.default_server)?;
                proxy.servers.push(server);
            }
            "server-template" => {
                let servers = self.server_template(line, &proxy.default_server)?;
                proxy.servers.extend(servers);
            }
            "default-server" => {
                let before = proxy.default_server.clone();
                proxy.default_server = self.settings(line, line.from(1), before);
            }
            "acl" => proxy.acls.push(line.clone()),
            "use_backend" => self.use_backend_line(line, proxy)?,
            "default_backend" => proxy.default_backend = Some((line.clone(), value.into())),
            "balance" => self.balance(line, proxy)?,
            "hash-type" => {
                proxy.hashes_consistently = value == "consistent";
                self.keyword(line, Place::Proxy, "hash-type", "");
            }
            "hash-balance-factor" => {
                let bounds = some_number(value)?.is_some();
                proxy.hash_balance = bounds.then(|| line.clone());
            }
            "cookie" => self.cookie(line, proxy)?,
            "stick-table" => self.stick_table(line, proxy)?,
            "stick" => stick(line, proxy)?,
            "timeout" if line.words.len() > 3 => {
                return Err(format!(
                    "{:?} stands behind the time; write it as one word, such as 10s",
                    line.word(3)
                ));
            }
            "timeout" => self.timeout(line, value, line.word(2), proxy)?,
            // Their names before version 1.4.
            "clitimeout" => self.timeout(line, "client", value, proxy)?,
            "contimeout" => self.timeout(line, "connect", value, proxy)?,
            "srvtimeout" => self.timeout(line, "server", value, proxy)?,
            "option" => self.option(line, line.from(1), true, proxy)?,
            "no" | "default" if value == "option" => {
                self.option(line, line.from(2), false, proxy)?;
            }
            "no" if value == "log" => proxy.logs = false,
            "log" => {
                proxy.logs = true;
                if value != "global" {
                    self.log(line)?;
                }
            }
            "maxconn" => proxy.max_connections = some_number(value)?,
            "rate-limit" if value == "sessions" => proxy.max_rate = some_number(line.word(2))?,
            "retries" => {
                let retries = value.parse().ok();
                let retries = retries.ok_or("has no number up to 65535; write one")?;
                proxy.retries = Some((line.clone(), retries));
            }
            "source" if line.words.len() > 2 => {
                return Err("a source with `usesrc` or `interface` has no counterpart; send-proxy tells endpoints the client's address".into());
            }
            "source" => {
                let is_any = matches!(value, "0.0.0.0" | "*");
                proxy.source = (!is_any).then(|| line.clone());
            }
            "http-reuse" => proxy.reuse = reuse(value)?,
            "description" => proxy.description = line.from(1).join(" ").parse().ok(),
            "disabled" => proxy.is_disabled = true,
            "enabled" => proxy.is_disabled = false,
            "stats" => self.stats(line, proxy)?,
            _ => return self.line_of_http(line, proxy),
        }
        Ok(())
    }

    /// A line about checks, requests, answers or pages, or one that no field of the table stands for.
    fn line_of_http(&mut self, line: &Line, proxy: &mut Proxy) -> Result<(), String> {
        match line.word(0) {
            "errorfile" | "http-error" => {
                let page = match line.word(0) {
                    "errorfile" => errorfile(line)?,
                    _ => http_error(line)?,
                };
                proxy.errors.insert(page.status, page);
            }
            "errorfiles" => proxy.errorfiles.push(line.clone()),
            "monitor-uri" => proxy.monitor = Some(line.clone()),
            "http-check" => self.http_check(line, &mut proxy.check)?,
            "tcp-check" => self.tcp_check(line, &mut proxy.check)?,
            "tcp-request" => tcp_request(line, proxy, &mut self.report)?,
            "http-request" => self.http_request(line, line.from(1), proxy)?,
            "block" => {
                let mut words = vec!["deny".to_owned()];
                words.extend_from_slice(line.from(1));
                self.http_request(line, &words, proxy)?;
            }
            "http-response" | "http-after-response" => self.http_response(line, proxy)?,
            "redirect" => self.redirect(line, proxy)?,
            "reqadd" => self.add_field(line, Of::Requests, proxy)?,
            "rspadd" => self.add_field(line, Of::Responses, proxy)?,
            "reqdel" | "reqidel" => self.delete_field(line, Of::Requests, proxy)?,
            "rspdel" | "rspidel" => self.delete_field(line, Of::Responses, proxy)?,
            "reqrep" | "reqirep" => replace_request(line, proxy)?,
            keyword => self.keyword(line, Place::Proxy, keyword, ""),
        }
        Ok(())
    }

    fn use_backend_line(&mut self, line: &Line, proxy: &mut Proxy) -> Result<(), String> {
        let (words, condition) = split(line.from(1));
        let [name] = *words else {
            return Err(
                "does not name one backend; expected `use_backend NAME if CONDITION`".into(),
            );
        };
        if name.contains('%') {
            let rules = self.mapped(line, name, condition)?;
            proxy.rules.extend(rules);
            return Ok(());
        }
        let does = Does::Backend(name.into());
        proxy.rules.push(Rule::new(line, does, condition));
        Ok(())
    }

    fn balance(&mut self, line: &Line, proxy: &mut Proxy) -> Result<(), String> {
        let name = line.word(1);
        proxy.algorithm = match name.split('(').next().unwrap_or_default() {
            // Without a word haproxy takes its default.
            "" | "roundrobin" => Algorithm::RoundRobin,
            "static-rr" => Algorithm::RoundRobin,
            "leastconn" => Algorithm::LeastConnections,
            "first" => Algorithm::First,
            "source" => Algorithm::SourceHash,
            "random" => Algorithm::Random,
            known @ ("uri" | "url_param" | "hdr" | "rdp-cookie" | "hash" | "log-hash"
            | "sticky") => {
                proxy.algorithm = Algorithm::RoundRobin;
                return Err(format!(
                    "`balance {known}` has no counterpart: Ballast hashes the client's address only (source); round-robin is taken"
                ));
            }
            other => {
                proxy.algorithm = Algorithm::RoundRobin;
                self.unknown_word(line, Place::Balance, other);
                return Ok(());
            }
        };
        if proxy.algorithm == Algorithm::SourceHash {
            self.report.note(line, "Ballast hashes otherwise than haproxy: a client may go to another endpoint once, with the move");
        }
        Ok(())
    }

    fn cookie(&mut self, line: &Line, proxy: &mut Proxy) -> Result<(), String> {
        let (mut inserted, mut indirect) = (false, false);
        for (word, _) in with_values(line.from(2), Place::Cookie) {
            match word {
                "insert" => inserted = true,
                "indirect" => indirect = true,
                "nocache" | "preserve" | "postonly" | "dynamic" | "httponly" => {}
                "secure" => self.report.differs(line, "`secure`: the cookie of Ballast has this attribute where TLS ends at its frontend, and not otherwise; it identifies an endpoint and is no secret"),
                "domain" | "maxidle" | "maxlife" | "attr" => self.report.left_out(line, format!("`{word}`: the cookie of Ballast ends with the browser's session, for this host")),
                "rewrite" | "prefix" => return Err(format!("`cookie {word}` has no counterpart; Ballast inserts a cookie of its own: `cookie NAME insert`")),
                other => self.unknown_word(line, Place::Cookie, other),
            }
        }
        if !inserted {
            return Err("without `insert` the application sets the cookie, which Ballast does not read; write `cookie NAME insert`".into());
        }
        if !indirect {
            let why = "endpoints do not see the cookie, as with `indirect`";
            self.report.differs(line, why);
        }
        proxy.cookie = Some((line.clone(), line.word(1).into()));
        self.report.note(line, "the values of Ballast's cookie are its own, the same on all nodes: clients get a new one once, with the move");
        Ok(())
    }

    fn stick_table(&mut self, line: &Line, proxy: &mut Proxy) -> Result<(), String> {
        let mut stick = Stick {
            table: Some(line.clone()),
            ..Stick::default()
        };
        for (word, value) in with_values(line.from(1), Place::StickTable) {
            match word {
                "type" if !matches!(value, "ip" | "ipv6") => {
                    return Err(format!(
                        "a table of type {value} has no counterpart; affinity is by client-ip, or by cookie"
                    ));
                }
                "type" | "size" | "nopurge" => {}
                "expire" => stick.expire = Some(fitting(some_time(value, "30m")?)),
                "peers" => {
                    stick.has_peers = true;
                    let why =
                        "no peers are needed: a client's first choice is the same on all nodes";
                    self.report.note(line, why);
                }
                "store" => {
                    for counter in value.split(',') {
                        match counter.strip_prefix("conn_rate(") {
                            Some(period) => stick.rate_period = time(period.trim_end_matches(')')),
                            None => stick.counts_connections |= counter == "conn_cur",
                        }
                    }
                    self.report.note(line, COUNTS);
                }
                other => self.unknown_word(line, Place::StickTable, other),
            }
        }
        stick.matches = proxy.stick.matches.take();
        stick.stores = proxy.stick.stores.take();
        proxy.stick = stick;
        Ok(())
    }

    fn timeout(
        &mut self,
        line: &Line,
        name: &str,
        text: &str,
        proxy: &mut Proxy,
    ) -> Result<(), String> {
        let time = some_time(text, "5s or 500ms")?;
        let fits = fitting(time);
        if fits.as_micros() != time.as_micros() && !time.is_zero() {
            let why =
                "a table has times from 1ms to 24d, in whole milliseconds; the nearest is taken";
            self.report.note(line, why);
        }
        let or_never = (!time.is_zero()).then_some(fits);
        match (name, or_never) {
            _ if !is_known(Place::Timeout, name) => self.unknown_word(line, Place::Timeout, name),
            ("client" | "server" | "tunnel", _) | (_, Some(_)) => {
                proxy.timeouts.0.insert(name.into(), or_never);
            }
            _ => return Err("no time means for ever, which Ballast waits for no client and no endpoint; its default is taken".into()),
        }
        Ok(())
    }
}

/// What is said of lines that count clients, and do nothing else.
pub(super) const COUNTS: &str = "it counts clients, and changes nothing by itself; the lines that look at the counter say what becomes of them";

fn stick(line: &Line, proxy: &mut Proxy) -> Result<(), String> {
    match (line.word(1), line.word(2), line.word(3)) {
        ("on" | "match" | "store-request", "src", "") => {
            let kind = line.word(1);
            if kind != "store-request" {
                proxy.stick.matches = Some(line.clone());
            }
            if kind != "match" {
                proxy.stick.stores = Some(line.clone());
            }
            Ok(())
        }
        ("on" | "match" | "store-request", "src", _) => {
            Err("a table of another section, or a condition, has no counterpart; write the stick-table in this section".into())
        }
        (_, sample, _) => Err(format!("`{sample}` has no counterpart; affinity is by the client's address (src), or by cookie")),
    }
}

fn is_http(mode: &str) -> Result<bool, String> {
    match mode {
        "http" => Ok(true),
        "tcp" => Ok(false),
        other => Err(format!(
            "mode {other:?} has no counterpart; expected tcp or http"
        )),
    }
}

fn reuse(word: &str) -> Result<Reuse, String> {
    match word {
        "never" => Ok(Reuse::Never),
        "safe" => Ok(Reuse::Safe),
        "aggressive" | "always" => Ok(Reuse::Always),
        _ => Err(format!(
            "{word:?} is not known; expected never, safe, aggressive or always"
        )),
    }
}

/// A limit, of which 0 means none.
fn some_number(text: &str) -> Result<Option<u32>, String> {
    let most = text.parse().map_err(|_| "has no number; write one")?;
    Ok(Some(most).filter(|most| *most > 0))
}
