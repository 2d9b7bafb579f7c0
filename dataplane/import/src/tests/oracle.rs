//! A machine of the tests' making, and the properties that hold for any text. The tests of this crate and the fuzz target `import`
//! include this file.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{
    CompileContext, Format, HostAddresses, Imported, Moment, Plan, Rng, Source, World, compile,
    parse, translate,
};

/// A machine of the tests' making.
pub(super) struct Made {
    variables: HashMap<&'static str, &'static str>,
}

impl Made {
    pub(super) fn new() -> Self {
        let variables = [
            ("PG_HOST", "10.0.1.1"),
            ("PG_HOST_2", "10.0.1.2"),
            ("SITE", "berlin"),
        ];
        Self {
            variables: variables.into(),
        }
    }
}

impl World for Made {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).map(|value| (*value).to_owned())
    }

    fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let texts: &[&str] = match name {
            "db.example.com" => &["10.9.0.1", "2001:db8::9", "10.9.0.2"],
            "localhost" => &["127.0.0.1"],
            "bootstrap.ocp.example.com" => &["192.0.2.10"],
            "master-0.ocp.example.com" => &["192.0.2.11"],
            "master-1.ocp.example.com" => &["192.0.2.12"],
            "worker-0.ocp.example.com" => &["192.0.2.21"],
            "worker-1.ocp.example.com" => &["192.0.2.22"],
            _ => return Err("there is no such name".into()),
        };
        Ok(texts
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect())
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        match path {
            "lists/office.lst" => {
                Ok(b"# the office\n192.0.2.0/24\n\n10.7.0.0/255.255.0.0\n".into())
            }
            "/etc/haproxy/hosts.map" => Ok(
                b"# host backend\nwww.example.com  app\nstatic.example.com static\nold.example.com nobody\n"
                    .into(),
            ),
            "/etc/haproxy/crt-list" => Ok(
                b"/etc/ssl/a.pem\n/etc/ssl/b.pem [verify required ca-file /etc/ssl/ca.pem] b.example.com\n"
                    .into(),
            ),
            "/etc/ssl/split.crt" | "/etc/ssl/split.crt.ocsp" | "/etc/ssl/split.key" => {
                Ok(b"-----BEGIN CERTIFICATE-----".into())
            }
            "/etc/ssl/split.crt.key" | "/etc/ssl/whole.pem.key" | "/etc/ssl/whole.pem" => {
                Ok(b"-----BEGIN PRIVATE KEY-----".into())
            }
            "/etc/ssl/common-name.pem" => Ok(include_bytes!("common-name.pem").into()),
            "/etc/haproxy/one.map" => Ok(b"a.test one\n".into()),
            "/etc/haproxy/nets.map" => Ok(b"10.0.0.0/8 m\n".into()),
            "/etc/haproxy/paths.map" => Ok(b"/api api\n/api/v2 api-v2\n".into()),
            "/etc/haproxy/errors/retry.http" => {
                Ok(b"HTTP/1.1 503 Later\r\nRetry-After: 5\r\n\r\nlater".into())
            }
            _ if path.starts_with("/etc/haproxy/errors/") => {
                let page =
                    format!("HTTP/1.0 000 x\r\nContent-Type: text/html\r\n\r\n<p>{path}</p>");
                Ok(page.into_bytes())
            }
            _ => Err("no such file".into()),
        }
    }

    fn folder(&self, path: &str) -> Option<Vec<String>> {
        let names = ["a.pem", "a.pem.key", "b.pem"].map(str::to_owned);
        (path == "/etc/ssl/folder").then(|| names.to_vec())
    }

    fn absolute(&self, path: &str) -> String {
        match path.starts_with('/') {
            true => path.into(),
            false => format!("/etc/haproxy/{path}"),
        }
    }
}

/// Panics where the import of `text` breaks a promise.
pub(super) fn check(text: &[u8]) {
    let has_folder = !text.len().is_multiple_of(2);
    let import = || translate(&[Source { name: "x\ny", text }], &Made::new(), has_folder);
    let imported = import();
    is_served(&imported);
    remarks_are_lines(&imported, text);
    sections_are_served_or_told(&imported, text);
    assert_eq!(imported, import(), "the second import says something else");
    nothing_is_passed_over(text);
}

/// The table has no mistake, and compiles to a plan with its frontends.
fn is_served(imported: &Imported) {
    let table = match parse(imported.table.as_bytes(), Format::Yaml) {
        Ok(table) => table,
        Err(problems) => panic!("{}\n{problems}", imported.table),
    };
    let frontends = table.frontends.len();
    let host = HostAddresses::default();
    let mut context = CompileContext {
        now: Moment(0),
        workers: 1,
        ipv6: true,
        host: &host,
        rng: &mut Rng::new(1),
    };
    let plan = compile(table, &Plan::default(), &mut context);
    assert_eq!(plan.frontends().len(), frontends, "{}", imported.table);
}

/// Each remark is one line about lines of the file, and has a reason.
fn remarks_are_lines(imported: &Imported, text: &[u8]) {
    let lines = text.split(|byte| *byte == b'\n').count();
    for remark in &imported.report.remarks {
        let shown = remark.to_string();
        assert!(!shown.contains(char::is_control), "not one line: {shown:?}");
        assert!(!remark.why.is_empty(), "without a reason: {remark:?}");
        assert!(
            remark.line <= remark.last && remark.last <= lines,
            "{remark:?}"
        );
    }
}

/// A section that clients connect to is in the table, or there is a remark about it.
fn sections_are_served_or_told(imported: &Imported, text: &[u8]) {
    let texts = text
        .split(|byte| *byte == b'\n')
        .map(String::from_utf8_lossy);
    for (index, line) in texts.enumerate() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_plain = line
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b" \t-_.:".contains(&byte));
        if !is_plain || !matches!(words.as_slice(), ["frontend" | "listen", _]) {
            continue;
        }
        let number = index + 1;
        let is_served = imported.table.contains(&format!("# line {number}: "));
        let is_stats = imported.table.contains("\nstats:");
        assert!(
            is_served || is_stats || tells_of(imported, number),
            "line {number} is passed over: {line:?}\n{}\n{:#?}",
            imported.table,
            imported.report
        );
    }
}

/// A word that nothing knows, wherever it stands, is told with its line.
fn nothing_is_passed_over(text: &[u8]) {
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    // Somewhere else for each text.
    let sum = text.iter().fold(0_usize, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(usize::from(*byte))
    });
    let at = sum % lines.len().max(1);
    lines.insert(at, b"zzyzx 1");
    let imported = translate(
        &[Source {
            name: "x",
            text: &lines.join(&b'\n'),
        }],
        &Made::new(),
        false,
    );
    assert!(
        tells_of(&imported, at + 1),
        "line {} is passed over\n{:#?}",
        at + 1,
        imported.report
    );
}

fn tells_of(imported: &Imported, line: usize) -> bool {
    let mut remarks = imported.report.remarks.iter();
    remarks.any(|remark| (remark.line..=remark.last).contains(&line))
}
