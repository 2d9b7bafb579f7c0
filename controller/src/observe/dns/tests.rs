//! The resolver against name servers of the test's own, on this host.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

use super::*;

/// The answer of a test's server to a question, if it answers. The flag is set for a question over TCP.
type Script = Box<dyn Fn(&[u8], bool) -> Option<Vec<u8>> + Send + Sync>;

struct Server {
    address: SocketAddr,
    /// The names that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
    tasks: [JoinHandle<io::Result<()>>; 2],
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn server(script: Script) -> Server {
    // A port that is free for both.
    let (listener, socket) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        match UdpSocket::bind(listener.local_addr().unwrap()).await {
            Ok(socket) => break (listener, socket),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::AddrInUse),
        }
    };
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (over_tcp, noted) = (Arc::clone(&script), Arc::clone(&asked));
    let udp = async move {
        let mut buffer = [0; 512];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await?;
            noted.lock().unwrap().push(name_in(&buffer[..length]));
            if let Some(answer) = script(&buffer[..length], false) {
                socket.send_to(&answer, from).await?;
            }
        }
    };
    let tcp = async move {
        loop {
            let (mut stream, _) = listener.accept().await?;
            let mut asked = vec![0; stream.read_u16().await?.into()];
            stream.read_exact(&mut asked).await?;
            if let Some(answer) = over_tcp(&asked, true) {
                stream.write_u16(answer.len().try_into().unwrap()).await?;
                stream.write_all(&answer).await?;
            }
        }
    };
    Server {
        address,
        asked,
        tasks: [tokio::spawn(udp), tokio::spawn(tcp)],
    }
}

fn name_in(question: &[u8]) -> String {
    let mut labels = Vec::new();
    let mut rest = &question[12..];
    while rest[0] != 0 {
        let (label, after) = rest[1..].split_at(rest[0].into());
        labels.push(String::from_utf8(label.to_vec()).unwrap());
        rest = after;
    }
    labels.join(".")
}

fn is_v6(question: &[u8]) -> bool {
    question[question.len() - 3] == 28
}

/// A record of a name, which is written as it goes over the wire.
fn record(name: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    [
        name,
        &kind.to_be_bytes(),
        &[0, 1],
        &ttl.to_be_bytes(),
        &length.to_be_bytes(),
        data,
    ]
    .concat()
}

/// The question's own name, as a pointer.
const SAME: &[u8] = &[0xc0, 12];

