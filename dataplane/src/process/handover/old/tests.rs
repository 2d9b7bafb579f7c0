//! What the process that runs says, and what it collects.

use std::fs::File;
use std::sync::Arc;

use ballast_core::overrides::OverrideChange;

use super::*;

#[tokio::test]
async fn a_process_that_stops_reading_hears_whole_messages_and_the_last_one_when_it_reads_on() {
    let (old, mut next) = UnixStream::pair().unwrap();
    let mut old = Next::of(old);
    let mut part = State::default();
    part.overrides = vec![OverrideChange::Closed("f".parse().unwrap(), true); 1_000];
    let sending = send_state(&mut old, vec![part; 100]);
    assert!(timeout(RETRY_EVERY, sending).await.is_err());
    assert!(!old.unsent.is_empty());
    let refused = Message::Refused("it reads nothing".into());
    let reading = async {
        let mut parts = 0;
        loop {
            match wire::receive(&mut next).await.unwrap() {
                Message::State(_) => parts += 1,
                last => break (parts, last),
            }
        }
    };
    let (told, (parts, last)) = tokio::join!(old.say(&refused), reading);
    told.unwrap();
    assert_eq!(last, refused);
    assert!((1..100).contains(&parts), "{parts}");
}

#[tokio::test]
async fn sockets_that_change_while_they_are_collected_are_collected_again() {
    let succession = Succession::new();
    let (apply, mut apply_requests) = mpsc::unbounded_channel();
    let (admin, mut admin_requests) = mpsc::unbounded_channel();
    let (freezes, _frozen) = mpsc::unbounded_channel();
    let giver = Giver {
        succession: succession.clone(),
        give_flows: Box::new(|_| Vec::new()),
        threads: vec![apply, admin],
        freezes,
        of_no_thread: Vec::new,
        busy_with: RefCell::default(),
    };
    let file = Arc::new(File::open("/dev/null").unwrap());
    let lent = |name: &str| {
        vec![Lent {
            handed: Handed::Lock(name.into()),
            descriptor: Arc::clone(&file) as _,
        }]
    };
    // Of an offer that is over, or has not begun, nothing is withdrawn.
    succession.withdraw("too early");
    let offered = succession.begin_offer();
    let answering = async {
        let mut ask: Option<LendRequest> = apply_requests.recv().await;
        ask.take().unwrap().send(lent("old")).unwrap();
        succession.withdraw("another table");
        ask = admin_requests.recv().await;
        ask.take().unwrap().send(Vec::new()).unwrap();
        ask = apply_requests.recv().await;
        ask.take().unwrap().send(lent("new")).unwrap();
        ask = admin_requests.recv().await;
        ask.take().unwrap().send(Vec::new()).unwrap();
    };
    let (collected, ()) = tokio::join!(giver.lent(&offered), answering);
    let names: Vec<_> = collected
        .unwrap()
        .into_iter()
        .map(|one| one.handed)
        .collect();
    assert_eq!(names, [Handed::Lock("new".into())]);
    assert_eq!(succession.why_withdrawn(), None);
    // From here on the next process may have them.
    succession.withdraw("another table");
    assert_eq!(succession.withdrawn().await, "another table");
    drop(offered);
    assert_eq!(succession.why_withdrawn(), None);
}

#[test]
fn more_that_is_known_gives_the_next_process_more_time() {
    let seconds = [0, MOST_STATE].map(|bytes| confirms_within(bytes).as_secs());
    assert_eq!(seconds, [10, 42]);
}
