//! `ballast import`: a table out of haproxy's configuration, which `ballast check` takes, and which serves as haproxy did.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use crate::peers::{connect, fresh_ip, server};
use crate::process::{Ended, Process, ballast, command, to_its_end};
use support::skip::skip;

#[test]
fn every_sample_becomes_a_table_that_check_takes() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/ballast/binary/import");
    for (name, code) in [
        ("service-loadbalancer", 0),
        ("web", 0),
        ("tcp", 2),
        ("trouble", 2),
        ("database", 2),
        ("tls-frontend", 2),
        ("kube-apiserver", 2),
        ("mail", 2),
        ("openshift", 0),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join("files");
        fs::create_dir(&files).unwrap();
        let path = |name: &str| files.join(name).display().to_string();
        for status in [400, 403, 404, 408, 500, 502, 503, 504] {
            let page =
                format!("HTTP/1.0 {status} x\r\nContent-Type: text/html\r\n\r\n<p>sorry</p>");
            fs::write(path(&format!("{status}.http")), page).unwrap();
        }
        fs::write(path("office.lst"), "192.0.2.0/24\n").unwrap();
        fs::write(path("hosts.map"), "static.example.com static\n").unwrap();
        fs::write(path("paths.map"), "/api api\n/api/v2 api-v2\n").unwrap();
        let key = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let pem = key.cert.pem() + &key.signing_key.serialize_pem();
        for name in [
            "haproxy.pem",
            "site.pem",
            "ca.pem",
            "shop.pem",
            "other.pem",
            "own-ca.pem",
            "vpn.pem",
            "clients.pem",
        ] {
            fs::write(path(name), &pem).unwrap();
        }
        // The files of the sample are those of this test, and its names are addresses.
        let text = fs::read_to_string(samples.join(format!("{name}.cfg"))).unwrap();
        let mut text = text
            .replace("db.example.com", "10.9.0.1")
            .replace("nowhere.example.com", "10.9.0.2")
            .replace("no.such.name", "10.9.0.3")
            .replace("/etc/haproxy/hosts.map", &path("hosts.map"))
            .replace("/etc/haproxy/paths.map", &path("paths.map"));
        // An example.com has no hosts, so that each gets an address of its own.
        for number in 1..=9 {
            let name = text.split_whitespace().find_map(|word| {
                let (name, _) = word.split_once(".ocp.example.com")?;
                Some(format!("{name}.ocp.example.com"))
            });
            text = match name {
                Some(name) => text.replace(&name, &format!("10.9.1.{number}")),
                None => break,
            };
        }
        text = text.replace("lists/office.lst", &path("office.lst"));
        for folder in [
            "/etc/haproxy/errors/",
            "errors/",
            "/ssl/",
            "/etc/ssl/site",
            "/etc/ssl/private",
            "/etc/ssl/",
        ] {
            let there = files.display().to_string();
            let slash = if folder.ends_with('/') { "/" } else { "" };
            text = text.replace(&format!(" {folder}"), &format!(" {there}{slash}"));
        }
        let source = folder.path().join("haproxy.cfg");
        fs::write(&source, text).unwrap();
        let table = folder.path().join("table.yaml");
        let mut import = command(crate::process::BALLAST);
        import
            .env("SITE", "berlin")
            .env("PG_HOST", "10.0.1.1")
            .env("PG_HOST_2", "10.0.1.2");
        import.args(["import", "-o"]).arg(&table).arg(&source);
        let ended = to_its_end(&mut import);
        assert_eq!(ended.code, Some(code), "{name}: {ended:?}");
        assert_eq!(ended.out, "", "the table is in its file");
        let checked = ballast([Path::new("check"), &table]);
        assert_eq!(
            checked.code,
            Some(0),
            "{name}: {checked:?}\n{}",
            fs::read_to_string(&table).unwrap()
        );
        assert!(
            fs::read_to_string(&table)
                .unwrap()
                .starts_with("# yaml-language-server: $schema=")
        );
    }
}

#[test]
fn what_was_left_out_is_told_with_its_line_and_the_table_is_written_all_the_same() {
    let (ended, _folder) = import_text(
        "listen a\n bind 127.0.0.1:8001\n server s 127.0.0.1:1 chek\n server t localhost:2\n",
    );
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended
            .out
            .starts_with("# yaml-language-server: $schema=table.schema.json\n"),
        "{ended:?}"
    );
    assert!(
        ended.out.contains("bind: [\"127.0.0.1:8001\"]"),
        "{ended:?}"
    );
    // A host whose localhost has two addresses also gets a note which of them is taken.
    let lines = ended.err.lines().filter(|line| !line.contains(": note: "));
    let lines: Vec<&str> = lines.collect();
    let [left_out, name, summary] = lines.as_slice() else {
        panic!("{ended:?}");
    };
    let (place, words) = left_out.split_once(": ").unwrap();
    assert!(place.ends_with("haproxy.cfg:3"), "{left_out}");
    assert_eq!(
        words,
        "left out: `server s 127.0.0.1:1 chek`: \"chek\" is not known here; did you mean check?"
    );
    assert!(
        name.contains("the name localhost is ") && name.contains("127.0.0.1"),
        "{name}"
    );
    assert!(
        summary.ends_with("1 frontend (1 tcp), 1 service, 2 endpoints; 1 thing was left out"),
        "{summary}"
    );
}