fn answer(question: &[u8], flags: u16, records: &[Vec<u8>]) -> Vec<u8> {
    let mut message = question.to_vec();
    message[2..4].copy_from_slice(&(0x8180 | flags).to_be_bytes());
    message[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
    message.extend(records.concat());
    message
}

/// One address of each family.
fn both(question: &[u8]) -> Vec<u8> {
    let record = match is_v6(question) {
        true => record(SAME, 28, 20, &std::net::Ipv6Addr::LOCALHOST.octets()),
        false => record(SAME, 1, 10, &[127, 0, 0, 7]),
    };
    answer(question, 0, &[record])
}

/// A look-up at this server ends without an answer.
async fn assert_unanswered(server: &Server) {
    let config = Config {
        timeout: Duration::from_millis(300),
        ..config(&[server])
    };
    let found = look_up_with(&config, "db.example").await;
    assert!(
        matches!(found, Err(ResolveError::Unanswered(_))),
        "{found:?}"
    );
}

fn config(servers: &[&Server]) -> Config {
    Config {
        servers: servers.iter().map(|server| server.address).collect(),
        search: vec!["a.example".to_owned()],
        timeout: Duration::from_secs(5),
        attempts: 1,
    }
}

fn addresses(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

#[tokio::test]
async fn both_families_are_asked_for_and_the_shorter_time_holds() {
    let server = server(Box::new(|question, _| Some(both(question)))).await;
    let found = look_up_with(&config(&[&server]), "db.example").await;
    let found = found.unwrap();
    assert_eq!(found.addresses(), addresses(&["127.0.0.7", "::1"]));
    assert_eq!(found.ttl, Duration::from_secs(10));
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_over_tcp() {
    let server = server(Box::new(|question, tcp| {
        Some(match tcp {
            true => both(question),
            false => answer(question, 0x0200, &[]),
        })
    }))
    .await;
    let found = look_up_with(&config(&[&server]), "db.example").await;
    assert_eq!(found.unwrap().addresses(), addresses(&["127.0.0.7", "::1"]));
}

#[tokio::test]
async fn what_is_no_answer_to_the_question_is_not_taken() {
    let server = server(Box::new(|question, _| {
        // Another id, as of an attacker who guesses.
        let mut forged = both(question);
        forged[0] ^= 1;
        Some(forged)
    }))
    .await;
    assert_unanswered(&server).await;
}

#[tokio::test]
async fn the_next_server_is_asked_when_one_fails() {
    let refuses = server(Box::new(|question, _| Some(answer(question, 2, &[])))).await;
    let works = server(Box::new(|question, _| Some(both(question)))).await;
    let found = look_up_with(&config(&[&refuses, &works]), "db.example").await;
    assert_eq!(found.unwrap().addresses().len(), 2);
    assert_eq!(refuses.asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_searched_for_only_without_a_dot() {
    let server = server(Box::new(|question, _| {
        Some(match name_in(question).ends_with(".a.example") {
            true => both(question),
            false => answer(question, 3, &[]),
        })
    }))
    .await;
    let config = config(&[&server]);
    assert_eq!(
        look_up_with(&config, "db.b").await,
        Err(ResolveError::NoAddress)
    );
    let found = look_up_with(&config, "db").await.unwrap();
    assert_eq!(found.addresses().len(), 2);
    let mut asked = server.asked.lock().unwrap().clone();
    asked.dedup();
    assert_eq!(asked, ["db.b", "db", "db.a.example"]);
}

#[tokio::test]
async fn a_family_that_fails_keeps_its_last_addresses() {
    let server = server(Box::new(|question, _| match is_v6(question) {
        true => Some(answer(question, 2, &[])),
        false => Some(answer(question, 0, &[record(SAME, 1, 10, &[127, 0, 0, 8])])),
    }))
    .await;
    let mut known = Resolved {
        v4: Some(addresses(&["127.0.0.7"])),
        v6: Some(addresses(&["::1"])),
        ttl: Duration::ZERO,
    };
    let found = look_up_with(&config(&[&server]), "db.example").await;
    known.update(found.unwrap());
    assert_eq!(known.addresses(), addresses(&["127.0.0.8", "::1"]));
}

#[tokio::test]
async fn what_is_no_name_is_not_asked_for() {
    let server = server(Box::new(|question, _| Some(both(question)))).await;
    let long = "a".repeat(64);
    for name in ["", "a..b", ".", &long, &["a"; 200].join(".")] {
        let found = look_up_with(&config(&[&server]), name).await;
        assert_eq!(found, Err(ResolveError::NotAName), "{name:?}");
    }
    assert!(server.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn aliases_are_followed_in_any_order_but_not_in_circles() {
    let other = b"\x05other\x07example\0".as_slice();
    let third = b"\x05third\x07example\0".as_slice();
    let addressed = record(b"\x05OTHER\x07example\0", 1, 50, &[127, 0, 0, 7]);
    let alias = record(SAME, 5, 30, other);
    let stranger = record(third, 1, 1, &[127, 0, 0, 9]);
    let own = record(SAME, 1, 40, &[127, 0, 0, 8]);
    let circle = record(other, 5, 30, b"\x02db\x07example\0");
    let cases = [
        (vec![alias.clone(), addressed.clone()], "127.0.0.7", 30),
        (
            vec![addressed, stranger.clone(), alias.clone()],
            "127.0.0.7",
            30,
        ),
        (vec![stranger.clone(), own], "127.0.0.8", 40),
        (vec![stranger], "", 0),
        (vec![alias.clone()], "", 0),
        (vec![alias, circle], "", 0),
    ];
    for (records, expected, ttl) in cases {
        let text = format!("{records:?}");
        let server = server(Box::new(move |question, _| {
            let records = match is_v6(question) {
                true => &[],
                false => &*records,
            };
            Some(answer(question, 0, records))
        }))
        .await;
        let found = look_up_with(&config(&[&server]), "DB.example").await;
        match expected {
            "" => assert!(found.is_err(), "{text}: {found:?}"),
            expected => {
                let found = found.unwrap();
                assert_eq!(found.addresses(), addresses(&[expected]), "{text}");
                assert_eq!(found.ttl, Duration::from_secs(ttl), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_or_garbage_is_none() {
    let whole = |question: &[u8]| {
        let records = (1..=20).map(|last| record(SAME, 1, 10, &[127, 0, 0, last]));
        answer(question, 0, &records.collect::<Vec<_>>())
    };
    for keep in [3, 12, 40, 100, 200] {
        let server = server(Box::new(move |question, _| {
            let mut cut = whole(question);
            cut.truncate(keep);
            Some(cut)
        }))
        .await;
        assert_unanswered(&server).await;
    }
}
