//! Peers that mean harm, beside clients that mean well. Each attack has a limit of memory, processor time and descriptors, and
//! the others are answered while it lasts and after it.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::peers::{connect, echo_server, fresh_address, fresh_ip, get, ping, server};
use crate::process::{BALLAST, Process, command, folder};
use support::papers::Papers;

mod datagrams;
mod floods;
mod operators;
mod slow;
mod smuggling;
mod tables;

/// A running `ballast` with a frontend of each kind, and what it used before it was attacked.
struct Siege {
    process: Process,
    folder: TempDir,
    _papers: Papers,
    /// Relays bytes to an echo.
    tcp: SocketAddr,
    /// The same behind a PROXY header, which everybody may send.
    proxied: SocketAddr,
    http: SocketAddr,
    https: SocketAddr,
    /// Passes TLS through by its name.
    pass: SocketAddr,
    udp: SocketAddr,
    before: Cost,
}

/// What a process holds and has used.
#[derive(Clone, Copy, Debug)]
struct Cost {
    resident: usize,
    /// Seconds of a core.
    cpu: f64,
    /// Without files and pipes, of which some are kept for later.
    sockets: usize,
}

/// How much more an attack may cost than nothing.
struct Most {
    mebibytes: usize,
    /// Seconds of a core. The program is a debug build, so these are several times those of a release build.
    cpu: f64,
}

impl Siege {
    fn new() -> Self {
        Self::with("", &[])
    }

    /// With these fields of every frontend, and these arguments.
    fn with(fields: &str, args: &[&str]) -> Self {
        let papers = Papers::new();
        papers.issue("web", &["web.test"]);
        let [tcp, proxied, http, https, pass] = [(); 5].map(|()| fresh_address());
        let udp = fresh_address();
        let (echo, web, datagrams) = (echo_server(), web_server(), datagram_echo());
        let entry = papers.entry("web");
        let times =
            "timeouts: {preamble: 2s, request: 2s, client: 4s, client-fin: 2s, keep-alive: 2s}";
        let table = format!(
            "version: 1\nfrontends:\n\
             - {{name: tcp, bind: [\"{tcp}\"], protocol: tcp, service: echo, {times}{fields}}}\n\
             - {{name: proxied, bind: [\"{proxied}\"], protocol: tcp, service: echo, accept-proxy: {{from: [\"127.0.0.0/8\"]}}, {times}{fields}}}\n\
             - {{name: http, bind: [\"{http}\"], protocol: http, default: {{service: web}}, {times}{fields}}}\n\
             - {{name: https, bind: [\"{https}\"], protocol: https, tls: {{certificates: [{entry}]}}, default: {{service: web}}, {times}{fields}}}\n\
             - {{name: pass, bind: [\"{pass}\"], protocol: tls, routes: [{{host: web.test, service: echo}}], {times}{fields}}}\n\
             - {{name: udp, bind: [\"{udp}\"], protocol: udp, service: datagrams, timeouts: {{idle: 2s}}}}\n\
             services:\n\
             - {{name: echo, endpoints: [{{address: \"{echo}\"}}]}}\n\
             - {{name: web, endpoints: [{{address: \"{web}\"}}]}}\n\
             - {{name: datagrams, endpoints: [{{address: \"{datagrams}\"}}]}}\n"
        );
        let folder = folder(&table);
        let mut run = command(BALLAST);
        run.args(["run", "--threads", "2", "--admin", "127.0.0.1:0", "--table"]);
        let process = Process::spawn(run.arg(folder.path()).args(args));
        process.until_answers("/readyz", 200);
        let nothing = Cost::of(&process);
        let mut siege = Self {
            process,
            folder,
            _papers: papers,
            tcp,
            proxied,
            http,
            https,
            pass,
            udp,
            before: nothing,
        };
        // What the first of each kind makes stays: pools, pages of the allocator.
        siege.serves_others();
        siege.before = Cost::of(&siege.process);
        siege
    }

