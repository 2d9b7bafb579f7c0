//! A real browser: Debian's chromium, driven by chromedriver over its HTTP interface (WebDriver).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use support::skip::skip;

/// A browser with one window. It ends when this is dropped.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: TempDir,
    /// One at a time: they are large.
    _turn: MutexGuard<'static, ()>,
}

impl Browser {
    /// `None`, and says so, where there is no browser; that is a failure where everything must be tested.
    pub(crate) fn open() -> Option<Self> {
        let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = Command::new("chromedriver")
            // Of its own choice it takes one that others may use, and then it ends at once.
            .arg(format!("--port={}", support::free_port()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut driver) = driver else {
            skip("there is no chromedriver (apt-get install chromium chromium-driver)");
            return None;
        };
        let port = port(&mut driver);
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Self {
            driver,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            session: String::new(),
            _profile: profile,
            _turn: turn,
        };
        let folder = format!("--user-data-dir={}", browser._profile.path().display());
        let mut args = ARGUMENTS.to_vec();
        args.push(&folder);
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let answer = browser.send("POST", "/session", &wanted);
        browser.session = answer["sessionId"].as_str().unwrap().to_owned();
        Some(browser)
    }

    pub(crate) fn go(&self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    pub(crate) fn back(&self) {
        self.post("/back", &json!({}));
    }

    pub(crate) fn reload(&self) {
        self.post("/refresh", &json!({}));
    }

    /// What an expression of the page's script is worth.
    pub(crate) fn value(&self, expression: &str) -> Value {
        let script = format!("return {expression};");
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    pub(crate) fn text(&self, expression: &str) -> String {
        match self.value(expression) {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&self, expression: &str) {
        let script = format!("Boolean({expression})");
        let in_time = support::comes_within(PATIENCE, || self.value(&script) == true);
        assert!(
            in_time,
            "it never came: {expression}\n{}\nconsole: {:?}",
            self.text("document.getElementById('main').innerText"),
            self.console()
        );
    }

    /// Clicks as somebody with a mouse does: what cannot be seen cannot be clicked.
    pub(crate) fn click(&self, selector: &str) {
        self.act(selector, "click", &json!({}));
    }

    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        self.act(selector, "value", &json!({"text": text}));
    }

    /// Where the page put another element in its place just now, that one is meant.
    fn act(&self, selector: &str, what: &str, body: &Value) {
        loop {
            let element = self.find(selector);
            let path = format!("/session/{}/element/{element}/{what}", self.session);
            let answer = self.try_send("POST", &path, body).unwrap();
            let error = &answer["value"]["error"];
            if error == "stale element reference" {
                continue;
            }
            assert!(error.is_null(), "{what} {selector}: {answer}");
            return;
        }
    }

    /// A command of the browser's own protocol.
    pub(crate) fn command(&self, name: &str, parameters: &Value) {
        let command = json!({"cmd": name, "params": parameters});
        self.post("/goog/cdp/execute", &command);
    }

    /// What the browser complained of since it was asked last.
    pub(crate) fn console(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({"type": "browser"}));
        let entries = entries.as_array().unwrap().iter();
        entries
            .map(|entry| format!("{}: {}", entry["level"], entry["message"]))
            .collect()
    }

    fn find(&self, selector: &str) -> String {
        let using = json!({"using": "css selector", "value": selector});
        let found = support::found_within(PATIENCE, || {
            let found = self.post("/elements", &using);
            let first = found.as_array()?.first()?.as_object()?.values().next()?;
            Some(first.as_str().unwrap().to_owned())
        });
        found.unwrap_or_else(|| panic!("there is no {selector}"))
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.send("POST", &format!("/session/{}{path}", self.session), body)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.try_send(method, path, body).unwrap();
        let value = &answer["value"];
        assert!(value.get("error").is_none(), "{path} {body}: {value}");
        value.clone()
    }

    fn try_send(&self, method: &str, path: &str, body: &Value) -> std::io::Result<Value> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let body = body.to_string();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer)?;
        Ok(serde_json::from_slice(&answer)?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser; then there is only its driver.
        let session = format!("/session/{}", self.session);
        self.try_send("DELETE", &session, &json!({})).ok();
        self.driver.kill().ok();
        self.driver.wait().ok();
    }
}

/// Where the driver says that it listens.
fn port(driver: &mut Child) -> u16 {
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let line = lines.find(|line| {
        let line = line.as_ref();
        line.is_ok_and(|line| line.contains("started successfully on port"))
    });
    let line = line.expect("the driver does not start").unwrap();
    // Whatever else it says must not fill the pipe.
    thread::spawn(move || lines.for_each(drop));
    let digits = line.rsplit(' ').next().unwrap();
    digits.trim_end_matches('.').parse().unwrap()
}

static ONE: Mutex<()> = Mutex::new(());

const ARGUMENTS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1440,1000",
];
/// For what must come: long, because machines may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