#[test]
fn what_is_no_configuration_is_refused_with_a_remedy() {
    for (text, why) in [
        ("", "has no section"),
        ("version: 1\nfrontends: []\n", "has no section"),
        ("global\n daemon\n", "has no section"),
        ("\0\x01\x02", "has no section"),
    ] {
        let (ended, _folder) = import_text(text);
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert_eq!(ended.out, "");
        assert!(
            ended.err.starts_with("ballast: ")
                && ended.err.contains(why)
                && ended.err.contains("; "),
            "{ended:?}"
        );
    }
    let missing = ballast(["import", "/nowhere/haproxy.cfg"]);
    assert_eq!(missing.code, Some(64), "{missing:?}");
    assert!(
        missing
            .err
            .contains("/nowhere/haproxy.cfg: cannot be read: "),
        "{missing:?}"
    );

    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("haproxy.cfg");
    fs::write(&source, "listen a\n bind 127.0.0.1:1\n").unwrap();
    let itself = ballast([Path::new("import"), &source, Path::new("-o"), &source]);
    assert_eq!(itself.code, Some(64), "{itself:?}");
    assert!(
        fs::read_to_string(&source).unwrap().starts_with("listen"),
        "it is as it was"
    );
    let nowhere = folder.path().join("none/table.yaml");
    let unwritten = ballast([Path::new("import"), &source, Path::new("-o"), &nowhere]);
    assert_eq!(unwritten.code, Some(1), "{unwritten:?}");
    assert!(unwritten.err.contains("cannot be written"), "{unwritten:?}");
    // A page would need a folder, too.
    let page =
        "listen a\n mode http\n bind 127.0.0.1:1\n http-request return status 200 string x\n";
    fs::write(&source, page).unwrap();
    let unwritten = ballast([Path::new("import"), &source, Path::new("-o"), &nowhere]);
    assert_eq!(unwritten.code, Some(1), "{unwritten:?}");
    assert!(
        unwritten.err.contains("there is no folder "),
        "{unwritten:?}"
    );
    assert!(!folder.path().join("none").exists());
}

/// As haproxy takes them: files in their order, and of a folder those that end with .cfg, by their names.
#[test]
fn several_files_and_folders_are_one_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("conf.d")).unwrap();
    let page = "HTTP/1.0 503 x\r\nContent-Type: text/html\r\n\r\n<p>one</p>";
    fs::write(at("503.http"), page).unwrap();
    let of_page = format!(" errorfile 503 {}\n", at("503.http").display());
    let times = " timeout connect 1s\n timeout client 1s\n timeout server 1s\n";
    fs::write(
        at("base.cfg"),
        format!("defaults\n mode http\n{times}{of_page}"),
    )
    .unwrap();
    fs::write(at("conf.d/20.cfg"), "backend b\n server s 127.0.0.1:1\n").unwrap();
    let frontend = "frontend f\n bind 127.0.0.1:17299\n default_backend b\n";
    fs::write(at("conf.d/10.cfg"), frontend).unwrap();
    fs::write(at("conf.d/.hidden.cfg"), "nonsense\n").unwrap();
    fs::write(at("conf.d/notes.txt"), "nonsense\n").unwrap();
    if is_there("haproxy") {
        let mut haproxy = command("haproxy");
        haproxy.arg("-c").arg("-f").arg(at("base.cfg"));
        let checked = to_its_end(haproxy.arg("-f").arg(at("conf.d")));
        assert_eq!(checked.code, Some(0), "{checked:?}");
    } else {
        skip("haproxy is not installed: it is not asked");
    }
    let import = || {
        let (base, more, table) = (at("base.cfg"), at("conf.d"), at("table.yaml"));
        let paths = [Path::new("import"), Path::new("-f"), &base, &more];
        ballast(paths.into_iter().chain([Path::new("-o"), &table]))
    };
    let imported = import();
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let table = fs::read_to_string(at("table.yaml")).unwrap();
    assert!(
        table.contains("10.cfg: frontend f\n") && table.contains("20.cfg: backend b\n"),
        "{table}"
    );
    assert!(table.contains("protocol: http\n"), "{table}");
    // The page that an import has written it may write anew; another file of this name it may not.
    fs::write(at("503.http"), page.replace("one", "two")).unwrap();
    assert_eq!(import().code, Some(0));
    let written = || fs::read_to_string(at("errors/503.html")).unwrap();
    assert_eq!(written(), "<p>two</p>");
    fs::remove_file(at("table.yaml")).unwrap();
    fs::write(at("503.http"), page).unwrap();
    assert_eq!(import().code, Some(0));
    assert_eq!(written(), "<p>two</p>");
    let other = fs::read_to_string(at("errors/503-2.html")).unwrap();
    assert_eq!(other, "<p>one</p>");

    // A table that is another one may have been completed by hand, and is kept.
    fs::remove_file(at("errors/503.html")).unwrap();
    fs::write(at("table.yaml"), "mine").unwrap();
    let kept = import();
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert!(kept.err.contains("table.yaml.old\n"), "{kept:?}");
    assert_eq!(fs::read_to_string(at("table.yaml.old")).unwrap(), "mine");
    assert!(
        !import().err.contains(".old"),
        "the same table replaces nothing"
    );

    fs::write(at("conf.d/30.cfg"), " bind 127.0.0.1:1\n").unwrap();
    fs::remove_file(at("errors/503.html")).unwrap();
    let told = import();
    assert_eq!(told.code, Some(2), "{told:?}");
    assert!(
        told.err.contains("30.cfg:1: left out: `bind 127.0.0.1:1`"),
        "{told:?}"
    );
    let none = ballast(["import"]);
    assert_eq!(none.code, Some(64), "{none:?}");
}