    /// Clients that mean well are answered on every frontend.
    fn serves_others(&self) {
        let begun = Instant::now();
        ping(&mut connect(self.tcp).unwrap()).unwrap();
        let mut proxied = connect(self.proxied).unwrap();
        proxied
            .write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 1000 80\r\n")
            .unwrap();
        ping(&mut proxied).unwrap();
        assert_eq!(get(self.http, "/").unwrap(), (200, "served".to_owned()));
        // A handshake that ends in an alert says that TLS was spoken.
        let mut hello = connect(self.https).unwrap();
        hello.write_all(&client_hello("web.test", 0)).unwrap();
        hello.read_exact(&mut [0; 5]).unwrap();
        let mut passed = connect(self.pass).unwrap();
        let sent = client_hello("web.test", 0);
        passed.write_all(&sent).unwrap();
        let mut heard = vec![0; sent.len()];
        passed.read_exact(&mut heard).unwrap();
        assert!(heard == sent, "a hello was changed");
        is_answered(&datagram_client(self.udp));
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "others waited for {took:?}");
    }

    /// Asserts that no more was used since the start than this, whatever is still held.
    fn has_cost(&self, what: &str, most: &Most) -> Cost {
        let now = Cost::of(&self.process);
        let grown = now.resident.saturating_sub(self.before.resident) >> 20;
        let cpu = now.cpu - self.before.cpu;
        println!(
            "{what}: {grown} MiB more, {cpu:.2} s of a core, {} sockets where there were {}",
            now.sockets, self.before.sockets
        );
        assert!(grown <= most.mebibytes, "{what}: {grown} MiB more");
        assert!(cpu <= most.cpu, "{what}: {cpu} s of a core");
        now
    }

    /// Waits until it holds no more sockets than before the attack, but for a few idle connections to endpoints.
    fn until_let_go(&self) {
        self.process.until("sockets are given back", || {
            Cost::of(&self.process).sockets <= self.before.sockets + 4
        });
    }
}

impl Cost {
    fn of(process: &Process) -> Self {
        let folder = format!("/proc/{}", process.pid());
        let status = fs::read_to_string(format!("{folder}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next());
        Self {
            resident: kibibytes.unwrap().parse::<usize>().unwrap() << 10,
            cpu: process.cpu(),
            sockets: fs::read_dir(format!("{folder}/fd"))
                .unwrap()
                // One may be closed while they are counted.
                .filter_map(|one| fs::read_link(one.ok()?.path()).ok())
                .filter(|to| to.to_string_lossy().starts_with("socket:"))
                .count(),
        }
    }
}

/// A server of HTTP/1 that answers each request with `served`, and ends its connection.
fn web_server() -> SocketAddr {
    server(|mut client| {
        let mut bytes = vec![0; 64 << 10];
        if client.read(&mut bytes).is_ok_and(|read| read > 0) {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved";
            client.write_all(answer).ok();
        }
    })
}

/// A server that sends each datagram back.
fn datagram_echo() -> SocketAddr {
    let socket = UdpSocket::bind((fresh_ip(), 17_000)).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            socket.send_to(&bytes[..length], from).ok();
        }
    });
    address
}

fn datagram_client(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    socket
}

/// A flood may push a datagram out of a queue of the kernel, so it is sent several times.
fn is_answered(client: &UdpSocket) {
    let answered = (0..5).any(|_| {
        client.send(b"?").unwrap();
        client.recv(&mut [0; 8]).is_ok()
    });
    assert!(answered, "a datagram was not answered");
}

/// A connection from this address, which is one of loopback's.
pub(crate) fn connect_from(source: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect_timeout(&to.into(), Duration::from_secs(10))?;
    Ok(socket.into())
}

/// The `number`th of many addresses.
pub(crate) fn source(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(Ipv4Addr::new(127, 128, 0, 1)) + number)
}

/// A ClientHello for this name, with so many bytes of padding.
fn client_hello(name: &str, padding: usize) -> Vec<u8> {
    let two = |length: usize| u16::try_from(length).unwrap().to_be_bytes();
    let block = |bytes: &[u8]| [&two(bytes.len()), bytes].concat();
    let server_name = block(&[&[0], &*block(name.as_bytes())].concat());
    let extensions = [
        &[0, 0],
        &*block(&server_name),
        &[0, 21],
        &*block(&vec![0; padding]),
    ]
    .concat();
    let body = [
        &[3, 3],
        &[7; 32][..],
        &[0],
        &*block(&[0x13, 0x01]),
        &[1, 0],
        &*block(&extensions),
    ]
    .concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1], &length[1..], &*body].concat();
    message
        .chunks(16 << 10)
        .flat_map(|piece| [&[22, 3, 1], &*block(piece)].concat())
        .collect()
}
