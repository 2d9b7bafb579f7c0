//! curl as a client that nobody of us wrote.

use std::fs;
use std::process::{Command, Output};

use crate::http::wire::{Endpoint, Wire, response, table};
use support::Ballast;
use support::peers::{alone, noise};
use support::skip::skip;

/// What curl says; `None` where there is none.
fn curl(args: &[&str]) -> Option<Output> {
    let starting = alone();
    let child = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "30",
            "--http1.1",
            "--noproxy",
            "*",
        ])
        .args(args)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn();
    drop(starting);
    match child {
        Ok(child) => Some(child.wait_with_output().expect("its end")),
        Err(error) => {
            skip(&format!("curl: {error} (apt-get install curl)"));
            None
        }
    }
}

/// Invites the body, reads it, and sends it back.
fn inviting_echo() -> Endpoint {
    Endpoint::scripted(|wire: &mut Wire, endpoint, connection| {
        while let Some(mut request) = wire.request_head() {
            if request.field("Expect").is_some() {
                wire.send("HTTP/1.1 100 Continue\r\n\r\n");
            }
            let Some(body) = wire.request_body(&request) else {
                return;
            };
            request.body = body;
            request.connection = connection;
            let length = request.body.len();
            wire.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
            ));
            wire.send(&request.body);
            endpoint.note(request);
        }
    })
}

#[test]
fn curl_uploads_and_downloads_large_files() {
    let endpoint = inviting_echo();
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let url = format!("http://{}/", ballast.address());
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    let bulk = noise(20 << 20, 42);
    fs::write(from, &bulk).unwrap();
    for how in [
        &[][..],
        &["--header", "Transfer-Encoding: chunked"],
        &["--http1.0"],
    ] {
        let mut args = vec!["--upload-file", from, "--output", to, url.as_str()];
        args.extend(how);
        let Some(output) = curl(&args) else { return };
        assert!(output.status.success(), "{how:?}: {output:?}");
        assert!(fs::read(to).unwrap() == bulk, "{how:?}");
        assert!(endpoint.last().body == bulk, "{how:?}");
        assert_eq!(
            endpoint.last().field("Expect").is_some(),
            how != ["--http1.0"],
            "{how:?}"
        );
    }
}

#[test]
fn curl_keeps_its_connection() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let url = format!("http://{}/[1-9]", ballast.address());
    let Some(output) = curl(&["--write-out", " %{num_connects}\n", &url]) else {
        return;
    };
    let out = String::from_utf8(output.stdout).unwrap();
    // Each page comes with a line about itself, and one line tells which one it is.
    let connects: Vec<_> = out
        .lines()
        .filter(|line| line.starts_with("served"))
        .collect();
    assert_eq!(connects.len(), 9, "{out}");
    assert_eq!(connects[0], "served 1");
    assert!(
        connects[1..].iter().all(|line| *line == "served 0"),
        "{out}"
    );
    let targets: Vec<_> = endpoint
        .heard()
        .iter()
        .map(|one| one.target().to_owned())
        .collect();
    assert_eq!(
        targets,
        (1..=9).map(|n| format!("/{n}")).collect::<Vec<_>>()
    );
}

#[test]
fn curl_upgrades() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        if endpoint.hear(wire, connection).is_some() {
            wire.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: words\r\n\r\nhello");
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let url = format!("http://{}/", ballast.address());
    let Some(output) = curl(&[
        "--include",
        "--no-buffer",
        "--header",
        "Connection: Upgrade",
        "--header",
        "Upgrade: words",
        &url,
    ]) else {
        return;
    };
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(
        out.starts_with("HTTP/1.1 101 Switching Protocols\r\n"),
        "{out}"
    );
    assert!(out.ends_with("\r\n\r\nhello"), "{out}");
    assert_eq!(endpoint.last().field("Upgrade"), Some("words"));
}

#[test]
fn curl_reads_an_answer_to_an_upload_that_nobody_wants() {
    let endpoint = Endpoint::scripted(|wire, _, _| {
        if wire.request_head().is_some() {
            wire.send(response(
                "413 Content Too Large",
                "Connection: close\r\n",
                "too much",
            ));
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let url = format!("http://{}/", ballast.address());
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::write(&from, vec![b'x'; 20 << 20]).unwrap();
    for expect in ["Expect: 100-continue", "Expect:"] {
        let Some(output) = curl(&[
            "--header",
            expect,
            "--upload-file",
            from.to_str().unwrap(),
            &url,
        ]) else {
            return;
        };
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "too much",
            "{output:?}"
        );
    }
}