/// haproxy, where it is there, and Ballast with the imported table answer the same requests alike.
#[test]
fn requests_arrive_where_haproxy_sent_them() {
    let folder = tempfile::tempdir().unwrap();
    let servers = Servers::begin();
    let at = fresh_ip();
    let source = folder.path().join("haproxy.cfg");
    fs::write(
        folder.path().join("503.http"),
        "HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/html\r\n\r\n<p>later</p>",
    )
    .unwrap();
    fs::write(
        folder.path().join("hosts.map"),
        "# hosts\nshop.example.com  shop\nnobody.example.com no-such-backend\n",
    )
    .unwrap();
    fs::write(&source, servers.configuration(at, folder.path())).unwrap();

    let mut answers = Vec::new();
    if is_there("haproxy") {
        let checked = to_its_end(command("haproxy").arg("-c").arg("-f").arg(&source));
        assert_eq!(checked.code, Some(0), "{checked:?}");
        let mut haproxy = command("haproxy");
        let process = Process::spawn(haproxy.arg("-db").arg("-f").arg(&source));
        process.until("haproxy listens", || {
            connect(SocketAddr::from((at, 17_080))).is_ok()
        });
        answers.push(("haproxy", ask_all(at)));
    } else {
        skip("haproxy is not installed: its answers are not compared");
    }

    let table = folder.path().join("table.yaml");
    let import = || ballast([Path::new("import"), &source, Path::new("-o"), &table]);
    let page = folder.path().join("errors/503.html");
    fs::create_dir(folder.path().join("errors")).unwrap();
    fs::write(&page, "somebody's").unwrap();
    let beside = import();
    assert_eq!(beside.code, Some(0), "{beside:?}");
    assert_eq!(fs::read_to_string(&page).unwrap(), "somebody's");
    let other = folder.path().join("errors/503-2.html");
    assert_eq!(fs::read_to_string(other).unwrap(), "<p>later</p>");
    fs::remove_file(&page).unwrap();
    let imported = import();
    assert_eq!(imported.code, Some(0), "{imported:?}");
    assert_eq!(import().code, Some(0), "a second time, too");
    assert_eq!(fs::read_to_string(page).unwrap(), "<p>later</p>");
    assert!(
        imported.err.ends_with("nothing was left out\n"),
        "{imported:?}"
    );
    let process = Process::run(&table, &[]);
    process.until_answers("/readyz", 200);
    answers.push(("ballast", ask_all(at)));

    for (program, answers) in &answers {
        let expected: Vec<String> = EXPECTED
            .iter()
            .map(|(_, answer)| (*answer).to_owned())
            .collect();
        assert_eq!(
            *answers,
            expected,
            "{program}\n{}",
            fs::read_to_string(&table).unwrap()
        );
    }
}

