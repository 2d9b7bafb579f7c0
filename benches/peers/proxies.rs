//! The proxies in the comparison: whether each is there, how it is configured (one worker, one frontend, one endpoint, no
//! logs unless they are what is measured, everything else as it comes), how it is started and what it says about itself.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::netns::{Net, Place, Started};
use crate::program;
use crate::protocol::Protocol;
use crate::tables::second_front;
use crate::tls::Certificate;

/// A party of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Proxy {
    /// None: client and origin alone.
    Direct,
    Floor,
    Haproxy,
    /// haproxy with `option splice-auto`: it splices when it thinks that the bytes come fast.
    HaproxyAuto,
    /// haproxy told to splice both ways, whatever it thinks.
    HaproxySplice,
    Nginx,
    Ballast,
    /// Another binary of Ballast, to compare the two.
    Beside,
}

impl Proxy {
    pub(crate) const ALL: [Self; 8] = [
        Self::Direct,
        Self::Floor,
        Self::Haproxy,
        Self::HaproxyAuto,
        Self::HaproxySplice,
        Self::Nginx,
        Self::Ballast,
        Self::Beside,
    ];

    /// All that take part unless others are asked for.
    pub(crate) fn usual() -> Vec<Self> {
        let is_wanted = |proxy: &Self| *proxy != Self::Beside || binary_beside().is_some();
        Self::ALL.into_iter().filter(is_wanted).collect()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Floor => "floor",
            Self::Haproxy => "haproxy",
            Self::HaproxyAuto => "haproxy-auto",
            Self::HaproxySplice => "haproxy-splice",
            Self::Nginx => "nginx",
            Self::Ballast => "ballast",
            Self::Beside => "beside",
        }
    }

    /// The version that will be measured, or why it will not be.
    pub(crate) fn version(self) -> Result<String, String> {
        match self {
            Self::Direct => Ok("client and origin without a proxy".to_owned()),
            Self::Floor => Ok("a bare epoll loop, part of this bench".to_owned()),
            Self::Haproxy | Self::HaproxyAuto | Self::HaproxySplice => first_line("haproxy", "-v"),
            Self::Nginx => {
                first_line("nginx", "-v").and_then(|version| stream_module().map(|_| version))
            }
            Self::Ballast => program::build().and_then(|()| ballast_version(&program::path())),
            Self::Beside => match binary_beside() {
                Some(path) => ballast_version(&path),
                None => Err("BALLAST_BESIDE names no binary".to_owned()),
            },
        }
    }

    /// Starts it in its place; `None` for no proxy.
    pub(crate) fn start(self, net: &Net, task: &Task<'_>) -> io::Result<Option<Running>> {
        let mut command = match self {
            Self::Direct => return Ok(None),
            Self::Floor => {
                let mut command = net.role(Place::Proxy, "floor");
                command.args([net.front().to_string(), net.origin().to_string()]);
                command
            }
            Self::Haproxy => haproxy(net, task, "")?,
            Self::HaproxyAuto => haproxy(net, task, "option splice-auto")?,
            Self::HaproxySplice => {
                let options = "option splice-request\n  option splice-response";
                haproxy(net, task, options)?
            }
            Self::Nginx => nginx(net, task)?,
            Self::Ballast => ballast(net, &program::path(), task.table)?,
            Self::Beside => ballast(net, &binary_beside().unwrap_or_default(), task.table)?,
        };
        let log = net.folder.join(format!("{}.log", self.name()));
        let file = fs::File::create(&log)?;
        command.stdout(file.try_clone()?).stderr(file);
        let started = net.start(&mut command)?;
        Ok(Some(Running { started, log }))
    }
}

/// What a proxy is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task<'a> {
    pub(crate) protocol: Protocol,
    /// Whether it writes a line for each request.
    pub(crate) logs: bool,
    /// The same for Ballast.
    pub(crate) table: &'a str,
}

/// A proxy at work.
pub(crate) struct Running {
    started: Started,
    log: PathBuf,
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.started.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.started.is_running()
    }

    /// The last words of its log, for an error.
    pub(crate) fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(3).collect();
        last.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

