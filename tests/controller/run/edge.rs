//! A host in a network of its own, so that it has ports 80 and 443; endpoints that say what they heard; and curl as the client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use crate::run::host::{Host, until};
use support::netns::Namespace;
use support::skip::skip;

/// Does this with a host in a network of its own, which is not started yet.
pub(crate) fn at_the_edge(work: impl FnOnce(Host) + Send) {
    match Namespace::make() {
        Ok(network) => network.within(|| work(Host::new())),
        Err(why) => skip(&format!("no network namespaces: {why}")),
    }
}

/// Starts an endpoint that answers every request with its name in `X-Endpoint`, and with the request's head as the body.
pub(crate) fn endpoint(name: &'static str, address: &str) {
    let address: SocketAddr = address.parse().expect("an address");
    let listener = TcpListener::bind(address).expect("a listener");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || answer(name, &client));
        }
    });
}

/// Starts an endpoint that speaks HTTP/2 by prior knowledge and nothing else: a connection that begins with other bytes is closed.
/// It answers like [`endpoint`], with the version in the first line of the body.
pub(crate) fn h2_endpoint(name: &'static str, address: &str) {
    let address: SocketAddr = address.parse().expect("an address");
    let listener = TcpListener::bind(address).expect("a listener");
    listener.set_nonblocking(true).expect("an option");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    thread::spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(answer_h2(name, socket));
            }
        });
    });
}

async fn answer_h2(name: &str, socket: tokio::net::TcpStream) -> Option<()> {
    let mut connection = h2::server::handshake(socket).await.ok()?;
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let target = request.uri().path_and_query()?;
        let mut head = format!("{} {target} {:?}\r\n", request.method(), request.version());
        for (name, value) in request.headers() {
            head += &format!("{name}: {}\r\n", value.to_str().ok()?);
        }
        let response = http::Response::builder().header("X-Endpoint", name);
        let mut body = respond.send_response(response.body(()).ok()?, false).ok()?;
        body.send_data(head.into(), true).ok()?;
    }
    Some(())
}

fn answer(name: &str, client: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(client);
    loop {
        let head = head(&mut reader)?;
        let mut client = client;
        write!(
            client,
            "HTTP/1.1 200 OK\r\nX-Endpoint: {name}\r\nContent-Length: {}\r\n\r\n{head}",
            head.len()
        )
        .ok()?;
    }
}

/// A request's head, of which the body is empty.
fn head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// Starts a server that answers every request so.
pub(crate) fn server(address: &str, answer: impl Fn() -> (u16, Vec<u8>) + Send + 'static) {
    let listener = TcpListener::bind(address).expect("a listener");
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            if head(&mut BufReader::new(&client)).is_some() {
                let (status, body) = answer();
                let head = format!(
                    "HTTP/1.1 {status} Word\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                client
                    .write_all(head.as_bytes())
                    .and_then(|()| client.write_all(&body))
                    .ok();
            }
        }
    });
}

/// What curl was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    /// 0: there was no answer.
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a field of its head.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    /// The endpoint that has answered.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        self.field("X-Endpoint")
    }

    /// The target of the request that the endpoint heard.
    pub(crate) fn target(&self) -> Option<&str> {
        self.endpoint()?;
        self.body.split(' ').nth(1)
    }

    /// A field of the request that the endpoint heard.
    pub(crate) fn heard(&self, name: &str) -> Option<&str> {
        self.endpoint()?;
        field(&self.body, name)
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then(|| value.trim()))
}

/// Asks with curl: its words, with spaces between. `{h}` in them stands for a space inside one.
pub(crate) fn curl(words: &str) -> Answer {
    let words = words.split(' ').map(|word| word.replace("{h}", " "));
    let output = Command::new("curl")
        .args(["--silent", "--include", "--http1.1", "--path-as-is"])
        .args(["--noproxy", "*", "--max-time", "20"])
        .args(words)
        .env_remove("CURL_CA_BUNDLE")
        .output()
        .expect("the program curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Answer {
        status: status.unwrap_or(0),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// Asks until the answer is as it should be.
pub(crate) fn until_curl(host: &Host, words: &str, is_so: impl Fn(&Answer) -> bool) -> Answer {
    let mut last = None;
    let what = format!("curl {words}");
    let begun = std::time::Instant::now();
    until(&what, || {
        let answer = curl(words);
        let come = is_so(&answer);
        if !come && begun.elapsed().as_secs() == 15 {
            eprintln!("{what} says {answer:?}\n{}", host.logs());
        }
        last = Some(answer);
        come
    });
    last.expect("an answer")
}

/// A Service with these annotations (`key: value`, one a line) and this spec.
pub(crate) fn service(key: &str, annotations: &[&str], spec: &str) -> String {
    let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
    let annotations: Vec<String> = annotations
        .iter()
        .map(|annotation| {
            let (key, value) = annotation.split_once(": ").expect("a key and a value");
            format!("    {key}: {value:?}\n")
        })
        .collect();
    let annotations = if annotations.is_empty() {
        String::new()
    } else {
        format!("  annotations:\n{}", annotations.concat())
    };
    format!(
        "kind: Service\nmetadata:\n  name: {name}\n  namespace: {namespace}\n{annotations}spec: {{{spec}}}\n---\n"
    )
}

/// The slice of a Service: its port by name, and where its endpoints are.
pub(crate) fn slice(key: &str, port_name: &str, port: u16, addresses: &[&str]) -> String {
    let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
    let endpoints: Vec<String> = addresses
        .iter()
        .map(|address| format!("{{addresses: [{address}]}}"))
        .collect();
    format!(
        "kind: EndpointSlice\nmetadata: {{name: {name}-{port}, namespace: {namespace}, labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: '{port_name}', port: {port}}}]\nendpoints: [{}]\n---\n",
        endpoints.join(", ")
    )
}

/// A Secret with this certificate and this key.
pub(crate) fn secret(name: &str, certificate: &str, key: &str) -> String {
    format!(
        "kind: Secret\nmetadata: {{name: {name}, namespace: default}}\nstringData: {{tls.crt: {certificate:?}, tls.key: {key:?}}}\n---\n"
    )
}

/// Says these bytes, and hears everything until the end.
pub(crate) fn raw(address: &str, bytes: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
    stream.write_all(bytes)?;
    let mut heard = String::new();
    stream.read_to_string(&mut heard)?;
    Ok(heard)
}
