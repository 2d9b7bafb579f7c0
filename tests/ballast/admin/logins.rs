//! Many wrong secrets at once: they cost whoever sends them, and nobody else.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::admin::client::{Answer, Request};
use support::Ballast;
use support::crowd::serve_as;

#[test]
fn wrong_secrets_of_one_address_keep_no_other_address_waiting() {
    let ballast = guarded();
    let admin = ballast.running.admin()[0];
    let login = |from, secret: &str| ask(admin, from, secret);
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        for number in 0..GUESSES {
            let tell = tell.clone();
            scope.spawn(move || {
                let guess = login(ATTACKER, &format!("guess {number}"));
                tell.send(guess.status).unwrap();
            });
        }
        // One was checked: the others wait, or are about to. Who finds no room to wait is turned away, and may be so sooner.
        let first = told.iter().find(|status| *status != 429);
        assert_eq!(first, Some(401));
        let good = login(OTHER, SECRET);
        assert_eq!(good.status, 200);
        // What is counted is how many were checked before, for how long a check takes depends on the machine. It is two or
        // three where this thread does not have to wait for its turn.
        let before = told.try_iter().filter(|status| *status == 401).count();
        assert!(before < 10, "{before} of {GUESSES} wrong ones came first");

        // From the attacker's own address it takes longer, and ends.
        let same = login(ATTACKER, "another guess");
        let before = told.try_iter().filter(|status| *status == 401).count();
        assert!(before < GUESSES * 3 / 4, "{before} wrong ones came first");
        assert!([401, 429].contains(&same.status), "{same:?}");
        if same.status == 429 {
            assert_eq!(same.header("retry-after"), Some("1"));
            assert!(same.body.contains("come again"), "{same:?}");
        }
        // What is known to be right waits for nothing, wherever it comes from.
        assert_eq!(login(ATTACKER, SECRET).status, 200);
        drop(tell);
        assert!(told.iter().all(|status| [401, 429].contains(&status)));
    });
    // Nobody stays locked out.
    assert_eq!(login(OTHER, "wrong").status, 401);
    assert_eq!(login(ATTACKER, "wrong").status, 401);
}

fn ask(admin: SocketAddr, from: Ipv4Addr, secret: &str) -> Answer {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&admin.into()).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    Request::new("GET", "/;csv")
        .credentials(Some(("anna", secret)))
        .over(TcpStream::from(socket))
}

/// With a user whose secret takes a while to check.
fn guarded() -> Ballast {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    fs::write(&users, format!("anna:{HASH}\n")).unwrap();
    serve_as("version: 1\n", 1, |config| {
        config.stats_auth_file = Some(users);
    })
}

const SECRET: &str = "secret";
/// Of that secret, with bcrypt's cost 8.
const HASH: &str = "$2b$08$N9qo8uLOickgx2ZMRZoMyeLrtEIT7siefRhQ8rOY.CmSoB3WDcx0O";
const GUESSES: usize = 40;
const OTHER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