/// The share of all bytes that the haproxy which runs now has spliced, from its own counters.
pub(crate) fn haproxy_spliced_share(folder: &Path) -> io::Result<f64> {
    let mut socket = UnixStream::connect(folder.join(HAPROXY_SOCKET))?;
    socket.write_all(b"show info\n")?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    let value = |prefix: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(prefix) && line.contains("BytesOut"))?;
        line.split_once(": ")?.1.trim().parse::<f64>().ok()
    };
    // The counter's name has a slip of the pen in some versions; its beginning is the same in all.
    match (value("TotalSplic"), value("TotalBytesOut")) {
        (Some(spliced), Some(all)) if all > 0.0 => Ok(spliced / all),
        _ => Err(io::Error::other("haproxy counts no spliced bytes")),
    }
}

fn binary_beside() -> Option<PathBuf> {
    std::env::var_os("BALLAST_BESIDE").map(PathBuf::from)
}

/// Where Ballast reads its table.
pub(crate) fn table_file(folder: &Path) -> PathBuf {
    folder.join("table.json")
}

/// Where Ballast says what it serves.
pub(crate) fn ack_file(folder: &Path) -> PathBuf {
    folder.join("ack.json")
}

fn haproxy(net: &Net, task: &Task<'_>, option: &str) -> io::Result<Command> {
    let file = net.folder.join("haproxy.cfg");
    let socket = net.folder.join(HAPROXY_SOCKET);
    let mode = match task.protocol {
        Protocol::Tcp => "tcp",
        _ => "http\n  http-reuse always\n  option forwardfor",
    };
    let rules = match task.protocol {
        Protocol::Tcp | Protocol::Grpc => "",
        _ => "  http-request replace-path /svc/(.*) /\\1\n",
    };
    let version = match task.protocol {
        Protocol::Grpc => " proto h2",
        _ => "",
    };
    let certificate = Certificate::in_folder(&net.folder).both;
    let certificate = certificate.display();
    let bind = match task.protocol {
        Protocol::Http => format!("\n  bind {} backlog 4096", second_front(net.front())),
        Protocol::Http2Tls => format!(" ssl crt {certificate} alpn h2"),
        Protocol::Https { .. } => format!(" ssl crt {certificate}"),
        _ => String::new(),
    };
    let log = if task.logs {
        "\n  log stdout format raw local0\n  option httplog"
    } else {
        ""
    };
    let text = format!(
        "global\n  nbthread 1\n  maxconn {}\n  stats socket {}\n\
         defaults\n  mode {mode}{log}\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n  {option}\n\
         listen bench\n  bind {} backlog 4096{bind}\n{rules}  server origin {}{version}\n",
        net.descriptors.min(20_000) * 7 / 20,
        socket.display(),
        net.front(),
        net.origin()
    );
    fs::write(&file, text)?;
    let mut command = net.command(Place::Proxy, "haproxy");
    command.args(["-db", "-f"]).arg(file);
    Ok(command)
}

fn nginx(net: &Net, task: &Task<'_>) -> io::Result<Command> {
    let file = net.folder.join("nginx.conf");
    let module = stream_module().map_err(io::Error::other)?;
    let load_module = module
        .map(|path| format!("load_module {};\n", path.display()))
        .unwrap_or_default();
    let block = match task.protocol {
        Protocol::Tcp => nginx_streams(net),
        _ => nginx_http(net, task),
    };
    let text = format!(
        "{load_module}daemon off;\nworker_processes 1;\nworker_rlimit_nofile {descriptors};\npid {folder}/nginx.pid;\n\
         error_log stderr error;\nevents {{ worker_connections {connections}; }}\n{block}",
        folder = net.folder.display(),
        descriptors = net.descriptors,
        connections = net.descriptors.min(20_000) * 4 / 5,
    );
    fs::write(&file, text)?;
    let mut command = net.command(Place::Proxy, "nginx");
    command
        .args(["-e", "stderr", "-p"])
        .arg(&net.folder)
        .arg("-c")
        .arg(file);
    Ok(command)
}

fn nginx_streams(net: &Net) -> String {
    format!(
        "stream {{\n  access_log off;\n  server {{\n    listen {front} backlog=4096;\n    proxy_timeout 1h;\n    proxy_pass {origin};\n  }}\n  \
         server {{\n    listen {front} udp rcvbuf=4m;\n    proxy_timeout 1h;\n    proxy_pass {origin};\n  }}\n  \
         server {{\n    listen {above} udp rcvbuf=4m;\n    proxy_requests 1;\n    proxy_responses 1;\n    proxy_timeout 60s;\n    proxy_pass {origin};\n  }}\n}}\n",
        front = net.front(),
        origin = net.origin(),
        above = second_front(net.front()),
    )
}

