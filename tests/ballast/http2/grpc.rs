//! gRPC as grpc-go speaks it: its client for interoperability tests asks its server through Ballast.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::http2::programs::built;
use support::Ballast;
use support::free_port;
use support::papers::Papers;

/// The cases of the client that need nothing but its server.
const CASES: &[&str] = &[
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

#[test]
fn grpc_works_through_ballast() {
    let (Some(client), Some(server)) = (built("client"), built("server")) else {
        return;
    };
    let server = Server::start(&server);
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let tables = [
        crate::http2::table("", "h2", server.address),
        crate::http2::https_table(&papers, "h2", server.address),
    ];
    let ca = papers.path("ca.pem");
    let in_tls = [
        "-use_tls",
        "-use_test_ca",
        "-server_host_override",
        "shop.test",
        "-ca_file",
    ]
    .map(OsStr::new);
    let in_tls = [&in_tls[..], &[ca.as_os_str()]].concat();
    for (table, options) in tables.iter().zip([&[][..], &in_tls]) {
        let ballast = Ballast::serve(table, 1);
        for case in CASES {
            let output = Command::new(&client)
                .args(["-server_host", &ballast.address().ip().to_string()])
                .args(["-server_port", &ballast.address().port().to_string()])
                .args(["-test_case", case])
                .args(options)
                .output()
                .expect("the client of grpc-go");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{case} with {options:?}: {errors}");
        }
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}

/// The server of grpc-go. It ends with this value.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(program: &Path) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let child = Command::new(program)
            .args(["-port", &address.port().to_string()])
            .stderr(Stdio::null())
            .spawn()
            .expect("the server of grpc-go");
        let server = Self { child, address };
        support::until("the server of grpc-go listens", || {
            TcpStream::connect(address).is_ok()
        });
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
