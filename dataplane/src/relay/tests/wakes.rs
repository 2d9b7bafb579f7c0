//! What wakes the task of a relay.

use std::pin::pin;

use tokio::task::{consume_budget, coop::has_budget_remaining};

use super::*;

/// The runtime answers "pending" to a task that has used up its budget, whatever its sockets have. A relay that took this for
/// "the socket has nothing" would wait for a wake-up that nobody has been asked for.
#[tokio::test]
async fn a_relay_in_a_task_without_budget_is_woken_by_its_sockets() {
    let (mut client, ours_to_client) = pair().await;
    let (ours_to_server, mut server) = pair().await;
    let tools = Tools::new(Clock::start(), 0);
    let mut relaying = Box::pin(relay(
        ours_to_client,
        ours_to_server,
        Vec::new(),
        PATIENCE,
        &tools,
        |_, _| {},
    ));
    let mut polls = 0;
    let starved = poll_fn(|cx| {
        polls += 1;
        assert!(polls < 1_000, "it spins");
        while has_budget_remaining() {
            assert!(pin!(consume_budget()).poll(cx).is_ready());
        }
        relaying.as_mut().poll(cx)
    });
    let conversation = async {
        for _ in 0..10 {
            tokio::task::yield_now().await;
            client.write_all(b"?").await.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), b'?');
            server.write_all(b"!").await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), b'!');
        }
        drop((client, server));
    };
    // In tasks of their own, so that nothing but the relay's own sockets wakes the one of the relay.
    let conversation = tokio::spawn(conversation);
    let closed = tokio::time::timeout(Duration::from_secs(10), starved);
    let closed = closed.await.expect("nobody woke the relay");
    assert_eq!(
        (closed.why, closed.up, closed.down),
        (Why::Finished, 10, 10)
    );
    conversation.await.unwrap();
}

/// The kernel reports the end once, and nobody reads after it: a reset that follows must wake the task by itself.
#[tokio::test]
async fn a_reset_behind_the_end_of_a_side_is_heard_while_the_other_side_is_silent() {
    for side in [Side::Client, Side::Server] {
        let (client, server, ended) = relayed(PATIENCE).await;
        let (mut ends, mut waits) = match side {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        ends.shutdown().await.unwrap();
        assert_eq!(waits.read(&mut [0]).await.unwrap(), 0);
        reset_on_close(&ends);
        drop(ends);
        let ended = tokio::time::timeout(Duration::from_secs(10), ended);
        let (closed, _) = ended.await.expect("nobody woke the relay").unwrap();
        assert_eq!(
            (closed.why, closed.by, closed.fault),
            (Why::Aborted, Some(side), Some(side))
        );
        let told = waits.write_all(b"?").await.and(waits.read(&mut [0]).await);
        assert!(told.is_err(), "the other side is reset");
    }
}