/// Connections to the origin are kept, as haproxy and Ballast keep theirs, and no body goes to a file.
fn nginx_http(net: &Net, task: &Task<'_>) -> String {
    let folder = net.folder.display();
    let files = Certificate::in_folder(&net.folder);
    let tls = match task.protocol.is_tls() {
        true => format!(
            "    ssl_protocols TLSv1.3;\n    ssl_certificate {};\n    ssl_certificate_key {};\n",
            files.certificate.display(),
            files.key.display()
        ),
        false => String::new(),
    };
    let listen = match task.protocol {
        Protocol::Https { .. } => " ssl".to_owned(),
        Protocol::Http2Tls => " ssl http2".to_owned(),
        Protocol::Http2 | Protocol::Grpc => " http2".to_owned(),
        // One socket does not serve both versions without TLS.
        Protocol::Http => format!(";\n    listen {} http2", second_front(net.front())),
        Protocol::Tcp => String::new(),
    };
    let location = match task.protocol {
        Protocol::Grpc => NGINX_CALLS,
        _ => NGINX_REQUESTS,
    };
    let log = if task.logs {
        format!("{folder}/nginx-access.log combined")
    } else {
        "off".to_owned()
    };
    format!(
        "http {{\n  access_log {log};\n  keepalive_requests {NO_LIMIT};\n  keepalive_timeout 1h;\n  \
         upstream origin {{\n    server {origin};\n    keepalive 256;\n    keepalive_requests {NO_LIMIT};\n  }}\n  \
         server {{\n    listen {front} backlog=4096{listen};\n{tls}{location}  }}\n}}\n",
        front = net.front(),
        origin = net.origin(),
    )
}

fn ballast(net: &Net, binary: &Path, table: &str) -> io::Result<Command> {
    let (table_file, ack) = (table_file(&net.folder), ack_file(&net.folder));
    fs::write(&table_file, table)?;
    if ack.exists() {
        fs::remove_file(&ack)?;
    }
    let mut command = net.command(Place::Proxy, binary);
    command
        .args(["run", "--threads", "1", "--admin", "none", "--table"])
        .arg(table_file)
        .arg("--ack")
        .arg(ack);
    Ok(command)
}

/// The file of nginx's stream module; `None` where it is built in.
fn stream_module() -> Result<Option<PathBuf>, String> {
    let output = Command::new("nginx")
        .arg("-V")
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| format!("nginx: {error}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    if told.split_whitespace().any(|word| word == "--with-stream") {
        return Ok(None);
    }
    let folder = told
        .split_whitespace()
        .find_map(|word| word.strip_prefix("--modules-path="));
    let module = Path::new(folder.unwrap_or("/usr/lib/nginx/modules")).join("ngx_stream_module.so");
    if module.exists() {
        return Ok(Some(module));
    }
    Err("nginx has no stream module (Debian: install libnginx-mod-stream)".to_owned())
}

fn ballast_version(path: &Path) -> Result<String, String> {
    if !path.exists() {
        let place = path.display();
        return Err(format!(
            "no {place}: build it with `cargo build --release -p ballast`, or set BALLAST_BIN"
        ));
    }
    let age = fs::metadata(path)
        .and_then(|data| data.modified())
        .ok()
        .and_then(|built| built.elapsed().ok());
    let minutes = age.map(|age| age.as_secs() / 60).unwrap_or_default();
    let version = first_line(&path.to_string_lossy(), "--version").unwrap_or_else(|why| why);
    Ok(format!(
        "{version}: {}, built {minutes} min ago",
        path.display()
    ))
}

fn first_line(program: &str, flag: &str) -> Result<String, String> {
    let output = Command::new(program)
        .arg(flag)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

const NGINX_REQUESTS: &str = "    location /svc/ {
      proxy_pass http://origin/;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_max_temp_file_size 0;
    }
";
const NGINX_CALLS: &str = "    location / {
      grpc_pass grpc://origin;
      grpc_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }
";
const HAPROXY_SOCKET: &str = "haproxy.sock";
const NO_LIMIT: u32 = 1_000_000_000;
