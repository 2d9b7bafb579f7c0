use argon2::PasswordHasher;

use super::*;

fn header(name: &str, secret: &str) -> String {
    format!(
        "Basic {}",
        BASE64_STANDARD.encode(format!("{name}:{secret}"))
    )
}

#[test]
fn lines_name_people_their_secrets_and_their_roles() {
    let bert = bcrypt::hash("hashed", 4).unwrap();
    let params = argon2::Params::new(8, 1, 1, None).unwrap();
    let cora = Argon2::from(params)
        .hash_password_with_salt(b"dear", b"some salt")
        .unwrap();
    let text = format!("# a comment\n\nanna:plain\nbert:{bert}:viewer\ncora:{cora}\n");
    let users = Users::parse(&text).unwrap();
    let role = |name, secret| {
        let person = users.find(name, secret, Hash::is_of);
        person.map(|person| person.role)
    };
    assert_eq!(role("anna", "plain"), Some(Role::Admin));
    assert_eq!(role("bert", "hashed"), Some(Role::Viewer));
    assert_eq!(role("cora", "dear"), Some(Role::Admin));
    assert_eq!(role("cora", "plain"), None);
    assert_eq!(role("anna", "hashed"), None);
    assert_eq!(role("bert", "plain"), None);
    assert_eq!(role("", ""), None);
}

#[test]
fn every_wrong_line_is_named_with_its_remedy() {
    let wrong =
        Users::parse("a\nb:\nc:x:owner\nd:x:viewer:y\ne:$2b$04$short\nf:$argon2id$x\na:1\na:2\n")
            .unwrap_err();
    let lines: Vec<usize> = wrong.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 5, 6, 8], "{wrong:?}");
    assert_eq!(Users::parse("# nobody\n").unwrap_err().len(), 1);
}

/// The costs of the hashes that a guess causes to be checked.
fn checked(users: &Users, name: &str, secret: &str) -> Vec<Cost> {
    let costs = std::cell::RefCell::default();
    users.find(name, secret, |hash, secret| {
        let costs: &mut Vec<Cost> = &mut costs.borrow_mut();
        costs.push(hash.cost.clone());
        hash.is_of(secret)
    });
    costs.into_inner()
}

#[test]
fn a_wrong_guess_is_as_much_work_for_a_name_that_is_not_there() {
    let hash = |secret, cost| bcrypt::hash(secret, cost).unwrap();
    let params = argon2::Params::new(8, 1, 1, None).unwrap();
    let cora = Argon2::from(params)
        .hash_password_with_salt(b"dear", b"some salt")
        .unwrap();
    let text = format!(
        "anna:plain\nbert:{}\nbill:{}\ncora:{cora}\ndora:{}\n",
        hash("hashed", 4),
        hash("other", 4),
        hash("strong", 5)
    );
    let users = Users::parse(&text).unwrap();
    let work = |name| {
        let mut work = checked(&users, name, "wrong");
        work.sort_by_key(|cost| format!("{cost:?}"));
        work
    };
    let nobodys = work("nobody");
    assert_eq!(nobodys.len(), 3, "one of each cost: {nobodys:?}");
    for name in ["anna", "bert", "bill", "cora", "dora", ""] {
        assert_eq!(work(name), nobodys, "{name}");
    }
    assert_eq!(checked(&users, "bill", "other"), [Cost::Bcrypt(4)]);
    // A secret of one user is not valid for an unknown name.
    for secret in ["plain", "hashed", "other", "dear", "strong"] {
        assert_eq!(users.find("nobody", secret, Hash::is_of), None);
    }
    let plain = Users::parse("anna:plain\n").unwrap();
    assert_eq!(checked(&plain, "nobody", "wrong"), []);
}

#[test]
fn digests_are_compared_whole() {
    let digest: [u8; 32] = Sha256::digest("x").into();
    assert!(is_same(&digest, &digest));
    for byte in [0, 15, 31] {
        let mut other = digest;
        other[byte] ^= 1;
        assert!(!is_same(&digest, &other));
    }
}

#[tokio::test]
async fn a_guess_that_nobody_waits_for_keeps_its_turn_until_it_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    fs::write(&path, format!("anna:{}\n", bcrypt::hash("one", 6).unwrap())).unwrap();
    let auth = Auth::read(&path).unwrap();
    let (wrong, right) = (header("anna", "two"), header("anna", "one"));
    let mut guess = Box::pin(auth.identify(&wrong, CLIENT));
    // The check has started when the request is first polled.
    assert!(poll_immediate(&mut guess).await.is_none());
    drop(guess);
    assert_eq!(auth.checks.clients().len(), 1, "it is still checked");
    let anna = auth.identify(&right, CLIENT).await.unwrap();
    assert_eq!(&*anna.name, "anna");
    // Known headers need no permit.
    let _turn = auth.checks.take(Client::of(CLIENT)).await.unwrap();
    assert_eq!(auth.identify(&right, CLIENT).await, Ok(anna));
}

#[tokio::test]
async fn a_right_header_is_remembered_until_the_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    fs::write(&path, "anna:one\n").unwrap();
    let auth = Auth::read(&path).unwrap();
    for _ in 0..2 {
        let anna = auth.identify(&header("anna", "one"), CLIENT).await.unwrap();
        assert_eq!((&*anna.name, anna.role), ("anna", Role::Admin));
    }
    assert_eq!(
        auth.identify(&header("anna", "two"), CLIENT).await,
        Err(Unproven::Wrong)
    );
    assert_eq!(
        auth.identify("Bearer x", CLIENT).await,
        Err(Unproven::Wrong)
    );

    fs::write(&path, "anna:two\n").unwrap();
    let later = SystemTime::now() + std::time::Duration::from_secs(2);
    fs::File::options()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_modified(later))
        .unwrap();
    assert_eq!(
        auth.identify(&header("anna", "one"), CLIENT).await,
        Err(Unproven::Wrong)
    );
    assert!(auth.identify(&header("anna", "two"), CLIENT).await.is_ok());
}

/// Polls a future once. `None` if it is not ready.
async fn poll_immediate<T>(mut task: impl Future<Output = T> + Unpin) -> Option<T> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut task).poll(cx) {
            std::task::Poll::Ready(done) => Some(done),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7);