/// A page takes the place of the one that the table before named, and of nothing else: no source, and no other table's page.
#[test]
fn an_import_is_repeated_over_its_own_pages() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let text = |page: &str| {
        format!(
            "listen a\n mode http\n bind 127.0.0.1:1\n errorfile 503 {}\n http-request deny content-type text/plain string {page}\n",
            file("errors/503.html").display()
        )
    };
    let source = "HTTP/1.0 503 x\r\nContent-Type: text/html\r\n\r\nlater";
    fs::create_dir(file("errors")).unwrap();
    fs::write(file("errors/503.html"), source).unwrap();
    let import = |page: &str, table: &str| {
        fs::write(file("haproxy.cfg"), text(page)).unwrap();
        let arguments = [Path::new("import"), &file("haproxy.cfg"), Path::new("-o")];
        let imported = ballast(arguments.into_iter().chain([&*file(table)]));
        assert!(
            imported.code == Some(0) || imported.code == Some(2),
            "{imported:?}"
        );
    };
    let is = |name: &str, text: &str| {
        assert_eq!(fs::read_to_string(file(name)).unwrap(), text, "{name}");
    };
    import("one", "table.yaml");
    import("two", "table.yaml");
    is("errors/403.txt", "two");
    is("errors/503.html", source);
    is("errors/503-2.html", "later");
    assert!(!file("errors/403-2.txt").exists());
    import("three", "other.yaml");
    is("errors/403.txt", "two");
    is("errors/403-2.txt", "three");
    fs::remove_file(file("table.yaml")).unwrap();
    import("four", "table.yaml");
    is("errors/403-3.txt", "four");
}

