//! One line of a `defaults`, `frontend`, `listen` or `backend` section.

use ballast_core::table::{Algorithm, Reuse};

use super::condition::{Rule, split};
use super::importer::Importer;
use super::keywords::Place;
use super::pages::{errorfile, http_error};
use super::proxy::{Proxy, Stick};
use super::rules::{replace_request, tcp_request};
use super::server::Settings;
use super::units::{fitting, time};
use super::words::Line;

impl Importer<'_> {
    /// Reads a line into the section. An error is why it is left out.
    pub(super) fn line(&mut self, line: &Line, proxy: &mut Proxy) -> Result<(), String> {
        let value = line.word(1);
        match line.word(0) {
            "mode" => match value {
                "http" => {
                    proxy.is_http = true;
                    Ok(())
                }
                "tcp" => {
                    proxy.is_http = false;
                    Ok(())
                }
                other => Err(format!(
                    "mode {other:?} has no counterpart; expected tcp or http"
                )),
            },
            "bind" => self.bind(line).map(|bind| proxy.binds.push(bind)),
            "server" => {
                let server = self.server(line, &proxy.default_server)?;
                proxy.servers.push(server);
                Ok(())
            }
            "default-server" => {
                let before: Settings = proxy.default_server.clone();
                proxy.default_server = self.settings(line, line.from(1), before);
                Ok(())
            }
            "acl" => {
                proxy.acls.push(line.clone());
                Ok(())
            }
            "use_backend" => {
                let (words, condition) = split(line.from(1));
                let [name] = words else {
                    return Err(
                        "does not name one backend; expected `use_backend NAME if CONDITION`"
                            .into(),
                    );
                };
                if name.contains('%') {
                    let rules = self.mapped(line, name, condition)?;
                    proxy.use_backends.extend(rules);
                    return Ok(());
                }
                proxy.use_backends.push(Rule {
                    line: line.clone(),
                    action: Some(name.clone()),
                    condition: condition.to_vec(),
                    entry: Vec::new(),
                });
                Ok(())
            }
            "default_backend" => {
                proxy.default_backend = Some((line.clone(), value.into()));
                Ok(())
            }
            "balance" => self.balance(line, proxy),
            "cookie" => self.cookie(line, proxy),
            "stick-table" => self.stick_table(line, proxy),
            "stick" => stick(line, proxy),
            "timeout" if line.words.len() > 3 => Err(format!(
                "{:?} stands behind the time; write it as one word, such as 10s",
                line.word(3)
            )),
            "timeout" => self.timeout(line, value, line.word(2), proxy),
            // Their names before version 1.4.
            "clitimeout" => self.timeout(line, "client", value, proxy),
            "contimeout" => self.timeout(line, "connect", value, proxy),
            "srvtimeout" => self.timeout(line, "server", value, proxy),
            "option" => self.option(line, line.from(1), true, proxy),
            "no" | "default" if value == "option" => self.option(line, line.from(2), false, proxy),
            "no" if value == "log" => {
                proxy.logs = false;
                Ok(())
            }
            "log" if value == "global" => {
                proxy.logs = true;
                Ok(())
            }
            "log" => {
                proxy.logs = true;
                self.log(line)
            }
            "maxconn" => {
                let most: u32 = value.parse().map_err(|_| "has no number; write one")?;
                proxy.max_connections = Some(most).filter(|most| *most > 0);
                Ok(())
            }
            "rate-limit" if value == "sessions" => {
                let most: u32 = line
                    .word(2)
                    .parse()
                    .map_err(|_| "has no number; write one")?;
                proxy.max_rate = Some(most).filter(|most| *most > 0);
                Ok(())
            }
            "retries" => {
                proxy.retries = Some(
                    value
                        .parse()
                        .map_err(|_| "has no number up to 65535; write one")?,
                );
                Ok(())
            }
            "source" => {
                if line.words.len() > 2 {
                    return Err("a source with `usesrc` or `interface` has no counterpart; send-proxy tells endpoints the client's address".into());
                }
                proxy.source =
                    Some(value.into()).filter(|source| source != "0.0.0.0" && source != "*");
                Ok(())
            }
            "http-reuse" => {
                proxy.reuse = match value {
                    "never" => Reuse::Never,
                    "safe" => Reuse::Safe,
                    "aggressive" | "always" => Reuse::Always,
                    _ => {
                        return Err(format!(
                            "{value:?} is not known; expected never, safe, aggressive or always"
                        ));
                    }
                };
                Ok(())
            }
            "errorfile" | "http-error" => {
                let (status, page) = match line.word(0) {
                    "errorfile" => errorfile(line)?,
                    _ => http_error(line)?,
                };
                proxy.errors.insert(status, (line.clone(), page));
                Ok(())
            }
            "errorfiles" => {
                proxy.errorfiles.push(line.clone());
                Ok(())
            }
            "monitor-uri" => {
                proxy.monitor = Some(line.clone());
                Ok(())
            }
            "server-template" => {
                let servers = self.server_template(line, &proxy.default_server)?;
                proxy.servers.extend(servers);
                Ok(())
            }
            "description" => {
                proxy.description = line.from(1).join(" ").parse().ok();
                Ok(())
            }
            "disabled" => {
                proxy.is_disabled = true;
                Ok(())
            }
            "stats" => self.stats(line, proxy),
            "http-check" => self.http_check(line, &mut proxy.check),
            "tcp-check" => self.tcp_check(line, &mut proxy.check),
            "tcp-request" => tcp_request(line, proxy, &mut self.report),
            "http-request" => self.http_request(line, line.from(1), proxy),
            "block" => {
                let mut words = vec!["deny".to_owned()];
                words.extend_from_slice(line.from(1));
                self.http_request(line, &words, proxy)
            }
            "http-response" | "http-after-response" => self.http_response(line, proxy),
            "redirect" => self.redirect(line, proxy),
            "reqadd" => self.add_field(line, false, proxy),
            "rspadd" => self.add_field(line, true, proxy),
            "reqdel" | "reqidel" => self.delete_field(line, false, proxy),
            "rspdel" | "rspidel" => self.delete_field(line, true, proxy),
            "reqrep" | "reqirep" => replace_request(line, proxy),
            keyword => {
                self.keyword(line, Place::Proxy, keyword, "");
                Ok(())
            }
        }
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
        let mut inserted = false;
        let mut words = line.from(2).iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "insert" => inserted = true,
                "indirect" | "nocache" | "preserve" | "postonly" | "dynamic" => {}
                "httponly" | "secure" => self.report.left_out(line, format!("`{word}`: the cookie of Ballast has no such attribute; it identifies an endpoint and is no secret")),
                "domain" | "maxidle" | "maxlife" | "attr" => {
                    words.next();
                    self.report.left_out(line, format!("`{word}`: the cookie of Ballast ends with the browser's session, for this host"));
                }
                "rewrite" | "prefix" => return Err(format!("`cookie {word}` has no counterpart; Ballast inserts a cookie of its own: `cookie NAME insert`")),
                other => self.unknown_word(line, Place::Cookie, other),
            }
        }
        if !inserted {
            return Err("without `insert` the application sets the cookie, which Ballast does not read; write `cookie NAME insert`".into());
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
        let mut words = line.from(1).iter().map(String::as_str);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            match word {
                "type" => {
                    let kind = value();
                    if !matches!(kind, "ip" | "ipv6") {
                        return Err(format!(
                            "a table of type {kind} has no counterpart; affinity is by client-ip, or by cookie"
                        ));
                    }
                }
                "size" => {
                    let size = value();
                    super::units::number(size).ok_or_else(|| {
                        format!("size {size:?} is no number; write one such as 100k")
                    })?;
                }
                "expire" => {
                    let text = value();
                    let expire = time(text)
                        .ok_or_else(|| format!("{text:?} is no time; expected one such as 30m"))?;
                    stick.expire = Some(fitting(expire));
                }
                "nopurge" => {}
                "peers" => {
                    value();
                    self.report.note(
                        line,
                        "no peers are needed: a client's first choice is the same on all nodes",
                    );
                }
                "store" => {
                    for counter in value().split(',') {
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
        stick.on_client = proxy.stick.on_client;
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
        let time = time(text)
            .ok_or_else(|| format!("{text:?} is no time; expected one such as 5s or 500ms"))?;
        let fits = fitting(time);
        if fits.as_micros() != time.as_micros() && !time.is_zero() {
            self.report.note(
                line,
                "a table has times from 1ms to 24d, in whole milliseconds; the nearest is taken",
            );
        }
        let or_never = (!time.is_zero()).then_some(fits);
        let timeouts = &mut proxy.timeouts;
        match name {
            "client" => timeouts.client = Some(or_never),
            "server" => timeouts.server = Some(or_never),
            "tunnel" => timeouts.tunnel = Some(or_never),
            "tarpit" | "client-hs" | "client-fin" | "http-request" | "http-keep-alive"
            | "connect" | "queue" | "server-fin" | "check" => {
                let Some(time) = or_never else {
                    return Err("no time means for ever, which Ballast waits for no client and no endpoint; its default is taken".into());
                };
                let to = match name {
                    "client-hs" => &mut timeouts.client_hs,
                    "client-fin" => &mut timeouts.client_fin,
                    "http-request" => &mut timeouts.request,
                    "http-keep-alive" => &mut timeouts.keep_alive,
                    "connect" => &mut timeouts.connect,
                    "queue" => &mut timeouts.queue,
                    "server-fin" => &mut timeouts.server_fin,
                    "check" => &mut timeouts.check,
                    // Nothing is held in a tarpit.
                    _ => return Ok(()),
                };
                *to = Some(time);
            }
            other => self.unknown_word(line, Place::Timeout, other),
        }
        Ok(())
    }
}

/// What is said of lines that count clients, and do nothing else.
pub(super) const COUNTS: &str = "it counts clients, and changes nothing by itself; the lines that look at the counter say what becomes of them";

fn stick(line: &Line, proxy: &mut Proxy) -> Result<(), String> {
    match (line.word(1), line.word(2), line.word(3)) {
        ("on" | "match" | "store-request", "src", "") => {
            proxy.stick.on_client = true;
            Ok(())
        }
        ("on" | "match" | "store-request", "src", _) => {
            Err("a table of another section, or a condition, has no counterpart; write the stick-table in this section".into())
        }
        (_, sample, _) => Err(format!("`{sample}` has no counterpart; affinity is by the client's address (src), or by cookie")),
    }
}
