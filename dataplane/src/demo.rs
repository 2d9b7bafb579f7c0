//! `ballast demo`: the embedded default table in front of two small backends, to look at without a file or a right.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::config::{Admin, Config};
use crate::runtime::{Running, StartError, start};

/// Starts the backends and serves the table. Prints what can be tried.
pub fn begin() -> Result<Running, StartError> {
    let backends = [backend("one")?, backend("two")?];
    let folder = std::env::temp_dir().join(format!("ballast-demo-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let table = folder.join("table.yaml");
    let port = free_port()?;
    let text = TABLE
        .replace("PORT", &port.to_string())
        .replace("ONE", &backends[0].to_string())
        .replace("TWO", &backends[1].to_string());
    fs::write(&table, text)?;
    let admin = SocketAddr::from(([127, 0, 0, 1], 1936));
    let admin = if TcpListener::bind(admin).is_ok() {
        admin
    } else {
        SocketAddr::from(([127, 0, 0, 1], free_port()?))
    };
    let running = start(Config {
        admin: Admin::At(vec![admin]),
        ..Config::new(table.clone())
    })?;
    announce(&backends, port, admin, &table);
    Ok(running)
}

fn announce(backends: &[SocketAddr; 2], port: u16, admin: SocketAddr, table: &Path) {
    println!(
        "Ballast serves 127.0.0.1:{port}, and sends its clients in turn to two backends of its own:"
    );
    println!("  one  {}    two  {}", backends[0], backends[1]);
    println!();
    println!("  curl http://127.0.0.1:{port}/            again and again: one and two take turns");
    println!("  curl http://{admin}/metrics       what was counted");
    println!("  curl http://{admin}/readyz        whether a table is served");
    println!();
    println!(
        "The table is {}: change it, save it, and it is live.",
        table.display()
    );
    println!("Ctrl-C ends.");
}

/// A backend that answers every request with its name.
fn backend(name: &'static str) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::Builder::new()
        .name(format!("backend-{name}"))
        .spawn(move || {
            for client in listener.incoming().flatten() {
                if let Err(error) = answer(client, name) {
                    tracing::debug!(%error, "backend {name}");
                }
            }
        })?;
    Ok(address)
}

fn answer(mut client: TcpStream, name: &str) -> std::io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut request = [0; 4096];
    if client.read(&mut request)? == 0 {
        return Ok(());
    }
    let body = format!("hello from backend {name}\n");
    write!(
        client,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

const TABLE: &str = include_str!("../../templates/demo.yaml");