/// What imports once got wrong without a word: haproxy, where it is there, and Ballast with the imported table answer alike.
#[test]
fn what_looks_small_is_as_in_haproxy() {
    let folder = tempfile::tempdir().unwrap();
    let at = fresh_ip();
    let echo = server(|mut client| {
        let Some(head) = head_of(&mut client) else {
            return;
        };
        let head = head.to_ascii_lowercase();
        let mut shown: Vec<&str> = head.lines().filter(|line| line.starts_with("x-")).collect();
        shown.sort_unstable();
        let path = head.split(' ').nth(1).unwrap_or_default();
        let body = format!("{path} {}", shown.join(", "));
        write!(client, "HTTP/1.1 200 OK\r\nX-Of: endpoint\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).ok();
    });
    let first = server(|mut client| drop(client.write_all(b"first")));
    let second = server(|mut client| drop(client.write_all(b"second")));
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for (name, answer) in ANSWERS {
        fs::write(folder.path().join(name), answer).unwrap();
    }
    let mut text = String::from(
        "http-errors site\n errorfile 404 AT/away.http\ndefaults\n mode http\n timeout connect 2s\n timeout client 10s\n timeout server 10s\n",
    );
    for (index, (lines, of_backend, ..)) in ALIKE.iter().enumerate() {
        let port = 17_200 + index;
        let lines = lines.replace(';', "\n");
        let of_backend = of_backend
            .replace(';', "\n")
            .replace("ECHO", &echo.to_string())
            .replace("FIRST", &first.to_string())
            .replace("SECOND", &second.to_string())
            .replace("NOBODY", &nobody.to_string());
        text.push_str(&format!("frontend f{index}\n bind {at}:{port}\n {lines}\n default_backend b{index}\nbackend b{index}\n {of_backend}\n"));
    }
    let source = folder.path().join("haproxy.cfg");
    let files = folder.path().display().to_string();
    fs::write(&source, text.replace("AT/", &format!("{files}/"))).unwrap();
    let ask = || -> Vec<String> {
        let asked = ALIKE.iter().enumerate();
        let answers = asked.map(|(index, (.., request, _))| {
            let port = u16::try_from(17_200 + index).unwrap();
            whole_answer(SocketAddr::from((at, port)), request)
        });
        answers.collect()
    };
    let expected: Vec<&str> = ALIKE.iter().map(|(.., expected)| *expected).collect();

    if is_there("haproxy") {
        let mut haproxy = command("haproxy");
        let process = Process::spawn(haproxy.arg("-db").arg("-f").arg(&source));
        process.until("haproxy listens", || {
            connect(SocketAddr::from((at, 17_200))).is_ok()
        });
        assert_eq!(ask(), expected, "haproxy");
    } else {
        skip("haproxy is not installed: its answers are not compared");
    }

    let table = folder.path().join("table.yaml");
    let imported = ballast([Path::new("import"), &source, Path::new("-o"), &table]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let process = Process::run(&table, &[]);
    process.until_answers("/readyz", 200);
    assert_eq!(ask(), expected, "{}", fs::read_to_string(&table).unwrap());
}

/// Lines of a frontend and of its backend, a request, and the answer.
const ALIKE: [(&str, &str, &str, &str); 38] = [
    (
        "option forwardfor;http-request del-header X-Forwarded-For",
        "server s ECHO",
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Host: a\r\nX-Forwarded-Port: PORT\r\nX-Forwarded-Proto: http",
        "200 endpoint / x-forwarded-for: 127.0.0.1, x-forwarded-host: a, x-forwarded-port: PORT, x-forwarded-proto: http",
    ),
    (
        "http-request set-header X-Forwarded-For %[src]",
        "server s ECHO",
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Host: a\r\nX-Forwarded-Port: PORT\r\nX-Forwarded-Proto: http",
        "200 endpoint / x-forwarded-for: 127.0.0.1, x-forwarded-host: a, x-forwarded-port: PORT, x-forwarded-proto: http",
    ),
    (
        "http-request set-header X-Forwarded-Proto https",
        "server s ECHO",
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: http",
        "200 endpoint / x-forwarded-proto: https",
    ),
    (
        "http-request set-header X-A f;http-response set-header X-Of f",
        "http-request set-header X-A b;http-response set-header X-Of b;server s ECHO",
        "GET / HTTP/1.1\r\nHost: a",
        "200 f / x-a: b",
    ),
    (
        "use_backend b4 if { path_beg /b }",
        "http-request replace-path ^/b(/)?(.*) /\\2;server s ECHO",
        "GET /bq HTTP/1.1\r\nHost: a",
        "200 endpoint /q ",
    ),
    (
        "http-request set-header X-A b",
        "http-request replace-path ^/b(/)?(.*) /\\2;server s ECHO",
        "GET /b/q/r HTTP/1.1\r\nHost: a",
        "200 endpoint /q/r x-a: b",
    ),
    (
        "http-request deny deny_status 429 content-type text/plain string slow if { path /x }",
        "server s ECHO",
        "GET /x HTTP/1.1\r\nHost: a",
        "429  slow",
    ),
    (
        "http-request deny deny_status 404 if { path /x }",
        "server s ECHO",
        "GET /y HTTP/1.1\r\nHost: a",
        "200 endpoint /y ",
    ),
    (
        "mode tcp;tcp-request connection accept if { src 127.0.0.0/8 };tcp-request content reject if { src 127.0.0.0/8 }",
        "mode tcp;server s FIRST",
        "",
        "",
    ),
    (
        "mode tcp;tcp-request content reject unless { src 127.0.0.0/8 };tcp-request session accept;tcp-request connection accept",
        "mode tcp;server s FIRST",
        "",
        "first",
    ),
    (
        "mode tcp",
        "mode tcp;option redispatch 1;server x NOBODY check inter 100 fall 1;server s SECOND backup check inter 100 fall 1;server t FIRST backup check inter 100 fall 1",
        "",
        "second",
    ),
    (
        "http-response add-header X-B c",
        "server s ECHO",
        "GET /z HTTP/1.1\r\nHost: a",
        "200 endpoint /z ",
    ),
    (
        "redirect location /new?a=b",
        "server s ECHO",
        "GET /z?q=1 HTTP/1.1\r\nHost: a",
        "302 /new?a=b ",
    ),
    (
        "redirect prefix https://w.example drop-query code 301",
        "server s ECHO",
        "GET /z?q=1 HTTP/1.1\r\nHost: a",
        "301 https://w.example/z ",
    ),
    (
        "http-error status 503 content-type text/plain string gone",
        "server s NOBODY",
        "GET /z HTTP/1.1\r\nHost: a",
        "503  gone",
    ),
    (
        "option forwardfor",
        "server s ECHO",
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Host: b\r\nX-Forwarded-Proto: https",
        "200 endpoint / x-forwarded-for: 127.0.0.1, x-forwarded-host: b, x-forwarded-proto: https",
    ),
    (
        "",
        "retries 0;server s NOBODY",
        "HEAD /z HTTP/1.1\r\nHost: a",
        "503  ",
    ),
    (
        "http-request tarpit if { path /x };timeout tarpit 10",
        "server s ECHO",
        "HEAD /x HTTP/1.1\r\nHost: a",
        "500  ",
    ),
    (
        "http-request deny deny_status 404 if { path /x } OR { path /y }",
        "server s ECHO",
        "HEAD /y HTTP/1.1\r\nHost: a",
        "404  ",
    ),
    (
        "http-request del-header X-A -m str",
        "server s ECHO",
        "GET /z HTTP/1.1\r\nHost: a\r\nX-A: b\r\nX-Ab: c",
        "200 endpoint /z x-ab: c",
    ),
    (
        "http-request deny unless { src 10.0.0.0/8 }",
        "server s ECHO",
        "HEAD /z HTTP/1.1\r\nHost: a",
        "403  ",
    ),
    (
        "http-request deny if { hdr(host) -i *.w.example }",
        "server s ECHO",
        "GET /z HTTP/1.1\r\nHost: a.w.example",
        "200 endpoint /z ",
    ),
    (
        "http-request deny if { hdr(host),lower A.example }",
        "server s ECHO",
        "GET /z HTTP/1.1\r\nHost: a.example",
        "200 endpoint /z ",
    ),
    (
        "",
        "http-request replace-path ^/app/(.*) /\\1;server s ECHO",
        "GET /app HTTP/1.1\r\nHost: a",
        "200 endpoint /app ",
    ),
    (
        "",
        "http-request replace-path ^/app/(.*) /\\1;server s ECHO",
        "GET /app/x/app/y HTTP/1.1\r\nHost: a",
        "200 endpoint /x/app/y ",
    ),
    (
        "mode tcp;tcp-request inspect-delay 2s;tcp-request content reject unless { req.ssl_sni -i a.example }",
        "mode tcp;server s FIRST",
        "GET /z HTTP/1.1\r\nHost: a",
        "",
    ),
    (
        "http-response set-header Strict-Transport-Security max-age=60;http-response set-header X-Of f",
        "server s ECHO",
        "GET /z HTTP/1.1\r\nHost: a",
        "200 f /z ",
    ),
    (
        "http-request deny deny_status 404 if { path_beg /x } !{ src 10.0.0.0/8 }",
        "server s ECHO",
        "HEAD /x/y HTTP/1.1\r\nHost: a",
        "404  ",
    ),
    (
        "http-request deny deny_status 429 content-type text/plain string slow hdr Retry-After 5 hdr X-Of d if { src 127.0.0.0/8 }",
        "server s ECHO",
        "GET /x HTTP/1.1\r\nHost: a",
        "429 d [retry-after: 5]slow",
    ),
    (
        "http-request deny deny_status 404 errorfiles site hdr X-Of d if { src 127.0.0.0/8 }",
        "server s ECHO",
        "GET /x HTTP/1.1\r\nHost: a",
        "404 file [content-type: text/html][retry-after: 5]<p>away</p>",
    ),
    (
        "http-request deny errorfile AT/fine.http if { path /x }",
        "server s ECHO",
        "GET /x HTTP/1.1\r\nHost: a",
        "200 file [cache-control: max-age=5]fine",
    ),
    (
        "errorfile 503 AT/fine.http",
        "server s NOBODY",
        "GET /x HTTP/1.1\r\nHost: a",
        "200 file [cache-control: max-age=5]fine",
    ),
    (
        "http-error status 503 errorfile AT/empty.http",
        "server s NOBODY",
        "GET /x HTTP/1.1\r\nHost: a",
        "503 file ",
    ),
    (
        "http-request return status 200 content-type text/plain string up hdr X-Of d hdr Retry-After 6 if { path /x }",
        "server s ECHO",
        "GET /x HTTP/1.1\r\nHost: a",
        "200 d [retry-after: 6]up",
    ),
    (
        "http-request tarpit deny_status 404 if { src 127.0.0.0/8 };timeout tarpit 10",
        "server s ECHO",
        "HEAD /x HTTP/1.1\r\nHost: a",
        "404  ",
    ),
    (
        "http-request allow if { src 127.0.0.0/8 };use_backend none if { src 127.0.0.0/8 }",
        "server s ECHO;backend none",
        "HEAD /x HTTP/1.1\r\nHost: a",
        "503  ",
    ),
    (
        "http-request allow if { src 10.0.0.0/8 };http-request deny deny_status 404",
        "server s ECHO",
        "HEAD /x HTTP/1.1\r\nHost: a",
        "404  ",
    ),
    (
        "mode tcp;tcp-request inspect-delay 2s;tcp-request content accept if { req.ssl_hello_type 1 };tcp-request content reject",
        "mode tcp;server s FIRST",
        "GET /z HTTP/1.1\r\nHost: a",
        "",
    ),
];

/// Whole answers in files, which are compared with the fields of their heads.
const ANSWERS: [(&str, &str); 3] = [
    (
        "away.http",
        "HTTP/1.1 404 Away\r\nX-Of: file\r\nRetry-After: 5\r\nContent-Type: text/html\r\n\r\n<p>away</p>",
    ),
    (
        "fine.http",
        "HTTP/1.1 200 OK\r\nX-Of: file\r\nCache-Control: max-age=5\r\nConnection: close\r\n\r\nfine",
    ),
    ("empty.http", "HTTP/1.1 503 Later\r\nX-Of: file\r\n\r\n"),
];

/// Status, `X-Of` or `Location`, other fields that an answer in a file may have, and body of an answer, or what a server without a protocol says.
fn whole_answer(address: SocketAddr, request: &str) -> String {
    let port = address.port().to_string();
    let ask = || {
        let mut stream = connect(address)?;
        if !request.is_empty() {
            let request = request.replace("PORT", &port);
            write!(stream, "{request}\r\nConnection: close\r\n\r\n")?;
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = ask().unwrap_or_default().replace(&port, "PORT");
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return answer;
    };
    let status = head.split(' ').nth(1).unwrap_or_default();
    let of = head.lines().find_map(|line| {
        let line = line.to_ascii_lowercase();
        let value = line.strip_prefix("x-of: ");
        value
            .or_else(|| line.strip_prefix("location: "))
            .map(str::to_owned)
    });
    let mut fields: Vec<String> = head.lines().map(str::to_ascii_lowercase).collect();
    let compared = ["retry-after: ", "cache-control: max-age"];
    let is_file = of.as_deref() == Some("file");
    fields.retain(|field| {
        compared.iter().any(|name| field.starts_with(name))
            || is_file
                && ["cache-control", "content-type"]
                    .iter()
                    .any(|name| field.starts_with(name))
    });
    fields.sort_unstable();
    let fields: String = fields.iter().map(|field| format!("[{field}]")).collect();
    format!("{status} {} {fields}{body}", of.unwrap_or_default())
}

/// Servers that say who they are and what they were asked.
struct Servers {
    web: SocketAddr,
    shop: SocketAddr,
    stripped: SocketAddr,
    echo: SocketAddr,
    proxied: SocketAddr,
    greeter: SocketAddr,
}

impl Servers {
    fn begin() -> Self {
        let http = |name: &'static str| {
            server(move |mut client| {
                let Some(head) = head_of(&mut client) else {
                    return;
                };
                let line = head.lines().next().unwrap_or_default();
                let path = line.split(' ').nth(1).unwrap_or_default();
                let forwarded = head.to_ascii_lowercase().contains("x-forwarded-for: 127.");
                let body = format!("{name} {path} {forwarded}");
                write!(client, "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).ok();
            })
        };
        let raw = |name: &'static str| {
            server(move |mut client| {
                let mut heard = Vec::new();
                let mut bytes = [0; 4096];
                while !heard.ends_with(b"!") {
                    let Ok(read @ 1..) = client.read(&mut bytes) else {
                        return;
                    };
                    heard.extend_from_slice(&bytes[..read]);
                }
                let kind = String::from_utf8_lossy(&heard).starts_with("PROXY TCP4 127.");
                write!(client, "{name} {kind}").ok();
            })
        };
        Self {
            web: http("web"),
            shop: http("shop"),
            stripped: http("stripped"),
            echo: raw("echo"),
            proxied: raw("proxied"),
            greeter: server(|mut client| {
                client.write_all(b"hello").ok();
                client.read_to_end(&mut Vec::new()).ok();
            }),
        }
    }

    fn configuration(&self, at: Ipv4Addr, folder: &Path) -> String {
        let Self {
            web,
            shop,
            stripped,
            echo,
            proxied,
            greeter,
        } = self;
        let map = folder.join("hosts.map").display().to_string();
        let page = folder.join("503.http").display().to_string();
        format!(
            "defaults
    mode http
    timeout connect 2s
    timeout client 10s
    timeout server 10s
    option forwardfor

frontend web
    bind {at}:17080
    acl internal src 127.0.0.0/8
    acl private path_beg /private
    http-request deny if private !internal
    http-request deny if {{ path_beg /secret }}
    http-request redirect prefix https://a.example code 301 if {{ path /login }}
    use_backend shop if {{ hdr(host) -i shop.example.com }} !{{ path_beg /static }}
    use_backend stripped if {{ path_beg /svc/ }} or {{ path /svc }}
    use_backend nobody if {{ path_beg /nobody }}
    default_backend web

backend web
    http-response del-header Server
    server w {web}

backend shop
    balance leastconn
    server s {shop}

backend stripped
    http-request replace-path /svc(/)?(.*) /\\2
    server s {stripped}

backend nobody
    errorfile 503 {page}

listen echo
    mode tcp
    bind {at}:17081
    balance source
    server e \"{echo}\"

frontend proxied
    mode tcp
    bind {at}:17082
    default_backend proxied

backend proxied
    mode tcp
    server p {proxied} send-proxy

listen closed
    mode tcp
    bind {at}:17083
    tcp-request connection reject if {{ src 127.0.0.0/8 }}
    server e {echo}

frontend before-closed
    mode tcp
    bind {at}:17088
    default_backend closed-behind

backend closed-behind
    mode tcp
    tcp-request content reject if {{ src 127.0.0.0/8 }}
    server e {echo}

.if defined(HOME)
frontend mapped
    bind {at}:17084
    bind {at}:17085
    monitor-uri /alive
    acl second dst_port 17085
    http-request return status 200 content-type text/plain string \"none\" if {{ path /robots.txt }}
    use_backend shop if second {{ path_beg /second }}
    use_backend %[req.hdr(host),lower,map({map})] unless {{ path_beg /plain }}
    use_backend stripped if {{ path_beg /svc/ }}
    default_backend web
.else
frontend never
    bind {at}:17084
.endif

listen limited
    mode tcp
    bind {at}:17086
    stick-table type ip size 1k expire 1m store conn_cur
    tcp-request connection track-sc0 src
    tcp-request connection reject if {{ sc0_conn_cur gt 2 }}
    server g {greeter}

listen limited-behind
    mode tcp
    bind {at}:17087
    stick-table type ip size 1k expire 1m store conn_cur
    tcp-request connection reject if {{ src_conn_cur ge 3 }}
    tcp-request connection track-sc1 src
    server g {greeter}
"
        )
    }
}

const EXPECTED: [(&str, &str); 34] = [
    ("a.example /", "200 web / true"),
    ("a.example /private/x", "200 web /private/x true"),
    ("a.example /secret", "403"),
    ("a.example /secretly", "403"),
    ("shop.example.com /secret/x", "403"),
    ("shop.example.com /", "200 shop / true"),
    ("SHOP.example.com /a/b?c", "200 shop /a/b?c true"),
    ("shop.example.com /svc/x", "200 shop /svc/x true"),
    ("shop.example.com /static/x", "200 web /static/x true"),
    ("a.example /svc", "200 stripped / true"),
    ("a.example /svc/x/y?z", "200 stripped /x/y?z true"),
    ("a.example /svcx", "200 web /svcx true"),
    ("a.example /login", "301 https://a.example/login"),
    ("a.example /login/x", "200 web /login/x true"),
    (":17081", "echo false"),
    (":17082", "proxied true"),
    (":17083", "refused"),
    (":17088", "refused"),
    ("shop.example.com / 17084", "200 shop / true"),
    ("SHOP.example.com /x 17084", "200 shop /x true"),
    ("shop.example.com /plain 17084", "200 web /plain true"),
    ("shop.example.com /svc/x 17084", "200 shop /svc/x true"),
    ("nobody.example.com /svc/x 17084", "200 web /svc/x true"),
    ("a.example /svc/x 17084", "200 web /svc/x true"),
    ("a.example /second 17084", "200 web /second true"),
    ("a.example /second 17085", "200 shop /second true"),
    ("shop.example.com /third 17085", "200 shop /third true"),
    ("a.example /alive 17084", "200"),
    ("a.example /alive/x 17085", "200 web /alive/x true"),
    ("a.example /robots.txt 17085", "200 none"),
    ("shop.example.com /robots.txt 17084", "200 none"),
    (
        "shop.example.com /plain/svc/ 17085",
        "200 web /plain/svc/ true",
    ),
    ("+17086", "2"),
    ("+17087", "3"),
];

fn ask_all(at: Ipv4Addr) -> Vec<String> {
    let answers = EXPECTED.iter().map(|(question, _)| {
        let at = |port: &str| SocketAddr::from((at, port.parse().unwrap()));
        match (question.strip_prefix(':'), question.strip_prefix('+')) {
            (Some(port), _) => say(at(port)),
            (_, Some(port)) => greetings(at(port)),
            _ => {
                let words: Vec<&str> = question.split(' ').collect();
                request(at(words.get(2).unwrap_or(&"17080")), words[0], words[1])
            }
        }
    });
    answers.collect()
}

/// How many of five connections that stay are greeted.
fn greetings(address: SocketAddr) -> String {
    let mut open = Vec::new();
    for _ in 0..5 {
        let Ok(mut stream) = connect(address) else {
            continue;
        };
        let mut greeting = [0; 5];
        if stream.read_exact(&mut greeting).is_ok() {
            open.push(stream);
        }
    }
    open.len().to_string()
}

/// Status, and the body of a good answer or the place of a redirect.
fn request(address: SocketAddr, host: &str, path: &str) -> String {
    let mut stream = connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    let field = |name: &str| {
        head.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix(name)
                .map(str::to_owned)
        })
    };
    assert!(
        !body.starts_with("web") || field("server: ").is_none(),
        "{head}"
    );
    match status {
        // The page is each program's own.
        "200" if path == "/alive" => "200".into(),
        "200" => format!("200 {body}"),
        "301" => format!("301 {}", field("location: ").unwrap_or_default()),
        other => other.into(),
    }
}

fn say(address: SocketAddr) -> String {
    let ask = || {
        let mut stream = connect(address)?;
        stream.write_all(b"hello!")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    match ask() {
        Ok(answer) if !answer.is_empty() => answer,
        _ => "refused".into(),
    }
}

pub(crate) fn is_there(program: &str) -> bool {
    Command::new(program).arg("-v").output().is_ok()
}

/// Imports a text to standard output.
fn import_text(text: &str) -> (Ended, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("haproxy.cfg");
    fs::write(&source, text).unwrap();
    (ballast([Path::new("import"), &source]), folder)
}

/// The head of a request. `None`: the client leaves before its end.
pub(crate) fn head_of(client: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut bytes = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let Ok(read @ 1..) = client.read(&mut bytes) else {
            return None;
        };
        head.extend_from_slice(&bytes[..read]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}
