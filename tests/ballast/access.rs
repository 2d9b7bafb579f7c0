//! `ballast`: access lines: one for each connection, with haproxy's two letters for its end.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::time::Duration;

use support::{Ballast, ask, echo_server, named_server, nobody, table};

/// Serves with access lines sent to a syslog server of the test's own.
fn serve(frontend: &str, service: &str, endpoints: &[SocketAddr]) -> (Ballast, UdpSocket) {
    let syslog = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    syslog
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("an option");
    let to = syslog.local_addr().expect("an address");
    let log = format!("version: 1\nlog: {{access: haproxy, to: [\"udp:{to}\"]}}\n");
    let text = table(frontend, service, endpoints).replace("version: 1\n", &log);
    (Ballast::serve(&text, 1), syslog)
}

fn line(syslog: &UdpSocket) -> String {
    let mut bytes = [0; 2048];
    let read = syslog.recv(&mut bytes).expect("a line");
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

#[test]
fn a_served_connection_is_a_line_with_its_endpoint_and_its_bytes() {
    let server = named_server("four");
    let (ballast, syslog) = serve("", "", &[server]);
    assert_eq!(ask(ballast.address()).unwrap(), "four");
    let line = line(&syslog);
    assert!(line.starts_with("<134>"), "{line}");
    assert!(line.contains(": 127.0.0.1:"), "{line}");
    // How long it took to connect depends on how busy the machine is.
    assert!(line.contains(&format!(" f s/{server} 0/")), "{line}");
    assert!(line.contains(" 4 -- 1/1/1/1/0 0/0"), "{line}");
}

#[test]
fn each_end_has_its_letters() {
    // As with haproxy, the endpoint that was tried is named.
    let dead = nobody();
    let (ballast, syslog) = serve("", ", retries: 0", &[dead]);
    assert!(ask(ballast.address()).is_err());
    let refused = line(&syslog);
    assert!(refused.contains(&format!(" s/{dead} 0/-1/")), "{refused}");
    assert!(refused.contains(" 0 SC "), "{refused}");
    assert!(refused.ends_with("/0 0/0"), "{refused}");
    // One more attempt: at the same endpoint, and at another one.
    let (ballast, syslog) = serve("", ", retries: 1", &[nobody()]);
    assert!(ask(ballast.address()).is_err());
    let refused = line(&syslog);
    assert!(refused.ends_with("/1 0/0"), "{refused}");
    let dead = [nobody(), nobody()];
    let algorithm = ", retries: 1, algorithm: first";
    let (ballast, syslog) = serve("", algorithm, &dead);
    assert!(ask(ballast.address()).is_err());
    let refused = line(&syslog);
    assert!(refused.ends_with("/+1 0/0"), "{refused}");
    let last = format!(" s/{} 0/-1/", dead[1]);
    assert!(refused.contains(&last), "the last one is named: {refused}");

    let (ballast, syslog) = serve(", timeouts: {client: 100ms}", "", &[echo_server()]);
    let idle = ballast.connect();
    assert!(line(&syslog).contains(" 0 cD "));
    drop(idle);
    let mut client = ballast.connect();
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    socket2::SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(client);
    assert!(line(&syslog).contains(" 1 CD "));
}

#[test]
fn a_connection_that_is_cut_has_a_line_too() {
    let (ballast, syslog) = serve("", "", &[echo_server()]);
    let mut client = ballast.connect();
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    let plan = ballast.running.shared().live.plan();
    let endpoint = plan.services()[0].endpoints()[0].live();
    ballast
        .running
        .shared()
        .cut(vec![std::sync::Arc::clone(endpoint)]);
    assert!(line(&syslog).contains(" 1 KD "));
}

#[test]
fn a_port_probe_at_a_trusted_peers_door_has_no_line_and_a_bad_header_has_one() {
    let accept = ", accept-proxy: {from: [\"127.0.0.0/8\"]}";
    let (ballast, syslog) = serve(accept, "", &[echo_server()]);
    drop(ballast.connect());
    let mut client = ballast.connect();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let first = line(&syslog);
    assert!(first.contains(" PR "), "{first}");

    let mut client = ballast.connect();
    client
        .write_all(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\nhello")
        .unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
    assert!(line(&syslog).contains(": 192.0.2.1:56324 ["));
}

#[test]
fn a_table_switches_lines_off_and_on() {
    let (ballast, syslog) = serve("", "", &[named_server("a")]);
    let on = std::fs::read_to_string(ballast.table_path()).unwrap();
    ballast.swap(&on.replace("access: haproxy", "access: off"));
    ask(ballast.address()).unwrap();
    ballast.swap(&on.replace("access: haproxy", "access: json"));
    ask(ballast.address()).unwrap();
    let only = line(&syslog);
    assert!(only.contains("\"frontend\":\"f\""), "{only}");
}
