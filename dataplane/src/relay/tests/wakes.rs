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
